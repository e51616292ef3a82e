"""TensorRT-LLM's /metrics: a JSON list of iterations, each with what was drafted and accepted in it.

1. The server hands each iteration out once: a reading holds those since the reading before, not since the start. A live window drops what
   the first reading holds (it is from before) and adds up what the later ones do.
2. An iteration is told by its number; one that is given twice counts once.
3. Drafted steps are the sum of numRequestsWithDraftTokens, steps the sum of numGenRequests; a step takes its iteration's time.
   Acceptance length = (Σ accepted + Σ drafted steps) / Σ drafted steps, as TensorRT-LLM's own tests compute it.
4. The list is bounded on the server: numbers that are missing in between were lost, and are counted as lost.

Needs `enable_iter_perf_stats`. Source: TensorRT-LLM, executor types and tests at 0004396; read, not run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from paceline.errors import BadInputError, is_count, printable
from paceline.run import Summary
from paceline.servers.stated_rates import differing
from paceline.servers.window import Observed, Window
from paceline.verdict import Caution

__all__ = ["Iteration", "Iterations", "is_iterations", "read_iterations", "window"]

MILLISECONDS = 1000.0
LARGEST_EXACT = 2**53
MOST_ITERATIONS = 1_000_000
SPECULATION = ("numDraftTokens", "numAcceptedTokens", "numRequestsWithDraftTokens")


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of one attention data-parallel rank (0 where there are none); what it does not state is None."""

    rank: int
    number: int
    latency_s: float | None
    generating: int | None
    active: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    drafts: int | None
    stated_length: float | None


@dataclass(frozen=True, slots=True)
class Iterations:
    """One reading: the iterations since the reading before."""

    listed: tuple[Iteration, ...]


def is_iterations(text: str) -> bool:
    """Whether a text looks like a list of iterations: a JSON array whose first element, if any, has an iteration's keys."""
    start = text.lstrip()[:4096]
    return start.startswith("[") and (
        start[1:].lstrip().startswith("]") or '"iter' in start or '\\"iter' in start or "specDecodingStats" in start
    )


def read_iterations(text: str) -> Iterations:
    """The iterations of one answer.

    Raises:
        BadInputError: no JSON list of iterations, cut off, or a figure that is no count or time.

    """
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"this JSON list is damaged or cut off ({printable(str(fault))}); read /metrics again") from None
    if not isinstance(listed, list) or len(listed) > MOST_ITERATIONS:
        raise BadInputError(f"this is no JSON list of at most {MOST_ITERATIONS:,} iterations")
    return Iterations(listed=tuple(_iteration(i, each) for i, each in enumerate(listed)))


def _iteration(place: int, given: object) -> Iteration:
    if isinstance(given, str):  # some clients keep each iteration as the line it came in
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = None
    if not isinstance(given, dict):
        raise BadInputError(f"element {place} of the list is no iteration (a JSON object with iter, iterLatencyMS, specDecodingStats)")
    batching, speculation = _part(given, "inflightBatchingStats"), _part(given, "specDecodingStats")
    drafted, accepted, drafts = (_count(speculation, name, place) for name in SPECULATION)
    length = _seconds(speculation, "acceptanceLength", place, unit=1.0)
    number = _count(given, "iter", place)
    if number is None:
        raise BadInputError(f"element {place} of the list has no iter, so it cannot be told from its repetition")
    return Iteration(
        rank=_count(given, "attentionDpRank", place) or 0,
        number=number,
        latency_s=_seconds(given, "iterLatencyMS", place, unit=MILLISECONDS),
        generating=_count(batching, "numGenRequests", place),
        active=_count(given, "numActiveRequests", place),
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        drafts=drafts,
        stated_length=length,
    )


def _part(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = given.get(name)
    if part is not None and not isinstance(part, dict):
        raise BadInputError(f"{name} = {printable(part)} is no JSON object")
    return part or {}


def _count(given: Mapping[str, Any], name: str, place: int) -> int | None:
    value = given.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and not (is_count(value, least=0) and value <= LARGEST_EXACT):
        raise BadInputError(f"element {place}: {name} = {printable(value)} is not a count from 0 to 2^53")
    return value


def _seconds(given: Mapping[str, Any], name: str, place: int, *, unit: float) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < LARGEST_EXACT and isfinite(value)):
        raise BadInputError(f"element {place}: {name} = {printable(value)} is not a number from 0 on")
    return value / unit


