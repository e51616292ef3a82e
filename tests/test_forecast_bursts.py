"""Steps in bursts, correlation within a request, and a request's TPOT."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError
from paceline.forecast.bursts import Bursts, fit_bursts, lag_one, tpot_variance


def test_two_states_by_hand() -> None:
    """Coverage .4, persistence .5: a match follows a match with .7, none with .2; a run is 1 / (1 − .7) steps long."""
    found = Bursts(coverage=0.4, persistence=0.5)
    assert found.match_after_match == pytest.approx(0.7)
    assert found.match_after_none == pytest.approx(0.2)
    assert found.mean_run_steps == pytest.approx(1 / 0.3)
    assert Bursts(coverage=1.0, persistence=0.0).mean_run_steps is None


@given(coverage=st.floats(0, 1), persistence=st.floats(0, 0.99))
def test_the_states_keep_their_share(coverage: float, persistence: float) -> None:
    """Stationary: a long request drafts in `coverage` of its steps, whatever the persistence."""
    found = Bursts(coverage=coverage, persistence=persistence)
    assert coverage * found.match_after_match + (1 - coverage) * found.match_after_none == pytest.approx(coverage)


@pytest.mark.parametrize(("coverage", "persistence"), [(0.35, 0.6), (0.5, 0.0), (0.7, 0.3)])
def test_what_was_drawn_is_fitted_again(coverage: float, persistence: float) -> None:
    """Bursts that a replay shows and the model flattens make a simulated tail too short. Tolerance: 5 standard errors of 80,000 steps."""
    rng = np.random.default_rng(11)
    truth = Bursts(coverage=coverage, persistence=persistence)
    drawn = [truth.drawn(200, rng).astype(np.float64) for _ in range(400)]
    found = fit_bursts(drawn)
    assert found.coverage == pytest.approx(coverage, abs=0.03)
    assert found.persistence == pytest.approx(persistence, abs=0.03)


def test_requests_that_differ_are_not_taken_for_steps_that_persist() -> None:
    """Half the requests match always more often: around one common mean that looks like persistence, and it is none."""
    rng = np.random.default_rng(12)
    requests = [(rng.random(60) < share).astype(np.float64) for share in (0.2, 0.8) for _ in range(500)]
    assert abs(lag_one(requests)) < 0.05


def test_alternating_steps_by_hand() -> None:
    """0 1 0 1 …, 8 steps: raw −7/8, with the mean's bias put back (−7/8 + 1/8) / (1 − 3/8) = −1.2, held at −1."""
    assert lag_one([np.array([0.0, 1.0] * 4)]) == -1.0
    assert fit_bursts([np.array([0.0, 1.0] * 4)]).persistence == 0.0


def test_too_little_to_tell_is_said() -> None:
    """A correlation of short or constant requests is a division by nothing."""
    with pytest.raises(NoEvidenceError, match="no request has 8 steps"):
        lag_one([np.ones(7)])
    with pytest.raises(NoEvidenceError, match="nothing varies"):
        lag_one([np.ones(20)])


@pytest.mark.parametrize(
    ("coverage", "persistence", "message"), [(1.2, 0.5, "coverage 1"), (0.5, 1.0, "persistence 1"), (0.5, -0.1, "persistence")]
)
def test_impossible_bursts_are_refused(coverage: float, persistence: float, message: str) -> None:
    """A persistence of 1 never leaves its first state."""
    with pytest.raises(BadInputError, match=message):
        Bursts(coverage=coverage, persistence=persistence)


@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_the_tpot_variance_is_that_of_simulated_requests(correlation: float) -> None:
    """A step emits 1 or 4 tokens, in runs; TPOT of 3,000 requests of 600 tokens. Tolerance 15 %, more than 5 standard errors."""
    rng = np.random.default_rng(13)
    steps, output_tokens, step_s, requests = 600, 600, 0.01, 3000
    states = np.empty((requests, steps), dtype=np.bool_)
    bursts = Bursts(coverage=0.5, persistence=correlation)
    states[:, 0] = rng.random(requests) < 0.5
    for i in range(1, steps):
        states[:, i] = rng.random(requests) < np.where(states[:, i - 1], bursts.match_after_match, bursts.match_after_none)
    taken = 1 + (np.cumsum(np.where(states, 4, 1), axis=1) < output_tokens).sum(axis=1)
    measured = float((taken * step_s / output_tokens).var())
    expected = tpot_variance(step_s=step_s, mean_tokens=2.5, token_variance=2.25, output_tokens=output_tokens, correlation=correlation)
    assert measured == pytest.approx(expected, rel=0.15)


def test_tpot_variance_by_hand_and_refusals() -> None:
    """T 10 ms, E 2, V 1, N 100: 1e-4 · 1 / (8 · 100) = 1.25e-7; r = .5 trebles it."""
    assert tpot_variance(step_s=0.01, mean_tokens=2, token_variance=1, output_tokens=100, correlation=0.0) == pytest.approx(1.25e-7)
    assert tpot_variance(step_s=0.01, mean_tokens=2, token_variance=1, output_tokens=100, correlation=0.5) == pytest.approx(3.75e-7)
    with pytest.raises(BadInputError, match="no TPOT variance"):
        tpot_variance(step_s=0.01, mean_tokens=0.5, token_variance=1, output_tokens=100, correlation=0.5)


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 50))
def test_drawn_states_are_as_many_as_asked_for(seed: int, steps: int) -> None:
    """A request of no step draws nothing."""
    assert Bursts(coverage=0.5, persistence=0.5).drawn(steps, np.random.default_rng(seed)).shape == (steps,)
