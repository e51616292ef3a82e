"""What we may say, and how surely.

An `Estimate` is a number with its interval. A `Claim` bounds a metric, alone or relative to the baseline. A `Finding` is a claim held
against an estimate; three answers exist: yes, no, cannot tell. A `Verdict` follows from the findings and from nothing else; `Routing` says
what drafting for some segments only is worth.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from paceline.errors import BadInputError, is_count, printable

__all__ = [
    "ABOVE_BREAK_EVEN",
    "Caution",
    "Claim",
    "Decision",
    "Estimate",
    "Finding",
    "Holds",
    "Routing",
    "SegmentGain",
    "UNFELT_RISE",
    "Verdict",
    "judge",
]

UNFELT_RISE = "a rise of at most"  # how the reason of a claim begins that holds because its rise is too short to be felt
ABOVE_BREAK_EVEN = "alpha_above_break_even"  # α − the α at which drafting pays, written `alpha >= break_even + 0.05`


@dataclass(frozen=True, slots=True)
class Estimate:
    """`value` with the interval [`low`, `high`] at `confidence`, from `n` independent units (requests, steps or blocks).

    An end that is None is unknown: the sample says nothing about that side.
    """

    value: float
    low: float | None
    high: float | None
    confidence: float
    n: int

    def __post_init__(self) -> None:
        """Reject NaN, an interval that misses its value, a confidence outside (0, 1) and negative n.

        Raises:
            BadInputError: with the values.

        """
        ends = [each for each in (self.value, self.low, self.high) if each is not None]
        if not all(isfinite(each) for each in ends):
            raise BadInputError(f"an estimate needs finite numbers, not {self.value!r} in [{self.low!r}, {self.high!r}]")
        if (self.low is not None and self.low > self.value) or (self.high is not None and self.high < self.value):
            raise BadInputError(f"the interval [{self.low!r}, {self.high!r}] does not hold its value {self.value!r}")
        if not 0 < self.confidence < 1:
            raise BadInputError(f"confidence {self.confidence!r} is not between 0 and 1")
        if not is_count(self.n, least=0):
            raise BadInputError(f"n = {printable(self.n)} is not a whole number from 0 on")


@dataclass(frozen=True, slots=True)
class Claim:
    """`metric` is at most `at_most` and at least `at_least` (one of them given), per segment or for all traffic (`segment` None).

    A metric that ends in `.ratio` is the speculative arm's divided by the baseline's.
    """

    metric: str
    at_most: float | None
    at_least: float | None
    segment: str | None

    def __post_init__(self) -> None:
        """Reject a claim without a metric or without exactly one finite bound, and a segment without a name.

        Raises:
            BadInputError: with the claim.

        """
        bounds = [each for each in (self.at_most, self.at_least) if each is not None]
        if len(bounds) != 1 or not isfinite(bounds[0]):
            raise BadInputError(f"claim on {printable(self.metric)} needs exactly one finite bound, not {bounds!r}")
        if not self.metric or self.segment == "":
            raise BadInputError(f"claim on {printable(self.metric)} names no metric or no segment; leave segment out to mean all traffic")

    def __str__(self) -> str:
        """The claim as a policy file writes it."""
        bound = self.at_most if self.at_most is not None else self.at_least
        assert bound is not None
        relation = "<=" if self.at_most is not None else ">="
        where = f" [{self.segment}]" if self.segment else ""
        if self.metric == ABOVE_BREAK_EVEN:
            return f"alpha {relation} break_even {'-' if bound < 0 else '+'} {abs(bound):g}{where}"
        return f"{self.metric} {relation} {bound:g}{where}"


class Holds(StrEnum):
    """Whether a claim holds."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim held against what was measured; `why` is one sentence for a person."""

    claim: Claim
    estimate: Estimate | None
    holds: Holds
    why: str

    def __post_init__(self) -> None:
        """Reject a yes or no without an estimate.

        Raises:
            BadInputError: with the claim.

        """
        if self.estimate is None and self.holds is not Holds.CANNOT_TELL:
            raise BadInputError(f"claim {self.claim} cannot be answered {self.holds.value} without an estimate")


