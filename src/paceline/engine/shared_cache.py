"""Caches of many sequences in one block, so that a pass of one token per sequence attends in one call and not sequence by sequence.

Decoding many answers at once, arranging a call per sequence and layer takes longer than computing it. A cache of the block works like any
other; only where every row of a pass is one token of a cache of the same block is attention batched, the shorter ones masked.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from paceline.engine.kv_cache import KvCache

__all__ = ["CacheBlock", "SharedCache", "TogetherPass", "together"]


class CacheBlock:
    """Room for the keys and values of `slots` sequences of up to `room_tokens` tokens, in every layer."""

    def __init__(
        self, *, slots: int, room_tokens: int, layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.room = torch.zeros((2, layers, slots, kv_heads, room_tokens, head_dim), dtype=dtype, device=device)

    def cache(self, slot: int) -> "SharedCache":
        """An empty cache in a slot, whose last one is not used any more."""
        return SharedCache(self, slot)


class SharedCache(KvCache):
    """Keys and values of one sequence, within a block."""

    def __init__(self, block: CacheBlock, slot: int) -> None:
        self.length = 0
        self.block, self.slot = block, slot
        self._room = block.room[:, :, slot]

    def reserve(self, tokens: int) -> None:
        """Nothing: the block has room, or was made too small."""
        assert self.length + tokens <= self._room.shape[3]


class TogetherPass:
    """One token of each of several sequences in one block."""

    def __init__(self, block: CacheBlock, caches: Sequence[SharedCache]) -> None:
        device = block.room.device
        self._room = block.room
        self._slots = torch.tensor([each.slot for each in caches], device=device)
        self._lengths = torch.tensor([each.length for each in caches], device=device)
        self._seen = int(self._lengths.max()) + 1
        self._in_order = [each.slot for each in caches] == list(range(block.room.shape[2]))
        self._mask = (torch.arange(self._seen, device=device) <= self._lengths[:, None])[:, None, None]  # [sequences, 1, 1, seen]

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention of `queries` [heads, sequences, head_dim], once `keys` and `values` [kv_heads, sequences, head_dim] are remembered.

        Gives [sequences, heads · head_dim].
        """
        heads, sequences, head_dim = queries.shape
        kept_keys, kept_values = self._room[0, layer], self._room[1, layer]
        kept_keys[self._slots, :, self._lengths] = keys.transpose(0, 1)
        kept_values[self._slots, :, self._lengths] = values.transpose(0, 1)
        if not self._in_order:
            kept_keys, kept_values = kept_keys[self._slots], kept_values[self._slots]
        grouped = queries.view(keys.shape[0], -1, sequences, head_dim).permute(2, 0, 1, 3)  # [sequences, kv_heads, group, head_dim]
        seen_keys, seen_values = kept_keys[:, :, : self._seen], kept_values[:, :, : self._seen]
        attended = functional.scaled_dot_product_attention(grouped, seen_keys, seen_values, attn_mask=self._mask)
        return attended.reshape(sequences, heads * head_dim)


def together(caches: Sequence[Any], sizes: Sequence[int]) -> TogetherPass | None:
    """The pass as one, where it is one token for each of several caches of the same block; None where it is not."""
    first = caches[0]
    if len(caches) == 1 or not isinstance(first, SharedCache) or set(sizes) != {1}:
        return None
    if any(getattr(each, "block", None) is not first.block for each in caches):
        return None
    return TogetherPass(first.block, caches)
