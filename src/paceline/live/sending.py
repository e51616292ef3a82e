"""Sends requests to one server as a load asks, and keeps what came back and how late the client was.

1. Nothing is parsed here: packets and their instants are kept, and read when the block is over.
2. In a closed loop a request is due when its seat becomes free; in an open loop at its own instant, whether or not it could leave then.
3. A probe on the same loop tells how late the client itself reads: a thread writes the time into a socket, and the loop reads it as it
   reads a server's packets.
4. Whoever stops it has what was finished: `on_done` is called for each request as it ends.

Instants are `time.perf_counter_ns()`: one clock for both servers.
"""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.live.http_connection import Received
from paceline.live.openai import Ask

__all__ = ["Post", "Sent", "Watched", "send_closed", "send_open", "watched"]

FloatArray = npt.NDArray[np.float64]

Post = Callable[[Ask], Awaitable[Received]]
PROBE_EVERY_S = 0.01
STAMP = struct.Struct("<q")
NS = 1e-9


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: what was asked, when it was due, and what came."""

    ask: Ask
    due_ns: int
    received: Received


@dataclass(slots=True)
class Watched:
    """The client beside its work: how late it read each probe, in seconds, and its CPU and wall time."""

    lags_s: list[float]
    cpu_s: float
    wall_s: float

    @property
    def lag_p99_s(self) -> float | None:
        """The 99th percentile of the probes' lateness; None where none was read."""
        return float(np.quantile(np.array(self.lags_s), 0.99)) if self.lags_s else None

    @property
    def lag_mean_s(self) -> float | None:
        """Their mean; None where none was read."""
        return float(np.mean(self.lags_s)) if self.lags_s else None

    @property
    def cpu_share(self) -> float | None:
        """CPU seconds per second, None where no time passed."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else None


async def send_closed(post: Post, asks: Sequence[Ask], *, concurrency: int, on_done: Callable[[Sent], None]) -> None:
    """Send all, with `concurrency` in flight: the next one, in order, is due when one ends."""
    waiting = iter(asks)

    async def seat() -> None:
        due_ns = time.perf_counter_ns()
        for ask in waiting:
            received = await post(ask)
            on_done(Sent(ask=ask, due_ns=due_ns, received=received))
            due_ns = time.perf_counter_ns()

    async with asyncio.TaskGroup() as seats:
        for _ in range(min(concurrency, len(asks))):
            seats.create_task(seat())


async def send_open(post: Post, asks: Sequence[Ask], due_s: Sequence[float], *, on_done: Callable[[Sent], None]) -> None:
    """Send each at its own instant, seconds from now, however many are in flight. `due_s` rises; one per ask."""
    start_ns = time.perf_counter_ns()

    async def one(ask: Ask, due_ns: int) -> None:
        on_done(Sent(ask=ask, due_ns=due_ns, received=await post(ask)))

    async with asyncio.TaskGroup() as flying:
        for ask, at_s in zip(asks, due_s, strict=True):
            due_ns = start_ns + round(at_s * 1e9)
            await _until(due_ns)
            flying.create_task(one(ask, due_ns))


async def _until(due_ns: int) -> None:
    while (left_s := (due_ns - time.perf_counter_ns()) * NS) > 0:
        await asyncio.sleep(left_s)


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    """The client watched while the block runs; figures are whole after it."""
    told = Watched(lags_s=[], cpu_s=0.0, wall_s=0.0)
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    with _probing(told.lags_s):
        try:
            yield told
        finally:
            told.cpu_s, told.wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s


class _probing:  # noqa: N801 - a context manager, used as one
    """A thread that writes the time into a socket which the running loop reads."""

    def __init__(self, lags_s: list[float]) -> None:
        self._lags_s = lags_s
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)  # noqa: FBT003 - the library takes no name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        self._loop.add_reader(self._ours, self._read)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._loop.remove_reader(self._ours)
        self._ours.close()
        self._thread.join()
        self._theirs.close()

    def _write(self) -> None:
        with suppress(OSError):  # the reader has gone
            while not self._stop.wait(PROBE_EVERY_S):
                self._theirs.sendall(STAMP.pack(time.perf_counter_ns()))

    def _read(self) -> None:
        stamps = self._ours.recv(4096)
        now_ns = time.perf_counter_ns()
        self._lags_s += [(now_ns - each) * NS for (each,) in _stamps(stamps)]


def _stamps(data: bytes) -> Iterator[tuple[int]]:
    return STAMP.iter_unpack(data[: len(data) - len(data) % STAMP.size])
