"""Acceptance at longer context than the draft knows, and at other temperatures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.forecast.acceptance_model import RangedAcceptance, exactly
from paceline.forecast.acceptance_shifts import at_temperature, beyond_draft_context
from paceline.speculation.acceptance import Acceptance
from tests.strategies import acceptances

MEASURED = {2: 2.295, 4: 2.04, 6: 1.863, 8: 1.687, 10: 1.4, 12: 1.289, 14: 1.161, 16: 1.09, 18: 1.092, 20: 1.084}
SLIDING = {8: 1.517, 20: 1.537}


def head(length: float) -> RangedAcceptance:
    """Acceptance of a head at K = 3."""
    return exactly(Acceptance.from_acceptance_length(length, draft_tokens=3))


@pytest.mark.parametrize("thousands", list(MEASURED))
def test_the_measured_head_decays_as_published(thousands: int) -> None:
    """vllm-project/speculators pull request 684, Qwen3-8B: 2.295 at 2k to 1.084 at 20k. A forecast without decay promises double."""
    found = beyond_draft_context(head(2.295), context_tokens=1000 * thousands, draft_context_tokens=2000)
    assert found.value.acceptance_length == pytest.approx(MEASURED[thousands], rel=0.05)
    assert found.low.acceptance_length <= MEASURED[thousands] * 1.01


def test_a_head_with_a_sliding_window_lies_in_the_range() -> None:
    """The same table: 1.584 at 2k, still 1.537 at 20k. Whoever has such a head must not be told that it is useless."""
    for thousands, measured in SLIDING.items():
        found = beyond_draft_context(head(1.584), context_tokens=1000 * thousands, draft_context_tokens=2000)
        assert found.low.acceptance_length <= measured <= found.high.acceptance_length


def test_nothing_moves_unless_there_is_cause() -> None:
    """Acceptance measured where it is used is not to be corrected."""
    given_acceptance = head(2.3)
    assert beyond_draft_context(given_acceptance, context_tokens=2048, draft_context_tokens=2048) is given_acceptance
    assert at_temperature(given_acceptance, temperature=0.0) is given_acceptance


def test_temperature_one_keeps_the_published_share() -> None:
    """EAGLE-3 on Llama-3.1-8B, MT-bench: 6.13 at T = 0, 4.24 would be .63 of the drafts: the least of 34 pairs is the range's low end."""
    found = at_temperature(head(2.0), temperature=1.0)
    assert found.value.acceptance_length == pytest.approx(1.8585)
    assert (found.low.acceptance_length, found.high.acceptance_length) == pytest.approx((1.632, 1.965))
    assert at_temperature(head(2.0), temperature=2.0).value.acceptance_length == pytest.approx(1 + 0.8585**2)
    assert found.label == "temperature 1 instead of 0: 86% of drafted tokens kept (63% to 96% published)"


@given(stated=acceptances(), temperatures=st.tuples(st.floats(0, 2), st.floats(0, 2)))
def test_heat_never_raises_acceptance_of_greedy_drafts(stated: Acceptance, temperatures: tuple[float, float]) -> None:
    """A forecast that gains from sampling sends users to temperatures where drafts fail."""
    cool, hot = (at_temperature(exactly(stated), temperature=each).value.tokens_per_step for each in sorted(temperatures))
    assert hot <= cool <= stated.tokens_per_step


@given(stated=acceptances(), contexts=st.tuples(st.integers(1, 200_000), st.integers(1, 200_000)))
def test_context_never_raises_acceptance(stated: Acceptance, contexts: tuple[int, int]) -> None:
    """The same of context; and both shifts stack."""
    short, long = (
        beyond_draft_context(exactly(stated), context_tokens=each, draft_context_tokens=2048).value.tokens_per_step
        for each in sorted(contexts)
    )
    assert long <= short <= stated.tokens_per_step
    both = at_temperature(beyond_draft_context(exactly(stated), context_tokens=4096, draft_context_tokens=2048), temperature=1)
    assert both.label.startswith("context 4,096 beyond the draft's 2,048: ")
    assert "; temperature 1" in both.label


def test_impossible_shifts_are_refused() -> None:
    """A negative temperature would raise acceptance above what was measured."""
    with pytest.raises(BadInputError, match=r"temperature -0\.5 is not a number from 0 on"):
        at_temperature(head(2.0), temperature=-0.5)
    with pytest.raises(BadInputError, match="token counts from 1 on"):
        beyond_draft_context(head(2.0), context_tokens=10, draft_context_tokens=0)
    with pytest.raises(BadInputError, match="token counts from 1 on"):
        beyond_draft_context(head(2.0), context_tokens=0, draft_context_tokens=10)
