"""What a reader must know of figures that come from a vLLM log."""

from collections.abc import Iterable, Iterator

from paceline.servers.vllm.log import EngineStart, Spoken
from paceline.servers.vllm.log_pool import PooledIntervals, PooledTotals, method_of
from paceline.speculation.method import Method
from paceline.verdict import Caution

__all__ = ["of_intervals", "of_starts", "of_totals"]

IDLE_FACTOR = 1.5  # of the shortest interval; beyond it the engine was idle for a while


def of_starts(spoken: Iterable[Spoken], *, engines: int) -> tuple[Caution, ...]:
    """Restarts, engines that speculate differently, several engines."""
    return tuple(_of_starts(list(spoken), engines=engines))


def _of_starts(spoken: list[Spoken], *, engines: int) -> Iterator[Caution]:
    started = [(each.process, each.said) for each in spoken if isinstance(each.said, EngineStart)]
    again = len(started) - len({process for process, _ in started})
    if again:
        yield Caution(
            "restarts", f"the engine was started {again} more times within this log, and its lives are pooled; cut the log to one"
        )
    if len({(each.speculates, method_of(each), each.method, each.draft_tokens) for _, each in started}) > 1:
        yield Caution("speculation_changed", "the engine was started with different speculation within this log; cut it to one of them")
    if engines > 1:
        yield Caution("several_engines", f"{engines} data-parallel engines write this log; their counts are added up")


def of_intervals(pooled: PooledIntervals, method: Method | None) -> tuple[Caution, ...]:
    """Everything about V1's intervals; `method` is what the engine drafts with, None where the log does not say."""
    return tuple(_of_intervals(pooled, method))


def _of_intervals(pooled: PooledIntervals, method: Method | None) -> Iterator[Caution]:
    yield Caution(
        "whole_log",
        "counts are of everything between the log's first and last lines of statistics, warm-up and every load included, without what "
        "came after the last line; cut the log to the window you ask about",
    )
    if pooled.contradictory:
        yield Caution("contradictory_lines", f"{pooled.contradictory} lines of statistics contradict themselves and are left out")
    if not pooled.drafted_tokens:
        yield _nothing_drafted()
        return
    if pooled.accepted_tokens == 0:
        yield Caution("nothing_accepted", f"none of {pooled.drafted_tokens} drafted tokens was accepted: the draft is broken, not weak")
    yield from _of_drafts(pooled)
    if method is None or not method.drafts_every_step:
        yield Caution(
            "steps_unknown", "the log counts drafted steps only; steps without a draft are not in it, so tokens per step is unknown"
        )
    if pooled.without_own_token:
        yield Caution(
            "length_without_own_token",
            f"{pooled.without_own_token} lines print an acceptance length without the target's own token (vLLM 0.8.5); it is added here",
        )
    if pooled.seconds and max(pooled.seconds) > IDLE_FACTOR * min(pooled.seconds):
        yield Caution("idle_intervals", "the engine was idle for a while: rates per second of some lines include idle time; counts do not")


def _of_drafts(pooled: PooledIntervals) -> Iterator[Caution]:
    if pooled.drafts is None:
        yield Caution(
            "drafts_unknown",
            "neither the draft length nor an acceptance length is printed, so drafted steps cannot be told; keep the engine's start in it",
        )
        return
    if not pooled.drafts.is_exact:
        low, high = pooled.drafts.low, pooled.drafts.high
        yield Caution(
            "drafts_inferred", f"drafts are not printed; the rounded ratios leave {low} to {high}, {pooled.drafts.value} is taken"
        )
    if pooled.positions is None:
        yield Caution("positions_unknown", "acceptance by position is not printed, or contradicts the counts; it is left out")
    elif not pooled.positions_certain:
        yield Caution(
            "positions_rounded", "acceptance by position is printed with three digits: the counts are right to 0.0005 of the drafts"
        )


def of_totals(life: PooledTotals) -> tuple[Caution, ...]:
    """Everything about the V0 engine's running totals."""
    return tuple(_of_totals(life))


def _of_totals(life: PooledTotals) -> Iterator[Caution]:
    yield Caution("since_start", "V0 logs running totals: they count from the server's start on, warm-up and every load included")
    yield Caution(
        "v0_metrics",
        "the V0 engine (vLLM 0.9.2 and before) calls a drafted token accepted even after an earlier rejection, so the rate it prints is "
        "too high and compares with no V1 figure; alpha here is (emitted - drafts) / drafted",
    )
    if life.resets:
        yield Caution("counter_reset", f"the totals fell {life.resets} times: restarts; the last line before each was added up")
    yield from life.differing
    if not life.is_possible:
        yield Caution(
            "totals_contradict",
            f"{life.emitted_tokens} tokens emitted and {life.accepted_tokens} accepted of {life.drafted_tokens} drafted in {life.drafts} "
            "drafts cannot all be right: alpha and acceptance length are left out",
        )
    if life.efficiency_disagrees:
        yield Caution(
            "efficiency_disagrees", "the printed system efficiency is not emitted / (drafts (K + 1)): not every draft had K tokens"
        )
    if not life.drafts:
        yield _nothing_drafted()


def _nothing_drafted() -> Caution:
    return Caution("nothing_drafted", "speculation is configured and drafted nothing here: not active, which is not an acceptance of 0")
