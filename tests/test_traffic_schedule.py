"""Blocks: who gets which requests, in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.run import Arm
from paceline.traffic.schedule import blocks, pairs_that_fit

BOTH = (Arm.BASELINE, Arm.SPECULATIVE)


def test_arms_take_turns_so_that_a_drift_falls_on_both() -> None:
    """A machine that heats up over the test would be counted against the arm that always comes second."""
    order = [each.arm.value[0] for each in blocks(40, arms=BOTH, pairs=4, edge=2)]
    assert "".join(order) == "bssbbssb"


def test_both_blocks_of_a_pair_send_the_same_requests() -> None:
    """Pairing by request is lost where an arm answers others."""
    found = blocks(10, arms=BOTH, pairs=2, edge=1)
    assert [(each.number, each.pair, each.first, each.count, each.edge) for each in found] == [
        (0, 0, 0, 5, 1),
        (1, 0, 0, 5, 1),
        (2, 1, 5, 5, 1),
        (3, 1, 5, 5, 1),
    ]
    assert [each.name for each in found[:2]] == ["000-baseline", "001-speculative"]


@given(st.integers(1, 500), st.integers(1, 8), st.integers(0, 64))
def test_every_request_is_counted_once_in_each_arm(requests: int, pairs: int, edge: int) -> None:
    """A request that falls between two blocks, or is counted twice, shifts every percentile."""
    pairs = min(pairs, requests)
    found = blocks(requests, arms=BOTH, pairs=pairs, edge=edge)
    for arm in BOTH:
        counted = [i for each in found if each.arm is arm for i in range(each.first, each.first + each.count)]
        assert sorted(counted) == list(range(requests))


def test_one_server_has_its_blocks_alone() -> None:
    """On one GPU the arms run one after the other, in two commands."""
    assert [each.arm for each in blocks(6, arms=(Arm.SPECULATIVE,), pairs=1, edge=0)] == [Arm.SPECULATIVE]


def test_as_many_pairs_as_leave_edges_half_of_what_is_sent() -> None:
    """At 64 in flight, 200 requests in four pairs would be nearly all edge."""
    assert [pairs_that_fit(n, edge=e, most=4) for n, e in ((200, 64), (200, 8), (100, 8), (400, 64), (8, 0), (1, 0))] == [1, 4, 4, 2, 4, 1]
    assert pairs_that_fit(3, edge=0, most=4) == 2
    assert pairs_that_fit(200, edge=8, most=8) == 8


@pytest.mark.parametrize(("arms", "pairs"), [((), 1), (BOTH, 0), (BOTH, 11)])
def test_a_schedule_of_nothing_is_refused(arms: tuple[Arm, ...], pairs: int) -> None:
    """An empty test that reports no difference is believed."""
    with pytest.raises(BadInputError):
        blocks(10, arms=arms, pairs=pairs, edge=0)
