"""What is kept of a stream too long to keep: a uniform sample of it, and counts pooled into few groups.

Notation: m what may be kept, n what was offered so far.
"""

from typing import Generic, TypeVar

import numpy as np

from paceline.speculation.counts import AcceptanceCounts

__all__ = ["Groups", "Reservoir"]

Item = TypeVar("Item")


class Reservoir(Generic[Item]):
    """At most m of the items offered, each with the same chance m / n, in constant memory (Vitter 1985, algorithm R)."""

    def __init__(self, most: int, *, rng: np.random.Generator) -> None:
        self._most = most
        self._rng = rng
        self._offered = 0
        self._kept: list[Item] = []

    def offer(self, item: Item) -> None:
        """Take one item, in place of one kept before where there is no room."""
        self._offered += 1
        if len(self._kept) < self._most:
            self._kept.append(item)
            return
        place = int(self._rng.integers(self._offered))
        if place < self._most:
            self._kept[place] = item

    @property
    def kept(self) -> tuple[Item, ...]:
        """What is kept; in the order offered where all of it is."""
        return tuple(self._kept)

    @property
    def is_sample(self) -> bool:
        """Whether something offered was not kept."""
        return self._offered > len(self._kept)


class Groups:
    """Counts of requests, dealt in turn to at most m groups: no two groups' sizes differ by more than one request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._dealt = 0
        self._groups: list[AcceptanceCounts] = []

    def add(self, counts: AcceptanceCounts) -> None:
        """Deal one request's counts."""
        place = self._dealt % self._most
        self._dealt += 1
        if place == len(self._groups):
            self._groups.append(counts)
        else:
            self._groups[place] = self._groups[place] + counts

    @property
    def pooled(self) -> tuple[AcceptanceCounts, ...]:
        """The groups' counts; those of single requests while there are no more than m."""
        return tuple(self._groups)
