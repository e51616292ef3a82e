"""Where a target that does not fit would: more GPUs of one node, a smaller dtype, a GPU with more memory. More nodes are not priced."""

from collections.abc import Callable

from paceline.forecast.kernels import MOST_GPUS
from paceline.forecast.roofline import Placement
from paceline.forecast.shapes import gpu, known_gpus
from paceline.hardware import Dtype, Gpu

__all__ = ["what_fits"]

NODE = (1, 2, 4, 8)


def what_fits(where: Placement, *, heads: int, weight_bytes: Callable[[Dtype], float], utilisation: float) -> str:
    """What to change so that weights of `weight_bytes(dtype)` leave room for a KV cache, as options; or one node's limit.

    `heads` are the attention heads, which the GPUs have to divide.
    """

    def fewest(gpu_: Gpu, dtype: Dtype) -> int | None:
        usable_bytes = gpu_.memory_bytes * utilisation
        if dtype.compute not in gpu_.flops_per_s:
            return None
        return next((n for n in NODE if n >= where.gpus and heads % n == 0 and weight_bytes(dtype) / n < usable_bytes), None)

    def option(what: str, gpus: int) -> str:
        return what if gpus == where.gpus else f"{what} --gpus {gpus}"

    more = fewest(where.gpu, where.dtype)
    found = [] if more is None else [f"--gpus {more}"]
    smaller = sorted((each for each in Dtype if each.weight_bytes < where.dtype.weight_bytes), key=lambda each: -each.weight_bytes)
    by_dtype = [(dtype, gpus) for dtype in smaller if (gpus := fewest(where.gpu, dtype)) is not None]
    found += [option(f"--dtype {dtype.value}", gpus) for dtype, gpus in by_dtype[:1]]
    larger = sorted((gpu(name) for name in known_gpus()), key=lambda each: (each.memory_bytes, each.name))
    by_gpu = [
        (each, gpus) for each in larger if each.memory_bytes > where.gpu.memory_bytes and (gpus := fewest(each, where.dtype)) is not None
    ]
    found += [option(f"--gpu {each.name}", gpus) for each, gpus in sorted(by_gpu, key=lambda pair: pair[1])[:1]]
    limit = f"no {MOST_GPUS} {where.gpu.name} of one node hold it in {where.dtype.value}, and several nodes are not priced"
    if more is not None:
        return f"take {' or '.join(found)}"
    return f"{limit}; take {' or '.join(found)}" if found else f"{limit}; nor does any GPU or dtype known here"
