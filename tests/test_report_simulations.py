"""Two arms' figures as JSON and as text, from hand-made runs."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.errors import NoEvidenceError
from paceline.report.simulations import acceptance_of, arms_dict, arms_text, goodput_dict, harmed_requests, paired_dict
from paceline.run import Arm, Outcome, Run
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.goodput import Slo
from tests.strategies_runs import pair, record, run, summaries_only, timing

RATIO = {"value", "low", "high", "confidence", "n"}


def body_of(baseline: Run, speculative: Run) -> dict[str, Any]:
    """The JSON with a chance of its own."""
    return arms_dict(baseline, speculative, confidence=0.95, rng=np.random.default_rng(1))


def cells(text: str, first: str) -> str:
    """The rest of the line that starts so."""
    return next(line for line in text.splitlines() if line.startswith(first)).removeprefix(first).strip()


def single_tokens(arm: Arm) -> Run:
    """Three requests of one token: no time per token, no gap, nothing to pair."""
    one = replace(record(0, segment="chat", step_s=0.01, alpha=None, draft_tokens=3, ttft_s=0.2, prefix="r", seed=1), output_tokens=1)
    requests = tuple(
        replace(one, id=f"r{i}", timing=timing(sent_at_s=0.0, ttft_s=0.25, gaps_s=[], tokens=[1]), acceptance=AcceptanceCounts.none())
        for i in range(3)
    )
    whole = run(arm, n=1, step_s=0.01, alphas={"chat": 0.5})
    return replace(
        whole,
        requests=requests if arm is Arm.SPECULATIVE else tuple(replace(each, acceptance=None) for each in requests),
        acceptance_by_segment={"chat": AcceptanceCounts.none()} if arm is Arm.SPECULATIVE else None,
        window_s=0.75,
    )


def test_every_percentile_carries_its_interval_and_counts_are_numbers() -> None:
    """The step in the middle is 10 ms plain and 12 with drafts; whoever reads p50 must see what it may be off by."""
    baseline, speculative = pair(n=60)
    body = body_of(baseline, speculative)
    json.dumps(body, allow_nan=False)
    assert list(body["arms"]) == ["baseline", "speculative"]
    for arm in body["arms"].values():
        for latency in ("ttft_s", "tpot_s", "chunk_gap_s", "token_gap_s", "e2e_s"):
            assert set(arm[latency]) == {"p50", "p90", "p95", "p99", "mean"}
            assert all(set(each) == RATIO for each in arm[latency].values())
        assert (arm["requests"], arm["failed"]) == (60, 0)
        assert arm["ttft_s"]["p50"]["low"] < arm["ttft_s"]["p50"]["value"] < arm["ttft_s"]["p50"]["high"]
    assert body["arms"]["baseline"]["chunk_gap_s"]["p50"]["value"] == pytest.approx(0.01025, rel=0.01)
    assert body["arms"]["baseline"]["chunk_gap_s"]["mean"]["n"] == 60, "gaps of one request are no independent samples"
    assert body["arms"]["speculative"]["step_s"] == 0.012
    assert set(body["speedup"]) == set(body["harmed_share"]) == RATIO


def test_throughput_is_tokens_over_the_window() -> None:
    """3 tokens in .75 s are 4 per second."""
    body = body_of(single_tokens(Arm.BASELINE), single_tokens(Arm.SPECULATIVE))
    assert body["arms"]["baseline"]["output_tokens_per_s"]["value"] == pytest.approx(4.0)
    assert body["arms"]["baseline"]["output_tokens_per_s"]["low"] is None


def test_acceptance_is_there_in_all_and_by_segment() -> None:
    """A blended α hides the segment that does not pay."""
    _, speculative = pair(n=60, alphas={"chat": 0.9, "code": 0.2})
    found = acceptance_of(speculative, confidence=0.95, rng=np.random.default_rng(1))
    assert found is not None
    assert found["accepted_tokens"] == speculative.acceptance.accepted_tokens
    assert found["segments"]["chat"]["alpha"]["low"] > found["segments"]["code"]["alpha"]["high"]
    assert found["segments"]["chat"]["drafts"] + found["segments"]["code"]["drafts"] == found["drafts"]
    assert found["alpha"]["n"] == 60
    assert found["segments"]["chat"]["alpha"]["n"] == 30


def test_acceptance_that_was_not_measured_is_none() -> None:
    """An α of 0 in its place would stop every rollout."""
    baseline, _ = pair(n=4)
    rng = np.random.default_rng(1)
    assert acceptance_of(baseline, confidence=0.95, rng=rng) is None
    assert acceptance_of(summaries_only(Arm.SPECULATIVE, step_s=0.1, counts=None), confidence=0.95, rng=rng) is None


def test_a_source_without_requests_has_no_arms() -> None:
    """Rows of blanks would look like a server that answered nobody."""
    whole = summaries_only(Arm.BASELINE, step_s=0.1, counts=None)
    with pytest.raises(NoEvidenceError, match="per-request records"):
        body_of(whole, whole)


def test_answers_of_one_token_have_nothing_to_compare_and_say_so() -> None:
    """A classifier's traffic must get its latencies and a dash, not a refusal."""
    arms = single_tokens(Arm.BASELINE), single_tokens(Arm.SPECULATIVE)
    body = body_of(*arms)
    assert (body["speedup"], body["harmed_share"]) == (None, None)
    assert body["arms"]["baseline"]["tpot_s"] is None
    assert body["arms"]["baseline"]["chunk_gap_s"] is None
    assert body["acceptance"]["alpha"] is None
    text = arms_text(*arms, body)
    assert cells(text, "speed-up") == cells(text, "harmed requests") == cells(text, "acceptance rate α") == "–"
    assert cells(text, "time to first token").startswith("250 ms")


