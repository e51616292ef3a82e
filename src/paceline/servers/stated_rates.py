"""A rate or a length that a source states beside the counts that it follows from: where the two differ, one of them is wrong.

The counts are used. A source that states both over different windows (a gauge of the last batches, a mean since the start) is not compared.
"""

from collections.abc import Mapping

from paceline.verdict import Caution

__all__ = ["differing"]

RELATIVE = 0.01
ROUNDED = 0.006  # two digits are printed, and a little


def differing(
    stated: Mapping[str, float | None], *, drafts: int | None, drafted_tokens: int | None, accepted_tokens: int | None
) -> tuple[Caution, ...]:
    """A caution for each stated figure that the counts contradict: `alpha` accepted / drafted, `acceptance_length` 1 + accepted / drafts.

    None was not stated, or not counted. Where nothing was drafted the rate is 0 and the length at most 1.
    """
    share, least = _share(accepted_tokens, drafts), min(stated.get("acceptance_length") or 0.0, 1.0)
    counted = {
        "alpha": _share(accepted_tokens, drafted_tokens),
        "acceptance_length": None if share is None else 1 + share if drafts else least,
    }
    pairs = [(name, said, counted[name]) for name, said in stated.items() if said is not None]
    return tuple(
        Caution("stated_rate_differs", f"{name} is stated as {said:.4g}, but the counts beside it give {ours:.4g}; the counts are used")
        for name, said, ours in pairs
        if ours is not None and abs(said - ours) > RELATIVE * max(abs(said), abs(ours)) + ROUNDED
    )


def _share(accepted_tokens: int | None, of: int | None) -> float | None:
    if accepted_tokens is None or of is None:
        return None
    return accepted_tokens / of if of else 0.0
