"""The textbook's own numbers, exactly, and what is said beside them."""

import json
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.lesson import (
    FLOOR_ALPHA,
    alpha_for,
    break_even_alpha,
    lesson,
    operations_ratio,
    overhead_elasticity,
    walltime_improvement,
)

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_vectors.json").read_text(encoding="utf-8"))


def applying(alpha: float, draft_tokens: int, overhead: float) -> set[str]:
    """The codes of the deviations that apply."""
    found = lesson(alpha=alpha, draft_tokens=draft_tokens, overhead=overhead).deviations
    return {each.code for each in found if each.applies}


def test_the_textbooks_example_comes_out_as_the_textbook_prints_it() -> None:
    """α = .7, K = 5, ε = .1: 4.5 tokens and 4.09 times; under Leviathan's model 2.94 tokens and 2.67 times."""
    found = lesson(alpha=0.7, draft_tokens=5, overhead=0.1)
    assert found.textbook.expected_tokens == 4.5
    assert found.textbook.speedup == pytest.approx(4.5 / 1.1)
    assert round(found.textbook.speedup, 2) == 4.09
    assert found.textbook.break_even_alpha == pytest.approx(0.02)
    assert found.textbook.alpha_for == pytest.approx({"2": 0.24, "3": 0.46})
    assert found.iid.expected_tokens == pytest.approx(2.94117)
    assert round(found.iid.speedup, 2) == 2.67
    assert found.iid.alpha_for["2"] == pytest.approx(0.5594, abs=1e-4)
    assert found.clears_floor


def test_fifteen_percent_overhead_breaks_even_at_three_percent() -> None:
    """ε = .15, K = 5: the textbook's .03."""
    assert break_even_alpha(draft_tokens=5, overhead=0.15) == 0.03


def test_leviathans_break_even_gives_back_the_overhead() -> None:
    """E(β) = 1 + ε defines it: .1 / (1 + β + …) needs β = .0909 at K = 5."""
    assert lesson(alpha=0.7, draft_tokens=5, overhead=0.1).iid.break_even_alpha == pytest.approx(0.0909, abs=1e-4)


def test_a_speedup_no_acceptance_can_give_is_said_to_be_out_of_reach() -> None:
    """K = 1 gives 2 tokens at most; promising 3x would be a lie."""
    found = lesson(alpha=0.5, draft_tokens=1, overhead=0.2)
    assert found.textbook.alpha_for == {"2": None, "3": None}
    assert found.iid.alpha_for == {"2": None, "3": None}
    assert "speedup_out_of_reach" in applying(0.5, 1, 0.2)
    assert "2x and 3x" in next(each.message for each in found.deviations if each.code == "speedup_out_of_reach")


def test_an_overhead_above_the_draft_length_never_breaks_even() -> None:
    """A step more than K times dearer cannot pay, and both models say so."""
    found = lesson(alpha=1.0, draft_tokens=2, overhead=2.5)
    assert found.textbook.break_even_alpha == 1.25
    assert found.iid.break_even_alpha is None
    assert "break_even_out_of_reach" in applying(1.0, 2, 2.5)
    assert "break_even_out_of_reach" not in applying(1.0, 2, 2.0)


def test_deviations_that_apply_come_first_and_carry_the_figures() -> None:
    """Whoever reads only the first line must read what concerns them."""
    found = lesson(alpha=0.7, draft_tokens=5, overhead=0.1).deviations
    order = [each.applies for each in found]
    assert order == sorted(order, reverse=True)
    assert found[0].code == "alpha_is_not_beta"
    assert "2.94 tokens and not 4.50 (+53%)" in found[0].message
    assert len({each.code for each in found}) == len(found)


def test_the_floor_is_flagged_where_it_decides_wrongly() -> None:
    """α = .3 with K = 5 pays at ε = .4, although the textbook's floor of .55 forbids it; and α = .6 with K = 1 loses at ε = .8."""
    assert "floor_is_no_law" in applying(0.3, 5, 0.4)
    assert "floor_is_no_law" in applying(0.6, 1, 0.8)
    assert "floor_is_no_law" not in applying(0.7, 5, 0.4)
    assert not lesson(alpha=0.3, draft_tokens=5, overhead=0.4).clears_floor
    assert FLOOR_ALPHA == 0.55


