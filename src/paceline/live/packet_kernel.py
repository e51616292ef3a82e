"""Packets of many sockets, read without the interpreter: epoll, recvmsg and the kernel's stamps, compiled, in a thread without the GIL.

A packet that Python reads costs several times what it costs the kernel to hand it over, all of it on the cores whose servers are measured,
and waits while Python is busy. Here `gather` reads for ever and leaves packets in a ring; whoever takes them is told through an eventfd
when somebody has to look at one, a socket ended, or the ring fills.

One thread writes the ring and one takes from it, without a lock: a row is written before the count of rows, which x86-64 keeps in order.
Layouts are Linux's on 64 bits (recvmsg(2), cmsg(3), epoll_ctl(2)): msghdr is 7 numbers of 64 bits, a stamp's control message 4 of them,
an epoll_event 3 of 32 bits. Arrays by socket are indexed by its file descriptor. Instants are CLOCK_MONOTONIC's, perf_counter_ns, in ns.
"""

import errno
import socket
from typing import Any, Final

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

__all__ = ["Ring", "gather"]

Numbers = NDArray[np.int64]

PACKET_BYTES: Final = 64 * 1024
RING_BYTES: Final = 64 * PACKET_BYTES
ROWS: Final = 8192
ROWS_TOGETHER, BYTES_TOGETHER = ROWS // 8, RING_BYTES // 8  # so many are taken at once where nobody has to look sooner
EVENTS: Final = 256
DESCRIPTOR, AT_NS, BEGIN, LENGTH, LOOK = range(5)  # columns of a row; of an end LENGTH is -errno, 0 for a close
WRITTEN, TAKEN, TAKEN_BYTES, TURNS, STOP, FULL, FAULT = range(7)  # places in `Ring.counts`
WAKE, TELL, SPACE = range(3)  # places in `Ring.eventfds`

SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h; the socket module does not name it
STAMP_KIND: Final = int(socket.SOL_SOCKET) | SO_TIMESTAMPNS << 32  # level and type of its control message
STAMP_BYTES: Final = 32
DONT_WAIT: Final = 0x40  # MSG_DONTWAIT
AGAIN, INTERRUPTED = int(errno.EAGAIN), int(errno.EINTR)
REMOVE: Final = 2  # EPOLL_CTL_DEL
REALTIME, MONOTONIC = 0, 1
SECOND_NS: Final = 1_000_000_000
CR, LF = 13, 10

_function: Any = types.ExternalFunction
_int: Any = types.int32
_long: Any = types.int64
_address: Any = types.intp
_epoll_wait = _function("epoll_wait", _int(_int, _address, _int, _int))
_epoll_ctl = _function("epoll_ctl", _int(_int, _int, _int, _address))
_recvmsg = _function("recvmsg", _long(_int, _address, _int))
_read = _function("read", _long(_int, _address, _long))
_write = _function("write", _long(_int, _address, _long))
_clock_gettime = _function("clock_gettime", _int(_int, _address))
_errno_at = _function("__errno_location", types.CPointer(_int)())  # type: ignore[no-untyped-call]  # numba has none


