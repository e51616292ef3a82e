"""What sending only some segments to drafts is worth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.decide.routing import routed, routing
from paceline.run import Arm
from tests.strategies_runs import pair, run, summaries_only


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_two_segments_of_which_one_pays() -> None:
    """Code halves its pace, prose gains a quarter: 3/2.25 with drafts for all, 3/2 with drafts for code only."""
    names = np.array(["code"] * 10 + ["prose"] * 20)
    plain_s = np.array([1.0] * 30)
    drafted_s = np.array([0.5] * 10 + [1.25] * 20)
    found = routed(names, plain_s, drafted_s, confidence=0.95, rng=rng())
    assert found.routed == ("code",)
    assert found.all_on.value == pytest.approx(1.0)
    assert found.with_routing.value == pytest.approx(30 / 25)
    assert found.harmed_all_on.value == pytest.approx(2 / 3)
    assert found.harmed_routed.value == 0
    code, prose = found.segments
    assert (code.speedup.value, code.pays) == (2.0, True)
    assert code.share == pytest.approx(1 / 3)
    assert (prose.speedup.value, prose.slower.value, prose.pays) == (0.8, 1.0, False)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 9), st.floats(0.1, 9)), min_size=2, max_size=30))
def test_routing_is_never_worse_than_all_or_none(rows: list[tuple[str, float, float]]) -> None:
    """Routing that loses against a switch would be advice to do harm."""
    names, plain_s, drafted_s = (np.array(each) for each in zip(*rows, strict=True))
    found = routed(names, plain_s, drafted_s, confidence=0.95, rng=rng())
    assert found.with_routing.value >= max(found.all_on.value, 1) - 1e-12
    assert found.harmed_routed.value <= found.harmed_all_on.value
    assert sum(each.share for each in found.segments) == pytest.approx(1)


def test_a_gain_that_may_be_none_is_neither() -> None:
    """A segment whose interval holds 1 neither pays nor harms."""
    names = np.array(["a"] * 40 + ["b"] * 40)
    drafted_s = np.array([0.8, 1.2] * 40)
    found = routed(names, np.ones(80), drafted_s, confidence=0.95, rng=rng())
    assert {each.pays for each in found.segments} == {None}


def test_runs_give_the_same_and_without_twins_or_segments_there_is_nothing_to_route() -> None:
    """Groups of other requests do not tell which segment gained."""
    baseline, speculative = pair(n=60, step_s=0.019, alphas={"code": 0.9, "prose": 0.1})
    found = routing(baseline, speculative, confidence=0.95, rng=rng())
    assert found is not None
    assert found.routed == ("code",)
    assert found.with_routing.value > found.all_on.value
    one = pair(n=20, alphas={"chat": 0.7})
    assert routing(*one, confidence=0.95, rng=rng()) is None
    other = run(Arm.SPECULATIVE, n=60, step_s=0.012, alphas={"code": 0.9, "prose": 0.1}, prefix="x")
    assert routing(baseline, other, confidence=0.95, rng=rng()) is None
    totals = summaries_only(Arm.SPECULATIVE, step_s=0.01, counts=None)
    assert routing(baseline, totals, confidence=0.95, rng=rng()) is None
    assert speculative.requests is not None
    still = tuple(
        replace(each, timing=replace(each.timing, chunk_at_s=np.full(each.timing.chunk_at_s.shape, each.timing.sent_at_s)))
        for each in speculative.requests
    )
    assert routing(baseline, replace(speculative, requests=still), confidence=0.95, rng=rng()) is None