def test_the_text_shows_the_figures_of_the_json() -> None:
    """Two resamplings would give two intervals for one run, and a reader who has both trusts neither."""
    baseline, speculative = pair(n=60)
    body = body_of(baseline, speculative)
    text = arms_text(baseline, speculative, body)
    speedup = body["speedup"]
    assert cells(text, "speed-up") == f"{speedup['value']:.2f} ({speedup['low']:.2f} to {speedup['high']:.2f})"
    assert cells(text, "harmed requests").endswith(" %)")
    assert cells(text, "requests").split() == ["60", "60"]
    assert cells(text, "refused or failed").split() == ["0", "0"]
    assert cells(text, "tokens per step").startswith(f"{body['acceptance']['tokens_per_step']['value']:.2f} (")
    tables = text.split("\n\n")
    assert all(len(set(map(len, each.splitlines()[1:]))) == 1 for each in tables), "columns line up"


def test_an_unknown_end_is_a_question_mark_and_acceptance_may_be_missing() -> None:
    """An interval with one end left out silently looks narrower than it is."""
    baseline, speculative = pair(n=4)
    body = body_of(baseline, speculative) | {
        "acceptance": None,
        "speedup": {"value": 1.5, "low": 1.25, "high": None, "confidence": 0.95, "n": 4},
        "harmed_share": {"value": 0.25, "low": None, "high": None, "confidence": 0.95, "n": 4},
    }
    text = arms_text(baseline, speculative, body)
    assert cells(text, "speed-up") == "1.50 (1.25 to ?)"
    assert cells(text, "harmed requests") == "25 %"
    assert cells(text, "tokens per step") == "–"


def test_requests_that_were_refused_are_shown() -> None:
    """A server that refuses the long ones has wonderful latencies."""
    baseline, speculative = pair(n=10)
    assert speculative.requests is not None
    turned = (replace(speculative.requests[0], outcome=Outcome.REFUSED), replace(speculative.requests[1], outcome=Outcome.FAILED))
    speculative = replace(speculative, requests=(*turned, *speculative.requests[2:]), window_s=None)
    body = body_of(baseline, speculative)
    assert (body["arms"]["speculative"]["failed"], body["arms"]["speculative"]["requests"]) == (2, 10)
    assert body["arms"]["speculative"]["output_tokens_per_s"] is None
    text = arms_text(baseline, speculative, body)
    assert cells(text, "refused or failed").split() == ["0", "2"]
    assert cells(text, "output tokens per second").split()[-1] == "–"


def with_tpots(tpots_s: dict[str, float], arm: Arm) -> Run:
    """A run of two-token requests: the only gap is the time per output token."""
    template = record(0, segment="chat", step_s=0.01, alpha=None, draft_tokens=3, ttft_s=0.2, prefix="r", seed=1)
    requests = tuple(
        replace(template, id=name, output_tokens=2, timing=timing(sent_at_s=0, ttft_s=0.1, gaps_s=[gap], tokens=[1, 1]))
        for name, gap in tpots_s.items()
    )
    return replace(run(arm, n=1, step_s=0.01, alphas={"chat": 0.5}), requests=requests)


