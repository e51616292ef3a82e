"""How many tokens a step drafts where that depends on its batch: a table by batch size, or a ladder that follows what is accepted.

Notation: K is the longest draft; a batch is the requests that run when the step is planned.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import numpy as np

from paceline.data.tables import table
from paceline.errors import BadInputError, is_count
from paceline.simulate.state import Lengths

__all__ = ["Ladder", "LadderSlot", "LengthTable", "fixed_length", "ladder_from_table"]


@dataclass(frozen=True, slots=True)
class LengthTable:
    """Draft length by batch size, as vLLM's `num_speculative_tokens_per_batch_size`: entries (first, last, K), both ends included.

    A gap, and what comes after the last entry, carries the K before it. A K of 0 decodes plainly.
    """

    entries: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        """Reject an empty table, one that does not start at 1, entries that overlap or run backwards, and lengths below 0.

        Raises:
            BadInputError: with the entry.

        """
        if not self.entries or self.entries[0][0] != 1:
            raise BadInputError(f"draft lengths by batch size {self.entries!r} must start at a batch of 1")
        for entry in self.entries:
            if not (all(is_count(each, least=0) for each in entry) and 1 <= entry[0] <= entry[1]):
                raise BadInputError(f"entry {entry!r} is not first ≤ last with a draft length from 0 on")
        for before, after in pairwise(self.entries):
            if after[0] <= before[1]:
                raise BadInputError(f"entries {before!r} and {after!r} overlap or are out of order")

    def longest(self) -> int:
        """K: the longest draft of any batch."""
        return max(each[2] for each in self.entries)

    def rules(self, *, draft_tokens: int, max_requests: int) -> Lengths:
        """The kernel's lengths, cut to `draft_tokens` (as vLLM does)."""
        by_batch = np.zeros(max_requests + 1, dtype=np.int64)
        for first, _, length in self.entries:
            by_batch[first:] = min(length, draft_tokens)
        by_batch[0] = by_batch[min(1, max_requests)]
        return _lengths(by_batch, (), weight=0.0, warm_up=0, interval=1)


@dataclass(frozen=True, slots=True)
class LadderSlot:
    """One range of batch sizes, from `first` on: rising candidate lengths, and what is added to the thresholds of going up and down."""

    first: int
    candidates: tuple[int, ...]
    up: float
    down: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """SGLang's adaptive draft length; see `ladder` for the rule.

    Attributes:
        slots: by batch size, rising.
        weight: of the newest batch in the moving mean.
        warm_up: batches before the first decision, per slot.
        interval: batches between decisions.

    """

    slots: tuple[LadderSlot, ...]
    weight: float
    warm_up: int
    interval: int

    def __post_init__(self) -> None:
        """Reject slots that do not start at 1 or do not rise, lengths that do not rise, and impossible constants.

        Raises:
            BadInputError: with the value.

        """
        firsts = [each.first for each in self.slots]
        if firsts[:1] != [1] or any(b <= a for a, b in pairwise(firsts)):
            raise BadInputError(f"the ladder's batch sizes {firsts!r} must start at 1 and rise")
        for slot in self.slots:
            rising = all(b > a for a, b in pairwise(slot.candidates))
            if not slot.candidates or not rising or not all(is_count(each, least=0) for each in slot.candidates):
                raise BadInputError(f"candidates {slot.candidates!r} are not rising draft lengths from 0 on")
            if not (isfinite(slot.up) and isfinite(slot.down)):
                raise BadInputError(f"hysteresis {slot.up!r} and {slot.down!r} must be finite")
        if not (0 < self.weight <= 1 and is_count(self.warm_up, least=0) and is_count(self.interval, least=1)):
            raise BadInputError(f"weight {self.weight!r}, warm-up {self.warm_up!r} and interval {self.interval!r} make no moving mean")

    def longest(self) -> int:
        """K: the longest candidate."""
        return max(each.candidates[-1] for each in self.slots)

    def rules(self, *, draft_tokens: int, max_requests: int) -> Lengths:
        """The kernel's lengths.

        Raises:
            BadInputError: a candidate is longer than `draft_tokens`.

        """
        if self.longest() > draft_tokens:
            raise BadInputError(f"the ladder climbs to {self.longest()} drafts, but the draft length is {draft_tokens}")
        slot_of = np.searchsorted([each.first for each in self.slots], np.arange(max_requests + 1), side="right") - 1
        return _lengths(np.maximum(slot_of, 0), self.slots, weight=self.weight, warm_up=self.warm_up, interval=self.interval)


def fixed_length(draft_tokens: int) -> Lengths:
    """The kernel's lengths where every step drafts as many tokens."""
    return _lengths(np.array([draft_tokens]), (), weight=0.0, warm_up=0, interval=1)


def ladder_from_table(name: str) -> Ladder:
    """The published ladder called `name` in `data/draft_ladders.toml`: `sglang`."""
    found = table("draft_ladders")[name]
    slots = tuple(
        LadderSlot(first=each["first"], candidates=tuple(each["candidates"]), up=each["up"], down=each["down"]) for each in found["slots"]
    )
    return Ladder(slots=slots, weight=found["weight"], warm_up=found["warm_up"], interval=found["interval"])


def _lengths(by_batch: np.ndarray, slots: tuple[LadderSlot, ...], *, weight: float, warm_up: int, interval: int) -> Lengths:
    candidates = np.zeros((len(slots), max((len(each.candidates) for each in slots), default=1)), dtype=np.int64)
    for row, slot in zip(candidates, slots, strict=True):
        row[: len(slot.candidates)] = slot.candidates
    return Lengths(
        by_batch=by_batch.astype(np.int64),
        candidates=candidates,
        rungs=np.array([len(each.candidates) for each in slots], dtype=np.int64),
        up=np.array([each.up for each in slots], dtype=np.float64),
        down=np.array([each.down for each in slots], dtype=np.float64),
        weight=weight,
        warm_up=warm_up,
        interval=interval,
    )
