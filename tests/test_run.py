"""The record at the waist: what it adds up, what it refuses, and that what was not measured is said to be missing."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from paceline.errors import BadInputError, NoEvidenceError
from paceline.latency import Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run, Summary, joined, lawful_summaries
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

PROVENANCE = Provenance(made_by="bench", version="0.1.0", evidence=Evidence.MEASURED, arguments={}, inputs={}, seed=None)
CHAT = AcceptanceCounts(steps=10, drafts=8, drafted_tokens=16, accepted_tokens=9, accepted_per_position=(6, 3))
CODE = AcceptanceCounts(steps=5, drafts=5, drafted_tokens=10, accepted_tokens=10, accepted_per_position=(5, 5))


def record(name: str, output_tokens: int, outcome: Outcome) -> RequestRecord:
    """A request whose tokens came in one chunk after a second."""
    timing = RequestTiming(
        arrived_at_s=0.0,
        sent_at_s=0.0,
        chunk_at_s=np.array([1.0]),
        chunk_tokens=np.array([output_tokens]),
        ended=Ended.STOP if outcome is Outcome.FINISHED else Ended.TIMEOUT,
    )
    return RequestRecord(
        id=name, segment="chat", prompt_tokens=5, output_tokens=output_tokens, timing=timing, acceptance=None, outcome=outcome
    )


RUN = Run(
    arm=Arm.SPECULATIVE,
    speculation=None,
    load=Load(concurrency=2, rate_per_s=None),
    requests=(record("a", 30, Outcome.FINISHED), record("b", 7, Outcome.FAILED), record("c", 10, Outcome.FINISHED)),
    acceptance_by_segment={"chat": CHAT, "code": CODE},
    step_seconds=0.02,
    summaries={},
    window_s=8.0,
    provenance=PROVENANCE,
    cautions=(),
)


def test_throughput_counts_finished_requests_only() -> None:
    """A server that times out looks as fast as one that answers."""
    assert [each.id for each in RUN.finished] == ["a", "c"]
    assert RUN.output_tokens_per_s == 5.0


def test_acceptance_pools_the_segments() -> None:
    """The total is a mean of ratios, which is nobody's acceptance rate."""
    assert RUN.acceptance == CHAT + CODE
    assert RUN.acceptance.alpha == 19 / 26
    assert replace(RUN, acceptance_by_segment={"all": CHAT}).acceptance == CHAT


@pytest.mark.parametrize("counts", [None, {}])
def test_acceptance_that_was_not_measured_is_no_evidence(counts: dict[str, AcceptanceCounts] | None) -> None:
    """A baseline is reported to accept 0 % of its drafts."""
    with pytest.raises(NoEvidenceError, match="acceptance was not measured"):
        _ = replace(RUN, acceptance_by_segment=counts).acceptance


def test_an_aggregate_source_has_no_finished_requests_to_count() -> None:
    """A Prometheus scrape is read as a run in which nothing finished."""
    with pytest.raises(NoEvidenceError, match="only summaries"):
        _ = replace(RUN, requests=None).finished


@pytest.mark.parametrize("window_s", [None, 0.0])
def test_without_a_window_there_is_no_throughput(window_s: float | None) -> None:
    """Tokens are divided by nothing."""
    with pytest.raises(NoEvidenceError, match="no window"):
        _ = replace(RUN, window_s=window_s).output_tokens_per_s


@pytest.mark.parametrize("field", ["step_seconds", "window_s"])
@pytest.mark.parametrize("value", [-1.0, nan, inf])
def test_a_run_s_times_are_finite_and_from_zero_on(field: str, value: Any) -> None:
    """A step-time ratio of NaN passes every comparison."""
    with pytest.raises(BadInputError, match=f"{field} = .* is not a time from 0 on"):
        replace(RUN, **{field: value})


def test_a_run_may_know_neither_its_step_time_nor_its_window() -> None:
    """A source that says less than ours is turned away."""
    assert replace(RUN, step_seconds=None, window_s=None).step_seconds is None


@pytest.mark.parametrize("concurrency", [0, -4, 2.5, nan, True])
def test_concurrency_is_a_whole_number_from_one_on(concurrency: int) -> None:
    """Two arms at different loads are compared under one label."""
    with pytest.raises(BadInputError, match=r"concurrency .* is not a whole number from 1 on"):
        Load(concurrency=concurrency, rate_per_s=None)


