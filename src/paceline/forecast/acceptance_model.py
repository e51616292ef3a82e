"""Acceptance with its range: the interval of what was measured, and the guess beyond it, at longer drafts.

    log s_i  =  level + slope · i + curvature · i²         i = 1 … n measured, and s_0 = 1

The curvature is one number for every model and method (data/acceptance_model.toml); level and slope are the least-squares line through
log s_i − curvature · i² of the measured positions and the origin. Beyond position n survival follows that curve and never rises. The
range scales the tokens gained beyond n: from none (some heads saturate) to `most_gain` times the modelled ones.

Lookups (n-gram, suffix) match or do not match, so their first conditional acceptance is low and the later ones high; no such curve fits.
They go on with the last conditional acceptance, within the widest range that survival allows.

A range that was measured reaches from all positions at their lower ends to all at their upper ends: positions of one draft move together.

Notation: s_i survival, n longest measured draft length, K draft length asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import exp, isfinite, log

from paceline.data.tables import table
from paceline.errors import BadInputError, is_count, printable
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.blend import blend_by_generated_tokens
from paceline.speculation.method import Method
from paceline.verdict import Estimate

__all__ = [
    "Persistence",
    "RangedAcceptance",
    "Tail",
    "blended",
    "exactly",
    "extended",
    "extrapolated",
    "measured",
    "packaged_tail",
    "scaled",
    "survival_tail",
    "tail_range",
]


@dataclass(frozen=True, slots=True)
class Tail:
    """What all curves share: how log survival bends, and how far the tokens gained beyond the measured length lie from the curve's."""

    curvature: float
    least_gain: float
    most_gain: float

    def __post_init__(self) -> None:
        """Reject a curve that bends upwards and a range that misses the curve itself.

        Raises:
            BadInputError: with the value.

        """
        if not (isfinite(self.curvature) and self.curvature <= 0):
            raise BadInputError(f"curvature {self.curvature!r} is not a number up to 0; survival would rise again")
        if not 0 <= self.least_gain <= 1 <= self.most_gain:
            raise BadInputError(f"gains from {self.least_gain!r} to {self.most_gain!r} do not hold 1, the curve itself")


@dataclass(frozen=True, slots=True)
class RangedAcceptance:
    """Acceptance with its range, position by position.

    Attributes:
        value: the acceptance to go on with.
        low: the lower end.
        high: the upper end; both are the value where nothing is in doubt.
        label: what was modelled, empty where nothing was.
        confidence: of the range: an interval's, or a judgement where something was modelled.
        n: conversations that it was measured on, or other servers' curves; 0 where it was stated.

    """

    value: Acceptance
    low: Acceptance
    high: Acceptance
    label: str
    confidence: float
    n: int

    def __post_init__(self) -> None:
        """Reject a range that does not hold its value.

        Raises:
            BadInputError: with the survival vectors.

        """
        columns = (self.low.survival, self.value.survival, self.high.survival)
        if len({len(each) for each in columns}) > 1 or any(sorted(each) != list(each) for each in zip(*columns, strict=True)):
            raise BadInputError(f"survival from {columns[0]} to {columns[2]} does not hold {columns[1]}")

    @property
    def tokens_per_step(self) -> Estimate:
        """E with its range. Where the label names a model, that is a judgement on other servers' curves, not an interval on one's own."""
        return Estimate(
            value=self.value.tokens_per_step,
            low=min(self.low.tokens_per_step, self.value.tokens_per_step),
            high=max(self.high.tokens_per_step, self.value.tokens_per_step),
            confidence=self.confidence,
            n=self.n,
        )

    @property
    def is_exact(self) -> bool:
        """Whether nothing is in doubt."""
        return self.low == self.value == self.high


