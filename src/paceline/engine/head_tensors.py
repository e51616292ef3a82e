"""A draft head's configuration and tensors under one spelling, whichever library wrote them.

    here          elsewhere
    layers.0.     midlayer. (EAGLE-3 of EAGLE's repository, SGLang, SpecForge), transformer. (EAGLE in the speculators format)
    fc.           fusion_fc. (the same)
    any name      model. before it (saved from within a model)

Nothing is left over: a tensor that the head as configured does not have is refused, since a head without one of its norms or biases loads,
drafts, and is not accepted. What goes wrong is told with the kind of draft that the folder seems to hold: `--method` is easily mistaken.

Source: vLLM 0.32.0 models/llama_eagle.py and llama_eagle3.py; SGLang models/llama_eagle.py and llama_eagle3.py; speculators
convert/eagle/eagle_converter.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from paceline.engine.checkpoint import Checkpoint
from paceline.engine.decoder_layer import AttentionParts
from paceline.engine.llama import foreign_part
from paceline.errors import BadInputError, printable
from paceline.servers.draft_kind import CALLED, DRAFT_MODEL, EAGLE, EAGLE3, draft_kind

__all__ = ["HeadTensors", "attention_parts", "layer_config", "telling_the_kind"]

ELSEWHERE = {"midlayer.": "layers.0.", "transformer.": "layers.0.", "fusion_fc.": "fc."}
WITHIN = "model."
NOT_READ = ("t2d", "mask_hidden", "rotary_emb.inv_freq", "verifier_lm_head.weight", "verifier_norm.weight")
METHODS = {DRAFT_MODEL: "draft-model", EAGLE: "eagle", EAGLE3: "eagle3"}
FIRST_LAYER = "layers.0."


class HeadTensors:
    """The tensors of a head, read one after the other."""

    def __init__(self, checkpoint: Checkpoint, *, dtype: torch.dtype, device: torch.device) -> None:
        """Floating tensors will be read as `dtype`, all onto `device`.

        Raises:
            BadInputError: one tensor is there in two spellings.

        """
        self._checkpoint, self._dtype, self._device = checkpoint, dtype, device
        self._stored: dict[str, str] = {}
        for stored in sorted(checkpoint.tensors):
            name = _here(stored)
            if name in self._stored:
                raise BadInputError(f"{self} has {printable(self._stored[name])} and {printable(stored)}, which are one tensor; leave one")
            self._stored[name] = stored
        self._unread = {each for each in self._stored if not each.endswith(NOT_READ)}

    def __str__(self) -> str:
        return printable(str(self._checkpoint.folder))

    def has(self, *names: str) -> bool:
        """Whether any of these tensors is there."""
        return any(each in self._stored for each in names)

    def read(self, name: str, *, shape: Sequence[int]) -> Tensor:
        """The tensor of that name, in its `shape`; whole numbers stay whole.

        Raises:
            BadInputError: it is not there, or has another shape; it is named as this checkpoint spells its tensors.

        """
        stored = self._stored.get(name, self._there(name))
        header = self._checkpoint.tensors.get(stored)
        dtype = torch.int64 if header is not None and header.dtype.startswith(("I", "U")) else self._dtype
        self._unread.discard(name)
        return self._checkpoint.read(stored, shape=shape, dtype=dtype, device=self._device)

    def read_optional(self, name: str, *, shape: Sequence[int]) -> Tensor | None:
        """As `read`, but None where there is no such tensor."""
        return self.read(name, shape=shape) if self.has(name) else None

    def need_none_left(self) -> None:
        """Nothing, where every tensor was read.

        Raises:
            BadInputError: the checkpoint has one that the head as configured does not have.

        """
        if self._unread:
            stored = self._stored[min(self._unread)]
            raise BadInputError(
                f"{self} has the tensor {printable(stored)}, for which the head that its configuration describes has no place; "
                "without it the head would draft, but not what it was trained to"
            )

    def _there(self, name: str) -> str:
        """A name that is missing, as the others of the checkpoint are spelled."""
        for elsewhere, here in ELSEWHERE.items():
            if name.startswith(here) and any(each.removeprefix(WITHIN).startswith(elsewhere) for each in self._stored.values()):
                return name.replace(here, elsewhere, 1)
        return name


def _here(stored: str) -> str:
    name = stored.removeprefix(WITHIN)
    return next((name.replace(each, here, 1) for each, here in ELSEWHERE.items() if name.startswith(each)), name)


def layer_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a head's config.json that describes its decoder layer: all of it, and what the speculators format nests.

    Raises:
        BadInputError: the layer is of a kind that is not run here.

    """
    nested = config.get("transformer_layer_config")
    layer = {**config, **(nested if isinstance(nested, Mapping) else {})}
    odd = foreign_part(layer)
    if odd is not None:
        raise BadInputError(f"the head's configuration says {odd} {printable(layer[odd])}, which is not supported here")
    return layer


def attention_parts(tensors: HeadTensors, layer: Mapping[str, Any]) -> AttentionParts:
    """What a head's attention has: what its tensors show, and what the configuration `layer` promises.

    As in transformers' Llama, `attention_bias` is of all four projections; EAGLE's `qkv_bias` is of three.
    """
    attention = f"{FIRST_LAYER}self_attn."
    all_four = bool(layer.get("attention_bias"))
    three = bool(layer.get("qkv_bias")) or tensors.has(*(f"{attention}{each}_proj.bias" for each in "qkv"))
    return AttentionParts(
        bias=all_four or three,
        out_bias=all_four or tensors.has(f"{attention}o_proj.bias"),
        head_norms=tensors.has(*(f"{attention}{each}_norm.weight" for each in "qk")),
    )


@contextmanager
def telling_the_kind(checkpoint: Checkpoint, wanted: str) -> Iterator[None]:
    """Whatever is refused within is refused with the kind of draft that the checkpoint seems to hold, where it is not the `wanted` one."""
    try:
        yield
    except BadInputError as fault:
        kind = draft_kind(checkpoint.described)
        if kind is None or kind == wanted:
            raise
        remedy = f"say --method {METHODS[kind]}" if kind in METHODS else "such a draft is not run here"
        raise BadInputError(f"{fault}. The folder seems to hold {CALLED[kind]}, not {CALLED[wanted]}; {remedy}") from None
