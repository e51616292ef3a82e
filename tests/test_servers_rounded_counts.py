"""Counts are rebuilt from what a log prints rounded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.servers.rounded_counts import Between, Printed, Rebuilt, rebuilt


def printed(accepted: int, drafted: int, *, length: float | None, rates: tuple[float, ...] | None, longest: int | None) -> Printed:
    """One line's figures."""
    return Printed(accepted_tokens=accepted, drafted_tokens=drafted, length=length, rates=rates, most_draft_tokens=longest)


def exactly(value: int) -> Between:
    """A number without doubt."""
    return Between(value=value, low=value, high=value)


def test_few_drafts_are_rebuilt_exactly() -> None:
    """Whoever reads a real line of 65 drafts: 0.600, 0.385, 0.215, 0.108 and 0.062 of 65 are 39, 25, 14, 7 and 4, 89 in all."""
    line = printed(89, 975, length=2.37, rates=(0.6, 0.385, 0.215, 0.108, 0.062) + 10 * (0.0,), longest=15)
    assert rebuilt(line, full_drafts=False, counted_drafts=None) == Rebuilt(
        drafts=exactly(65), positions=(39, 25, 14, 7, 4, *10 * (0,)), positions_certain=True
    )


def test_a_method_that_drafts_every_step_has_as_many_drafts_as_full_ones_fit() -> None:
    """Whoever reads a busy interval: 17,580 / 2 drafts, and positions that add up to what was accepted, right to three digits."""
    line = printed(3614, 17580, length=1.41, rates=(0.335, 0.076), longest=2)
    found = rebuilt(line, full_drafts=True, counted_drafts=None)
    assert found is not None
    assert found.drafts == exactly(8790)
    assert found.positions is not None
    assert not found.positions_certain
    assert sum(found.positions) == 3614
    assert found.positions == (2946, 668)


def test_a_lookup_may_draft_less_than_k() -> None:
    """Whoever uses n-gram drafts: full drafts are taken only where the printed length allows them; else the length says how many."""
    loose = rebuilt(printed(3614, 17580, length=1.41, rates=None, longest=2), full_drafts=False, counted_drafts=None)
    assert loose == Rebuilt(drafts=Between(value=8790, low=8790, high=8923), positions=None, positions_certain=False)
    short = rebuilt(printed(100, 300, length=1.5, rates=None, longest=5), full_drafts=True, counted_drafts=None)
    assert short == Rebuilt(drafts=Between(value=200, low=199, high=202), positions=None, positions_certain=False)


def test_nothing_accepted_leaves_the_drafts_between_full_ones_and_single_tokens() -> None:
    """Whoever has a broken draft: 1500 tokens are 300 drafts of 5 or up to 1500 of 1, and no position was accepted either way."""
    found = rebuilt(printed(0, 1500, length=1.0, rates=5 * (0.0,), longest=5), full_drafts=False, counted_drafts=None)
    assert found == Rebuilt(drafts=Between(value=300, low=300, high=1500), positions=5 * (0,), positions_certain=True)


@pytest.mark.parametrize(("accepted", "length"), [(66, None), (0, 1.0)])
def test_without_ratios_and_k_drafts_cannot_be_told(accepted: int, length: float | None) -> None:
    """Whoever reads vLLM 0.8.3: accepted and drafted tokens alone do not say in how many steps."""
    line = printed(accepted, 66, length=length, rates=None, longest=None)
    assert rebuilt(line, full_drafts=False, counted_drafts=None) is None
    assert rebuilt(line, full_drafts=False, counted_drafts=100) is None
    assert rebuilt(line, full_drafts=False, counted_drafts=22) == Rebuilt(drafts=exactly(22), positions=None, positions_certain=False)


def test_drafts_that_are_counted_elsewhere_are_taken_where_they_are_possible() -> None:
    """Whoever has llama.cpp's totals beside its rounded length: the count wins, an impossible one does not."""
    line = printed(311, 399, length=2.55, rates=None, longest=None)
    assert rebuilt(line, full_drafts=False, counted_drafts=201) == Rebuilt(drafts=exactly(201), positions=None, positions_certain=False)
    found = rebuilt(line, full_drafts=False, counted_drafts=300)
    assert found is not None
    assert found.drafts == Between(value=201, low=200, high=201)
    assert found.drafts + exactly(10) == Between(value=211, low=210, high=211)
    assert not found.drafts.is_exact


@pytest.mark.parametrize(
    "line",
    [
        printed(10, 9, length=None, rates=None, longest=3),
        printed(50, 100, length=1.1, rates=None, longest=2),
        printed(50, 100, length=0.5, rates=None, longest=2),
        printed(50, 100, length=0.995, rates=None, longest=2),
        printed(10, 30, length=2.0, rates=(0.777, 0.223), longest=2),
    ],
)
def test_a_line_that_no_counts_give_is_refused(line: Printed) -> None:
    """Whoever relies on the figures: a damaged or invented line is no evidence."""
    with pytest.raises(BadInputError, match=r"contradict|10 accepted of 9"):
        rebuilt(line, full_drafts=False, counted_drafts=None)


def test_rates_that_rise_are_no_survival() -> None:
    """Whoever reads positions: acceptance of a position includes the one before, so a rise means another meaning; it is left out."""
    found = rebuilt(printed(1000, 4000, length=1.5, rates=(0.2, 0.3), longest=2), full_drafts=True, counted_drafts=None)
    assert found is not None
    assert found.positions is None
    far = rebuilt(printed(1000, 4000, length=1.5, rates=None, longest=2), full_drafts=True, counted_drafts=None)
    assert far is not None
    assert far.positions is None


def test_positions_that_add_up_to_something_else_are_left_out() -> None:
    """Whoever reads rates of one in a thousand: three positions with one token each are not the two that were accepted."""
    found = rebuilt(printed(2, 3000, length=None, rates=3 * (0.001,), longest=3), full_drafts=True, counted_drafts=None)
    assert found == Rebuilt(drafts=exactly(1000), positions=None, positions_certain=False)


@settings(max_examples=80)
@given(
    drafts=st.lists(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1, max_size=60),
    repeated=st.sampled_from([1, 7, 40]),
    without=st.sampled_from(["nothing", "length", "rates"]),
)
def test_what_was_drafted_is_always_among_what_is_possible(drafts: list[tuple[int, int]], repeated: int, without: str) -> None:
    """Whoever trusts the ends: the true counts lie within them, and what is said to be certain is the truth."""
    drafted, accepted = sum(n for n, _ in drafts) * repeated, sum(a for _, a in drafts) * repeated
    count, longest = len(drafts) * repeated, 6
    positions = tuple(sum(a > i for _, a in drafts) * repeated for i in range(longest))
    length = None if without == "length" else float(f"{1 + accepted / count:.2f}")
    rates = None if without == "rates" else tuple(float(f"{each / count:.3f}") for each in positions)
    found = rebuilt(printed(accepted, drafted, length=length, rates=rates, longest=longest), full_drafts=False, counted_drafts=None)
    assert found is not None
    assert found.drafts.low <= count <= found.drafts.high
    assert found.drafts.low <= found.drafts.value <= found.drafts.high
    if found.positions is not None:
        assert sum(found.positions) == accepted
    if found.positions_certain:
        assert found.positions == positions
