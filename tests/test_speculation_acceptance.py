"""Acceptance however it was stated: against published vectors, then that every way in leads to the same figures out."""

import json
from math import inf, isclose, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.speculation.acceptance import Acceptance, conditional_from_tokens, tokens_from_conditional
from paceline.speculation.counts import AcceptanceCounts
from tests.strategies import acceptance_counts, acceptances, draft_lengths, probabilities

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_vectors.json").read_text(encoding="utf-8"))


def test_one_survival_by_hand() -> None:
    """Every figure of a forecast is off."""
    drawn = Acceptance(survival=(0.8, 0.6, 0.4), coverage=0.5)
    assert drawn.draft_tokens == 3
    assert isclose(drawn.alpha, 0.6)
    assert isclose(drawn.acceptance_length, 2.8)
    assert isclose(drawn.tokens_per_step, 1.9)
    assert np.allclose(drawn.conditional, (0.8, 0.75, 2 / 3), atol=1e-12)


@pytest.mark.parametrize("case", GOLDEN["E_beta_K"], ids=lambda case: f"beta={case['beta']} K={case['K']}")
def test_tokens_from_conditional_acceptance_match_the_closed_form(case: dict[str, float]) -> None:
    """Leviathan's α is taken for the acceptance rate: 4.5 tokens per step are promised where 2.94 come."""
    length = int(case["K"])
    assert isclose(tokens_from_conditional(case["beta"], draft_tokens=length), case["E"], abs_tol=1e-9)
    stated = Acceptance.from_conditional(case["beta"], draft_tokens=length)
    assert isclose(stated.alpha, case["alpha_accepted_per_drafted"], abs_tol=1e-9)
    assert isclose(stated.tokens_per_step, case["E"], abs_tol=1e-9)


@pytest.mark.parametrize("case", GOLDEN["alpha_to_beta"], ids=lambda case: f"alpha={case['alpha']} K={case['K']}")
def test_an_acceptance_rate_gives_its_conditional_acceptance(case: dict[str, float]) -> None:
    """A simulation at the user's α accepts another share of the drafts."""
    stated = Acceptance.from_alpha(case["alpha"], draft_tokens=int(case["K"]))
    assert isclose(stated.conditional[0], case["beta"], abs_tol=1e-9)
    assert isclose(stated.tokens_per_step, case["E"], abs_tol=1e-9)


@pytest.mark.parametrize("case", GOLDEN["per_position_survival"], ids=lambda case: case["name"])
def test_published_survival_gives_the_published_figures(case: dict[str, Any]) -> None:
    """A forecast from a published table does not give the table's own acceptance length."""
    stated = Acceptance(survival=tuple(case["pos"]), coverage=1.0)
    assert isclose(stated.acceptance_length, case["AL_formula_1_plus_sum"], abs_tol=1e-9)
    assert isclose(stated.alpha, case["alpha"], abs_tol=1e-9)
    assert [round(each, 4) for each in stated.conditional] == case["cond"]
    assert isclose(stated.acceptance_length, case["AL"], abs_tol=0.051)  # what was printed; one source rounds to tenths


@pytest.mark.parametrize("case", GOLDEN["eagle1_chain_from_n_alpha"], ids=lambda case: case["model"])
def test_eagle_s_n_alpha_are_conditional_and_chain_into_survival(case: dict[str, Any]) -> None:
    """A paper's conditional column is read as survival and promises a token too many."""
    survival = tuple(float(each) for each in np.cumprod(case["n_alpha"]))
    stated = Acceptance(survival=survival, coverage=1.0)
    assert isclose(stated.acceptance_length, case["formula"], abs_tol=1e-9)
    assert np.allclose(stated.conditional, case["n_alpha"], atol=1e-9)