@pytest.mark.parametrize("rate_per_s", [0.0, -1.0, nan, inf])
def test_a_rate_is_a_number_above_zero(rate_per_s: float) -> None:
    """A load of all at once is written into a JSON file as Infinity, which nobody else reads."""
    with pytest.raises(BadInputError, match="all at once is a concurrency of all requests"):
        Load(concurrency=None, rate_per_s=rate_per_s)


def test_a_load_may_have_a_rate_a_concurrency_both_or_neither() -> None:
    """A benchmark file that caps an open loop, or says nothing, cannot be read."""
    assert Load(concurrency=None, rate_per_s=None) == Load(concurrency=None, rate_per_s=None)
    assert Load(concurrency=np.int64(8), rate_per_s=2.0).concurrency == 8  # type: ignore[arg-type]  # numpy's integers are meant to pass


@pytest.mark.parametrize("field", ["prompt_tokens", "output_tokens"])
@pytest.mark.parametrize("value", [-1, 0.5, nan, True])
def test_a_record_s_lengths_are_whole_numbers_from_zero_on(field: str, value: Any) -> None:
    """One broken line of a result file takes tokens away from the throughput."""
    with pytest.raises(BadInputError, match=f"request 'a': {field}"):
        replace(record("a", 3, Outcome.FINISHED), **{field: value})


def test_a_failed_request_may_have_no_output() -> None:
    """Refused requests cannot be recorded, so nobody counts them."""
    assert replace(record("a", 3, Outcome.REFUSED), output_tokens=0).output_tokens == 0


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(nan, None, None), (inf, None, None), (1.0, nan, None), (1.0, None, inf), (1.0, 1.1, None), (1.0, None, 0.9), (1.0, 1.2, 0.8)],
)
def test_a_summary_is_finite_and_within_its_interval(value: float, low: float | None, high: float | None) -> None:
    """A histogram whose last bucket is open becomes a P99 of infinity."""
    with pytest.raises(BadInputError, match=r"p99 = .* is not a finite number within"):
        Summary(value=value, statistic="p99", n=None, low=low, high=high)


@pytest.mark.parametrize("n", [-1, 2.5, nan, True])
def test_a_summary_s_samples_are_a_count(n: int) -> None:
    """An interval is computed from a negative number of samples."""
    with pytest.raises(BadInputError, match="p99 of n = "):
        Summary(value=1.0, statistic="p99", n=n, low=None, high=None)


def test_a_summary_may_know_either_end_and_its_samples() -> None:
    """A bucket's edges cannot be stated."""
    assert Summary(value=1.0, statistic="p99", n=7, low=0.5, high=None).low == 0.5
    assert Summary(value=1.0, statistic="mean", n=None, low=1.0, high=1.0).n is None


def stretch(name: str, start_s: float, *, window_s: float | None = 2.0, outcome: Outcome = Outcome.FINISHED) -> Run:
    """One request of three tokens, 0.5 s apart, that left at `start_s`."""
    timing = RequestTiming(
        arrived_at_s=start_s,
        sent_at_s=start_s,
        chunk_at_s=start_s + np.array([0.5, 1.0, 1.5]),
        chunk_tokens=np.array([1, 1, 1]),
        ended=Ended.LENGTH,
    )
    return replace(RUN, requests=(replace(record(name, 3, outcome), timing=timing),), window_s=window_s, step_seconds=0.5, summaries={})


def test_stretches_join_one_behind_the_other() -> None:
    """Blocks that lie on one another would double every throughput."""
    whole = joined([stretch("a", 0.0), stretch("b", 0.25), replace(stretch("c", 0.0), step_seconds=1.25)])
    assert whole.window_s == 6.0
    assert [each.timing.arrived_at_s for each in whole.requests or ()] == [0.0, 2.25, 4.0]
    assert [each.timing.ttft_s for each in whole.requests or ()] == [0.5, 0.5, 0.5]
    assert whole.step_seconds == pytest.approx(0.75)
    assert whole.output_tokens_per_s == pytest.approx(1.5)


def test_acceptance_of_stretches_adds_up_by_segment() -> None:
    """A mean of the blocks' rates weighs a short block like a long one."""
    counts = AcceptanceCounts(steps=10, drafts=10, drafted_tokens=30, accepted_tokens=6, accepted_per_position=(3, 2, 1))
    first = replace(stretch("a", 0.0), acceptance_by_segment={"chat": counts})
    second = replace(stretch("b", 0.0), acceptance_by_segment={"chat": counts, "code": counts})
    assert joined([first, second]).acceptance_by_segment == {"chat": counts + counts, "code": counts}
    assert joined([first, replace(second, acceptance_by_segment=None)]).acceptance_by_segment is None


