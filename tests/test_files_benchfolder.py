"""A load-test's folder: one writer, answers whole or not at all, damage that is noticed."""

import json
import resource
from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.files.benchfolder import BenchFolder, Came
from paceline.run import Arm

FIRST, SECOND = Came({"id": "a"}, b"one\ntwo"), Came({"id": "b"}, b"")


def test_a_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    """Two load-tests in one folder write every answer twice."""
    one, two = BenchFolder(tmp_path / "out"), BenchFolder(tmp_path / "out")
    one.open({}, arms=(Arm.BASELINE,), resume=False)
    with pytest.raises(BadInputError, match="another paceline bench is writing"):
        two.open({}, arms=(Arm.BASELINE,), resume=True)
    one.close()
    two.open({}, arms=(Arm.BASELINE,), resume=True)
    two.close()


def test_a_text_is_kept_once_per_request_and_in_ascii(tmp_path: Path) -> None:
    """A block that was stopped between its texts and its run leaves both sittings' texts; half a surrogate pair ends in a traceback."""
    folder = BenchFolder(tmp_path)
    folder.keep_answers("c1", "baseline", {"a": "first", "b": "\ud800é"})
    file = tmp_path / "answers" / "c1-baseline.jsonl"
    file.write_text(file.read_text("ascii") + '{"id": "c", "te', "ascii")
    folder.keep_answers("c1", "baseline", {"a": "second"})
    assert [json.loads(each) for each in file.read_text("ascii").splitlines()] == [
        {"id": "a", "text": "second"},
        {"id": "b", "text": "\ud800é"},
    ]


def written(folder: BenchFolder) -> Path:
    with folder.writer("c1", "000-baseline") as writer:
        writer.add(FIRST)
        writer.add(SECOND)
    return folder.path / "blocks" / "c1" / "000-baseline.came"


def test_answers_come_back_as_they_were_and_a_cut_one_is_left_out(tmp_path: Path) -> None:
    """`kill -9` comes in the middle of a write."""
    folder = BenchFolder(tmp_path)
    file = written(folder)
    assert [(each.told["id"], each.body) for each in folder.came("c1", "000-baseline")] == [("a", FIRST.body), ("b", b"")]
    for cut in (1, 10):
        file.write_bytes(file.read_bytes()[:-cut])
        assert [each.told["id"] for each in folder.came("c1", "000-baseline")] == ["a"]


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"two", b"tw0"), (b'"crc32"', b'"crc"'), (b'"body_bytes": 7', b'"body_bytes": -7'), (b"{", b"["), (b'{"id": "a"', b"[1]")],
)
def test_damage_is_noticed_and_the_file_moved_aside(old: bytes, new: bytes, tmp_path: Path) -> None:
    """A flipped bit makes every resume an internal fault, or a figure."""
    folder = BenchFolder(tmp_path)
    file = written(folder)
    file.write_bytes(file.read_bytes().replace(old, new, 1))
    with pytest.raises(BadInputError, match="damaged"):
        list(folder.came("c1", "000-baseline"))
    assert folder.set_came_aside("c1", "000-baseline").name == "000-baseline.came.damaged"
    assert not file.exists()


def test_a_full_disk_keeps_the_answers_before_it(tmp_path: Path) -> None:
    """Half a record hides all that come after it."""
    folder = BenchFolder(tmp_path)
    size = written(folder).stat().st_size
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    with folder.writer("c1", "000-baseline") as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, usual[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                writer.add(Came({"id": "c"}, bytes(1000)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        writer.add(SECOND)
    assert [each.told["id"] for each in folder.came("c1", "000-baseline")] == ["a", "b", "b"]
