"""What drafting would buy at each concurrency: step-time ratio, tokens per step, speed-up, break-even, best draft length.

    ρ = seconds per speculative step / seconds per plain step      at equal batch and context, over all steps
    S = E / ρ                                                      never above E, because ρ is never below 1
    α_be = (ρ − 1) / (coverage · drafted tokens per drafted step)

A batch of B requests of which each drafts with probability `coverage` has a binomial number of drafts in a step, and its seconds are the
mean over that number. A lookup that finds nothing still costs the lookup.

The range of ρ is an 80 % one of the error that forecasts of published points have (`engine_cost.published_error`), wider where a roofline
stands in for the GPU's kernels, for a mixture of experts, and for each warning; `n` is 0, for nothing of it was measured on this server.
With a calibration the range is that of its own fit where the ratio was measured, and grows with the distance from there back to the
published error; `n` is its points.

The range of S holds that of ρ and that of the acceptance that was given: they err independently, so their distances from the middle are
added in squares on the log scale. The steps themselves are priced at the middle's coverage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, hypot, log

from paceline.errors import BadInputError
from paceline.forecast.acceptance_model import RangedAcceptance, extrapolated
from paceline.forecast.calibrate import Calibration
from paceline.forecast.draft_memory import memory
from paceline.forecast.engine_cost import published_error, uncalibrated
from paceline.forecast.kernels import captured_tokens, coefficient, has_measured_kernels
from paceline.forecast.roofline import Forward, Placement, at_arithmetic, forward, placed, slowed
from paceline.forecast.step_cost import StepCost, prefill_seconds, step_cost, step_seconds
from paceline.hardware import DraftShape, ModelShape
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Speculation
from paceline.verdict import Estimate

__all__ = ["Bound", "ForecastRow", "Lengths", "forecast"]

STATED_CONFIDENCE = 0.8
MOST_REQUESTS = 4096
MOST_DRAFT_TOKENS = 64
LEAST_DRAFTED_TOKENS = 1e-9  # per step; with fewer a break-even has no finite value
MOST_TOKENS = 1_000_000


class Bound(StrEnum):
    """The largest term of the speculative step."""

    MEMORY = "memory"
    EXPERTS = "experts"
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True)
class Lengths:
    """What a typical request looks like: tokens in the prompt, in the output, and of context that a decode step sees."""

    prompt_tokens: int
    output_tokens: int
    context_tokens: int

    def __post_init__(self) -> None:
        """Reject lengths outside 1 to a million tokens.

        Raises:
            BadInputError: with the value.

        """
        for name in ("prompt_tokens", "output_tokens", "context_tokens"):
            if not 1 <= getattr(self, name) <= MOST_TOKENS:
                raise BadInputError(f"{name} = {getattr(self, name)!r} is not between 1 and {MOST_TOKENS}")


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """The forecast at one concurrency.

    Attributes:
        concurrency: requests that decode together.
        context_tokens: context of each.
        step_time_ratio: ρ.
        tokens_per_step: E, the middle of the acceptance that was given.
        speedup: S of decoding alone.
        break_even_alpha: α at which S = 1; above 1 no α pays; None where nothing is ever drafted,
            and for a tree, whose α compares with no other shape's.
        best_draft_tokens: the draft length among those asked for with the largest S; the smaller one of equals. None for a tree.
            Acceptance at a K longer than the stated one is modelled (`forecast.acceptance_model`).
        best_speedup: S at that length, None for a tree.
        bound: the largest term of the speculative step.
        prefill_share: share of a plain request's time that goes into prefill, its own and the other requests'.
        end_to_end_speedup: speed-up of whole requests, prefill included.
        requests_that_fit: requests of that context whose KV cache fits beside target and draft.
        plain_step_s: seconds per plain step.
        speculative_step_s: seconds per speculative step.
        warnings: where the answer goes past what was measured, captured or calibrated; the ranges are wider there.

    """

    concurrency: int
    context_tokens: int
    step_time_ratio: Estimate
    tokens_per_step: float
    speedup: Estimate
    break_even_alpha: Estimate | None
    best_draft_tokens: int | None
    best_speedup: float | None
    bound: Bound
    prefill_share: float
    end_to_end_speedup: Estimate
    requests_that_fit: int
    plain_step_s: float
    speculative_step_s: float
    warnings: tuple[str, ...] = ()


def forecast(
    *,
    target: ModelShape,
    where: Placement,
    speculation: Speculation,
    draft: DraftShape | None,
    acceptance: RangedAcceptance,
    concurrencies: Sequence[int],
    lengths: Lengths,
    draft_lengths: Sequence[int],
    utilisation: float,
    calibration: Calibration | None = None,
) -> tuple[ForecastRow, ...]:
    """What `speculation` would buy at each of `concurrencies`, one row each, in the order given.

    `draft_lengths` are the K that compete for the best one (none does against a tree); `utilisation` is the share of GPU memory the engine
    may use; `calibration` replaces the packaged engine coefficients and sets the range.

    Raises:
        BadInputError: the target does not fit; the acceptance is for another K; or a concurrency or length is out of range.

    """
    _need_consistent(speculation, acceptance.value, concurrencies, draft_lengths)
    room = memory(
        target=target,
        draft=draft,
        speculation=speculation,
        where=placed(target, gpu=where.gpu, gpus=where.gpus, dtype=where.dtype),
        context_tokens=lengths.context_tokens,
        utilisation=utilisation,
    )
    priced = _priced(
        target, where, speculation, draft, draft_lengths, most_requests=max(concurrencies), lengths=lengths, calibration=calibration
    )
    return tuple(_row(requests, priced, acceptance, lengths, fit=room.speculative_requests) for requests in concurrencies)


def _need_consistent(speculation: Speculation, acceptance: Acceptance, concurrencies: Sequence[int], draft_lengths: Sequence[int]) -> None:
    if acceptance.draft_tokens != speculation.draft_tokens:
        raise BadInputError(
            f"acceptance is stated for draft length {acceptance.draft_tokens}, but speculation drafts {speculation.draft_tokens} tokens"
        )
    if not concurrencies or not draft_lengths:
        raise BadInputError("no concurrency, or no draft length to compare; give at least one of each")
    for name, values, most in (("concurrency", concurrencies, MOST_REQUESTS), ("draft length", draft_lengths, MOST_DRAFT_TOKENS)):
        for value in values:
            if not 1 <= value <= most:
                raise BadInputError(f"{name} {value!r} is not between 1 and {most}")


@dataclass(frozen=True, slots=True)
class _Priced:
    """Everything a row is computed from: the plain step, ours, those of the lengths that compete, and the target's terms."""

    target: ModelShape
    where: Placement
    speculation: Speculation
    calibration: Calibration | None
    plain: StepCost
    ours: StepCost
    competing: Mapping[Speculation, StepCost]
    terms: Forward
    draft_prefill_share: float  # of the target's prefill


