"""A replica's limits and how it drafts."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import BadInputError, UnknownNameError
from paceline.forecast.step_cost import StepCost
from paceline.simulate.replica import Drafting, Rejection, Replica, need_room
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation

REPLICA = Replica(kv_blocks=8, block_tokens=16, max_requests=4, token_budget=12)
HALF = Acceptance(survival=(0.5, 0.25), coverage=1.0)
DRAFTING = Drafting(
    speculation=Speculation(method=Method.EAGLE3, draft_tokens=2, tree=None),
    acceptance={"all": HALF},
    spread=0.0,
    rejection=Rejection.IN_PASS,
)


@pytest.mark.parametrize("name", ["kv_blocks", "block_tokens", "max_requests", "token_budget"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    """A replica without blocks, seats or budget would wait for ever."""
    with pytest.raises(BadInputError, match=f"{name} = 0"):
        replace(REPLICA, **{name: 0})


@pytest.mark.parametrize("spread", [-0.1, 10.5, float("nan"), float("inf")])
def test_an_impossible_spread_is_refused(spread: float) -> None:
    """A negative or endless spread is a slip of the caller's."""
    with pytest.raises(BadInputError, match="spread"):
        replace(DRAFTING, spread=spread)


def test_acceptance_at_another_draft_length_is_refused_with_the_remedy() -> None:
    """Three positions for two drafts would silently drop one."""
    with pytest.raises(BadInputError, match=r"'code' is for 3 drafts, not for 2; bring it to that length with Acceptance\.at"):
        replace(DRAFTING, acceptance={"code": HALF.at(3)})


def test_no_acceptance_is_refused() -> None:
    """Nothing to draw from."""
    with pytest.raises(BadInputError, match="no acceptance"):
        replace(DRAFTING, acceptance={})


def test_all_stands_for_the_segments_that_are_not_named() -> None:
    """Who has one figure for everything need not know the segments' names."""
    code = Acceptance(survival=(0.9, 0.8), coverage=1.0)
    drafting = replace(DRAFTING, acceptance={"all": HALF, "code": code})
    assert (drafting.of("code"), drafting.of("chat")) == (code, HALF)
    with pytest.raises(UnknownNameError, match="unknown segment 'chat'"):
        replace(DRAFTING, acceptance={"code": code}).of("chat")


def test_a_cost_must_reach_every_step_that_the_replica_may_take() -> None:
    """A cost table that ends early would be read past its end by compiled code."""
    enough = StepCost(token_s=np.ones(13), kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(5))
    need_room(REPLICA, (enough,), 3)
    need_room(REPLICA, (replace(enough, draft_s=np.zeros(1)),), 1)
    with pytest.raises(BadInputError, match="token_s ends at 11"):
        need_room(REPLICA, (replace(enough, token_s=np.ones(12)),), 3)
    with pytest.raises(BadInputError, match="draft_s ends at 3 requests, but 4 may draft"):
        need_room(REPLICA, (replace(enough, draft_s=np.zeros(4)),), 3)
    with pytest.raises(BadInputError, match="token_budget 12 is below the 13 tokens"):
        need_room(REPLICA, (enough,), 13)
