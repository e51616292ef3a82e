"""What a server did in a window of time, and what may be concluded from it.

    steps             a request's decode steps, where the server observes one gap per request and step: their count
    step seconds      the gaps' sum / their count: seconds per step, never per token
    tokens per step   counted: 1 + accepted / steps. Emitted: (generated − first tokens) / steps; a stop in mid-draft makes it smaller
    derived steps     where steps are not counted: generated − first tokens − accepted, because a step emits its accepted tokens and one
    TPOT              per finished request: the one to compare between arms

A draft is counted only where a step had one, so 1 + accepted / drafts leaves the other steps out. None means not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from paceline.errors import BadInputError
from paceline.run import Summary
from paceline.servers.counters import buckets
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

__all__ = ["Observed", "Window", "observed", "whole"]

TOKENS_PER_STEP_TOLERANCE = 0.05
SHOWN_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class Observed:
    """A histogram: seconds (or tokens) in total, how many observations, and how many at or below each upper edge (None: no buckets)."""

    total: float
    count: int
    buckets: tuple[tuple[float, int], ...] | None

    @property
    def mean(self) -> float | None:
        """The mean observation, None where there was none."""
        return self.total / self.count if self.count else None


def whole(values: Mapping[str, float], name: str) -> int | None:
    """A count, None where it is not exported."""
    return int(values[name]) if name in values else None


def observed(values: Mapping[str, float], name: str) -> Observed | None:
    """A histogram, None where its sum or count is missing."""
    count, total = whole(values, f"{name}_count"), values.get(f"{name}_sum")
    return None if count is None or total is None else Observed(total=total, count=count, buckets=buckets(values, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was counted between two scrapes, data-parallel engines summed; None where the server exports no such series.

    Attributes:
        source: what was read, such as "vllm /metrics".
        model: the served model's name, empty where the server does not say.
        engines: the series' other labels, one entry per engine.
        speculates: whether the server is set up to draft.
        drafts: steps in which something was drafted.
        drafted_tokens: tokens drafted.
        accepted_tokens: drafted tokens accepted, a stop in mid-draft not subtracted.
        accepted_per_position: the same by position.
        generation_tokens: tokens generated, first tokens included.
        prompt_tokens: prompt tokens.
        preemptions: requests preempted.
        first_tokens: requests that got their first token.
        first_token: time to first token, seconds.
        step_gap: seconds between a request's steps.
        tpot: seconds per output token, per finished request.
        e2e: seconds from arrival to the last token, per finished request.
        decode: seconds from first to last token, per finished request.
        request_tokens: tokens generated, per finished request.
        gauges: what the server said of itself at the scrapes, such as requests running, by summary name.
        missing_remedy: what to do about counters that are missing.
        ratios_only: the counts mean something else than ours (vLLM's V0 engine, SGLang's trees); only `stated` may be used.
        stated: figures that the server's own series give, by summary name.
        noted: what happened while reading: a restart, an engine gone.

    """

    source: str
    model: str
    engines: tuple[str, ...]
    speculates: bool
    drafts: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    accepted_per_position: tuple[int, ...] | None
    generation_tokens: int | None
    prompt_tokens: int | None
    preemptions: int | None
    first_tokens: int | None
    first_token: Observed | None
    step_gap: Observed | None
    tpot: Observed | None
    e2e: Observed | None
    decode: Observed | None
    request_tokens: Observed | None
    gauges: Mapping[str, Summary]
    missing_remedy: str
    ratios_only: bool
    stated: Mapping[str, Summary]
    noted: tuple[Caution, ...]

    @property
    def steps(self) -> int | None:
        """Decode steps, summed over requests; None where not counted or fewer than the drafts (a version that counts otherwise)."""
        if self.step_gap is None or self.drafts_exceed_steps:
            return None
        return self.step_gap.count

    @property
    def step_seconds(self) -> float | None:
        """Mean seconds per decode step as a request sees it."""
        return None if self.step_gap is None else self.step_gap.mean

    @property
    def tokens_per_step_counted(self) -> float | None:
        """1 + accepted / steps: before a stop truncates."""
        return 1 + (self.accepted_tokens or 0) / self.steps if self.steps else None

    @property
    def tokens_per_step_emitted(self) -> float | None:
        """Tokens generated after the first ones, per step: what users got."""
        if self.generation_tokens is None or self.first_tokens is None or not self.steps:
            return None
        after_first = self.generation_tokens - self.first_tokens
        return after_first / self.steps if after_first >= 0 else None

    @property
    def tokens_per_step_derived(self) -> Summary | None:
        """Tokens per step where steps are not counted: x / (x − accepted), x the tokens generated after the first ones.

        Where first tokens are not counted either, x includes them: at least the value, at most the acceptance length.
        """
        if self.step_gap is not None or self.ratios_only or None in (self.generation_tokens, self.accepted_tokens, self.drafts):
            return None
        assert self.generation_tokens is not None
        assert self.accepted_tokens is not None
        emitted = self.generation_tokens - (self.first_tokens or 0)
        steps = emitted - self.accepted_tokens
        if steps <= 0:
            return None
        value = emitted / steps
        if self.first_tokens is not None:
            return Summary(value=value, statistic="derived", n=steps, low=None, high=None)
        most = 1 + self.accepted_tokens / self.drafts if self.drafts else None
        return Summary(value=value, statistic="at least", n=None, low=value, high=None if most is None else max(most, value))

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens of finished requests per second from first to last token, pooled: one request's speed, not the server's."""
        if self.request_tokens is None or self.decode is None or not self.decode.total:
            return None
        return self.request_tokens.total / self.decode.total

    @property
    def acceptance(self) -> AcceptanceCounts | None:
        """The counts; None where nothing was drafted, one of the three counters is missing or the counts are no counts of ours.

        Raises:
            BadInputError: the counters contradict each other.

        """
        if self.drafts is None or self.drafted_tokens is None or self.accepted_tokens is None or self.ratios_only:
            return None
        if self.drafts == self.drafted_tokens == self.accepted_tokens == 0 or self.accepted_exceed_generated:
            return None
        return AcceptanceCounts(
            steps=self.steps,
            drafts=self.drafts,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            accepted_per_position=None if self.positions_contradict else self.accepted_per_position,
        )

    @property
    def alpha(self) -> float | None:
        """Accepted / drafted tokens, pooled, or what the server's series give instead; None where nothing was drafted.

        Raises:
            BadInputError: more was accepted than drafted.

        """
        if self.ratios_only:
            return self.stated["alpha"].value if "alpha" in self.stated else None
        if self.accepted_tokens is None or self.drafted_tokens is None or self.accepted_exceed_generated:
            return None
        if self.accepted_tokens > self.drafted_tokens:
            raise BadInputError(
                f"{self.accepted_tokens} accepted of {self.drafted_tokens} drafted tokens: the counters contradict each other; scrape again"
            )
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else None

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What a reader must know before using these figures."""
        derived = (_drafts(self), _generated(self), _steps(self), _positions(self), _tokens_per_step(self))
        return (*self.noted, *(each for each in derived if each is not None))

    def with_cautions(self, noted: tuple[Caution, ...]) -> "Window":
        """The same window with more to be cautious about."""
        return replace(self, noted=(*self.noted, *noted))

    @property
    def accepted_exceed_generated(self) -> bool:
        """Whether more drafted tokens were accepted than generated and cut off: a stop cuts one draft per request."""
        if self.ratios_only or self.accepted_tokens is None or self.generation_tokens is None or not self.drafts:
            return False
        stops = max(self.first_tokens or 0, self.request_tokens.count if self.request_tokens else 0)
        stops = min(stops, self.generation_tokens)  # each request that ended had a token
        longest_tokens = -(-(self.drafted_tokens or 0) // self.drafts)
        return self.accepted_tokens > self.generation_tokens + stops * longest_tokens

    @property
    def drafts_exceed_steps(self) -> bool:
        """Whether there are more drafts than observed steps."""
        return self.step_gap is not None and (self.drafts or 0) > self.step_gap.count

    @property
    def positions_contradict(self) -> bool:
        """Whether acceptance by position rises, exceeds the drafts or adds up to something else than the accepted tokens."""
        positions = self.accepted_per_position
        if positions is None:
            return False
        return sum(positions) != self.accepted_tokens or any(after > before for before, after in pairwise((self.drafts or 0, *positions)))


def _drafts(window: Window) -> Caution | None:
    if window.ratios_only or not window.speculates:
        return None
    counters = {"drafts": window.drafts, "draft tokens": window.drafted_tokens, "accepted tokens": window.accepted_tokens}
    missing = [name for name, count in counters.items() if count is None]
    if missing:
        return Caution("counters_missing", f"{' and '.join(missing)} not exported, so acceptance has no counts; {window.missing_remedy}")
    if window.drafts == 0:
        return Caution("nothing_drafted", "speculation is configured and drafted nothing here: not active, which is not an acceptance of 0")
    return None


def _generated(window: Window) -> Caution | None:
    if not window.accepted_exceed_generated:
        return None
    return Caution(
        "accepted_exceed_generated",
        f"{window.accepted_tokens} drafted tokens accepted, but {window.generation_tokens} generated: the counters are not of the same "
        "requests, so there is no acceptance; scrape before and after whole requests",
    )


def _steps(window: Window) -> Caution | None:
    if window.step_gap is None or not window.drafts_exceed_steps:
        return None
    return Caution(
        "steps_below_drafts",
        f"{window.drafts} drafts in {window.step_gap.count} observed steps: this version counts otherwise, so tokens per step is unknown",
    )


def _positions(window: Window) -> Caution | None:
    if window.accepted_per_position is None or not window.positions_contradict:
        return None
    shown = ", ".join(map(str, window.accepted_per_position[:SHOWN_POSITIONS]))
    per_draft = f" ({window.drafted_tokens / window.drafts:.3g} drafted per draft)" if window.drafts and window.drafted_tokens else ""
    return Caution(
        "positions_do_not_add_up",
        f"accepted per position ({shown}; {len(window.accepted_per_position)} positions) contradicts {window.accepted_tokens} accepted "
        f"tokens in {window.drafts} drafts{per_draft}; it is left out",
    )


def _tokens_per_step(window: Window) -> Caution | None:
    counted, emitted = window.tokens_per_step_counted, window.tokens_per_step_emitted
    if not window.drafts or counted is None or emitted is None or abs(counted - emitted) <= TOKENS_PER_STEP_TOLERANCE * counted:
        return None
    return Caution(
        "tokens_per_step_disagree",
        f"1 + accepted / steps = {counted:.3f}, but {emitted:.3f} tokens were emitted per step; short outputs, stops in mid-draft or "
        "requests cut by the window do this; trust the second",
    )
