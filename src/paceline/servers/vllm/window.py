"""What a vLLM server did in a window of time, and what may be concluded from it.

    steps             inter-token latency is observed once per request and step, however many tokens the step gives: its count is the steps
    step seconds      its sum / its count: seconds per step, never per token
    tokens per step   counted: 1 + accepted / steps. Emitted: (generated − first tokens) / steps; a stop in mid-draft makes it smaller
    TPOT              request_time_per_output_token_seconds, per finished request: the one to compare between arms

vLLM counts a draft only where a step had one, so its own "mean acceptance length" (1 + accepted / drafts) leaves the other steps out.
Source: vLLM 0.32.0, v1/metrics/stats.py lines 552 and 601, v1/core/sched/scheduler.py lines 2111 to 2152.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from paceline import __version__
from paceline.errors import NoEvidenceError
from paceline.run import Arm, Evidence, Load, Provenance, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

__all__ = ["Observed", "V0Acceptance", "VllmWindow", "to_run"]

TOKENS_PER_STEP_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Observed:
    """A histogram's sum and count: seconds (or tokens) in total, and how many observations."""

    total: float
    count: int

    @property
    def mean(self) -> float | None:
        """The mean observation, None where there was none."""
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class V0Acceptance:
    """What the V0 engine's counters allow to say: ratios only.

    V0 calls a drafted token accepted when it matches, even after an earlier rejection (vllm issue 9565), and adds running totals up.

    Attributes:
        counted_alpha: accepted / drafted as V0 counts them: too high; None where nothing was drafted.
        draft_tokens: K, solved from efficiency = emitted · K / (drafted · (K + 1)).
        acceptance_length: emitted · K / drafted, the tokens per drafted step.
        alpha: (acceptance length − 1) / K, the usable acceptance rate.

    """

    counted_alpha: float | None
    draft_tokens: int | None
    acceptance_length: float | None
    alpha: float | None


