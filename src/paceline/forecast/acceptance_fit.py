"""Fits what all acceptance curves share, and scores it on curves that were left out.

A curve is acceptance lengths AL(K) by draft length, each K a run of its own. What a server with K <= 3 has shown is given; AL(4), AL(5), …
are predicted. Nothing is fitted to a curve that is scored: its own short lengths are the input, the shared parameters come from the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import NoEvidenceError
from paceline.forecast.acceptance_model import Tail, survival_tail, tail_range
from paceline.forecast.profiles import survival_from_lengths

__all__ = ["KNOWN_DRAFT_TOKENS", "Predicted", "fit_tail", "leave_one_out", "predicted_gains"]

KNOWN_DRAFT_TOKENS = 3
STEP = 0.001
FLATTEST, STEEPEST = 0, 100  # in steps of curvature
LEAST_GAIN = 0.0  # a choice, see data/acceptance_model.toml

Curve = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Predicted:
    """An acceptance length at K of a curve that was left out: measured, predicted, and the range."""

    curve: str
    draft_tokens: int
    measured: float
    value: float
    low: float
    high: float

    @property
    def relative_error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.value / self.measured - 1

    @property
    def covered(self) -> bool:
        """Whether the range holds what was measured."""
        return self.low <= self.measured <= self.high


def predicted_gains(curve: Curve, *, curvature: float) -> dict[int, float]:
    """Tokens per step gained beyond AL(3), by K of the curve above 3."""
    tail = survival_tail(_known(curve), draft_tokens=max(curve), curvature=curvature)
    return {K: sum(tail[: K - KNOWN_DRAFT_TOKENS]) for K in curve if K > KNOWN_DRAFT_TOKENS}


def _known(curve: Curve) -> tuple[float, ...]:
    return survival_from_lengths({K: length for K, length in curve.items() if K <= KNOWN_DRAFT_TOKENS})


def _errors(curves: Sequence[Curve], curvature: float) -> list[float]:
    return [
        abs((curve[KNOWN_DRAFT_TOKENS] + gain) / curve[K] - 1)
        for curve in curves
        for K, gain in predicted_gains(curve, curvature=curvature).items()
    ]


def fit_tail(curves: Sequence[Curve]) -> Tail:
    """The curvature with the least mean absolute relative error, on a grid of .001; the largest measured gain over the modelled one.

    Raises:
        NoEvidenceError: no curve.

    """
    if not curves:
        raise NoEvidenceError("no acceptance curve to fit the shared parameters to")
    steps = min(range(FLATTEST, STEEPEST + 1), key=lambda each: sum(_errors(curves, -STEP * each)))
    curvature = -STEP * steps
    ratios = [
        (curve[K] - curve[KNOWN_DRAFT_TOKENS]) / gain
        for curve in curves
        for K, gain in predicted_gains(curve, curvature=curvature).items()
        if gain > 0
    ]
    return Tail(curvature=curvature, least_gain=LEAST_GAIN, most_gain=max(1.0, *ratios))


def leave_one_out(curves: Mapping[str, Curve]) -> tuple[Predicted, ...]:
    """Every curve predicted with the parameters of the others.

    Raises:
        NoEvidenceError: fewer than two curves.

    """
    scored = []
    for name, curve in curves.items():
        shared = fit_tail([other for key, other in curves.items() if key != name])
        known = curve[KNOWN_DRAFT_TOKENS]
        tails = tail_range(_known(curve), draft_tokens=max(curve), shared=shared)
        for K in sorted(K for K in curve if K > KNOWN_DRAFT_TOKENS):
            low, value, high = (known + sum(tail[: K - KNOWN_DRAFT_TOKENS]) for tail in tails)
            scored.append(Predicted(curve=name, draft_tokens=K, measured=curve[K], value=value, low=low, high=high))
    return tuple(scored)
