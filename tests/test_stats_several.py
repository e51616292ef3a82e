"""Several claims at once: what shares an error rate and what does not."""

from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

from paceline.errors import BadInputError
from paceline.stats.paired import requests_to_bound_quantile
from paceline.stats.several import corrected_confidence, decided_together, one_sided, shared_confidence


def test_five_claims_share_a_twentieth() -> None:
    """Five segments at 95 % each ship a loser more often than one time in five."""
    assert corrected_confidence(0.95, claims=5) == pytest.approx(0.99)
    assert corrected_confidence(0.95, claims=1) == pytest.approx(0.95)
    for claims, confidence in ((0, 0.95), (2, 1.0)):
        with pytest.raises(BadInputError):
            corrected_confidence(confidence, claims=claims)


def test_what_is_decided_frees_its_share_for_the_rest() -> None:
    """Holm's own order: of p = .001, .02, .04 and .2 in four, the first needs .0125, the next .0167: only the first is decided."""
    p = {"a": 0.2, "b": 0.001, "c": 0.04, "d": 0.02}
    assert decided_together(dict.fromkeys(p, 1.0), lambda name, confidence: p[name] <= 1 - confidence, confidence=0.95) == ("b",)
    p["d"] = 0.016
    assert decided_together(dict.fromkeys(p, 1.0), lambda name, confidence: p[name] <= 1 - confidence, confidence=0.95) == ("b", "d")
    every = dict.fromkeys(p, 0.0)
    assert decided_together(dict.fromkeys(p, 1.0), lambda name, confidence: every[name] <= 1 - confidence, confidence=0.95) == (
        "a",
        "b",
        "c",
        "d",
    )
    assert decided_together({}, lambda name, confidence: every[name] <= 1 - confidence, confidence=0.95) == ()


def test_of_ten_segments_that_do_not_pay_one_ships_at_most_one_time_in_twenty() -> None:
    """Looking at ten segments one by one would ship a losing one in four rollouts of ten. 2,000 repetitions, true rate about .049."""
    z = np.abs(np.random.default_rng(1).normal(size=(2000, 10)))

    def paying(row: npt.NDArray[np.float64], name: str, confidence: float) -> bool:
        return bool(row[int(name)] >= ndtri((1 + confidence) / 2))

    names = [str(each) for each in range(10)]
    together = [bool(decided_together(dict.fromkeys(names, 1.0), partial(paying, row), confidence=0.95)) for row in z]
    alone = [any(paying(row, each, 0.95) for each in names) for row in z]
    assert np.mean(together) < 0.07
    assert np.mean(alone) > 0.35


def test_the_default_claims_share_so_that_399_requests_still_bound_their_percentiles() -> None:
    """Shared alike, a P99 that got clearly worse could not be told at 400 requests; a mean loses little for it."""
    shares = {"speedup": 1.0, "tpot_p99.ratio": 4 / 3, "ttft_p99.ratio": 4 / 3}
    level = {name: one_sided(each, least=0.95) for name, each in shared_confidence(shares, confidence=0.95).items()}
    assert sum((1 - each) / 2 for each in level.values()) == pytest.approx(0.05)
    assert requests_to_bound_quantile(0.99, confidence=level["tpot_p99.ratio"]) == 399
    assert requests_to_bound_quantile(0.99, confidence=one_sided(corrected_confidence(0.95, claims=3), least=0.95)) == 408
    assert one_sided(corrected_confidence(0.95, claims=2), least=0.95) == pytest.approx(0.95)
    assert one_sided(0.95, least=0.95) == 0.95


def test_a_larger_share_is_decided_first_and_the_whole_error_stays() -> None:
    """With p = .03 it is within three quarters of .05 and not within a quarter; once it is decided the other has all of it."""
    p = {"a": 0.03, "b": 0.04}
    for shares, decided in (({"a": 3.0, "b": 1.0}, ("a", "b")), ({"a": 1.0, "b": 3.0}, ())):
        assert decided_together(shares, lambda name, confidence: p[name] <= 1 - confidence, confidence=0.95) == decided
