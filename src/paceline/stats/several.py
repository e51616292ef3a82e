"""Several claims at once: which of them share one error rate, and how it is shared.

Shipping needs *every* claim. At the margin of any one of them that claim alone wrongly passes with at most (1 − confidence) / 2, and the
others can only lower that: an intersection needs no correction (Berger 1982, Technometrics 24), and one would cost requests for nothing.

Other decisions need only *one* of several: a rollout is kept back if any claim surely fails, and ships on a segment if any segment pays.
Each more is one more chance to be wrong, so they share the error rate. With m of them:

    Bonferroni   each at 1 − (1 − confidence) / m
    Holm         the first so; once k are decided, the rest at 1 − (1 − confidence) / (m − k)      (Holm 1979, Scand. J. Statist. 6)

Holm decides whatever Bonferroni decides, and sometimes more. What is decided by one end of an interval is wrong with half of what is left
of 1. Shipping on a segment stays at that half, all segments together, for it exposes users. Keeping back may be wrong with all of
1 − confidence, for it costs a gain and harms nobody: its m claims are held at 1 − 2 · (1 − confidence) / m, and one or two at their own.

Shares need not be alike, as long as no outcome sets them. A percentile's interval has no end below a number of requests that rises with its
confidence (368 for a P99 at .95, 408 at .967), so it gets a third more than a mean: of the default three claims it is bounded from 399 on.
"""

from collections.abc import Callable, Mapping

from paceline.errors import BadInputError, printable

__all__ = ["corrected_confidence", "decided_together", "one_sided", "shared_confidence"]


def corrected_confidence(confidence: float, *, claims: int) -> float:
    """The confidence of each of so many intervals with which all of them hold their truths together (Bonferroni).

    Raises:
        BadInputError: no claim, or a confidence outside (0, 1).

    """
    if claims < 1 or not 0 < confidence < 1:
        raise BadInputError(f"{printable(claims)} claims at confidence {confidence!r}: at least one, and between 0 and 1")
    return 1 - (1 - confidence) / claims


def decided_together(shares: Mapping[str, float], is_decided: Callable[[str, float], bool], *, confidence: float) -> tuple[str, ...]:
    """Those of the names that are surely so, when one of them wrongly decided is one too many: Holm's step-down, in the order given.

    `shares` says how much of the error each name gets beside the others; all alike is Holm's own. `is_decided(name, confidence)` says
    whether the interval at that confidence decides it, and must not say yes at a higher confidence and no at a lower one. Any of the names
    is wrongly decided with at most 1 − confidence.
    """
    left, decided = list(shares), set[str]()
    while left:
        level = shared_confidence({name: shares[name] for name in left}, confidence=confidence)
        found = {name for name in left if is_decided(name, level[name])}
        if not found:
            break
        decided |= found
        left = [name for name in left if name not in found]
    return tuple(name for name in shares if name in decided)


def shared_confidence(shares: Mapping[str, float], *, confidence: float) -> dict[str, float]:
    """The confidence of each name's interval, when the error is shared so (a weighted Bonferroni)."""
    whole = sum(shares.values())
    return {name: 1 - (1 - confidence) * each / whole for name, each in shares.items()}


def one_sided(confidence: float, *, least: float) -> float:
    """The two-sided interval either end of which is wrong with 1 − `confidence`, but not below `least`."""
    return max(least, 1 - 2 * (1 - confidence))
