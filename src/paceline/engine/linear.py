"""y = x Wᵀ + b, by the kernel that suits the number of rows of x.

One row, and many, are the library's. A few rows in float32 on a CPU, which is what verifying a draft takes, are `few_rows`: there the
library's own kernels take about twice as long as for one row, where reading the weights once would nearly do.
"""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["linear"]

MOST_FEW_ROWS = 12  # from about 16 rows on the library is as fast


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` [..., inputs] times `weight` [outputs, inputs], plus `bias` [outputs] where there is one."""
    if x.dim() == 2 and 1 < x.shape[0] <= MOST_FEW_ROWS and _suits(x, weight):
        made = _few(x, weight)
        return made if bias is None else made + bias
    return functional.linear(x, weight, bias)


def _suits(x: Tensor, weight: Tensor) -> bool:
    plain = weight.device.type == "cpu" and weight.dtype == x.dtype == torch.float32 and weight.is_contiguous()
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    return plain and not learns and weight.shape[0] % 4 == 0


def _few(x: Tensor, weight: Tensor) -> Tensor:
    from paceline.engine.few_rows import BLOCK, multiply, multiply_in_threads, use_threads

    rows = x.shape[0]
    missing = -rows % BLOCK
    # Rows of zeros fill the last block: they cost less than a kernel for each number of rows.
    whole = torch.cat((x, x.new_zeros((missing, x.shape[1])))) if missing else x.contiguous()
    out = torch.empty((rows + missing, weight.shape[0]))
    threads = torch.get_num_threads()
    run = multiply if threads == 1 or use_threads(threads) == 1 else multiply_in_threads
    run(whole.detach().numpy(), weight.detach().numpy(), out.numpy())
    return out[:rows]
