"""y = x Wᵀ + b, by the kernel that suits the number of rows of x."""

from torch import Tensor
from torch.nn import functional

__all__ = ["linear"]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` [..., inputs] times `weight` [outputs, inputs], plus `bias` [outputs] where there is one."""
    return functional.linear(x, weight, bias)
