"""Reads published request traces: one row per request with its instant, prompt tokens and output tokens, and no text.

Azure's and BurstGPT's tables (`trace_csv`) and Mooncake's JSON lines (`trace_mooncake`), told apart by their first line. A row that cannot
be used is counted by reason (`read_report`); so are requests without a prompt or without an answer.
"""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from paceline.errors import BadInputError, printable
from paceline.files.lines import RawLine, nothing_usable, opened, raw_lines
from paceline.files.read_report import ReadReport, Tally, Unusable
from paceline.files.trace_csv import CSV_TRACES, csv_reader, csv_trace_of
from paceline.files.trace_mooncake import MOONCAKE_KEYS, is_mooncake, mooncake_reader
from paceline.files.trace_rows import RowReader
from paceline.traffic.segments import UNLABELLED, segment_rule
from paceline.traffic.traces import TraceRow, rows_out_of_order, workload_from_trace
from paceline.workload import Workload

__all__ = ["TRACES_WE_READ", "TraceKind", "read_trace", "trace_kind_of"]

TraceKind = Literal["azure-trace", "burstgpt-trace", "mooncake-trace"]
OUT_OF_ORDER = "arrived before a row above: sorted"
TRACES_WE_READ = (
    f"CSV with the header {' or '.join(','.join(each.columns) for each in CSV_TRACES)}, or JSON lines with {', '.join(MOONCAKE_KEYS)}"
)


def read_trace(path: Path, *, segment: str, segment_field: str | None, limit: int | None) -> tuple[Workload, ReadReport]:
    """The trace as a workload, counted from its earliest request, and what became of its rows.

    All requests are of `segment`, or with `segment_field` of the segment which that column or key names. With `limit` reading stops after
    that many usable rows, in the file's order; rows behind it are not counted.

    Raises:
        BadInputError: the file cannot be read, opens like no trace we read, or has not one usable row; the limit is below 1.
        UnknownNameError: a table has no column of that name.

    """
    if limit is not None and limit < 1:
        raise BadInputError(f"a limit of {limit} rows; at least 1 is needed")
    tally = Tally(path.name)
    with opened(path) as source:
        lines = raw_lines(source.stream)
        first = next(lines)
        reader, lines = _reader(path, first, lines, segment=segment, segment_field=segment_field)
        rows = list(islice(_rows(lines, reader, tally), limit))
    if not rows:
        raise nothing_usable(path, tally.report, wanted=f"give {TRACES_WE_READ}, and at least one row")
    for _ in range(rows_out_of_order(rows)):
        tally.note(OUT_OF_ORDER)
    return workload_from_trace(rows, source=path.name), tally.report


def trace_kind_of(first_line: bytes) -> TraceKind | None:
    """Which trace opens with this line, None for none."""
    table = csv_trace_of(first_line)
    if table is not None:
        return table.kind
    return "mooncake-trace" if is_mooncake(first_line) else None


def _reader(
    path: Path, first: RawLine, rest: Iterator[RawLine], *, segment: str, segment_field: str | None
) -> tuple[RowReader, Iterator[RawLine]]:
    """What makes rows of lines, and the lines: a table's first one is its header."""
    kind = None if first.fault else trace_kind_of(first.data)
    if kind is None:
        shown = printable(first.data.decode("utf-8", errors="replace"))
        raise BadInputError(f"{printable(str(path))}: it opens with {shown}, which is no trace we read; give {TRACES_WE_READ}")
    table = csv_trace_of(first.data)
    if table is not None:
        return csv_reader(first.data, table, segment=segment, segment_field=segment_field), rest
    rule = None if segment_field is None else segment_rule(name=None, field=segment_field)
    return mooncake_reader(segment=segment, rule=rule), chain([first], rest)


def _rows(lines: Iterator[RawLine], reader: RowReader, tally: Tally) -> Iterator[TraceRow]:
    for line in lines:
        if line.fault is None and not line.data.strip():
            tally.blank()
            continue
        try:
            if line.fault is not None:
                raise line.fault
            row = reader(line.data)
        except Unusable as why:
            tally.bad(line.number, why)
        else:
            tally.used()
            tally.exchange(has_answer=False, labelled=row.segment != UNLABELLED)
            yield row
