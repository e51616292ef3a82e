"""
Loops in generated text: how much of an output repeats, word for word, what the same output already said.

A greedy small model often falls into a loop and says one sentence until its limit. Such text is trivially easy to draft, so traffic
that holds it promises an acceptance that real traffic does not keep.

Rules:

- An n-gram is n tokens in a row; it *repeats* where the same n tokens already started at an earlier position of the same output.
  The two may overlap.
- A position lies in a loop when a repeating n-gram covers it. The first occurrence covers nothing: saying a thing once is no loop.
- The prompt does not count: an answer that quotes its prompt is no loop, and is what prompt lookup lives on.
"""

from collections.abc import Sequence

from paceline.errors import BadInputError

__all__ = ["loop_share"]


def loop_share(tokens: Sequence[int], *, n: int) -> float:
    """
    The fraction of the output's positions that lie in a loop, 0 to 1; 0 for an output too short to repeat.

    Worked by hand with n = 2, on the tokens 1 2 3 1 2 4: of the pairs 12, 23, 31, 12, 24 only the second 12 repeats. It covers two
    positions of six.

    >>> round(loop_share([1, 2, 3, 1, 2, 4], n=2), 4)
    0.3333

    One token said four times: the pairs at 1 and at 2 repeat the pair at 0, and cover all but the first position.

    >>> loop_share([7, 7, 7, 7], n=2)
    0.75

    An empty output has no positions, and an n below 1 is no n-gram: both are refused.

    Raises:
        BadInputError: an empty output, or n below 1.

    """
    if n < 1:
        raise BadInputError(f"an n-gram has at least 1 token, not n={n}")
    if not tokens:
        raise BadInputError("an output without tokens has no loop share; leave it out")
    seen: set[tuple[int, ...]] = set()
    looped = 0
    covered_to = 0  # positions before this one are counted already
    for start in range(len(tokens) - n + 1):
        gram = tuple(tokens[start : start + n])
        if gram in seen:
            looped += start + n - max(start, covered_to)
            covered_to = start + n
        seen.add(gram)
    return looped / len(tokens)