class Ring:
    """Packets that were read and not yet taken, and all else that the two threads share.

    Attributes:
        block: bytes of packets, uint8 [RING_BYTES].
        rows: int64 [ROWS, 5], a packet or an end each: descriptor, instant, begin in `block`, length, whether somebody has to look.
        counts: rows written and taken since the beginning, bytes taken (a place that runs with the ring), epoll's turns (odd while sockets
            are read), whether to stop, whether the writer waits for room, and the errno it gave up with.
        eventfds: wake the writer from epoll; tell the taker; tell the writer that there is room.
        due_bytes, received_bytes, last_ns: by descriptor, at how many received bytes to look, how many came, and the last instant.

    """

    def __init__(self, *, descriptors: int, eventfds: tuple[int, int, int]) -> None:
        self.block: NDArray[np.uint8] = np.zeros(RING_BYTES, np.uint8)
        self.rows: Numbers = np.zeros((ROWS, 5), np.int64)
        self.counts: Numbers = np.zeros(7, np.int64)
        self.eventfds: Numbers = np.array(eventfds, np.int64)
        self.due_bytes, self.received_bytes, self.last_ns = (np.zeros(descriptors, np.int64) for _ in range(3))
        self._events: NDArray[np.int32] = np.zeros(3 * EVENTS, np.int32)
        self._clock: Numbers = np.zeros(2, np.int64)
        self._control: Numbers = np.zeros(8, np.int64)
        self._buffer: Numbers = np.zeros(2, np.int64)
        self._message: Numbers = np.zeros(7, np.int64)
        self._message[2:6] = self._buffer.ctypes.data, 1, self._control.ctypes.data, STAMP_BYTES

    def run(self, epoll: int) -> None:
        """Read the sockets of `epoll` until `counts[STOP]` is set and the writer woken, or epoll fails."""
        calls = (self._events, self._clock, self._control, self._buffer, self._message)
        sockets = (self.due_bytes, self.received_bytes, self.last_ns)
        gather(epoll, calls, (self.block, self.rows, self.counts, self.eventfds), sockets)

    def begin(self, connection: socket.socket, *, at_ns: int) -> None:
        """Have the packets of a socket stamped, count them from zero, and stamp none earlier than `at_ns`. It is not in epoll yet."""
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        descriptor = connection.fileno()
        self.due_bytes[descriptor] = self.received_bytes[descriptor] = 0
        self.last_ns[descriptor] = at_ns

    @property
    def turns(self) -> int:
        """Marks that epoll's turns have passed: two a turn, one when it begins and one when it ends."""
        return int(self.counts[TURNS])

    @property
    def is_full(self) -> bool:
        """Whether the writer waits for room."""
        return bool(self.counts[FULL])

    @property
    def fault(self) -> int:
        """The errno that the writer gave up with, else 0."""
        return int(self.counts[FAULT])

    def stop(self, *, stopped: bool) -> None:
        """Have `run` end as soon as the writer is woken, or begin."""
        self.counts[STOP] = stopped

    def take(self) -> list[tuple[int, int, bytes | int, bool]]:
        """What was read since the last time: descriptor, instant, the bytes (of an end: its errno, 0 for a close), whether to look."""
        first, end = int(self.counts[TAKEN]), int(self.counts[WRITTEN])
        block = memoryview(self.block)  # type: ignore[arg-type]  # an array is a buffer
        taken: list[tuple[int, int, bytes | int, bool]] = []
        rows = self.rows[np.arange(first, end) % ROWS].tolist()
        for descriptor, at_ns, begin, length, look in rows:
            taken.append((descriptor, at_ns, bytes(block[begin : begin + length]) if length > 0 else -length, bool(look)))
        if rows:
            self.counts[TAKEN_BYTES] = rows[-1][BEGIN] + max(rows[-1][LENGTH], 0)
            self.counts[TAKEN] = end
        return taken


@njit(cache=True)
def _now_ns(clock, which):  # type: ignore[no-untyped-def]  # numba infers
    _clock_gettime(np.int32(which), clock.ctypes.data)
    return clock[0] * SECOND_NS + clock[1]


@njit(cache=True)
def _errno():  # type: ignore[no-untyped-def]  # numba infers
    return np.int64(_errno_at()[0])


@njit(cache=True)
def _tell(eventfd, clock):  # type: ignore[no-untyped-def]  # numba infers
    clock[0] = 1
    _write(np.int32(eventfd), clock.ctypes.data, np.int64(8))


@njit(cache=True)
def _has_empty_line(block, begin, end):  # type: ignore[no-untyped-def]  # numba infers
    for place in range(begin, end - 3):
        if block[place] == CR and block[place + 1] == LF and block[place + 2] == CR and block[place + 3] == LF:
            return True
    return False


@njit(cache=True)
def _room_at(block, counts, begin):  # type: ignore[no-untyped-def]  # numba infers
    """Where the next packet may be written, -1 where nothing may be. What is held lies from `TAKEN_BYTES` to `begin`, round the end."""
    if counts[WRITTEN] == counts[TAKEN]:
        return begin if begin + PACKET_BYTES <= block.shape[0] else np.int64(0)
    if counts[WRITTEN] - counts[TAKEN] == ROWS:
        return np.int64(-1)
    oldest = counts[TAKEN_BYTES]
    if begin > oldest:
        if begin + PACKET_BYTES <= block.shape[0]:
            return begin
        return np.int64(0) if oldest >= PACKET_BYTES + 1 else np.int64(-1)
    return begin if begin < oldest and begin + PACKET_BYTES < oldest else np.int64(-1)


