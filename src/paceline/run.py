"""The record at the waist: whatever makes evidence makes a `Run`, whatever uses evidence takes one.

A run is one arm under one load: per-request records where the source has them, acceptance by segment, seconds per decode step, and
summaries where an aggregate is all there is. `None` means that this source did not measure it; 0 means measured and zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from paceline.errors import BadInputError, NoEvidenceError, is_count, printable
from paceline.latency import RequestTiming
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Speculation
from paceline.verdict import Caution

__all__ = ["Arm", "Evidence", "Load", "Outcome", "Provenance", "RequestRecord", "Run", "Summary"]


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
        """Reject negative times.

        Raises:
            BadInputError: with the value.

        """
        for name in ("step_seconds", "window_s"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise BadInputError(f"{name} = {value!r} is not a time from 0 on")

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
