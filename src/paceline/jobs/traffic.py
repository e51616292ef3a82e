"""Traffic as the jobs need it: a workload to simulate, and replayed acceptance where the log has the target's own answers.

A log passes through once, whatever its size: exchanges become tokens, tokens are replayed, and only lengths and counts are kept. Beyond
100,000 exchanges the workload is a uniform sample of them, and beyond 20,000 requests of a segment its counts are pooled into groups of
requests, which stay independent units for an interval.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paceline.data.tables import DEMO_TRAFFIC, sha256, table
from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.bounded import open_file
from paceline.files.chatlog import ChatLog, demo_exchanges, read_chat_logs
from paceline.files.read_report import ReadReport
from paceline.files.recognise import kind_of
from paceline.files.tokens import CHAT_TEMPLATE, has_token_ids, load_tokenizer, prompt_tokens, to_stream
from paceline.files.trace import read_trace
from paceline.replay.ngram import NgramRule, RequestAcceptance, replay_streams
from paceline.replay.suffix import SuffixRule, replay_suffix
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method
from paceline.traffic.exchange import Exchange, TokenStream
from paceline.traffic.reservoir import Groups, Reservoir
from paceline.traffic.segments import segment_rule
from paceline.workload import Request, Workload

__all__ = ["DEMO", "Reading", "Replayed", "Traffic", "file_bytes", "file_hashes", "load_traffic"]

DEMO = "demo"
TRACE_SEGMENT = "all"
MOST_REQUESTS = 100_000
MOST_GROUPS = 20_000
HASHED_BYTES = 1 << 20
NO_ANSWERS = "the log has prompts but no answers of the target, so acceptance is not measured"
NO_TEXT = "the trace has lengths and times but no text, so acceptance is not measured"


@dataclass(frozen=True, slots=True)
class Reading:
    """How traffic is read: tokenizer, segments, what is replayed, the output length assumed where none is logged, and the sample's seed."""

    tokenizer: Path | None
    segment_rule: str | None
    segment_field: str | None
    rule: NgramRule | SuffixRule
    assumed_output_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """Acceptance of n-gram or suffix drafts by segment: the counts of each request (or group of them), so that intervals can be made."""

    method: Method
    groups: Mapping[str, tuple[AcceptanceCounts, ...]]
    requests: int

    def pooled(self) -> dict[str, AcceptanceCounts]:
        """The counts by segment."""
        return {name: AcceptanceCounts.pooled(counts) for name, counts in self.groups.items()}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was read.

    Attributes:
        workload: requests with their lengths, arrivals where the source has them.
        has_arrivals: whether the source has times.
        replayed: acceptance of n-gram or suffix drafts, None where it was not measured.
        why_not: why it was not, None where it was.
        tokens: what a token is here: the log's own ids, a tokenizer, bytes, or the trace's own counts.
        notes: what a reader of any figure from this traffic must know.
        warnings: what could not be used of the files, with counts.
        inputs: SHA-256 by file name.

    """

    workload: Workload
    has_arrivals: bool
    replayed: Replayed | None
    why_not: str | None
    tokens: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    inputs: Mapping[str, str]

    def pooled(self, method: Method) -> dict[str, AcceptanceCounts] | None:
        """The replayed counts by segment, None where not this method was replayed."""
        return self.replayed.pooled() if self.replayed is not None and self.replayed.method is method else None


def load_traffic(paths: tuple[str, ...], reading: Reading, *, progress: Callable[[int], None]) -> Traffic:
    """The packaged demo traffic, one trace, or chat logs. `progress` gets bytes as they are read.

    Raises:
        BadInputError: a file cannot be used, or traces and logs are mixed.

    """
    if paths == (DEMO,):
        return _demo(reading)
    if not paths:
        raise BadInputError(f"no traffic was named; give chat logs, a trace, or {DEMO!r} for the packaged demo traffic")
    files = tuple(Path(each) for each in paths)
    kinds = {kind_of(each) for each in files}
    if kinds == {"chat-log"}:
        return _chat_logs(files, reading, progress)
    if len(files) > 1:
        raise BadInputError("a trace is read alone; give one trace, or chat logs only")
    return _trace(files[0], reading, progress)


def file_bytes(paths: Iterable[str]) -> int | None:
    """The files' sizes together, for a bar; None where one is no file (the demo, a pipe)."""
    files = [Path(each) for each in paths]
    return sum(each.stat().st_size for each in files) if all(each.is_file() for each in files) else None


def _demo(reading: Reading) -> Traffic:
    provenance = table("demo_traffic")
    passed = _Passing(reading, source="demo traffic")
    passed.all(demo_exchanges())
    dropped = provenance["counts"]["all"]["dropped_as_loops_share"]
    note = f"{provenance['notice'].strip()} {dropped:.1%} of its exchanges were dropped because the small model loops."
    return passed.traffic(notes=(note,), warnings=(), inputs={DEMO_TRAFFIC: sha256(DEMO_TRAFFIC)})


def _chat_logs(files: tuple[Path, ...], reading: Reading, progress: Callable[[int], None]) -> Traffic:
    log: ChatLog = read_chat_logs(files, segment=segment_rule(name=reading.segment_rule, field=reading.segment_field), progress=progress)
    passed = _Passing(reading, source=", ".join(each.name for each in files))
    passed.all(log)
    return passed.traffic(notes=(), warnings=_warnings(log.report), inputs=file_hashes(files))


