"""What a vLLM server's log says of acceptance, as a run.

    α     Σ accepted / Σ drafted, both printed exactly           drafts   not printed by V1: rebuilt from the ratios of each line
    τ     1 + Σ accepted / Σ drafts, drafted steps only          steps    not in the log at all

Generated tokens per second are the mean of the intervals at whose both ends requests were running, engines added up.
"""

from collections.abc import Iterable, Mapping

from paceline import __version__
from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Evidence, Load, Provenance, Run, Summary, lawful_summaries
from paceline.servers.vllm.log import EngineStart, Interval, Spoken, Throughput, V0Totals, has_prefix, read_line
from paceline.servers.vllm.log_cautions import of_intervals, of_starts, of_totals
from paceline.servers.vllm.log_pool import PooledIntervals, PooledTotals, method_of, pool_intervals, pool_totals
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import MOST_DRAFT_TOKENS, Speculation
from paceline.verdict import Caution

__all__ = ["run_of_log"]


def run_of_log(lines: Iterable[str], *, inputs: Mapping[str, str], most: int) -> Run:
    """The log as evidence. `lines` without colours and without what a container wrote before them; `inputs`: SHA-256 by file name;
    `most`: lines of statistics that are kept at most.

    Raises:
        NoEvidenceError: no statistics of speculation or of throughput.
        BadInputError: more statistics than that, or the V0 engine's and V1's in one file.

    """
    spoken, noted = _spoken(lines, most)
    said = [each.said for each in spoken]
    starts = [each for each in said if isinstance(each, EngineStart)]
    rates = [each for each in said if isinstance(each, Throughput)]
    drafting = any(isinstance(each, Interval | V0Totals) for each in said)
    generated = _generated_per_s(rates)
    if not drafting and generated is None:
        raise NoEvidenceError("the log has no line of vLLM's own statistics; they need traffic, and a server without --disable-log-stats")
    engines = len({each.engine for each in rates}) or 1
    summaries, counts, window_s, found = _measured(spoken, drafting=drafting, engines=engines)
    summaries |= {} if generated is None else {"output_tokens_per_s": generated}
    summaries, unlawful = lawful_summaries(summaries)
    return Run(
        arm=Arm.SPECULATIVE if drafting or any(each.speculates for each in starts) else Arm.BASELINE,
        speculation=_speculation(starts),
        load=Load(concurrency=None, rate_per_s=None),
        requests=None,
        acceptance_by_segment=None if counts is None else {"all": counts},
        step_seconds=None,
        summaries=summaries,
        window_s=window_s,
        provenance=Provenance(
            made_by="vllm log",
            version=__version__,
            evidence=Evidence.MEASURED,
            arguments=_arguments(starts, engines),
            inputs=inputs,
            seed=None,
        ),
        cautions=(*noted, *of_starts(spoken, engines=engines), *found, *unlawful),
    )


def _spoken(lines: Iterable[str], most: int) -> tuple[list[Spoken], list[Caution]]:
    """The lines of note: those with vLLM's prefix, or the bare ones where no line has it."""
    found: list[Spoken] = []
    prefixed = False
    for line in lines:
        said = read_line(line)
        prefixed = prefixed or has_prefix(line)
        if said is not None:
            found.append(said)
        if len(found) > most:
            raise BadInputError(f"the log has more than {most} lines of statistics; cut it to the window you ask about")
    bare = sum(not each.prefixed for each in found)
    if not bare:
        return found, []
    if not prefixed:
        why = "no line has vLLM's prefix, so text that a user sent cannot be told from the server's own; keep the prefix when logging"
        return found, [Caution("unprefixed_lines", why)]
    why = f"{bare} lines look like statistics but lack vLLM's prefix: text of a request or of another program, not counted"
    return [each for each in found if each.prefixed], [Caution("unprefixed_lines_ignored", why)]


def _measured(
    spoken: list[Spoken], *, drafting: bool, engines: int
) -> tuple[dict[str, Summary], AcceptanceCounts | None, float | None, tuple[Caution, ...]]:
    """Summaries, counts, the window and cautions, of whichever engine it was."""
    if not drafting:
        return {}, None, None, ()
    totals = any(isinstance(each.said, V0Totals) for each in spoken)
    if totals and any(isinstance(each.said, Interval) for each in spoken):
        raise BadInputError("the log has statistics of the V0 engine and of V1, which count differently; cut it in two")
    if totals:
        life = pool_totals(spoken)
        return _summaries_of_totals(life), None, None, of_totals(life)
    pooled = pool_intervals(spoken)
    counts = _counts(pooled)
    window_s = sum(pooled.seconds) if engines == 1 and not pooled.timeless else None
    return _summaries_of_intervals(pooled, counts), counts, window_s, of_intervals(pooled, method_of(_last_start(spoken)))


