"""How far off a printed mean or percentile may be when only the number of requests is known."""

from collections.abc import Callable
from math import exp, log, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import betaincinv, ndtri, stdtrit

from paceline.errors import BadInputError
from paceline.stats.aggregates import aggregate_mean, aggregate_share, fitted_quantile, fitted_spread

FloatArray = npt.NDArray[np.float64]


def test_a_mean_of_400_requests_that_spread_by_a_half_is_known_to_five_percent() -> None:
    """Whoever has totals of two arms: 400 requests tell a speed-up of 0.87 from 1.05, 20 do not."""
    found = aggregate_mean(2.0, spread=0.5, n=400, confidence=0.95)
    error = float(stdtrit(399, 0.975)) * 0.5 / 20
    assert error == pytest.approx(0.0491, abs=1e-4)
    assert found.low == pytest.approx(2 * exp(-error))
    assert found.high == pytest.approx(2 * exp(error))
    assert found.n == 400


@pytest.mark.parametrize(("value", "spread", "n"), [(2.0, 0.5, 7), (2.0, 50.0, 100), (0.0, 0.5, 100)])
def test_few_requests_a_wild_spread_or_no_time_leave_a_point(value: float, spread: float, n: int) -> None:
    """An interval from five requests would be made up."""
    found = aggregate_mean(value, spread=spread, n=n, confidence=0.95)
    assert (found.low, found.high) == (None, None)


def test_a_share_of_tokens_is_as_sure_as_half_as_many_whole_requests() -> None:
    """65,118 drafted tokens of 210 requests are not 65,118 independent trials."""
    found = aggregate_share(0.74, n=210, confidence=0.95)
    z, n = float(ndtri(0.975)), 105
    centre = (0.74 + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(0.74 * 0.26 / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert found.low == pytest.approx(centre - half)
    assert found.high == pytest.approx(centre + half)
    assert aggregate_share(0.74, n=7, confidence=0.95).low is None


def test_a_printed_p99_of_80_requests_may_stand_for_the_94th_percentile() -> None:
    """Whoever takes a table's P99 for the tail: of 80 requests one in sixteen may be slower."""
    above = float(betaincinv(80 - 79 * 0.99, 1 + 79 * 0.99, 0.975))
    assert above == pytest.approx(0.065, abs=0.005)
    found = fitted_quantile(5.89, 6.76, 0.99, n=80, confidence=0.95)
    sigma = log(6.76 / 5.89) / -float(ndtri(above))
    assert found.high == pytest.approx(5.89 * exp(float(ndtri(0.99)) * sigma))
    assert found.value == 6.76
    spread = fitted_spread(5.89, 6.76, 0.99, n=80, confidence=0.95)
    assert spread == pytest.approx(sqrt(exp(sigma**2) - 1))


def test_what_allows_any_tail_bounds_nothing() -> None:
    """Two requests' P99 says nothing; a tail below the median is no tail; the median is none either."""
    assert fitted_quantile(1.0, 2.0, 0.99, n=7, confidence=0.95).high is None
    assert fitted_quantile(2.0, 1.0, 0.99, n=80, confidence=0.95).high is None
    assert fitted_spread(1.0, 2.0, 0.6, n=3, confidence=0.95) is None
    assert fitted_spread(0.001, 1e6, 0.99, n=80, confidence=0.95) is None
    with pytest.raises(BadInputError, match="one half"):
        fitted_spread(1.0, 2.0, 0.5, n=80, confidence=0.95)


@pytest.mark.parametrize(("name", "least"), [("log-normal", 0.965), ("gamma", 0.965), ("one in twenty slower", 0.89), ("t of 5", 0.88)])
def test_the_upper_end_covers_the_true_tail_where_it_is_log_normal_and_less_where_it_is_heavier(name: str, least: float) -> None:
    """Whoever ships on a table: how often the tail is worse than its upper end, said and held."""
    rng, rows, n = np.random.default_rng(3), 600, 120
    draws: dict[str, Callable[[int], FloatArray]] = {
        "log-normal": lambda size: np.exp(0.2 * rng.standard_normal(size)),
        "gamma": lambda size: rng.gamma(4, 1, size),
        "one in twenty slower": lambda size: (1 + 0.05 * rng.standard_normal(size)) * np.where(rng.random(size) < 0.05, 1.4, 1),
        "t of 5": lambda size: 1 + 0.05 * rng.standard_t(5, size),
    }
    true = float(np.quantile(draws[name](400_000), 0.99))
    samples = draws[name](rows * n).reshape(rows, n)
    middles, tails = np.median(samples, axis=1), np.quantile(samples, 0.99, axis=1)
    ends = [fitted_quantile(a, b, 0.99, n=n, confidence=0.95).high or np.inf for a, b in zip(middles.tolist(), tails.tolist(), strict=True)]
    assert np.mean(np.array(ends) >= true) >= least
