"""Instants into latencies: worked by hand on one small stream, then the laws that tie the definitions together."""

from itertools import pairwise
from math import inf, isclose, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError
from paceline.latency import METRICS, Detail, Ended, RequestTiming, distribution, gap_samples, has_sample, samples
from tests.strategies import request_timings


def timing(chunks: list[tuple[float, int]], *, arrived_at_s: float = 0.0, sent_at_s: float | None = None) -> RequestTiming:
    """A request of which chunks (instant, tokens) arrived; sent when it should have been unless said otherwise."""
    return RequestTiming(
        arrived_at_s=arrived_at_s,
        sent_at_s=arrived_at_s if sent_at_s is None else sent_at_s,
        chunk_at_s=np.array([at_s for at_s, _ in chunks], dtype=np.float64),
        chunk_tokens=np.array([tokens for _, tokens in chunks], dtype=np.int64),
        ended=Ended.STOP,
    )


STREAM = timing([(3.0, 1), (3.5, 4), (4.25, 3)], arrived_at_s=1.0, sent_at_s=2.0)


def test_latencies_of_one_stream_by_hand() -> None:
    """Every percentile, gate and report is off."""
    assert STREAM.output_tokens == 8
    assert STREAM.ttft_s == 2.0
    assert STREAM.e2e_s == 3.25
    assert STREAM.tpot_s == 1.25 / 7
    assert STREAM.chunk_gaps_s.tolist() == [0.5, 0.75]
    assert STREAM.token_gaps_s.tolist() == [0.125, 0.125, 0.125, 0.125, 0.25, 0.25, 0.25]


def test_latency_counts_from_when_the_request_should_have_left() -> None:
    """A load-tester that falls behind hides the wait it caused (coordinated omission)."""
    late = timing([(3.0, 1)], arrived_at_s=1.0, sent_at_s=2.9)
    assert late.ttft_s == late.e2e_s == 2.0


def test_with_one_token_there_is_no_time_per_output_token() -> None:
    """A division by zero, or a time of zero that makes a server look infinitely fast."""
    with pytest.raises(NoEvidenceError, match="1 output tokens: time per output token needs at least 2"):
        _ = timing([(1.0, 1)]).tpot_s


@pytest.mark.parametrize("metric", ["ttft_s", "e2e_s"])
def test_without_a_chunk_there_is_no_latency(metric: str) -> None:
    """A failed request counts as the fastest of all."""
    with pytest.raises(NoEvidenceError, match="no chunk arrived"):
        getattr(timing([]), metric)


@pytest.mark.parametrize(
    ("arrived_at_s", "sent_at_s", "chunks"),
    [(1.0, 0.9, [(2.0, 1)]), (0.0, 1.0, [(0.5, 1)]), (0.0, 0.0, [(2.0, 1), (1.0, 1)]), (0.0, 0.0, [(1.0, 1), (2.0, 1), (1.5, 1)])],
)
def test_a_clock_that_goes_back_is_refused(arrived_at_s: float, sent_at_s: float, chunks: list[tuple[float, int]]) -> None:
    """A negative latency enters a mean and nobody sees it."""
    with pytest.raises(BadInputError, match="the clock goes back from"):
        timing(chunks, arrived_at_s=arrived_at_s, sent_at_s=sent_at_s)


@pytest.mark.parametrize("instant", [nan, inf])
def test_an_instant_is_a_finite_number(instant: float) -> None:
    """NaN passes every comparison with a budget."""
    with pytest.raises(BadInputError, match="not a finite number"):
        timing([(instant, 1)])
    with pytest.raises(BadInputError, match="not a finite number"):
        timing([], arrived_at_s=instant)


def test_an_empty_chunk_is_refused() -> None:
    """The event that only names the role is taken for the first token, and TTFT shrinks."""
    with pytest.raises(BadInputError, match="a chunk carries 0 tokens"):
        timing([(1.0, 1), (2.0, 0)])


@pytest.mark.parametrize("tokens", [[1.0, 2.5], [True, True]])
def test_chunk_sizes_are_whole_numbers(tokens: list[float]) -> None:
    """Half a token, or a flag, is counted as output."""
    with pytest.raises(BadInputError, match="an array of integers"):
        RequestTiming(
            arrived_at_s=0.0,
            sent_at_s=0.0,
            chunk_at_s=np.array([1.0, 2.0]),
            chunk_tokens=np.array(tokens),
            ended=Ended.STOP,
        )


