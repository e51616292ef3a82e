"""Mixed traffic from its segments: the worked example that everybody gets wrong, then that blending is pooling."""

import json
from math import inf, isclose, nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.blend import blend_by_drafted_tokens, blend_by_generated_tokens
from paceline.speculation.counts import AcceptanceCounts
from tests.strategies import chain_steps, counts_of_steps, draft_lengths

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_vectors.json").read_text(encoding="utf-8"))["blend"]
CHAT = Acceptance.from_alpha(0.7, draft_tokens=5)
CODE = Acceptance.from_alpha(0.4, draft_tokens=5)


def test_seventy_percent_chat_and_thirty_percent_code_blend_to_583_not_61() -> None:
    """A rollout is sized for 4.05 tokens per step where 3.91 come."""
    blended = blend_by_generated_tokens({"chat": CHAT, "code": CODE}, {"chat": 0.7, "code": 0.3})
    assert round(blended.alpha, 3) == 0.583
    assert round(blended.tokens_per_step, 3) == 3.913
    assert isclose(blended.alpha, GOLDEN["alpha_blend"], abs_tol=1e-9)
    assert isclose(blended.tokens_per_step, GOLDEN["E_blend"], abs_tol=1e-9)
    assert not isclose(blended.alpha, GOLDEN["wrong_request_mean_alpha"], abs_tol=0.02)
    assert not isclose(blended.tokens_per_step, GOLDEN["wrong_E"], abs_tol=0.1)


def test_the_same_mix_by_drafted_tokens() -> None:
    """The two ways to blend disagree about one mix."""
    steps = dict(zip(("chat", "code"), GOLDEN["step_shares"], strict=True))
    assert isclose(blend_by_drafted_tokens({"chat": 0.7, "code": 0.4}, steps), GOLDEN["alpha_blend"], abs_tol=1e-9)


def test_a_blend_by_drafted_tokens_by_hand() -> None:
    """Weights are ignored or squared."""
    assert isclose(blend_by_drafted_tokens({"a": 0.5, "b": 0.25}, {"a": 100, "b": 300}), (50 + 75) / 400)


def test_a_blend_with_undrafted_steps_by_hand() -> None:
    """A segment whose lookups rarely hit weighs on survival as if it drafted in every step."""
    # chat: E = 2, coverage 1; code: E = 1 + .5·1 = 1.5, coverage .5. Shares .5 and .5 give steps .25 and 1/3, drafts .25 and 1/6.
    chat, code = Acceptance(survival=(0.6, 0.4), coverage=1.0), Acceptance(survival=(1.0, 0.0), coverage=0.5)
    blended = blend_by_generated_tokens({"chat": chat, "code": code}, {"chat": 1, "code": 1})
    assert np.allclose(blended.survival, (0.76, 0.24), atol=1e-12)
    assert isclose(blended.coverage, 5 / 7)
    assert isclose(blended.tokens_per_step, 12 / 7)


def test_segments_that_never_draft_blend_to_plain_decoding() -> None:
    """Division by zero drafts."""
    silent = Acceptance(survival=(0.9, 0.5), coverage=0.0)
    assert blend_by_generated_tokens({"a": silent, "b": silent}, {"a": 1, "b": 2}) == Acceptance(survival=(0.0, 0.0), coverage=0.0)


def test_segments_of_different_draft_lengths_are_refused() -> None:
    """Positions that one segment does not have are taken for refused."""
    with pytest.raises(BadInputError, match=r"draft lengths \[3, 5\] cannot be blended; bring them to one length first"):
        blend_by_generated_tokens({"chat": CHAT, "code": CODE.at(3)}, {"chat": 0.7, "code": 0.3})


@pytest.mark.parametrize("weights", [{"chat": 1.0}, {"chat": 1.0, "code": 1.0, "sql": 1.0}, {"chat": 1.0, "Code": 1.0}])
def test_weights_and_segments_have_the_same_names(weights: dict[str, float]) -> None:
    """A misspelt segment drops out of the blend unseen."""
    with pytest.raises(BadInputError, match="weights are given for"):
        blend_by_generated_tokens({"chat": CHAT, "code": CODE}, weights)
    with pytest.raises(BadInputError, match="weights are given for"):
        blend_by_drafted_tokens({"chat": 0.7, "code": 0.4}, weights)


