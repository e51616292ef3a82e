"""The steady part of a closed loop: which requests it keeps, and what its window means."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.latency import Ended, RequestTiming
from paceline.run import Arm, Load, Outcome, RequestRecord, Run
from paceline.simulate.steady import steady
from paceline.speculation.counts import AcceptanceCounts
from tests.strategies_runs import pair, provenance, summaries_only, timing

TOKENS = 5
LATENCY_S = 2.0


def record(i: int, *, segment: str = "chat", counts: AcceptanceCounts | None = None) -> RequestRecord:
    """Every request takes two seconds for five tokens: one for the first chunk, then four gaps of a quarter."""
    return RequestRecord(
        id=f"r{i}",
        segment=segment,
        prompt_tokens=10,
        output_tokens=TOKENS,
        timing=timing(sent_at_s=float(i), ttft_s=1.0, gaps_s=[0.25] * 4, tokens=[1] * TOKENS),
        acceptance=counts,
        outcome=Outcome.FINISHED,
    )


def refused(i: int) -> RequestRecord:
    """A request that never ran."""
    nothing = RequestTiming(
        arrived_at_s=float(i), sent_at_s=float(i), chunk_at_s=np.empty(0), chunk_tokens=np.empty(0, dtype=np.int64), ended=Ended.ERROR
    )
    return replace(record(i), output_tokens=0, timing=nothing, acceptance=AcceptanceCounts.none(), outcome=Outcome.REFUSED)


def closed_loop(requests: tuple[RequestRecord, ...], *, concurrency: int = 2, arm: Arm = Arm.BASELINE) -> Run:
    """A run of these requests whose own window and totals are wrong on purpose: a steady part takes none of them over."""
    return Run(
        arm=arm,
        speculation=None,
        load=Load(concurrency=concurrency, rate_per_s=None),
        requests=requests,
        acceptance_by_segment=None if arm is Arm.BASELINE else {"chat": AcceptanceCounts.none()},
        step_seconds=9.0,
        summaries={},
        window_s=999.0,
        provenance=provenance(),
        cautions=(),
    )


def counts(accepted: int) -> AcceptanceCounts:
    """Two drafted steps of two tokens each."""
    return AcceptanceCounts(steps=2, drafts=2, drafted_tokens=4, accepted_tokens=accepted, accepted_per_position=(accepted, 0))


def test_the_middle_is_kept_by_place_and_nothing_else() -> None:
    """Leaving out by latency would leave out the slow ones, and every percentile would shine."""
    kept = steady(closed_loop(tuple(record(i) for i in range(7))), skip_first=2, skip_last=3).requests
    assert kept is not None
    assert [each.id for each in kept] == ["r2", "r3"]


def test_constant_latency_gives_the_throughput_of_littles_law() -> None:
    """Two in flight, five tokens every two seconds each: 2 · 5 / 2 = 5 tokens per second. The ramp's idle seats would make it less."""
    found = steady(closed_loop(tuple(record(i) for i in range(10))), skip_first=2, skip_last=2)
    assert found.window_s == pytest.approx(6 * LATENCY_S / 2)
    assert found.output_tokens_per_s == pytest.approx(2 * TOKENS / LATENCY_S)
    assert found.step_seconds == pytest.approx(0.25)


def test_a_step_takes_as_long_as_a_chunk_whatever_it_carries() -> None:
    """With drafts a chunk has several tokens: seconds per token would make every step look shorter than it is."""
    drafted = timing(sent_at_s=0.0, ttft_s=1.0, gaps_s=[0.25, 0.75], tokens=[1, 3, 1])
    found = steady(closed_loop(tuple(replace(record(i), timing=drafted) for i in range(4))), skip_first=1, skip_last=1)
    assert found.step_seconds == pytest.approx(0.5)