@pytest.mark.parametrize(("instants", "tokens"), [([1.0, 2.0], [1]), ([[1.0]], [[1]])])
def test_every_chunk_has_one_instant_and_one_size(instants: list[float], tokens: list[int]) -> None:
    """Gaps are paired with the wrong chunks."""
    with pytest.raises(BadInputError, match="chunk instants but"):
        RequestTiming(arrived_at_s=0.0, sent_at_s=0.0, chunk_at_s=np.array(instants), chunk_tokens=np.array(tokens), ended=Ended.STOP)


def test_equality_is_by_value() -> None:
    """A run that went through a file is taken for another one, or another one for it."""
    assert timing([(1.0, 2)]) == timing([(1.0, 2)])
    assert timing([(1.0, 2)]) != timing([(1.0, 3)])
    assert timing([(1.0, 2)]) != timing([(1.5, 2)])
    assert timing([(1.0, 2)]) != timing([(1.0, 2)], sent_at_s=0.5)
    assert timing([(1.0, 2)]) != "a timing"


@given(request_timings(least_chunks=1))
def test_arrived_sent_first_and_last_chunk_follow_one_another(drawn: RequestTiming) -> None:
    """Some latency comes out negative."""
    assert 0 <= drawn.ttft_s <= drawn.e2e_s
    assert drawn.arrived_at_s <= drawn.sent_at_s <= drawn.chunk_at_s[0] <= drawn.chunk_at_s[-1]
    assert (drawn.chunk_gaps_s >= 0).all()


@given(request_timings(least_chunks=1))
def test_chunk_gaps_and_token_gaps_add_up_to_the_same_time(drawn: RequestTiming) -> None:
    """Spreading a chunk over its tokens makes or loses time."""
    assert isclose(drawn.token_gaps_s.sum(), drawn.chunk_gaps_s.sum(), abs_tol=1e-9)
    assert isclose(drawn.chunk_gaps_s.sum(), drawn.e2e_s - drawn.ttft_s, abs_tol=1e-9)
    assert drawn.token_gaps_s.size == drawn.output_tokens - drawn.chunk_tokens[0]


@given(request_timings(least_chunks=2))
def test_first_token_and_time_per_token_give_back_the_end(drawn: RequestTiming) -> None:
    """TPOT and E2E tell two different stories of one request."""
    assert isclose(drawn.tpot_s * (drawn.output_tokens - 1) + drawn.ttft_s, drawn.e2e_s, abs_tol=1e-9)


def test_samples_of_each_metric_by_hand() -> None:
    """The gate compares one metric under another one's name."""
    timings = [STREAM, timing([(1.0, 1)]), timing([])]
    assert samples("ttft_s", timings).tolist() == [2.0, 1.0]
    assert samples("e2e_s", timings).tolist() == [3.25, 1.0]
    assert samples("tpot_s", timings).tolist() == [1.25 / 7]
    assert samples("chunk_gap_s", timings).tolist() == [0.5, 0.75]
    assert samples("token_gap_s", timings).tolist() == STREAM.token_gaps_s.tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_no_timings_give_no_samples(metric: str) -> None:
    """A run in which everything failed crashes the report instead of saying so."""
    assert samples(metric, []).shape == (0,)


def test_an_unknown_metric_is_answered_with_the_nearest() -> None:
    """A policy that says "ttft" is refused and nobody knows why."""
    with pytest.raises(UnknownNameError, match="unknown latency 'ttft'; nearest: ttft_s"):
        samples("ttft", [])


def test_percentiles_interpolate_between_order_statistics() -> None:
    """Two tools with another quantile rule disagree about one P99, and each is sure."""
    hundred_and_one = distribution([float(each) for each in range(101)])
    assert (hundred_and_one.p50, hundred_and_one.p90, hundred_and_one.p95, hundred_and_one.p99) == (50.0, 90.0, 95.0, 99.0)
    assert (hundred_and_one.mean, hundred_and_one.n) == (50.0, 101)
    # type 7 of two samples: 1 + .99·(3 − 1)
    assert distribution([3.0, 1.0]).p99 == 2.98


def test_no_samples_have_no_percentiles() -> None:
    """Zero milliseconds are reported where nothing was measured."""
    with pytest.raises(NoEvidenceError, match="no samples"):
        distribution([])


