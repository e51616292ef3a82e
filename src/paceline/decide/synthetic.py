"""Break-even by load-test with acceptance that the server makes up: what drafting costs here, and how much must be accepted to pay for it.

    E     tokens per step, as the server was told to make them
    ρ     seconds per step with drafts / without, at equal load
    gain  E − ρ: above 0 where drafting pays

ρ hardly moves with E, so E where the gain is 0 lies between two measured lengths and is found on the line between them. It is a figure of
the machine and the draft's size, and says nothing of what any draft will reach.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from paceline.decide.break_even import drafted_tokens_per_step, step_time_ratio, tokens_per_step
from paceline.decide.measured import metric_estimate
from paceline.run import Run
from paceline.verdict import Estimate

__all__ = ["BreakEven", "SyntheticPoint", "break_even", "synthetic_point"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticPoint:
    """One length at one load.

    Attributes:
        asked: tokens per step that the server was told to make.
        tokens_per_step: those that it made.
        drafted_per_step: tokens drafted per step.
        step_time_ratio: ρ.
        speedup: mean seconds per token without drafts / with.

    """

    asked: float
    tokens_per_step: float
    drafted_per_step: float
    step_time_ratio: Estimate
    speedup: Estimate


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where drafting starts to pay at one load.

    Attributes:
        tokens_per_step: E at which the gain is 0, None where no two measured lengths surround it.
        alpha: the same as accepted / drafted tokens.
        pays: at the longest measured length (True), at none (False); what an unknown break-even lies below or above.

    """

    tokens_per_step: Estimate | None
    alpha: Estimate | None
    pays: bool


def synthetic_point(asked: float, baseline: Run, speculative: Run, *, confidence: float, rng: np.random.Generator) -> SyntheticPoint:
    """What one length showed.

    Raises:
        NoEvidenceError: a step's time or what was drafted was not measured.

    """
    return SyntheticPoint(
        asked=asked,
        tokens_per_step=tokens_per_step(speculative),
        drafted_per_step=drafted_tokens_per_step(speculative),
        step_time_ratio=step_time_ratio(baseline, speculative, confidence=confidence, rng=rng),
        speedup=metric_estimate("speedup", baseline, speculative, segment=None, confidence=confidence, rng=rng),
    )


def break_even(points: Sequence[SyntheticPoint]) -> BreakEven:
    """Where the gain is 0, with the ends that ρ's ends leave (None where no two lengths surround an end)."""
    ordered = sorted(points, key=lambda each: each.tokens_per_step)
    ratios = [each.step_time_ratio for each in ordered]
    last = ordered[-1]
    pays = last.tokens_per_step > last.step_time_ratio.value
    value = _crossing(ordered, [each.value for each in ratios])
    if value is None:
        return BreakEven(tokens_per_step=None, alpha=None, pays=pays)
    low, high = (_crossing(ordered, ends) for ends in ([each.low for each in ratios], [each.high for each in ratios]))
    drafted = float(np.mean([each.drafted_per_step for each in ordered]))
    n = min(each.n for each in ratios)
    tokens = Estimate(value=value, low=low, high=high, confidence=ratios[0].confidence, n=n)
    share = [None if each is None else (each - 1) / drafted for each in (low, high)]
    alpha = Estimate(value=(value - 1) / drafted, low=share[0], high=share[1], confidence=tokens.confidence, n=n)
    return BreakEven(tokens_per_step=tokens, alpha=alpha, pays=pays)


def _crossing(ordered: Sequence[SyntheticPoint], ratios: Sequence[float | None]) -> float | None:
    """The last E at which E − ρ turns from below 0 to above, on the lines between the points."""
    gains = [
        (each.tokens_per_step, None if ratio is None else each.tokens_per_step - ratio) for each, ratio in zip(ordered, ratios, strict=True)
    ]
    for (left, before), (right, after) in reversed(list(pairwise(gains))):
        if before is not None and after is not None and before <= 0 < after:
            return left + (right - left) * -before / (after - before)
    return None
