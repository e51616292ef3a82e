"""The counts that costs are made of: parameters, bytes, FLOPs and KV bytes per token, of GPUs, targets and drafts.

Nothing here knows a price in seconds; `paceline.forecast` does. Sizes are bytes, rates per second, one GPU each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from paceline.errors import BadInputError, is_count, printable

__all__ = ["DraftShape", "Dtype", "Gpu", "ModelShape"]


class Dtype(StrEnum):
    """What weights are stored in."""

    BF16 = "bf16"
    FP8 = "fp8"
    INT4 = "int4"

    @property
    def weight_bytes(self) -> float:
        """Bytes per weight."""
        return {Dtype.BF16: 2.0, Dtype.FP8: 1.0, Dtype.INT4: 0.5}[self]

    @property
    def compute(self) -> "Dtype":
        """What the multiplications run in: int4 weights are widened to bf16 (W4A16)."""
        return Dtype.BF16 if self is Dtype.INT4 else self


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        name: as the table calls it.
        memory_bytes: its memory.
        bandwidth_bytes_per_s: peak memory bandwidth.
        flops_per_s: dense peak by compute dtype; a dtype that is missing is not supported.
        source: where the figures come from.

    """

    name: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops_per_s: Mapping[Dtype, float]
    source: str

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
class ModelShape:
    """A dense decoder's shape, as a Hugging Face config.json states it."""

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

    def __post_init__(self) -> None:
        """Reject sizes below 1 and heads that KV heads do not divide.

        Raises:
            BadInputError: with the name and the value.

        """
        for name in ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab"):
            value = getattr(self, name)
            if not is_count(value, least=1):
                raise BadInputError(f"model {printable(self.name)}: {name} = {printable(value)} is not a whole number from 1 on")
        if self.heads % self.kv_heads:
            raise BadInputError(f"model {printable(self.name)}: {self.heads} heads are not a multiple of {self.kv_heads} KV heads")

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer: attention projections, gated MLP and two norms."""
        query, key_value = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.hidden * (2 * query + 2 * key_value) + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def head_parameters(self) -> int:
        """Weights of the LM head."""
        return self.hidden * self.vocab

    @property
    def parameters(self) -> int:
        """All weights, embeddings included (once, where they are tied to the head)."""
        embeddings = self.head_parameters * (1 if self.tied_embeddings else 2)
        return self.layers * self.layer_parameters + embeddings + self.hidden

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers kept in the KV cache per token, all layers: 2 · layers · KV heads · head dimension."""
        return 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What a draft adds to the target's memory.

    Attributes:
        name: for people.
        parameters: its own weights (shared embeddings and heads not counted).
        integer_bytes: index tables that no dtype shrinks (d2t, t2d).
        kv_elements_per_token: numbers it keeps in its own KV cache per token.

    """

    name: str
    parameters: int
    integer_bytes: int
    kv_elements_per_token: int

    def __post_init__(self) -> None:
        """Reject counts below 0.

        Raises:
            BadInputError: with the name and the value.

        """
        for name in ("parameters", "integer_bytes", "kv_elements_per_token"):
            value = getattr(self, name)
            if not is_count(value, least=0):
                raise BadInputError(f"draft {printable(self.name)}: {name} = {printable(value)} is not a whole number from 0 on")
