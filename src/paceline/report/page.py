"""What the report page shows, gathered from the runs and their verdicts before any HTML is written."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.decide.break_even import step_time_ratio, tokens_per_step
from paceline.decide.lesson_gate import LessonVerdict
from paceline.decide.measured import metric_estimate, segments_of
from paceline.errors import NoEvidenceError
from paceline.report.figures import interval, plain
from paceline.report.svg import Bar, Series, bar_chart, line_chart
from paceline.run import Evidence, Run
from paceline.verdict import Decision, Estimate, Verdict

__all__ = ["ACCEPTANCE_RESTS_ON", "Comparison", "Point", "RESTS_ON", "break_even_chart", "gather", "segment_chart", "speedup_chart"]

RESTS_ON = {
    Evidence.MEASURED: "Measured on real servers",
    Evidence.REPLAYED: "Replayed offline: no server decoded this traffic",
    Evidence.SIMULATED: "Simulated: no server was measured",
    Evidence.PROFILE: "From a published profile of other traffic",
    Evidence.STATED: "Stated, not measured",
}

ACCEPTANCE_RESTS_ON = {
    Evidence.MEASURED: "Acceptance measured elsewhere, read from a file",
    Evidence.REPLAYED: "Acceptance replayed on this log",
    Evidence.SIMULATED: "Acceptance from a simulation",
    Evidence.PROFILE: "Acceptance from a published profile, not this traffic",
    Evidence.STATED: "Acceptance stated, not measured",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both arms at one load, the verdict on them, and the textbook's beside it (None where it was not asked)."""

    baseline: Run
    speculative: Run
    verdict: Verdict
    lesson: LessonVerdict | None


@dataclass(frozen=True, slots=True)
class Point:
    """One comparison's figures; None where they were not measured."""

    concurrency: int | None
    decision: Decision
    speedup: Estimate | None
    tokens_per_step: float | None
    step_time_ratio: Estimate | None
    alpha: Estimate | None
    break_even_alpha: Estimate | None
    harmed_share: Estimate | None

    @property
    def cells(self) -> tuple[str, ...]:
        """The point as a table's row."""
        where = "unknown" if self.concurrency is None else str(self.concurrency)
        ratios = (self.step_time_ratio, self.speedup, self.alpha, self.break_even_alpha)
        return (where, plain(self.tokens_per_step), *(interval(each) for each in ratios), self.decision.value.replace("_", " "))


def gather(comparison: Comparison, *, confidence: float, rng: np.random.Generator) -> Point:
    """The figures of one comparison."""

    def measured(metric: str) -> Estimate | None:
        try:
            return metric_estimate(metric, comparison.baseline, comparison.speculative, segment=None, confidence=confidence, rng=rng)
        except NoEvidenceError:
            return None

    try:
        ratio = step_time_ratio(comparison.baseline, comparison.speculative, confidence=confidence, rng=rng)
    except NoEvidenceError:
        ratio = None
    try:
        tokens = tokens_per_step(comparison.speculative)
    except NoEvidenceError:
        tokens = None
    return Point(
        concurrency=comparison.verdict.concurrency,
        decision=comparison.verdict.decision,
        speedup=measured("speedup"),
        tokens_per_step=tokens,
        step_time_ratio=ratio,
        alpha=comparison.verdict.alpha,
        break_even_alpha=comparison.verdict.break_even_alpha,
        harmed_share=measured("harmed_share"),
    )


def speedup_chart(points: Sequence[Point], *, margin: float) -> str | None:
    """Speed-up over concurrency with its band and the level of 1 + margin; None where no point has both."""
    line = tuple((float(each.concurrency), each.speedup) for each in points if each.concurrency and each.speedup)
    if not line:
        return None
    return line_chart(
        (Series(name="speed-up", points=line),),
        title="Speed-up by concurrency",
        description="; ".join(f"{x:g} in flight: {interval(each)}" for x, each in line),
        x_label="requests in flight",
        y_label="speed-up",
        reference=(1 + margin, f"{1 + margin:g}: the gain worth having"),
        doubling=True,
    )


def break_even_chart(points: Sequence[Point]) -> str | None:
    """The acceptance rate and the break-even it must exceed, over concurrency; None where neither is known at any."""
    alphas = tuple((float(each.concurrency), each.alpha) for each in points if each.concurrency and each.alpha)
    evens = tuple((float(each.concurrency), each.break_even_alpha) for each in points if each.concurrency and each.break_even_alpha)
    lines = tuple(each for each in (Series("acceptance rate", alphas), Series("break-even", evens)) if each.points)
    if not lines:
        return None
    return line_chart(
        lines,
        title="Acceptance and break-even by concurrency",
        description="; ".join(f"{line.name} at {x:g} in flight: {interval(each)}" for line in lines for x, each in line.points),
        x_label="requests in flight",
        y_label="accepted / drafted tokens",
        reference=None,
        doubling=True,
    )


def segment_chart(comparison: Comparison, *, confidence: float, rng: np.random.Generator) -> str | None:
    """Acceptance by segment with intervals by request, and the break-even; None where no segment drafted anything."""
    bars = []
    for name in segments_of(comparison.speculative):
        try:
            alpha = metric_estimate("alpha", comparison.baseline, comparison.speculative, segment=name, confidence=confidence, rng=rng)
        except NoEvidenceError:
            continue
        bars.append(Bar(name=name, estimate=alpha))
    if not bars:
        return None
    even = comparison.verdict.break_even_alpha
    return bar_chart(
        tuple(bars),
        title="Acceptance rate by segment",
        description="; ".join(f"{each.name}: {interval(each.estimate)}" for each in bars),
        top=1.0,
        reference=None if even is None or even.value < 0 else (even.value, f"break-even {even.value:.2g}"),
    )
