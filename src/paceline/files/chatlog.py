"""Chat logs: JSONL or a JSON array, plain or gzip, as exchanges, one at a time and in constant memory.

A line's shape is told by its keys (`chatlog_shapes`), so that one file may mix them. Whatever cannot be used is counted by reason
(`read_report`). An exchange's id is `<line>.<turn>`; with several files `<file>/<line>.<turn>`, the file counted from 1 on.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from operator import add
from pathlib import Path
from typing import NoReturn

from paceline.data.tables import DEMO_TRAFFIC, demo_traffic_lines
from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.files.chatlog_messages import WRONG_TYPE, Turn, json_type, need_text
from paceline.files.chatlog_shapes import SHAPES_WANTED, shaped
from paceline.files.lines import RawLine, Source, nothing_usable, opened, raw_records
from paceline.files.read_report import ReadReport, Tally, Unusable
from paceline.traffic.exchange import Exchange
from paceline.traffic.segments import KNOWN_FIELDS, UNLABELLED, SegmentRule, named_fields, segment_rule

__all__ = ["ChatLog", "demo_exchanges", "read_chat_logs"]

LATEST_S = 1e12  # an integer of any length compares with it, where it would not turn into a float

NOT_UTF8 = "not UTF-8"
NOT_JSON = "not JSON"
NOT_OBJECT = "not a JSON object"
NOT_FINITE = "NaN or Infinity, which JSON does not have"
TOO_DEEP = "nested too deeply"


class ChatLog:
    """The exchanges of some chat logs: iterate to read them, as often as wanted; `report` tells what became of every line read so far."""

    def __init__(self, paths: Sequence[Path], segment: SegmentRule, progress: Callable[[int], None] | None) -> None:
        self._paths = tuple(paths)
        self._segment = segment
        self._progress = progress
        self._tallies = [Tally(path.name) for path in paths]

    @property
    def report(self) -> ReadReport:
        """The counts over all files, complete once the iteration has ended."""
        return reduce(add, (each.report for each in self._tallies))

    def __iter__(self) -> Iterator[Exchange]:
        """The exchanges in the order of the files and of their lines.

        Raises:
            BadInputError: a file cannot be read, is empty or binary, or none of its lines could be used.
            UnknownNameError: no line has the field that names the segment.

        """
        self._tallies = [Tally(path.name) for path in self._paths]
        for number, (path, tally) in enumerate(zip(self._paths, self._tallies, strict=True), 1):
            prefix = f"{number}/" if len(self._paths) > 1 else ""
            with opened(path) as source:
                records = _watched(source, self._progress)
                yield from _exchanges_of(records, tally=tally, segment=self._segment, prefix=prefix)
            if not tally.report.used_lines:
                raise nothing_usable(path, tally.report, wanted=SHAPES_WANTED)
        _need_field(self._segment, self.report, self._paths)


def _need_field(rule: SegmentRule, report: ReadReport, paths: Sequence[Path]) -> None:
    """Nothing, where some line has the field that was named for the segment; no field was where the known ones are tried.

    Raises:
        UnknownNameError: no line has it; the message lists the fields of the first usable line.

    """
    if rule.fields in ((), KNOWN_FIELDS) or report.unlabelled < report.exchanges:
        return
    raise UnknownNameError("segment field", rule.fields[0], _first_fields(paths[0]))


def _first_fields(path: Path) -> tuple[str, ...]:
    """The fields of the first line that is an object; none of a pipe, which can be read once only."""
    if not path.is_file():
        return ()
    with opened(path) as source:
        for record in raw_records(source.stream):
            with suppress(Unusable, RecursionError):
                return named_fields(_parsed(record.data))
    return ()


def read_chat_logs(paths: Sequence[Path], *, segment: SegmentRule, progress: Callable[[int], None] | None) -> ChatLog:
    """The logs' exchanges, read when iterated over; every path is tried at once, so that a wrong one is told before hours of work.

    `progress` gets the bytes read since it was last called; they add up to the files' sizes.

    Raises:
        BadInputError: there are no paths, or one of them is no readable text file.

    """
    if not paths:
        raise BadInputError("no chat log was named; give at least one file")
    for path in paths:
        if path.is_file() or not path.exists() or path.is_dir():  # a pipe can be opened once only
            with opened(path):
                pass
    return ChatLog(paths, segment, progress)


def demo_exchanges() -> tuple[Exchange, ...]:
    """The exchanges of the demo traffic that ships with the package, with its own segments and token ids."""
    tally = Tally(DEMO_TRAFFIC)
    records = (RawLine(number=number, data=data, fault=None) for number, data in enumerate(demo_traffic_lines(), 1))
    exchanges = tuple(_exchanges_of(records, tally=tally, segment=segment_rule(name=None, field="segment"), prefix=""))
    assert tally.report.used_lines == tally.report.lines, tally.report
    return exchanges


def _watched(source: Source, progress: Callable[[int], None] | None) -> Iterator[RawLine]:
    reported = 0
    for record in raw_records(source.stream):
        if progress is not None and source.counted.bytes_read != reported:
            progress(source.counted.bytes_read - reported)
            reported = source.counted.bytes_read
        yield record
    if progress is not None and source.counted.bytes_read != reported:
        progress(source.counted.bytes_read - reported)


def _exchanges_of(records: Iterable[RawLine], *, tally: Tally, segment: SegmentRule, prefix: str) -> Iterator[Exchange]:
    """The exchanges of raw lines; `tally` is told what became of each."""
    for record in records:
        if record.fault is None and not record.data.strip():
            tally.blank()
            continue
        try:
            if record.fault is not None:
                raise record.fault
            exchanges = _exchanges(record, tally=tally, segment=segment, prefix=prefix)
        except Unusable as why:
            tally.bad(record.number, why)
        except RecursionError:
            tally.bad(record.number, Unusable(TOO_DEEP, ""))
        else:
            yield from exchanges


def _exchanges(record: RawLine, *, tally: Tally, segment: SegmentRule, prefix: str) -> Iterable[Exchange]:
    """The line's exchanges, counted; none where every turn of it had to be skipped.

    Raises:
        Unusable: the line as a whole.

    """
    row = _parsed(record.data)
    line = shaped(row)
    arrived_at_s = _arrival(row.get("arrived_at_s"))
    turns = [each for each in line.turns if isinstance(each, Turn)]
    skipped = [each for each in line.turns if isinstance(each, Unusable)]
    exchanges = [
        _exchange(row, each, rule=segment, id_=f"{prefix}{record.number}.{each.number}", arrived_at_s=arrived_at_s) for each in turns
    ]
    for why in skipped:
        tally.skipped_turn(record.number, why)
    if not exchanges:
        tally.bad_for_its_turns(skipped[0])
        return []
    tally.used()
    for note in line.notes:
        tally.note(note)
    for each in exchanges:
        tally.exchange(has_answer=each.answer is not None, labelled=each.segment != UNLABELLED)
    return exchanges


def _exchange(row: dict[str, object], turn: Turn, *, rule: SegmentRule, id_: str, arrived_at_s: float | None) -> Exchange:
    segment = rule.segment_of(row, texts=(turn.messages[-1].content, turn.answer or ""))
    return Exchange(
        id=id_,
        segment=need_text("the segment", segment),
        messages=turn.messages,
        answer=turn.answer,
        finish_reason=turn.finish_reason,
        prompt_token_ids=turn.prompt_token_ids,
        output_token_ids=turn.output_token_ids,
        arrived_at_s=arrived_at_s,
    )


def _arrival(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST_S:
        raise Unusable(WRONG_TYPE, f"arrived_at_s is {json_type(value)} that is no time from 0 on")
    return float(value)


def _not_finite(name: str) -> NoReturn:
    raise Unusable(NOT_FINITE, name)


DECODER = json.JSONDecoder(parse_constant=_not_finite)


def _parsed(data: bytes) -> dict[str, object]:
    """The line as a JSON object.

    Raises:
        Unusable: it is none.

    """
    try:
        value = DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError as fault:
        raise Unusable(NOT_UTF8, f"byte {fault.start + 1} of the line") from None
    except ValueError as fault:
        raise Unusable(NOT_JSON, printable(str(fault))) from None
    if not isinstance(value, dict):
        raise Unusable(NOT_OBJECT, json_type(value))
    return value
