"""The counts that costs are made of: parameters, bytes, FLOPs and KV bytes per token, of GPUs, targets and drafts.

Nothing here knows a price in seconds; `paceline.forecast` does. Sizes are bytes, rates per second, one GPU each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, is_count, printable

__all__ = ["DraftShape", "Dtype", "Experts", "Gpu", "LatentAttention", "ModelShape", "Routed"]

FloatArray = npt.NDArray[np.float64]


class Dtype(StrEnum):
    """What weights are stored in."""

    BF16 = "bf16"
    FP8 = "fp8"
    INT4 = "int4"
    FP4 = "fp4"

    @property
    def weight_bytes(self) -> float:
        """Bytes per weight; fp4 (nvfp4, mxfp4) carries a one-byte scale per 16 weights."""
        return {Dtype.BF16: 2.0, Dtype.FP8: 1.0, Dtype.INT4: 0.5, Dtype.FP4: 0.5625}[self]

    @property
    def compute(self) -> "Dtype":
        """What the multiplications run in: int4 weights are widened to bf16 (W4A16), fp4 weights are priced at the fp8 rate."""
        return {Dtype.INT4: Dtype.BF16, Dtype.FP4: Dtype.FP8}.get(self, self)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        name: as the table calls it.
        memory_bytes: its memory.
        bandwidth_bytes_per_s: peak memory bandwidth.
        flops_per_s: dense peak by compute dtype; a dtype that is missing is not supported.
        source: where the figures come from.
        roofline_norm: p of (memory^p + compute^p)^(1/p): 1 where reading and arithmetic take turns; None for the one that fits GPUs.

    """

    name: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops_per_s: Mapping[Dtype, float]
    source: str
    roofline_norm: float | None = None

    def __post_init__(self) -> None:
        """Reject a GPU without memory, bandwidth or arithmetic.

        Raises:
            BadInputError: with the value.

        """
        peaks = {f"{dtype} FLOP/s": peak for dtype, peak in self.flops_per_s.items()}
        for name, value in {"memory_bytes": self.memory_bytes, "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s, **peaks}.items():
            if not (isfinite(value) and value > 0):
                raise BadInputError(f"GPU {printable(self.name)}: {name} = {printable(value)} is not a number above 0")
        if not peaks:
            raise BadInputError(f"GPU {printable(self.name)} computes in no dtype; state at least its bf16 peak")

    def peak_flops_per_s(self, dtype: Dtype) -> float:
        """Dense peak of the multiplications of weights stored in `dtype`.

        Raises:
            BadInputError: this GPU does not multiply in that dtype.

        """
        if dtype.compute not in self.flops_per_s:
            known = ", ".join(sorted(each.value for each in self.flops_per_s))
            raise BadInputError(f"{self.name} does not compute in {dtype.compute.value}; it computes in {known}")
        return self.flops_per_s[dtype.compute]


@dataclass(frozen=True, slots=True)
class Routed:
    """A pool of equal experts of which each token reads a few.

    Attributes:
        count: E, experts in the pool.
        per_token: k, experts each token is sent to.
        parameters_each: weights of one expert.

    """

    count: int
    per_token: int
    parameters_each: int

    def distinct(self, tokens: FloatArray, *, novelty: float) -> FloatArray:
        """Expected number of different experts that so many tokens (1 or more) read together: k + κ·(N − k), N = E·(1 − (1 − k/E)^tokens).

        N assumes that each token picks its experts uniformly and by itself. Neighbouring tokens share experts and routers have favourites,
        so only a share κ (`novelty`, 1 for independent tokens) of what N adds to one token's k experts is new. Between k and E.

        Source: MoESD, arXiv 2505.19645 (N); the share from measured kernels (data/step_cost.toml, expert_novelty).
        """
        independent = self.count * (1 - (1 - self.per_token / self.count) ** tokens)
        return self.per_token + novelty * (independent - self.per_token)


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts that takes the place of the MLP in all layers but a few.

    Attributes:
        count: E, routed experts per layer.
        per_token: k, routed experts that each token reads.
        intermediate: intermediate size of one routed expert.
        shared_intermediate: intermediate size of what every token reads beside them (all shared experts together); 0 without.
        dense_layers: layers that have an ordinary MLP instead (the first ones, or every other one; the place does not matter here).

    """

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int
    dense_layers: int

    def __post_init__(self) -> None:
        """Reject sizes below 1 (0 for shared and dense) and more experts per token than there are.

        Raises:
            BadInputError: with the name and the value.

        """
        for name, least in (("count", 1), ("per_token", 1), ("intermediate", 1), ("shared_intermediate", 0), ("dense_layers", 0)):
            if not is_count(getattr(self, name), least=least):
                raise BadInputError(f"experts: {name} = {printable(getattr(self, name))} is not a whole number from {least} on")
        if self.per_token > self.count:
            raise BadInputError(f"{self.per_token} experts per token are more than the {self.count} there are")


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: one compressed vector per token and layer instead of keys and values per head.

    Attributes:
        kv_rank: size of the compressed vector (kv_lora_rank).
        query_rank: size that queries are compressed to; None where they are not.
        rope_dim: the part of a key that carries the position and is cached beside the vector.
        nope_dim: the part of a head's key that carries none.
        value_dim: a head's value.

    """

    kv_rank: int
    query_rank: int | None
    rope_dim: int
    nope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        """Reject sizes below 1.

        Raises:
            BadInputError: with the name and the value.

        """
        for name in ("kv_rank", "query_rank", "rope_dim", "nope_dim", "value_dim"):
            value = getattr(self, name)
            if not (is_count(value, least=1) or (name == "query_rank" and value is None)):
                raise BadInputError(f"latent attention: {name} = {printable(value)} is not a whole number from 1 on")

    @property
    def cached(self) -> int:
        """Numbers kept per token and layer."""
        return self.kv_rank + self.rope_dim

    def parameters(self, *, hidden: int, heads: int) -> int:
        """Weights of one layer's attention: queries, compression, expansion to keys and values, output."""
        head_query = heads * (self.nope_dim + self.rope_dim)
        query = hidden * head_query if self.query_rank is None else self.query_rank * (hidden + head_query)
        return query + hidden * self.cached + self.kv_rank * heads * (self.nope_dim + self.value_dim) + heads * self.value_dim * hidden


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder's shape, as a Hugging Face config.json states it.

    Attributes:
        name: for people.
        layers: decoder layers.
        hidden: size of the residual stream.
        intermediate: of the gated MLP in layers without experts.
        heads: attention heads.
        kv_heads: heads of keys and values; 1 with latent attention, whose one vector serves all heads.
        head_dim: of one head.
        vocab: tokens it knows.
        tied_embeddings: whether the LM head is the embedding table.
        source: where the figures come from.
        experts: the mixture of experts; None for a dense model.
        latent: multi-head latent attention; None for keys and values per head.
        kv_layers: layers that keep keys and values per token; None for all (hybrids have linear-attention layers that do not).
        state_elements: numbers in one request's recurrent state, all linear-attention layers; 0 without such layers.

    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied_embeddings: bool
    source: str
    experts: Experts | None = None
    latent: LatentAttention | None = None
    kv_layers: int | None = None
    state_elements: int = 0

    def __post_init__(self) -> None:
        """Reject sizes below 1, heads that KV heads do not divide, and more special layers than layers.

        Raises:
            BadInputError: with the name and the value.

        """
        for name in ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab"):
            value = getattr(self, name)
            if not is_count(value, least=1):
                raise BadInputError(f"model {printable(self.name)}: {name} = {printable(value)} is not a whole number from 1 on")
        if self.heads % self.kv_heads:
            raise BadInputError(f"model {printable(self.name)}: {self.heads} heads are not a multiple of {self.kv_heads} KV heads")
        if self.kv_layers is not None and not (is_count(self.kv_layers, least=1) and self.kv_layers <= self.layers):
            raise BadInputError(f"model {printable(self.name)}: {printable(self.kv_layers)} KV layers are not between 1 and {self.layers}")
        if not is_count(self.state_elements, least=0):
            raise BadInputError(f"model {printable(self.name)}: state of {printable(self.state_elements)} numbers is no count")
        if self.experts is not None and self.experts.dense_layers >= self.layers:
            raise BadInputError(f"model {printable(self.name)}: {self.experts.dense_layers} dense layers leave none for experts")

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention projections."""
        if self.latent is not None:
            return self.latent.parameters(hidden=self.hidden, heads=self.heads)
        return self.hidden * 2 * (self.heads + self.kv_heads) * self.head_dim

    @property
    def expert_layers(self) -> int:
        """Layers with experts; 0 for a dense model."""
        return 0 if self.experts is None else self.layers - self.experts.dense_layers

    @property
    def routed(self) -> Routed | None:
        """The pool of routed experts of one layer; None for a dense model."""
        if self.experts is None:
            return None
        return Routed(self.experts.count, self.experts.per_token, 3 * self.hidden * self.experts.intermediate)

    @property
    def dense_layer_parameters(self) -> int:
        """Weights of one layer with an ordinary MLP: attention projections, gated MLP and two norms."""
        return self.attention_parameters + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def fixed_layer_parameters(self) -> int:
        """Weights of one layer (of one with experts, where there are any) that every token reads."""
        if self.experts is None:
            return self.dense_layer_parameters
        shared_and_router = 3 * self.hidden * self.experts.shared_intermediate + self.hidden * self.experts.count
        return self.attention_parameters + shared_and_router + 2 * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer (of one with experts, where there are any)."""
        routed = self.routed
        return self.fixed_layer_parameters + (0 if routed is None else routed.count * routed.parameters_each)

    @property
    def decoder_parameters(self) -> int:
        """Weights of all decoder layers."""
        return self.expert_layers * self.layer_parameters + (self.layers - self.expert_layers) * self.dense_layer_parameters

    @property
    def fixed_decoder_parameters(self) -> int:
        """Weights of all decoder layers that every token reads: routed experts left out."""
        return self.expert_layers * self.fixed_layer_parameters + (self.layers - self.expert_layers) * self.dense_layer_parameters

    @property
    def head_parameters(self) -> int:
        """Weights of the LM head."""
        return self.hidden * self.vocab

    @property
    def parameters(self) -> int:
        """All weights, embeddings included (once, where they are tied to the head)."""
        embeddings = self.head_parameters * (1 if self.tied_embeddings else 2)
        return self.decoder_parameters + embeddings + self.hidden

    @property
    def active_parameters(self) -> int:
        """Weights that one token meets: all but the routed experts it is not sent to. Embeddings are counted as in `parameters`."""
        routed = self.routed
        if routed is None:
            return self.parameters
        return self.parameters - self.expert_layers * (routed.count - routed.per_token) * routed.parameters_each

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers kept in the KV cache per token: KV layers times 2 · KV heads · head dimension, or rank + rope where latent."""
        layers = self.layers if self.kv_layers is None else self.kv_layers
        return layers * (2 * self.kv_heads * self.head_dim if self.latent is None else self.latent.cached)

    @property
    def attention_flops(self) -> int:
        """Multiplications and additions of attention, all layers, per query token and token of context.

        With latent ones every head works on the compressed vector (the absorbed form of decoding): 2 · heads · (rank + rope + rank).
        """
        layers = self.layers if self.kv_layers is None else self.kv_layers
        if self.latent is None:
            return 4 * layers * self.heads * self.head_dim
        return 2 * layers * self.heads * (self.latent.cached + self.latent.kv_rank)

    @property
    def prefill_attention_flops(self) -> int:
        """As `attention_flops` for prefill, where latent attention expands its vectors to keys and values per head first."""
        if self.latent is None:
            return self.attention_flops
        return 2 * self.layers * self.heads * (self.head_dim + self.latent.value_dim)


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What a draft adds to the target's memory.

    Attributes:
        name: for people.
        parameters: its own weights (shared embeddings and heads not counted).
        integer_bytes: index tables that no dtype shrinks (d2t, t2d).
        kv_elements_per_token: numbers it keeps in its own KV cache per token.
        routed: the pool of experts of each of its layers that has one, of which a pass reads a part; None where it reads all.
        fixed_parameters: weights outside those pools; None where there are none of them.
        once_parameters: weights that only the first of the K passes reads (EAGLE-3 fuses the target's features once per step).
        whole_block: whether one pass drafts all K tokens (parallel drafters such as DFlash); else each pass drafts one.

    """

    name: str
    parameters: int
    integer_bytes: int
    kv_elements_per_token: int
    routed: Routed | None = None
    fixed_parameters: int | None = None
    once_parameters: int = 0
    whole_block: bool = False

    def __post_init__(self) -> None:
        """Reject counts below 0.

        Raises:
            BadInputError: with the name and the value.

        """
        for name in ("parameters", "integer_bytes", "kv_elements_per_token"):
            value = getattr(self, name)
            if not is_count(value, least=0):
                raise BadInputError(f"draft {printable(self.name)}: {name} = {printable(value)} is not a whole number from 0 on")

    @property
    def pass_parameters(self) -> int:
        """Weights that every pass reads: all but the routed experts and what only the first pass reads."""
        return (self.parameters if self.fixed_parameters is None else self.fixed_parameters) - self.once_parameters

    @property
    def expert_layers(self) -> int:
        """Layers with routed experts."""
        return (
            0
            if self.routed is None
            else (self.parameters - self.pass_parameters - self.once_parameters) // (self.routed.count * self.routed.parameters_each)
        )

    @property
    def active_parameters(self) -> int:
        """Weights that one token meets in a pass."""
        if self.routed is None:
            return self.parameters
        return self.pass_parameters + self.once_parameters + self.expert_layers * self.routed.per_token * self.routed.parameters_each
