"""The metrics of a policy and how they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.decide.claims import METRICS, metric_named, parse_claim
from paceline.errors import BadInputError, UnknownNameError
from paceline.verdict import Claim


@given(st.sampled_from(sorted(METRICS)), st.floats(-10, 10).map(lambda x: float(f"{x:g}")), st.booleans(), st.sampled_from([None, "chat"]))
def test_a_claim_reads_back_as_it_is_written(metric: str, bound: float, at_most: bool, segment: str | None) -> None:
    """A policy file written from a verdict must mean the same policy."""
    claim = Claim(metric=metric, at_most=bound if at_most else None, at_least=None if at_most else bound, segment=segment)
    assert parse_claim(str(claim)) == claim


def test_an_unknown_metric_names_the_nearest() -> None:
    """A typo in a policy must not be a claim that never fails."""
    with pytest.raises(UnknownNameError, match=r"tpot_p99\.ratio"):
        parse_claim("tpot_p99.ration <= 1.05")


def test_alpha_is_held_against_the_break_even() -> None:
    """The claim that a fixed floor only pretends to be."""
    claim = parse_claim("alpha >= break_even + 0.05 [code]")
    assert claim == Claim(metric="alpha_above_break_even", at_most=None, at_least=0.05, segment="code")
    assert str(claim) == "alpha >= break_even + 0.05 [code]"
    assert parse_claim("alpha>=break_even") == parse_claim("alpha_above_break_even >= 0")
    assert str(parse_claim("alpha <= break_even - 0.1")) == "alpha <= break_even - 0.1"
    with pytest.raises(BadInputError, match="only alpha"):
        parse_claim("speedup >= break_even + 0.1")


@pytest.mark.parametrize("text", ["speedup = 1.05", "speedup >=", "speedup >= 1-2", "", "speedup >= 1 extra"])
def test_what_is_no_claim_is_refused(text: str) -> None:
    """Half a line must not become half a policy."""
    with pytest.raises(BadInputError):
        parse_claim(text)


def test_a_metric_knows_its_quantile() -> None:
    """The advice on how many requests a percentile needs hangs on it."""
    assert metric_named("tpot_p99.ratio").quantile == 0.99
    assert metric_named("tpot_mean.ratio").quantile is None
    assert metric_named("speedup").quantile is None
    assert "chunk_gap_mean.ratio" not in METRICS