@dataclass(frozen=True, slots=True)
class Persistence:
    """How acceptance of one step hangs together with that of others, as a simulation needs it.

    Attributes:
        within_request: lag-1 autocorrelation of accepted tokens between a request's steps, in (−1, 1).
        between_request_spread: standard deviation of a request's acceptance around its segment's, in logits.
        burst: lag-1 autocorrelation of "this step drafts" for lookups, in [0, 1); None for methods that draft in every step.

    """

    within_request: float
    between_request_spread: float
    burst: float | None

    def __post_init__(self) -> None:
        """Reject correlations outside their ranges and a negative spread.

        Raises:
            BadInputError: with the value.

        """
        if not -1 < self.within_request < 1:
            raise BadInputError(f"correlation within a request {self.within_request!r} is not between -1 and 1")
        if not (isfinite(self.between_request_spread) and self.between_request_spread >= 0):
            raise BadInputError(f"spread between requests {self.between_request_spread!r} is not a number from 0 on")
        if self.burst is not None and not 0 <= self.burst < 1:
            raise BadInputError(f"burst {self.burst!r} is not between 0 and 1")


def packaged_tail() -> Tail:
    """The shared parameters that ship with the package."""
    row = table("acceptance_model")["tail"]
    return Tail(curvature=row["curvature"], least_gain=row["least_gain"], most_gain=row["most_gain"])


def exactly(acceptance: Acceptance) -> RangedAcceptance:
    """Acceptance taken as it was given: no range, no label."""
    confidence = table("acceptance_model")["tail"]["confidence"]
    return RangedAcceptance(value=acceptance, low=acceptance, high=acceptance, label="", confidence=confidence, n=0)


def measured(value: Acceptance, *, survival: Sequence[Estimate], coverage: Estimate | None) -> RangedAcceptance:
    """Measured acceptance with the intervals of its positions, and of coverage where that is not always 1.

    Exact where an interval lacks an end, as those of few conversations do. `survival` has an entry per position of `value`.
    """
    told = [*survival, *([] if coverage is None else [coverage])]
    if not told or any(each.low is None or each.high is None for each in told):
        return exactly(value)
    lows, highs = ([float(getattr(each, end) or 0.0) for each in survival] for end in ("low", "high"))
    # Intervals of single positions may cross; survival does not.
    falling = tuple(accumulate(lows, min)), tuple(accumulate(reversed(highs), max))[::-1]
    covers = (1.0, 1.0) if coverage is None else (float(coverage.low or 0.0), float(coverage.high or 0.0))
    low, high = (Acceptance(survival=s, coverage=c) for s, c in zip(falling, covers, strict=True))
    return _around(value, low, high, label="", confidence=told[0].confidence, n=min(each.n for each in told))


def _around(value: Acceptance, low: Acceptance, high: Acceptance, *, label: str, confidence: float, n: int) -> RangedAcceptance:
    """The range from `low` to `high`, stretched where it misses the value at a position."""
    under = tuple(map(min, low.survival, value.survival))
    over = tuple(map(max, high.survival, value.survival))
    return RangedAcceptance(
        value=value, low=replace(low, survival=under), high=replace(high, survival=over), label=label, confidence=confidence, n=n
    )


def extended(given: RangedAcceptance, *, draft_tokens: int, method: Method) -> RangedAcceptance:
    """The same drafts with their range at draft length K: each end is extrapolated as the value is (`extrapolated`), to its own end.

    Raises:
        BadInputError: K below 1.

    """
    low, value, high = (extrapolated(each, draft_tokens=draft_tokens, method=method) for each in (given.low, given.value, given.high))
    confidence = min(given.confidence, value.confidence) if value.label else given.confidence
    label = "; ".join(each for each in (given.label, value.label) if each)
    return _around(value.value, low.low, high.high, label=label, confidence=confidence, n=given.n or value.n)


def blended(segments: Mapping[str, RangedAcceptance], shares: Mapping[str, float]) -> RangedAcceptance:
    """Mixed traffic with its range: from all segments at their lower ends to all at their upper ends; `shares` of generated tokens.

    Raises:
        BadInputError: the names or the draft lengths differ, or a share is negative.
        NoEvidenceError: all shares are 0.

    """
    value, low, high = (
        blend_by_generated_tokens({name: getattr(each, end) for name, each in segments.items()}, shares) for end in ("value", "low", "high")
    )
    labels = dict.fromkeys(each.label for each in segments.values() if each.label)
    doubtful = [each for each in segments.values() if not each.is_exact] or list(segments.values())
    confidence, n = min(each.confidence for each in doubtful), min(each.n for each in doubtful)
    return _around(value, low, high, label="; ".join(labels), confidence=confidence, n=n)