@settings(max_examples=40)
@given(n=st.integers(1, 30), first=st.integers(0, 12), last=st.integers(0, 40), concurrency=st.integers(1, 9))
def test_throughput_follows_littles_law_whatever_is_left_out(n: int, first: int, last: int, concurrency: int) -> None:
    """A window that depended on the edges would make every arm faster or slower with --requests."""
    run = closed_loop(tuple(record(i) for i in range(n)), concurrency=concurrency)
    if first + last >= n:
        with pytest.raises(BadInputError, match="leave none"):
            steady(run, skip_first=first, skip_last=last)
        return
    found = steady(run, skip_first=first, skip_last=last)
    assert found.requests == run.requests[first : n - last] if run.requests else False
    assert found.output_tokens_per_s == pytest.approx(concurrency * TOKENS / LATENCY_S)


def test_both_arms_keep_the_same_requests() -> None:
    """Different requests in the arms would be paired with nobody."""
    ids = []
    for run in pair(n=30):
        kept = steady(run, skip_first=8, skip_last=8).requests
        assert kept is not None
        ids.append([each.id for each in kept])
    assert ids[0] == ids[1] == [f"r{i}" for i in range(8, 22)]


def test_acceptance_is_pooled_from_the_kept_requests() -> None:
    """The first batch is all prefill; its acceptance belongs to nobody's production."""
    requests = (
        record(0, counts=counts(2)),
        record(1, counts=counts(1)),
        record(2, segment="code", counts=counts(2)),
        record(3, counts=counts(0)),
        record(4),
        record(5, counts=counts(2)),
    )
    found = steady(closed_loop(requests, arm=Arm.SPECULATIVE), skip_first=1, skip_last=1)
    assert found.acceptance_by_segment == {"chat": counts(1) + counts(0), "code": counts(2)}
    assert found.acceptance == sum([counts(0), counts(2)], start=counts(1))
    assert steady(closed_loop(requests), skip_first=1, skip_last=1).acceptance_by_segment is None


def test_a_refused_request_keeps_its_place_and_takes_no_time() -> None:
    """Were it dropped, the arms would be cut at different requests; were it timed, refusing would look fast."""
    run = closed_loop((record(0), record(1), refused(2), record(3), record(4)))
    found = steady(run, skip_first=1, skip_last=1)
    assert found.requests is not None
    assert [each.outcome for each in found.requests] == [Outcome.FINISHED, Outcome.REFUSED, Outcome.FINISHED]
    assert found.window_s == pytest.approx(2 * LATENCY_S / 2)
    assert found.output_tokens_per_s == pytest.approx(5.0)


def test_a_middle_of_refused_requests_has_no_step_and_no_throughput() -> None:
    """A step of 0 seconds would be the fastest server ever measured."""
    found = steady(closed_loop((record(0), refused(1), record(2))), skip_first=1, skip_last=1)
    assert found.step_seconds is None
    with pytest.raises(NoEvidenceError):
        _ = found.output_tokens_per_s


@pytest.mark.parametrize(("first", "last"), [(2, 2), (0, 4), (1, 5), (-1, 0), (0, -1)])
def test_what_leaves_nothing_is_refused_and_never_counted_from_the_other_end(first: int, last: int) -> None:
    """A slice that wraps around measures requests which were to be left out."""
    with pytest.raises(BadInputError, match=f"4 requests leave none between the first {first} and the last {last}"):
        steady(closed_loop(tuple(record(i) for i in range(4))), skip_first=first, skip_last=last)


def test_only_a_closed_loop_with_its_requests_has_ends_to_leave_out() -> None:
    """In an open loop Little's law needs the rate, and the window would be wrong."""
    run = closed_loop((record(0), record(1), record(2)))
    for other in (replace(run, load=Load(concurrency=None, rate_per_s=3.0)), summaries_only(Arm.BASELINE, step_s=0.1, counts=None)):
        with pytest.raises(BadInputError, match="'bench' without a closed loop's requests"):
            steady(other, skip_first=1, skip_last=1)