def _trace(file: Path, reading: Reading, progress: Callable[[int], None]) -> Traffic:
    workload, report = read_trace(file, segment=TRACE_SEGMENT, segment_field=reading.segment_field, limit=None)
    progress(file.stat().st_size)
    return Traffic(
        workload=workload,
        has_arrivals=True,
        replayed=None,
        why_not=NO_TEXT,
        tokens="the trace's own counts",
        notes=(),
        warnings=_warnings(report),
        inputs=file_hashes((file,)),
    )


def _warnings(report: ReadReport) -> tuple[str, ...]:
    unlabelled = (f"{report.unlabelled} of {report.exchanges} exchanges have no segment field",) if report.unlabelled > 0 else ()
    return (*report.warnings, *unlabelled)


def file_hashes(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 by file name."""
    hashes = {}
    for file in files:
        name = file.name
        while name in hashes:  # two folders may each have a log of one name
            name += "'"
        digest = hashlib.sha256()
        with open_file(file) as source:
            while block := source.read(HASHED_BYTES):
                digest.update(block)
        hashes[name] = digest.hexdigest()
    return hashes


class _Passing:
    """A log on its way through: exchanges in, lengths and counts kept."""

    def __init__(self, reading: Reading, source: str) -> None:
        self._reading = reading
        self._source = source
        self._tokenizer = load_tokenizer(reading.tokenizer)
        self._seen = self._answered = self._from_text = self._timed = self._empty = 0
        self._kept: Reservoir[Request] = Reservoir(MOST_REQUESTS, rng=np.random.default_rng(reading.seed))
        self._groups: dict[str, Groups] = {}

    def all(self, exchanges: Iterable[Exchange]) -> None:
        """Take every exchange."""
        for each in _replayed(self._streams(exchanges), self._reading.rule):
            self._groups.setdefault(each.segment, Groups(MOST_GROUPS)).add(each.counts)

    def _streams(self, exchanges: Iterable[Exchange]) -> Iterator[TokenStream]:
        for each in exchanges:
            self._seen += 1
            self._timed += each.arrived_at_s is not None
            if each.answer is None:
                prompt = int(prompt_tokens(each, self._tokenizer).size)
                self._keep(each, prompt_tokens=prompt, output_tokens=self._reading.assumed_output_tokens)
                continue
            try:
                stream = to_stream(each, self._tokenizer)
            except NoEvidenceError:
                self._empty += 1
                continue
            self._answered += 1
            self._from_text += not has_token_ids(each)
            self._keep(each, prompt_tokens=int(stream.prompt.size), output_tokens=int(stream.output.size))
            yield stream

    def _keep(self, exchange: Exchange, *, prompt_tokens: int, output_tokens: int) -> None:
        self._kept.offer(
            Request(
                id=exchange.id,
                arrived_at_s=exchange.arrived_at_s or 0.0,
                prompt_tokens=max(1, prompt_tokens),
                output_tokens=output_tokens,
                segment=exchange.segment,
            )
        )

    def traffic(self, *, notes: tuple[str, ...], warnings: tuple[str, ...], inputs: Mapping[str, str]) -> Traffic:
        """What was taken.

        Raises:
            BadInputError: nothing was.

        """
        if not self._kept.kept:
            raise BadInputError(f"{printable(self._source)} holds no exchange that can be used")
        has_arrivals = self._timed == self._seen
        groups = {name: each.pooled for name, each in sorted(self._groups.items())}
        empty = (f"{self._empty} answers without a token are left out",) if self._empty else ()
        return Traffic(
            workload=Workload(
                requests=_timed(self._kept.kept) if has_arrivals else _untimed(self._kept.kept),
                source=self._source,
                seed=self._reading.seed if self._kept.is_sample else None,
            ),
            has_arrivals=has_arrivals,
            replayed=Replayed(_method(self._reading.rule), groups, self._answered) if self._answered else None,
            why_not=None if self._answered else NO_ANSWERS,
            tokens=self._tokens,
            notes=(*notes, *self._token_notes(), *self._length_notes()),
            warnings=(*warnings, *empty),
            inputs=inputs,
        )

    @property
    def _tokens(self) -> str:
        own = not self._from_text and self._answered + self._empty == self._seen
        return "the log's own ids" if own else self._tokenizer.name

    def _token_notes(self) -> tuple[str, ...]:
        rendered = (f"chat template {CHAT_TEMPLATE}",) if self._tokens == self._tokenizer.name else ()
        return (f"tokens: {self._tokens}", *rendered)

    def _length_notes(self) -> tuple[str, ...]:
        assumed = self._seen - self._answered - self._empty
        return (f"{assumed} of {self._seen} exchanges have no answer; their output length is assumed",) if assumed else ()


def _method(rule: NgramRule | SuffixRule) -> Method:
    return Method.SUFFIX if isinstance(rule, SuffixRule) else Method.NGRAM


def _replayed(streams: Iterable[TokenStream], rule: NgramRule | SuffixRule) -> Iterator[RequestAcceptance]:
    return replay_suffix(streams, rule) if isinstance(rule, SuffixRule) else replay_streams(streams, rule)


def _timed(requests: Iterable[Request]) -> tuple[Request, ...]:
    """In order of arrival, from the first arrival on: a log's own clock may start anywhere."""
    ordered = sorted(requests, key=lambda each: each.arrived_at_s)
    return tuple(replace(each, arrived_at_s=each.arrived_at_s - ordered[0].arrived_at_s) for each in ordered)


def _untimed(requests: Iterable[Request]) -> tuple[Request, ...]:
    """In the log's order, all at the start: where some have no time, the times of the others order nothing."""
    return tuple(replace(each, arrived_at_s=0.0) for each in requests)
