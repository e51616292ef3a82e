"""The page: self-contained, escaped, honest about what it rests on."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.gate import DEFAULT_POLICY, gate, gate_by_concurrency
from paceline.decide.lesson_gate import lesson_verdict
from paceline.decide.rollout import rollout_plan
from paceline.errors import BadInputError, NoEvidenceError
from paceline.plan import Plan
from paceline.report.html import report_html
from paceline.report.page import Comparison, break_even_chart, gather, segment_chart, speedup_chart
from paceline.report.svg import Bar, Series, bar_chart, line_chart
from paceline.run import Arm, Evidence, Load, Run
from paceline.verdict import Estimate
from tests.strategies_runs import pair, provenance, summaries_only
from tests.test_decide_rollout import SETUP


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def estimate(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.95, n=40)


def compared(baseline: Run, speculative: Run, *, lesson: bool = False) -> Comparison:
    found = gate(baseline, speculative, policy=DEFAULT_POLICY, rng=rng())
    textbook = lesson_verdict(baseline, speculative, found, alpha_floor=0.55, confidence=0.95, rng=rng()) if lesson else None
    return Comparison(baseline=baseline, speculative=speculative, verdict=found, lesson=textbook)


def page(*comparisons: Comparison, title: str = "EAGLE-3 on llama", plan: Plan | None = None) -> str:
    return report_html(comparisons, title=title, policy=DEFAULT_POLICY, plan=plan, version="0.1.0", rng=rng())


def test_the_page_stands_alone() -> None:
    """It is mailed around: a script or a remote font would be blocked, or would call home."""
    pairs = [pair(n=24, concurrency=1), pair(n=24, step_s=0.016, concurrency=8)]
    verdicts = gate_by_concurrency(pairs, policy=DEFAULT_POLICY, rng=rng())
    plan = rollout_plan(SETUP, verdicts, policy=DEFAULT_POLICY)
    text = page(*(compared(*each, lesson=True) for each in pairs), plan=plan)
    assert not re.search(r"<script|<link|<img|@import|url\(|src=|href=", text)
    assert set(re.findall(r"https?://[^\s\"<]+", text)) == {"http://www.w3.org/2000/svg"}
    for part in (
        "Cannot tell yet",
        "Speed-up by concurrency",
        "break-even",
        "Acceptance by segment",
        "ramp-25",
        "textbook",
        "Measured on real",
    ):
        assert part in text
    assert text.count("<svg") == 3
    for drawing in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        assert [each.tag.rpartition("}")[2] for each in ET.fromstring(drawing)][:2] == ["title", "desc"]  # noqa: S314 (ours)


def test_what_comes_from_outside_is_escaped() -> None:
    """Segment names and arguments come from logs: one must not run in a boss's browser."""
    nasty = "<script>alert(1)</script>"
    baseline, speculative = pair(n=24, alphas={nasty: 0.7, "b": 0.6})
    source = replace(provenance(), arguments={"k": nasty}, inputs={}, made_by=nasty, seed=None)
    text = page(compared(baseline, replace(speculative, provenance=source)), title=nasty)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_simulated_figures_say_so_on_top() -> None:
    """A simulated page must not pass for a measured one, and the weakest evidence stands first."""
    baseline, speculative = pair(n=24)
    text = page(compared(baseline, replace(speculative, provenance=provenance(Evidence.SIMULATED))))
    assert text.index("Simulated: no server was measured") < text.index("Measured on real servers")
    assert "simulated_evidence" in text


def test_the_same_evidence_gives_the_same_bytes() -> None:
    """A report that differs from run to run cannot be reviewed."""
    one = compared(*pair(n=24))
    assert page(one) == page(one)


def test_totals_alone_still_make_a_page() -> None:
    """A dump has no latencies and no intervals, and the page must say that instead of failing."""
    base, spec = (summaries_only(each, step_s=None, counts=None) for each in Arm)
    text = page(compared(replace(base, speculation=None), spec))
    assert "interval unknown" in text
    assert "unknown load" in text
    assert "<svg" not in text
    assert "What users waited for" not in text
    with pytest.raises(NoEvidenceError):
        page()


def test_a_page_without_warnings_says_so() -> None:
    """An empty list would look like a broken page."""
    assert "calls for a warning" in page(compared(*pair(n=24)))


