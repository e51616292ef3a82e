"""What is looked at: two runs, or one, the answers, and every figure that more than one check asks for, each None where not measured.

gain   plain seconds per output token over those with drafts, in pairs where there are; else of throughputs, else of end-to-end times
ρ      seconds per step with drafts over plain ones at equal load; where steps were not timed, E / gain
E      tokens per step, the target's own included
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from paceline.decide.break_even import break_even_alpha, same_load, step_time_ratio
from paceline.decide.losslessness import Answers, Losslessness
from paceline.decide.measured import metric_estimate
from paceline.errors import NoEvidenceError
from paceline.run import Arm, RequestRecord, Run
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Speculation
from paceline.verdict import Estimate

__all__ = ["Case", "Measured", "measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of the comparison; None where the evidence does not have one."""

    speedup: Estimate | None
    throughput_ratio: Estimate | None
    e2e_ratio: Estimate | None
    tpot_p99_ratio: Estimate | None
    ttft_ratio: Estimate | None
    step_time_ratio: Estimate | None
    tokens_per_step: Estimate | None
    alpha: Estimate | None
    break_even_alpha: Estimate | None

    @property
    def gain(self) -> Estimate | None:
        """How much faster it is with drafts."""
        longer = self.e2e_ratio
        return self.speedup or self.throughput_ratio or (None if longer is None else _inverse(longer))


def _inverse(estimate: Estimate) -> Estimate:
    ends = [None if each is None or each <= 0 else 1 / each for each in (estimate.high, estimate.low)]
    return replace(estimate, value=1 / estimate.value, low=ends[0], high=ends[1])


