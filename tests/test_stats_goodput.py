"""Goodput: who got what was promised."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Outcome, Run
from paceline.stats.goodput import Slo, goodput, promised
from tests.strategies_runs import record, run, summaries_only, timing

LOOSE = Slo(ttft_s=1.0, tpot_s=1.0, e2e_s=None)


def answers(*ttft_and_gap: tuple[float, float]) -> Run:
    """Two-token answers with that TTFT and that gap, in a window of 4 s."""
    one = record(0, segment="chat", step_s=0.01, alpha=None, draft_tokens=3, ttft_s=0.2, prefix="r", seed=1)
    requests = tuple(
        replace(one, id=f"r{i}", output_tokens=2, timing=timing(sent_at_s=0, ttft_s=ttft, gaps_s=[gap], tokens=[1, 1]))
        for i, (ttft, gap) in enumerate(ttft_and_gap)
    )
    return replace(run(Arm.BASELINE, n=1, step_s=0.01, alphas={"chat": 0.5}), requests=requests, window_s=4.0)


def test_a_request_is_good_where_every_promise_holds() -> None:
    """Of four, one is late, one is slow, one is both: 1 of 4, .25 requests and .5 tokens per second."""
    found = goodput(answers((0.5, 0.05), (1.5, 0.05), (0.5, 0.25), (1.5, 0.25)), Slo(ttft_s=1.0, tpot_s=0.1, e2e_s=None), confidence=0.95)
    assert (found.share.value, found.share.n) == (0.25, 4)
    assert (found.requests_per_s, found.output_tokens_per_s) == (0.25, 0.5)


def test_end_to_end_may_be_promised_alone() -> None:
    """.5 + .25 s is within .75 s, 1.5 + .25 s is not."""
    found = goodput(answers((0.5, 0.25), (1.5, 0.25)), Slo(ttft_s=None, tpot_s=None, e2e_s=0.75), confidence=0.95)
    assert found.share.value == 0.5


def test_the_refused_are_not_good_and_a_single_token_has_no_pace_to_break() -> None:
    """A server that refuses the slow ones must not look better for it."""
    whole = answers((0.5, 0.05), (0.5, 0.05), (0.5, 5.0))
    assert whole.requests is not None
    refused = replace(whole.requests[0], outcome=Outcome.REFUSED)
    single = replace(whole.requests[2], output_tokens=1, timing=timing(sent_at_s=0, ttft_s=0.5, gaps_s=[], tokens=[1]))
    silent = replace(
        single,
        id="s",
        output_tokens=0,
        timing=replace(single.timing, chunk_at_s=single.timing.chunk_at_s[:0], chunk_tokens=single.timing.chunk_tokens[:0]),
    )
    found = goodput(replace(whole, requests=(refused, whole.requests[1], single, silent)), LOOSE, confidence=0.95)
    assert found.share.value == 0.5


def test_without_a_window_there_is_a_share_and_no_rate() -> None:
    """A rate over an unknown time is a guess."""
    found = goodput(replace(answers((0.5, 0.05)), window_s=None), LOOSE, confidence=0.95)
    assert (found.share.value, found.requests_per_s, found.output_tokens_per_s) == (1.0, None, None)


def test_summaries_cannot_say_who_was_good() -> None:
    """The P99 of each latency does not say whether it was the same request."""
    with pytest.raises(NoEvidenceError, match="per-request records"):
        goodput(summaries_only(Arm.BASELINE, step_s=0.1, counts=None), LOOSE, confidence=0.95)


@pytest.mark.parametrize("promised", [(None, None, None), (0.0, None, None), (None, -1.0, None), (None, None, float("inf"))])
def test_promises_of_nothing_are_refused(promised: tuple[float | None, float | None, float | None]) -> None:
    """An objective that everybody meets, or nobody can, decides nothing."""
    with pytest.raises(BadInputError):
        Slo(ttft_s=promised[0], tpot_s=promised[1], e2e_s=promised[2])


@given(made=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=12), tighter=st.floats(0.1, 1.0))
def test_a_tighter_promise_is_never_kept_more_often(made: list[tuple[float, float]], tighter: float) -> None:
    """Goodput that rises as promises get stricter is counted wrongly."""
    loose = goodput(answers(*made), LOOSE, confidence=0.95)
    tight = goodput(answers(*made), Slo(ttft_s=tighter, tpot_s=tighter, e2e_s=None), confidence=0.95)
    assert tight.share.value <= loose.share.value


def test_promised_latencies_are_read_back_as_they_were_written() -> None:
    """A run file states them, and a gate that reads others judges another promise."""
    for slo in (Slo(ttft_s=0.5, tpot_s=1 / 30, e2e_s=None), Slo(ttft_s=None, tpot_s=None, e2e_s=9.0)):
        assert Slo.stated_in(str(slo)) == slo
    for wrong in ("", "ttft=0.5", "ttft_s=fast", "ttft_s"):
        with pytest.raises(BadInputError, match="not of the form"):
            Slo.stated_in(wrong)


def test_a_run_that_promises_nothing_has_no_goodput() -> None:
    """None is not what nobody asked for."""
    whole = answers((0.5, 0.05))
    with pytest.raises(NoEvidenceError, match="simulate --slo"):
        promised(whole)
    stated = replace(whole, provenance=replace(whole.provenance, arguments={"slo": str(LOOSE)}))
    assert promised(stated) == LOOSE