@njit(cache=True)
def _wait_for_room(begin, ring, clock):  # type: ignore[no-untyped-def]  # numba infers
    """Where the next packet may be written; waits until what is held was taken. -1: it is to stop."""
    block, _, counts, eventfds = ring
    while True:
        place = _room_at(block, counts, begin)
        if place >= 0 or counts[STOP]:
            return place
        counts[FULL] = 1
        _tell(eventfds[TELL], clock)
        if _room_at(block, counts, begin) < 0:
            _read(np.int32(eventfds[SPACE]), clock.ctypes.data, np.int64(8))
        counts[FULL] = 0


@njit(cache=True)
def _read_packet(descriptor, ahead_ns, begin, calls, ring, sockets):  # type: ignore[no-untyped-def]  # numba infers
    """Read one packet to `begin` into the next row; its length, whether it is to be told at once. An end has no length."""
    _, clock, control, buffer, message = calls
    block, rows, counts, _ = ring
    due_bytes, received_bytes, last_ns = sockets
    buffer[0], buffer[1] = block.ctypes.data + begin, PACKET_BYTES
    message[5], message[6] = STAMP_BYTES, 0
    length = _recvmsg(np.int32(descriptor), message.ctypes.data, np.int32(DONT_WAIT))
    fault = _errno() if length < 0 else np.int64(0)
    if fault in (AGAIN, INTERRUPTED):
        return np.int64(0), False
    at_ns, look = _now_ns(clock, MONOTONIC), True
    if length > 0:
        if message[5] >= STAMP_BYTES and control[1] == STAMP_KIND:
            at_ns = max(last_ns[descriptor], min(at_ns, control[2] * SECOND_NS + control[3] - ahead_ns))
        last_ns[descriptor] = at_ns
        received_bytes[descriptor] += length
        look = received_bytes[descriptor] >= due_bytes[descriptor] or length < 4 or _has_empty_line(block, begin, begin + length)
    row = rows[counts[WRITTEN] % ROWS]
    row[DESCRIPTOR], row[AT_NS], row[BEGIN], row[LENGTH], row[LOOK] = descriptor, at_ns, begin, max(length, 0) - fault, look
    counts[WRITTEN] += 1
    return max(length, np.int64(0)), look


@njit(cache=True, nogil=True)
def gather(epoll, calls, ring, sockets):  # type: ignore[no-untyped-def]  # numba infers
    """`Ring.run`."""
    events, clock = calls[0], calls[1]
    counts, eventfds = ring[2], ring[3]
    begin, untold_rows, untold_bytes = np.int64(0), 0, np.int64(0)
    while not counts[STOP]:
        count = _epoll_wait(np.int32(epoll), events.ctypes.data, np.int32(EVENTS), np.int32(-1))
        fault = _errno() if count < 0 else np.int64(0)
        if fault and fault != INTERRUPTED:
            counts[FAULT] = fault
            break
        counts[TURNS] += 1
        ahead_ns = _now_ns(clock, REALTIME) - _now_ns(clock, MONOTONIC)
        tell = False
        for number in range(count):
            descriptor = np.int64(events[3 * number + 1])
            if descriptor == eventfds[WAKE]:
                _read(np.int32(descriptor), clock.ctypes.data, np.int64(8))
                continue
            begin = _wait_for_room(begin, ring, clock)
            if begin < 0:
                break
            length, look = _read_packet(descriptor, ahead_ns, begin, calls, ring, sockets)
            if look and length == 0:  # an end is told once
                _epoll_ctl(np.int32(epoll), np.int32(REMOVE), np.int32(descriptor), events.ctypes.data + 12 * number)
            begin += length
            untold_rows, untold_bytes, tell = untold_rows + 1, untold_bytes + length, tell or look
        counts[TURNS] += 1
        if tell or untold_rows >= ROWS_TOGETHER or untold_bytes >= BYTES_TOGETHER:
            _tell(eventfds[TELL], clock)
            untold_rows, untold_bytes = 0, np.int64(0)
    _tell(eventfds[TELL], clock)
