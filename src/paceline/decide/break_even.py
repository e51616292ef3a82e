"""Where drafting starts to pay: the step-time ratio and the acceptance rate it asks for.

    ρ     seconds per speculative step / seconds per plain step, at equal load
    α_be  (ρ − 1) / (coverage · K̄),  K̄ drafted tokens per drafted step, so coverage · K̄ = drafted tokens / steps

α_be may lie above 1 (no acceptance pays here) or below 0 (drafting costs nothing). No constant stands for it: it moves with model,
hardware, batch, context and K.
"""

import numpy as np
import numpy.typing as npt

from paceline.decide.totals import step_estimate
from paceline.errors import NoEvidenceError
from paceline.run import RequestRecord, Run
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.intervals import ratio_of_sums
from paceline.stats.paired import combined_ratio
from paceline.verdict import Estimate

__all__ = ["break_even_alpha", "drafted_tokens_per_step", "same_load", "step_time_ratio", "tokens_per_step"]


FloatArray = npt.NDArray[np.float64]


def same_load(baseline: Run, speculative: Run) -> bool:
    """Whether nothing says that the arms were loaded differently: what both loads state agrees."""
    ours, theirs = baseline.load, speculative.load
    pairs = ((ours.concurrency, theirs.concurrency), (ours.rate_per_s, theirs.rate_per_s))
    return all(left is None or right is None or left == right for left, right in pairs)


def step_time_ratio(baseline: Run, speculative: Run, *, confidence: float, rng: np.random.Generator) -> Estimate:
    """ρ: how much longer a step takes with drafts than without, all steps pooled, as requests see it.

    From requests where both arms have them and steps were counted (decode seconds / steps, with an interval by request), else from the
    runs' own mean step seconds, with the interval that the number of requests leaves (`decide.totals`), or none where nobody counted them.

    Raises:
        NoEvidenceError: an arm's step time was not measured, or the loads differ.

    """
    if not same_load(baseline, speculative):
        raise NoEvidenceError("the arms ran under different loads, so their step times have no ratio at equal batch")
    drafted = [each for each in speculative.finished if each.acceptance and each.acceptance.steps] if speculative.requests else []
    plain = [each for each in baseline.finished if each.timing.output_tokens > 1] if baseline.requests else []
    if drafted and plain:
        steps = [each.acceptance.steps or 0 for each in drafted if each.acceptance]
        arms = [(_decode_s(drafted), np.array(steps, dtype=np.float64)), (_decode_s(plain), _later_tokens(plain))]
        up, down = (ratio_of_sums(*each, largest=None, confidence=confidence, rng=rng) for each in arms)
        return combined_ratio(up, down)
    steps_s = [step_estimate(each, confidence=confidence) for each in (speculative, baseline)]
    if steps_s[0] is None or steps_s[1] is None or steps_s[1].value == 0:
        raise NoEvidenceError("seconds per step were not measured in both arms")
    return combined_ratio(steps_s[0], steps_s[1])


def _decode_s(records: list[RequestRecord]) -> FloatArray:
    return np.array([each.timing.e2e_s - each.timing.ttft_s for each in records])


def _later_tokens(records: list[RequestRecord]) -> FloatArray:
    return np.array([each.timing.output_tokens - 1 for each in records], dtype=np.float64)


def drafted_tokens_per_step(run: Run) -> float:
    """Coverage · K̄: drafted tokens per step, undrafted steps included; per drafted step where the method drafts in every step.

    Raises:
        NoEvidenceError: nothing was drafted, or steps were not counted and the method skips some.

    """
    counts = run.acceptance
    steps = _steps(run, counts)
    if counts.drafted_tokens == 0:
        raise NoEvidenceError("nothing was drafted")
    return counts.drafted_tokens / steps


def tokens_per_step(run: Run) -> float:
    """E = 1 + accepted tokens / steps, in the same sense.

    Raises:
        NoEvidenceError: as `drafted_tokens_per_step`.

    """
    counts = run.acceptance
    return 1 + counts.accepted_tokens / _steps(run, counts)


def _steps(run: Run, counts: AcceptanceCounts) -> int:
    every_step = run.speculation is not None and run.speculation.method.drafts_every_step
    steps = counts.steps if counts.steps is not None else counts.drafts if every_step else None
    if not steps:
        raise NoEvidenceError("steps were not counted by this source, and drafted steps are not all of them")
    return steps


def break_even_alpha(baseline: Run, speculative: Run, *, confidence: float, rng: np.random.Generator) -> Estimate:
    """The acceptance rate at which drafting neither gains nor loses at this load, with the interval that ρ leaves.

    Raises:
        NoEvidenceError: ρ or the drafted tokens per step were not measured.

    """
    ratio, drafted = step_time_ratio(baseline, speculative, confidence=confidence, rng=rng), drafted_tokens_per_step(speculative)
    value, low, high = (None if each is None else (each - 1) / drafted for each in (ratio.value, ratio.low, ratio.high))
    assert value is not None
    return Estimate(value=value, low=low, high=high, confidence=ratio.confidence, n=ratio.n)
