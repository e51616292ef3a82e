"""A decoder's layers held in parts by several processes (FSDP), for a target that is larger than one device.

Each process holds an equal part of every tensor of every layer. A pass gathers a layer when it is about to run, the next one while it runs,
and lets it go again: at most two layers are whole at any time. Gathering takes all processes, so each has to make as many passes as any.

What stands outside the layers (embeddings, output head) is held whole: drafting and training read it row by row, and in a large target it
is a few percent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from paceline.engine.peers import Peers

__all__ = ["ShardedLayers", "peer_mesh", "shard"]

LayerT = TypeVar("LayerT")


def peer_mesh(peers: Peers, device: torch.device) -> DeviceMesh:
    """The processes as those that hold parts. All have to ask for it together."""
    return init_device_mesh(device.type, (peers.size,))


def shard(module: nn.Module, mesh: DeviceMesh) -> None:
    """Keep this process's part of every parameter of `module`; its forward pass gathers them and lets them go."""
    fully_shard(module.requires_grad_(requires_grad=False), mesh=mesh, reshard_after_forward=True)


class ShardedLayers(Generic[LayerT]):
    """Layers, each a record of tensors (or None), of which this process holds parts; going through them makes one after the other whole."""

    def __init__(self, layers: Iterable[LayerT], mesh: DeviceMesh) -> None:
        """Take what `layers` gives, one at a time, so that no two need be whole."""
        self._held: list[Any] = []
        for layer in layers:
            self._kind = type(layer)
            module = nn.Module()
            for each in fields(layer):  # type: ignore[arg-type]  # records, by this class's rule
                tensor: Tensor | None = getattr(layer, each.name)
                module.register_parameter(each.name, None if tensor is None else nn.Parameter(tensor, requires_grad=False))
            shard(module, mesh)
            self._held.append(module)

    def __iter__(self) -> Iterator[LayerT]:
        """Each layer whole, until the next is asked for."""
        coming = self._held[0].unshard(async_op=True)
        for module, following in zip(self._held, [*self._held[1:], None], strict=True):
            coming.wait()
            if following is not None:
                coming = following.unshard(async_op=True)
            try:
                yield self._kind(**{each.name: getattr(module, each.name) for each in fields(self._kind)})  # type: ignore[arg-type]  # a record
            finally:
                module.reshard()