def test_figures_of_a_comparison_that_measured_nothing_are_missing() -> None:
    """Every figure is None, and no chart is drawn."""
    base, spec = (summaries_only(each, step_s=None, counts=None) for each in Arm)
    comparison = compared(base, spec)
    point = gather(comparison, confidence=0.95, rng=rng())
    assert (point.speedup, point.step_time_ratio, point.tokens_per_step, point.harmed_share) == (None,) * 4
    assert point.cells == ("unknown", "–", "–", "–", "–", "–", "cannot tell")
    assert (speedup_chart([point], margin=0.05), break_even_chart([point])) == (None, None)
    assert segment_chart(comparison, confidence=0.95, rng=rng()) is None


def test_a_break_even_below_zero_is_not_drawn() -> None:
    """Drafting that costs nothing has no line to clear, and the chart starts at 0."""
    comparison = compared(*pair(n=24, step_s=0.009, alphas={"a": 0.3}))
    drawn = segment_chart(comparison, confidence=0.95, rng=rng())
    assert drawn is not None
    assert "break-even" not in drawn
    positive = segment_chart(compared(*pair(n=24)), confidence=0.95, rng=rng())
    assert positive is not None
    assert "break-even 0.067" in positive


def test_segments_that_drafted_nothing_have_no_bar() -> None:
    """A bar of height 0 would claim an acceptance of 0."""
    baseline, speculative = pair(n=24)
    assert speculative.requests is not None
    mute = tuple(replace(each, acceptance=None) if each.segment == "chat" else each for each in speculative.requests)
    counts = {"code": (speculative.acceptance_by_segment or {})["code"]}
    drawn = segment_chart(compared(baseline, replace(speculative, requests=mute, acceptance_by_segment=counts)), confidence=0.95, rng=rng())
    assert drawn is not None
    assert ">code<" in drawn
    assert ">chat<" not in drawn


def test_an_open_loop_has_no_concurrency_to_draw() -> None:
    """A rate is no place on that axis."""
    opened = [replace(each, load=Load(concurrency=None, rate_per_s=1.0)) for each in pair(n=24)]
    text = page(compared(*opened))
    assert "Speed-up by concurrency" not in text


def test_a_line_chart_puts_values_where_they_belong() -> None:
    """Twice the concurrency is one step right; the band spans the interval; ticks are round."""
    line = Series(name="S", points=((1.0, estimate(1.0, 0.9, 1.1)), (4.0, estimate(2.0, 1.5, 2.5)), (2.0, estimate(1.5))))
    drawn = line_chart((line,), title="T & t", description="d", x_label="x", y_label="y", reference=(1.05, "level"), doubling=True)
    assert "<title>T &amp; t</title>" in drawn
    xs = [float(each) for each in re.findall(r'<circle cx="([\d.]+)"', drawn)]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert drawn.count("<polygon") == 1
    assert ">2.5<" in drawn
    assert "stroke-dasharray" in drawn
    alone = line_chart(
        (Series("S", ((8.0, estimate(0.0)),)),), title="t", description="d", x_label="x", y_label="y", reference=None, doubling=True
    )
    assert "<polygon" not in alone
    assert "dasharray" not in alone


def test_a_far_end_does_not_squeeze_the_line() -> None:
    """An interval up to 1,000 would flatten everything else."""
    line = Series(name="S", points=((1.0, estimate(1.0, 0.5, 1000.0)), (2.0, estimate(1.2, 1.1, 1.3))))
    drawn = line_chart((line,), title="t", description="d", x_label="x", y_label="y", reference=None, doubling=True)
    assert ">1000<" not in drawn
    assert ">2<" in drawn


def test_bars_end_at_their_value() -> None:
    """A bar at half of the top is half as long, long names are cut, a level beyond the top is left out."""
    drawn = bar_chart(
        (Bar("a" * 30, estimate(0.5, 0.4, 0.6)), Bar("b", estimate(1.0))), title="t", description="d", top=1.0, reference=(1.4, "never")
    )
    half, whole = (float(each) for each in re.findall(r'<rect [^>]*width="([\d.]+)"', drawn))
    assert half == pytest.approx(whole / 2, abs=0.2)
    assert "a" * 17 + "…" in drawn
    assert "never" not in drawn


def test_empty_charts_are_refused() -> None:
    """An empty frame looks like a value of 0."""
    with pytest.raises(BadInputError):
        line_chart((), title="t", description="d", x_label="x", y_label="y", reference=None, doubling=True)
    with pytest.raises(BadInputError):
        line_chart(
            (Series("S", ((0.0, estimate(1)),)),), title="t", description="d", x_label="x", y_label="y", reference=None, doubling=True
        )
    with pytest.raises(BadInputError):
        bar_chart((), title="t", description="d", top=1.0, reference=None)
