"""Keys and values of one sequence, in room reserved ahead, so that rolling back is setting a length.

A speculative step appends more tokens than it keeps. On a chain the kept ones come first and `rollback` forgets the rest; in a tree the
kept path is scattered, and `keep` moves it together. Positions inside the path stay what they were, since a node's position is its depth.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Cache", "KvCache"]

FIRST_ROOM_TOKENS = 256


class Cache(Protocol):
    """What a target or draft remembers of one sequence."""

    @property
    def length(self) -> int:
        """Tokens remembered."""

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens."""

    def keep(self, start: int, offsets: Sequence[int]) -> None:
        """Of the tokens from `start` on keep those at `offsets` (ascending), moved together; forget the others."""


class KvCache:
    """Keys and values of one sequence in every layer."""

    def __init__(self, *, layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.length = 0
        self._room = torch.zeros((2, layers, kv_heads, FIRST_ROOM_TOKENS, head_dim), dtype=dtype, device=device)

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` more."""
        room = self._room.shape[3]
        if self.length + tokens > room:
            wider = self._room.new_zeros((*self._room.shape[:3], max(2 * room, self.length + tokens), self._room.shape[4]))
            wider[:, :, :, : self.length] = self._room[:, :, :, : self.length]
            self._room = wider

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put keys and values [kv_heads, tokens, head_dim] behind those remembered; all of the layer's, the new ones included.

        `length` stays: it moves once all layers are written.
        """
        end = self.length + keys.shape[1]
        held = self._room[:, layer, :, :end]
        held[0, :, self.length :] = keys
        held[1, :, self.length :] = values
        return held[0], held[1]

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        assert 0 <= length <= self.length
        self.length = length

    def keep(self, start: int, offsets: Sequence[int]) -> None:
        """Of the tokens from `start` on keep those at `offsets` (ascending), moved together; forget the others."""
        if list(offsets) != list(range(len(offsets))):
            places = torch.tensor(offsets, device=self._room.device) + start
            self._room[:, :, :, start : start + len(offsets)] = self._room[:, :, :, places]
        self.rollback(start + len(offsets))