def test_a_single_draft_and_a_measured_overhead_are_not_flagged() -> None:
    """False alarms would teach readers to skip the list."""
    assert applying(0.7, 1, 0.4) == {"overhead_is_not_constant", "speedup_out_of_reach"}


@pytest.mark.parametrize("row", GOLDEN["leviathan_table1_c0"])
def test_leviathans_table_1(row: dict[str, float]) -> None:
    """Operations and speed at a free draft, as printed."""
    K = int(row["gamma"])
    assert walltime_improvement(row["alpha"], draft_tokens=K, cost=0.0) == pytest.approx(row["speed"], abs=0.006)
    assert operations_ratio(row["alpha"], draft_tokens=K, cost=0.0) == pytest.approx(row["ops"], abs=0.006)


@pytest.mark.parametrize("row", GOLDEN["leviathan_table4"])
def test_leviathans_table_4(row: dict[str, float]) -> None:
    """The paper's expected wall time on T5-XXL, within its rounding of α and c."""
    found = walltime_improvement(row["alpha"], draft_tokens=int(row["gamma"]), cost=row["c"])
    assert found == pytest.approx(row["formula"], rel=1e-9)
    assert found == pytest.approx(row["paper_exp"], abs=0.07)


@given(S=st.floats(1.0, 4.0), K=st.integers(1, 8), overhead=st.floats(0.01, 2.0))
def test_alpha_for_a_speedup_gives_that_speedup(S: float, K: int, overhead: float) -> None:
    """An α that does not reach what it was asked for would be shipped and disappoint."""
    alpha = alpha_for(S, draft_tokens=K, overhead=overhead)
    if alpha is None:
        assert S * (1 + overhead) > K + 1
    else:
        assert (1 + K * alpha) / (1 + overhead) == pytest.approx(S)


@given(S=st.floats(1.0, 3.0), overhead=st.floats(0.05, 1.0))
def test_elasticity_is_the_relative_slope(S: float, overhead: float) -> None:
    """The sensitivity shown is the one that is there."""
    step = 1e-6
    before, after = (alpha_for(S, draft_tokens=8, overhead=each) for each in (overhead, overhead * (1 + step)))
    assert before is not None
    assert after is not None
    assert overhead_elasticity(S, draft_tokens=8, overhead=overhead) == pytest.approx((after / before - 1) / step, rel=1e-3)


def test_a_speedup_that_needs_nothing_has_no_sensitivity() -> None:
    """A division by zero would reach the user."""
    assert alpha_for(0.5, draft_tokens=3, overhead=0.1) == 0.0
    with pytest.raises(BadInputError, match="needs no acceptance"):
        overhead_elasticity(0.5, draft_tokens=3, overhead=0.1)


@pytest.mark.parametrize(
    ("alpha", "draft_tokens", "overhead"),
    [(1.1, 5, 0.1), (nan, 5, 0.1), (-0.1, 5, 0.1), (0.7, 0, 0.1), (0.7, 1001, 0.1), (0.7, 5, -0.1), (0.7, 5, nan), (0.7, 5, inf)],
)
def test_impossible_numbers_are_refused(alpha: float, draft_tokens: int, overhead: float) -> None:
    """70 in place of .7 would promise a speed-up of 319."""
    with pytest.raises(BadInputError):
        lesson(alpha=alpha, draft_tokens=draft_tokens, overhead=overhead)


@pytest.mark.parametrize("speedup", [0.0, -1.0, nan, inf])
def test_a_speedup_that_is_none_is_refused(speedup: float) -> None:
    """A negative α would be the answer."""
    with pytest.raises(BadInputError, match="speed-up"):
        alpha_for(speedup, draft_tokens=3, overhead=0.1)
