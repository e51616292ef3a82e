"""Seconds of one engine step, as arrays a simulator can index.

step seconds = token_s[tokens in the step]                      linears, experts, all-reduces, LM head and engine overhead
             + kv_token_s · (KV tokens read, once per request)
             + prefill_attention_s · Σ over prefill chunks (chunk tokens · context tokens)
             + draft_s[requests in the step that draft]          all K draft passes and what speculation adds per step

Only sampled rows go through the LM head: each decoding request's, and with drafts each verified token's. `token_s` holds the head for as
many rows as tokens, at most one per request; `draft_s` holds the rest.
"""

from dataclasses import dataclass
from math import lgamma

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError
from paceline.forecast.drafting import drafting
from paceline.forecast.engine_cost import EngineCost, uncalibrated
from paceline.forecast.kernels import coefficient
from paceline.forecast.roofline import at_arithmetic, forward, placed, slowed
from paceline.hardware import DraftShape, Dtype, Gpu, ModelShape
from paceline.speculation.method import Speculation

__all__ = ["StepCost", "beside_seconds", "prefill_seconds", "step_cost", "step_seconds"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step costs on one replica.

    Attributes:
        token_s: seconds by tokens in the step (decode, verified drafts and prefill together), shape [max tokens + 1]; token_s[0] = 0.
        kv_token_s: seconds per KV token read.
        prefill_attention_s: seconds per prefill token and context token.
        draft_s: seconds by requests that draft in the step, shape [max requests + 1]; draft_s[0] = 0. All zeros without drafts.

    """

    token_s: FloatArray  # [max tokens + 1]
    kv_token_s: float
    prefill_attention_s: float
    draft_s: FloatArray  # [max requests + 1]


def step_cost(
    *,
    target: ModelShape,
    gpu: Gpu,
    gpus: int,
    dtype: Dtype,
    speculation: Speculation | None,
    draft: DraftShape | None,
    max_tokens: int,
    max_requests: int,
    engine: EngineCost | None = None,
) -> StepCost:
    """What a step of `target` costs on `gpus` GPUs, with `speculation` or (None) without.

    With a draft that keeps its own KV cache `kv_token_s` includes the draft's K reads per step. A step of `requests` that all draft holds
    requests · verified tokens; give `max_tokens` room for that. `engine` is a calibrated triple; None takes the packaged coefficients.

    Raises:
        BadInputError: the target cannot be placed so, a draft is missing, or max_tokens or max_requests is below 1.

    """
    if max_requests < 1:
        raise BadInputError(f"max_requests = {max_requests!r} is below 1")
    added_by_engine = uncalibrated(gpus) if engine is None else engine
    where = placed(target, gpu=at_arithmetic(gpu, added_by_engine.arithmetic), gpus=gpus, dtype=dtype)
    verified = 1 if speculation is None else speculation.verified_tokens
    as_measured = forward(target, where, max_tokens=max(max_tokens, max_requests * verified), per_request=verified)
    verify = slowed(as_measured, efficiency=added_by_engine.efficiency)
    rows = np.minimum(np.arange(max_tokens + 1), max_requests)
    token_s = verify.decoder_s[: max_tokens + 1] + verify.head_s[rows] + verify.overhead_s
    token_s = token_s + 2 * rows * verify.state_s
    token_s[0] = 0.0
    draft_s, kv_token_s = np.zeros(max_requests + 1), verify.kv_token_s(verified)
    if speculation is not None:
        added = drafting(speculation, draft, target=target, where=where, verify=verify, max_requests=max_requests, engine=added_by_engine)
        sampled = np.arange(max_requests + 1) * verified
        beyond_rows_s = verify.head_s[sampled] - verify.head_s[np.minimum(sampled, max_requests)]
        rewritten = sampled + np.arange(max_requests + 1) - 2 * np.minimum(sampled, max_requests)  # states moved beyond those of `rows`
        draft_s = added.draft_s + beyond_rows_s + rewritten * verify.state_s
        kv_token_s += added.kv_token_s
    return StepCost(token_s=token_s, kv_token_s=kv_token_s, prefill_attention_s=verify.prefill_attention_s, draft_s=draft_s)


def step_seconds(cost: StepCost, *, requests: int, context_tokens: int, speculation: Speculation | None, coverage: float) -> float:
    """Mean seconds of one decode step of `requests` requests, each drafting with probability `coverage` (unused without speculation).

    The number of requests that draft in a step is binomial. A lookup that finds nothing still costs the lookup.
    """
    read_s = requests * context_tokens * cost.kv_token_s
    if speculation is None:
        return float(cost.token_s[requests]) + read_s
    drafting_requests = np.arange(requests + 1)
    seconds = cost.token_s[requests + drafting_requests * (speculation.verified_tokens - 1)] + cost.draft_s[drafting_requests]
    if not speculation.method.drafts_every_step:
        seconds = seconds + coefficient("lookup_share") * cost.token_s[requests] * (1 - drafting_requests / requests)
    return float(_binomial(requests, coverage) @ seconds) + read_s


def prefill_seconds(plain: StepCost, *, requests: int, prompt_tokens: int) -> float:
    """Seconds of a request's life that go into prefill with `requests` in flight: its own prompt alone, the others' beside decoding."""
    own_s = beside_seconds(plain, tokens=0, prompt_tokens=prompt_tokens)
    return own_s + (requests - 1) * beside_seconds(plain, tokens=requests, prompt_tokens=prompt_tokens)


def beside_seconds(cost: StepCost, *, tokens: int, prompt_tokens: int) -> float:
    """Seconds that the prefill of one prompt adds to a step that holds `tokens` tokens without it, 0 for a step of its own."""
    attention_s = cost.prefill_attention_s * prompt_tokens * prompt_tokens / 2  # causal: half of the square
    return float(cost.token_s[tokens + prompt_tokens] - cost.token_s[tokens]) + attention_s


def _binomial(n: int, probability: float) -> FloatArray:
    """P(k of n) for k = 0..n, shape [n + 1]."""
    k = np.arange(n + 1, dtype=np.float64)
    if probability in (0.0, 1.0):
        return np.asarray(k == n * probability, dtype=np.float64)
    log_factorial = np.array([lgamma(i + 1) for i in range(n + 1)])
    logs = log_factorial[n] - log_factorial - log_factorial[::-1] + k * np.log(probability) + (n - k) * np.log1p(-probability)
    mass = np.exp(logs)
    return np.asarray(mass / mass.sum())
