"""The statistics of a vLLM log added up: V1's intervals by counts, the V0 engine's running totals by lives.

V1   each line is an interval; its drafts are rebuilt from its ratios with the configuration of the engine that started before it
V0   the last line of each life counts; drafts = drafted / K; usable acceptance = (emitted - drafts) / drafted
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest

from paceline.errors import BadInputError
from paceline.servers.rounded_counts import Between, Printed, rebuilt
from paceline.servers.stated_rates import differing
from paceline.servers.vllm.config import NAMES
from paceline.servers.vllm.log import EngineStart, Interval, Spoken, V0Totals
from paceline.speculation.method import Method
from paceline.verdict import Caution

__all__ = ["PooledIntervals", "PooledTotals", "method_of", "pool_intervals", "pool_totals"]

METHODS = {name: method for method, name in NAMES.items()} | {"ngram_gpu": Method.NGRAM}
TOTALS = ("accepted_tokens", "drafted_tokens", "emitted_tokens")
EFFICIENCY_HALF = 0.0006  # half of its third digit, and a little


@dataclass(frozen=True, slots=True)
class PooledIntervals:
    """V1's intervals added up.

    Attributes:
        accepted_tokens: accepted, exactly.
        drafted_tokens: drafted, exactly.
        drafts: rebuilt; None where a line does not let them be told.
        positions: accepted by position, None where a line does not let them be told.
        positions_certain: whether no other positions give the same lines.
        contradictory: lines that no counts give; left out.
        without_own_token: lines whose length leaves the target's own token out (0.8.5).
        seconds: of each interval with a rate per second.
        timeless: intervals without one.

    """

    accepted_tokens: int
    drafted_tokens: int
    drafts: Between | None
    positions: tuple[int, ...] | None
    positions_certain: bool
    contradictory: int
    without_own_token: int
    seconds: tuple[float, ...]
    timeless: int


@dataclass(frozen=True, slots=True)
class PooledTotals:
    """The V0 engine's totals, the last of each life added up; `resets` says how often they fell, `differing` where
    a printed rate is not that of its totals.

    `is_possible`: each life emitted at least one token per draft and at most K + 1, and accepted no more than it drafted.
    """

    accepted_tokens: int
    drafted_tokens: int
    emitted_tokens: int
    drafts: int
    is_possible: bool
    resets: int
    differing: tuple[Caution, ...]
    efficiency_disagrees: bool


NOTHING = PooledIntervals(
    accepted_tokens=0,
    drafted_tokens=0,
    drafts=Between(value=0, low=0, high=0),
    positions=(),
    positions_certain=True,
    contradictory=0,
    without_own_token=0,
    seconds=(),
    timeless=0,
)


def method_of(start: EngineStart | None) -> Method | None:
    """The method that the engine was started with, None where it is not told or none of ours."""
    if start is None or start.method is None:
        return None
    return METHODS.get(start.method, Method.MTP if start.method.endswith("_mtp") else None)


def pool_intervals(spoken: Iterable[Spoken]) -> PooledIntervals:
    """All intervals added up; nothing drafted where there are none."""
    pooled = NOTHING
    start: EngineStart | None = None
    seconds: list[float] = []
    timeless = 0
    for each in spoken:
        if isinstance(each.said, EngineStart):
            start = each.said
        if isinstance(each.said, Interval):
            pooled = _added(pooled, each.said, start)
            timeless += each.said.seconds is None
            seconds += [] if each.said.seconds is None else [each.said.seconds]
    return replace(pooled, seconds=tuple(seconds), timeless=timeless)


def _added(pooled: PooledIntervals, said: Interval, start: EngineStart | None) -> PooledIntervals:
    if not said.drafted_tokens:
        return pooled
    method, own = method_of(start), _has_own_token(said)
    full = method is not None and method.drafts_every_step and said.depth is None
    try:
        found = rebuilt(_printed(said, start, own=own), full_drafts=full, counted_drafts=None)
    except BadInputError:
        return replace(pooled, contradictory=pooled.contradictory + 1)
    before, ours = pooled.positions, None if found is None else found.positions
    return replace(
        pooled,
        accepted_tokens=pooled.accepted_tokens + said.accepted_tokens,
        drafted_tokens=pooled.drafted_tokens + said.drafted_tokens,
        drafts=None if pooled.drafts is None or found is None else pooled.drafts + found.drafts,
        positions=None if before is None or ours is None else tuple(a + b for a, b in zip_longest(before, ours, fillvalue=0)),
        positions_certain=pooled.positions_certain and found is not None and found.positions_certain,
        without_own_token=pooled.without_own_token + (not own),
    )


def _printed(said: Interval, start: EngineStart | None, *, own: bool) -> Printed:
    configured = None if start is None else start.draft_tokens
    return Printed(
        accepted_tokens=said.accepted_tokens,
        drafted_tokens=said.drafted_tokens,
        length=None if said.length is None else said.length + (not own),
        rates=said.rates,
        most_draft_tokens=(len(said.rates) if said.rates else said.depth or configured) or None,
    )


def _has_own_token(said: Interval) -> bool:
    """Whether the printed length counts the target's own token: the rates by position add up to the length without it."""
    if said.length is None or said.rates is None:
        return True
    total = sum(said.rates)
    return abs(said.length - 1 - total) <= abs(said.length - total)


def pool_totals(spoken: Iterable[Spoken]) -> PooledTotals:
    """The last totals of each life added up; a life ends where a total falls."""
    lives: list[V0Totals] = []
    for said in (each.said for each in spoken):
        if isinstance(said, V0Totals):
            grown = bool(lives) and all(getattr(said, name) >= getattr(lives[-1], name) for name in TOTALS)
            lives[-1 if grown else len(lives) :] = [said]
    accepted, drafted, emitted = (sum(getattr(each, name) for each in lives) for name in TOTALS)
    return PooledTotals(
        accepted_tokens=accepted,
        drafted_tokens=drafted,
        emitted_tokens=emitted,
        drafts=sum(_v0_drafts(each) for each in lives),
        is_possible=all(_is_possible(each) for each in lives),
        resets=len(lives) - 1,
        differing=tuple(dict.fromkeys(caution for each in lives for caution in _differing(each))),
        efficiency_disagrees=any(_efficiency_disagrees(each) for each in lives),
    )


def _v0_drafts(said: V0Totals) -> int:
    return round(said.drafted_tokens / said.draft_tokens)


def _differing(said: V0Totals) -> tuple[Caution, ...]:
    """What the printed rate says otherwise than the totals on its line."""
    return differing({"alpha": said.rate}, drafts=None, drafted_tokens=said.drafted_tokens, accepted_tokens=said.accepted_tokens)


def _is_possible(said: V0Totals) -> bool:
    drafts = _v0_drafts(said)
    return drafts <= said.emitted_tokens <= drafts * (said.draft_tokens + 1) and said.accepted_tokens <= said.drafted_tokens


def _efficiency_disagrees(said: V0Totals) -> bool:
    """Whether emitted / (drafts · (K + 1)) is another figure than the printed one."""
    most = _v0_drafts(said) * (said.draft_tokens + 1)
    return said.efficiency is not None and most > 0 and abs(said.emitted_tokens / most - said.efficiency) > EFFICIENCY_HALF
