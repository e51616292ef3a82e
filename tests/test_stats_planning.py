"""How many requests to ask for before anything is measured."""

import numpy as np
import pytest

from paceline.errors import BadInputError, NoEvidenceError
from paceline.stats.paired import TwoArms, requests_needed
from paceline.stats.planning import measurement_plan

PILOT = TwoArms(baseline=np.full(100, 1.2), speculative=np.exp(np.tile([0.1, -0.1], 50)) / np.cosh(0.1), paired=True)


def test_a_pilot_of_1_2_against_1_05_needs_the_worked_number() -> None:
    """ln(1.2 / 1.05) = .1335 at a spread of .1002: ((1.96 + 1.282) · .1002 / .1335)² = 5.9, and Student's t asks for two to three more."""
    found = measurement_plan(PILOT, bound=1.05, confidence=0.95, power=0.9)
    assert found.spread == pytest.approx(np.tanh(0.1) * np.sqrt(100 / 99))
    assert found.requests == requests_needed(effect=np.log(1.2 / 1.05), spread=found.spread, confidence=0.95, power=0.9)
    assert found.requests in (8, 9)
    assert measurement_plan(PILOT, bound=0.1, confidence=0.95, power=0.9).requests == 8  # fewer have no interval
    assert (found.tail_requests, found.pairs) == (368, 100)
    assert found.detectable == pytest.approx(3.2745 * found.spread / 10, rel=0.01)


def test_a_pilot_on_its_bound_needs_no_number() -> None:
    """Ten million requests is no advice, and a division by zero is no answer."""
    assert measurement_plan(PILOT, bound=1.2, confidence=0.95, power=0.9).requests in (None, 10_000_000)
    even = TwoArms(baseline=np.ones(9), speculative=np.ones(9), paired=True)
    assert measurement_plan(even, bound=1.0, confidence=0.95, power=0.9).requests is None


def test_no_plan_comes_from_strangers_or_from_nonsense() -> None:
    """A spread between different requests is that of their lengths."""
    with pytest.raises(NoEvidenceError, match="both arms"):
        measurement_plan(TwoArms(baseline=np.ones(9), speculative=np.ones(9), paired=False), bound=1.05, confidence=0.95, power=0.9)
    with pytest.raises(NoEvidenceError, match="above 0"):
        measurement_plan(PILOT, bound=0.0, confidence=0.95, power=0.9)
    with pytest.raises(BadInputError):
        measurement_plan(PILOT, bound=1.05, confidence=0.95, power=1.0)
