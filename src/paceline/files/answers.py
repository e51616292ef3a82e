"""Answers' texts by request: lines of JSON with `id` and `text`, as a load-test keeps them beside its runs.

<folder>/runs/<load>-<arm>.json
<folder>/answers/<load>-<arm>.jsonl, <load>-repeat.jsonl where the baseline was asked twice
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.files.lines import opened, raw_lines

__all__ = ["REPEAT", "answers_beside", "read_answers"]

REPEAT = "repeat"


def read_answers(path: Path) -> Mapping[str, str]:
    """The texts by id, in the file's order.

    Raises:
        BadInputError: the file cannot be read, a line is no answer, or an id stands twice with different texts.

    """
    found: dict[str, str] = {}
    with opened(path) as source:
        for raw in raw_lines(source.stream):
            if raw.fault is not None:
                raise BadInputError(f"{printable(path.name)}, line {raw.number}: {raw.fault.detail or 'it cannot be read'}")
            if not raw.data.strip():
                continue
            name, text = _answer(raw.data, f"{printable(path.name)}, line {raw.number}")
            if found.setdefault(name, text) != text:
                raise BadInputError(f"{printable(path.name)}, line {raw.number}: the id {printable(name)} stands there twice")
    return found


def _answer(line: bytes, where: str) -> tuple[str, str]:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("id", "text")):
        raise BadInputError(f'{where} is no answer; each line is {{"id": "…", "text": "…"}}')
    return value["id"], value["text"]


def answers_beside(run: Path, who: str) -> Path | None:
    """Where the answers of `who` (an arm, or `repeat`) lie for a run file of a load-test's folder; None where there are none."""
    load, _, arm = run.stem.rpartition("-")
    file = run.parent.parent / "answers" / f"{load}-{who}.jsonl"
    return file if arm in ("baseline", "speculative") and run.parent.name == "runs" and file.is_file() else None
