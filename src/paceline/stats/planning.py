"""How many requests a comparison needs, before it is run: from a pilot, or from simulated arms.

The spread of paired requests is what a plan needs and nobody knows without looking: two servers that differ by 10 % are told apart by 40
requests where pairs spread by .2, and by 160 where they spread by .4.
"""

from dataclasses import dataclass
from math import log

from paceline.errors import NoEvidenceError
from paceline.stats.intervals import FEWEST_CLUSTERS
from paceline.stats.paired import TwoArms, minimum_detectable_effect, requests_needed, requests_to_bound_quantile, speedup_spread

__all__ = ["MeasurementPlan", "measurement_plan"]

TAIL = 0.99


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """What a measurement of the same pairs would need.

    Attributes:
        bound: the speed-up that is to be exceeded.
        spread: what one pair says of log speed-up.
        requests: per arm, to show on which side of the bound a speed-up like the pilot's lies; None where it lies on the bound.
        tail_requests: per arm, for a 99th percentile with both ends.
        detectable: the smallest relative change of speed-up that as many pairs as the pilot has show, 0.05 is 5 %.
        pairs: the pilot's.
        confidence: of the intervals, two-sided.
        power: the chance that so many requests show it.

    """

    bound: float
    spread: float
    requests: int | None
    tail_requests: int
    detectable: float
    pairs: int
    confidence: float
    power: float


def measurement_plan(pilot: TwoArms, *, bound: float, confidence: float, power: float) -> MeasurementPlan:
    """The plan that follows from a pilot's seconds per token.

    Raises:
        NoEvidenceError: the arms are not in pairs, there are fewer than 8, or an arm took no time.
        BadInputError: a confidence or power outside (0, 1).

    """
    spread = speedup_spread(pilot)
    if not bound > 0:
        raise NoEvidenceError("a speed-up is always above 0, so there is nothing to measure")
    effect = abs(log(float(pilot.baseline.mean() / pilot.speculative.mean()) / bound))
    needed = requests_needed(effect=effect, spread=spread, confidence=confidence, power=power) if effect > 0 else None
    return MeasurementPlan(
        bound=bound,
        spread=spread,
        requests=None if needed is None else max(FEWEST_CLUSTERS, needed),
        tail_requests=requests_to_bound_quantile(TAIL, confidence=confidence),
        detectable=minimum_detectable_effect(n=pilot.n, spread=spread, confidence=confidence, power=power),
        pairs=pilot.n,
        confidence=confidence,
        power=power,
    )
