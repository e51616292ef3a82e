"""Reads the points that a forecast is calibrated with: a CSV with a header, a JSON list of objects, or a run file of ours.

A point states `concurrency`, and at least one of `plain_step_s`, `speculative_step_s` and `step_time_ratio`; `draft_tokens` and `context`
where they differ from the forecast's own.
"""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.files.runfile import run_from_json
from paceline.run import Arm, Run

__all__ = ["CalibrationPoint", "read_calibration"]

MOST_BYTES = 64 << 20
COUNTS = ("concurrency", "draft_tokens", "context")
SECONDS = ("plain_step_s", "speculative_step_s", "step_time_ratio")


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """One point that a user knows; None where it is not stated."""

    concurrency: int
    draft_tokens: int | None
    context: int | None
    plain_step_s: float | None
    speculative_step_s: float | None
    step_time_ratio: float | None
    measured_on: Mapping[str, str]  # target and hardware, where a run file states them


def read_calibration(path: Path) -> tuple[CalibrationPoint, ...]:
    """The points of one file.

    Raises:
        BadInputError: it cannot be read, has no points, or a point is incomplete.
        UnknownNameError: a column or key that means nothing here.

    """
    shown = printable(str(path))
    try:
        with path.open("rb") as source:
            content = source.read(MOST_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as fault:
        raise BadInputError(f"the calibration {shown} cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise BadInputError(f"the calibration {shown} is no text in UTF-8") from None
    if len(content) > MOST_BYTES:
        raise BadInputError(f"the calibration {shown} is larger than {MOST_BYTES} bytes; a few points are enough")
    found = _objects(text, path.name)
    if isinstance(found, Run):
        return (_of_run(found, shown),)
    if not found:
        raise BadInputError(f"the calibration {shown} has no points; give two or more")
    return tuple(_point(each, f"{shown}, point {i}") for i, each in enumerate(found, 1))


def _objects(text: str, name: str) -> list[Any] | Run:
    start = text.lstrip()[:1]
    if start not in ("[", "{"):
        return list(csv.DictReader(StringIO(text)))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"{printable(name)} is not JSON: {printable(str(fault))}") from None
    if isinstance(value, list):
        return value
    return [value] if "concurrency" in value else run_from_json(text, name=name)


def _of_run(run: Run, shown: str) -> CalibrationPoint:
    if run.load.concurrency is None or run.step_seconds is None:
        raise BadInputError(f"the run {shown} does not state a concurrency and seconds per step; measure it in a closed loop")
    baseline = run.arm is Arm.BASELINE
    return CalibrationPoint(
        concurrency=run.load.concurrency,
        draft_tokens=None if run.speculation is None else run.speculation.draft_tokens,
        context=None,
        plain_step_s=run.step_seconds if baseline else None,
        speculative_step_s=None if baseline else run.step_seconds,
        step_time_ratio=None,
        measured_on={key: run.provenance.arguments[key] for key in ("target", "hardware") if key in run.provenance.arguments},
    )


def _point(value: object, where: str) -> CalibrationPoint:
    if not isinstance(value, dict):
        raise BadInputError(f"{where} is {printable(value)}, not an object")
    stated = {key: each for key, each in value.items() if each not in (None, "")}
    for key in stated:
        if key not in (*COUNTS, *SECONDS):
            raise UnknownNameError("calibration column", str(key), (*COUNTS, *SECONDS))
    if "concurrency" not in stated:
        raise BadInputError(f"{where} states no concurrency")
    whole = {name: _number(stated[name], f"{where}: {name}") if name in stated else None for name in COUNTS}
    for name, count in whole.items():
        if count is not None and (count != int(count) or count < 1):
            raise BadInputError(f"{where}: {name} = {printable(stated[name])} is not a whole number from 1 on")
    figures = {name: _number(stated[name], f"{where}: {name}") if name in stated else None for name in SECONDS}
    sizes = {name: None if each is None else int(each) for name, each in whole.items()}
    return CalibrationPoint(**sizes, **figures, measured_on={})  # type: ignore[arg-type]  # concurrency was checked above


def _number(value: object, where: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever is no number is refused below
    except (TypeError, ValueError):
        number = float("nan")
    if not (isfinite(number) and number > 0):
        raise BadInputError(f"{where} = {printable(value)} is not a number above 0")
    return number