def _priced(
    target: ModelShape,
    where: Placement,
    speculation: Speculation,
    draft: DraftShape | None,
    draft_lengths: Sequence[int],
    *,
    most_requests: int,
    lengths: Lengths,
    calibration: Calibration | None,
) -> _Priced:
    def cost(each: Speculation | None) -> StepCost:
        verified = 1 if each is None else each.verified_tokens
        return step_cost(
            target=target,
            gpu=where.gpu,
            gpus=where.gpus,
            dtype=where.dtype,
            speculation=each,
            draft=draft,
            max_tokens=most_requests * verified + (lengths.prompt_tokens if each is None else 0),
            max_requests=most_requests,
            engine=engine,
        )

    engine = uncalibrated(where.gpus) if calibration is None else calibration.engine
    reached = replace(where, gpu=at_arithmetic(where.gpu, engine.arithmetic))
    terms = forward(target, reached, max_tokens=most_requests * speculation.verified_tokens, per_request=speculation.verified_tokens)
    rivals = () if speculation.tree is not None else tuple(Speculation(speculation.method, K, None) for K in sorted(set(draft_lengths)))
    return _Priced(
        target=target,
        where=where,
        speculation=speculation,
        calibration=calibration,
        plain=cost(None),
        ours=cost(speculation),
        competing={each: cost(each) for each in rivals},
        terms=slowed(terms, efficiency=engine.efficiency),
        draft_prefill_share=0.0
        if draft is None
        else draft.active_parameters / (target.active_parameters - target.parameters + target.decoder_parameters),
    )


def _row(requests: int, priced: _Priced, given: RangedAcceptance, lengths: Lengths, *, fit: int) -> ForecastRow:
    context, acceptance, tokens = lengths.context_tokens, given.value, given.tokens_per_step
    coverage = acceptance.coverage

    def seconds(cost: StepCost, speculation: Speculation | None) -> float:
        return step_seconds(cost, requests=requests, context_tokens=context, speculation=speculation, coverage=coverage)

    plain_s, speculative_s = seconds(priced.plain, None), seconds(priced.ours, priced.speculation)
    warnings = _warnings(requests, priced)
    ratio = _ratio(speculative_s / plain_s, priced, requests=requests, warnings=len(warnings))
    if priced.calibration is not None:
        warnings += priced.calibration.extrapolations(requests=requests, draft_tokens=priced.speculation.draft_tokens)
    drafted = coverage * (priced.speculation.verified_tokens - 1)
    speedups = {each.draft_tokens: _modelled(acceptance, each) * plain_s / seconds(cost, each) for each, cost in priced.competing.items()}
    best = max(speedups, key=lambda K: speedups[K], default=None)
    prefill_s = prefill_seconds(priced.plain, requests=requests, prompt_tokens=lengths.prompt_tokens)
    decode_s = (lengths.output_tokens - 1) * plain_s
    drafted_prefill_s = prefill_s * (1 + priced.draft_prefill_share)
    return ForecastRow(
        concurrency=requests,
        context_tokens=context,
        step_time_ratio=ratio,
        tokens_per_step=tokens.value,
        speedup=_joined(ratio, tokens, lambda r, E: E / r),
        break_even_alpha=None if drafted < LEAST_DRAFTED_TOKENS or priced.speculation.tree else _mapped(ratio, lambda r: (r - 1) / drafted),
        best_draft_tokens=best,
        best_speedup=None if best is None else speedups[best],
        bound=_bound(requests, priced, context_tokens=context),
        prefill_share=prefill_s / (prefill_s + decode_s),
        end_to_end_speedup=_joined(ratio, tokens, lambda r, E: (prefill_s + decode_s) / (drafted_prefill_s + decode_s * r / E)),
        requests_that_fit=fit,
        plain_step_s=plain_s,
        speculative_step_s=speculative_s,
        warnings=warnings,
    )


