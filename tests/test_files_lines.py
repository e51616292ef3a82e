"""Raw lines and array elements: how files are opened, cut and given up on."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.files.chatlog import read_chat_logs
from paceline.files.json_array import ArrayCutter
from paceline.files.lines import MAX_LINE_BYTES, RawLine, opened, raw_records
from paceline.traffic.segments import segment_rule


def records(tmp_path: Path, content: bytes) -> list[RawLine]:
    """The records of a file with this content."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with opened(path) as source:
        return list(raw_records(source.stream))


def shown(found: list[RawLine]) -> list[bytes | str]:
    """Each record's data, or why it has none."""
    return [each.data if each.fault is None else each.fault.reason for each in found]


@pytest.mark.parametrize("packed", [False, True])
def test_lines_come_without_their_ends_and_without_the_mark(tmp_path: Path, packed: bool) -> None:
    """A log from Windows would have a carriage return in its last value, and its first line would be no JSON."""
    content = b"\xef\xbb\xbf{}\r\n\r\nlast"
    found = records(tmp_path, gzip.compress(content, mtime=0) if packed else content)
    assert [(each.number, each.data) for each in found] == [(1, b"{}"), (2, b""), (3, b"last")]


def test_a_long_line_is_read_past_and_not_held(tmp_path: Path) -> None:
    """A line of many gigabytes (a file without line ends) would take all memory."""
    longest = b"a" * MAX_LINE_BYTES
    found = records(tmp_path, longest + b"\r\n" + longest + b"b\nnext\n" + b"c" * (3 * MAX_LINE_BYTES))
    assert [len(each.data) for each in found] == [MAX_LINE_BYTES, 0, 4, 0]
    assert shown(found)[1:] == ["longer than 8 MiB", b"next", "longer than 8 MiB"]


def test_a_long_element_is_read_past_and_not_held(tmp_path: Path) -> None:
    """The same for an array, whose whole file may be one line."""
    found = records(tmp_path, b'[1, "' + b'\\"],' * (MAX_LINE_BYTES // 2) + b'", 2, ' + b"3" * (MAX_LINE_BYTES + 1) + b", 4]")
    assert shown(found) == [b"1", "longer than 8 MiB", b" 2", "longer than 8 MiB", b" 4"]


@pytest.mark.parametrize(
    ("content", "elements"),
    [
        (b"[]", [b""]),
        (b" \n[ {} ,\n[1,2], 3]\n ", [b" {} ", b"\n[1,2]", b" 3"]),
        (b'\xef\xbb\xbf["]", "\\"", "\\\\", {"a": "}"}]', [b'"]"', b' "\\""', b' "\\\\"', b' {"a": "}"}']),
        (b"[1,]", [b"1", b""]),
        (b"[1, }oops{, 2]", [b"1", b" ", "text after the end of the JSON array"]),
        (b"[1] 2", [b"1", "text after the end of the JSON array"]),
        (b"[1, 2", [b"1", b" 2", "the file ends before its JSON array does"]),
        (b"[1, [2", [b"1", "the file ends before its JSON array does"]),
        (b'[1, "2', [b"1", "the file ends before its JSON array does"]),
        (b"[1, ", [b"1", "the file ends before its JSON array does"]),
    ],
)
def test_an_array_is_cut_at_its_own_commas(tmp_path: Path, content: bytes, elements: list[bytes | str]) -> None:
    """A comma in a text would split a conversation; a cut download would pass as the whole."""
    assert shown(records(tmp_path, content)) == elements


@settings(max_examples=100, deadline=None)
@given(st.lists(st.recursive(st.text(alphabet='a"\\[]{},é', max_size=5), st.lists, max_leaves=4), min_size=1), st.integers(1, 9))
def test_an_array_is_cut_the_same_whatever_the_chunks(elements: list[object], chunk_bytes: int) -> None:
    """A quote or an escape on a chunk's border would run two elements into one, once in a million."""
    content = json.dumps(elements, ensure_ascii=False).encode()
    cutter = ArrayCutter(10**6)
    found = [each for at in range(0, len(content), chunk_bytes) for each in cutter.feed(content[at : at + chunk_bytes])]
    assert [json.loads(each or b"") for each in found] == elements
    assert cutter.closed


def test_a_cut_gzip_keeps_what_could_be_read(tmp_path: Path) -> None:
    """A log that is still being written is the usual one; its end is reported and its beginning used."""
    lines = b"".join(b'{"prompt": "%d"}\n' % number for number in range(1000))
    for content in (lines, b"[" + lines.replace(b"\n", b",\n") + b"0]"):
        found = records(tmp_path, gzip.compress(content, mtime=0)[:-500])
        assert found[0].data.endswith(b'{"prompt": "0"}')
        assert len(found) > 10
        assert shown(found)[-1] == "the file cannot be read any further"
        assert [each.number for each in found] == list(range(1, len(found) + 1))


def test_a_gzip_with_a_wrong_checksum_says_so(tmp_path: Path) -> None:
    """A flipped bit on the disk would pass as data."""
    packed = bytearray(gzip.compress(b"{}\n", mtime=0))
    packed[-8] ^= 1
    assert shown(records(tmp_path, bytes(packed))) == [b"{}", "the file cannot be read any further"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; give a file"),
        (gzip.compress(b"", mtime=0), "is empty; give a file"),
        (b"PAR1\0\0", "is binary"),
        ("{}".encode("utf-16"), "is binary"),
        (gzip.compress(b"\0", mtime=0), "is binary"),
        (b"\x1f\x8bnonsense", "is a damaged gzip file"),
        (gzip.compress(b"{}", mtime=0)[:10], "is a damaged gzip file"),
    ],
)
def test_what_is_no_text_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """A Parquet file read as text gives a thousand bad lines and no hint of the cause."""
    with pytest.raises(BadInputError, match=message):
        records(tmp_path, content)


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    """A traceback instead of a remedy."""
    for path, message in [
        (tmp_path, "is a directory; name the files in it"),
        (tmp_path / "no", "no such file"),
        (Path("a\0b"), "cannot be opened"),
    ]:
        with pytest.raises(BadInputError, match=message):
            read_chat_logs([path], segment=segment_rule(name=None, field=None), progress=None)


def test_blanks_before_anything_else_are_lines(tmp_path: Path) -> None:
    """A first block of blanks must not be taken for an array or an end."""
    assert shown(records(tmp_path, b"\n \n{}")) == [b"", b" ", b"{}"]
    assert shown(records(tmp_path, b" \n[1]" + b" " * 3 * 2**20)) == [b"1"]
    assert shown(records(tmp_path, b"[1]" + b" " * 3 * 2**20 + b"2")) == [b"1", "text after the end of the JSON array"]
