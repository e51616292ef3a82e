"""A target whose layers several processes hold in parts, each answering with it as if it were its own.

A pass of one process needs the parts of all, so every process makes as many passes as the one that has most to run: before each it says
that it still runs, and one that has nothing left makes passes of a single token until none does (`help_others`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.engine.checkpoint import open_checkpoint
from paceline.engine.llama import LlamaTarget, is_llama_like
from paceline.engine.peers import Peers
from paceline.engine.rows import Answered, Row
from paceline.engine.sharding import peer_mesh
from paceline.engine.shared_cache import CacheBlock
from paceline.engine.target import LibraryTarget

__all__ = ["ShardedTarget", "load_sharded_target"]


class ShardedTarget:
    """A causal language model whose layers are shared by `peers`."""

    def __init__(self, target: LlamaTarget | LibraryTarget, peers: Peers) -> None:
        self._target, self._peers = target, peers
        self.layers, self.vocab, self.hidden = target.layers, target.vocab, target.hidden
        self.dtype, self.device = target.dtype, target.device
        self.embedding: Tensor = target.embedding
        self.head: Tensor = target.head

    def new_cache(self) -> Any:
        """A cache that remembers nothing yet."""
        return self._target.new_cache()

    def new_block(self, *, slots: int, room_tokens: int) -> CacheBlock | None:
        """As the target's own."""
        return self._target.new_block(slots=slots, room_tokens=room_tokens)

    def unembed(self, features: Tensor) -> Tensor:
        """Logits [..., vocab] of features [..., hidden], float32 or wider. Takes no other process."""
        return self._target.unembed(features)

    def forward(self, rows: Sequence[Row[Any]], *, hidden_layers: Sequence[int]) -> list[Answered]:
        """Run the rows, together with passes of every other process; `hidden_layers` are those whose residual stream is wanted."""
        # The library's rows make a pass each; a process that helps has to know of every one.
        passes = [rows] if isinstance(self._target, LlamaTarget) else [[row] for row in rows]
        answers: list[Answered] = []
        for each in passes:
            self._say(running=True)
            answers += self._target.forward(each, hidden_layers=hidden_layers)
        return answers

    def help_others(self) -> None:
        """Take part in passes until no process has any left to run. Every process calls it once it has made its own."""
        token = torch.zeros(1, dtype=torch.int64, device=self.device)
        while self._say(running=False) > 0:
            self._target.forward([Row(token, self.new_cache(), None, logits=0)], hidden_layers=())

    def _say(self, *, running: bool) -> Tensor:
        """Whether this process has a pass to run; how many have, once all have said so."""
        count = torch.tensor(int(running), device=self.device)
        self._peers.add_up([count])
        return count


def load_sharded_target(folder: Path, *, dtype: torch.dtype, device: torch.device, peers: Peers) -> ShardedTarget:
    """The model in `folder`, its layers shared by `peers`, all of which load it at the same time.

    A model that runs through transformers is loaded by one process after the other: each has it whole in host memory before it is cut.

    Raises:
        BadInputError: no config, no safetensors, a tensor is missing, or transformers does not know the model.

    """
    checkpoint = open_checkpoint(folder)
    mesh = peer_mesh(peers, device)
    if is_llama_like(checkpoint.config):
        return ShardedTarget(LlamaTarget(checkpoint, dtype=dtype, device=device, mesh=mesh), peers)
    for turn in range(peers.size):
        if turn == peers.rank:
            target = LibraryTarget(checkpoint, dtype=dtype, device=device, mesh=mesh)
        peers.wait()
    return ShardedTarget(target, peers)