def judge(claim: Claim, estimate: Estimate) -> Finding:
    """The claim against the estimate's whole interval: yes if all of it satisfies the bound, no if none does, else cannot tell.

    An unknown end of the interval never satisfies nor breaks a bound on that side.
    """
    name = claim.metric
    if claim.at_most is not None:
        surely, surely_not = estimate.high is not None and estimate.high <= claim.at_most, _above(estimate.low, claim.at_most)
        bound = f"at most {claim.at_most:g}"
    else:
        assert claim.at_least is not None
        surely, surely_not = estimate.low is not None and estimate.low >= claim.at_least, _above(claim.at_least, estimate.high)
        bound = f"at least {claim.at_least:g}"
    holds = Holds.YES if surely else Holds.NO if surely_not else Holds.CANNOT_TELL
    words = {Holds.YES: "is", Holds.NO: "is not", Holds.CANNOT_TELL: "may or may not be"}[holds]
    return Finding(claim=claim, estimate=estimate, holds=holds, why=f"{name} = {_told(estimate)} {words} {bound}")


def _above(left: float | None, right: float | None) -> bool:
    return left is not None and right is not None and left > right


def _told(estimate: Estimate) -> str:
    if estimate.low is None and estimate.high is None:
        return f"{estimate.value:.4g} (too few requests for an interval, or none told apart)"
    return f"{estimate.value:.4g} in [{_end(estimate.low)}, {_end(estimate.high)}]"


def _end(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


class Decision(StrEnum):
    """What a verdict says."""

    SHIP = "ship"
    SHIP_SEGMENTS = "ship_segments"
    KEEP = "keep"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True)
class Caution:
    """Something about the evidence that a reader must know: a stable `code` and a sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGain:
    """What drafting does to one segment.

    Attributes:
        name: the segment.
        share: its share of the paired requests.
        speedup: plain pace / speculative pace of its requests.
        slower: how many of its requests got slower, noise included.

    """

    name: str
    share: float
    speedup: Estimate
    slower: Estimate

    @property
    def pays(self) -> bool | None:
        """Whether drafting surely makes the segment faster (True) or slower (False), None where the interval holds 1."""
        low, high = self.speedup.low, self.speedup.high
        return True if low is not None and low > 1 else False if high is not None and high < 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What sending only some segments to drafts is worth, against all and none; every speed-up is against none.

    Attributes:
        segments: each segment's own gain, by name.
        routed: the segments whose speed-up is above 1, which are the ones sent.
        all_on: speed-up with drafts for everyone.
        with_routing: speed-up with drafts for the routed segments only.
        harmed_all_on: share of requests that got slower with drafts for everyone.
        harmed_routed: the same with drafts for the routed segments only.

    """

    segments: tuple[SegmentGain, ...]
    routed: tuple[str, ...]
    all_on: Estimate
    with_routing: Estimate
    harmed_all_on: Estimate
    harmed_routed: Estimate


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision at one concurrency, from its findings.

    Attributes:
        concurrency: requests in flight, None where the load was not a closed loop.
        findings: the claims that decide.
        segments_to_ship: the segments that pay, where only some do.
        break_even_alpha: the acceptance rate at which drafting pays here, None where no step-time ratio was measured.
        break_even_tokens_per_step: the same as tokens per step: the ratio of the two arms' step times, None where it was not measured.
        alpha: the acceptance rate, None where it was not measured.
        tokens_per_step: the tokens that a step gave, None where they were not measured.
        requests_needed: requests per arm in all that would settle every claim that cannot be told; None where none is open, or no number
            is known to settle them.
        routing: what sending only some segments to drafts is worth, None where there is one segment or requests have no twins.
        warnings: what a reader must know about the evidence.

    """

    concurrency: int | None
    findings: tuple[Finding, ...]
    segments_to_ship: tuple[str, ...]
    break_even_alpha: Estimate | None
    break_even_tokens_per_step: Estimate | None
    alpha: Estimate | None
    tokens_per_step: Estimate | None
    requests_needed: int | None
    routing: Routing | None
    warnings: tuple[Caution, ...]

    def __post_init__(self) -> None:
        """Reject a concurrency that is no count.

        Raises:
            BadInputError: with the value.

        """
        if self.concurrency is not None and not is_count(self.concurrency, least=1):
            raise BadInputError(f"concurrency {printable(self.concurrency)} is not a whole number from 1 on")

    @property
    def decision(self) -> Decision:
        """Ship if every claim holds; keep if one surely fails (unless segments pay); else cannot tell.

        No findings at all is cannot tell: nothing measured is never a yes.
        """
        answers = {each.holds for each in self.findings}
        if Holds.NO in answers:
            return Decision.SHIP_SEGMENTS if self.segments_to_ship else Decision.KEEP
        if Holds.CANNOT_TELL in answers or not answers:
            return Decision.CANNOT_TELL
        return Decision.SHIP