@dataclass(frozen=True, slots=True)
class Case:
    """What a check looks at.

    Attributes:
        baseline: the plain arm, None where only the other was measured. An earlier speculative run where two of them are compared.
        speculative: the arm with drafts.
        answers: texts by request, None where they were not kept.
        losslessness: what they say, None where there is nothing to compare.
        forecast_ratio: ρ that target and hardware lead one to expect, None where they were not stated.
        is_moe: whether the target has experts, None where that is not known.
        gpus: over how many GPUs it is split, None where that is not known.
        margin: the gain worth having, as a fraction.
        confidence: of every interval.
        figures: of the comparison.
        rng: for resampling.

    """

    baseline: Run | None
    speculative: Run
    answers: Answers | None
    losslessness: Losslessness | None
    forecast_ratio: float | None
    is_moe: bool | None
    gpus: int | None
    margin: float
    confidence: float
    figures: Measured
    rng: np.random.Generator

    @property
    def plain(self) -> Run | None:
        """The run without drafts, None where there is none."""
        return self.baseline if self.baseline is not None and self.baseline.arm is Arm.BASELINE else None

    @property
    def earlier(self) -> Run | None:
        """The earlier speculative run, where two are compared."""
        return self.baseline if self.baseline is not None and self.baseline.arm is Arm.SPECULATIVE else None

    @property
    def counts(self) -> AcceptanceCounts | None:
        """What was drafted and accepted, None where not measured or nothing was drafted."""
        found = self.speculative.acceptance_by_segment
        pooled = AcceptanceCounts.pooled(found.values()) if found else None
        return pooled if pooled is not None and pooled.drafted_tokens else None

    @property
    def method(self) -> Speculation | None:
        """How it drafts, None where nobody said."""
        return self.speculative.speculation

    @property
    def draft_tokens(self) -> int | None:
        """K: as stated; else drafted tokens per draft, rounded up."""
        if self.method is not None:
            return self.method.draft_tokens
        return None if self.counts is None else -(-self.counts.drafted_tokens // self.counts.drafts)

    @property
    def drafts_always(self) -> bool:
        """Whether the method drafts in every step, as far as is known."""
        return self.method is None or self.method.method.drafts_every_step

    @property
    def pays(self) -> bool | None:
        """Whether it gains more than the margin, None where that was not measured."""
        gain = self.figures.gain
        return None if gain is None or self.plain is None else gain.value >= 1 + self.margin

    @property
    def told(self) -> Mapping[str, str]:
        """What the speculative run says of how it was made."""
        return self.speculative.provenance.arguments

    @property
    def counted(self) -> list[tuple[RequestRecord, AcceptanceCounts]]:
        """The finished requests that tell their own acceptance."""
        done = self.speculative.finished if self.speculative.requests is not None else ()
        return [(each, each.acceptance) for each in done if each.acceptance is not None and each.acceptance.drafts]


def measured(baseline: Run | None, speculative: Run, *, confidence: float, rng: np.random.Generator) -> Measured:
    """Every figure that the evidence has."""
    names = {
        "speedup": "speedup",
        "throughput_ratio": "output_tokens_per_s.ratio",
        "e2e_ratio": "e2e_mean.ratio",
        "tpot_p99_ratio": "tpot_p99.ratio",
        "ttft_ratio": "ttft_mean.ratio",
    }
    found: dict[str, Estimate | None] = dict.fromkeys(names)
    if baseline is not None:
        for ours, name in names.items():
            found[ours] = _estimate(name, baseline, speculative, confidence=confidence, rng=rng)
    alpha = _estimate("alpha", speculative, speculative, confidence=confidence, rng=rng) or _stated(speculative, "alpha", confidence)
    tokens = _tokens_per_step(speculative, confidence=confidence, rng=rng)
    partial = Measured(**found, tokens_per_step=tokens, alpha=alpha, step_time_ratio=None, break_even_alpha=None)
    if baseline is None or baseline.arm is not Arm.BASELINE:
        return partial
    even = _or_none(lambda: break_even_alpha(baseline, speculative, confidence=confidence, rng=rng))
    ratio = _step_time_ratio(partial, baseline, speculative, confidence=confidence, rng=rng)
    return replace(partial, step_time_ratio=ratio, break_even_alpha=even)


def _or_none(ask: Callable[[], Estimate]) -> Estimate | None:
    try:
        return ask()
    except NoEvidenceError:
        return None


def _estimate(name: str, baseline: Run, speculative: Run, *, confidence: float, rng: np.random.Generator) -> Estimate | None:
    return _or_none(lambda: metric_estimate(name, baseline, speculative, segment=None, confidence=confidence, rng=rng))


def _stated(run: Run, name: str, confidence: float) -> Estimate | None:
    known = run.summaries.get(name)
    return None if known is None else _point(known.value, confidence)


def _point(value: float, confidence: float) -> Estimate:
    return Estimate(value=value, low=None, high=None, confidence=confidence, n=0)


def _tokens_per_step(run: Run, *, confidence: float, rng: np.random.Generator) -> Estimate | None:
    """E; where steps were not counted and the method is not known, tokens per drafted step, which are no fewer."""
    found = _estimate("tokens_per_step", run, run, confidence=confidence, rng=rng)
    if found is not None:
        return found
    by_name = [_stated(run, name, confidence) for name in ("tokens_per_step_emitted", "tokens_per_chunk", "acceptance_length")]
    known = next((each for each in by_name if each is not None), None)
    if known is not None:
        return known
    if run.speculation is not None or not run.acceptance_by_segment or not run.acceptance.drafts:
        return None
    return _point(run.acceptance.acceptance_length, confidence)


def _step_time_ratio(figures: Measured, baseline: Run, speculative: Run, *, confidence: float, rng: np.random.Generator) -> Estimate | None:
    timed = _or_none(lambda: step_time_ratio(baseline, speculative, confidence=confidence, rng=rng))
    gain, tokens = figures.speedup or figures.throughput_ratio, figures.tokens_per_step
    if timed is not None or gain is None or tokens is None or gain.value <= 0 or not same_load(baseline, speculative):
        return timed
    return _point(tokens.value / gain.value, confidence)
