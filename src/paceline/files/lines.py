"""The raw lines of a text file, or the raw elements of a JSON array, one at a time and in constant memory.

Rules:

- gzip is recognised by its first two bytes, never by the file's name. Nothing is ever sought backwards, so a pipe can be read.
- No line longer than MAX_LINE_BYTES is held: what exceeds it is read past and reported.
- A fault in mid-file (a cut gzip, a bad checksum, a read error) ends the file; what came before it is kept and the fault is the last line.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from paceline.errors import BadInputError, printable
from paceline.files.bounded import opener
from paceline.files.json_array import ArrayCutter
from paceline.files.read_report import ReadReport, Unusable

__all__ = ["MAX_LINE_BYTES", "RawLine", "Source", "nothing_usable", "opened", "raw_lines", "raw_records"]

MAX_LINE_BYTES = 8 * 2**20
CHUNK_BYTES = 2**20
LOOK_BYTES = 2**16
GZIP_MAGIC = b"\x1f\x8b"
Stream: TypeAlias = "io.BufferedReader[CountedFile] | gzip.GzipFile"

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
READ_FAULTS = (EOFError, OSError, zlib.error)

TOO_LONG = f"longer than {MAX_LINE_BYTES // 2**20} MiB"
CUT = "the file cannot be read any further"
NOT_CLOSED = "the file ends before its JSON array does"
AFTER_ARRAY = "text after the end of the JSON array"


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line or an array element without its line end; `fault` says why there is none, where there is none."""

    number: int
    data: bytes
    fault: Unusable | None


class CountedFile(io.FileIO):
    """A file that knows how many bytes were read of it."""

    bytes_read = 0

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]  # typeshed wants a buffer protocol that 3.11 lacks
        """As io.FileIO.readinto, counted."""
        got = super().readinto(buffer)
        self.bytes_read += got or 0
        return got


@dataclass(frozen=True, slots=True)
class Source:
    """An open file: `stream` gives what is in it, unpacked; `counted` knows how much of the file itself was read."""

    stream: Stream
    counted: CountedFile


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The open file, unpacked where it is gzip.

    Raises:
        BadInputError: there is no such file, it is a directory, a device or a named pipe, it may not be read, it is empty or binary.

    """
    try:
        counted = CountedFile(path, opener=opener)
    except IsADirectoryError:
        raise BadInputError(f"{printable(str(path))} is a directory; name the files in it") from None
    except FileNotFoundError:
        raise BadInputError(f"{printable(str(path))}: there is no such file; check the path") from None
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise BadInputError(f"{printable(str(path))} cannot be opened: {why}; check what it is, and its permissions") from None
    with counted, io.BufferedReader(counted, CHUNK_BYTES) as plain:
        packed = plain.peek(2)[:2] == GZIP_MAGIC
        with gzip.GzipFile(fileobj=plain) if packed else plain as stream:
            _need_text(path, stream)
            yield Source(stream=stream, counted=counted)


def _need_text(path: Path, stream: Stream) -> None:
    try:
        start = stream.peek(LOOK_BYTES)[:LOOK_BYTES]
    except READ_FAULTS as fault:
        raise BadInputError(f"{printable(str(path))} is a damaged gzip file ({fault}); copy it again from where it came") from None
    if not start:
        raise BadInputError(f"{printable(str(path))} is empty; give a file with one JSON object per line")
    if b"\0" in start:
        raise BadInputError(
            f"{printable(str(path))} is binary (NUL bytes in its first block); give UTF-8 text: JSONL, a JSON array or CSV, plain or gzip"
        )


def raw_records(stream: Stream) -> Iterator[RawLine]:
    """The elements where the file is a JSON array (its first visible byte is `[`), else its lines. Numbers count from 1."""
    start = stream.peek(LOOK_BYTES).removeprefix(BYTE_ORDER_MARK).lstrip()
    return _raw_elements(stream) if start.startswith(b"[") else raw_lines(stream)


def raw_lines(stream: Stream) -> Iterator[RawLine]:
    """The file's lines, blank ones included, without line ends and byte order mark. Numbers count from 1."""
    number = 0
    while True:
        number += 1
        try:
            data = stream.readline(MAX_LINE_BYTES + 2)
            too_long = len(data.rstrip(b"\r\n")) > MAX_LINE_BYTES
            rest = data
            while too_long and rest and not rest.endswith(b"\n"):
                rest = stream.readline(CHUNK_BYTES)
        except READ_FAULTS as fault:
            yield RawLine(number=number, data=b"", fault=Unusable(CUT, str(fault)))
            return
        if not data:
            return
        if number == 1:
            data = data.removeprefix(BYTE_ORDER_MARK)
        yield _checked(number, data.rstrip(b"\r\n"), too_long=too_long)


def _checked(number: int, data: bytes, *, too_long: bool) -> RawLine:
    if too_long:
        return RawLine(number=number, data=b"", fault=Unusable(TOO_LONG, ""))
    return RawLine(number=number, data=data, fault=None)


def _raw_elements(stream: Stream) -> Iterator[RawLine]:
    cutter = ArrayCutter(MAX_LINE_BYTES)
    number = 0
    try:
        while not cutter.closed and (chunk := stream.read1(CHUNK_BYTES)):
            for element in cutter.feed(chunk):
                number += 1
                yield _checked(number, element or b"", too_long=element is None)
        after = cutter.rest.strip()
        while cutter.closed and not after and (chunk := stream.read1(CHUNK_BYTES)):
            after = chunk.strip()
    except READ_FAULTS as fault:
        yield RawLine(number=number + 1, data=b"", fault=Unusable(CUT, str(fault)))
        return
    if not cutter.closed:
        if cutter.between_elements and after:
            number += 1
            yield _checked(number, cutter.rest, too_long=False)
        yield RawLine(number=number + 1, data=b"", fault=Unusable(NOT_CLOSED, ""))
    elif after:
        yield RawLine(number=number + 1, data=b"", fault=Unusable(AFTER_ARRAY, ""))


def nothing_usable(path: Path, report: ReadReport, *, wanted: str) -> BadInputError:
    """The error for a file of which no line could be used: the first reasons, and what was wanted instead."""
    first = "; ".join(f"line {each.line}: {each.reason}" + (f" ({each.detail})" if each.detail else "") for each in report.examples[:3])
    return BadInputError(f"{printable(str(path))}: none of its {report.lines} lines could be used ({first or 'all are blank'}); {wanted}")
