"""Counts and the ratios made of them: by hand, against published tables, then the laws of adding."""

import json
from dataclasses import replace
from itertools import pairwise
from math import isclose, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.speculation.counts import AcceptanceCounts, conditional_acceptance
from tests.strategies import acceptance_counts, chain_steps, counts_of_steps, draft_lengths

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_vectors.json").read_text(encoding="utf-8"))
COUNTS = AcceptanceCounts(steps=12, drafts=10, drafted_tokens=30, accepted_tokens=15, accepted_per_position=(8, 5, 2))


def test_every_ratio_of_one_set_of_counts_by_hand() -> None:
    """One of the five ratios called acceptance rate is printed under the name of another."""
    assert COUNTS.alpha == 0.5
    assert COUNTS.acceptance_length == 2.5
    assert COUNTS.coverage == 10 / 12
    assert COUNTS.tokens_per_step == 2.25
    assert COUNTS.survival == (0.8, 0.5, 0.2)
    assert COUNTS.conditional == (0.8, 0.625, 0.4)


@pytest.mark.parametrize("case", GOLDEN["per_position_survival"], ids=lambda case: case["name"])
def test_published_survival_gives_the_published_ratios(case: dict[str, Any]) -> None:
    """A server's own table and ours disagree about one measurement."""
    drafts = 10_000
    positions = tuple(round(share * drafts) for share in case["pos"])
    counts = AcceptanceCounts(
        steps=None,
        drafts=drafts,
        drafted_tokens=drafts * len(positions),
        accepted_tokens=sum(positions),
        accepted_per_position=positions,
    )
    assert isclose(counts.acceptance_length, case["AL_formula_1_plus_sum"], abs_tol=1e-9)
    assert isclose(counts.alpha, case["alpha"], abs_tol=1e-9)
    assert counts.survival == tuple(case["pos"])
    assert [round(each, 4) for each in counts.conditional] == case["cond"]


def test_the_published_totals_of_one_server_give_its_own_rate() -> None:
    """GLM-5.1's MTP recipe prints 21.33 % and we print something else."""
    case = next(each for each in GOLDEN["per_position_survival"] if "drafts" in each)
    counts = AcceptanceCounts(
        steps=None,
        drafts=case["drafts"],
        drafted_tokens=case["draft_tokens"],
        accepted_tokens=case["accepted"],
        accepted_per_position=None,
    )
    assert round(counts.alpha, 4) == case["acceptance_rate"]
    assert round(counts.acceptance_length, 2) == case["AL"]


@pytest.mark.parametrize("case", GOLDEN["sglang_metric"])
def test_sglang_s_rate_is_the_acceptance_rate_over_the_configured_width(case: dict[str, float]) -> None:
    """SGLang's rate is compared with vLLM's under one name although it stands for something else."""
    drafts, width = 100, int(case["gamma"])
    counts = AcceptanceCounts(
        steps=drafts,
        drafts=drafts,
        drafted_tokens=drafts * width,
        accepted_tokens=round((case["tau"] - 1) * drafts),
        accepted_per_position=None,
    )
    assert isclose(counts.acceptance_length, case["tau"], abs_tol=1e-9)
    assert isclose(counts.alpha, case["rate"], abs_tol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accepted_tokens": 31, "accepted_per_position": None}, "accepted tokens = 31 is not a whole number between 0 and drafted tokens"),
        ({"accepted_tokens": -1, "accepted_per_position": None}, "accepted tokens = -1"),
        ({"drafts": 31, "steps": None, "accepted_per_position": None}, "drafts = 31 is not .* drafted tokens = 30"),
        ({"drafts": 0, "accepted_per_position": None}, "30 drafted tokens in no draft"),
        ({"steps": 9}, "drafts = 10 is not .* steps = 9"),
        ({"accepted_per_position": (8, 5, 1)}, "adds up to 14, not to the 15 accepted"),
        ({"accepted_per_position": (5, 8, 2)}, "accepted at one position = 8"),
        ({"accepted_per_position": (11, 4)}, r"accepted at one position = 11 .* at the one before \(or drafts\) = 10"),
        ({"accepted_per_position": (8, 8, -1)}, "accepted at one position = -1"),
    ],
)
def test_counts_that_no_decoding_gives_are_refused(change: dict[str, Any], message: str) -> None:
    """A torn scrape, half old and half new, gives an acceptance rate above 1."""
    with pytest.raises(BadInputError, match=message):
        replace(COUNTS, **change)


@pytest.mark.parametrize("value", [1.5, 10.0, nan, True])
@pytest.mark.parametrize("field", ["steps", "drafts", "drafted_tokens", "accepted_tokens"])
def test_counts_are_whole_numbers(field: str, value: int) -> None:
    """A rate in the column of a count is pooled as if it were one."""
    with pytest.raises(BadInputError, match="is not a whole number between"):
        replace(COUNTS, accepted_per_position=None, **{field: value})


def test_positions_are_whole_numbers_too() -> None:
    """Shares instead of counts per position are pooled as if they were counts."""
    shares: Any = (0.8, 0.5)
    with pytest.raises(BadInputError, match=r"accepted at one position = 0\.8"):
        replace(COUNTS, accepted_per_position=shares)


