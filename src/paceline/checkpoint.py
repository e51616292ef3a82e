"""A model's folder as far as it can be known without loading a weight: its configuration, what tensors it has, what its tokens are.

A configuration nests: a multimodal model keeps its decoder in `text_config`, a draft in the speculators format in
`transformer_layer_config`. What is asked of one here is looked for at the top first, then in there. A field that is missing or makes no
sense is None, for other people wrote the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any

from paceline.errors import is_count

__all__ = ["BITS_OF_DTYPE", "Checkpoint", "NESTED", "TargetIds", "TensorHeader", "TokenTable"]

BITS_OF_DTYPE = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
NESTED = ("text_config", "transformer_layer_config", "llm_config")
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")
UNSCALED = ("default", "llama3", "longrope", "su", "mrope")  # their max_position_embeddings is the scaled length already
AUXILIARY = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """A tensor's dtype, as safetensors names it, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Numbers in it; those of a dtype below 8 bits too."""
        return prod(self.shape)

    @property
    def stored_bytes(self) -> int:
        """Bytes in the file."""
        return self.elements * BITS_OF_DTYPE[self.dtype] // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetIds:
    """Where a draft vocabulary's table `d2t` leads: draft token i is the target's token i + d2t[i].

    Attributes:
        entries: draft tokens in the table.
        lowest: smallest target id that comes out.
        highest: largest.
        distinct: different target ids that come out; fewer than entries where two draft tokens lead to one.
        unmoved: whether every offset is 0, so that each draft token is the target's of the same number.

    """

    entries: int
    lowest: int
    highest: int
    distinct: int
    unmoved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    """What each token id means: `sha256` of all pairs of id and text, the pairs (None where `source` does not tell), `source` the file.

    Two tables compare only where they come from files of one name.
    """

    sha256: str
    texts: Mapping[int, str] | None = field(repr=False)
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model's folder.

    Attributes:
        name: the folder's name.
        config: its config.json.
        tensors: every tensor by name; None where the folder has no weights.
        target_ids: where `d2t` leads, None where there is no such tensor.
        tokens: its tokenizer's table, None where the folder has no tokenizer.

    """

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorHeader] | None
    target_ids: TargetIds | None
    tokens: TokenTable | None

    def stated(self, name: str) -> Any:
        """The value of a field of the configuration, None where it is nowhere in it."""
        inner = (self.config[each] for each in NESTED if isinstance(self.config.get(each), Mapping))
        return next((each[name] for each in (self.config, *inner) if each.get(name) is not None), None)

    def size(self, *names: str) -> int | None:
        """The first of these fields that is a whole number from 1 on."""
        return next((int(value) for value in map(self.stated, names) if is_count(value, least=1)), None)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The class names that the configuration states."""
        stated = self.config.get("architectures")
        return tuple(each for each in stated if isinstance(each, str)) if isinstance(stated, list) else ()

    @property
    def speculators_type(self) -> str | None:
        """The kind of draft, where the folder is in the speculators format (`eagle3`, `dflash`, …)."""
        stated = self.config.get("speculators_model_type")
        return stated if isinstance(stated, str) else None

    @property
    def vocabulary(self) -> int | None:
        """Tokens that the output layer has room for; padding counts."""
        return self.size("vocab_size")

    @property
    def draft_vocabulary(self) -> int | None:
        """Tokens that a draft head proposes from: what is stated, else the rows of its own output layer, else the vocabulary."""
        head = self.tensor("lm_head.weight")
        return self.size("draft_vocab_size") or (head.shape[0] if head is not None and head.shape else self.vocabulary)

    @property
    def max_positions(self) -> int | None:
        """Longest context, rotary scaling included as vLLM reads it."""
        length, scaling = self.size(*LENGTHS), self.stated("rope_scaling")
        if length is None or not isinstance(scaling, Mapping):
            return length
        kind, factor = scaling.get("rope_type", scaling.get("type", "default")), scaling.get("factor")
        if kind in UNSCALED or isinstance(factor, bool) or not isinstance(factor, int | float) or not (isfinite(factor) and factor >= 1):
            return length
        original: Any = scaling.get("original_max_position_embeddings")
        return int((original if kind == "yarn" and is_count(original, least=1) else length) * factor)

    @property
    def auxiliary_layers(self) -> tuple[int, ...] | None:
        """The target's layers whose hidden states an EAGLE-3 head was trained on, as it states them; None where it states none.

        Number k is the residual stream after k decoder layers, 0 the embedding.
        """
        own = self.config.get("eagle_config")
        stated = self.stated(AUXILIARY) or (own.get(AUXILIARY) if isinstance(own, Mapping) else None)
        return tuple(stated) if isinstance(stated, list) and stated and all(type(each) is int for each in stated) else None

    def tensor(self, name: str) -> TensorHeader | None:
        """The tensor of that name, whatever module it is in; of several the first."""
        found = (header for each, header in (self.tensors or {}).items() if each == name or each.endswith(f".{name}"))
        return next(found, None)

    @property
    def parameters(self) -> int | None:
        """Numbers in all tensors of a floating dtype; None without weights. A quantised tensor's packed integers are not counted."""
        if self.tensors is None:
            return None
        return sum(each.elements for each in self.tensors.values() if each.dtype.startswith(("F", "BF")))

    @property
    def stored_bytes(self) -> int | None:
        """Bytes of all tensors in the files; None without weights."""
        return None if self.tensors is None else sum(each.stored_bytes for each in self.tensors.values())
