"""Seconds that drafting adds to a step, by requests that draft.

    head (EAGLE, EAGLE-2, EAGLE-3, MTP)  d0 + K · pass · (1 + B / 256)        pass = latency + reading the head's weights (+ its experts)
    parallel drafter                     d0 + pass of K tokens per request    with the latency of each of its layers
    draft model                          d0 + K · (its own forward of B tokens + launch latency)
    n-gram, suffix                       0.6 % of the verifying forward

d0 is what the engine spends per speculative step whatever drafts; a calibrated engine has its own, and scales the passes. A
head's KV read and a draft model's are charged per token of context, K times. EAGLE-1, EAGLE-2 and MTP read the target's LM head in each
pass, EAGLE-3 its own smaller one; EAGLE-3 fuses the target's features in the first pass only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError
from paceline.forecast.engine_cost import EngineCost
from paceline.forecast.kernels import coefficient, expert_seconds, kv_efficiency, linear_seconds
from paceline.forecast.roofline import Forward, Placement
from paceline.hardware import DraftShape, Dtype, ModelShape
from paceline.speculation.method import Method, Speculation

__all__ = ["Drafting", "drafting"]

FloatArray = npt.NDArray[np.float64]
SHARES_TARGET_HEAD = (Method.EAGLE, Method.EAGLE2, Method.MTP)


@dataclass(frozen=True, slots=True)
class Drafting:
    """Seconds of all K draft passes of one step.

    Attributes:
        draft_s: by requests that draft, shape [max requests + 1]; 0 at 0.
        kv_token_s: per token of context, for all K passes.

    """

    draft_s: FloatArray  # [max requests + 1]
    kv_token_s: float


def drafting(
    speculation: Speculation,
    draft: DraftShape | None,
    *,
    target: ModelShape,
    where: Placement,
    verify: Forward,
    max_requests: int,
    engine: EngineCost,
) -> Drafting:
    """What `speculation` adds to a step of `target` for 0 to `max_requests` requests that draft.

    `verify` is the target's forward, long enough for what `max_requests` requests verify; `engine` what the engine adds.

    Raises:
        BadInputError: the method needs a draft and there is none.

    """
    branches = 1 if speculation.tree is None else speculation.tree.topk
    if not speculation.method.drafts_every_step:
        verified = np.arange(max_requests + 1) * speculation.verified_tokens
        lookup_s = coefficient("lookup_share") * (verify.decoder_s + verify.head_s)[verified]
        return Drafting(draft_s=_none_at_zero(lookup_s), kv_token_s=0.0)
    if draft is None:
        raise BadInputError(f"method {speculation.method.value} drafts with a model; name it (--draft) or give its shape")
    tokens = speculation.draft_tokens if draft.whole_block else branches  # per pass and request
    drafted = tokens * np.arange(max_requests + 1, dtype=np.float64)
    several = "_tp_s" if where.gpus > 1 else "_s"
    if speculation.method is Method.DRAFT_MODEL:
        pass_s = _draft_model_pass(draft, where, drafted)
    else:
        pass_s = _head_pass(speculation.method, draft, target, where, drafted, several=several)
    kv_bytes = draft.kv_elements_per_token * coefficient("kv_bytes_per_element") / where.gpus
    kv_token_s = kv_bytes / (where.gpu.bandwidth_bytes_per_s * kv_efficiency(where.gpu))
    first_s = engine.draft_scale * _read_seconds(draft.once_parameters, where)
    passes = engine.draft_scale * (1 if draft.whole_block else speculation.draft_tokens)
    return Drafting(draft_s=_none_at_zero(engine.overhead_s + first_s + passes * pass_s), kv_token_s=passes * kv_token_s)


def _head_pass(method: Method, draft: DraftShape, target: ModelShape, where: Placement, drafted: FloatArray, *, several: str) -> FloatArray:
    weights = draft.pass_parameters + (target.head_parameters if method in SHARES_TARGET_HEAD else 0)
    layers = coefficient("block_draft_layers") if draft.whole_block else 1.0
    latency_s = layers * coefficient(f"head_pass_latency{several}")
    read_s = _read_seconds(weights, where)
    fixed_s = np.asarray((latency_s + read_s) * (1 + drafted / coefficient("draft_pass_requests")))
    return fixed_s + _draft_experts(draft, where, drafted)


def _read_seconds(weights: int, where: Placement) -> float:
    """Seconds in which the GPUs read so many bf16 weights once."""
    if weights == 0:
        return 0.0
    return float(linear_seconds(weights=weights / where.gpus, tokens=np.ones(1), gpu=where.gpu, dtype=Dtype.BF16)[0])


def _draft_experts(draft: DraftShape, where: Placement, drafted: FloatArray) -> FloatArray:
    """Seconds of the draft's own routed experts; 0 without. They are stored as the target's are."""
    if draft.routed is None:
        return np.zeros_like(drafted)
    tokens = np.maximum(1.0, drafted)
    return draft.expert_layers * expert_seconds(
        draft.routed, tokens=tokens, per_request=1, gpu=where.gpu, gpus=where.gpus, dtype=where.dtype
    )


def _draft_model_pass(draft: DraftShape, where: Placement, drafted: FloatArray) -> FloatArray:
    tokens = np.maximum(1.0, drafted)
    kernels_s = linear_seconds(weights=draft.pass_parameters / where.gpus, tokens=tokens, gpu=where.gpu, dtype=Dtype.BF16)
    return kernels_s + _draft_experts(draft, where, drafted) + coefficient("draft_model_pass_latency_s")


def _none_at_zero(seconds: FloatArray) -> FloatArray:
    return np.concatenate((np.zeros(1), seconds[1:]))
