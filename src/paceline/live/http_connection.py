"""One connection, one request at a time: packets are stamped on receipt and parsed when there is a reason to.

Packets come from the event loop, or with the kernel's stamps from a `PacketReader`. That one reads in its own thread and tells the
event loop when there may be a reason to look; until then it may hold packets that are not handed over yet, and is asked for them where that
matters: before a request is given up as late, cancelled or cut.

A reply ends by its own framing (a last chunk, a stated length) or, where it has none, with the connection. A last chunk ends in an empty
line, so a packet with one is a reason to look; so is one too short to tell, and one before the headers are known. The usual end of an
event stream, its end mark and the last chunk, is known by its bytes (`USUAL_END`): no JSON holds a line feed, so nothing else looks
like it. At any other suspicion the packets are parsed. What came back is parsed for good by whoever reads it (`Received.body_pieces`).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from time import perf_counter_ns
from typing import cast

from paceline.errors import ascii_controls
from paceline.live.http_message import NotHttpError, Packet, Reply
from paceline.live.packet_reader import PacketReader, Source

__all__ = ["Connection", "Received", "StreamEnd", "Timeouts"]

HEADER_BYTES = 64 * 1024
STREAM_BYTES = 64 * 1024 * 1024  # about 200,000 events: more than any answer, and a thousand cut short there still fit into memory
EMPTY_LINE = b"\r\n\r\n"
USUAL_END = b"data: [DONE]\n\n\r\n0\r\n\r\n"


class StreamEnd(StrEnum):
    """What the reply to one request ended in."""

    COMPLETE = "complete"
    CUT = "cut"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until the first byte of the body, between packets after it, and in all; `inf` waits for ever."""

    first_byte_s: float
    gap_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Received:
    """What came back on one request.

    Attributes:
        sent_at_ns: when it was written, or given up where it never was; perf_counter_ns, as all instants here.
        status: HTTP status, None where no whole header came.
        headers: names in lower case.
        packets: the whole reply as it came, headers and framing included, each packet with the instant at which it came.
        ended: how.
        ended_at_ns: when the end was noticed.
        error: what went wrong, printable; None where nothing did.
        received_bytes: bytes received, headers and framing included.
        sent_twice: the server had closed the idle connection, so the request was sent once more.

    """

    sent_at_ns: int
    status: int | None
    headers: Mapping[str, str]
    packets: tuple[Packet, ...]
    ended: StreamEnd
    ended_at_ns: int
    error: str | None
    received_bytes: int
    sent_twice: bool

    def body_pieces(self) -> tuple[Packet, ...]:
        """The body as far as it came, chunked coding removed, each piece with the instant of its packet. Parses, so ask once."""
        reply = Reply()
        with suppress(NotHttpError):  # what came before it was HTTP, and `error` says what went wrong
            reply.feed(self.packets)
        reply.close()
        return tuple(reply.body)

    @property
    def body(self) -> bytes:
        """The body as far as it came."""
        return b"".join(data for _, data in self.body_pieces())

    def again(self) -> "Received":
        """The same, marked as sent twice."""
        return replace(self, sent_twice=True)


