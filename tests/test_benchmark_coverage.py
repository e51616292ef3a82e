"""The coverage benchmark, in small: what it shows at length must already be seen with few repetitions."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.interval_coverage import ALPHA, documented, drafted, false_keeps, false_ships, false_stops, main, sequential, table, trial

ROOT = Path(__file__).parent.parent
SMALL = 120


def test_the_truth_of_the_benchmark_is_the_truth() -> None:
    """A wrong truth would call right intervals wrong."""
    accepted, tried = drafted((100_000,), np.random.default_rng(1))
    assert accepted.sum() / tried.sum() == pytest.approx(ALPHA, abs=0.004)


@pytest.mark.parametrize("name", ["alpha", "speedup, pairs", "tpot P50"])
def test_intervals_hold_the_truth_nineteen_times_in_twenty(name: str) -> None:
    """120 repetitions at 100 requests, fixed seed; true coverage is about .95."""
    assert 0.91 <= trial(name, 100, repetitions=SMALL, seed=1)["covered"] <= 0.99


def test_a_p99_is_bounded_from_400_requests_on_and_not_below() -> None:
    """Percentiles of a bootstrap hold the P99 nine times in ten only."""
    order, resampled = (trial(name, 400, repetitions=120, seed=1) for name in ("tpot P99", "tpot P99, bootstrap"))
    assert order["covered"] >= 0.94
    assert order["upper_end_unknown"] == 0
    assert resampled["covered"] < 0.94
    assert trial("tpot P99", 300, repetitions=20, seed=1)["upper_end_unknown"] == 1


def test_tokens_are_no_trials() -> None:
    """Tokens of one request depend on each other: treated apart, an interval of α holds its truth one time in four."""
    assert trial("alpha, binomial", 400, repetitions=SMALL, seed=1)["covered"] < 0.5


def test_the_gate_does_not_ship_at_the_margin() -> None:
    """Four tries at each margin, true rate below 3 %, fixed seed; and it does ship what is clearly better."""
    found = {each["case"]: each["ships"] for each in false_ships(repetitions=4, seed=1)}
    assert found.pop("clearly better") == 1
    assert max(found.values()) == 0


def test_claims_that_are_true_together_do_not_keep_back_what_should_ship() -> None:
    """Six claims on their bounds, true rates about .04 together and .14 each by itself. 3 repetitions, fixed seed."""
    shared, alone = (each["wrong"] for each in false_keeps(repetitions=3, seed=2, n=120))
    assert shared < alone
    assert shared == 0


def test_looking_seven_times_does_not_decide_what_is_on_its_bound() -> None:
    """True rates about .02 together and .12 as if at one look. 4 repetitions, fixed seed."""
    together, one = (each["wrong"] for each in false_stops(repetitions=4, seed=1, n=160))
    assert together < one
    assert together == 0


@pytest.mark.parametrize(("what", "effect"), [("speedup", 0.08), ("alpha", 0.05)])
def test_a_sequential_test_stops_early_where_the_answer_is_clear(what: str, effect: float) -> None:
    """At 1.5 times the design effect within 60 % of the fixed design, at it within 90 %, without one hardly ever."""
    for times, most in ((1.5, 0.6), (-1.5, 0.6), (1.0, 0.9), (-1.0, 0.9)):
        found = sequential(what, times, effect=effect, repetitions=SMALL, seed=1)
        assert found["mean_requests_of_fixed"] <= most
        assert found["above" if times > 0 else "below"] >= 0.9
        assert found["most_requests_of_fixed"] <= 2
        assert found["ever_missed"] <= 0.08
    none = sequential(what, 0.0, effect=effect, repetitions=SMALL, seed=1)
    assert max(none["above"], none["below"]) <= 0.05


def test_the_documents_table_is_the_benchmarks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A table that nobody can make again is a claim."""
    copy = tmp_path / "statistics.md"
    copy.write_text((ROOT / "docs" / "concepts" / "statistics.md").read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["--repetitions", "1", "--json", "--write-docs", str(copy)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert table(found) in copy.read_text(encoding="utf-8")
    assert documented(copy.read_text(encoding="utf-8"), found) == copy.read_text(encoding="utf-8")
    assert {"coverage", "gate", "together", "sequential"} <= set(found)
