"""Several claims at once: which of them share one error rate, and how it is shared.

Shipping needs *every* claim. At the margin of any one of them that claim alone wrongly passes with at most (1 − confidence) / 2, and the
others can only lower that: an intersection needs no correction (Berger 1982, Technometrics 24), and one would cost requests for nothing.

Other decisions need only *one* of several: a rollout is kept back if any claim surely fails, and ships on a segment if any segment pays.
Each more is one more chance to be wrong, so they share the error rate. With m of them:

    Bonferroni   each at 1 − (1 − confidence) / m
    Holm         the first so; once k are decided, the rest at 1 − (1 − confidence) / (m − k)      (Holm 1979, Scand. J. Statist. 6)

Holm decides whatever Bonferroni decides, and sometimes more.
"""

from collections.abc import Callable, Sequence

from paceline.errors import BadInputError, printable

__all__ = ["corrected_confidence", "decided_together"]


def corrected_confidence(confidence: float, *, claims: int) -> float:
    """The confidence of each of so many intervals with which all of them hold their truths together (Bonferroni).

    Raises:
        BadInputError: no claim, or a confidence outside (0, 1).

    """
    if claims < 1 or not 0 < confidence < 1:
        raise BadInputError(f"{printable(claims)} claims at confidence {confidence!r}: at least one, and between 0 and 1")
    return 1 - (1 - confidence) / claims


def decided_together(names: Sequence[str], is_decided: Callable[[str, float], bool], *, confidence: float) -> tuple[str, ...]:
    """Those of `names` that are surely so, when one of them wrongly decided is one too many: Holm's step-down, in the order given.

    `is_decided(name, confidence)` says whether the interval at that confidence decides it, and must not say yes at a higher confidence and
    no at a lower one. Any of the names is wrongly decided with at most 1 − confidence.
    """
    left, decided = list(names), set[str]()
    while left:
        each = corrected_confidence(confidence, claims=len(left))
        found = {name for name in left if is_decided(name, each)}
        if not found:
            break
        decided |= found
        left = [name for name in left if name not in found]
    return tuple(name for name in names if name in decided)
