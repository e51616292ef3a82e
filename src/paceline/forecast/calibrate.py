"""Fits an engine's triple to what was measured, and says how far the fit can be trusted.

    ρ = [verify / e + o_engine + o + d·D] / [plain / e + o_engine]            o overhead, d draft scale, e efficiency

`plain`, `verify` and `D` are the kernels' seconds at the point's own batch, context and K, priced as everywhere in `paceline.forecast`, so
one triple answers for other batches and K. With a stated prompt and output the ratio is that of whole requests, prefill included:

    E / S = E · [prefill/e · (1 + φ) + n · speculative step / E] / [prefill/e + n · plain step]      n output tokens, φ prefill slow-down

The fit is a least squares on logarithms (Cauchy loss), with a prior on the logarithm of each of the three. What the points of one server do
not tell (`informed`) stays at its prior, so that two points are enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, isfinite, log, sqrt

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError
from paceline.forecast.drafting import drafting
from paceline.forecast.engine_cost import EngineCost
from paceline.forecast.kernels import coefficient
from paceline.forecast.roofline import Placement, forward
from paceline.forecast.step_cost import prefill_seconds, step_cost
from paceline.hardware import DraftShape, ModelShape
from paceline.speculation.method import Speculation

__all__ = [
    "COEFFICIENTS",
    "Calibration",
    "Observation",
    "Prior",
    "Setting",
    "Terms",
    "calibrate",
    "informed",
    "predicted_ratio",
    "priced",
    "step_times",
]

FloatArray = npt.NDArray[np.float64]
COEFFICIENTS = ("overhead_s", "draft_scale", "efficiency")
SMALL = 1e-4  # of a standard deviation, for a derivative
KERNELS_ALONE = EngineCost(overhead_s=0.0, draft_scale=1.0, efficiency=1.0, arithmetic=1.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """One operating point.

    Attributes:
        target: what is served.
        where: on what.
        speculation: how it drafts.
        draft: the draft's shape; None for a lookup.
        requests: decoding together.
        context_tokens: of each.
        prompt_tokens: of a request, where its whole time was measured; None where decoding alone was.
        output_tokens: likewise.

    """

    target: ModelShape
    where: Placement
    speculation: Speculation
    draft: DraftShape | None
    requests: int
    context_tokens: int
    prompt_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Terms:
    """A setting priced once: seconds of its parts with kernels at full efficiency.

    Attributes:
        plain_s: kernels of a plain step.
        verify_s: kernels of the verifying forward.
        engine_s: what the engine spends on any step.
        draft_s: all draft passes.
        prefill_s: of a request's life, its own prefill and the others'; 0 where decoding alone is meant.
        output_tokens: of a request; 0 where decoding alone is meant.
        requests: decoding together.
        draft_tokens: K.

    """

    plain_s: float
    verify_s: float
    engine_s: float
    draft_s: float
    prefill_s: float
    output_tokens: int
    requests: int
    draft_tokens: int


@dataclass(frozen=True, slots=True)
class Observation:
    """What was measured at a setting: the ratio, or seconds per step of either kind, or both.

    Attributes:
        terms: the setting, priced.
        ratio: ρ, or E / S where whole requests were measured.
        tokens_per_step: E, needed for whole requests only; 1 does for the rest.
        plain_step_s: seconds per plain step.
        speculative_step_s: seconds per speculative step.
        weight: how much it counts.

    """

    terms: Terms
    ratio: float | None
    tokens_per_step: float
    plain_step_s: float | None
    speculative_step_s: float | None
    weight: float

    def __post_init__(self) -> None:
        """Reject an observation of nothing and figures that are not above 0.

        Raises:
            BadInputError: with the value.

        """
        measured = [each for each in (self.ratio, self.plain_step_s, self.speculative_step_s) if each is not None]
        if not measured:
            raise BadInputError("a calibration point states neither a step-time ratio nor seconds per step; give at least one of them")
        for value in (*measured, self.tokens_per_step, self.weight):
            if not (isfinite(value) and value > 0):
                raise BadInputError(f"a calibration point states {value!r}, which is not a number above 0")


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before a fit: a triple, and the standard deviations of the logarithms of its three."""

    engine: EngineCost
    overhead_sd: float
    draft_sd: float
    efficiency_sd: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted triple and how far it reaches.

    Attributes:
        engine: the triple.
        error: root mean square of ln(predicted / measured) over the points fitted, or over their ratios where that is larger.
        n: points.
        requests: fewest and most requests seen.
        draft_tokens: smallest and largest K seen.
        freed: the coefficients that the points moved; the others are as before the fit.
        measured: requests and K at which ρ itself was measured; None where `error` is that of published points, each source forecast from
            the others, and holds all over the reach.

    """

    engine: EngineCost
    error: float
    n: int
    requests: tuple[int, int]
    draft_tokens: tuple[int, int]
    freed: tuple[str, ...]
    measured: tuple[tuple[int, int], ...] | None

    def extrapolations(self, *, requests: int, draft_tokens: int) -> tuple[str, ...]:
        """What about a question lies outside what was calibrated, in words; empty inside."""
        found = []
        for name, asked, (low, high) in (("concurrency", requests, self.requests), ("draft length", draft_tokens, self.draft_tokens)):
            if not low <= asked <= high:
                seen = f"{low}" if low == high else f"{low} to {high}"
                found.append(f"{name} {asked} lies outside the calibrated {seen}; the range is widened")
        return tuple(found)

    def half_width(self, *, requests: int, draft_tokens: int, published_error: float, warnings: int) -> float:
        """Half-width of the 80 % range of ln ρ there, wider for each of `warnings`.

        At a measured ratio it is the fit's error (at least 3 %). With the distance from what was measured `published_error`, that of a
        forecast without calibration, comes in; far away, or where no ratio was measured, all of it does.
        """
        widening, error = coefficient("extrapolation_widening"), max(self.error, coefficient("least_calibration_error"))
        if self.measured is None:
            outside = len(self.extrapolations(requests=requests, draft_tokens=draft_tokens))
            return coefficient("range_sd") * error * widening ** (warnings + outside)
        unknown = 1 - exp(-(self._distance(requests, draft_tokens) ** 2) / 2)
        return coefficient("range_sd") * sqrt(error**2 + unknown * published_error**2) * widening**warnings

    def _distance(self, requests: int, draft_tokens: int) -> float:
        """From what was measured: to the box around it, and half of that to the nearest point, in units of the reach."""
        if not self.measured:
            return inf
        units = np.log([coefficient("calibration_reach_requests"), coefficient("calibration_reach_verified")])
        seen = np.log([(B, K + 1) for B, K in self.measured]) / units
        asked = np.log((requests, draft_tokens + 1)) / units
        beyond = asked - np.clip(asked, seen.min(axis=0), seen.max(axis=0))
        return float(np.hypot(*beyond) + np.hypot(*(seen - asked).T).min() / 2)


def priced(setting: Setting) -> Terms:
    """The parts of a setting's steps.

    Raises:
        BadInputError: the method needs a draft and there is none, or the GPU does not compute in the dtype.

    """
    B, L, verified = setting.requests, setting.context_tokens, setting.speculation.verified_tokens
    plain = forward(setting.target, setting.where, max_tokens=B, per_request=1)
    terms = forward(setting.target, setting.where, max_tokens=B * verified, per_request=verified)
    added = drafting(
        setting.speculation,
        setting.draft,
        target=setting.target,
        where=setting.where,
        verify=terms,
        max_requests=B,
        engine=KERNELS_ALONE,
    )
    return Terms(
        plain_s=float(plain.decoder_s[B] + plain.head_s[B]) + B * (L * plain.kv_token_s(1) + 2 * plain.state_s),
        verify_s=float(terms.decoder_s[B * verified] + terms.head_s[B * verified])
        + B * (L * terms.kv_token_s(verified) + (1 + verified) * terms.state_s),
        engine_s=terms.overhead_s,
        draft_s=float(added.draft_s[B]) + B * L * added.kv_token_s,
        prefill_s=_prefill(setting),
        output_tokens=setting.output_tokens or 0,
        requests=B,
        draft_tokens=setting.speculation.draft_tokens,
    )


def _prefill(setting: Setting) -> float:
    if setting.prompt_tokens is None:
        return 0.0
    where = setting.where
    plain = step_cost(
        target=setting.target,
        gpu=where.gpu,
        gpus=where.gpus,
        dtype=where.dtype,
        speculation=None,
        draft=None,
        max_tokens=setting.requests + setting.prompt_tokens,
        max_requests=setting.requests,
        engine=KERNELS_ALONE,
    )
    return prefill_seconds(plain, requests=setting.requests, prompt_tokens=setting.prompt_tokens)


def step_times(terms: Terms, engine: EngineCost) -> tuple[float, float]:
    """Seconds of a plain and of a speculative step."""
    plain_s = terms.plain_s / engine.efficiency + terms.engine_s
    return plain_s, terms.verify_s / engine.efficiency + terms.engine_s + engine.overhead_s + engine.draft_scale * terms.draft_s


def predicted_ratio(terms: Terms, engine: EngineCost, *, tokens_per_step: float, prefill_slowdown: float) -> float:
    """ρ; with a prompt and an output E / S of whole requests, whose prefill takes `prefill_slowdown` longer when drafting."""
    plain_s, speculative_s = step_times(terms, engine)
    if terms.output_tokens == 0:
        return speculative_s / plain_s
    prefill_s, n = terms.prefill_s / engine.efficiency, terms.output_tokens
    whole_plain_s = prefill_s + n * plain_s
    return (tokens_per_step * prefill_s * (1 + prefill_slowdown) + n * speculative_s) / whole_plain_s


def calibrate(observations: Sequence[Observation], *, prior: Prior, spread: float, prefill_slowdown: float) -> Calibration:
    """The triple that explains the observations best, starting from `prior`.

    `spread` is the error of one observation, in ln units, beside which the prior weighs.

    Raises:
        NoEvidenceError: no observations.

    """
    from scipy.optimize import least_squares

    if not observations:
        raise NoEvidenceError("nothing was measured to calibrate with")

    def residuals(x: FloatArray) -> FloatArray:
        engine = _moved(prior.engine, x)
        errors = [_errors(each, engine, prefill_slowdown) for each in observations]
        weighed = [error * sqrt(each.weight) / spread for each, own in zip(observations, errors, strict=True) for error in own]
        return np.array([*weighed, x[0] / prior.overhead_sd, x[1] / prior.draft_sd, x[2] / prior.efficiency_sd])

    found = least_squares(residuals, np.zeros(3), loss="cauchy", bounds=(-4.0, 4.0))
    engine = _moved(prior.engine, found.x)
    errors = [error for each in observations for error in _errors(each, engine, prefill_slowdown)]
    requests = [each.terms.requests for each in observations]
    lengths = [each.terms.draft_tokens for each in observations]
    return Calibration(
        engine=engine,
        error=max(_root_mean_square(errors), _root_mean_square(_errors_of_pairs(observations, engine))),
        n=len(observations),
        requests=(min(requests), max(requests)),
        draft_tokens=(min(lengths), max(lengths)),
        freed=COEFFICIENTS,
        measured=_with_ratio(observations),
    )


def _root_mean_square(errors: Sequence[float]) -> float:
    return sqrt(sum(error * error for error in errors) / len(errors)) if errors else 0.0


def _errors_of_pairs(observations: Sequence[Observation], engine: EngineCost) -> list[float]:
    """Of the ratios of two measured steps at as many requests: errors of the two may add up."""
    plain = {each.terms.requests: each for each in observations if each.plain_step_s is not None}
    errors = []
    for ours in observations:
        beside = plain.get(ours.terms.requests)
        if beside is None or beside.plain_step_s is None or ours.speculative_step_s is None:
            continue
        said = step_times(ours.terms, engine)[1] / step_times(beside.terms, engine)[0]
        errors.append(log(said * beside.plain_step_s / ours.speculative_step_s))
    return errors


def _with_ratio(observations: Sequence[Observation]) -> tuple[tuple[int, int], ...]:
    """Requests and K at which a ratio was measured: stated, or both its steps at as many requests."""
    plain = {each.terms.requests for each in observations if each.plain_step_s is not None}
    found = {
        (each.terms.requests, each.terms.draft_tokens)
        for each in observations
        if each.ratio is not None or (each.speculative_step_s is not None and each.terms.requests in plain)
    }
    return tuple(sorted(found))


def informed(observations: Sequence[Observation], *, prior: Prior, spread: float) -> tuple[str, ...]:
    """The coefficients that the observations tell, in the order of `COEFFICIENTS`.

    One after the other, the best told first: a coefficient is told if the observations, those told before it aside, pin it more tightly
    than its prior by `least_information`.
    """
    steps = np.diag([prior.overhead_sd, prior.draft_sd, prior.efficiency_sd])
    before = np.array([error for each in observations for error in _errors(each, prior.engine, 0.0)])
    moves = [[error for each in observations for error in _errors(each, _moved(prior.engine, SMALL * step), 0.0)] for step in steps]
    left = (np.array(moves).T - before[:, None]) / (SMALL * spread)  # [errors, 3], in standard deviations of an error per one of a prior
    told: list[int] = []
    for _ in COEFFICIENTS:
        sizes = np.linalg.norm(left, axis=0)
        best = int(np.argmax(sizes))
        if sizes[best] < coefficient("least_information"):
            break
        told.append(best)
        along = left[:, best] / sizes[best]
        left = left - np.outer(along, along @ left)
    return tuple(COEFFICIENTS[i] for i in sorted(told))


def _moved(engine: EngineCost, x: FloatArray) -> EngineCost:
    return replace(
        engine,
        overhead_s=engine.overhead_s * exp(x[0]),
        draft_scale=engine.draft_scale * exp(x[1]),
        efficiency=engine.efficiency * exp(x[2]),
    )


def _errors(seen: Observation, engine: EngineCost, prefill_slowdown: float) -> list[float]:
    plain_s, speculative_s = step_times(seen.terms, engine)
    ratio = predicted_ratio(seen.terms, engine, tokens_per_step=seen.tokens_per_step, prefill_slowdown=prefill_slowdown)
    pairs = ((ratio, seen.ratio), (plain_s, seen.plain_step_s), (speculative_s, seen.speculative_step_s))
    return [log(said / measured) for said, measured in pairs if measured is not None]
