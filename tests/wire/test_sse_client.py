"""`live/sse`: events out of packets, however the bytes were cut."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.live.sse import Event, read_events


def read(*packets: bytes, ended: bool = False) -> list[tuple[int, bytes, str]]:
    """Events of packets that came at 0, 1, 2, …"""
    return [(each.at_ns, each.data, each.kind) for each in read_events(list(enumerate(packets)), ended=ended).events]


def bytewise(stream: bytes) -> list[tuple[int, bytes, str]]:
    """The oracle: the standard's rules, one byte at a time; an event's instant is the place of the byte that completed it."""
    events, line, after_cr = [], b"", False
    data: list[bytes] = []
    kind = b""
    for place, byte in enumerate(stream):
        each = bytes([byte])
        if each == b"\n" and after_cr:
            after_cr = False
            continue
        after_cr = each == b"\r"
        if each not in (b"\r", b"\n"):
            line += each
            continue
        if not line:
            if data:
                events.append((place, b"\n".join(data), kind.decode("utf-8", "replace")))
            data, kind = [], b""
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
        line = b""
    return events


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        ([b"data: a\n\n"], [(0, b"a", "")]),
        ([b"data: a\n", b"\n"], [(1, b"a", "")]),
        ([b"data: a\r\n", b"\r", b"\ndata: b\r\n\r\n"], [(1, b"a", ""), (2, b"b", "")]),
        ([b"data: a\r\rdata:b\r\r"], [(0, b"a", ""), (0, b"b", "")]),
        ([b": ping\n\ndata: a\nid: 7\nretry: 1\n\n"], [(0, b"a", "")]),
        ([b"event: error\ndata: a\ndata: b\n\n"], [(0, b"a\nb", "error")]),
        ([b"data\n\ndata:\n\n"], [(0, b"", ""), (0, b"", "")]),
        ([b"\xef\xbb\xbfdata: a\n\n"], [(0, b"a", "")]),
        ([b"\n\n\n", b"data: a\n\n\n\ndata: b\n\n"], [(1, b"a", ""), (1, b"b", "")]),
        (["data: é\n\n".encode()[:7], "data: é\n\n".encode()[7:]], [(1, "é".encode(), "")]),
        ([b"data:  two spaces \n\n"], [(0, b" two spaces ", "")]),
        ([b"", b"data: a", b"", b"\n\n", b""], [(3, b"a", "")]),
        ([], []),
    ],
)
def test_events_are_read_by_the_standard(packets: list[bytes], expected: list[tuple[int, bytes, str]]) -> None:
    """A server with other line ends, comments or names gives other tokens."""
    assert read(*packets) == expected


def test_a_last_event_without_its_blank_line_counts_only_if_the_stream_ended_by_itself() -> None:
    """Half an event of a cut stream passes for a whole one, or a server that saves a byte loses its last token."""
    assert read(b"data: a\n\ndata: b", ended=True) == [(0, b"a", ""), (0, b"b", "")]
    cut = read_events([(7, b"data: a\n\ndata: b")], ended=False)
    assert cut.events == (Event(7, b"a", ""),)
    assert cut.rest == b"data: b"
    assert read_events([(7, b"data: a\n\n: only a comment")], ended=True).events == (Event(7, b"a", ""),)


LINES = st.sampled_from(
    [b"data: a", b"data:b ", b"data", "data: €".encode(), b"data: {}", b": c", b"event: error", b"id: 1", b"", b"", b"", b"da", b"\xff"]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]))).map(lambda lines: b"".join(a + b for a, b in lines))


@settings(max_examples=120, deadline=None)
@given(st.one_of(STREAMS, st.binary(max_size=60), st.text(alphabet="data: \r\n", max_size=60).map(str.encode)), st.data())
def test_any_cutting_gives_the_same_events_stamped_with_the_packet_that_completed_them(stream: bytes, data: st.DataObject) -> None:
    """Two runs over two networks measure two servers."""
    if stream.startswith(b"\xef\xbb\xbf"):
        return
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    packets = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    ends = list(accumulate(map(len, packets)))
    expected = [(next(p for p, end in enumerate(ends) if end > place), value, kind) for place, value, kind in bytewise(stream)]
    assert read(*packets) == expected
