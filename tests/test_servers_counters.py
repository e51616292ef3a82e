"""Counters between scrapes, whatever server they are of."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError, UnknownNameError
from paceline.servers.counters import Change, Counters, Vocabulary, change, gauge_summary, positions, read_series
from paceline.servers.prometheus_text import parse_exposition

WORDS = Vocabulary(
    dialect="Thing",
    prefix=re.compile("t:"),
    counts=frozenset({"a_total", "b_total"}),
    totals=frozenset({"s_sum"}),
    gauges=frozenset({"now"}),
    by_label={"at_total": "position"},
    splits=frozenset({"split"}),
    aliases={"a": "a_total"},
)


def read(text: str, *, model: str | None = None) -> Counters:
    return read_series(parse_exposition(text).samples, WORDS, model=model)


def changed(*texts: str) -> Change:
    return change([read(each) for each in texts], WORDS)


def codes(of: Change) -> list[str]:
    return [each.code for each in of.noted]


def test_a_series_that_is_split_is_summed_and_an_engine_s_is_kept_apart() -> None:
    """Whoever's server tells streaming from other requests: both are its own, and the second rank is another's."""
    text = 't:a_total{rank="0",split="x"} 3\nt:a{rank="0",split="y"} 4\nt:a_total{rank="1",split="x"} 5\n'
    assert read(text).engines == {"rank=0": {"a_total": 7.0}, "rank=1": {"a_total": 5.0}}


def test_a_restart_in_the_middle_keeps_what_was_counted_before_it() -> None:
    """Whoever polls: 5 before the restart, 2 after it, and one caution however many intervals follow."""
    whole = changed("t:a 10\n", "t:a 15\n", "t:a 1\n", "t:a 2\n")
    assert whole.total == {"a_total": 7.0}
    assert codes(whole) == ["counter_reset"]


def test_a_series_that_vanishes_is_half_a_scrape() -> None:
    """Whoever's scrape was cut at the end of a line: nothing in the text itself shows it."""
    with pytest.raises(BadInputError, match="half a scrape"):
        changed("t:a 1\nt:b_total 1\n", "t:a 2\n")
    with pytest.raises(BadInputError, match="half a scrape"):
        changed('t:a 1\nt:at_total{position="1"} 1\n', "t:a 2\n")
    assert changed("t:a 1\nt:now 3\n", "t:a 2\n").total == {"a_total": 1.0}


def test_a_series_of_some_engines_only_is_left_out() -> None:
    """Whoever serves on eight ranks and reads half a scrape: the tokens of three ranks are not the server's."""
    part = changed('t:a{rank="0"} 1\nt:b_total{rank="0"} 2\nt:a{rank="1"} 3\n')
    assert part.total == {"a_total": 4.0}
    assert codes(part) == ["series_missing"]


def test_engines_may_have_gauges_or_positions_of_their_own() -> None:
    """Whoever's ranks draft at other lengths, or whose gauges have labels that counters lack: nothing is missing."""
    text = 't:at_total{rank="0",position="0"} 4\nt:at_total{rank="0",position="2"} 1\nt:at_total{rank="1",position="0"} 3\nt:now{x="y"} 2\n'
    both = changed(text)
    assert codes(both) == []
    assert positions(both.total, "at_total") == (7, 0, 1)
    assert positions(both.total, "a_total") is None


def test_an_engine_that_comes_or_goes_is_said() -> None:
    """Whoever scales in the window: what is counted of whom is told."""
    assert codes(changed('t:a{rank="0"} 1\n', 't:a{rank="0"} 2\nt:a{rank="1"} 3\n')) == ["engine_appeared"]
    gone = changed('t:a{rank="0"} 1\nt:a{rank="1"} 5\n', 't:a{rank="0"} 2\nt:a{rank="1"} 9\n', 't:a{rank="0"} 3\n')
    assert (gone.total, codes(gone)) == ({"a_total": 6.0}, ["engine_gone"])


def test_one_model_is_read() -> None:
    """Whoever mixes two: refused, by name."""
    two = 't:a{model_name="m"} 1\nt:a{model_name="n"} 2\n'
    with pytest.raises(BadInputError, match="--model"):
        read(two)
    assert read(two, model="n").engines == {"": {"a_total": 2.0}}
    with pytest.raises(UnknownNameError):
        read(two, model="k")
    with pytest.raises(BadInputError, match="a later one of 'n'"):
        change([read(two, model="m"), read(two, model="n")], WORDS)


def test_gauges_are_the_last_value_or_the_mean_with_its_range() -> None:
    """Whoever reads requests running: two looks are no mean."""
    assert gauge_summary([read("t:a 1\n")], "now") is None
    pair = gauge_summary([read("t:now 1\n"), read("t:now 5\n")], "now")
    assert pair is not None
    assert (pair.value, pair.statistic) == (5, "last")
    many = gauge_summary([read(f't:now{{rank="0"}} {i}\nt:now{{rank="1"}} {i}\n') for i in (1, 2, 6)], "now")
    assert many is not None
    assert (many.value, many.low, many.high, many.n) == (6, 2, 12, 3)


counts = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=6)


@given(counts)
def test_any_split_of_a_window_without_restarts_adds_up(steps: list[tuple[int, int]]) -> None:
    """Whoever polls often or seldom: the same figures."""
    texts, a, b = ["t:a 0\nt:b_total 0\n"], 0, 0
    for more_a, more_b in steps:
        a, b = a + more_a, b + more_b
        texts.append(f"t:a {a}\nt:b_total {b}\n")
    assert changed(*texts).total == changed(texts[0], texts[-1]).total == {"a_total": a, "b_total": b}


@given(counts)
def test_nothing_is_ever_negative(values: list[tuple[int, int]]) -> None:
    """Whoever's counters do anything: rates are from 0 on, and a fall is said."""
    told = changed(*(f"t:a {a}\nt:b_total {b}\n" for a, b in values))
    assert all(value >= 0 for value in told.total.values())
    fell = any(after[0] < before[0] or after[1] < before[1] for before, after in pairwise(values))
    assert ("counter_reset" in codes(told)) == fell