class Connection(asyncio.Protocol):
    """A connection to `peer`; `exchange` sends one request and gives what came back."""

    __slots__ = (
        "_done",
        "_due_bytes",
        "_fault",
        "_fed",
        "_packets",
        "_reader",
        "_received_bytes",
        "_reply",
        "_source",
        "_timeouts",
        "_timer",
        "_transport",
        "ended_by_peer_ns",
        "idle_since_ns",
        "peer",
        "sent_at_ns",
    )

    def __init__(self, peer: tuple[bool, str, int]) -> None:
        self.peer = peer
        self.idle_since_ns = 0
        self.ended_by_peer_ns: int | None = None
        self.sent_at_ns = 0
        self._transport: asyncio.Transport | None = None
        self._reader: PacketReader | None = None
        self._source: Source | None = None
        self._fault: OSError | None = None
        self._done: asyncio.Future[Received] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._packets: list[Packet] = []
        self._fed = 0
        self._received_bytes = 0
        self._due_bytes = 0
        self._reply = Reply()
        self._timeouts = Timeouts(first_byte_s=inf, gap_s=inf, total_s=inf)

    @property
    def is_open(self) -> bool:
        """Whether another request can be written."""
        return self._done is None and self._transport is not None and not self._transport.is_closing()

    @property
    def received_bytes(self) -> int:
        """Bytes received on the request in flight, or the last one."""
        if self._reader is not None and self._source is not None:
            return max(self._received_bytes, self._reader.received_bytes(self._source))
        return self._received_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def read_by(self, reader: PacketReader) -> None:
        """Have `reader` read the socket from now on, instead of the event loop. The connection must be open, plain and idle."""
        assert self._transport is not None
        if self._source is not None:
            return
        self._transport.pause_reading()
        self._reader = reader
        descriptor = self._transport.get_extra_info("socket").fileno()
        self._source = reader.add(descriptor, packet=self._note, look=self._look_at_noted, end=self._ended_by_peer)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: stamp first, think later. (`in` would raise and catch an error inside.)"""
        self._note(perf_counter_ns(), data)
        if self._received_bytes >= self._due_bytes or data.find(EMPTY_LINE) >= 0 or len(data) < 4:
            self._look()

    def _note(self, at_ns: int, data: bytes) -> None:
        self._packets.append((at_ns, data))
        self._received_bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop: the end of a reply that has no other, or a cut."""
        self._take_held()
        self._release()
        self._transport = None
        if self._done is None:
            return
        exc = exc or self._fault
        error = self._read_on()
        if (error is None and self._reply.status is not None and not self._reply.framed and exc is None) or self._reply.complete:
            self._finish(StreamEnd.COMPLETE, None)
        else:
            where = "before a whole header came" if self._reply.status is None else "in the middle of the reply"
            self._finish(StreamEnd.CUT, error or f"the connection closed {where}{f': {exc}' if exc else ''}")

    async def exchange(self, request: bytes, timeouts: Timeouts, started: Callable[["Connection"], None] | None) -> Received:
        """What came back on `request`; the connection must be open."""
        assert self._transport is not None
        assert self._done is None
        loop = asyncio.get_running_loop()
        self._packets, self._fed, self._received_bytes, self._reply = [], 0, 0, Reply()
        self._timeouts, self._done = timeouts, loop.create_future()
        if self._reader is not None and self._source is not None:
            self._reader.count_anew(self._source)
        done = self._done
        self.sent_at_ns = perf_counter_ns()
        self._transport.write(request)
        self._watch()
        if started is not None:
            started(self)
        try:
            return await done
        finally:
            if self._done is not None:  # the awaiting task was cancelled
                self._take_held()
                self._finish(StreamEnd.CANCELLED, None)

    def cancel(self) -> None:
        """End the request in flight, if any, as CANCELLED."""
        if self._done is not None:
            self._take_held()
            self._read_on()
            self._finish(StreamEnd.CANCELLED, None)

    def close(self) -> None:
        """Close at once."""
        self._release()
        if self._transport is not None:
            self._transport.abort()

    def _ended_by_peer(self, fault: OSError | None) -> None:
        self._fault, self.ended_by_peer_ns = fault, perf_counter_ns()
        self.close()

    def _take_held(self) -> None:
        """Have everything noted that our reader holds, if we have one."""
        if self._reader is not None and self._source is not None:
            self._reader.hand_over()

    def _look_when(self, received_bytes: int) -> None:
        """Look as soon as so many bytes were received, whatever the packet ends in."""
        self._due_bytes = received_bytes
        if self._reader is not None and self._source is not None:
            self._reader.look_at(self._source, received_bytes)

    def _look_at_noted(self) -> None:
        """Look, unless an earlier look has seen all there is."""
        if self._fed < len(self._packets):
            self._look()

    def _release(self) -> None:
        """Stop reading the socket ourselves, if we do."""
        if self._reader is not None and self._source is not None:
            self._reader.remove(self._source)
            self._source = None

    def _look(self) -> None:
        """Parse what is there, and end the exchange if that was all."""
        if self._done is None:  # nobody asked: such a connection is not used again
            self.close()
            return
        reply = self._reply
        if reply.status is not None and self._ends_as_usual():
            self._finish(StreamEnd.COMPLETE, None)
            return
        error = self._read_on()
        if reply.complete and error is None:
            self._finish(StreamEnd.COMPLETE, None)
        elif error is not None:
            self._finish(StreamEnd.CUT, error)
        elif self._received_bytes > (HEADER_BYTES if reply.status is None else STREAM_BYTES):
            self._finish(StreamEnd.CUT, f"more than {self._received_bytes:,} bytes, which is more than this client holds of one reply")
        else:
            self._look_when(self._next_look(reply))

    def _ends_as_usual(self) -> bool:
        """Whether the last bytes are an event stream's end mark and the last chunk."""
        packets = self._packets
        tail, place = packets[-1][1], len(packets) - 2
        while len(tail) < len(USUAL_END) and place >= 0:
            tail, place = packets[place][1] + tail, place - 1
        return tail.endswith(USUAL_END)

    def _next_look(self, reply: Reply) -> int:
        """At how many received bytes parsing is due, whatever the packet ends in."""
        if reply.status is None:
            return 0
        due = reply.expected_body_bytes
        if due is None:
            return STREAM_BYTES + 1
        return min(self._received_bytes + due - sum(len(data) for _, data in reply.body), STREAM_BYTES + 1)

    def _read_on(self) -> str | None:
        """Parse the packets not yet parsed; what is wrong with them, if anything."""
        unread = self._packets[self._fed :]
        self._fed += len(unread)
        try:
            self._reply.feed(unread)
        except NotHttpError as error:
            return str(error)
        return None

    def _watch(self) -> None:
        """End the exchange if it is late, else look again when it may be. One timer per request, not one per packet."""
        done = self._done
        if done is None:
            return
        now_ns = perf_counter_ns()
        late = min(self._deadlines_ns(), key=lambda each: each[0])
        if late[0] <= now_ns:
            self._take_held()
            self._look_at_noted()
            if done.done():
                return
            late = min(self._deadlines_ns(), key=lambda each: each[0])
        if late[0] <= now_ns:
            self._read_on()
            self._finish(StreamEnd.TIMEOUT, late[1])
            return
        wait_s = min((late[0] - now_ns) / 1e9, self._timeouts.gap_s)  # the first byte starts another clock, and no timer hears of it
        if wait_s < inf:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._watch)

    def _deadlines_ns(self) -> tuple[tuple[float, str], tuple[float, str]]:
        """Until when to wait, and what to say after that."""
        timeouts = self._timeouts
        total = (self.sent_at_ns + timeouts.total_s * 1e9, f"not finished within {timeouts.total_s:g} s")
        if self._reply.status is None or not (self._reply.body or self._fed < len(self._packets)):
            return total, (self.sent_at_ns + timeouts.first_byte_s * 1e9, f"no answer within {timeouts.first_byte_s:g} s")
        return total, (self._packets[-1][0] + timeouts.gap_s * 1e9, f"silent for {timeouts.gap_s:g} s in the middle of the answer")

    def _finish(self, ended: StreamEnd, error: str | None) -> None:
        done, self._done, reply = self._done, None, self._reply
        self._look_when(0)  # whatever comes before the next request is looked at at once
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (ended is StreamEnd.COMPLETE and reply.keep_alive):
            self.close()
        reply.close()
        self.idle_since_ns = perf_counter_ns()
        received = Received(
            sent_at_ns=self.sent_at_ns,
            status=reply.status,
            headers=reply.headers,
            packets=tuple(self._packets),
            ended=ended,
            ended_at_ns=self.idle_since_ns,
            error=None if error is None else ascii_controls(error)[:300],
            received_bytes=self._received_bytes,
            sent_twice=False,
        )
        self._packets = []
        if done is not None and not done.done():
            done.set_result(received)