def extrapolated(acceptance: Acceptance, *, draft_tokens: int, method: Method) -> RangedAcceptance:
    """The same drafts at draft length K: a shorter one is exact, a longer one follows the model and says so.

    A server that is started again with another K also drafts a little otherwise at the first positions; the range holds that.

    Raises:
        BadInputError: K below 1.

    """
    known = acceptance.draft_tokens
    if not is_count(draft_tokens, least=1):
        raise BadInputError(f"draft length {printable(draft_tokens)} is not a whole number from 1 on")
    if draft_tokens <= known:
        return exactly(acceptance.at(draft_tokens))
    if method.drafts_every_step:
        tails = tail_range(acceptance.survival, draft_tokens=draft_tokens, shared=packaged_tail())
    else:
        more = draft_tokens - known
        tails = (0.0,) * more, acceptance.at(draft_tokens).survival[known:], (acceptance.survival[-1],) * more
    low, value, high = (Acceptance(survival=acceptance.survival + each, coverage=acceptance.coverage) for each in tails)
    row = table("acceptance_model")["tail"]
    label = f"extrapolated beyond K = {known}"
    return RangedAcceptance(value=value, low=low, high=high, label=label, confidence=row["confidence"], n=row["curves"])


def survival_tail(survival: Sequence[float], *, draft_tokens: int, curvature: float) -> tuple[float, ...]:
    """Survival at the positions after the last one of `survival`, up to K; it never rises, and stays 0 once it is.

    `survival` holds at least one position.
    """
    known = len(survival)
    if survival[-1] <= 0:
        return (0.0,) * (draft_tokens - known)
    straightened = [0.0, *(log(s) - curvature * i * i for i, s in enumerate(survival, 1))]
    middle, level = known / 2, sum(straightened) / (known + 1)
    slope = sum((i - middle) * each for i, each in enumerate(straightened)) / sum((i - middle) ** 2 for i in range(known + 1))
    modelled = (exp(level + slope * (i - middle) + curvature * i * i) for i in range(known + 1, draft_tokens + 1))
    return tuple(accumulate((survival[-1], *modelled), min))[1:]


def tail_range(survival: Sequence[float], *, draft_tokens: int, shared: Tail) -> tuple[tuple[float, ...], ...]:
    """The low end, the middle and the high end of `survival_tail`; the high end never rises above the last measured survival."""
    middle = survival_tail(survival, draft_tokens=draft_tokens, curvature=shared.curvature)
    low = tuple(shared.least_gain * each for each in middle)
    high = tuple(min(survival[-1], shared.most_gain * each) for each in middle)
    return low, middle, high


def scaled(given: RangedAcceptance, *, kept: float, least_kept: float, most_kept: float, label: str) -> RangedAcceptance:
    """Every position's survival times `kept`, with the range's ends times `least_kept` and `most_kept`; labels add up.

    The shares are between 0 and 1 and in that order: least, kept, most.

    Raises:
        BadInputError: they are not.

    """
    shares = (0.0, least_kept, kept, most_kept, 1.0)
    if not all(before <= after for before, after in pairwise(shares)):
        raise BadInputError(f"shares {least_kept!r}, {kept!r}, {most_kept!r} do not rise between 0 and 1")
    value, low, high = (
        Acceptance(survival=tuple(share * s for s in each.survival), coverage=each.coverage)
        for each, share in ((given.value, kept), (given.low, least_kept), (given.high, most_kept))
    )
    told = "; ".join(each for each in (given.label, label) if each)
    confidence = min(given.confidence, table("acceptance_model")["tail"]["confidence"])
    return RangedAcceptance(value=value, low=low, high=high, label=told, confidence=confidence, n=given.n)
