"""What the fake server really did: a record of JSON lines, one per request, and how late its own writes were.

Lines are made between steps, where there is time, and flushed one by one; what waits is bounded.
"""

import json
from collections import deque
from pathlib import Path
from time import perf_counter_ns
from typing import IO, Any, Protocol

__all__ = ["Lateness", "Record"]

MOST_WAITING = 4_096
BIN_NS = 10_000
BINS = 20_000


class Recorded(Protocol):
    """What can be put on record."""

    def recorded(self) -> dict[str, Any]:
        """The line."""


class Record:
    """A file of JSON lines, or (None) nothing."""

    def __init__(self, path: Path | None, *, first_line: dict[str, Any]) -> None:
        self._waiting: deque[Recorded] = deque()
        self._file: IO[str] | None = None
        if path is not None:
            self._file = path.open("w", encoding="utf-8")
            self._put(first_line)

    def _put(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()

    def keep(self, stream: Recorded) -> None:
        """Put a request that is over on record, soon."""
        if self._file is not None:
            self._waiting.append(stream)
            if len(self._waiting) > MOST_WAITING:
                self.write_while(None)

    def write_while(self, until_ns: int | None) -> None:
        """Write what waits, as long as there is time; None: all of it."""
        while self._waiting and (until_ns is None or perf_counter_ns() < until_ns):
            self._put(self._waiting.popleft().recorded())

    def close(self, last_line: dict[str, Any]) -> None:
        """Write what waits and the last line."""
        if self._file is not None:
            self.write_while(None)
            self._put(last_line)
            self._file.close()
            self._file = None


class Lateness:
    """How late chunks were written, in bins of 10 µs up to 200 ms."""

    def __init__(self) -> None:
        self._bins = [0] * (BINS + 1)
        self.chunks = 0
        self.worst_s = 0.0

    def add(self, late_ns: int) -> None:
        """One chunk."""
        self._bins[min(max(late_ns, 0) // BIN_NS, BINS)] += 1
        self.chunks += 1
        self.worst_s = max(self.worst_s, late_ns / 1e9)

    def quantile_s(self, share: float) -> float | None:
        """The lateness that `share` of the chunks do not exceed (upper edge of its bin), None where nothing was written."""
        below = 0
        for place, count in enumerate(self._bins):
            below += count
            if self.chunks and below >= share * self.chunks:
                return min((place + 1) * BIN_NS / 1e9, self.worst_s) if place < BINS else self.worst_s
        return None

    def figures(self) -> dict[str, Any]:
        """P50, P99 and the worst, in seconds, with how many chunks they are of."""
        told = {"chunks": self.chunks, "p50_s": self.quantile_s(0.5), "p99_s": self.quantile_s(0.99)}
        return told | {"worst_s": self.worst_s if self.chunks else None}