def window(readings: Sequence[Iterations]) -> Window:
    """What the iterations did: those of the only reading, or of all but the first."""
    listed, noted = _listed(readings)
    speculating = [
        each for each in listed if each.drafts is not None and each.drafted_tokens is not None and each.accepted_tokens is not None
    ]
    stepping = [each for each in listed if each.generating is not None and each.latency_s is not None]
    timed = sum((each.latency_s or 0.0) * (each.generating or 0) for each in stepping)
    steps = Observed(total=timed, count=sum(each.generating or 0 for each in stepping), buckets=None) if stepping else None
    active = [float(each.active) for each in listed if each.active is not None]
    return Window(
        source="tensorrt-llm /metrics",
        model="",
        engines=("",),
        speculates=bool(speculating),
        drafts=sum(each.drafts or 0 for each in speculating) if speculating else None,
        drafted_tokens=sum(each.drafted_tokens or 0 for each in speculating) if speculating else None,
        accepted_tokens=sum(each.accepted_tokens or 0 for each in speculating) if speculating else None,
        accepted_per_position=None,
        generation_tokens=None,
        prompt_tokens=None,
        preemptions=None,
        first_tokens=None,
        first_token=None,
        step_gap=steps,
        tpot=None,
        e2e=None,
        decode=None,
        request_tokens=None,
        gauges={"requests_running": _mean(active)} if active else {},
        missing_remedy="TensorRT-LLM states them with enable_iter_perf_stats: true",
        ratios_only=False,
        stated={},
        noted=(*noted, *_differing(speculating)),
    )


def _differing(listed: Sequence[Iteration]) -> tuple[Caution, ...]:
    """The first iteration whose stated acceptance length is not that of its counts."""
    for each in listed:
        found = differing(
            {"acceptance_length": each.stated_length},
            drafts=each.drafts,
            drafted_tokens=each.drafted_tokens,
            accepted_tokens=each.accepted_tokens,
        )
        if found:
            return found
    return ()


def _listed(readings: Sequence[Iterations]) -> tuple[list[Iteration], tuple[Caution, ...]]:
    """Each iteration of the window once, in order; a number that goes back, with other figures, is a restart."""
    seen: dict[tuple[int, int], Iteration] = {}
    last: dict[int, int] = {}
    listed: list[Iteration] = []
    restarted, lost = None, 0
    for i, reading in enumerate(readings):
        inside = i > 0 or len(readings) == 1
        for each in reading.listed:
            key, before = (each.rank, each.number), last.get(each.rank)
            if seen.get(key) == each:
                continue
            if before is not None and each.number <= before:
                restarted = each.number if inside else restarted
                seen = {key: told for key, told in seen.items() if key[0] != each.rank}
            elif before is not None and inside:
                lost += each.number - before - 1
            seen[key], last[each.rank] = each, each.number
            if inside:
                listed.append(each)
    noted = (None if restarted is None else _restarted(restarted), _lost(lost) if lost else None, None if listed else _empty())
    return listed, tuple(each for each in noted if each is not None)


def _restarted(number: int) -> Caution:
    return Caution("counter_reset", f"iterations go back to number {number}: the server restarted, and what it did just before is missing")


def _lost(count: int) -> Caution:
    return Caution("iterations_lost", f"{count} iterations are missing between those that were read; read more often")


def _empty() -> Caution:
    return Caution(
        "no_iterations",
        "the list of iterations is empty: the server was idle, somebody else read it, or enable_iter_perf_stats is off; "
        "/prometheus/metrics of the same server counts without it",
    )


def _mean(values: Sequence[float]) -> Summary:
    mean = min(max(sum(values) / len(values), min(values)), max(values))
    return Summary(value=mean, statistic="mean of iterations", n=len(values), low=min(values), high=max(values))