@dataclass(frozen=True, slots=True)
class VllmWindow:
    """What was counted between two scrapes, data-parallel engines summed; None where the server exports no such series.

    Attributes:
        model: the served model's name.
        engines: the series' other labels, one entry per engine.
        exports_speculation: whether the server has speculation's series at all.
        drafts: steps in which something was drafted.
        drafted_tokens: tokens drafted.
        accepted_tokens: drafted tokens accepted, a stop in mid-draft not subtracted.
        accepted_per_position: the same by position.
        generation_tokens: tokens generated, first tokens included.
        prompt_tokens: prompt tokens.
        preemptions: requests preempted.
        requests_running: at the second scrape.
        first_token: time to first token, seconds.
        step_gap: seconds between a request's steps.
        tpot: seconds per output token, per finished request.
        e2e: seconds from arrival to the last token, per finished request.
        decode: seconds from first to last token, per finished request.
        request_tokens: tokens generated, per finished request.
        v0: the V0 engine's ratios, None for V1.
        noted: what happened while reading: a restart, an engine gone.

    """

    model: str
    engines: tuple[str, ...]
    exports_speculation: bool
    drafts: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    accepted_per_position: tuple[int, ...] | None
    generation_tokens: int | None
    prompt_tokens: int | None
    preemptions: int | None
    requests_running: int | None
    first_token: Observed | None
    step_gap: Observed | None
    tpot: Observed | None
    e2e: Observed | None
    decode: Observed | None
    request_tokens: Observed | None
    v0: V0Acceptance | None
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
        if self.generation_tokens is None or self.first_token is None or not self.steps:
            return None
        after_first = self.generation_tokens - self.first_token.count
        return after_first / self.steps if after_first >= 0 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens of finished requests per second from first to last token, pooled: one request's speed, not the server's."""
        if self.request_tokens is None or self.decode is None or not self.decode.total:
            return None
        return self.request_tokens.total / self.decode.total

    @property
    def acceptance(self) -> AcceptanceCounts | None:
        """The counts; None where nothing was drafted, one of the three counters is missing or the counts are V0's.

        Raises:
            BadInputError: the counters contradict each other.

        """
        if not self.drafts or self.drafted_tokens is None or self.accepted_tokens is None or self.v0 is not None:
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
        """Accepted / drafted tokens, pooled (V0's corrected for matches after a rejection); None where nothing was drafted."""
        if self.v0 is not None:
            return self.v0.alpha
        return None if self.accepted_tokens is None or not self.drafted_tokens else self.accepted_tokens / self.drafted_tokens

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """What a reader must know before using these figures."""
        derived = (_v0(self), _drafts(self), _steps(self), _positions(self), _tokens_per_step(self))
        return (*self.noted, *(each for each in derived if each is not None))

    def with_cautions(self, noted: tuple[Caution, ...]) -> "VllmWindow":
        """The same window with more to be cautious about."""
        return replace(self, noted=(*self.noted, *noted))

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


def _v0(window: VllmWindow) -> Caution | None:
    if window.v0 is None:
        return None
    return Caution(
        "v0_metrics",
        "these are the V0 engine's counters (vLLM 0.9.2 and before): accepted tokens include matches after an earlier rejection, so their "
        "ratio is too high and compares with no V1 figure, and running totals are added up; measure acceptance on the V1 engine",
    )


def _drafts(window: VllmWindow) -> Caution | None:
    if window.v0 is not None or not window.exports_speculation:
        return None
    counters = {"drafts": window.drafts, "draft tokens": window.drafted_tokens, "accepted tokens": window.accepted_tokens}
    missing = [name for name, count in counters.items() if count is None]
    if missing:
        return Caution(
            "counters_missing", f"{' and '.join(missing)} not exported, so acceptance has no counts; vLLM counts all three from 0.8.5 on"
        )
    if window.drafts == 0:
        return Caution("nothing_drafted", "speculation is configured and drafted nothing here: not active, which is not an acceptance of 0")
    return None


def _steps(window: VllmWindow) -> Caution | None:
    if window.step_gap is None or not window.drafts_exceed_steps:
        return None
    return Caution(
        "steps_below_drafts",
        f"{window.drafts} drafts in {window.step_gap.count} observed steps: this version counts otherwise, so tokens per step is unknown",
    )


def _positions(window: VllmWindow) -> Caution | None:
    if window.accepted_per_position is None or not window.positions_contradict:
        return None
    shown = ", ".join(map(str, window.accepted_per_position[:8]))
    return Caution(
        "positions_do_not_add_up",
        f"accepted per position ({shown}) contradicts {window.accepted_tokens} accepted tokens in {window.drafts} drafts; it is left out",
    )


def _tokens_per_step(window: VllmWindow) -> Caution | None:
    counted, emitted = window.tokens_per_step_counted, window.tokens_per_step_emitted
    if not window.drafts or counted is None or emitted is None or abs(counted - emitted) <= TOKENS_PER_STEP_TOLERANCE * counted:
        return None
    return Caution(
        "tokens_per_step_disagree",
        f"1 + accepted / steps = {counted:.3f}, but {emitted:.3f} tokens were emitted per step; short outputs, stops in mid-draft or "
        "requests cut by the window do this; trust the second",
    )


def to_run(window: VllmWindow, *, arm: Arm | None, inputs: Mapping[str, str]) -> Run:
    """The window as evidence: what these metrics measured, nothing else. `inputs`: SHA-256 by file name, for provenance.

    `arm` None takes the speculative arm where the server exports speculation's series.

    Raises:
        NoEvidenceError: no token was generated and nothing drafted.
        BadInputError: the counters contradict each other.

    """
    if not (window.generation_tokens or window.steps or window.drafts or window.drafted_tokens):
        raise NoEvidenceError("the server generated no token in this window; scrape before and after some traffic")
    counts = window.acceptance
    speculative = Arm.SPECULATIVE if window.exports_speculation else Arm.BASELINE
    arguments = {"model": window.model, "engines": str(len(window.engines))}
    return Run(
        arm=arm or speculative,
        speculation=None,
        load=Load(concurrency=None, rate_per_s=None),
        requests=None,
        acceptance_by_segment=None if counts is None else {"all": counts},
        step_seconds=window.step_seconds,
        summaries=_summaries(window),
        window_s=None,
        provenance=Provenance(
            made_by="vllm /metrics", version=__version__, evidence=Evidence.MEASURED, arguments=arguments, inputs=inputs, seed=None
        ),
        cautions=window.cautions,
    )


def _summaries(window: VllmWindow) -> dict[str, Summary]:
    means = {"ttft_s": window.first_token, "chunk_gap_s": window.step_gap, "tpot_s": window.tpot, "e2e_s": window.e2e}
    named = {name: _summary(each.mean, "mean", each.count) for name, each in means.items() if each is not None}
    named["tokens_per_step_emitted"] = _summary(window.tokens_per_step_emitted, "pooled", window.steps)
    named["decode_tokens_per_s"] = _summary(window.decode_tokens_per_s, "pooled", window.decode.count if window.decode else None)
    if window.acceptance is None:
        named["alpha"] = _summary(window.alpha, "pooled", None if window.v0 else window.drafted_tokens)
    named["acceptance_length"] = _summary(window.v0.acceptance_length if window.v0 else None, "pooled", None)
    for name in ("generation_tokens", "prompt_tokens", "preemptions"):
        named[name] = _summary(getattr(window, name), "total", None)
    named["requests_running"] = _summary(window.requests_running, "last", None)
    return {name: each for name, each in named.items() if each is not None}


def _summary(value: float | None, statistic: str, n: int | None) -> Summary | None:
    return None if value is None else Summary(value=float(value), statistic=statistic, n=n, low=None, high=None)