def test_the_harmed_are_named_worst_first() -> None:
    """The b is twice as slow, a and d half as slow again, c is faster, e has no twin, f took no time plainly."""
    plain = with_tpots({"a": 0.5, "b": 0.5, "c": 0.5, "d": 1.0, "f": 0.0}, Arm.BASELINE)
    drafted = with_tpots({"d": 1.5, "a": 0.75, "b": 1.0, "c": 0.25, "e": 9.0, "f": 1.0}, Arm.SPECULATIVE)
    found = harmed_requests(plain, drafted, most=10)
    assert [(each["id"], each["tpot_ratio"]) for each in found] == [
        ("b", pytest.approx(2)),
        ("a", pytest.approx(1.5)),
        ("d", pytest.approx(1.5)),
    ]
    assert found[0] == {"id": "b", "segment": "chat", "tpot_ratio": pytest.approx(2), "baseline_tpot_s": 0.5, "tpot_s": 1.0}
    assert [each["id"] for each in harmed_requests(plain, drafted, most=1)] == ["b"]


def test_a_request_that_is_1_00_times_as_slow_is_no_harm_to_show() -> None:
    """A row of 1.00× under 'harmed most' makes a reader look for what is not there."""
    plain = with_tpots({"a": 0.5, "b": 0.5}, Arm.BASELINE)
    for slower, shown in ((0.502, False), (0.503, True)):
        drafted = with_tpots({"a": slower, "b": 0.25}, Arm.SPECULATIVE)
        body = body_of(plain, drafted) | {"harmed": harmed_requests(plain, drafted, most=10)}
        assert ("harmed most" in arms_text(plain, drafted, body)) is shown


def test_differences_are_of_the_same_request_in_both_arms() -> None:
    """Three requests, gaps .5, .5 and 1 s plainly: drafts add .25, .5 and .5 s; the middle of the differences is not the difference of
    middles.
    """
    plain, drafted = with_tpots({"a": 0.5, "b": 0.5, "c": 1.0}, Arm.BASELINE), with_tpots({"c": 1.5, "a": 0.75, "b": 1.0}, Arm.SPECULATIVE)
    found = paired_dict(plain, drafted, confidence=0.95)
    assert set(found) == {"ttft_s", "tpot_s", "e2e_s"}
    assert set(found["tpot_s"]) == {"p50", "p90", "p99"}
    assert found["tpot_s"]["p50"]["value"] == pytest.approx(0.5)
    assert found["tpot_s"]["p50"]["n"] == 3
    assert found["ttft_s"]["p99"]["value"] == 0.0


def test_strangers_have_no_differences() -> None:
    """Two logs of other requests must not be subtracted from each other."""
    plain, drafted = with_tpots({"a": 0.5}, Arm.BASELINE), with_tpots({"z": 0.75}, Arm.SPECULATIVE)
    assert paired_dict(plain, drafted, confidence=0.95)["tpot_s"] is None
    assert paired_dict(single_tokens(Arm.BASELINE), single_tokens(Arm.SPECULATIVE), confidence=0.95)["tpot_s"] is None


def test_goodput_and_the_harmed_stand_in_the_text_where_they_were_asked_for() -> None:
    """The line that says what a promise is worth, and the names to look at."""
    plain, drafted = with_tpots({"a": 0.5, "b": 0.5}, Arm.BASELINE), with_tpots({"a": 0.75, "b": 0.25}, Arm.SPECULATIVE)
    body = body_of(plain, drafted) | {"harmed": harmed_requests(plain, drafted, most=5)}
    assert "within the objectives" not in arms_text(plain, drafted, body)
    for each in (plain, drafted):
        body["arms"][each.arm.value]["goodput"] = goodput_dict(each, Slo(ttft_s=None, tpot_s=0.5, e2e_s=None), confidence=0.95)
    json.dumps(body, allow_nan=False)
    text = arms_text(plain, drafted, body)
    assert cells(text, "within the objectives").startswith("100 %")
    assert body["arms"]["speculative"]["goodput"]["share"]["value"] == 0.5
    assert "harmed most" in text
    assert cells(text, "a ").split() == ["chat", "500", "ms", "750", "ms", "1.50×"]
