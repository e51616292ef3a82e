"""Acceptance at longer drafts than were measured: the model, its shared parameters, its range."""

import csv
import json
from dataclasses import replace
from math import exp, inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.forecast.acceptance_fit import Predicted, fit_tail, leave_one_out
from paceline.forecast.acceptance_model import (
    Persistence,
    RangedAcceptance,
    Tail,
    blended,
    exactly,
    extended,
    extrapolated,
    measured,
    packaged_tail,
    scaled,
    survival_tail,
)
from paceline.forecast.profiles import profile
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method
from paceline.verdict import Estimate
from tests.strategies import acceptances, draft_lengths

DATA = Path(__file__).parent / "data"
FALLS_AGAIN = "dsv4-pro-0813-dspark"


def published_curves() -> dict[str, dict[int, float]]:
    """Acceptance length by K, by server configuration."""
    curves: dict[str, dict[int, float]] = {}
    with (DATA / "al_curves.csv").open(encoding="utf-8", newline="") as source:
        for row in csv.DictReader(source):
            curves.setdefault(row["file"], {})[int(row["K"])] = float(row["AL"])
    return curves


CURVES = published_curves()


@pytest.fixture(scope="module")
def scored() -> tuple[Predicted, ...]:
    """Every published curve, predicted by the others' parameters."""
    return leave_one_out(CURVES)


def test_curves_that_were_left_out_are_predicted(scored: tuple[Predicted, ...]) -> None:
    """A best K is chosen from lengths nobody measured: errors beyond these choose a worse one. Measured when written: 3.6, 9.4, 16.2 %."""
    errors = {(each.curve, each.draft_tokens): abs(each.relative_error) for each in scored}
    assert len(errors) == 35
    assert sum(errors.values()) / len(errors) <= 0.05
    assert max(error for (curve, _), error in errors.items() if curve != FALLS_AGAIN) <= 0.12
    assert max(errors.values()) <= 0.18


def test_the_range_holds_a_curve_that_falls_again_and_most_others(scored: tuple[Predicted, ...]) -> None:
    """A range that misses what was measured lets a gate decide with false certainty."""
    assert all(each.covered for each in scored if each.curve == FALLS_AGAIN)
    assert sum(each.covered for each in scored) / len(scored) >= 0.9


def test_the_packaged_parameters_are_the_fitted_ones() -> None:
    """Parameters that nobody can fit again are opinions."""
    fitted, shipped = fit_tail(list(CURVES.values())), packaged_tail()
    assert shipped.curvature == pytest.approx(fitted.curvature)
    assert shipped.most_gain == pytest.approx(fitted.most_gain, abs=0.02)
    assert shipped.least_gain == fitted.least_gain


@pytest.mark.parametrize(("segment", "K", "measured"), [("chat", 7, 3.856), ("code", 7, 4.91), ("math", 7, 2.973), ("finance", 7, 2.103)])
def test_other_heads_are_predicted_from_one_length(segment: str, K: int, measured: float) -> None:
    """SpecBundle's lengths were fitted to nothing: from K = 3 alone K = 7 comes within 5 %, where independence misses by up to 9."""
    at_three = profile("eagle3").segment(segment).acceptance.at(3).acceptance_length
    stated = Acceptance.from_acceptance_length(at_three, draft_tokens=3)
    found = extrapolated(stated, draft_tokens=K, method=Method.EAGLE3)
    assert found.value.acceptance_length == pytest.approx(measured, rel=0.05)
    assert found.low.acceptance_length <= measured <= 1.02 * found.high.acceptance_length  # finance lies 1.5 % above its range


def test_a_tail_by_hand() -> None:
    """Without curvature a geometric survival goes on as it is; with curvature c the exact parabola does."""
    assert survival_tail((0.5, 0.25), draft_tokens=4, curvature=0.0) == pytest.approx((0.125, 0.0625))
    parabola = [exp(-0.3 * i - 0.02 * i * i) for i in range(1, 7)]
    assert survival_tail(parabola[:3], draft_tokens=6, curvature=-0.02) == pytest.approx(parabola[3:])
    assert survival_tail((0.6,), draft_tokens=2, curvature=-0.02) == pytest.approx((0.6 * 0.6 * exp(-0.04),))
    assert survival_tail((0.5, 0.0), draft_tokens=4, curvature=-0.02) == (0.0, 0.0)