def test_one_stretch_is_the_run() -> None:
    """A single block loses its summaries for nothing."""
    assert joined([RUN]) is RUN


def test_cautions_of_all_stretches_are_kept_each_once() -> None:
    """What was doubtful in the third block is doubtful in the whole."""
    late, cold = Caution("late", "late"), Caution("cold", "cold")
    whole = joined([replace(stretch("a", 0.0), cautions=(late,)), replace(stretch("b", 0.0), cautions=(cold, late))])
    assert whole.cautions == (late, cold)


def test_a_stretch_lasts_until_its_last_chunk_even_where_its_window_is_shorter() -> None:
    """Requests of two blocks would overlap on one clock."""
    whole = joined([stretch("a", 0.0, window_s=1.0), stretch("b", 0.0)])
    assert [each.timing.arrived_at_s for each in whole.requests or ()] == [0.0, 1.5]


def test_aggregates_join_by_their_windows() -> None:
    """Two scrapes of ten seconds and one of a minute are no equals."""
    short = replace(stretch("a", 0.0), requests=None, window_s=1.0)
    whole = joined([short, replace(short, window_s=3.0, step_seconds=0.9)])
    assert (whole.requests, whole.window_s) == (None, 4.0)
    assert whole.step_seconds == pytest.approx(0.8)
    assert joined([short, replace(short, window_s=None, step_seconds=None)]).window_s is None
    assert joined([replace(short, step_seconds=None)] * 2).step_seconds is None


def test_a_request_without_a_chunk_ends_when_it_was_sent() -> None:
    """A failed request has no last chunk to ask for."""
    failed = stretch("a", 0.0, window_s=0.5, outcome=Outcome.FAILED)
    assert failed.requests is not None
    nothing = RequestTiming(
        arrived_at_s=0.7, sent_at_s=0.7, chunk_at_s=np.empty(0), chunk_tokens=np.empty(0, dtype=np.int64), ended=Ended.ERROR
    )
    failed = replace(failed, requests=(replace(failed.requests[0], timing=nothing, output_tokens=0),))
    assert [each.timing.arrived_at_s for each in joined([failed, stretch("b", 0.0)]).requests or ()] == [0.7, 0.7]


@pytest.mark.parametrize(
    "second",
    [
        {"load": Load(concurrency=3, rate_per_s=None)},
        {"arm": Arm.BASELINE, "acceptance_by_segment": None},
        {"requests": None},
        {"window_s": None},
    ],
)
def test_stretches_of_different_runs_do_not_join(second: dict[str, Any]) -> None:
    """Two loads under one label are no measurement of either."""
    with pytest.raises(BadInputError):
        joined([stretch("a", 0.0), replace(stretch("b", 0.0), **second)])


def test_nothing_does_not_join() -> None:
    """An empty run is no run."""
    with pytest.raises(BadInputError, match="nothing to join"):
        joined([])


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("alpha", 1.2, "within 0 and 1"),
        ("alpha_counted_by_v0", 82.4, "within 0 and 1"),
        ("survival_2", -0.1, "within 0 and 1"),
        ("coverage", 1.01, "within 0 and 1"),
        ("acceptance_length", 0.5, "a number from 1 on"),
        ("acceptance_length [chat]", -0.0, "a number from 1 on"),
        ("tokens_per_step_emitted", 0.9, "a number from 1 on"),
        ("tpot_s", -1.0, "a number from 0 on"),
        ("requests_running", -1.0, "a number from 0 on"),
    ],
)
def test_a_figure_that_its_name_does_not_allow_is_refused_and_readers_leave_it_out(name: str, value: float, what: str) -> None:
    """An acceptance rate of 8240 % decides what is shipped."""
    wrong = {name: Summary(value=value, statistic="mean", n=None, low=None, high=None)}
    with pytest.raises(BadInputError, match=f"the summary.*{name.split(maxsplit=1)[0]}.*{what}"):
        replace(RUN, summaries=wrong)
    right = {"tpot_p50_s": Summary(value=0.0, statistic="p50", n=1, low=0.0, high=0.1)}
    kept, cautions = lawful_summaries(wrong | right)
    assert kept == right
    assert [each.code for each in cautions] == ["unlawful_figure"]


def test_the_ends_of_a_figure_are_held_to_its_name_too() -> None:
    """An interval up to an acceptance of 120 % passes every floor."""
    with pytest.raises(BadInputError, match=r"alpha\.high' = 1\.2"):
        replace(RUN, summaries={"alpha": Summary(value=0.9, statistic="pooled", n=None, low=0.8, high=1.2)})
