"""Reading sockets apart from the event loop with the kernel's own stamps: when a packet came, not when its turn came.

Where 256 streams emit in lock-step, the last packet of a step is read milliseconds after it came, and a stamp taken then would hold our
own queue. Linux notes when a packet arrived and tells it with the bytes (SO_TIMESTAMPNS, socket(7)); of several packets read at once it
tells the last one's. So packets are read at once, in a thread without the interpreter (`packet_kernel`), and handed over later and many at
a time: when a reply may be over, a socket ended, or many are held.

The kernel's clock is the wall clock, ours the monotonic one; the difference is taken anew each turn, since a wall clock may be set. A stamp
is never later than the reading, nor earlier than what was stamped before it on its socket. Bytes without a kernel's stamp get the instant
of reading.
"""

import asyncio
import errno
import os
import platform
import select
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Final

__all__ = ["PacketReader", "Source"]

DESCRIPTORS: Final = 65_536  # as many files as `event_loop` makes room for

Packet = Callable[[int, bytes], None]
Look = Callable[[], None]
End = Callable[[OSError | None], None]


class Source:
    """One socket that is read, until it is removed or has ended.

    `packet` gets (perf_counter_ns, bytes); after it `look` is told, where some of what was handed over may end a reply; `end` that the
    socket ended (the fault, None for a close).
    """

    __slots__ = ("descriptor", "end", "is_read", "look", "packet", "socket")

    def __init__(self, descriptor: int, packet: Packet, look: Look, end: End) -> None:
        self.socket = socket.socket(fileno=os.dup(descriptor))
        self.descriptor = self.socket.fileno()
        self.packet, self.look, self.end = packet, look, end
        self.is_read = True


class PacketReader:
    """Reads any number of sockets for the running event loop; to be closed before the loop is."""

    def __init__(self) -> None:
        from paceline.live.packet_kernel import Ring

        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._wake, self._tell, self._space = (os.eventfd(0, os.EFD_CLOEXEC) for _ in range(3))
        self._epoll.register(self._wake, select.EPOLLIN)
        self._ring = Ring(descriptors=DESCRIPTORS, eventfds=(self._wake, self._tell, self._space))
        self._sources: dict[int, Source] = {}
        self._leaving: list[tuple[int, Source]] = []
        self._ring.stop(stopped=True)
        self._ring.run(self._epoll.fileno())  # compiles, before anything is measured
        self._ring.stop(stopped=False)
        self._thread = threading.Thread(target=self._ring.run, args=(self._epoll.fileno(),), name="packets", daemon=True)
        self._thread.start()
        self._loop.add_reader(self._tell, self._told)

    @staticmethod
    def is_possible() -> bool:
        """Whether this system stamps packets as `packet_kernel` reads them, and that is compiled."""
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return False
        from numba import config

        return not getattr(config, "DISABLE_JIT", False)

    def add(self, descriptor: int, *, packet: Packet, look: Look, end: End) -> Source:
        """Read the socket of `descriptor`, which nobody else may read, until it is removed.

        Raises:
            OSError: no room for one more file.

        """
        self._let_go()
        source = Source(descriptor, packet, look, end)
        if source.descriptor >= DESCRIPTORS:
            source.socket.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._ring.begin(source.socket, at_ns=perf_counter_ns())
        self._sources[source.descriptor] = source
        self._epoll.register(source.descriptor, select.EPOLLIN)
        return source

    def count_anew(self, source: Source) -> None:
        """Count the source's received bytes from zero, and look at the first packet."""
        if source.is_read:
            self._ring.due_bytes[source.descriptor] = self._ring.received_bytes[source.descriptor] = 0

    def look_at(self, source: Source, due_bytes: int) -> None:
        """Look when so many bytes were received, whatever the packet ends in. A look is due at an empty line and below 4 bytes anyway."""
        if source.is_read:
            self._ring.due_bytes[source.descriptor] = due_bytes

    def received_bytes(self, source: Source) -> int:
        """Bytes received since they were counted anew, handed over or not; 0 where the source is read no more."""
        return int(self._ring.received_bytes[source.descriptor]) if source.is_read else 0

    def hand_over(self) -> None:
        """Hand over all that was read. Whoever asks looks for himself; everybody else is told of looks and ends soon."""
        looks: dict[Source, None] = {}
        ends: list[tuple[Source, int]] = []
        for descriptor, at_ns, data, look in self._ring.take():
            source = self._sources[descriptor]
            if not source.is_read:
                continue
            if isinstance(data, bytes):
                source.packet(at_ns, data)
                if look:
                    looks[source] = None
            else:
                self.remove(source)
                ends.append((source, data))
        if self._ring.is_full:
            os.eventfd_write(self._space, 1)
        for source in looks:
            self._loop.call_soon(source.look)
        for source, fault in ends:
            self._loop.call_soon(source.end, OSError(fault, os.strerror(fault)) if fault else None)
        self._let_go()

    def remove(self, source: Source) -> None:
        """Read it no more, and close our side of it. What was removed before, or has ended, is left alone.

        The file is closed after a whole turn of the thread without it: before, the thread might read a number that was given to another.
        """
        if source.is_read:
            source.is_read = False
            with suppress(OSError):  # it ended, and the thread has taken it out
                self._epoll.unregister(source.descriptor)
            with suppress(OSError):  # the peer was faster
                source.socket.shutdown(socket.SHUT_RDWR)
            self._leaving.append((self._ring.turns, source))
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Read nothing more."""
        if self._epoll.closed:
            return
        self._loop.remove_reader(self._tell)
        self._ring.stop(stopped=True)
        for eventfd in (self._space, self._wake):
            os.eventfd_write(eventfd, 1)
        self._thread.join()
        for each in self._sources.values():
            each.is_read = False
            each.socket.close()
        self._sources.clear()
        self._epoll.close()
        for eventfd in (self._wake, self._tell, self._space):
            os.close(eventfd)

    def _told(self) -> None:
        os.eventfd_read(self._tell)
        self.hand_over()
        fault = self._ring.fault
        if fault:
            for source in list(self._sources.values()):
                if source.is_read:
                    self.remove(source)
                    self._loop.call_soon(source.end, OSError(fault, os.strerror(fault)))

    def _let_go(self) -> None:
        """Close the files that the thread can not be reading any more: three turns' marks on, a whole turn lies between."""
        turns = self._ring.turns
        for each in self._leaving:
            if turns >= each[0] + 3:
                del self._sources[each[1].descriptor]
                each[1].socket.close()
        self._leaving = [each for each in self._leaving if turns < each[0] + 3]
