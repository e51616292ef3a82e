"""What a llama-server's log says of acceptance and pace, as a run.

    A, D       Σ accepted and Σ drafted of all requests, printed exactly
    drafts     by the drafters' running totals where these are logged, else rebuilt from each request's acceptance length
    steps      Σ (generated - 1 - accepted): forwards of the target after the prompt's, undrafted ones included, ± K at a stop in mid-draft
    TPOT       per request: decode seconds / (generated - 1); decode seconds exclude the queue and the prompt

Source: llama.cpp b11434, checked against its counters: 200 generated, 143 accepted, 56 drafts in 56 steps.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from paceline import __version__
from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Evidence, Load, Provenance, Run, Summary, lawful_summaries
from paceline.servers.llamacpp.log import Timing
from paceline.servers.llamacpp.log_requests import LoggedRequest, RequestLog, logged_requests
from paceline.servers.rounded_counts import Between, Printed, Rebuilt, rebuilt
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation
from paceline.verdict import Caution

__all__ = ["run_of_log"]

METHODS = {
    "draft": Method.DRAFT_MODEL,
    "draft-simple": Method.DRAFT_MODEL,
    "draft-eagle3": Method.EAGLE3,
    "draft-mtp": Method.MTP,
    "mtp": Method.MTP,
}


@dataclass(frozen=True, slots=True)
class _Pooled:
    """All requests added up; None where a request does not let it be told."""

    accepted_tokens: int
    drafted_tokens: int
    drafts: Between | None
    positions: tuple[int, ...] | None
    positions_certain: bool
    steps: int | None
    contradictory: int


NO_DRAFTS = Rebuilt(drafts=Between(value=0, low=0, high=0), positions=(), positions_certain=True)
CONTRADICTORY = Rebuilt(drafts=NO_DRAFTS.drafts, positions=None, positions_certain=False)
NOTHING = _Pooled(
    accepted_tokens=0, drafted_tokens=0, drafts=NO_DRAFTS.drafts, positions=(), positions_certain=True, steps=0, contradictory=0
)


def run_of_log(lines: Iterable[str], *, inputs: Mapping[str, str], most: int) -> Run:
    """The log as evidence. `lines` without colours and without what a container wrote before them; `inputs`: SHA-256 by file name;
    `most`: requests that are kept at most.

    Raises:
        NoEvidenceError: no request's timings.
        BadInputError: more requests than that.

    """
    log = logged_requests(lines, most=most)
    timed = [each for each in log.requests if each.timing.generated_tokens is not None or each.timing.drafted_tokens is not None]
    if not timed:
        raise NoEvidenceError("the log has no request's timings; llama-server writes them when a request ends (print_timing)")
    pooled = _pool(timed)
    counts = _counts(pooled)
    decoded = [each.timing for each in timed if (each.timing.generated_tokens or 0) > 1 and each.timing.decode_s]
    decode_s = sum(each.decode_s or 0 for each in decoded)
    summaries, unlawful = lawful_summaries(_paces(timed) | _acceptance(pooled, counts))
    return Run(
        arm=Arm.SPECULATIVE if pooled.drafted_tokens or log.drafters else Arm.BASELINE,
        speculation=_speculation(log, pooled),
        load=Load(concurrency=None, rate_per_s=None),
        requests=None,
        acceptance_by_segment=None if counts is None else {"all": counts},
        step_seconds=decode_s / pooled.steps if pooled.steps and len(decoded) == len(timed) and not pooled.contradictory else None,
        summaries=summaries,
        window_s=None,
        provenance=Provenance(
            made_by="llama.cpp log",
            version=__version__,
            evidence=Evidence.MEASURED,
            arguments={"drafters": ",".join(sorted(log.drafters))} if log.drafters else {},
            inputs=inputs,
            seed=None,
        ),
        cautions=(*_cautions(log, timed, pooled, counts), *unlawful),
    )


def _pool(timed: list[LoggedRequest]) -> _Pooled:
    """All requests added up; one without an accepted token takes the longest draft of the others for its own."""
    rebuilds = [_rebuilt(each, None) for each in timed]
    told = [(each.timing.drafted_tokens or 0, found.drafts.value) for each, found in zip(timed, rebuilds, strict=True) if found is not None]
    longest = max((-(-drafted // drafts) for drafted, drafts in told if drafts), default=None)
    pooled = NOTHING
    for each, found in zip(timed, rebuilds, strict=True):
        again = each.timing.accepted_tokens == 0 and found is None
        pooled = _added(pooled, each.timing, _rebuilt(each, longest) if again else found)
    return pooled


def _added(pooled: _Pooled, timing: Timing, found: Rebuilt | None) -> _Pooled:
    accepted, drafted = timing.accepted_tokens or 0, timing.drafted_tokens or 0
    if found is CONTRADICTORY:
        return replace(pooled, contradictory=pooled.contradictory + 1)
    ours, before = (None if found is None else found.positions), pooled.positions
    least = 0 if found is None else found.drafts.value
    steps = None if timing.generated_tokens is None else max(timing.generated_tokens - 1 - accepted, least)
    return replace(
        pooled,
        accepted_tokens=pooled.accepted_tokens + accepted,
        drafted_tokens=pooled.drafted_tokens + drafted,
        drafts=None if pooled.drafts is None or found is None else pooled.drafts + found.drafts,
        positions=None if before is None or ours is None else tuple(a + b for a, b in zip_longest(before, ours, fillvalue=0)),
        positions_certain=pooled.positions_certain and found is not None and found.positions_certain,
        steps=None if pooled.steps is None or steps is None else pooled.steps + steps,
    )


def _rebuilt(request: LoggedRequest, longest: int | None) -> Rebuilt | None:
    """The request's counts, its drafts by the drafters' totals where what is printed beside them allows it."""
    timing = request.timing
    if not timing.accepted_tokens and not timing.drafted_tokens:
        return NO_DRAFTS
    printed = Printed(
        accepted_tokens=timing.accepted_tokens or 0,
        drafted_tokens=timing.drafted_tokens or 0,
        length=timing.length,
        rates=timing.rates,
        most_draft_tokens=len(timing.rates) if timing.rates else longest,
    )
    try:
        return rebuilt(printed, full_drafts=False, counted_drafts=request.drafts)
    except BadInputError:
        return CONTRADICTORY


def _counts(pooled: _Pooled) -> AcceptanceCounts | None:
    if pooled.drafts is None or not pooled.drafted_tokens:
        return None
    return AcceptanceCounts(
        steps=pooled.steps,
        drafts=pooled.drafts.value,
        drafted_tokens=pooled.drafted_tokens,
        accepted_tokens=pooled.accepted_tokens,
        accepted_per_position=pooled.positions,
    )


def _speculation(log: RequestLog, pooled: _Pooled) -> Speculation | None:
    """The only drafter that is named, with as many tokens as positions are printed; None where one of the two is not told."""
    name = next(iter(log.drafters)) if len(log.drafters) == 1 else ""
    method = Method.NGRAM if name.startswith("ngram") else METHODS.get(name)
    if method is None or not pooled.positions:
        return None
    return Speculation(method=method, draft_tokens=len(pooled.positions), tree=None)


def _paces(timed: Iterable[LoggedRequest]) -> dict[str, Summary]:
    told = [(each.timing.decode_s, each.timing.generated_tokens) for each in timed]
    paces = [seconds / (tokens - 1) for seconds, tokens in told if seconds and tokens is not None and tokens > 1]
    if not paces:
        return {}
    return {"tpot_s": Summary(value=sum(paces) / len(paces), statistic="mean", n=len(paces), low=None, high=None)}


def _acceptance(pooled: _Pooled, counts: AcceptanceCounts | None) -> dict[str, Summary]:
    """What the counts do not say: the ends that rounding leaves, or the totals where there are no counts."""
    accepted, drafted = pooled.accepted_tokens, pooled.drafted_tokens
    if counts is None and drafted:
        totals = {"accepted_tokens": accepted, "drafted_tokens": drafted}
        alpha = Summary(value=accepted / drafted, statistic="pooled", n=drafted, low=None, high=None)
        return {"alpha": alpha} | {
            name: Summary(value=float(value), statistic="total", n=None, low=None, high=None) for name, value in totals.items()
        }
    if counts is None or pooled.drafts is None or pooled.drafts.is_exact:
        return {}
    low, high = pooled.drafts.low, pooled.drafts.high
    return {"drafts": Summary(value=float(counts.drafts), statistic="total", n=None, low=float(low), high=float(high))}


def _cautions(log: RequestLog, timed: list[LoggedRequest], pooled: _Pooled, counts: AcceptanceCounts | None) -> Iterator[Caution]:
    yield Caution(
        "whole_log",
        f"figures are of the {len(timed)} requests that ended within the log, warm-up included; cut the log to the window you ask about",
    )
    if any(each.bare for each in timed):
        why = "this build writes figures on bare lines, which text of a request could imitate; take a build that prefixes every line"
        yield Caution("unprefixed_lines", why)
    if log.starts > 1:
        yield Caution("restarts", f"a model was loaded {log.starts - 1} more times within this log; cut the log to one life of the server")
    if pooled.contradictory:
        yield Caution("contradictory_lines", f"{pooled.contradictory} requests' figures contradict themselves; they are left out")
    if not pooled.drafted_tokens:
        if log.drafters:
            yield Caution("nothing_drafted", "a drafter is loaded and drafted nothing here: not active, which is not an acceptance of 0")
        return
    if pooled.accepted_tokens == 0:
        yield Caution("nothing_accepted", f"none of {pooled.drafted_tokens} drafted tokens was accepted: the draft is broken, not weak")
    if pooled.drafts is None:
        yield Caution(
            "drafts_unknown", "this build prints no acceptance length, so drafted steps cannot be told; take /metrics, or a newer build"
        )
    elif not pooled.drafts.is_exact:
        low, high = pooled.drafts.low, pooled.drafts.high
        yield Caution(
            "drafts_inferred", f"drafts are not printed; the rounded ratios leave {low} to {high}, {pooled.drafts.value} is taken"
        )
    if counts is not None and pooled.positions is not None and not pooled.positions_certain:
        yield Caution(
            "positions_rounded", "acceptance by position is printed with three digits: the counts are right to 0.0005 of the drafts"
        )
