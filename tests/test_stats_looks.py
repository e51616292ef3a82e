"""How often a test was looked at, as its runs state it."""

from dataclasses import replace

import pytest

from paceline.errors import BadInputError
from paceline.run import Arm, Run
from paceline.stats.looks import Looks, looks_stated, with_looks
from paceline.verdict import Decision
from tests.strategies_runs import run

LOOKS = Looks(taken=3, planned=7, most_requests=400, decision=Decision.SHIP)


def a_run() -> Run:
    return run(Arm.BASELINE, n=2, step_s=0.01, alphas={"all": 0.5})


def test_a_run_states_its_looks_and_is_read_back() -> None:
    """A verdict on a test that stopped on luck must know that it could."""
    stated = with_looks(a_run(), LOOKS)
    assert stated.provenance.arguments["looks"] == "3 of 7, at most 400 requests: ship"
    assert looks_stated(stated, a_run()) == LOOKS
    more = replace(LOOKS, planned=8)
    assert looks_stated(stated, with_looks(a_run(), more)) == more
    assert looks_stated(a_run(), a_run()) is None


def test_the_hard_stop_is_twice_the_design_and_one_look_has_its_share() -> None:
    """Seven looks at 95 % would be wrong one time in five."""
    assert LOOKS.design(confidence=0.95, power=0.9).most_requests == 400
    assert LOOKS.each_at(0.95) == pytest.approx(1 - 0.05 / 7)
    assert replace(LOOKS, most_requests=1).design(confidence=0.95, power=0.9).fixed_requests == 2


@pytest.mark.parametrize(
    "text", ["3 of 7", "8 of 7, at most 400 requests: ship", "3 of 7, at most 400 requests: perhaps", "0 of 0, at most 1 requests: keep"]
)
def test_looks_that_cannot_be_are_refused(text: str) -> None:
    """A run edited by hand must not be judged as if it had not been looked at."""
    one = a_run()
    edited = replace(one, provenance=replace(one.provenance, arguments={"looks": text}))
    with pytest.raises(BadInputError, match="looks"):
        looks_stated(edited)
