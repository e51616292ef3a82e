"""Reads the points that a forecast is calibrated with: a CSV with a header, a JSON list of objects, run files of ours, or a folder of them.

A point states `concurrency`, and at least one of `plain_step_s`, `speculative_step_s` and `step_time_ratio`; `draft_tokens` and `context`
where they differ from the forecast's own. A CSV is separated by commas, semicolons or tabs; with the latter two numbers may have a decimal
comma.
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
from paceline.files.bounded import read_bounded
from paceline.files.evidence import read_all
from paceline.files.found import Found
from paceline.files.runfile import run_from_json
from paceline.run import Arm, Run
from paceline.stats.decode_pace import DecodePace, decode_pace

__all__ = ["CalibrationPoint", "PrefillMixed", "read_calibration"]

MOST_BYTES = 64 << 20
COUNTS = ("concurrency", "draft_tokens", "context")
SCHEMA = "schema"
SECONDS = ("plain_step_s", "speculative_step_s", "step_time_ratio")
COLUMNS = (*COUNTS, *SECONDS)


@dataclass(frozen=True, slots=True)
class PrefillMixed:
    """What the seconds of a step still hold of prefill: one of `prompt_tokens` from each other request in every `steps` of its steps."""

    prompt_tokens: int
    steps: float


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
    mixed: PrefillMixed | None  # None where the steps hold no prefill, or it is not known
    coverage: float | None  # share of steps that draft, where a run file states it
    method: str | None  # likewise


def read_calibration(path: Path) -> tuple[CalibrationPoint, ...]:
    """The points of one file, or of each run file in a folder that `simulate` or `rollout` wrote.

    Raises:
        BadInputError: it cannot be read, has no points, or a point is incomplete.
        UnknownNameError: a column or key that means nothing here.

    """
    if not path.is_dir():
        return _of_file(path)
    folder = path / "runs" if (path / "runs").is_dir() else path
    files = sorted(each for arm in Arm for each in folder.glob(f"*{arm.value}.json"))
    if not files:
        raise BadInputError(
            f"the folder {printable(str(path))} holds no run file whose name ends in baseline.json or speculative.json; name the files"
        )
    return tuple(point for each in files for point in _of_file(each))


def _of_file(path: Path) -> tuple[CalibrationPoint, ...]:
    shown = printable(str(path))
    content = read_bounded(path, what="the calibration", most_bytes=MOST_BYTES, remedy="give a file with a few points")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInputError(f"the calibration {shown} is no text in UTF-8; save it as UTF-8") from None
    found = _objects(text, path)
    if isinstance(found, tuple):
        return tuple(_of_run(each, shown) for each in found)
    if not found:
        raise BadInputError(f"the calibration {shown} has no points; give two or more")
    return tuple(_point(each, f"{shown}, point {i}") for i, each in enumerate(found, 1))


def _objects(text: str, path: Path) -> list[Any] | tuple[Run, ...]:
    """Points, or the runs of a file of ours or of a load-tester."""
    name, start = path.name, text.lstrip()[:1]
    if start not in ("[", "{"):
        return _rows(text, printable(name))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(
            f"{printable(name)} is not JSON: {printable(str(fault))}; of a load-tester's file make a run file first: "
            "paceline measure FILE --out run.json"
        ) from None
    if isinstance(value, list):
        return value
    if "concurrency" in value:
        return [value]
    if SCHEMA in value:
        return (run_from_json(text, name=name),)
    return tuple(_arm_known(each, printable(str(path))) for each in read_all(path))


def _arm_known(found: Found, shown: str) -> Run:
    if not found.arm_stated:
        raise BadInputError(
            f"{shown} does not say whether drafts were on; say so with `paceline measure {shown} --arm baseline --out run.json` (or "
            "speculative), and calibrate on run.json"
        )
    return found.run


def _rows(text: str, shown: str) -> list[dict[str, str | None]]:
    """The rows of a CSV whose header names the columns."""
    header = text.lstrip().partition("\n")[0]
    separator = next((each for each in (";", "\t") if each in header), ",")
    reader = csv.DictReader(StringIO(text.lstrip()), delimiter=separator)
    columns = [name.strip() for name in reader.fieldnames or ()]
    if not columns:
        return []
    for name in columns:
        if name not in COLUMNS:
            raise UnknownNameError("calibration column", name, COLUMNS)
        if columns.count(name) > 1:
            raise BadInputError(f"{shown} names the column {name} {columns.count(name)} times; keep one of them")
    missing = ["concurrency"] if "concurrency" not in columns else []
    if not set(SECONDS) & set(columns):
        missing.append(f"one of {', '.join(SECONDS)}")
    if missing:
        raise BadInputError(f"{shown} misses the column {' and '.join(missing)}; its header names {', '.join(columns)}")
    rows = []
    for i, row in enumerate(reader, 1):
        if None in row:
            raise BadInputError(f"{shown}, point {i} has more fields than the header's {len(columns)}")
        values = [None if each is None else each.strip() for each in row.values()]
        rows.append({name: _with_point(each, separator) for name, each in zip(columns, values, strict=True)})
    return rows


def _with_point(value: str | None, separator: str) -> str | None:
    """A number with a decimal point, where commas do not separate."""
    return value if value is None or separator == "," else value.replace(",", ".")


def _of_run(run: Run, shown: str) -> CalibrationPoint:
    pace = decode_pace(run)
    step_s, mixed = _step_seconds(run, pace)
    if run.load.concurrency is None or step_s is None:
        raise BadInputError(
            f"the run {shown} does not state a concurrency and seconds per step; measure it in a closed loop, such as "
            "simulate --concurrency does"
        )
    baseline = run.arm is Arm.BASELINE
    counts = None if baseline or not run.acceptance_by_segment else run.acceptance
    return CalibrationPoint(
        concurrency=run.load.concurrency,
        draft_tokens=None if run.speculation is None else run.speculation.draft_tokens,
        context=None if pace is None else pace.context_tokens,
        plain_step_s=step_s if baseline else None,
        speculative_step_s=None if baseline else step_s,
        step_time_ratio=None,
        measured_on={key: run.provenance.arguments[key] for key in ("target", "hardware") if key in run.provenance.arguments},
        mixed=mixed,
        coverage=counts.drafts / counts.steps if counts is not None and counts.steps else None,
        method=None if run.speculation is None else run.speculation.method.value,
    )


def _step_seconds(run: Run, pace: DecodePace | None) -> tuple[float | None, PrefillMixed | None]:
    """Seconds of a step without prefill where the run tells them, else of a step, with what prefill is in it."""
    if pace is not None and pace.step_s is not None:
        return pace.step_s, None
    mixed = None if pace is None else PrefillMixed(pace.prompt_tokens, pace.steps)
    return run.step_seconds or None, mixed


def _point(value: object, where: str) -> CalibrationPoint:
    if not isinstance(value, dict):
        raise BadInputError(f"{where} is {printable(value)}, not an object")
    stated = {key: each for key, each in value.items() if each not in (None, "")}
    for key in stated:
        if key not in COLUMNS:
            raise UnknownNameError("calibration column", str(key), COLUMNS)
    if "concurrency" not in stated:
        raise BadInputError(f"{where} states no concurrency")
    if str(stated.get("draft_tokens")).strip() == "0":
        if {"speculative_step_s", "step_time_ratio"} & stated.keys():
            raise BadInputError(f"{where}: draft_tokens = 0; where nothing is drafted leave it empty and state plain_step_s alone")
        del stated["draft_tokens"]  # of a server without drafts, which any K is compared with
    whole = {name: _number(stated[name], f"{where}: {name}") if name in stated else None for name in COUNTS}
    for name, count in whole.items():
        if count is not None and (count != int(count) or count < 1):
            raise BadInputError(f"{where}: {name} = {printable(stated[name])} is not a whole number from 1 on")
    figures = {name: _number(stated[name], f"{where}: {name}") if name in stated else None for name in SECONDS}
    if not any(figures.values()):
        raise BadInputError(f"{where} states none of {', '.join(SECONDS)}; give at least one of them")
    sizes = {name: None if each is None else int(each) for name, each in whole.items()}
    return CalibrationPoint(**sizes, **figures, measured_on={}, mixed=None, coverage=None, method=None)  # type: ignore[arg-type]  # concurrency was checked above


def _number(value: object, where: str) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # what is no number is refused below
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not (isfinite(number) and number > 0):
        raise BadInputError(f"{where} = {printable(value)} is not a number above 0")
    return number
