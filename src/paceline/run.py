"""The record at the waist: whatever makes evidence makes a `Run`, whatever uses evidence takes one.

A run is one arm under one load: per-request records where the source has them, acceptance by segment, seconds per decode step, and
summaries where an aggregate is all there is. `None` means that this source did not measure it; 0 means measured and zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf, isfinite

from paceline.errors import BadInputError, NoEvidenceError, is_count, printable
from paceline.latency import RequestTiming
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Speculation
from paceline.verdict import Caution

__all__ = ["Arm", "Evidence", "Load", "Outcome", "Provenance", "RequestRecord", "Run", "Summary", "joined", "lawful_summaries"]

LEAST_ONE = ("acceptance_length", "tokens_per_step")
SHARES = ("alpha", "survival", "coverage")  # names that begin so are fractions; every other figure is a time, a count or a rate
SLACK = 1e-9


class Arm(StrEnum):
    """Without or with drafts."""

    BASELINE = "baseline"
    SPECULATIVE = "speculative"


class Evidence(StrEnum):
    """What a figure rests on, from the strongest to the weakest."""

    MEASURED = "measured"
    REPLAYED = "replayed"
    SIMULATED = "simulated"
    PROFILE = "profile"
    STATED = "stated"


class Outcome(StrEnum):
    """What became of a request."""

    FINISHED = "finished"
    RUNNING = "running"
    WAITING = "waiting"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Load:
    """How requests were sent: `concurrency` in flight (closed loop), or `rate_per_s` (open loop); None where the source does not say."""

    concurrency: int | None
    rate_per_s: float | None

    def __post_init__(self) -> None:
        """Reject loads of nothing.

        Raises:
            BadInputError: with the value.

        """
        if self.concurrency is not None and not is_count(self.concurrency, least=1):
            raise BadInputError(f"concurrency {printable(self.concurrency)} is not a whole number from 1 on")
        if self.rate_per_s is not None and not (isfinite(self.rate_per_s) and self.rate_per_s > 0):
            raise BadInputError(
                f"rate {printable(self.rate_per_s)} requests/s is not a number above 0; all at once is a concurrency of all requests"
            )

    def __str__(self) -> str:
        """For a reader: `8 in flight`, `2.5 requests/s` or `load unknown`."""
        if self.concurrency is not None:
            return f"{self.concurrency} in flight"
        return "load unknown" if self.rate_per_s is None else f"{self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a record comes from: enough to make it again, and nothing that differs between machines (no clock, host or absolute path).

    Attributes:
        made_by: the verb, or the tool and version whose file was read.
        version: paceline's version.
        evidence: what it rests on.
        arguments: what changes the result, as given.
        inputs: SHA-256 of each input by file name.
        seed: None where nothing was drawn.

    """

    made_by: str
    version: str
    evidence: Evidence
    arguments: Mapping[str, str]
    inputs: Mapping[str, str]
    seed: int | None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request's lengths, timing, acceptance (None where not measured) and outcome."""

    id: str
    segment: str
    prompt_tokens: int
    output_tokens: int
    timing: RequestTiming
    acceptance: AcceptanceCounts | None
    outcome: Outcome

    def __post_init__(self) -> None:
        """Reject lengths that are no counts.

        Raises:
            BadInputError: with the request's id and the value.

        """
        if not (is_count(self.prompt_tokens, least=0) and is_count(self.output_tokens, least=0)):
            name = "output_tokens" if is_count(self.prompt_tokens, least=0) else "prompt_tokens"
            value = printable(getattr(self, name))
            raise BadInputError(f"request {printable(self.id)}: {name} = {value} is not a whole number from 0 on")


@dataclass(frozen=True, slots=True)
class Summary:
    """What an aggregate source knows of one metric: `statistic` (mean, p99, …) with the interval its buckets leave, if any."""

    value: float
    statistic: str
    n: int | None
    low: float | None
    high: float | None

    def __post_init__(self) -> None:
        """Reject NaN, an interval that misses its value and an n that is no count.

        Raises:
            BadInputError: with the values.

        """
        ends = [each for each in (self.low, self.value, self.high) if each is not None]
        if not all(isfinite(each) for each in ends) or ends != sorted(ends):
            raise BadInputError(f"{self.statistic} = {self.value!r} is not a finite number within [{self.low!r}, {self.high!r}]")
        if self.n is not None and not is_count(self.n, least=0):
            raise BadInputError(f"{self.statistic} of n = {printable(self.n)} samples, which is not a whole number from 0 on")


