"""Server-sent events out of stamped packets.

A stream is lines ended by LF, CRLF or CR; a blank line ends an event; `data` lines of one event join with LF; comments and other fields
carry nothing we measure, and of the other fields only `event` is kept (WHATWG HTML, "Interpreting an event stream"). An event's instant is
that of the packet with the byte that completed it, so what is an event does not depend on how the bytes were cut into packets.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

__all__ = ["Event", "EventStream", "read_events"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The last alternative may not give back half of a CRLF, or one line end would pass for a blank line.
LINE_END = rb"(?:\r\n|\n|\r(?!\n))"
BLANK_LINE = re.compile(LINE_END + rb"(?=" + LINE_END + rb")")
LINE_ENDS = re.compile(LINE_END)


class Event(NamedTuple):  # made a million times in a run; a frozen dataclass takes five times as long to make
    """One event: when its last byte came (perf_counter_ns), its data, and its `event` field ("" where it has none)."""

    at_ns: int
    data: bytes
    kind: str


@dataclass(frozen=True, slots=True)
class EventStream:
    """All events in order, and the bytes after the last one that no blank line completed."""

    events: tuple[Event, ...]
    rest: bytes


def read_events(packets: Sequence[tuple[int, bytes]], *, ended: bool) -> EventStream:
    """The events in (instant, bytes) packets.

    Where the stream `ended` by itself, a last event without its blank line counts too; a cut one leaves it in `rest`.
    """
    whole = b"".join([data for _, data in packets])
    ends = list(accumulate([len(data) for _, data in packets]))
    start = len(BYTE_ORDER_MARK) if whole.startswith(BYTE_ORDER_MARK) else 0
    events: list[Event] = []
    packet = 0
    for end, block in _blocks(whole, start):
        if ends[packet] <= end:
            packet = bisect_right(ends, end, packet)
        if block.startswith(b"data: ") and block.find(b"\n") < 0 and block.find(b"\r") < 0:  # nearly always; `in` would raise inside
            events.append(Event(packets[packet][0], block[6:], ""))
        elif event := _event(packets[packet][0], block):
            events.append(event)
        start = end
    rest = whole[start:].lstrip(b"\r\n")
    last = _event(packets[-1][0], rest) if ended and rest else None
    return EventStream((*events, last), b"") if last is not None else EventStream(tuple(events), rest)


def _blocks(whole: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of lines from `start` on, in order, each with the place of the byte that completed it; some are blank."""
    if b"\r" in whole:
        for found in BLANK_LINE.finditer(whole, start):
            yield found.end(), whole[start : found.end()].strip(b"\r\n")
            start = found.end()
        return
    at = whole.find(b"\n\n", start)
    while at >= 0:
        yield at + 1, whole[start:at]
        start = at + 2
        at = whole.find(b"\n\n", start)


def _event(at_ns: int, block: bytes) -> Event | None:
    """The event of one block of lines, None where it has no data."""
    kind, data = "", None
    for line in LINE_ENDS.split(block):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data = value if data is None else data + b"\n" + value
        elif name == b"event":
            kind = value.decode("utf-8", "replace")
    return None if data is None else Event(at_ns, data, kind)
