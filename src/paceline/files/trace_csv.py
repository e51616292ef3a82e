"""Traces that are CSV tables: the Azure LLM inference trace of 2023, and BurstGPT.

Azure (Patel et al., Splitwise): TIMESTAMP as a date, ContextTokens, GeneratedTokens. BurstGPT (Wang et al., arXiv 2401.17644): Timestamp in
seconds from the trace's start, Model, Request tokens, Response tokens, Total tokens, Log Type; its second edition adds Session ID and
Elapsed time. A BurstGPT row whose response has no token is a request that failed.

Columns are found by name, so that more of them and another order do no harm; any column can name the segment.
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.files.read_report import Unusable
from paceline.files.trace_rows import NOT_INSTANT, RowReader, instant_from_seconds_ns, token_count
from paceline.traffic.segments import UNLABELLED
from paceline.traffic.traces import TraceRow, instant_ns

__all__ = ["CSV_TRACES", "CsvTrace", "csv_reader", "csv_trace_of"]

NOT_UTF8 = "not UTF-8"
NOT_CSV = "not CSV"
TOO_FEW = "fewer columns than the header"
MAX_TOKENS_DIGITS = 9


@dataclass(frozen=True, slots=True)
class CsvTrace:
    """One table's dialect: what it is called, which columns it must have, and how its instants are written (to nanoseconds)."""

    kind: Literal["azure-trace", "burstgpt-trace"]
    instant: str
    prompt: str
    output: str
    instant_ns: Callable[[str], int]

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns it must have."""
        return self.instant, self.prompt, self.output


def _date_ns(text: str) -> int:
    try:
        return instant_ns(text)
    except BadInputError as fault:
        raise Unusable(NOT_INSTANT, str(fault)) from None


def _seconds_ns(text: str) -> int:
    try:
        seconds = float(text) if text.isascii() else None
    except ValueError:
        seconds = None
    return instant_from_seconds_ns(seconds, shown=text)


CSV_TRACES = (
    CsvTrace("azure-trace", "TIMESTAMP", "ContextTokens", "GeneratedTokens", _date_ns),
    CsvTrace("burstgpt-trace", "Timestamp", "Request tokens", "Response tokens", _seconds_ns),
)


def csv_trace_of(header: bytes) -> CsvTrace | None:
    """The dialect of a file with this first line, None where it is none of ours."""
    try:
        names = _names(header)
    except Unusable:
        return None
    return next((each for each in CSV_TRACES if set(each.columns) <= set(names)), None)


def csv_reader(header: bytes, trace: CsvTrace, *, segment: str, segment_field: str | None) -> RowReader:
    """What makes a row of each line below `header`; the segment is `segment`, or with a field what stands in that column.

    Raises:
        UnknownNameError: there is no such column.

    """
    names = _names(header)
    if segment_field is not None and segment_field not in names:
        raise UnknownNameError("column", segment_field, names)
    at = {name: names.index(name) for name in names}
    label_at = None if segment_field is None else at[segment_field]
    return lambda data: _row(_fields(data), at, trace, segment if label_at is None else label_at)


def _names(header: bytes) -> list[str]:
    return [each.strip() for each in _fields(header)]


def _fields(data: bytes) -> list[str]:
    try:
        return next(csv.reader([data.decode("utf-8")]))
    except UnicodeDecodeError as fault:
        raise Unusable(NOT_UTF8, f"byte {fault.start + 1} of the line") from None
    except csv.Error as fault:
        raise Unusable(NOT_CSV, printable(str(fault))) from None


def _row(fields: list[str], at: Mapping[str, int], trace: CsvTrace, segment: str | int) -> TraceRow:
    """A row; a number for a segment is the column that names it."""
    needed = max([at[each] for each in trace.columns] + ([segment] if isinstance(segment, int) else []))
    if len(fields) <= needed:
        raise Unusable(TOO_FEW, f"{len(fields)} of {needed + 1}")
    instant, prompt, output = (fields[at[each]].strip() for each in trace.columns)
    return TraceRow(
        arrived_at_ns=trace.instant_ns(instant),
        prompt_tokens=_count(trace.prompt, prompt),
        output_tokens=_count(trace.output, output),
        segment=fields[segment].strip() or UNLABELLED if isinstance(segment, int) else segment,
        prefix_hashes=None,
    )


def _count(name: str, text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_TOKENS_DIGITS
    return token_count(name, int(text) if is_number else None, shown=text)
