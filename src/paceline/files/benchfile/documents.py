"""JSON documents and lines out of a file, bounded, as plain Python values.

1. A document, or a line, is at most 256 MiB unpacked; lines are read one at a time. gzip is recognised by its first bytes.
2. JSON's own numbers only get through the getters of `fields`; `NaN` and `Infinity` are kept here (tools write an infinite rate so).
3. Nesting or digits beyond reason are refused, not followed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.files.lines import READ_FAULTS, Stream, opened

__all__ = ["CutOffError", "documents", "json_lines", "keys_of", "text_lines", "whole_document"]

MOST_BYTES = 256 * 2**20
BYTE_ORDER_MARK = "\ufeff"


class CutOffError(BadInputError):
    """A line that is no JSON."""


def whole_document(path: Path) -> Any:
    """The one JSON document in the file.

    Raises:
        BadInputError: unreadable, above 256 MiB, or no whole JSON.

    """
    return _parsed(_text(path, _whole(path)), where=printable(path.name))


def documents(path: Path) -> list[Any]:
    """The JSON documents in the file: one, or one per line where the first line is a document of its own.

    Raises:
        BadInputError: as `whole_document`, with the line.

    """
    text = _text(path, _whole(path))
    first, _, rest = text.lstrip().partition("\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return [_parsed(text, where=printable(path.name))]
    lines = [(i, each) for i, each in enumerate([first, *rest.split("\n")], 1) if each.strip()]
    return [_parsed(each, where=f"{printable(path.name)}, line {i}") for i, each in lines]


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Each line's number and value, one at a time; a line that is no JSON is given as a `CutOffError`, for the reader to judge.

    Raises:
        BadInputError: unreadable, or a line above 256 MiB.

    """
    with opened(path) as source:
        number = 0
        while data := _read_line(source.stream, path):
            number += 1
            if not data.strip():
                continue
            try:
                yield number, _parsed(_text(path, data), where=f"{printable(path.name)}, line {number}")
            except CutOffError as error:
                yield number, error


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a text, one at a time, without their ends; a carriage return ends one too, as progress bars write it.

    Raises:
        BadInputError: as `json_lines`.

    """
    with opened(path) as source:
        while data := _read_line(source.stream, path):
            yield from _text(path, data).splitlines()


def _read_line(stream: Stream, path: Path) -> bytes:
    try:
        data = stream.readline(MOST_BYTES + 1)
    except READ_FAULTS as fault:
        raise BadInputError(f"{printable(path.name)} is damaged or cut off: {fault}; copy it again from where it came") from None
    if len(data) > MOST_BYTES:
        raise BadInputError(f"{printable(path.name)} has a line above {MOST_BYTES // 2**20} MiB; that is no result file")
    return data


def _whole(path: Path) -> bytes:
    with opened(path) as source:
        try:
            data = source.stream.read(MOST_BYTES + 1)
        except READ_FAULTS as fault:
            raise BadInputError(f"{printable(path.name)} is damaged or cut off: {fault}; copy it again from where it came") from None
    if len(data) > MOST_BYTES:
        raise BadInputError(f"{printable(path.name)} holds more than {MOST_BYTES // 2**20} MiB of JSON; save it without generated texts")
    return data


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise BadInputError(f"{printable(path.name)} is not text: byte {error.start} is no UTF-8") from None


def _parsed(text: str, *, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CutOffError(f"{where} is no whole JSON ({error.msg} at character {error.pos}): cut off, or another kind of file") from None
    except (ValueError, RecursionError):
        raise BadInputError(f"{where}: nesting or digits beyond reason; that is no result file") from None


def keys_of(value: Any) -> str:
    """The keys of a document's first levels, quoted as JSON writes them: what a recogniser looks for, whatever their order."""
    found: list[str] = []
    level = [value]
    for _ in range(5):
        following: list[Any] = []
        for each in level[:1000]:
            if isinstance(each, dict):
                found += [f'"{key}":' for key in each]
                following += each.values()
            elif isinstance(each, list):
                following += each[:3]
        level = following
    return "{" + " ".join(found[:20_000])
