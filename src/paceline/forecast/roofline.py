"""Seconds of the target's forward, term by term, so that one can say which term binds.

    forward(N tokens) = linears(N) + all-reduces(N) + LM head + engine overhead        + KV read per token of context

The weights' dtype prices the linears; the LM head and the KV cache stay bf16. Tensor parallelism splits weights, head and KV heads (a KV
head is not split but copied, where there are more GPUs than KV heads) and adds two all-reduces per layer.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, printable
from paceline.forecast.kernels import MOST_GPUS, all_reduce_seconds, coefficient, kv_efficiency, linear_seconds
from paceline.hardware import Dtype, Gpu, ModelShape

__all__ = ["Forward", "Placement", "forward", "kv_bytes_per_token", "layer_weights", "placed"]

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
        linears_s: the decoder's matrix products.
        all_reduces_s: two per layer; zeros on one GPU.
        head_s: the LM head for as many rows.
        overhead_s: the engine, per step.
        kv_token_s: reading one token of KV cache, all layers.
        prefill_attention_s: per prefill token and context token.

    """

    linears_s: FloatArray  # [max tokens + 1]
    all_reduces_s: FloatArray  # [max tokens + 1]
    head_s: FloatArray  # [max tokens + 1]
    overhead_s: float
    kv_token_s: float
    prefill_attention_s: float


def placed(target: ModelShape, *, gpu: Gpu, gpus: int, dtype: Dtype) -> Placement:
    """The placement, checked.

    Raises:
        BadInputError: the GPUs do not divide the heads, are none or too many, or the GPU does not compute in the dtype.

    """
    if not 1 <= gpus <= MOST_GPUS:
        raise BadInputError(f"{gpus!r} GPUs: tensor parallelism is priced for 1 to {MOST_GPUS} GPUs of one node")
    if target.heads % gpus:
        raise BadInputError(f"{printable(target.name)} has {target.heads} attention heads, which {gpus} GPUs do not divide")
    gpu.peak_flops_per_s(dtype)
    return Placement(gpu=gpu, gpus=gpus, dtype=dtype)


def layer_weights(model: ModelShape) -> int:
    """Weights of all decoder layers that every forward reads; norms left out."""
    return model.layers * (model.layer_parameters - 2 * model.hidden)


def kv_bytes_per_token(kv_elements: int, *, kv_heads: int, gpus: int) -> float:
    """Bytes of KV cache per token on each GPU; a KV head is copied where the GPUs are more than the KV heads."""
    return kv_elements * coefficient("kv_bytes_per_element") / min(gpus, kv_heads)


def forward(target: ModelShape, where: Placement, *, max_tokens: int) -> Forward:
    """What a forward of `target` costs for 0 to `max_tokens` tokens.

    Raises:
        BadInputError: max_tokens below 1.

    """
    if max_tokens < 1:
        raise BadInputError(f"max_tokens = {max_tokens!r} is below 1")
    tokens = np.maximum(1.0, np.arange(max_tokens + 1, dtype=np.float64))
    gpu, gpus = where.gpu, where.gpus
    reduce_s = all_reduce_seconds(elements=tokens * target.hidden, gpu=gpu, gpus=gpus)
    kv_bytes = kv_bytes_per_token(target.kv_elements_per_token, kv_heads=target.kv_heads, gpus=gpus)
    # one multiplication and addition each for query times key and weight times value
    attention_flops = 4 * target.layers * target.heads * target.head_dim / gpus
    return Forward(
        linears_s=linear_seconds(weights=layer_weights(target) / gpus, tokens=tokens, gpu=gpu, dtype=where.dtype),
        all_reduces_s=2 * target.layers * reduce_s,
        head_s=linear_seconds(weights=target.head_parameters / gpus, tokens=tokens, gpu=gpu, dtype=Dtype.BF16),
        overhead_s=coefficient("engine_overhead_s" if gpus == 1 else "engine_overhead_tp_s"),
        kv_token_s=kv_bytes / (gpu.bandwidth_bytes_per_s * kv_efficiency(gpu)),
        prefill_attention_s=attention_flops / (gpu.peak_flops_per_s(Dtype.BF16) * coefficient("prefill_attention_efficiency")),
    )
