"""Seconds of the target's forward, term by term, so that one can say which term binds.

    forward(N tokens) = linears(N) + experts(N) + all-reduces(N) + LM head + engine overhead       + KV read per token of context

A step of more tokens than servers capture in CUDA graphs is launched kernel by kernel: it takes at least `eager_layer_s` per layer.

Attention reads each request's keys and values once for all its verified tokens; where their arithmetic takes longer than that read (latent
attention works near the ridge with one token already) the arithmetic binds, and grows with the verified tokens. A recurrent state is read
once per request and written once per verified token, because a rejection has to go back to it, at a small share of the bandwidth.

The weights' dtype prices the linears; the LM head and the KV cache stay bf16, and so does a mixture of experts in fp4 beside its routed
experts. Tensor parallelism splits weights, head and KV heads (a KV
head is not split but copied, where there are more GPUs than KV heads) and adds two all-reduces per layer.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, printable
from paceline.forecast.kernels import (
    MOST_GPUS,
    all_reduce_seconds,
    captured_tokens,
    coefficient,
    expert_seconds,
    kv_efficiency,
    linear_seconds,
)
from paceline.hardware import Dtype, Gpu, ModelShape

__all__ = ["Forward", "Placement", "at_arithmetic", "fixed_dtype", "forward", "kv_bytes_per_token", "layer_weights", "placed", "slowed"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model runs: `gpus` GPUs of kind `gpu`, tensor parallel, weights stored in `dtype`."""

    gpu: Gpu
    gpus: int
    dtype: Dtype


@dataclass(frozen=True, slots=True)
class Forward:
    """Seconds of one forward of the target, by term; arrays by tokens in the forward, shape [max tokens + 1], index 0 unused.

    Attributes:
        linears_s: the decoder's matrix products, what waits for launches included; routed experts left out.
        experts_s: routed experts, all layers; zeros for a dense model.
        all_reduces_s: two per layer; zeros on one GPU.
        head_s: the LM head for as many rows.
        overhead_s: the engine, per step.
        kv_read_s: reading one token of KV cache, all layers.
        attention_s: arithmetic of attention per query token and token of context, all layers.
        state_s: moving one request's recurrent state once, all linear-attention layers; 0 without such layers.
        prefill_attention_s: per prefill token and context token.

    """

    linears_s: FloatArray  # [max tokens + 1]
    experts_s: FloatArray  # [max tokens + 1]
    all_reduces_s: FloatArray  # [max tokens + 1]
    head_s: FloatArray  # [max tokens + 1]
    overhead_s: float
    kv_read_s: float
    attention_s: float
    state_s: float
    prefill_attention_s: float

    @property
    def decoder_s(self) -> FloatArray:
        """Linears, experts and all-reduces together, shape [max tokens + 1]."""
        return self.linears_s + self.experts_s + self.all_reduces_s

    def kv_token_s(self, query_tokens: int) -> float:
        """Attention per token of context where `query_tokens` are verified: one read, or the arithmetic if that is longer."""
        return max(self.kv_read_s, query_tokens * self.attention_s)


def placed(target: ModelShape, *, gpu: Gpu, gpus: int, dtype: Dtype) -> Placement:
    """The placement, checked.

    Raises:
        BadInputError: the GPUs do not divide the heads, are none or too many, or the GPU does not compute in the dtype.

    """
    if not 1 <= gpus <= MOST_GPUS:
        raise BadInputError(
            f"{gpus!r} GPUs: tensor parallelism is priced for 1 to {MOST_GPUS} GPUs of one node; several nodes are not, so take a "
            "larger GPU or a smaller dtype"
        )
    if target.heads % gpus:
        raise BadInputError(f"{printable(target.name)} has {target.heads} attention heads, which {gpus} GPUs do not divide")
    gpu.peak_flops_per_s(dtype)
    return Placement(gpu=gpu, gpus=gpus, dtype=dtype)


def at_arithmetic(gpu: Gpu, share: float) -> Gpu:
    """The same GPU where multiplications run at `share` of its peak; what it was measured at stays."""
    return gpu if share == 1 else replace(gpu, flops_per_s={dtype: share * peak for dtype, peak in gpu.flops_per_s.items()})