def _modelled(acceptance: Acceptance, speculation: Speculation) -> float:
    """Tokens per step at a length that competes."""
    return extrapolated(acceptance, draft_tokens=speculation.draft_tokens, method=speculation.method).value.tokens_per_step


def _warnings(requests: int, priced: _Priced) -> tuple[str, ...]:
    """Where the step at this concurrency goes past what servers capture or what was measured."""
    found, verified = [], requests * priced.speculation.verified_tokens
    captured, measured = captured_tokens(priced.where.gpu), int(coefficient("measured_tokens"))
    if verified > captured:
        found.append(f"verifies {verified} tokens in a step, past the {captured} that servers capture in CUDA graphs: it runs eagerly")
    if verified > measured:
        found.append(f"verifies {verified} tokens in a step, past the {measured} that kernels were measured at: time taken in proportion")
    return tuple(found)


def _ratio(value: float, priced: _Priced, *, requests: int, warnings: int) -> Estimate:
    """ρ with its range; `warnings` are those of the step itself."""
    published, calibration = _published_error(priced), priced.calibration
    if calibration is None:
        half = coefficient("range_sd") * published * coefficient("extrapolation_widening") ** warnings
    else:
        K = priced.speculation.draft_tokens
        half = calibration.half_width(requests=requests, draft_tokens=K, published_error=published, warnings=warnings)
    width = exp(half)
    return Estimate(
        value=max(1.0, value),
        low=max(1.0, value / width),
        high=max(1.0, value * width),
        confidence=STATED_CONFIDENCE,
        n=0 if calibration is None else calibration.n,
    )


def _published_error(priced: _Priced) -> float:
    """Of ln ρ without a calibration, larger where kernels or routing are not measured."""
    measured = has_measured_kernels(priced.where.gpu, priced.where.dtype)
    widening = 1.0 if measured else coefficient("roofline_widening")
    return published_error() * widening * (1.0 if priced.target.experts is None else coefficient("experts_widening"))


def _mapped(ratio: Estimate, function: Callable[[float], float]) -> Estimate:
    """A monotone function of ρ with its range."""
    assert ratio.low is not None
    assert ratio.high is not None
    ends = sorted((function(ratio.low), function(ratio.high)))
    return Estimate(value=function(ratio.value), low=ends[0], high=ends[1], confidence=ratio.confidence, n=ratio.n)


def _joined(ratio: Estimate, tokens: Estimate, function: Callable[[float, float], float]) -> Estimate:
    """A function of ρ, which falls with it, and of E, which it rises with, above 0; with the ranges of both."""
    by_ratio = _mapped(ratio, lambda r: function(r, tokens.value))
    by_tokens = _mapped(tokens, lambda E: function(ratio.value, E))
    low, high = (_farther(by_ratio.value, getattr(by_ratio, end), getattr(by_tokens, end)) for end in ("low", "high"))
    return replace(by_ratio, low=low, high=high)


def _farther(value: float, one: float, other: float) -> float:
    """The end on one side of `value` that two independent causes reach together, which alone reach `one` and `other`."""
    if value in (one, other):
        return other if one == value else one
    distance = hypot(log(one / value), log(other / value))
    return value * exp(distance if one > value else -distance)


def _bound(requests: int, priced: _Priced, *, context_tokens: int) -> Bound:
    terms, verified = priced.terms, requests * priced.speculation.verified_tokens
    whole_s = step_seconds(priced.ours, requests=requests, context_tokens=context_tokens, speculation=priced.speculation, coverage=1.0)
    memory_s = float(terms.linears_s[1] + terms.head_s[1]) + requests * context_tokens * priced.ours.kv_token_s
    compute_s = float(terms.linears_s[verified] + terms.head_s[verified]) - float(terms.linears_s[1] + terms.head_s[1])
    communication_s = float(terms.all_reduces_s[verified])
    experts_s = float(terms.experts_s[verified])
    by_term = {
        Bound.MEMORY: memory_s,
        Bound.EXPERTS: experts_s,
        Bound.COMPUTE: compute_s,
        Bound.COMMUNICATION: communication_s,
        Bound.OVERHEAD: whole_s - memory_s - compute_s - communication_s - experts_s,  # engine, speculation and draft passes
    }
    return max(by_term, key=lambda term: by_term[term])
