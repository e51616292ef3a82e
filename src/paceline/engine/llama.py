"""The Llama family's decoder without what a library adds around it: RMSNorm, rotary grouped-query attention, SwiGLU.

One token through a small model takes a library longer to arrange than to compute, and a step of speculative decoding is a few such passes.
Runs Llama, Mistral without a window, Qwen 2 and Qwen 3: what they differ in is which tensors exist (biases, norms of queries and keys).

Layers are numbered by what they leave behind: index k is the residual stream after k layers, 0 the embeddings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional

from paceline.engine.checkpoint import Checkpoint
from paceline.engine.config_sizes import positive_number, stated_size
from paceline.engine.kv_cache import KvCache
from paceline.engine.linear import linear
from paceline.engine.rotary import KINDS, Rotary, rope_kind
from paceline.engine.rows import Answered, Row, chain_mask, need_numbers, wide
from paceline.engine.sharding import ShardedLayers
from paceline.engine.shared_cache import CacheBlock, TogetherPass, together
from paceline.errors import BadInputError

__all__ = ["LlamaShape", "LlamaTarget", "attend", "foreign_part", "is_llama_like", "llama_shape", "swiglu"]

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """Sizes of a decoder layer."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layer:
    """One layer's weights; None where the family member has none."""

    input_norm: Tensor  # [hidden]
    qkv: Tensor  # [(heads + 2 kv_heads) · head_dim, hidden]
    qkv_bias: Tensor | None
    q_norm: Tensor | None  # [head_dim]
    k_norm: Tensor | None
    out: Tensor  # [hidden, heads · head_dim]
    out_bias: Tensor | None
    mlp_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 intermediate, hidden]
    down: Tensor  # [hidden, intermediate]


