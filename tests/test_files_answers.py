"""Answers' texts as files."""

import json
from pathlib import Path

import pytest

from paceline.errors import BadInputError
from paceline.files.answers import answers_beside, read_answers


def test_answers_come_back_by_id(tmp_path: Path) -> None:
    """Whoever compares texts: line ends within them, empty lines and repeats of the same are no harm."""
    file = tmp_path / "a.jsonl"
    lines = [
        json.dumps({"id": "1", "text": "one\ntwo"}),
        "",
        json.dumps({"id": "2", "text": ""}),
        json.dumps({"id": "1", "text": "one\ntwo"}),
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert read_answers(file) == {"1": "one\ntwo", "2": ""}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "no answer"),
        ("[1]", "no answer"),
        ('{"id": 1, "text": "x"}', "no answer"),
        ('{"id": "a"}', "no answer"),
        ('{"id": "a", "text": "y"}', "stands there twice"),
        ("x" * (9 * 2**20), "cannot be read"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_line(line: str, message: str, tmp_path: Path) -> None:
    """A file of another kind taken for answers would call every server lossy."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "a", "text": "x"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=message) as caught:
        read_answers(file)
    assert "a.jsonl" in str(caught.value)
    assert "line 2" in str(caught.value)


def test_answers_lie_beside_the_runs_of_a_load_test(tmp_path: Path) -> None:
    """Nobody should have to name three files that the folder's names already name."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "answers").mkdir()
    file = tmp_path / "answers" / "c0008-repeat.jsonl"
    file.touch()
    run = tmp_path / "runs" / "c0008-baseline.json"
    assert answers_beside(run, "repeat") == file
    assert answers_beside(run, "baseline") is None
    assert answers_beside(tmp_path / "runs" / "mine.json", "repeat") is None
    assert answers_beside(tmp_path / "c0008-baseline.json", "repeat") is None
