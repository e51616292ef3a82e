"""Warm-up: when rounds stop getting faster."""

import numpy as np
import pytest

from paceline.stats.warm_up import has_settled, rounds_needed

COLD, WARMER, WARM, SAME = (np.array([each, 1.1 * each, 50.0]) for each in (9.0, 2.0, 0.5, 0.49))


def test_a_server_has_settled_when_the_next_round_is_no_faster() -> None:
    """Compiling for nine seconds is no property of drafting."""
    assert rounds_needed([COLD, WARMER, WARM, SAME]) == 3
    assert rounds_needed([WARM, WARM]) == 1


def test_a_server_that_still_gets_faster_has_not_settled() -> None:
    """A test that starts too early measures the compiler."""
    assert rounds_needed([COLD, WARMER, WARM]) is None
    assert rounds_needed([COLD]) is None
    assert rounds_needed([]) is None


@pytest.mark.parametrize(("now", "settled"), [(0.95, True), (0.9, True), (0.89, False), (2.0, True)])
def test_a_tenth_faster_is_still_falling(now: float, settled: bool) -> None:
    """Noise of a few percent must not keep a warm server waiting for ever."""
    assert has_settled(np.ones(3), np.full(3, now)) is settled