def llama_shape(config: Mapping[str, Any]) -> LlamaShape:
    """The sizes in a config.json.

    Raises:
        BadInputError: one is missing or impossible; with the field and its value.

    """
    hidden, heads = stated_size(config, "hidden_size"), stated_size(config, "num_attention_heads")
    kv_heads = heads if config.get("num_key_value_heads") is None else stated_size(config, "num_key_value_heads")
    head_dim = hidden // heads if config.get("head_dim") is None else stated_size(config, "head_dim")
    if heads % kv_heads:
        raise BadInputError(f"num_attention_heads is {heads}, which num_key_value_heads {kv_heads} does not divide")
    if head_dim < 2 or head_dim % 2:
        raise BadInputError(
            f"head_dim is {head_dim} (hidden_size {hidden}, num_attention_heads {heads}), which is no even number from 2 on"
        )
    return LlamaShape(
        hidden=hidden,
        intermediate=stated_size(config, "intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=positive_number(config, "rms_norm_eps", unstated=1e-6),
    )


def is_llama_like(config: Mapping[str, Any]) -> bool:
    """Whether a config.json describes a decoder that this module runs exactly."""
    windowed = config.get("sliding_window") is not None and config.get("use_sliding_window", True)
    return config.get("model_type") in MODEL_TYPES and foreign_part(config) is None and not windowed and rope_kind(config) in KINDS


def foreign_part(config: Mapping[str, Any]) -> str | None:
    """The field of a config.json that asks for weights or an activation that a layer here does not have, None where none does."""
    if config.get("hidden_act", "silu") != "silu":
        return "hidden_act"
    return next((each for each in ("quantization_config", "mlp_bias") if config.get(each)), None)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention: `queries` [heads, tokens, head_dim] over `keys` and `values` [kv_heads, seen, head_dim].

    `mask` [tokens, seen] says who sees whom, None where all see all. Gives [tokens, heads · head_dim].
    """
    heads, tokens, head_dim = queries.shape
    attended = functional.scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=mask, enable_gqa=True)
    return attended[0].transpose(0, 1).reshape(tokens, heads * head_dim)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) · up, of [..., 2 intermediate]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


class LlamaTarget:
    """A causal language model of the Llama family."""

    def __init__(self, checkpoint: Checkpoint, *, dtype: torch.dtype, device: torch.device, mesh: DeviceMesh | None) -> None:
        """Read the weights; of the layers only this process's part where they are shared by those of `mesh`.

        Raises:
            BadInputError: a tensor is missing or has another shape than the configuration says.

        """
        config = checkpoint.config
        self.shape = llama_shape(config)
        self.layers = stated_size(config, "num_hidden_layers")
        self.vocab = stated_size(config, "vocab_size")
        self.hidden = self.shape.hidden
        self.dtype, self.device = dtype, device
        self._rotary = Rotary(config, head_dim=self.shape.head_dim, device=device)
        table = (self.vocab, self.hidden)
        self.embedding = checkpoint.read("model.embed_tokens.weight", shape=table, dtype=dtype, device=device)
        tied = config.get("tie_word_embeddings", False)
        self.head = self.embedding if tied else checkpoint.read("lm_head.weight", shape=table, dtype=dtype, device=device)
        self._final_norm = checkpoint.read("model.norm.weight", shape=(self.hidden,), dtype=dtype, device=device)
        read = (_read_layer(checkpoint, self.shape, layer, dtype, device) for layer in range(self.layers))
        self._layers: Iterable[_Layer] = list(read) if mesh is None else ShardedLayers(read, mesh)

    def new_cache(self) -> KvCache:
        """A cache that remembers nothing yet."""
        shape = self.shape
        return KvCache(layers=self.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim, dtype=self.dtype, device=self.device)

    def new_block(self, *, slots: int, room_tokens: int) -> CacheBlock:
        """Room for the caches of `slots` sequences of up to `room_tokens` tokens, which then attend together."""
        shape = self.shape
        return CacheBlock(
            slots=slots,
            room_tokens=room_tokens,
            layers=self.layers,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    def unembed(self, features: Tensor) -> Tensor:
        """Logits [..., vocab] of features [..., hidden], float32 or wider."""
        return wide(linear(features, self.head))

    def forward(self, rows: Sequence[Row[KvCache]], *, hidden_layers: Sequence[int]) -> list[Answered]:
        """Run the rows; `hidden_layers` are those whose residual stream is wanted."""
        sizes = [row.tokens.shape[0] for row in rows]
        for row, size in zip(rows, sizes, strict=True):
            row.cache.reserve(size)
        x = functional.embedding(torch.cat([row.tokens for row in rows]), self.embedding)
        cos, sin = self._rotary.at(torch.cat([_positions(row) for row in rows]), self.dtype)
        turn = (cos[:, None], sin[:, None])
        masks = [chain_mask(size, row.cache.length, row.layout, device=self.device) for row, size in zip(rows, sizes, strict=True)]
        joint = together([row.cache for row in rows], sizes)
        streams = {0: x}
        for number, layer in enumerate(self._layers):
            x = self._run_layer(number, layer, x, turn, rows, masks, joint)
            if number + 1 in hidden_layers:
                streams[number + 1] = x
        features = functional.rms_norm(x, (self.hidden,), self._final_norm, self.shape.norm_eps)
        for row, size in zip(rows, sizes, strict=True):
            row.cache.length += size
        return self._answers(rows, sizes, features, [streams[layer] for layer in hidden_layers])

    def _run_layer(
        self,
        number: int,
        layer: _Layer,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        rows: Sequence[Row[KvCache]],
        masks: list[Tensor | None],
        joint: TogetherPass | None,
    ) -> Tensor:
        shape, eps = self.shape, self.shape.norm_eps
        normed = functional.rms_norm(x, (shape.hidden,), layer.input_norm, eps)
        mixed = linear(normed, layer.qkv, layer.qkv_bias).view(x.shape[0], shape.heads + 2 * shape.kv_heads, shape.head_dim)
        turning, values = mixed.split((shape.heads + shape.kv_heads, shape.kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            queries = functional.rms_norm(turning[:, : shape.heads], (shape.head_dim,), layer.q_norm, eps)
            keys = functional.rms_norm(turning[:, shape.heads :], (shape.head_dim,), layer.k_norm, eps)
            turning = torch.cat((queries, keys), dim=1)
        turned = Rotary.turned(turning, *turn).transpose(0, 1)  # [heads + kv_heads, tokens, head_dim]
        values = values.transpose(0, 1)
        if joint is not None:
            seen = joint.attend(number, turned[: shape.heads], turned[shape.heads :], values)
        else:
            seen = self._attend_by_row(number, turned, values, rows, masks)
        x = x + linear(seen, layer.out, layer.out_bias)
        normed = functional.rms_norm(x, (shape.hidden,), layer.mlp_norm, eps)
        return x + linear(swiglu(linear(normed, layer.gate_up)), layer.down)

    def _attend_by_row(
        self, number: int, turned: Tensor, values: Tensor, rows: Sequence[Row[KvCache]], masks: list[Tensor | None]
    ) -> Tensor:
        """Attention of every row over what its cache remembers and itself [tokens, heads · head_dim]."""
        heads = self.shape.heads
        attended, start = [], 0
        for row, mask in zip(rows, masks, strict=True):
            end = start + row.tokens.shape[0]
            keys, seen_values = row.cache.write(number, turned[heads:, start:end], values[:, start:end])
            attended.append(attend(turned[:heads, start:end], keys, seen_values, mask))
            start = end
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def _answers(self, rows: Sequence[Row[KvCache]], sizes: list[int], features: Tensor, streams: list[Tensor]) -> list[Answered]:
        """The packed results cut into rows; the output head runs once, for the tokens whose logits are wanted."""
        by_row = features.split(sizes)
        logits = self.unembed(torch.cat([each[each.shape[0] - row.logits :] for each, row in zip(by_row, rows, strict=True)]))
        need_numbers(logits)
        cut = zip(
            logits.split([row.logits for row in rows]), by_row, zip(*(each.split(sizes) for each in streams), strict=True), strict=True
        )
        if not streams:
            return [Answered(own, feature, ()) for own, feature in zip(logits.split([row.logits for row in rows]), by_row, strict=True)]
        return [Answered(own, feature, hidden) for own, feature, hidden in cut]


def _positions(row: Row[KvCache]) -> Tensor:
    if row.layout is not None:
        return row.layout.depths + row.cache.length
    return torch.arange(row.cache.length, row.cache.length + row.tokens.shape[0], device=row.tokens.device)


def _read_layer(checkpoint: Checkpoint, shape: LlamaShape, number: int, dtype: torch.dtype, device: torch.device) -> _Layer:
    prefix = f"model.layers.{number}"
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def read(name: str, *size: int) -> Tensor:
        return checkpoint.read(f"{prefix}.{name}", shape=size, dtype=dtype, device=device)

    def read_optional(name: str, *size: int) -> Tensor | None:
        return checkpoint.read_optional(f"{prefix}.{name}", shape=size, dtype=dtype, device=device)

    projections = [("q", q), ("k", kv), ("v", kv)]
    biases = [each for name, size in projections if (each := read_optional(f"self_attn.{name}_proj.bias", size)) is not None]
    return _Layer(
        input_norm=read("input_layernorm.weight", shape.hidden),
        qkv=torch.cat([read(f"self_attn.{name}_proj.weight", size, shape.hidden) for name, size in projections]),
        qkv_bias=torch.cat(biases) if biases else None,
        q_norm=read_optional("self_attn.q_norm.weight", shape.head_dim),
        k_norm=read_optional("self_attn.k_norm.weight", shape.head_dim),
        out=read("self_attn.o_proj.weight", shape.hidden, q),
        out_bias=read_optional("self_attn.o_proj.bias", shape.hidden),
        mlp_norm=read("post_attention_layernorm.weight", shape.hidden),
        gate_up=torch.cat([read(f"mlp.{name}_proj.weight", shape.intermediate, shape.hidden) for name in ("gate", "up")]),
        down=read("mlp.down_proj.weight", shape.hidden, shape.intermediate),
    )
