"""The parts of a decoder layer as modules that can be trained, under the names that published checkpoints have."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.engine.linear import linear
from paceline.engine.llama import LlamaShape
from paceline.engine.rotary import Rotary

__all__ = ["Attend", "Attention", "AttentionParts", "Mlp", "Norm", "Projection"]

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries [..., heads, tokens, head_dim], keys and values [..., kv_heads, tokens, head_dim] to [..., tokens, heads · head_dim]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionParts:
    """Which tensors a layer's attention has beside its four projections: members of the Llama family differ in them.

    Attributes:
        bias: of queries, keys and values.
        out_bias: of the output.
        head_norms: queries and keys are normed, head by head.

    """

    bias: bool
    out_bias: bool
    head_norms: bool


class Norm(nn.Module):
    """RMSNorm with its weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., size], normed and weighted."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self._eps)


class Projection(nn.Linear):
    """A linear map by the kernel that suits the number of rows."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., inputs] to [..., outputs]."""
        return linear(x, self.weight, self.bias)


class Attention(nn.Module):
    """The projections around attention; what is attended to is the caller's."""

    def __init__(self, shape: LlamaShape, *, inputs: int, parts: AttentionParts) -> None:
        super().__init__()
        self.q_proj = Projection(inputs, shape.heads * shape.head_dim, bias=parts.bias)
        self.k_proj = Projection(inputs, shape.kv_heads * shape.head_dim, bias=parts.bias)
        self.v_proj = Projection(inputs, shape.kv_heads * shape.head_dim, bias=parts.bias)
        self.o_proj = Projection(shape.heads * shape.head_dim, shape.hidden, bias=parts.out_bias)
        self.q_norm = Norm(shape.head_dim, shape.norm_eps) if parts.head_norms else None
        self.k_norm = Norm(shape.head_dim, shape.norm_eps) if parts.head_norms else None
        self._head_dim = shape.head_dim

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """`x` [..., tokens, inputs] to [..., tokens, hidden]; `turn` has the cosines and sines of its positions."""
        queries, keys, values = (self._by_head(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        attended: Tensor = self.o_proj(attend(Rotary.turned(queries, *turn), Rotary.turned(keys, *turn), values))
        return attended

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self._head_dim)).transpose(-3, -2)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.gate_proj = Projection(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = Projection(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = Projection(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., hidden] to [..., hidden]."""
        made: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return made
