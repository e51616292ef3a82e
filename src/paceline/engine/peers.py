"""Several processes at one training (`torchrun`): each answers its share of the log and learns from its share of every batch.

Nothing is started here: where `torchrun` set the environment, the processes find each other; else there is one. All read and write the same
folder. Gradients and weights of a batch are summed over the processes, so that the update is that of one process but for the order of sums.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed

__all__ = ["Peers", "find_peers"]

LONGEST_WAIT = timedelta(days=2)  # for a process that still answers its share; torchrun ends all where one has died
Thing = TypeVar("Thing")


class Peers:
    """The processes of a training, this one being the `rank`-th of `size`."""

    def __init__(self, *, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes what all share."""
        return self.rank == 0

    def share(self, things: Sequence[Thing]) -> list[Thing]:
        """What of `things` falls to this process."""
        return list(things[self.rank :: self.size])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the processes."""
        if self.size > 1:
            for each in tensors:
                distributed.all_reduce(each)

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            distributed.barrier()


def find_peers() -> Peers:
    """The processes that `torchrun` started, one where it did not."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Peers(rank=0, size=1)
    if not distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=LONGEST_WAIT)
    return Peers(rank=distributed.get_rank(), size=distributed.get_world_size())
