"""Reading the sockets of one event loop with the kernel's own stamps: when a packet came, not when its turn came.

Where 256 streams emit in lock-step, the last packet of a step is read milliseconds after it came, and a stamp taken then would hold our
own queue. Linux notes when a packet arrived and tells it with the bytes (SO_TIMESTAMPNS, socket(7)); of several packets read at once it
tells the last one's. All sockets that have something are read in one turn of the event loop, which costs less than a turn each.

The kernel's clock is the wall clock, ours the monotonic one; the difference is taken anew each turn, since a wall clock may be set. A stamp
is never later than the reading, nor earlier than what was stamped before it on its socket. Bytes without a kernel's stamp get the instant
of reading.
"""

import asyncio
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from time import perf_counter_ns, time_ns

__all__ = ["PacketReader", "Source"]

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module does not name it
SECONDS_AND_NS = struct.Struct("@qq")
CONTROL_BYTES = socket.CMSG_SPACE(SECONDS_AND_NS.size) if sys.platform != "win32" else 0
PACKET_BYTES = 64 * 1024

Packets = Callable[[int, bytes], None]
End = Callable[[OSError | None], None]


class Source:
    """One socket that is read: what to do with (perf_counter_ns, bytes), and with its end (the fault, None for a close).

    Whoever is told of the end removes it.
    """

    __slots__ = ("_at_ns", "end", "packets", "socket")

    def __init__(self, descriptor: int, packets: Packets, end: End) -> None:
        self.socket = socket.socket(fileno=os.dup(descriptor))
        self.socket.settimeout(0)
        self.packets, self.end = packets, end
        self._at_ns = perf_counter_ns()

    def read(self, wall_ahead_ns: int) -> None:
        """Hand over what is there; the wall clock is `wall_ahead_ns` ahead of ours."""
        try:
            data, notes, _, _ = self.socket.recvmsg(PACKET_BYTES, CONTROL_BYTES)
        except BlockingIOError:
            return
        except OSError as fault:
            self.end(fault)
            return
        if not data:
            self.end(None)
            return
        at_ns = perf_counter_ns()
        if notes and notes[0][1] == SO_TIMESTAMPNS:
            seconds, ns = SECONDS_AND_NS.unpack(notes[0][2])
            at_ns = max(self._at_ns, min(at_ns, seconds * 1_000_000_000 + ns - wall_ahead_ns))
        self._at_ns = at_ns
        self.packets(at_ns, data)


class PacketReader:
    """Reads any number of sockets for the running event loop; to be closed before the loop is."""

    def __init__(self) -> None:
        self._ready = select.epoll()
        self._sources: dict[int, Source] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ready.fileno(), self._read)

    @staticmethod
    def is_possible() -> bool:
        """Whether this system stamps packets."""
        return sys.platform == "linux" and sys.maxsize > 2**32  # whose stamps are two 64-bit numbers

    def add(self, descriptor: int, packets: Packets, end: End) -> Source:
        """Read the socket of `descriptor`, which nobody else may read, until it is removed."""
        source = Source(descriptor, packets, end)
        source.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._sources[source.socket.fileno()] = source
        self._ready.register(source.socket.fileno(), select.EPOLLIN)
        return source

    def remove(self, source: Source) -> None:
        """Read it no more. What was removed before is left alone."""
        descriptor = source.socket.fileno()
        if self._sources.get(descriptor) is source:
            del self._sources[descriptor]
            self._ready.unregister(descriptor)
            source.socket.close()

    def close(self) -> None:
        """Read nothing more."""
        if not self._ready.closed:
            self._loop.remove_reader(self._ready.fileno())
            for each in list(self._sources.values()):
                self.remove(each)
            self._ready.close()

    def _read(self) -> None:
        wall_ahead_ns = time_ns() - perf_counter_ns()
        for descriptor, _ in self._ready.poll(0):
            source = self._sources.get(descriptor)
            if source is not None:  # else another's end closed it in this turn
                source.read(wall_ahead_ns)
