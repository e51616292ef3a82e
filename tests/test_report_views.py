"""Figures, tables, JSON and Markdown: what a person or a script reads."""

import json
from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.gate import DEFAULT_POLICY, gate
from paceline.decide.lesson_gate import LessonVerdict
from paceline.decide.rollout import rollout_plan
from paceline.plan import Stage
from paceline.report.figures import break_even, decision_reason, interval, milliseconds, percent, plain, times
from paceline.report.json_view import acceptance_dict, estimate_dict, plan_dict, verdict_dict
from paceline.report.latencies import LatencyRow, latency_rows
from paceline.report.text import columns, latency_table, plan_markdown, verdict_text
from paceline.run import Arm
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.intervals import acceptance_estimates
from paceline.verdict import Claim, Estimate, Finding, Holds, Verdict
from tests.strategies_runs import pair, summaries_only
from tests.test_decide_rollout import SETUP, verdict


def estimate(value: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.95, n=40)


def test_figures_show_their_interval_and_their_gaps() -> None:
    """A number without its interval invites a bet; a missing one must not read as 0."""
    assert interval(estimate(1.5, 1.4, 1.6)) == "1.50 (1.40 to 1.60)"
    assert interval(estimate(1.5, None, 1.6)) == "1.50 (? to 1.60)"
    assert (interval(None), plain(None), milliseconds(None), percent(None), times(None)) == ("–",) * 5
    assert (milliseconds(0.0123), milliseconds(1.5), percent(0.0625), times(2)) == ("12.3 ms", "1,500 ms", "6.25 %", "2.00×")
    assert plain(123.4) == "123"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (estimate(0.809, 0.02, 0.9), "0.809 (0.0200 to 0.900)"),
        (estimate(0.809, None, 1.43), "0.809 (? to never)"),
        (estimate(2.29, 0.9, None), "never (0.900 to ?)"),
        (estimate(570, None, None), "never pays"),
        (None, "–"),
    ],
)
def test_an_acceptance_above_one_is_not_asked_for(known: Estimate | None, said: str) -> None:
    """A break-even α of 2.29, taken for a goal, has a head trained that cannot pay."""
    assert break_even(known) == said


def test_columns_line_up_and_control_characters_are_shown() -> None:
    """A segment's name from a log must not steer the terminal."""
    table = columns(("name", "n"), [("chat\x1b[2J", "1"), ("b", "200")])
    assert table.splitlines() == ["name           n", "-----------  ---", "chat\\x1b[2J    1", "b            200"]


def test_the_reason_is_one_sentence_about_the_claim_that_decides() -> None:
    """A boss reads the first line only."""
    base = verdict(Holds.YES)
    assert decision_reason(base) == "At 64 in flight: speed-up 1.20 (1.20 to 1.20) is at least 1.05."
    assert decision_reason(replace(base, findings=())) == "No claim was tested."
    failed = replace(verdict(Holds.NO, segments=("code",)), concurrency=None)
    assert decision_reason(failed) == "speed-up 1.20 (1.20 to 1.20) is not at least 1.05. It pays for code."
    assert decision_reason(verdict(Holds.NO)).endswith("is not at least 1.05.")
    assert decision_reason(verdict(Holds.CANNOT_TELL)) == "At 64 in flight: measure 120 more requests per arm."
    claim = Claim(metric="e2e_p99.ratio", at_most=1.5, at_least=None, segment="chat")
    finding = Finding(claim=claim, estimate=estimate(1, 1, 1), holds=Holds.YES, why="")
    assert (
        decision_reason(replace(base, findings=(finding,))) == "At 64 in flight: e2e_p99.ratio for chat 1.00 (1.00 to 1.00) is at most 1.5."
    )