@pytest.mark.parametrize("value", [nan, inf])
def test_a_sample_is_a_finite_number(value: float) -> None:
    """One missing value turns every percentile into NaN, which no budget stops."""
    with pytest.raises(BadInputError, match="leave out what was not measured"):
        distribution([1.0, value])


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_rise_and_stay_within_the_samples(values: list[float]) -> None:
    """A P95 above the P99, or above the slowest request."""
    found = distribution(values)
    rising = [min(values), found.p50, found.p90, found.p95, found.p99, max(values)]
    assert all(before <= after * (1 + 1e-12) for before, after in pairwise(rising))
    assert found.n == len(values)


def test_gaps_of_many_requests_are_each_request_s_own_one_after_another() -> None:
    """Laying instants in a row must not make a gap between two requests, and an empty or single chunk has none."""
    made = [
        record_of([1.0, 1.5, 2.5], [1, 2, 4]),
        record_of([], []),
        record_of([9.0], [3]),
        record_of([4.0, 4.25], [2, 1]),
    ]
    gaps, sizes = gap_samples("chunk_gap_s", made)
    assert (gaps.tolist(), sizes.tolist()) == ([0.5, 1.0, 0.25], [2, 0, 0, 1])
    gaps, sizes = gap_samples("token_gap_s", made)
    assert (gaps.tolist(), sizes.tolist()) == ([0.25, 0.25, *[0.25] * 4, 0.25], [6, 0, 0, 1])
    assert gap_samples("token_gap_s", [])[0].size == gap_samples("chunk_gap_s", made[1:2])[0].size == 0
    with pytest.raises(UnknownNameError, match="tpot_s"):
        gap_samples("tpot_s", made)


def test_only_requests_with_chunks_and_a_second_token_have_a_sample_of_each_latency() -> None:
    """Pairs are made before samples are taken: both must agree on who has one."""
    empty, single, several = record_of([], []), record_of([9.0], [1]), record_of([4.0, 4.25], [2, 1])
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert [has_sample(metric, each) for each in (empty, single, several)] == [
            bool(samples(metric, [each]).size) for each in (empty, single, several)
        ]


def record_of(at_s: list[float], tokens: list[int]) -> RequestTiming:
    """A request that arrived and left at 0."""
    return RequestTiming(
        arrived_at_s=0.0, sent_at_s=0.0, chunk_at_s=np.array(at_s), chunk_tokens=np.array(tokens, dtype=np.int16), ended=Ended.STOP
    )


def partly(at_s: list[float], tokens: int, detail: Detail) -> RequestTiming:
    """A request whose chunks' sizes were not seen."""
    return RequestTiming.of_total(
        arrived_at_s=0.0, sent_at_s=0.0, chunk_at_s=np.array(at_s), output_tokens=tokens, ended=Ended.STOP, detail=detail
    )


def test_what_was_not_seen_of_chunks_has_no_samples() -> None:
    """Whoever reads another tool's file: pace is known from the ends alone, and no gap is made up."""
    seen = timing([(1.0, 1), (1.5, 5), (2.5, 5)])
    instants, ends = partly([1.0, 1.5, 2.5], 11, Detail.INSTANTS), partly([1.0, 2.5], 11, Detail.ENDS)
    for each in (seen, instants, ends):
        assert (each.output_tokens, each.ttft_s, each.e2e_s, each.tpot_s) == (11, 1.0, 2.5, 0.15)
    assert [samples("chunk_gap_s", [each]).tolist() for each in (seen, instants, ends)] == [[0.5, 1.0], [0.5, 1.0], []]
    assert [samples("token_gap_s", [each]).size for each in (seen, instants, ends)] == [10, 0, 0]
    assert [each.chunk_gaps_s.tolist() for each in (instants, ends)] == [[0.5, 1.0], []]
    assert [each.token_gaps_s.size for each in (instants, ends)] == [0, 0]
    assert instants != timing([(1.0, 1), (1.5, 1), (2.5, 9)])


@pytest.mark.parametrize(("at_s", "tokens"), [([1.0, 2.0], 1), ([], 3), ([1.0], 0)])
def test_tokens_and_chunks_must_fit_each_other(at_s: list[float], tokens: int) -> None:
    """A message without a token, or a token without a message, is a misread file."""
    with pytest.raises(BadInputError, match=f"{tokens} output tokens cannot have come in {len(at_s)} chunks"):
        partly(at_s, tokens, Detail.INSTANTS)


def test_a_request_without_chunks_may_be_of_any_detail() -> None:
    """A failed request of another tool's file has nothing to be known of."""
    assert partly([], 0, Detail.ENDS).output_tokens == 0
