"""Where the copies of other tools' files lie, and how a test changes one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.files.evidence import read_all, read_evidence
from paceline.run import Run

FOLDER = Path(__file__).parent / "data" / "benchfiles"
COMPLETIONS = FOLDER / "vllm-0.32.0-ngram-completions.json"
CHAT = FOLDER / "vllm-0.32.0-ngram-chat.json"
MOCK = FOLDER / "vllm-mock-spec-detailed.json"
SUMMARY_ONLY = FOLDER / "vllm-0.10-conc128.json"


def codes(run: Run) -> list[str]:
    """The run's caution codes."""
    return [each.code for each in run.cautions]


def changed(source: Path, folder: Path, change: Callable[[Any], object], *, name: str = "changed.json") -> Path:
    """A copy of a JSON file with `change` done to its document; what `change` returns, if anything, is written instead."""
    document = json.loads(source.read_text(encoding="utf-8"))
    other = change(document)
    place = folder / name
    place.write_text(json.dumps(document if other is None else other), encoding="utf-8")
    return place


def nothing(_: Any) -> None:
    """No change."""


def updated(**values: object) -> Callable[[Any], None]:
    """The change that sets these keys of a document."""

    def change(document: dict[str, Any]) -> None:
        document |= values

    return change


__all__ = ["CHAT", "COMPLETIONS", "FOLDER", "MOCK", "SUMMARY_ONLY", "changed", "codes", "nothing", "read_all", "read_evidence", "updated"]
