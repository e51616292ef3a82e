"""Rows of a request trace: instants to the nanosecond, order, and what a workload is made of."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.traffic.traces import TraceRow, instant_ns, rows_out_of_order, workload_from_trace

NS = 10**9


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1970-01-01 00:00:00", 0),
        ("1970-01-02T00:00:01.5Z", (86_400 + 1) * NS + 500_000_000),
        ("2000-02-29 12:00:00", 951_825_600 * NS),
        ("2023-11-16 18:17:03.9799600", 1_700_158_623 * NS + 979_960_000),
        ("2024-05-10 00:00:00.009930+00:00", 1_715_299_200 * NS + 9_930_000),
        ("2024-05-10 01:30:00+01:30", 1_715_299_200 * NS),
        ("2024-05-09 22:30:00.000000001-01:30", 1_715_299_200 * NS + 1),
    ],
)
def test_an_instant_is_whole_nanoseconds_since_1970(text: str, expected_ns: int) -> None:
    """Seven digits do not fit a float of seconds: gaps of 200 ns would come out as 0 or 477 ns."""
    assert instant_ns(text) == expected_ns


@settings(max_examples=100, deadline=None)
@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001  # hypothesis wants naive bounds
def test_the_calendar_is_the_standard_librarys(when: datetime) -> None:
    """A trace over a leap day or a century would be off by a day."""
    since_1970 = when.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert instant_ns(when.isoformat(sep=" ")) == since_1970 // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "16.11.2023 18:17",
        "2023-11-16",
        "2023-11-16 18:17:03.",
        "2023-11-16 18:17:03.1234567890",
        "٢٠٢٣-11-16 18:17:03",
        "2023-11-16 18:17:03 ",
    ],
)
def test_what_is_not_written_as_an_instant_is_refused(text: str) -> None:
    """A day and a month in the wrong order would shift the whole trace."""
    with pytest.raises(BadInputError, match="is not an instant; write it as"):
        instant_ns(text)


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29 00:00:00",
        "1900-02-29 00:00:00",
        "2023-00-01 00:00:00",
        "2023-13-01 00:00:00",
        "2023-04-31 00:00:00",
        "2023-04-00 00:00:00",
        "2023-04-01 24:00:00",
        "2023-04-01 00:60:00",
        "2023-04-01 00:00:60",
    ],
)
def test_a_day_that_no_calendar_has_is_refused(text: str) -> None:
    """It would silently become the next day."""
    with pytest.raises(BadInputError, match="on no calendar and clock"):
        instant_ns(text)


def test_a_trace_becomes_requests_counted_from_the_earliest() -> None:
    """A simulation would start 54 years into the run, or with a request before its start."""
    rows = [
        TraceRow(arrived_at_ns=5 * NS, prompt_tokens=10, output_tokens=1, segment="code", prefix_hashes=None),
        TraceRow(arrived_at_ns=4 * NS, prompt_tokens=20, output_tokens=2, segment="code", prefix_hashes=(7,)),
    ]
    made = workload_from_trace(rows, source="t.csv")
    assert [(each.id, each.arrived_at_s, each.prompt_tokens, each.output_tokens, each.segment) for each in made.requests] == [
        ("1", 0.0, 20, 2, "code"),
        ("2", 1.0, 10, 1, "code"),
    ]
    assert (made.source, made.seed) == ("t.csv", None)


def test_a_trace_without_rows_is_refused() -> None:
    """An empty file would simulate to a perfect result."""
    with pytest.raises(BadInputError, match="no requests"):
        workload_from_trace([], source="t.csv")


def test_a_row_is_out_of_order_when_one_above_it_is_later() -> None:
    """Of 1 3 2 2 4 the two 2s are; a clock that jumped would go unnoticed."""
    rows = [TraceRow(arrived_at_ns=each, prompt_tokens=1, output_tokens=1, segment="code", prefix_hashes=None) for each in (1, 3, 2, 2, 4)]
    assert rows_out_of_order(rows) == 2
    assert rows_out_of_order([]) == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_no_row_is_lost_and_order_is_by_arrival(instants_ns: list[int]) -> None:
    """A row lost in sorting is traffic that nobody plans for."""
    rows = [
        TraceRow(arrived_at_ns=each, prompt_tokens=number, output_tokens=1, segment="code", prefix_hashes=None)
        for number, each in enumerate(instants_ns, 1)
    ]
    made = workload_from_trace(rows, source="t")
    assert sorted(each.prompt_tokens for each in made.requests) == list(range(1, len(rows) + 1))
    assert [each.arrived_at_s for each in made.requests] == sorted((each - min(instants_ns)) / NS for each in instants_ns)
    assert (rows_out_of_order(rows) == 0) == (instants_ns == sorted(instants_ns))
