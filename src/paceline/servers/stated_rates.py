"""A rate or a length that a source states beside the counts that it follows from: where the two differ, one of them is wrong.

The counts are used. A source that states both over different windows (a gauge of the last batches, a mean since the start) is not compared.
"""

from collections.abc import Mapping

from paceline.verdict import Caution

__all__ = ["differing"]

RELATIVE = 0.01
ROUNDED = 0.006  # two digits are printed, and a little


def differing(stated: Mapping[str, float | None], *, drafts: int | None, drafted_tokens: int, accepted_tokens: int) -> tuple[Caution, ...]:
    """A caution for each stated figure that the counts contradict: `alpha` accepted / drafted, `acceptance_length` 1 + accepted / drafts.

    None was not stated. Nothing is compared where nothing was drafted, and no length where drafts are not counted.
    """
    counted = {
        "alpha": accepted_tokens / drafted_tokens if drafted_tokens else None,
        "acceptance_length": 1 + accepted_tokens / drafts if drafts else None,
    }
    pairs = [(name, said, counted[name]) for name, said in stated.items() if said is not None]
    return tuple(
        Caution("stated_rate_differs", f"{name} is stated as {said:.4g}, but the counts beside it give {ours:.4g}; the counts are used")
        for name, said, ours in pairs
        if ours is not None and abs(said - ours) > RELATIVE * max(abs(said), abs(ours)) + ROUNDED
    )
