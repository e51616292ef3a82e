"""Reads the Azure LLM inference trace of 2023: one CSV row per request with its instant, prompt tokens and output tokens.

Columns are found by name, so that more of them and another order do no harm. A row that cannot be used is counted by reason
(`read_report`).
"""

import csv
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from paceline.errors import BadInputError, printable
from paceline.files.lines import RawLine, nothing_usable, opened, raw_lines
from paceline.files.read_report import ReadReport, Tally, Unusable
from paceline.traffic.traces import TraceRow, instant_ns, rows_out_of_order, workload_from_trace
from paceline.workload import Workload

__all__ = ["AZURE_COLUMNS", "columns_of", "read_trace"]

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MAX_TOKENS_DIGITS = 9

NOT_UTF8 = "not UTF-8"
NOT_CSV = "not CSV"
TOO_FEW = "fewer columns than the header"
NOT_COUNT = "not a count of tokens"
NO_TOKENS = "zero tokens, which no request has"
NOT_INSTANT = "not an instant"
OUT_OF_ORDER = "arrived before a row above: sorted"

WANTED = f"give a CSV file with the header {','.join(AZURE_COLUMNS)} and at least one row"


def read_trace(path: Path, *, segment: str, limit: int | None) -> tuple[Workload, ReadReport]:
    """The trace as a workload of one segment, counted from its earliest request, and what became of its rows.

    With `limit` reading stops after that many usable rows, in the file's order; rows behind it are not counted.

    Raises:
        BadInputError: the file cannot be read, has another header, or not one usable row; the limit is below 1.

    """
    if limit is not None and limit < 1:
        raise BadInputError(f"a limit of {limit} rows; at least 1 is needed")
    tally = Tally(path.name)
    with opened(path) as source:
        lines = raw_lines(source.stream)
        columns = _need_columns(path, next(lines))
        rows = list(islice(_rows(lines, columns, tally), limit))
    if not rows:
        raise nothing_usable(path, tally.report, wanted=WANTED)
    for _ in range(rows_out_of_order(rows)):
        tally.note(OUT_OF_ORDER)
    return workload_from_trace(rows, source=path.name, segment=segment), tally.report


def columns_of(header: bytes) -> dict[str, int] | None:
    """Where the trace's columns stand in a header line; None where one of them is missing."""
    try:
        names = [each.strip() for each in _fields(header)]
    except Unusable:
        return None
    if any(each not in names for each in AZURE_COLUMNS):
        return None
    return {each: names.index(each) for each in AZURE_COLUMNS}


def _need_columns(path: Path, header: RawLine) -> dict[str, int]:
    columns = None if header.fault else columns_of(header.data)
    if columns is None:
        shown = printable(header.data.decode("utf-8", errors="replace"))
        raise BadInputError(f"{printable(str(path))}: its header {shown} is no trace we read; {WANTED}")
    return columns


def _rows(lines: Iterator[RawLine], columns: Mapping[str, int], tally: Tally) -> Iterator[TraceRow]:
    for line in lines:
        if line.fault is None and not line.data.strip():
            tally.blank()
            continue
        try:
            if line.fault is not None:
                raise line.fault
            row = _row(_fields(line.data), columns)
        except Unusable as why:
            tally.bad(line.number, why)
        else:
            tally.used()
            tally.exchange(has_answer=False, labelled=True)
            yield row


def _fields(data: bytes) -> list[str]:
    try:
        return next(csv.reader([data.decode("utf-8")]))
    except UnicodeDecodeError as fault:
        raise Unusable(NOT_UTF8, f"byte {fault.start + 1} of the line") from None
    except csv.Error as fault:
        raise Unusable(NOT_CSV, printable(str(fault))) from None


def _row(fields: list[str], columns: Mapping[str, int]) -> TraceRow:
    if len(fields) <= max(columns.values()):
        raise Unusable(TOO_FEW, f"{len(fields)} of {max(columns.values()) + 1}")
    instant, prompt, output = (fields[columns[each]].strip() for each in AZURE_COLUMNS)
    try:
        arrived_at_ns = instant_ns(instant)
    except BadInputError as fault:
        raise Unusable(NOT_INSTANT, str(fault)) from None
    return TraceRow(
        arrived_at_ns=arrived_at_ns,
        prompt_tokens=_count("ContextTokens", prompt),
        output_tokens=_count("GeneratedTokens", output),
    )


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_TOKENS_DIGITS):
        raise Unusable(NOT_COUNT, f"{name} is {printable(text)}")
    if int(text) == 0:
        raise Unusable(NO_TOKENS, f"{name} is 0")
    return int(text)
