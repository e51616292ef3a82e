"""A `Run` as a JSON file, and back without loss.

1. The first key is the schema and its version, the second the provenance; all others are the record's own fields.
2. Floats are written with as many digits as bring back the very same float. NaN and infinities are refused on both sides.
3. A key that we do not know is an error that names the nearest known one; so is a missing one, but for `warnings` and a timing's
   `detail`. `null` means not measured; `chunk_tokens` is null where only their sum is known, the record's `output_tokens`. Two requests
   have two ids.
4. A file is written beside its place and moved there whole, so a reader never sees half of one.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.files.bounded import read_bounded
from paceline.files.whole import write_text
from paceline.latency import Detail, Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation, Tree
from paceline.verdict import Caution

__all__ = ["RUN_SCHEMA", "read_run", "run_from_json", "run_to_json", "write_run"]

RUN_SCHEMA = "paceline.run/1"
MOST_BYTES = 1 << 30  # a million requests with their chunks

LARGEST = sys.float_info.max
LARGEST_WHOLE = 2**63 - 1

Word = TypeVar("Word", bound=StrEnum)

COUNTS = ("steps", "drafts", "drafted_tokens", "accepted_tokens", "accepted_per_position")
RECORD = ("id", "segment", "prompt_tokens", "output_tokens", "outcome", "timing", "acceptance")
TIMING = ("arrived_at_s", "sent_at_s", "ended", "chunk_at_s", "chunk_tokens", "detail")
CAUTION = ("code", "message")
SUMMARY = ("value", "statistic", "n", "low", "high")
PROVENANCE = ("made_by", "version", "evidence", "arguments", "inputs", "seed")
RUN = (
    "schema",
    "provenance",
    "arm",
    "speculation",
    "load",
    "window_s",
    "step_seconds",
    "acceptance_by_segment",
    "summaries",
    "requests",
    "warnings",
)


def write_run(run: Run, path: Path) -> None:
    """Write the run to `path`, whole or not at all.

    Raises:
        BadInputError: the place cannot be written to, or the run holds a number that is not finite.

    """
    write_text(path, run_to_json(run))


def read_run(path: Path) -> Run:
    """The run in a file.

    Raises:
        BadInputError: the file cannot be read, is cut off, or is no run of this schema.

    """
    content = read_bounded(path, what="the run", most_bytes=MOST_BYTES, remedy="give a run file")
    try:
        return run_from_json(content.decode("utf-8"), name=path.name)
    except UnicodeDecodeError as error:
        raise BadInputError(f"cannot read {printable(path.name)}: it is no UTF-8 text") from error


def run_to_json(run: Run) -> str:
    """The run as one line of JSON with a newline at its end.

    Raises:
        BadInputError: a number is not finite.

    """
    try:
        return json.dumps(_run_object(run), allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"
    except ValueError as error:
        raise BadInputError(
            "the run holds a number that is not finite, so it is not written; use None for what was not measured"
        ) from error


def _run_object(run: Run) -> dict[str, Any]:
    how = run.speculation
    tree = None if how is None or how.tree is None else {"depth": how.tree.depth, "topk": how.tree.topk, "nodes": how.tree.nodes}
    segments = run.acceptance_by_segment
    return {
        "schema": RUN_SCHEMA,
        "provenance": {name: _plain(getattr(run.provenance, name)) for name in PROVENANCE},
        "arm": run.arm.value,
        "speculation": None if how is None else {"method": how.method.value, "draft_tokens": how.draft_tokens, "tree": tree},
        "load": {"concurrency": run.load.concurrency, "rate_per_s": run.load.rate_per_s},
        "window_s": run.window_s,
        "step_seconds": run.step_seconds,
        "acceptance_by_segment": None if segments is None else {name: _counts_object(each) for name, each in segments.items()},
        "summaries": {name: {key: getattr(each, key) for key in SUMMARY} for name, each in run.summaries.items()},
        "requests": None if run.requests is None else [_record_object(each) for each in run.requests],
        "warnings": [{name: getattr(each, name) for name in CAUTION} for each in run.cautions],
    }


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value.value if isinstance(value, StrEnum) else value


def _counts_object(counts: AcceptanceCounts | None) -> dict[str, Any] | None:
    return None if counts is None else {name: getattr(counts, name) for name in COUNTS}


def _record_object(record: RequestRecord) -> dict[str, Any]:
    timing = record.timing
    return {
        "id": record.id,
        "segment": record.segment,
        "prompt_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "outcome": record.outcome.value,
        "timing": {
            "arrived_at_s": timing.arrived_at_s,
            "sent_at_s": timing.sent_at_s,
            "ended": timing.ended.value,
            "chunk_at_s": timing.chunk_at_s.tolist(),
            "chunk_tokens": timing.chunk_tokens.tolist() if timing.detail is Detail.CHUNKS else None,
            **({} if timing.detail is Detail.CHUNKS else {"detail": timing.detail.value}),
        },
        "acceptance": _counts_object(record.acceptance),
    }


def run_from_json(text: str, *, name: str) -> Run:
    """The run that `text` holds; `name` is the file's, for messages.

    Raises:
        BadInputError: with the place and what is wrong there.

    """
    try:
        loaded = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        where = (
            f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested or digits beyond reason"
        )
        raise BadInputError(f"{printable(name)} is no whole JSON ({where}): it was cut off or is another kind of file") from error
    try:
        return _run(loaded)
    except BadInputError as error:
        raise BadInputError(f"{printable(name)}: {error}") from error


def _refuse_constant(constant: str) -> NoReturn:
    raise BadInputError(f"{constant} is no number that a run may hold; what was not measured is null")


def _run(value: object) -> Run:
    if not isinstance(value, dict) or value.get("schema") != RUN_SCHEMA:
        found = value.get("schema") if isinstance(value, dict) else None
        raise BadInputError(
            f"schema {printable(found)} is not {RUN_SCHEMA}; run files come from `paceline bench`, `simulate` and `measure`"
        )
    fields = _fields({"warnings": [], **value}, "run", RUN)
    segments, records, how = fields["acceptance_by_segment"], fields["requests"], fields["speculation"]
    load = _fields(fields["load"], "load", ("concurrency", "rate_per_s"))
    requests = None if records is None else tuple(_record(each, f"requests[{i}]") for i, each in enumerate(_list(records, "requests")))
    repeated = [name for name, times in Counter(each.id for each in requests or ()).items() if times > 1]
    if repeated:
        raise BadInputError(f"{len(repeated)} request ids stand there twice, such as {printable(repeated[0])}: requests are paired by id")
    return Run(
        arm=_word(fields["arm"], "arm", Arm),
        speculation=None if how is None else _speculation(how),
        load=Load(
            concurrency=_maybe_whole(load["concurrency"], "load.concurrency"),
            rate_per_s=_maybe_number(load["rate_per_s"], "load.rate_per_s"),
        ),
        requests=requests,
        acceptance_by_segment=None
        if segments is None
        else {key: _counts(each, f"acceptance_by_segment.{key}") for key, each in _mapping(segments, "acceptance_by_segment").items()},
        step_seconds=_maybe_number(fields["step_seconds"], "step_seconds"),
        summaries={key: _summary(each, f"summaries.{key}") for key, each in _mapping(fields["summaries"], "summaries").items()},
        window_s=_maybe_number(fields["window_s"], "window_s"),
        provenance=_provenance(fields["provenance"]),
        cautions=tuple(_caution(each, f"warnings[{i}]") for i, each in enumerate(_list(fields["warnings"], "warnings"))),
    )


def _caution(value: object, where: str) -> Caution:
    fields = _fields(value, where, CAUTION)
    return Caution(code=_text(fields["code"], f"{where}.code"), message=_text(fields["message"], f"{where}.message"))


def _provenance(value: object) -> Provenance:
    fields = _fields(value, "provenance", PROVENANCE)
    texts = {
        name: {key: _text(each, f"provenance.{name}.{key}") for key, each in _mapping(fields[name], f"provenance.{name}").items()}
        for name in ("arguments", "inputs")
    }
    return Provenance(
        made_by=_text(fields["made_by"], "provenance.made_by"),
        version=_text(fields["version"], "provenance.version"),
        evidence=_word(fields["evidence"], "provenance.evidence", Evidence),
        arguments=texts["arguments"],
        inputs=texts["inputs"],
        seed=_maybe_whole(fields["seed"], "provenance.seed"),
    )


def _speculation(value: object) -> Speculation:
    fields = _fields(value, "speculation", ("method", "draft_tokens", "tree"))
    sizes = None if fields["tree"] is None else _fields(fields["tree"], "speculation.tree", ("depth", "topk", "nodes"))
    tree = None if sizes is None else Tree(**{name: _whole(each, f"speculation.tree.{name}") for name, each in sizes.items()})
    method = _word(fields["method"], "speculation.method", Method)
    return Speculation(method=method, draft_tokens=_whole(fields["draft_tokens"], "speculation.draft_tokens"), tree=tree)


def _summary(value: object, where: str) -> Summary:
    fields = _fields(value, where, SUMMARY)
    return Summary(
        value=_number(fields["value"], f"{where}.value"),
        statistic=_text(fields["statistic"], f"{where}.statistic"),
        n=_maybe_whole(fields["n"], f"{where}.n"),
        low=_maybe_number(fields["low"], f"{where}.low"),
        high=_maybe_number(fields["high"], f"{where}.high"),
    )


def _counts(value: object, where: str) -> AcceptanceCounts:
    fields = _fields(value, where, COUNTS)
    positions = fields["accepted_per_position"]
    return AcceptanceCounts(
        steps=_maybe_whole(fields["steps"], f"{where}.steps"),
        drafts=_whole(fields["drafts"], f"{where}.drafts"),
        drafted_tokens=_whole(fields["drafted_tokens"], f"{where}.drafted_tokens"),
        accepted_tokens=_whole(fields["accepted_tokens"], f"{where}.accepted_tokens"),
        accepted_per_position=None
        if positions is None
        else tuple(_whole(each, f"{where}.accepted_per_position") for each in _list(positions, f"{where}.accepted_per_position")),
    )


def _record(value: object, where: str) -> RequestRecord:
    fields = _fields(value, where, RECORD)
    acceptance, output_tokens = fields["acceptance"], _whole(fields["output_tokens"], f"{where}.output_tokens")
    return RequestRecord(
        id=_text(fields["id"], f"{where}.id"),
        segment=_text(fields["segment"], f"{where}.segment"),
        prompt_tokens=_whole(fields["prompt_tokens"], f"{where}.prompt_tokens"),
        output_tokens=output_tokens,
        timing=_timing(fields["timing"], f"{where}.timing", output_tokens=output_tokens),
        acceptance=None if acceptance is None else _counts(acceptance, f"{where}.acceptance"),
        outcome=_word(fields["outcome"], f"{where}.outcome", Outcome),
    )


def _timing(value: object, where: str, *, output_tokens: int) -> RequestTiming:
    fields = _fields({"detail": Detail.CHUNKS.value, **_mapping(value, where)}, where, TIMING)
    arrived_at_s, sent_at_s = (_number(fields[key], f"{where}.{key}") for key in ("arrived_at_s", "sent_at_s"))
    chunk_at_s = _array(fields["chunk_at_s"], f"{where}.chunk_at_s", kinds="if").astype(np.float64)
    detail, ended = _word(fields["detail"], f"{where}.detail", Detail), _word(fields["ended"], f"{where}.ended", Ended)
    if (detail is Detail.CHUNKS) == (fields["chunk_tokens"] is None):
        raise BadInputError(f"{where}.chunk_tokens is null where detail is instants or ends, and only there")
    if detail is Detail.CHUNKS:
        sizes = _array(fields["chunk_tokens"], f"{where}.chunk_tokens", kinds="i").astype(np.int64)
        return RequestTiming(arrived_at_s=arrived_at_s, sent_at_s=sent_at_s, chunk_at_s=chunk_at_s, chunk_tokens=sizes, ended=ended)
    return RequestTiming.of_total(
        arrived_at_s=arrived_at_s, sent_at_s=sent_at_s, chunk_at_s=chunk_at_s, output_tokens=output_tokens, ended=ended, detail=detail
    )


def _fields(value: object, where: str, known: tuple[str, ...]) -> dict[str, Any]:
    fields = _mapping(value, where)
    for key in fields:
        if key not in known:
            raise UnknownNameError(f"key in {where}", key, known)
    missing = [key for key in known if key not in fields]
    if missing:
        raise BadInputError(f"{where} lacks {', '.join(missing)}")
    return fields


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInputError(f"{where} = {printable(value)} is not an object")
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadInputError(f"{where} = {printable(value)} is not a list")
    return value


def _array(value: object, where: str, *, kinds: str) -> npt.NDArray[Any]:
    items = _list(value, where)
    if not items:
        return np.empty(0)
    try:
        array = np.array(items)
    except ValueError:
        raise BadInputError(f"{where} is not a flat list of numbers") from None
    if array.ndim != 1 or array.dtype.kind not in kinds or bool in map(type, items):
        raise BadInputError(f"{where} is not a flat list of {'whole ' if kinds == 'i' else ''}numbers")
    return array


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise BadInputError(f"{where} = {printable(value)} is not text")
    return value


def _word(value: object, where: str, words: type[Word]) -> Word:
    text = _text(value, where)
    known = [each.value for each in words]
    if text not in known:
        raise UnknownNameError(where, text, known)
    return words(text)


def _whole(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST_WHOLE:
        raise BadInputError(f"{where} = {printable(value)} is not a whole number that fits into 64 bits")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:  # inf from 1e999 too
        raise BadInputError(f"{where} = {printable(value)} is not a finite number")
    return float(value)


def _maybe_whole(value: object, where: str) -> int | None:
    return None if value is None else _whole(value, where)


def _maybe_number(value: object, where: str) -> float | None:
    return None if value is None else _number(value, where)