def test_a_verdict_as_text_names_claims_figures_and_warnings() -> None:
    """What the terminal does not show, nobody acts on."""
    baseline, speculative = pair(n=20)
    other = replace(speculative, load=replace(speculative.load, concurrency=1))
    text = verdict_text(gate(baseline, other, policy=DEFAULT_POLICY, rng=np.random.default_rng(0)))
    assert text.startswith("Cannot tell yet: ")
    assert "speedup >= 1.05" in text
    assert "warning [different_loads]" in text
    assert "break-even –" in text
    assert "claim  " not in verdict_text(replace(verdict(Holds.YES), findings=()))


@pytest.mark.parametrize(
    ("step_s", "said"), [(0.011, "every segment gains"), (0.06, "no segment gains"), (0.019, "drafts for code only: speed-up")]
)
def test_what_routing_is_worth_is_said_in_words(step_s: float, said: str) -> None:
    """Routing that adds nothing is work for nothing."""
    verdict_ = gate(*pair(n=60, step_s=step_s, alphas={"code": 0.9, "prose": 0.1}), policy=DEFAULT_POLICY, rng=np.random.default_rng(0))
    assert said in verdict_text(verdict_)


def test_latencies_of_both_arms_stand_side_by_side() -> None:
    """The visible gap must rise and the pace fall in one table, or each side quotes its own."""
    rows = latency_rows(*pair(n=20, step_s=0.012))
    assert [each.latency for each in rows] == ["ttft_s", "tpot_s", "chunk_gap_s", "token_gap_s", "e2e_s"]
    ratios = {each.latency: each.p99_ratio for each in rows}
    assert ratios["chunk_gap_s"] == pytest.approx(1.2, rel=0.02)
    assert (ratios["tpot_s"] or 9) < 1
    assert "gap between chunks" in latency_table(rows)
    assert latency_rows(*[summaries_only(each, step_s=1.0, counts=None) for each in Arm]) == ()


def test_an_arm_without_samples_has_a_dash() -> None:
    """Half a comparison has no ratio."""
    baseline = pair(n=5)[0]
    rows = latency_rows(baseline, summaries_only(Arm.SPECULATIVE, step_s=1.0, counts=None))
    assert rows[0].p99_ratio is None
    assert "–" in latency_table(rows)
    swapped = [LatencyRow(latency="ttft_s", name="x", baseline=None, speculative=each.baseline) for each in rows]
    assert "–" in latency_table(swapped)
    assert rows[0].baseline is not None
    zero = replace(rows[0].baseline, p99=0.0)
    assert LatencyRow(latency="ttft_s", name="x", baseline=zero, speculative=zero).p99_ratio is None


def test_acceptance_as_json_has_counts_as_numbers_and_ratios_as_objects() -> None:
    """Scripts rely on these keys."""
    _, speculative = pair(n=30)
    counted = [each.acceptance for each in speculative.finished if each.acceptance]
    estimates = acceptance_estimates(counted, confidence=0.95, rng=np.random.default_rng(0))
    segments = {name: (counts, estimates) for name, counts in (speculative.acceptance_by_segment or {}).items()}
    view = acceptance_dict(speculative.acceptance, estimates, confidence=0.95, segments=segments)
    assert set(view) == {
        *("alpha", "acceptance_length", "tokens_per_step", "coverage", "survival", "conditional"),
        *("steps", "drafts", "drafted_tokens", "accepted_tokens", "segments"),
    }
    assert view["alpha"] == estimate_dict(estimates["alpha"])
    assert view["survival"][0]["low"] is not None
    assert view["conditional"][0]["low"] is None
    assert isinstance(view["steps"], int)
    assert set(view["segments"]) == {"chat", "code"}
    json.dumps(view, allow_nan=False)


def test_what_totals_do_not_know_is_null() -> None:
    """0 would be a measurement."""
    counts = AcceptanceCounts(steps=None, drafts=10, drafted_tokens=30, accepted_tokens=15, accepted_per_position=None)
    view = acceptance_dict(counts, {}, confidence=0.95, segments=None)
    assert view["alpha"] == {"value": 0.5, "low": None, "high": None, "confidence": 0.95, "n": 0}
    assert (view["coverage"], view["tokens_per_step"], view["survival"], view["conditional"], view["steps"]) == (None,) * 5
    assert "segments" not in view
    assert estimate_dict(None) is None


