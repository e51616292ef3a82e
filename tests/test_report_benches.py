"""What a load-test shows: its arms, its own error, its doubts."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import NoEvidenceError
from paceline.report.benches import bench_dict, bench_text, looks_dict, looks_text, saturated
from paceline.run import Outcome, Run, Summary
from paceline.stats.looks import Looks
from paceline.verdict import Caution, Decision
from tests.strategies_runs import pair


def figure(value: float, statistic: str = "mean") -> Summary:
    return Summary(value=value, statistic=statistic, n=9, low=None, high=None)


CLIENT = {"client_lag_mean_s": figure(1e-6), "client_lag_s": figure(2e-6, "p99"), "client_late_s": figure(0.001, "p99")}


def arms(**client: Summary) -> tuple[Run, Run]:
    ours, theirs = pair(n=30)
    return replace(ours, summaries=CLIENT | client), replace(theirs, summaries=CLIENT | client)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_two_arms_are_compared() -> None:
    """Two tables without a ratio leave the reader to divide."""
    ours, theirs = arms(tokens_per_chunk=figure(2.5, "pooled"), client_cpu_share=figure(0.1))
    body = bench_dict(ours, theirs, confidence=0.95, rng=rng())
    assert body["speedup"]["low"] > 1
    assert body["client"]["baseline"]["client_late_s"] == 0.001
    text = bench_text(ours, theirs, body)
    assert "speed-up" in text
    assert "client, speculative" in text
    assert "2.50" in text


def test_one_arm_is_shown_alone() -> None:
    """On one GPU the first command measures one arm, and must show it."""
    ours, theirs = arms()
    body = bench_dict(None, theirs, confidence=0.95, rng=rng())
    assert (body["speedup"], set(body["arms"])) == (None, {"speculative"})
    assert "acceptance rate α" in bench_text(None, theirs, body)
    alone = bench_dict(ours, None, confidence=0.95, rng=rng())
    assert alone["acceptance"] is None
    assert "acceptance rate α" not in bench_text(ours, None, alone)


def test_acceptance_from_counters_is_shown_without_an_interval() -> None:
    """Counters of a whole server say how much, not how surely."""
    _, theirs = arms()
    assert theirs.requests is not None
    counters = replace(theirs, requests=tuple(replace(each, acceptance=None) for each in theirs.requests))
    body = bench_dict(None, counters, confidence=0.95, rng=rng())
    assert body["acceptance"]["alpha"]["value"] == pytest.approx(theirs.acceptance.alpha)
    assert body["acceptance"]["alpha"]["low"] is None
    assert bench_dict(None, replace(counters, acceptance_by_segment=None), confidence=0.95, rng=rng())["acceptance"] is None


def test_a_saturated_client_compares_nothing() -> None:
    """A bottleneck makes both arms equal, which looks like an answer."""
    ours, theirs = arms(client_lag_mean_s=figure(1.0))
    body = bench_dict(ours, theirs, confidence=0.95, rng=rng())
    assert saturated(body)
    assert body["speedup"] is None
    assert "warning [client_saturated]" in bench_text(ours, theirs, body)


def test_doubts_of_both_arms_are_told_once_each() -> None:
    """A warning that is printed twice is read as two."""
    ours, theirs = (replace(each, cautions=(Caution("not_warm", "cold"),)) for each in arms())
    assert [each["code"] for each in bench_dict(ours, theirs, confidence=0.95, rng=rng())["warnings"]] == ["not_warm"]


def test_an_arm_without_a_window_or_a_sample_has_gaps_in_its_table() -> None:
    """A server that finished nothing has no throughput, and no crash either."""
    ours, _ = arms()
    empty = replace(ours, requests=(), window_s=None)
    body = bench_dict(empty, None, confidence=0.95, rng=rng())
    assert "output tokens per second" in bench_text(empty, None, body)


def test_neither_arm_is_nothing_to_show() -> None:
    """A test that was stopped at once has no figures."""
    with pytest.raises(NoEvidenceError, match="neither arm"):
        bench_dict(None, None, confidence=0.95, rng=rng())


def test_an_arm_without_one_timed_answer_is_no_measurement() -> None:
    """All requests failed, and the exit code says that all is well."""
    ours, _ = arms()
    body = bench_dict(replace(ours, requests=()), None, confidence=0.95, rng=rng())
    assert saturated(body)
    assert "nothing_timed" in [each["code"] for each in body["warnings"]]


def test_an_arm_that_lost_many_requests_or_timed_none_says_so() -> None:
    """A table of the few that came back looks like any other."""
    ours, theirs = arms()
    assert theirs.requests is not None
    lost = replace(theirs, requests=tuple(replace(each, outcome=Outcome.FAILED) for each in theirs.requests[:10]) + theirs.requests[10:])
    body = bench_dict(ours, lost, confidence=0.95, rng=rng())
    assert (body["speedup"], [each["code"] for each in body["warnings"]]) == (None, ["requests_missing"])
    none = replace(theirs, requests=tuple(replace(each, outcome=Outcome.FAILED) for each in theirs.requests))
    assert "nothing_timed" in [each["code"] for each in bench_dict(None, none, confidence=0.95, rng=rng())["warnings"]]


@pytest.mark.parametrize(
    ("taken", "decision", "stopped", "told"),
    [
        (2, Decision.KEEP, True, "look 2 of 7 says keep; stopped there"),
        (7, Decision.SHIP, False, "look 7 of 7 says ship; 400 requests per arm at most"),
        (2, Decision.CANNOT_TELL, False, "look 2 of 7 says cannot tell; 400 requests per arm at most"),
    ],
)
def test_what_the_last_look_said_is_told(taken: int, decision: Decision, stopped: bool, told: str) -> None:
    """Half of the requests that were asked for, and no word why, looks like a crash."""
    body = looks_dict(Looks(taken=taken, planned=7, most_requests=400, decision=decision))
    assert body is not None
    assert body["stopped_early"] is stopped
    assert looks_text(body) == told
    assert looks_dict(None) is None
