"""What a metric amounts to when the test was looked at while it ran and might have stopped: intervals that hold at all looks together.

The speed-up of pairs and α of counted requests have confidence sequences (`stats.sequential`). Any other figure has one interval per look;
each is taken at the confidence with which those of all planned looks hold together (`stats.looks`).
"""

from dataclasses import replace

import numpy as np

from paceline.decide.in_turns import block_speedup
from paceline.decide.measured import metric_estimate, needs_requests
from paceline.run import Run
from paceline.stats.looks import Looks
from paceline.stats.paired import two_arms
from paceline.stats.sequential import anytime_acceptance, anytime_speedup
from paceline.verdict import Caution, Estimate

__all__ = ["looked_at_caution", "looked_estimate"]

POWER = 0.9  # of the design that the sequence is tightest for


def looked_estimate(
    name: str, baseline: Run, speculative: Run, *, looks: Looks, segment: str | None, confidence: float, rng: np.random.Generator
) -> Estimate:
    """The metric as `metric_estimate` has it, with ends that hold at all looks together at `confidence`.

    Raises:
        NoEvidenceError: the runs do not measure it.
        UnknownNameError: no such metric.

    """
    found = None if needs_requests(baseline, speculative) else _sequence(name, baseline, speculative, looks, segment, confidence)
    if found is not None:
        return found
    each = looks.each_at(confidence)
    at_one = metric_estimate(name, baseline, speculative, segment=segment, confidence=each, rng=rng)
    return replace(at_one, confidence=confidence)


def _sequence(name: str, baseline: Run, speculative: Run, looks: Looks, segment: str | None, confidence: float) -> Estimate | None:
    """The confidence sequence, None where the metric has none, or blocks and not requests are what is independent."""
    design = looks.design(confidence=confidence, power=POWER)
    if name == "alpha":
        counted = [each.acceptance for each in speculative.finished if segment in (None, each.segment) and each.acceptance is not None]
        return anytime_acceptance(counted, design=design) if sum(each.drafted_tokens for each in counted) else None
    if name != "speedup" or block_speedup(baseline, speculative, segment=segment, confidence=looks.each_at(confidence)) is not None:
        return None
    arms = two_arms(baseline, speculative, latency="tpot_s", segment=segment)
    return anytime_speedup(arms, design=design) if arms.paired else None


def looked_at_caution(looks: Looks) -> Caution:
    """How often the test was looked at, and what that did to its intervals."""
    return Caution(
        "looked_at_early",
        f"the test was looked at while it ran ({looks.taken} of {looks.planned} times, {looks.most_requests} requests per arm at most) and "
        "could stop each time: intervals hold at all looks together and are wider than those of a test of fixed size",
    )
