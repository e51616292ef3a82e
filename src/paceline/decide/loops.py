"""Answers that run in circles: acceptance on them is that of the loop.

A text loops where its end repeats one piece at least four times, and that end is at least half of the text and 100 characters long. The
piece is found exactly, by the failure function of Knuth, Morris and Pratt on the reversed text.
"""

__all__ = ["loops"]

FEWEST_REPEATS = 4
SHORTEST = 100
LONGEST = 20_000  # characters looked at, from the end


def loops(text: str) -> bool:
    """Whether the text ends in a loop that is at least half of it."""
    backwards = text[::-1][:LONGEST].strip()
    least = max(SHORTEST, len(backwards) / 2)
    failure, matched = [0] * len(backwards), 0
    for end in range(1, len(backwards)):
        while matched and backwards[end] != backwards[matched]:
            matched = failure[matched - 1]
        matched += backwards[end] == backwards[matched]
        failure[end] = matched
        size = end + 1
        if size >= least and (size - matched) * FEWEST_REPEATS <= size:
            return True
    return False