def test_a_verdict_as_json_carries_every_key_of_the_contract() -> None:
    """A pipeline that greps for these keys must not break."""
    lesson = LessonVerdict(alpha_clears_floor=False, chunk_gap_not_worse=None, disagreements=("x",))
    baseline, speculative = pair(n=20)
    made = gate(baseline, replace(speculative, requests=None), policy=DEFAULT_POLICY, rng=np.random.default_rng(0))
    view = verdict_dict(made, lesson=lesson, by_concurrency=(made,))
    assert {"tokens_per_step", "break_even_tokens_per_step", "requests_needed", "routing"} <= set(view)
    assert {"verdict", "by_concurrency", "findings", "break_even_alpha", "lesson_verdict", "warnings", "segments_to_ship"} <= set(view)
    assert view["verdict"] == "cannot_tell"
    assert view["findings"][0]["claim"] == "speedup >= 1.05"
    assert view["findings"][0]["holds"] == "cannot_tell"
    assert view["by_concurrency"][0]["concurrency"] == 8
    assert view["warnings"][0] == {"code": "no_per_request_data", "message": view["warnings"][0]["message"]}
    assert view["lesson_verdict"]["passes"] is False
    assert verdict_dict(made, lesson=None, by_concurrency=())["lesson_verdict"] is None
    json.dumps(view, allow_nan=False)


def test_a_plan_as_json_and_as_markdown_holds_all_of_it() -> None:
    """The plan is what people follow at night."""
    found = verdict(Holds.YES)
    made = rollout_plan(SETUP, (found,), policy=DEFAULT_POLICY)
    view, text = plan_dict(made), plan_markdown(made, (verdict(Holds.NO, concurrency=1), replace(found, concurrency=None)))
    json.dumps(view, allow_nan=False)
    assert [each["name"] for each in view["stages"]] == [each.name for each in made.stages]
    for each in made.stages:
        assert f"{each.name} (" in text
    for expected in (
        "## Verdict",
        "## On a breach",
        "- [ ] no guard breached",
        "| tpot\\_p99.ratio | above 1.05 | 120 s |",
        "`vllm serve llama`",
    ):
        assert expected in text
    assert "alpha | below 0.211" in text
    assert "The largest concurrency stands for production" in text
    assert "(1% of traffic)" in text
    assert "| unknown | Ship it |" in text
    assert "## Verdict" not in plan_markdown(made, ())
    assert "stands for production" not in plan_markdown(made, (found,))


def test_markdown_cannot_be_broken_out_of() -> None:
    """A segment called `<script>` or a command with backticks must stay text."""
    setup = replace(SETUP, segments={"a|b<script>": 1.0}, baseline_command="vllm serve `id`")
    text = plan_markdown(rollout_plan(setup, (verdict(Holds.YES),), policy=DEFAULT_POLICY), ())
    assert "<script>" not in text
    assert "a\\|b&lt;script>" in text
    assert "- ``vllm serve `id```" in text or "- ``vllm serve `id` ``" in text


def test_a_stage_that_lasts_says_how_long() -> None:
    """Nobody should promote early because the plan did not say."""
    made = rollout_plan(SETUP, (verdict(Holds.YES),), policy=DEFAULT_POLICY)
    assert isinstance(made.stages[5], Stage)
    assert "at least 307 min, at least 368 requests per arm." in plan_markdown(made, ())


def test_a_verdict_without_findings_has_no_table() -> None:
    """Nothing tested, nothing tabled."""
    bare = Verdict(
        concurrency=None,
        findings=(),
        segments_to_ship=(),
        break_even_alpha=None,
        break_even_tokens_per_step=None,
        alpha=None,
        tokens_per_step=None,
        requests_needed=None,
        routing=None,
        warnings=(),
    )
    assert verdict_text(bare).startswith("Cannot tell yet: No claim was tested.")