def _counts(pooled: PooledIntervals) -> AcceptanceCounts | None:
    if pooled.drafts is None or not pooled.drafted_tokens:
        return None
    return AcceptanceCounts(
        steps=None,
        drafts=pooled.drafts.value,
        drafted_tokens=pooled.drafted_tokens,
        accepted_tokens=pooled.accepted_tokens,
        accepted_per_position=pooled.positions,
    )


def _summaries_of_intervals(pooled: PooledIntervals, counts: AcceptanceCounts | None) -> dict[str, Summary]:
    """What the counts do not say: the ends that rounding leaves, or the totals where there are no counts."""
    accepted, drafted = pooled.accepted_tokens, pooled.drafted_tokens
    if counts is None and drafted:
        alpha = Summary(value=accepted / drafted, statistic="pooled", n=drafted, low=None, high=None)
        return {"alpha": alpha, "accepted_tokens": _total(accepted), "drafted_tokens": _total(drafted)}
    if counts is None or pooled.drafts is None or pooled.drafts.is_exact:
        return {}
    low, high = pooled.drafts.low, pooled.drafts.high
    return {
        "drafts": Summary(value=float(counts.drafts), statistic="total", n=None, low=float(low), high=float(high)),
        "acceptance_length": Summary(
            value=counts.acceptance_length, statistic="pooled", n=counts.drafts, low=1 + accepted / high, high=1 + accepted / low
        ),
    }


def _summaries_of_totals(life: PooledTotals) -> dict[str, Summary]:
    if not life.drafts:
        return {}
    pooled = {"alpha_counted_by_v0": (life.accepted_tokens / life.drafted_tokens, life.drafted_tokens)}
    if life.is_possible:
        usable = (life.emitted_tokens - life.drafts) / life.drafted_tokens
        pooled |= {"alpha": (usable, life.drafted_tokens), "acceptance_length": (life.emitted_tokens / life.drafts, life.drafts)}
    ratios = {name: Summary(value=value, statistic="pooled", n=n, low=None, high=None) for name, (value, n) in pooled.items()}
    return ratios | {"drafts": _total(life.drafts), "drafted_tokens": _total(life.drafted_tokens)}


def _total(value: int) -> Summary:
    return Summary(value=float(value), statistic="total", n=None, low=None, high=None)


def _generated_per_s(rates: Iterable[Throughput]) -> Summary | None:
    """The mean of each engine's busy intervals, engines added up; None where no interval was busy at both ends."""
    running: dict[str, int] = {}
    busy: dict[str, list[float]] = {}
    for each in rates:
        if each.running and running.get(each.engine):
            busy.setdefault(each.engine, []).append(each.generated_per_s)
        running[each.engine] = each.running
    if not busy:
        return None
    value = sum(sum(each) / len(each) for each in busy.values())
    return Summary(value=value, statistic="mean", n=sum(map(len, busy.values())), low=None, high=None)


def _last_start(spoken: Iterable[Spoken]) -> EngineStart | None:
    starts = [each.said for each in spoken if isinstance(each.said, EngineStart)]
    return starts[-1] if starts else None


def _speculation(starts: list[EngineStart]) -> Speculation | None:
    """The method and K that every engine was started with; None where they differ or are not told."""
    told = {(method_of(each), each.draft_tokens) for each in starts}
    method, longest = told.pop() if len(told) == 1 else (None, None)
    if method is None or not longest or longest > MOST_DRAFT_TOKENS:
        return None
    return Speculation(method=method, draft_tokens=longest, tree=None)


def _arguments(starts: list[EngineStart], engines: int) -> dict[str, str]:
    models = {each.model for each in starts if each.model is not None}
    versions = {each.version for each in starts}
    named = {"engines": str(engines)}
    named |= {"model": models.pop()} if len(models) == 1 else {}
    return named | ({"engine_version": versions.pop()} if len(versions) == 1 else {})
