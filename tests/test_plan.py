"""A plan only raises exposure, names its way back, and refuses what could not be carried out."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.plan import Guard, Plan, Stage

STAGE = Stage(name="canary", purpose="find crashes", traffic_share=0.05, min_duration_s=600.0, min_requests=500, do=(), passes_when=())
GUARD = Guard(metric="tpot_s.p99.ratio", at_most=1.05, at_least=None, breach_after_s=120.0, felt_s=None)
PLAN = Plan(title="", opt_in="", measurement={}, stages=(STAGE,), guards=(GUARD,), on_breach=("route all traffic to the baseline",))


@pytest.mark.parametrize("share", [-0.01, 1.01, 50.0, nan])
def test_a_traffic_share_is_a_fraction(share: float) -> None:
    """A share of 50, meant as percent, exposes everybody."""
    with pytest.raises(BadInputError, match=r"stage 'canary': traffic share .* is not between 0 and 1"):
        replace(STAGE, traffic_share=share)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_stage_may_expose_nobody_or_everybody(share: float) -> None:
    """The shadow stage or the last one cannot be written down."""
    assert replace(STAGE, traffic_share=share).traffic_share == share


@pytest.mark.parametrize("duration_s", [-1.0, nan, inf])
def test_a_stage_lasts_a_finite_time(duration_s: float) -> None:
    """A stage never ends, or ends before it began."""
    with pytest.raises(BadInputError, match="must be from 0 on"):
        replace(STAGE, min_duration_s=duration_s)


@pytest.mark.parametrize("requests", [-1, 10.5, nan, True])
def test_a_stage_s_requests_are_a_count(requests: int) -> None:
    """A stage is judged before a single request, because NaN is never reached and never missed."""
    with pytest.raises(BadInputError, match="whole requests must be from 0 on"):
        replace(STAGE, min_requests=requests)
    assert replace(STAGE, min_requests=np.int64(0)).min_requests == 0  # type: ignore[arg-type]  # numpy's integers are meant to pass


@pytest.mark.parametrize(("at_most", "at_least"), [(None, None), (1.0, 1.0), (nan, None), (None, nan), (inf, None)])
def test_a_guard_has_exactly_one_finite_bound(at_most: float | None, at_least: float | None) -> None:
    """A guard that nothing breaches watches the rollout."""
    with pytest.raises(BadInputError, match="needs exactly one finite bound"):
        replace(GUARD, at_most=at_most, at_least=at_least)


def test_a_guard_may_bound_from_below() -> None:
    """Acceptance that falls cannot be watched."""
    assert replace(GUARD, at_most=None, at_least=0.4).at_least == 0.4


@pytest.mark.parametrize("patience_s", [-1.0, nan, inf])
def test_a_guard_s_patience_is_finite(patience_s: float) -> None:
    """A breach never counts."""
    with pytest.raises(BadInputError, match="of patience is not from 0 on"):
        replace(GUARD, breach_after_s=patience_s)


@pytest.mark.parametrize("field", ["stages", "guards", "on_breach"])
def test_a_plan_has_a_stage_a_guard_and_a_way_back(field: str) -> None:
    """A rollout starts that nothing can stop."""
    without: dict[str, Any] = {field: ()}
    with pytest.raises(BadInputError, match="at least one stage, one guard and one act on a breach"):
        replace(PLAN, **without)


def test_stages_have_names_of_their_own() -> None:
    """The journal does not say which of two stages a replica is in."""
    with pytest.raises(BadInputError, match="two stages share a name"):
        replace(PLAN, stages=(STAGE, replace(STAGE, traffic_share=0.5)))


def test_a_stage_that_lowers_the_share_is_named() -> None:
    """A plan walks back without a breach, and the next reading is taken for a recovery."""
    with pytest.raises(BadInputError, match="stage 'half' lowers the traffic share"):
        replace(PLAN, stages=(replace(STAGE, name="full", traffic_share=1.0), replace(STAGE, name="half", traffic_share=0.5)))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_traffic_shares_never_fall(shares: list[float]) -> None:
    """Some order of stages takes exposure back unseen."""
    stages = tuple(replace(STAGE, name=f"stage {i}", traffic_share=share) for i, share in enumerate(shares))
    if shares == sorted(shares):
        assert replace(PLAN, stages=stages).stages == stages
    else:
        with pytest.raises(BadInputError, match="lowers the traffic share"):
            replace(PLAN, stages=stages)


@pytest.mark.parametrize("felt_s", [-0.1, nan, inf])
def test_a_guard_needs_a_felt_difference_that_is_a_time(felt_s: float) -> None:
    """A difference that no number is would never be felt, and the guard never breach."""
    with pytest.raises(BadInputError, match="felt"):
        Guard(metric="ttft_p99.ratio", at_most=1.1, at_least=None, breach_after_s=60.0, felt_s=felt_s)
