"""Seconds that drafting adds to a step, by requests that draft.

    head (EAGLE, EAGLE-2, EAGLE-3, MTP)  d0 + K · pass · (1 + B / 256)        pass = latency + reading the head's weights
    draft model                          d0 + K · (its own forward of B tokens + launch latency)
    n-gram, suffix                       0.6 % of the verifying forward

d0 is what the engine spends per speculative step whatever drafts. A head's KV read and a draft model's are charged per token of context,
K times. EAGLE-1, EAGLE-2 and MTP read the target's LM head in each pass, EAGLE-3 its own smaller one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError
from paceline.forecast.kernels import coefficient, kv_efficiency, linear_seconds
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
    speculation: Speculation, draft: DraftShape | None, *, target: ModelShape, where: Placement, verify: Forward, max_requests: int
) -> Drafting:
    """What `speculation` adds to a step of `target` for 0 to `max_requests` requests that draft.

    `verify` is the target's forward, long enough for what `max_requests` requests verify.

    Raises:
        BadInputError: the method needs a draft and there is none.

    """
    branches = 1 if speculation.tree is None else speculation.tree.topk
    if not speculation.method.drafts_every_step:
        verified = np.arange(max_requests + 1) * speculation.verified_tokens
        lookup_s = coefficient("lookup_share") * (verify.linears_s + verify.all_reduces_s + verify.head_s)[verified]
        return Drafting(draft_s=_none_at_zero(lookup_s), kv_token_s=0.0)
    if draft is None:
        raise BadInputError(f"method {speculation.method.value} drafts with a model; name it (--draft) or give its shape")
    drafted = branches * np.arange(max_requests + 1, dtype=np.float64)  # tokens per pass
    several = "_tp_s" if where.gpus > 1 else "_s"
    if speculation.method is Method.DRAFT_MODEL:
        pass_s = _draft_model_pass(draft, where, drafted)
    else:
        pass_s = _head_pass(speculation.method, draft, target, where, drafted, several=several)
    once_s = coefficient(f"speculation_overhead{several}")
    kv_bytes = draft.kv_elements_per_token * coefficient("kv_bytes_per_element") / where.gpus
    kv_token_s = kv_bytes / (where.gpu.bandwidth_bytes_per_s * kv_efficiency(where.gpu))
    passes = speculation.draft_tokens
    return Drafting(draft_s=_none_at_zero(once_s + passes * pass_s), kv_token_s=passes * kv_token_s)


def _head_pass(method: Method, draft: DraftShape, target: ModelShape, where: Placement, drafted: FloatArray, *, several: str) -> FloatArray:
    shared = method in SHARES_TARGET_HEAD
    weights = draft.parameters + (target.head_parameters if shared else 0)
    latency_s = coefficient(f"{'shared_head' if shared else 'draft'}_pass_latency{several}")
    read_s = linear_seconds(weights=weights / where.gpus, tokens=np.ones(1), gpu=where.gpu, dtype=Dtype.BF16)[0]
    return np.asarray((latency_s + read_s) * (1 + drafted / coefficient("draft_pass_requests")))


def _draft_model_pass(draft: DraftShape, where: Placement, drafted: FloatArray) -> FloatArray:
    tokens = np.maximum(1.0, drafted)
    kernels_s = linear_seconds(weights=draft.parameters / where.gpus, tokens=tokens, gpu=where.gpu, dtype=Dtype.BF16)
    return kernels_s + coefficient("draft_model_pass_latency_s")


def _none_at_zero(seconds: FloatArray) -> FloatArray:
    return np.concatenate((np.zeros(1), seconds[1:]))