def test_numpy_integers_are_counts() -> None:
    """A kernel that counts in an array has to convert every number."""
    positions = tuple(np.array([8, 5, 2]))
    counted = AcceptanceCounts(
        steps=np.int64(12),  # type: ignore[arg-type]  # numpy's integers are meant to pass
        drafts=np.int64(10),  # type: ignore[arg-type]
        drafted_tokens=np.int64(30),  # type: ignore[arg-type]
        accepted_tokens=np.int64(15),  # type: ignore[arg-type]
        accepted_per_position=positions,
    )
    assert counted == COUNTS
    assert counted + COUNTS == COUNTS + COUNTS


@pytest.mark.parametrize("ratio", ["alpha", "acceptance_length", "survival", "conditional"])
def test_a_ratio_of_no_drafts_does_not_exist(ratio: str) -> None:
    """A server without drafts is said to accept none of them."""
    with pytest.raises(NoEvidenceError, match="no drafted"):
        getattr(AcceptanceCounts.none(), ratio)


@pytest.mark.parametrize("ratio", ["coverage", "tokens_per_step"])
def test_a_ratio_per_step_needs_steps(ratio: str) -> None:
    """Drafted steps are taken for all steps, and tokens per step of an n-gram draft double."""
    with pytest.raises(NoEvidenceError, match="no steps"):
        getattr(AcceptanceCounts.none(), ratio)
    with pytest.raises(NoEvidenceError, match="steps were not counted by this source"):
        getattr(replace(COUNTS, steps=None), ratio)


@pytest.mark.parametrize("ratio", ["survival", "conditional"])
def test_a_ratio_per_position_needs_positions(ratio: str) -> None:
    """A survival is invented from a total."""
    with pytest.raises(NoEvidenceError, match="totals only"):
        getattr(replace(COUNTS, accepted_per_position=None), ratio)


def test_steps_without_drafts_emit_one_token_each() -> None:
    """A baseline that went through the same code emits nothing."""
    undrafted = AcceptanceCounts(steps=7, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=())
    assert (undrafted.tokens_per_step, undrafted.coverage) == (1.0, 0.0)


def test_conditional_acceptance_ends_at_the_last_position_ever_reached() -> None:
    """0 / 0 beyond it."""
    assert conditional_acceptance((0.5, 0.0, 0.0)) == (0.5, 0.0)
    assert conditional_acceptance((0.0,)) == (0.0,)


@given(acceptance_counts(), acceptance_counts(), acceptance_counts())
def test_adding_is_associative_and_commutative_with_a_neutral_element(
    a: AcceptanceCounts, b: AcceptanceCounts, c: AcceptanceCounts
) -> None:
    """The total depends on the order in which replicas answer."""
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + AcceptanceCounts.none() == a
    assert AcceptanceCounts.none() + a == a


def test_what_one_side_did_not_count_the_sum_does_not_know() -> None:
    """Steps of one replica are divided by the tokens of two."""
    total = COUNTS + replace(COUNTS, steps=None, accepted_per_position=None)
    assert (total.steps, total.accepted_per_position, total.drafts) == (None, None, 20)


@settings(max_examples=60)
@given(st.data(), draft_lengths)
def test_any_split_of_a_window_adds_up_to_the_window(data: st.DataObject, draft_tokens: int) -> None:
    """A dashboard over minutes and a report over the hour disagree."""
    steps = data.draw(chain_steps(draft_tokens=draft_tokens))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(steps)), max_size=4)))
    pieces = [steps[start:end] for start, end in pairwise([0, *cuts, len(steps)])]
    total = sum((counts_of_steps(piece, draft_tokens=draft_tokens) for piece in pieces), start=AcceptanceCounts.none())
    assert total == counts_of_steps(steps, draft_tokens=draft_tokens)


@given(acceptance_counts(complete=True))
def test_the_ratios_of_one_set_of_counts_agree(drawn: AcceptanceCounts) -> None:
    """τ, E, survival and α of one measurement contradict each other."""
    if drawn.drafts == 0:
        return
    survival = drawn.survival
    assert all(before >= after for before, after in pairwise((1.0, *survival)))
    assert isclose(sum(survival), drawn.acceptance_length - 1, abs_tol=1e-9)
    assert isclose(drawn.tokens_per_step, 1 + drawn.coverage * (drawn.acceptance_length - 1), abs_tol=1e-9)
    assert 0 <= drawn.alpha <= 1
    product = 1.0
    for conditional, share in zip(drawn.conditional, survival, strict=False):
        product *= conditional
        assert isclose(product, share, abs_tol=1e-9)


@settings(max_examples=60)
@given(st.data(), draft_lengths)
def test_with_full_drafts_the_length_is_one_plus_k_alpha_and_at_most_k_plus_one(data: st.DataObject, draft_tokens: int) -> None:
    """The textbook's E = 1 + K·α is held to be an approximation, or tokens appear from nowhere."""
    steps = [(draft_tokens, 0), *data.draw(chain_steps(draft_tokens=draft_tokens))]
    counts = counts_of_steps(steps, draft_tokens=draft_tokens)
    assert isclose(counts.acceptance_length, 1 + draft_tokens * counts.alpha)
    assert 1 <= counts.tokens_per_step <= counts.acceptance_length <= draft_tokens + 1
    assert isclose(counts.tokens_per_step * len(steps), sum(1 + accepted for _, accepted in steps))