def layer_weights(model: ModelShape) -> int:
    """Weights of all decoder layers that every forward reads; norms and routed experts left out."""
    return model.fixed_decoder_parameters - 2 * model.layers * model.hidden


def fixed_dtype(target: ModelShape, dtype: Dtype) -> Dtype:
    """What the decoder's weights that are no routed experts are stored in, where the checkpoint is `dtype`.

    A mixture of experts in fp4 keeps all but its routed experts in bf16. Source: total size of Qwen3.8-2.4T-A95B in NVFP4, 1447 GB
    (vllm-project/recipes @31dd9a4), which is 2370 billion expert weights in fp4 and the rest in bf16; gpt-oss in MXFP4 likewise.
    """
    return Dtype.BF16 if dtype is Dtype.FP4 and target.routed is not None else dtype


def kv_bytes_per_token(kv_elements: int, *, kv_heads: int, gpus: int) -> float:
    """Bytes of KV cache per token on each GPU; a KV head is copied where the GPUs are more than the KV heads."""
    return kv_elements * coefficient("kv_bytes_per_element") / min(gpus, kv_heads)


def slowed(terms: Forward, *, efficiency: float) -> Forward:
    """The same forward where kernels reach only `efficiency` of the speed they were measured at; the engine's overhead stays."""
    return Forward(
        linears_s=terms.linears_s / efficiency,
        experts_s=terms.experts_s / efficiency,
        all_reduces_s=terms.all_reduces_s / efficiency,
        head_s=terms.head_s / efficiency,
        overhead_s=terms.overhead_s,
        kv_read_s=terms.kv_read_s / efficiency,
        attention_s=terms.attention_s / efficiency,
        state_s=terms.state_s / efficiency,
        prefill_attention_s=terms.prefill_attention_s / efficiency,
    )


def forward(target: ModelShape, where: Placement, *, max_tokens: int, per_request: int) -> Forward:
    """What a forward of `target` costs for 0 to `max_tokens` tokens, of which each request verifies `per_request`.

    Raises:
        BadInputError: max_tokens below 1.

    """
    if max_tokens < 1:
        raise BadInputError(f"max_tokens = {max_tokens!r} is below 1")
    tokens = np.maximum(1.0, np.arange(max_tokens + 1, dtype=np.float64))
    gpu, gpus = where.gpu, where.gpus
    reduce_s = all_reduce_seconds(elements=tokens * target.hidden, gpu=gpu, gpus=gpus)
    kv_bytes = kv_bytes_per_token(target.kv_elements_per_token, kv_heads=target.kv_heads, gpus=gpus)
    peak = gpus * gpu.peak_flops_per_s(Dtype.BF16)
    state_bytes = target.state_elements * coefficient("state_bytes_per_element") / gpus
    linears_s = linear_seconds(weights=layer_weights(target) / gpus, tokens=tokens, gpu=gpu, dtype=fixed_dtype(target, where.dtype))
    routed = target.routed
    experts_s = np.zeros_like(tokens)
    if routed is not None:
        experts_s = target.expert_layers * expert_seconds(
            routed, tokens=tokens, per_request=per_request, gpu=gpu, gpus=gpus, dtype=where.dtype
        )
    launches_s = np.where(tokens > captured_tokens(gpu), target.layers * coefficient("eager_layer_s"), 0.0)
    return Forward(
        linears_s=np.maximum(linears_s, launches_s - experts_s - 2 * target.layers * reduce_s),
        experts_s=experts_s,
        all_reduces_s=2 * target.layers * reduce_s,
        head_s=linear_seconds(weights=target.head_parameters / gpus, tokens=tokens, gpu=gpu, dtype=Dtype.BF16),
        overhead_s=coefficient("engine_overhead_s" if gpus == 1 else "engine_overhead_tp_s"),
        kv_read_s=kv_bytes / (gpu.bandwidth_bytes_per_s * kv_efficiency(gpu)),
        attention_s=target.attention_flops / (peak * coefficient("decode_attention_efficiency")),
        state_s=state_bytes / (gpu.bandwidth_bytes_per_s * coefficient("state_efficiency")),
        prefill_attention_s=target.prefill_attention_flops / (peak * coefficient("prefill_attention_efficiency")),
    )
