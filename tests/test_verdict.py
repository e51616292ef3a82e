"""What may be said of a measurement: the three answers, and that less knowledge never makes a surer one."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.verdict import Claim, Decision, Estimate, Finding, Holds, Verdict, judge
from tests.strategies import claims, estimates

AT_MOST_ONE = Claim(metric="tpot_s.ratio", at_most=1.0, at_least=None, segment=None)
AT_LEAST_ONE = Claim(metric="speedup", at_most=None, at_least=1.0, segment="code")
ESTIMATE = Estimate(value=0.9, low=0.8, high=0.95, confidence=0.95, n=100)


def estimate(low: float | None, high: float | None) -> Estimate:
    """An estimate whose value lies between its ends, or on the one that is known."""
    known = [each for each in (low, high) if each is not None]
    return Estimate(value=sum(known) / len(known) if known else 1.0, low=low, high=high, confidence=0.95, n=100)


@pytest.mark.parametrize(
    ("low", "high", "below", "above"),
    [
        (0.8, 0.9, Holds.YES, Holds.NO),
        (0.8, 1.0, Holds.YES, Holds.CANNOT_TELL),
        (0.9, 1.1, Holds.CANNOT_TELL, Holds.CANNOT_TELL),
        (1.0, 1.2, Holds.CANNOT_TELL, Holds.YES),
        (1.1, 1.2, Holds.NO, Holds.YES),
        (None, 0.9, Holds.YES, Holds.NO),
        (None, 1.1, Holds.CANNOT_TELL, Holds.CANNOT_TELL),
        (0.9, None, Holds.CANNOT_TELL, Holds.CANNOT_TELL),
        (1.1, None, Holds.NO, Holds.YES),
        (None, None, Holds.CANNOT_TELL, Holds.CANNOT_TELL),
    ],
)
def test_a_claim_is_held_against_the_whole_interval(low: float | None, high: float | None, below: Holds, above: Holds) -> None:
    """A point estimate on the right side of the bound ships a rollout that half the data speaks against."""
    assert judge(AT_MOST_ONE, estimate(low, high)).holds is below
    assert judge(AT_LEAST_ONE, estimate(low, high)).holds is above


def test_a_finding_says_in_a_sentence_what_it_found() -> None:
    """A person reads a verdict and not why."""
    assert judge(AT_MOST_ONE, ESTIMATE).why == "tpot_s.ratio = 0.9 in [0.8, 0.95] is at most 1"
    assert judge(AT_LEAST_ONE, ESTIMATE).why == "speedup = 0.9 in [0.8, 0.95] is not at least 1"
    assert judge(AT_LEAST_ONE, replace(ESTIMATE, high=None)).why == "speedup = 0.9 in [0.8, unknown] may or may not be at least 1"


def test_a_claim_reads_as_a_policy_file_writes_it() -> None:
    """The report names a claim that nobody finds in the policy."""
    assert str(AT_MOST_ONE) == "tpot_s.ratio <= 1"
    assert str(AT_LEAST_ONE) == "speedup >= 1 [code]"


@given(claims(), estimates())
def test_yes_no_and_cannot_tell_exclude_one_another(claim: Claim, drawn: Estimate) -> None:
    """A claim and its opposite both hold."""
    finding = judge(claim, drawn)
    assert (finding.claim, finding.estimate) == (claim, drawn)
    opposite = replace(claim, at_most=claim.at_least, at_least=claim.at_most)
    if judge(opposite, drawn).holds is Holds.YES and finding.holds is Holds.YES:
        assert drawn.low == drawn.high == drawn.value  # only on the bound itself
    if finding.holds is Holds.NO:
        assert judge(opposite, drawn).holds is Holds.YES


@given(claims(), estimates(), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_wider_interval_never_makes_the_answer_surer(claim: Claim, drawn: Estimate, down: float, up: float) -> None:
    """Fewer requests turn "cannot tell" into "ship"."""
    narrow = judge(claim, drawn).holds
    wider = replace(
        drawn,
        low=None if drawn.low is None else drawn.low - down,
        high=None if drawn.high is None else drawn.high + up,
    )
    assert judge(claim, wider).holds in {narrow, Holds.CANNOT_TELL}
    assert judge(claim, replace(drawn, low=None)).holds in {narrow, Holds.CANNOT_TELL}
    assert judge(claim, replace(drawn, high=None)).holds in {narrow, Holds.CANNOT_TELL}


@pytest.mark.parametrize("field", ["value", "low", "high"])
@pytest.mark.parametrize("number", [nan, inf])
def test_an_estimate_is_made_of_finite_numbers(field: str, number: Any) -> None:
    """NaN satisfies no bound and breaks none, so a missing measurement looks like a close call."""
    with pytest.raises(BadInputError, match="finite numbers"):
        replace(ESTIMATE, **{field: number})


@pytest.mark.parametrize(("low", "high"), [(0.91, 0.95), (0.8, 0.89), (0.91, None), (None, 0.89)])
def test_an_interval_holds_its_value(low: float | None, high: float | None) -> None:
    """Swapped ends turn no into yes."""
    with pytest.raises(BadInputError, match=r"does not hold its value 0\.9"):
        replace(ESTIMATE, low=low, high=high)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, nan])
def test_confidence_is_a_fraction_between_zero_and_one(confidence: float) -> None:
    """95 is read as certainty."""
    with pytest.raises(BadInputError, match="is not between 0 and 1"):
        replace(ESTIMATE, confidence=confidence)


@pytest.mark.parametrize("n", [-1, 1.5, nan, True])
def test_n_is_a_count(n: int) -> None:
    """A figure is shown to rest on -1 requests."""
    with pytest.raises(BadInputError, match=r"n = .* is not a whole number from 0 on"):
        replace(ESTIMATE, n=n)


def test_n_may_come_out_of_an_array() -> None:
    """Statistics that count with numpy are refused."""
    assert replace(ESTIMATE, n=np.int64(0)).n == 0  # type: ignore[arg-type]  # numpy's integers are meant to pass


@pytest.mark.parametrize(("at_most", "at_least"), [(None, None), (1.0, 1.0), (nan, None), (None, inf)])
def test_a_claim_has_exactly_one_finite_bound(at_most: float | None, at_least: float | None) -> None:
    """A claim with a bound of NaN can never fail."""
    with pytest.raises(BadInputError, match="needs exactly one finite bound"):
        Claim(metric="speedup", at_most=at_most, at_least=at_least, segment=None)


@pytest.mark.parametrize(("metric", "segment"), [("", None), ("speedup", "")])
def test_a_claim_names_its_metric_and_its_segment(metric: str, segment: str | None) -> None:
    """An empty cell in a policy is read as a claim on all traffic."""
    with pytest.raises(BadInputError, match="names no metric or no segment"):
        Claim(metric=metric, at_most=1.0, at_least=None, segment=segment)


@pytest.mark.parametrize("holds", [Holds.YES, Holds.NO])
def test_without_an_estimate_only_cannot_tell_is_an_answer(holds: Holds) -> None:
    """A verdict rests on nothing."""
    with pytest.raises(BadInputError, match=r"claim tpot_s\.ratio <= 1 cannot be answered"):
        Finding(claim=AT_MOST_ONE, estimate=None, holds=holds, why="")
    assert Finding(claim=AT_MOST_ONE, estimate=None, holds=Holds.CANNOT_TELL, why="not measured").estimate is None


def verdict(*answers: Holds, segments: tuple[str, ...] = (), concurrency: int | None = 8) -> Verdict:
    """A verdict from findings with these answers."""
    findings = tuple(Finding(claim=AT_MOST_ONE, estimate=ESTIMATE, holds=each, why="") for each in answers)
    return Verdict(
        concurrency=concurrency,
        findings=findings,
        segments_to_ship=segments,
        break_even_alpha=None,
        break_even_tokens_per_step=None,
        alpha=None,
        tokens_per_step=None,
        requests_needed=None,
        routing=None,
        warnings=(),
    )


@pytest.mark.parametrize(
    ("answers", "segments", "decision"),
    [
        ((), (), Decision.CANNOT_TELL),
        ((), ("code",), Decision.CANNOT_TELL),
        ((Holds.YES, Holds.YES), (), Decision.SHIP),
        ((Holds.YES, Holds.CANNOT_TELL), (), Decision.CANNOT_TELL),
        ((Holds.YES, Holds.CANNOT_TELL), ("code",), Decision.CANNOT_TELL),
        ((Holds.YES, Holds.NO), (), Decision.KEEP),
        ((Holds.CANNOT_TELL, Holds.NO), (), Decision.KEEP),
        ((Holds.YES, Holds.NO), ("code",), Decision.SHIP_SEGMENTS),
    ],
)
def test_the_decision_follows_from_the_findings(answers: tuple[Holds, ...], segments: tuple[str, ...], decision: Decision) -> None:
    """Nothing measured ships, or one broken promise is outvoted."""
    assert verdict(*answers, segments=segments).decision is decision


@given(st.lists(st.sampled_from(Holds)))
def test_ship_needs_a_yes_to_everything_and_something_to_say_yes_to(answers: list[Holds]) -> None:
    """One unanswered claim does not stop a rollout."""
    assert (verdict(*answers).decision is Decision.SHIP) == (set(answers) == {Holds.YES})


@pytest.mark.parametrize("concurrency", [0, 1.5, True])
def test_a_verdict_s_concurrency_is_a_count(concurrency: int) -> None:
    """A verdict holds at a load that does not exist."""
    with pytest.raises(BadInputError, match="concurrency"):
        verdict(Holds.YES, concurrency=concurrency)
    assert verdict(Holds.YES, concurrency=None).concurrency is None


def test_an_estimate_without_an_interval_says_why() -> None:
    """`[unknown, unknown]` reads as a fault of ours; more requests are the remedy."""
    claim = Claim(metric="speedup", at_most=None, at_least=1.05, segment=None)
    bare = Estimate(value=1.2, low=None, high=None, confidence=0.95, n=3)
    assert judge(claim, bare).why.startswith("speedup = 1.2 (too few requests for an interval, or none told apart) may or may not be")
    half = replace(bare, low=1.0)
    assert "1.2 in [1, unknown]" in judge(claim, half).why