def test_a_longer_draft_is_labelled_and_ranged_and_a_shorter_one_exact() -> None:
    """A guess that looks like a measurement is taken for one."""
    stated = Acceptance(survival=(0.8, 0.6, 0.45), coverage=1.0)
    longer = extrapolated(stated, draft_tokens=5, method=Method.EAGLE3)
    assert longer.label == "extrapolated beyond K = 3"
    assert longer.low.survival == (0.8, 0.6, 0.45, 0.0, 0.0)
    assert longer.value.survival[:3] == stated.survival
    tokens = longer.tokens_per_step
    assert tokens.low == pytest.approx(2.85)
    assert tokens.high is not None
    assert 2.85 < tokens.value < tokens.high
    shorter = extrapolated(stated, draft_tokens=2, method=Method.EAGLE3)
    assert shorter == exactly(Acceptance(survival=(0.8, 0.6), coverage=1.0))


def test_a_lookup_goes_on_as_it_matched() -> None:
    """Editing traces: .375 match, then .915 and .924 go on. A curve from the origin would lose the run of matches."""
    stated = Acceptance(survival=(0.375, 0.343, 0.317), coverage=0.4)
    found = extrapolated(stated, draft_tokens=4, method=Method.NGRAM)
    assert found.value.survival[3] == pytest.approx(0.317 * 0.317 / 0.343)
    assert found.low.survival[3] == 0
    assert found.high.survival[3] == 0.317
    assert found.value.coverage == 0.4


@given(stated=acceptances(), draft_tokens=draft_lengths, method=st.sampled_from(list(Method)))
def test_extrapolated_survival_never_rises_and_lies_in_its_range(stated: Acceptance, draft_tokens: int, method: Method) -> None:
    """Survival that rises is no survival; the records refuse it, and a range without its value."""
    found = extrapolated(stated, draft_tokens=draft_tokens + 4, method=method)
    assert found.value.draft_tokens == draft_tokens + 4
    kept = min(stated.draft_tokens, draft_tokens + 4)
    assert found.value.survival[:kept] == stated.survival[:kept]
    assert found.tokens_per_step.value == found.value.tokens_per_step


@given(stated=acceptances(), kept=st.floats(0, 1))
def test_scaling_keeps_the_range_around_its_value(stated: Acceptance, kept: float) -> None:
    """Two shifts one after the other must leave an estimate, not an error."""
    found = scaled(exactly(stated), kept=kept, least_kept=kept / 2, most_kept=1.0, label="half")
    again = scaled(found, kept=kept, least_kept=kept, most_kept=kept, label="again")
    assert again.label == "half; again"
    assert again.value.tokens_per_step <= found.value.tokens_per_step <= stated.tokens_per_step
    assert found.high.survival == stated.survival


def test_impossible_parameters_are_refused() -> None:
    """Survival that bends up, a range beside its value: each would pass as a forecast."""
    with pytest.raises(BadInputError, match=r"curvature 0\.1 is not a number up to 0"):
        Tail(curvature=0.1, least_gain=0.0, most_gain=1.0)
    with pytest.raises(BadInputError, match=r"gains from 0\.0 to 0\.9 do not hold 1"):
        Tail(curvature=-0.1, least_gain=0.0, most_gain=0.9)
    half, most = (Acceptance(survival=(s,), coverage=1.0) for s in (0.5, 0.9))
    with pytest.raises(BadInputError, match="does not hold"):
        RangedAcceptance(value=most, low=half, high=half, label="", confidence=0.8, n=0)
    with pytest.raises(BadInputError, match="does not hold"):
        RangedAcceptance(value=half, low=half, high=half.at(2), label="", confidence=0.8, n=0)
    with pytest.raises(BadInputError, match="do not rise between 0 and 1"):
        scaled(exactly(half), kept=0.5, least_kept=0.6, most_kept=1.0, label="")
    with pytest.raises(BadInputError, match="draft length 0 is not a whole number"):
        extrapolated(half, draft_tokens=0, method=Method.EAGLE3)


@pytest.mark.parametrize(
    ("within", "spread", "burst", "message"),
    [
        (1.0, 0.5, None, r"within a request 1\.0"),
        (nan, 0.5, None, "within"),
        (0.2, -1.0, None, "spread"),
        (0.2, inf, None, "spread"),
        (0.2, 0.5, 1.0, r"burst 1\.0"),
    ],
)
def test_impossible_persistence_is_refused(within: float, spread: float, burst: float | None, message: str) -> None:
    """A correlation of 1 never mixes: every request would be its own first step."""
    Persistence(within_request=0.2, between_request_spread=0.5, burst=None)
    with pytest.raises(BadInputError, match=message):
        Persistence(within_request=within, between_request_spread=spread, burst=burst)