@pytest.mark.parametrize(
    ("survival", "coverage", "message"),
    [
        ((), 1.0, "survival has no positions"),
        ((0.5,), 1.5, "coverage = 1.5 is not a probability"),
        ((0.5,), nan, "coverage = nan is not a probability"),
        ((80.0,), 1.0, "survival at position 1 = 80.0 is not a probability"),
        ((0.5, -0.1), 1.0, "survival at position 2 = -0.1 is not a probability"),
        ((0.5, nan), 1.0, "survival at position 2 = nan is not a probability"),
        ((0.5, 0.6), 1.0, r"survival rises from 0\.5 to 0\.6 at position 2"),
        ((0.9, 0.5, 0.6), 1.0, "at position 3"),
    ],
)
def test_survival_that_no_draft_has_is_refused(survival: tuple[float, ...], coverage: float, message: str) -> None:
    """Conditional acceptance typed as survival, or percent typed as a fraction, gives a speed-up that cannot be."""
    with pytest.raises(BadInputError, match=message):
        Acceptance(survival=survival, coverage=coverage)


@pytest.mark.parametrize("value", [-0.1, 1.1, 70.0, nan, inf])
def test_a_stated_probability_is_a_fraction(value: float) -> None:
    """70 is taken for a probability."""
    with pytest.raises(BadInputError, match=r"acceptance rate .* give a fraction, not percent"):
        Acceptance.from_alpha(value, draft_tokens=3)
    with pytest.raises(BadInputError, match=r"conditional acceptance .* give a fraction, not percent"):
        Acceptance.from_conditional(value, draft_tokens=3)
    with pytest.raises(BadInputError, match="conditional acceptance"):
        tokens_from_conditional(value, draft_tokens=3)


@pytest.mark.parametrize("length", [0.9, 4.1, nan])
def test_a_stated_length_lies_between_one_and_k_plus_one(length: float) -> None:
    """An acceptance length without its bonus token, or of another K, is taken as it comes."""
    with pytest.raises(BadInputError, match=r"acceptance length .* is not between 1 and K \+ 1 = 4"):
        Acceptance.from_acceptance_length(length, draft_tokens=3)
    with pytest.raises(BadInputError, match=r"tokens per drafted step is not between 1 and K \+ 1 = 4"):
        conditional_from_tokens(length, draft_tokens=3)


@pytest.mark.parametrize("draft_tokens", [0, -1, 2.5, nan, True])
def test_a_draft_length_is_a_whole_number_from_one_on(draft_tokens: int) -> None:
    """A sweep from K = 0 divides by zero."""
    refused = pytest.raises(BadInputError, match=r"draft length .* is not a whole number from 1 on")
    with refused:
        Acceptance.from_alpha(0.5, draft_tokens=draft_tokens)
    with refused:
        Acceptance.from_conditional(0.5, draft_tokens=draft_tokens)
    with refused:
        Acceptance.from_acceptance_length(1.5, draft_tokens=draft_tokens)
    with refused:
        Acceptance(survival=(0.5,), coverage=1.0).at(draft_tokens)
    with refused:
        tokens_from_conditional(0.5, draft_tokens=draft_tokens)
    with refused:
        conditional_from_tokens(1.5, draft_tokens=draft_tokens)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_nothing_accepted_and_everything_accepted_are_exact(alpha: float) -> None:
    """Speculation that never hits is reported to accept 6e-61 of its drafts."""
    assert Acceptance.from_alpha(alpha, draft_tokens=4).survival == (alpha,) * 4


@given(probabilities, draft_lengths)
def test_an_acceptance_rate_comes_back(alpha: float, draft_tokens: int) -> None:
    """The α a user states is not the α that is forecast."""
    stated = Acceptance.from_alpha(alpha, draft_tokens=draft_tokens)
    assert isclose(stated.alpha, alpha, abs_tol=1e-12)
    assert isclose(stated.tokens_per_step, 1 + draft_tokens * alpha, abs_tol=1e-12)
    assert stated.draft_tokens == draft_tokens


@given(probabilities, draft_lengths)
def test_a_conditional_acceptance_comes_back(beta: float, draft_tokens: int) -> None:
    """Going through tokens per step and back loses the input."""
    tokens = tokens_from_conditional(beta, draft_tokens=draft_tokens)
    assert 1 <= tokens <= draft_tokens + 1
    assert isclose(conditional_from_tokens(tokens, draft_tokens=draft_tokens), beta, abs_tol=1e-12)
    again = Acceptance.from_alpha(Acceptance.from_conditional(beta, draft_tokens=draft_tokens).alpha, draft_tokens=draft_tokens)
    assert np.allclose(again.survival, Acceptance.from_conditional(beta, draft_tokens=draft_tokens).survival, atol=1e-12)