@dataclass(frozen=True, slots=True)
class Run:
    """One arm under one load.

    Attributes:
        arm: which arm.
        speculation: how tokens were drafted, None in the baseline or where the source does not say.
        load: how requests were sent.
        requests: per-request records, None where the source has only aggregates.
        acceptance_by_segment: counts by segment ('all' where the source has one total), None where not measured.
        step_seconds: mean seconds per decode step as a request sees it, None where not measured.
        summaries: aggregate metrics by name, such as "tpot_s".
        window_s: seconds measured, None where unknown.
        provenance: where this comes from.
        cautions: what a reader of any figure must know, found where it was measured or read.

    """

    arm: Arm
    speculation: Speculation | None
    load: Load
    requests: tuple[RequestRecord, ...] | None
    acceptance_by_segment: Mapping[str, AcceptanceCounts] | None
    step_seconds: float | None
    summaries: Mapping[str, Summary]
    window_s: float | None
    provenance: Provenance
    cautions: tuple[Caution, ...]

    def __post_init__(self) -> None:
        """Reject negative times, and figures that their name does not allow: shares outside [0, 1], lengths below 1, counts below 0.

        Raises:
            BadInputError: with the name and the value.

        """
        for name in ("step_seconds", "window_s"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise BadInputError(f"{name} = {value!r} is not a time from 0 on")
        for name, summary in self.summaries.items():
            wrong = _unlawful(name, summary)
            if wrong:
                raise BadInputError(f"the summary {wrong}")

    @property
    def acceptance(self) -> AcceptanceCounts:
        """The counts of all segments pooled.

        Raises:
            NoEvidenceError: acceptance was not measured.

        """
        if not self.acceptance_by_segment:
            raise NoEvidenceError("acceptance was not measured in this run")
        return AcceptanceCounts.pooled(self.acceptance_by_segment.values())

    @property
    def finished(self) -> tuple[RequestRecord, ...]:
        """The requests that finished.

        Raises:
            NoEvidenceError: the source has no per-request records.

        """
        if self.requests is None:
            raise NoEvidenceError("this run has no per-request records, only summaries")
        return tuple(each for each in self.requests if each.outcome is Outcome.FINISHED)

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens of finished requests per second of the window.

        Raises:
            NoEvidenceError: no per-request records or no window.

        """
        if not self.window_s:
            raise NoEvidenceError("this run states no window, so it has no throughput")
        return sum(each.output_tokens for each in self.finished) / self.window_s


def lawful_summaries(found: Mapping[str, Summary]) -> tuple[dict[str, Summary], tuple[Caution, ...]]:
    """The figures that their name allows, and a caution for each that was left out: what a `Run` would refuse.

    For readers of what others measured: one impossible figure is no reason to lose the rest.
    """
    wrong = {name: why for name, each in found.items() if (why := _unlawful(name, each)) is not None}
    cautions = tuple(Caution("unlawful_figure", f"{why}; it is left out, so look at what wrote it") for why in wrong.values())
    return {name: each for name, each in found.items() if name not in wrong}, cautions


def _unlawful(name: str, summary: Summary) -> str | None:
    """Why the figure cannot be what its name says, None where it can."""
    least = 1 if name.startswith(LEAST_ONE) else 0
    most = 1 if name.startswith(SHARES) else inf
    for end in ("value", "low", "high"):
        value = getattr(summary, end)
        if value is not None and not least - SLACK <= value <= most + SLACK:
            where = name if end == "value" else f"{name}.{end}"
            return f"{printable(where)} = {value!r} is not {'within 0 and 1' if most == 1 else f'a number from {least} on'}"
    return None


def joined(runs: Sequence[Run]) -> Run:
    """Stretches of one measurement as one run: requests one stretch after the other, windows and acceptance added up.

    Instants of a later stretch move behind the windows of the earlier ones. Seconds per step are weighted by chunk gaps, a figure without
    requests by its window. Summaries of several stretches do not add up and are left out. Provenance is the first one's.

    Raises:
        BadInputError: there are none, they are of different arms, loads or methods, or some have requests and others do not.

    """
    if not runs:
        raise BadInputError("no stretch of a run was given, so there is nothing to join")
    first = runs[0]
    if len(runs) == 1:
        return first
    if any((each.arm, each.load, each.speculation) != (first.arm, first.load, first.speculation) for each in runs):
        raise BadInputError("stretches of different arms, loads or methods are different runs")
    return replace(
        first,
        requests=_joined_requests(runs),
        acceptance_by_segment=_joined_acceptance(runs),
        step_seconds=_joined_step_seconds(runs),
        summaries={},
        window_s=None if any(each.window_s is None for each in runs) else sum(each.window_s or 0.0 for each in runs),
        cautions=tuple(dict.fromkeys(caution for each in runs for caution in each.cautions)),
    )


def _joined_requests(runs: Sequence[Run]) -> tuple[RequestRecord, ...] | None:
    if all(each.requests is None for each in runs):
        return None
    joined_requests, start_s = [], 0.0
    for each in runs:
        if each.requests is None or each.window_s is None:
            raise BadInputError("a stretch without requests or without a window cannot be joined to one that has them")
        joined_requests += [replace(record, timing=record.timing.later(start_s)) for record in each.requests]
        start_s += max([each.window_s, *(_end_s(record) for record in each.requests)])
    return tuple(joined_requests)


def _end_s(record: RequestRecord) -> float:
    at_s = record.timing.chunk_at_s
    return float(at_s[-1]) if at_s.size else record.timing.sent_at_s


def _joined_acceptance(runs: Sequence[Run]) -> dict[str, AcceptanceCounts] | None:
    measured = [each.acceptance_by_segment for each in runs]
    if any(each is None for each in measured):
        return None
    segments = sorted({name for each in measured if each is not None for name in each})
    return {name: AcceptanceCounts.pooled(each[name] for each in measured if each is not None and name in each) for name in segments}


def _joined_step_seconds(runs: Sequence[Run]) -> float | None:
    weighed = [(each.step_seconds, _steps(each)) for each in runs if each.step_seconds is not None]
    total = sum(steps for _, steps in weighed)
    return sum(seconds * steps for seconds, steps in weighed) / total if total else None


def _steps(run: Run) -> float:
    """How much a run's step time weighs: its chunk gaps, or its window."""
    if run.requests is None:
        return run.window_s or 0.0
    return float(sum(max(each.timing.chunk_at_s.size - 1, 0) for each in run.requests if each.outcome is Outcome.FINISHED))
