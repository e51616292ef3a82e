"""Two shares compared."""

import pytest

from paceline.stats.intervals import wilson
from paceline.stats.proportions import share_difference, sign_test


def test_the_interval_of_a_difference_is_the_published_one() -> None:
    """Newcombe 1998, table II, example (a): 56/70 − 48/80 = .2, [.0524, .3339]. A wrong interval calls noise a loss of quality."""
    found = share_difference(wilson(successes=56, n=70, confidence=0.95), wilson(successes=48, n=80, confidence=0.95))
    assert found.n == 70
    assert found.value == pytest.approx(0.2)
    assert found.low == pytest.approx(0.0524, abs=5e-5)
    assert found.high == pytest.approx(0.3339, abs=5e-5)


def test_the_interval_of_a_difference_works_at_the_edges() -> None:
    """Nobody's answers differ, or all do: a normal interval would be a point there. Example (h): 10/10 − 0/10, [.6075, 1]."""
    found = share_difference(wilson(successes=10, n=10, confidence=0.95), wilson(successes=0, n=10, confidence=0.95))
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx(0.6075, abs=5e-5)


@pytest.mark.parametrize(("worse", "better", "chance"), [(0, 0, 1), (4, 0, 1 / 16), (5, 0, 1 / 32), (3, 1, 5 / 16), (0, 4, 1)])
def test_the_sign_test_counts_the_pairs_that_changed(worse: int, better: int, chance: float) -> None:
    """Whoever reads 4 broken answers and none mended: by chance alone that happens once in sixteen."""
    assert sign_test(worse, better) == pytest.approx(chance)