@pytest.mark.parametrize("weight", [-1.0, nan, inf])
def test_weights_are_finite_and_from_zero_on(weight: float) -> None:
    """A negative share gives an acceptance rate above every segment's."""
    with pytest.raises(BadInputError, match="are not all numbers from 0 on"):
        blend_by_drafted_tokens({"chat": 0.7, "code": 0.4}, {"chat": 1.0, "code": weight})


@pytest.mark.parametrize("alpha", [-0.1, 40.0, nan])
def test_blended_rates_are_fractions(alpha: float) -> None:
    """NaN or percent of one segment becomes the rate of all traffic."""
    with pytest.raises(BadInputError, match="give fractions, not percent"):
        blend_by_drafted_tokens({"chat": 0.7, "code": alpha}, {"chat": 1.0, "code": 1.0})


def test_no_weight_at_all_is_no_evidence() -> None:
    """The acceptance rate of no traffic is 0."""
    with pytest.raises(NoEvidenceError, match="nothing to blend"):
        blend_by_drafted_tokens({"chat": 0.7}, {"chat": 0})
    with pytest.raises(NoEvidenceError, match="nothing to blend"):
        blend_by_generated_tokens({}, {})


@st.composite
def segments(draw: st.DrawFn) -> dict[str, AcceptanceCounts]:
    """Counts of one to four unequal segments at one draft length, undrafted steps among them."""
    draft_tokens = draw(draft_lengths)
    found = {}
    for name in ("chat", "code", "extraction", "summary")[: draw(st.integers(1, 4))]:
        steps = [(draft_tokens, draft_tokens // 2), *draw(chain_steps(draft_tokens=draft_tokens))]
        found[name] = counts_of_steps(steps * draw(st.integers(1, 50)), draft_tokens=draft_tokens)
    return found


@settings(max_examples=60)
@given(segments())
def test_blending_by_drafted_tokens_is_pooling_the_counts(found: dict[str, AcceptanceCounts]) -> None:
    """The blended α in the report is not the α of the traffic."""
    pooled = sum(found.values(), start=AcceptanceCounts.none())
    alphas = {name: each.alpha for name, each in found.items()}
    drafted = {name: float(each.drafted_tokens) for name, each in found.items()}
    assert isclose(blend_by_drafted_tokens(alphas, drafted), pooled.alpha, abs_tol=1e-12)


@settings(max_examples=60)
@given(segments())
def test_blending_by_generated_tokens_is_pooling_the_counts(found: dict[str, AcceptanceCounts]) -> None:
    """A forecast for mixed traffic is not the one for the traffic that was measured."""
    pooled = sum(found.values(), start=AcceptanceCounts.none())
    draft_tokens = len(pooled.survival)
    stated = {name: Acceptance.from_counts(each, draft_tokens=draft_tokens) for name, each in found.items()}
    generated = {name: float((each.steps or 0) + each.accepted_tokens) for name, each in found.items()}
    blended = blend_by_generated_tokens(stated, generated)
    assert np.allclose(blended.survival, pooled.survival, rtol=0, atol=1e-12)
    assert isclose(blended.coverage, pooled.coverage, abs_tol=1e-12)
    assert isclose(blended.tokens_per_step, pooled.tokens_per_step, abs_tol=1e-12)
    assert isclose(blended.alpha, pooled.alpha, abs_tol=1e-12)
    harmonic = sum(generated.values()) / sum(weight / stated[name].tokens_per_step for name, weight in generated.items())
    assert isclose(blended.tokens_per_step, harmonic, abs_tol=1e-12)


@given(st.dictionaries(st.sampled_from("abcd"), st.tuples(st.floats(0, 1), st.floats(0.001, 1e6)), min_size=1))
def test_a_blended_rate_lies_between_the_segments(drawn: dict[str, tuple[float, float]]) -> None:
    """Rounding lifts an acceptance rate past 1, and the next record refuses it."""
    alphas, weights = {name: alpha for name, (alpha, _) in drawn.items()}, {name: weight for name, (_, weight) in drawn.items()}
    blended = blend_by_drafted_tokens(alphas, weights)
    assert min(alphas.values()) - 1e-15 <= blended <= min(1.0, max(alphas.values()) + 1e-15)