@given(probabilities, draft_lengths)
def test_an_acceptance_length_comes_back(share: float, draft_tokens: int) -> None:
    """A server's acceptance length, typed in, is printed as another one."""
    length = 1 + share * draft_tokens
    assert isclose(Acceptance.from_acceptance_length(length, draft_tokens=draft_tokens).acceptance_length, length, abs_tol=1e-12)


@given(acceptance_counts(complete=True), st.integers(0, 3))
def test_what_was_counted_comes_back_at_any_longer_length(counts: AcceptanceCounts, extra: int) -> None:
    """A measured run and the simulation calibrated by it disagree."""
    length = len(counts.accepted_per_position or ()) + extra
    if counts.drafts == 0:
        with pytest.raises(NoEvidenceError, match="no drafted steps"):
            Acceptance.from_counts(counts, draft_tokens=length)
        return
    stated = Acceptance.from_counts(counts, draft_tokens=length)
    assert stated.draft_tokens == length
    assert isclose(stated.acceptance_length, counts.acceptance_length, abs_tol=1e-9)
    assert isclose(stated.tokens_per_step, counts.tokens_per_step, abs_tol=1e-9)
    assert isclose(stated.coverage, counts.coverage)


def test_counts_at_more_positions_than_the_draft_length_are_refused() -> None:
    """A run at K = 3 is used as if it had been made at K = 2."""
    counts = AcceptanceCounts(steps=2, drafts=2, drafted_tokens=6, accepted_tokens=3, accepted_per_position=(1, 1, 1))
    with pytest.raises(BadInputError, match="measured at 3 positions, more than the draft length 2"):
        Acceptance.from_counts(counts, draft_tokens=2)


def test_counts_without_steps_or_positions_are_no_evidence() -> None:
    """Coverage or survival is invented where a source has totals only."""
    whole = AcceptanceCounts(steps=2, drafts=2, drafted_tokens=4, accepted_tokens=1, accepted_per_position=(1, 0))
    for missing in ({"steps": None}, {"accepted_per_position": None}):
        kept = {name: getattr(whole, name) for name in ("steps", "drafts", "drafted_tokens", "accepted_tokens", "accepted_per_position")}
        with pytest.raises(NoEvidenceError):
            Acceptance.from_counts(AcceptanceCounts(**{**kept, **missing}), draft_tokens=2)


def test_a_longer_draft_goes_on_with_the_last_conditional_acceptance() -> None:
    """The question what K = 5 would bring is answered as if the new positions were never or always accepted."""
    assert np.allclose(Acceptance(survival=(0.8, 0.4), coverage=0.5).at(4).survival, (0.8, 0.4, 0.2, 0.1), atol=1e-12)
    assert np.allclose(Acceptance(survival=(0.5,), coverage=1.0).at(3).survival, (0.5, 0.25, 0.125), atol=1e-12)
    assert Acceptance(survival=(0.5, 0.0), coverage=1.0).at(4).survival == (0.5, 0.0, 0.0, 0.0)
    assert Acceptance(survival=(0.0, 0.0), coverage=1.0).at(3).survival == (0.0, 0.0, 0.0)


@given(acceptances(), st.integers(1, 12), st.integers(1, 12))
def test_a_shorter_draft_is_exact_and_a_longer_one_keeps_what_was_known(stated: Acceptance, first: int, second: int) -> None:
    """Trying out lengths changes what was measured."""
    other = stated.at(first)
    kept = min(first, stated.draft_tokens)
    assert other.survival[:kept] == stated.survival[:kept]
    assert (other.draft_tokens, other.coverage) == (first, stated.coverage)
    if second <= first:
        assert other.at(second).survival == stated.at(second).survival


@given(acceptances())
def test_tokens_per_step_lie_between_one_and_k_plus_one(stated: Acceptance) -> None:
    """A speed-up above the number of tokens in a step."""
    assert 1 <= stated.tokens_per_step <= stated.acceptance_length <= stated.draft_tokens + 1
    assert isclose(stated.tokens_per_step, 1 + stated.coverage * (stated.acceptance_length - 1), abs_tol=1e-12)
    assert 0 <= stated.alpha <= 1
    assert all(0 <= each <= 1 for each in stated.conditional)
