"""Heads as their formulas say, in plain tensors and one pass over the whole text: what the engine's own are compared with."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["causal", "eagle1_logits", "eagle3_logits"]

THETA = 10000.0


def causal(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of every token over itself and those before it."""
    groups = queries.shape[-3] // keys.shape[-3]
    keys, values = keys.repeat_interleave(groups, -3), values.repeat_interleave(groups, -3)
    scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not()
    attended = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values
    return attended.transpose(-3, -2).flatten(-2)


def normed(x: Tensor, weight: Tensor | None) -> Tensor:
    """RMSNorm, none where there is no weight."""
    return x if weight is None else x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()


def mapped(x: Tensor, tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """A linear map with its bias, where there is one."""
    bias = tensors.get(f"{name}.bias")
    return x @ tensors[f"{name}.weight"].double().T + (0 if bias is None else bias.double())


def turned(x: Tensor) -> Tensor:
    """Rotary embedding of [heads, tokens, head_dim] at positions from 0 on."""
    size = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[-2]).double(), THETA ** -(torch.arange(0, size, 2).double() / size)).repeat(1, 2)
    low, high = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-high, low), dim=-1) * angles.sin()


def layer(x: Tensor, residual: Tensor, tensors: Mapping[str, Tensor], prefix: str, head_dim: int) -> Tensor:
    """A decoder layer behind its input norm."""

    def by_head(name: str) -> Tensor:
        return mapped(x, tensors, f"{prefix}self_attn.{name}_proj").unflatten(-1, (-1, head_dim)).transpose(0, 1)

    queries, keys = (normed(by_head(each), tensors.get(f"{prefix}self_attn.{each}_norm.weight")) for each in "qk")
    x = residual + mapped(causal(turned(queries), turned(keys), by_head("v")), tensors, f"{prefix}self_attn.o_proj")
    inner = normed(x, tensors[f"{prefix}post_attention_layernorm.weight"])
    gated = torch.nn.functional.silu(mapped(inner, tensors, f"{prefix}mlp.gate_proj")) * mapped(inner, tensors, f"{prefix}mlp.up_proj")
    return x + mapped(gated, tensors, f"{prefix}mlp.down_proj")


def eagle3_logits(
    tensors: Mapping[str, Tensor], settings: Mapping[str, Any], aux: tuple[Tensor, ...], embeddings: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits over draft ids and what the head reads next, behind every token, of the target's states `aux` and the next `embeddings`."""
    if settings.get("fc_norm"):
        aux = tuple(normed(each, tensors[f"fc_norm.{number}.weight"]) for number, each in enumerate(aux))
    hidden = mapped(normed(torch.cat(aux, dim=-1), tensors.get("input_norm.weight")), tensors, "fc")
    behind = normed(hidden, tensors["midlayer.hidden_norm.weight"])
    read = torch.cat((normed(embeddings, tensors["midlayer.input_layernorm.weight"]), behind), dim=-1)
    made = layer(read, behind if settings.get("norm_before_residual") else hidden, tensors, "midlayer.", settings["head_dim"])
    output = normed(made, tensors["norm.weight"])
    return mapped(output, tensors, "lm_head"), output if settings.get("norm_output") else made


def eagle1_logits(
    tensors: Mapping[str, Tensor], settings: Mapping[str, Any], features: Tensor, embeddings: Tensor, output_head: Tensor
) -> Tensor:
    """Logits behind every token, of the target's `features` and the next `embeddings`."""
    x = mapped(torch.cat((embeddings, features), dim=-1), tensors, "fc")
    for number in range(settings["num_hidden_layers"]):
        prefix = f"layers.{number}."
        x = layer(normed(x, tensors.get(f"{prefix}input_layernorm.weight")), x, tensors, prefix, settings["head_dim"])
    return x @ output_head.T
