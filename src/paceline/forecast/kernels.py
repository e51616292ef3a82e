"""Seconds of single kernels: the decoder's linears by tokens, the experts of one layer by tokens, an all-reduce by elements.

Where a GPU was measured its own curve is used, that of the shape with the nearest number of weights, scaled to the weights asked for;
elsewhere a smooth roofline with stated efficiencies. Between measured points time is linear in the logarithm of time and size. Beyond the
last point a linear's time grows with the tokens and an all-reduce's with the elements.

Source of the curves: aiconfigurator @095f58a51, condensed and made monotone in data/step_cost.toml.
"""

from functools import cache
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.tables import table
from paceline.errors import BadInputError
from paceline.hardware import Dtype, Gpu, Routed

__all__ = [
    "MOST_GPUS",
    "all_reduce_seconds",
    "captured_tokens",
    "coefficient",
    "expert_seconds",
    "has_measured_kernels",
    "kv_efficiency",
    "linear_seconds",
]

FloatArray = npt.NDArray[np.float64]
MOST_GPUS = 8


def coefficient(name: str) -> float:
    """The coefficient `name` of data/step_cost.toml, in the unit its name ends with."""
    return float(table("step_cost")[name]["value"])


def has_measured_kernels(gpu: Gpu, dtype: Dtype) -> bool:
    """Whether the linears of weights stored in `dtype` were measured on this GPU; else a roofline stands in."""
    return bool(_curves(gpu.name, dtype))


def linear_seconds(*, weights: float, tokens: FloatArray, gpu: Gpu, dtype: Dtype) -> FloatArray:
    """Seconds in which one GPU multiplies `tokens` (each at least 1) with `weights` weights stored in `dtype`, shape [tokens].

    It rises with both.

    Raises:
        BadInputError: the GPU does not compute in that dtype.

    """
    peak_flops_per_s = gpu.peak_flops_per_s(dtype)
    curves = _curves(gpu.name, dtype)
    if curves:
        nearest = min(curves, key=lambda row: abs(log(weights / row["weights"])))
        points = np.asarray(table("step_cost")["axes"]["gemm_tokens"], dtype=np.float64)
        seconds = 1e-3 * np.asarray(nearest["ms"], dtype=np.float64)
        return _log_log(tokens, points, seconds) * (weights / float(nearest["weights"]))
    memory_s = weights * dtype.weight_bytes / (gpu.bandwidth_bytes_per_s * coefficient(f"{dtype.value}_memory_efficiency"))
    compute_s = 2 * weights * tokens / (peak_flops_per_s * coefficient(f"{dtype.value}_compute_efficiency"))
    norm = _roofline_norm(gpu)
    by_tokens: FloatArray = (memory_s**norm + compute_s**norm) ** (1 / norm)
    return by_tokens


def expert_seconds(pool: Routed, *, tokens: FloatArray, per_request: int, gpu: Gpu, gpus: int, dtype: Dtype) -> FloatArray:
    """Seconds in which `gpus` GPUs send `tokens` tokens (each at least 1) through one layer's routed experts, shape [tokens].

    `per_request` of the tokens are neighbours in one request, which share experts.

    floor + (distinct experts · bytes of one) / (bandwidth · η), each expert split over the GPUs; where the multiplications of k experts per
    token take longer than that reading they bind, smoothly as in `linear_seconds`. It rises with the tokens.

    Source: aiconfigurator @095f58a51 moe_perf, fitted (data/step_cost.toml, expert_*); errors of the fit 4 to 10 %.

    Raises:
        BadInputError: the GPU does not compute in that dtype.

    """
    independent = np.maximum(1.0, tokens * (1 + coefficient("expert_own_novelty") * (per_request - 1)) / per_request)
    read = pool.distinct(independent, novelty=coefficient("expert_novelty")) * pool.parameters_each / gpus
    memory_s = read * dtype.weight_bytes / (gpu.bandwidth_bytes_per_s * coefficient(f"expert_{dtype.value}_efficiency"))
    flops = 2 * tokens * pool.per_token * pool.parameters_each / gpus
    compute_s = flops / (gpu.peak_flops_per_s(dtype) * coefficient(f"{dtype.value}_compute_efficiency"))
    norm = _roofline_norm(gpu)
    return np.asarray(coefficient("expert_layer_floor_s") + (memory_s**norm + compute_s**norm) ** (1 / norm))


def captured_tokens(gpu: Gpu) -> int:
    """Tokens in a step up to which servers replay CUDA graphs on this GPU; a larger step is launched kernel by kernel."""
    blackwell = _gpu_rows().get(gpu.name, {"all_reduce": ""})["all_reduce"] == "b200"
    return int(coefficient("captured_tokens_blackwell" if blackwell else "captured_tokens"))


def all_reduce_seconds(*, elements: FloatArray, gpu: Gpu, gpus: int) -> FloatArray:
    """Seconds in which `gpus` GPUs (1 to 8) add up `elements` bf16 numbers each; 0 on one GPU. Shape [elements].

    A GPU that was not measured takes the curve of the one its row names (NVLink: H100 or B200; PCIe: L40S), an odd number of GPUs the next
    larger measured one.

    Raises:
        BadInputError: more GPUs than were measured.

    """
    if gpus == 1:
        return np.zeros_like(elements)
    if not 1 <= gpus <= MOST_GPUS:
        raise BadInputError(f"{gpus} GPUs: tensor parallelism is priced for 1 to {MOST_GPUS} GPUs of one node")
    name = _gpu_rows().get(gpu.name, {"all_reduce": "h100"})["all_reduce"]
    rows = [row for row in table("step_cost")["all_reduce"] if row["gpu"] == name and row["gpus"] >= gpus]
    row = min(rows, key=lambda each: each["gpus"])
    points = np.asarray(table("step_cost")["axes"]["all_reduce_elements"], dtype=np.float64)
    return _log_log(elements, points, 1e-6 * np.asarray(row["us"], dtype=np.float64))


def kv_efficiency(gpu: Gpu) -> float:
    """Share of peak bandwidth that reading the KV cache reaches."""
    return float(_gpu_rows().get(gpu.name, {"kv_efficiency": 0.92})["kv_efficiency"])


def _roofline_norm(gpu: Gpu) -> float:
    return coefficient("roofline_norm") if gpu.roofline_norm is None else gpu.roofline_norm


@cache
def _gpu_rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table("gpus")["gpu"]}


@cache
def _curves(gpu_name: str, dtype: Dtype) -> tuple[dict[str, Any], ...]:
    rows = table("step_cost")["gemm"]
    return tuple(row for row in rows if row["gpu"] == gpu_name and row["dtype"] == dtype.value)


def _log_log(at: FloatArray, points: FloatArray, seconds: FloatArray) -> FloatArray:
    inside = np.exp(np.interp(np.log(at), np.log(points), np.log(seconds)))
    return np.asarray(np.where(at > points[-1], seconds[-1] * at / points[-1], inside))
