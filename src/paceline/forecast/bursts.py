"""Steps that hang together: match and no match in bursts, correlation within a request, and what both do to a request's TPOT.

A lookup finds matches in runs: quoting text, it matches step after step, and then not for a while. Two states with persistence λ, the
lag-1 autocorrelation of "this step drafts", describe it:

    P(match | match)     = coverage + λ · (1 − coverage)
    P(match | no match)  = coverage · (1 − λ)

Notation: T seconds per step, E and V mean and variance of tokens per step, N output tokens after the first, r lag-1 autocorrelation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError

__all__ = ["Bursts", "fit_bursts", "lag_one", "tpot_variance"]

LEAST_STEPS = 8  # of a request, below which its own mean hides the correlation

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bursts:
    """Match and no match as two states: the share of steps that draft, and how much a step resembles the one before.

    Persistence 0 is independent steps; below 0 is refused, for a match is never followed by a match less often than by chance.
    """

    coverage: float
    persistence: float

    def __post_init__(self) -> None:
        """Reject a coverage outside [0, 1] and a persistence outside [0, 1).

        Raises:
            BadInputError: with the value.

        """
        if not 0 <= self.coverage <= 1:
            raise BadInputError(f"coverage {self.coverage!r} is not between 0 and 1")
        if not 0 <= self.persistence < 1:
            raise BadInputError(f"persistence {self.persistence!r} is not from 0 on and below 1")

    @property
    def match_after_match(self) -> float:
        """P(match | match)."""
        return self.coverage + self.persistence * (1 - self.coverage)

    @property
    def match_after_none(self) -> float:
        """P(match | no match)."""
        return self.coverage * (1 - self.persistence)

    @property
    def mean_run_steps(self) -> float | None:
        """Mean length of a run of matches, in steps; None where every step matches and no run ends."""
        return None if self.coverage == 1 else 1 / ((1 - self.coverage) * (1 - self.persistence))

    def drawn(self, steps: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Whether each of `steps` steps drafts, shape [steps], from the stationary start."""
        uniform = rng.random(steps)
        states = np.zeros(steps, dtype=np.bool_)
        threshold = self.coverage
        for i, each in enumerate(uniform):
            states[i] = each < threshold
            threshold = self.match_after_match if states[i] else self.match_after_none
        return states


def fit_bursts(requests: Iterable[FloatArray]) -> Bursts:
    """Coverage and persistence of drafted steps, one array [steps] of 0 and 1 per request; coverage pools the steps.

    The persistence is `lag_one`, 0 where that is negative.

    Raises:
        NoEvidenceError: as `lag_one`.

    """
    kept = [np.asarray(each, dtype=np.float64) for each in requests]
    persistence = lag_one(kept)
    coverage = float(np.concatenate(kept).mean())
    return Bursts(coverage=coverage, persistence=min(max(0.0, persistence), 1 - 1e-9))


def lag_one(requests: Iterable[FloatArray]) -> float:
    """Lag-1 autocorrelation within requests of a figure per step, one array [steps] per request, each around its own mean.

    Products are pooled over requests with at least 8 steps. A mean taken from n steps lowers the estimate by about (1 + 3r) / n (Kendall
    1954); that is put back with the mean n. In [−1, 1].

    Raises:
        NoEvidenceError: no request has 8 steps, or nothing varies within any.

    """
    long = [np.asarray(each, dtype=np.float64) for each in requests if len(each) >= LEAST_STEPS]
    if not long:
        raise NoEvidenceError(f"no request has {LEAST_STEPS} steps, so correlation within requests cannot be told")
    centred = [each - each.mean() for each in long]
    spread = sum(float(each @ each) for each in centred)
    if spread <= 0:
        raise NoEvidenceError("nothing varies from step to step, so correlation within requests has no value")
    raw = sum(float(each[:-1] @ each[1:]) for each in centred) / spread
    steps = sum(each.size for each in long) / len(long)
    return float(np.clip((raw + 1 / steps) / (1 - 3 / steps), -1.0, 1.0))


def tpot_variance(*, step_s: float, mean_tokens: float, token_variance: float, output_tokens: int, correlation: float) -> float:
    """Variance of a request's TPOT in s², from chance in acceptance alone: T² · V / (E³ · N) · (1 + r) / (1 − r).

    Steps take T seconds each; a request's number of steps has variance N · V / E³ (renewal theory, large N), times 1 + 2 Σ r^k for a
    correlation that falls geometrically with lag. `output_tokens` is N. Short outputs have wide TPOT.

    Raises:
        BadInputError: a mean below 1 token, a negative time or variance, N below 1, or a correlation outside (−1, 1).

    """
    if mean_tokens < 1 or step_s < 0 or token_variance < 0 or output_tokens < 1 or not -1 < correlation < 1:
        raise BadInputError(
            f"no TPOT variance of {mean_tokens!r} tokens per step with variance {token_variance!r}, {step_s!r} s per step, "
            f"{output_tokens!r} tokens and correlation {correlation!r}"
        )
    independent = step_s**2 * token_variance / (mean_tokens**3 * output_tokens)
    return independent * (1 + correlation) / (1 - correlation)