def test_a_fit_needs_curves_and_survives_one_that_stops() -> None:
    """A head that accepts nothing at its last length leaves nothing to divide by."""
    with pytest.raises(NoEvidenceError, match="no acceptance curve"):
        fit_tail([])
    with pytest.raises(NoEvidenceError, match="no acceptance curve"):
        leave_one_out({"only": CURVES[FALLS_AGAIN]})
    stops = {1: 1.5, 2: 1.6, 3: 1.6, 4: 1.6}
    assert fit_tail([stops]).most_gain == 1.0


def test_the_published_survival_tables_stay_close() -> None:
    """One run's own tail is not another K: these tables are the hardest case, and 15 % is what must be said of it."""
    tables = json.loads((DATA / "golden_vectors.json").read_text(encoding="utf-8"))["per_position_survival"]
    for each in tables:
        whole = Acceptance(survival=tuple(each["pos"]), coverage=1.0)
        found = extrapolated(whole.at(min(3, whole.draft_tokens)), draft_tokens=whole.draft_tokens, method=Method.MTP)
        assert found.value.acceptance_length == pytest.approx(whole.acceptance_length, rel=0.15)
        assert found.low.acceptance_length <= whole.acceptance_length + 1e-9


def share(value: float, low: float | None, high: float | None, *, n: int = 30) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.95, n=n)


KNOWN = Acceptance(survival=(0.6, 0.5), coverage=0.5)
ENDS = (share(0.6, 0.4, 0.7), share(0.5, 0.45, 0.75, n=20))


def test_measured_acceptance_reaches_from_all_lower_ends_to_all_upper_ones() -> None:
    """Survival never rises: of ends that cross, the wider one is taken. By hand: .4 and .4, .75 and .75; E from 1.32 to 1.9."""
    found = measured(KNOWN, survival=ENDS, coverage=share(0.5, 0.4, 0.6))
    assert (found.low, found.high) == (Acceptance((0.4, 0.4), 0.4), Acceptance((0.75, 0.75), 0.6))
    tokens = found.tokens_per_step
    assert (tokens.low, tokens.value, tokens.high) == pytest.approx((1.32, 1.55, 1.9))
    assert (tokens.confidence, tokens.n) == (0.95, 20)
    assert not found.is_exact
    drafts_always = measured(replace(KNOWN, coverage=1.0), survival=ENDS, coverage=None)
    assert (drafts_always.low.coverage, drafts_always.high.coverage) == (1.0, 1.0)
    for few in ((share(0.6, None, 0.7), ENDS[1]), ()):
        assert measured(KNOWN, survival=few, coverage=None) == exactly(KNOWN)


def test_a_measured_range_goes_on_beyond_what_was_measured() -> None:
    """Interval and guess together: never narrower than either, and no surer than the guess."""
    known = measured(replace(KNOWN, coverage=1.0), survival=ENDS, coverage=None)
    same = extended(known, draft_tokens=2, method=Method.EAGLE3)
    assert same == known
    shorter = extended(known, draft_tokens=1, method=Method.EAGLE3)
    assert (shorter.low.survival, shorter.high.survival, shorter.label) == ((0.4,), (0.75,), "")
    longer = extended(known, draft_tokens=4, method=Method.EAGLE3)
    guessed = extrapolated(known.value, draft_tokens=4, method=Method.EAGLE3)
    assert longer.value == guessed.value
    assert longer.low.survival == (0.4, 0.4, 0.0, 0.0)
    assert all(ours >= theirs for ours, theirs in zip(longer.high.survival, guessed.high.survival, strict=True))
    assert (longer.label, longer.confidence, longer.n) == ("extrapolated beyond K = 2", 0.8, 20)
    assert extended(exactly(KNOWN), draft_tokens=4, method=Method.EAGLE3).n == guessed.n


def test_a_blend_holds_the_ranges_of_its_segments() -> None:
    """By hand, at equal shares: E = 2 / (1/2.1 + 1/1.6); only what is in doubt says how surely."""
    doubtful = measured(replace(KNOWN, coverage=1.0), survival=ENDS, coverage=None)
    sure = exactly(Acceptance((0.4, 0.2), 1.0))
    found = blended({"a": doubtful, "b": sure}, {"a": 0.5, "b": 0.5})
    tokens = found.tokens_per_step
    assert (tokens.low, tokens.value, tokens.high) == pytest.approx(tuple(2 / (1 / each + 1 / 1.6) for each in (1.8, 2.1, 2.5)))
    assert (found.confidence, found.n, found.label) == (0.95, 20, "")
    assert blended({"b": sure}, {"b": 1.0}).is_exact
    longer = extended(doubtful, draft_tokens=3, method=Method.EAGLE3)
    told = blended(
        {"a": longer, "b": exactly(Acceptance((0.4, 0.2, 0.1), 1.0))},
        {"a": 0.5, "b": 0.5},
    )
    assert told.label == "extrapolated beyond K = 2"
