"""Rotary position embedding: the angles a configuration asks for, and their application to queries and keys.

The kinds of scaling that do not depend on the sequence's length are supported (default, linear, llama3, yarn), computed by transformers.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from paceline.engine.config_sizes import positive_number, stated_size
from paceline.errors import BadInputError, printable

__all__ = ["Rotary", "rope_kind"]

KINDS = ("default", "linear", "llama3", "yarn")
FIRST_ROOM_TOKENS = 2048


def rope_kind(config: Mapping[str, Any]) -> str:
    """The kind of scaling in a config.json, in either spelling (`rope_parameters`, or `rope_scaling` beside `rope_theta`).

    Raises:
        BadInputError: it is stated as something that is no object.

    """
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(stated, Mapping):
        raise BadInputError(f"the rotary embedding of the configuration is {printable(stated)}, which is no object; give the model's own")
    return str(stated.get("rope_type") or stated.get("type") or "default")


def _scaled(config: Mapping[str, Any], stated: Mapping[str, Any], head_dim: int) -> tuple[Tensor, float]:
    """Frequencies [head_dim / 2] and scale of a kind that the library computes."""
    heads = stated_size(config, "num_attention_heads")
    length = FIRST_ROOM_TOKENS if config.get("max_position_embeddings") is None else stated_size(config, "max_position_embeddings")
    try:
        whole = LlamaConfig(
            hidden_size=heads * head_dim,
            num_attention_heads=heads,
            head_dim=head_dim,
            max_position_embeddings=length,
            rope_parameters=dict(stated),
        )
        frequencies, scale = ROPE_INIT_FUNCTIONS[str(stated["rope_type"])](whole, "cpu")
    except Exception as fault:  # the library raises whatever a value makes it trip over
        raise BadInputError(f"the rotary embedding {printable(dict(stated))} cannot be made: {printable(str(fault))}") from None
    if not (torch.isfinite(frequencies).all() and isfinite(scale)):
        raise BadInputError(f"the rotary embedding {printable(dict(stated))} makes angles that are no numbers; give the model's own")
    return frequencies, scale


class Rotary:
    """Cosines and sines by position, made as far as they are needed."""

    def __init__(self, config: Mapping[str, Any], *, head_dim: int, device: torch.device) -> None:
        """`config` is a config.json.

        Raises:
            BadInputError: a kind of scaling that depends on the sequence's length, or a value that makes no angles.

        """
        kind = rope_kind(config)
        if kind not in KINDS:
            raise BadInputError(f"rotary embedding of kind {printable(kind)} is not supported here; supported: {', '.join(KINDS)}")
        stated = config.get("rope_parameters") or {
            "rope_theta": config.get("rope_theta", 10000.0),
            **(config.get("rope_scaling") or {}),
        }
        theta = positive_number(stated, "rope_theta", unstated=10000.0)
        if kind == "default":
            self._scale = 1.0
            exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
            self._frequencies = 1.0 / (theta**exponents)
        else:
            self._frequencies, self._scale = _scaled(config, {**stated, "rope_theta": theta, "rope_type": kind}, head_dim)
        self._device = device
        self._table = self._made(FIRST_ROOM_TOKENS)

    def _made(self, positions: int) -> Tensor:
        """The table, on a real device even where a model is being made without one."""
        angles = torch.outer(torch.arange(positions, dtype=torch.float32, device="cpu"), self._frequencies.float())
        angles = torch.cat((angles, angles), dim=-1)
        return torch.stack((angles.cos(), angles.sin())).mul(self._scale).to(self._device)  # [2, positions, head_dim]

    def at(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [..., head_dim] for positions [...]."""
        most = int(positions.max()) + 1
        if most > self._table.shape[1]:
            self._table = self._made(max(most, 2 * self._table.shape[1]))
        return self._table[0][positions].to(dtype), self._table[1][positions].to(dtype)

    @staticmethod
    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`x` [..., head_dim] turned by its position's angles; `cos` and `sin` broadcast to it."""
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin
