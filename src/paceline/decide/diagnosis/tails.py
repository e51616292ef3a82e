"""Causes in tails and in the time to the first token: who is slow, in which batch, behind whose prompt.

Requests of both arms are needed; from aggregates only the ratios can be told. The slowest are the 5 % with the longest time per token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from paceline.decide.diagnosis.case import Case
from paceline.decide.diagnosis.cause import Cause, Surely, Unchecked
from paceline.decide.measured import metric_estimate, segments_of
from paceline.errors import NoEvidenceError
from paceline.latency import Detail
from paceline.run import RequestRecord, Run
from paceline.stats.paired import request_pairs
from paceline.verdict import Estimate

__all__ = ["tail_causes"]

FloatArray = npt.NDArray[np.float64]

WORSE_TAIL = 1.05
WORSE_TTFT = 1.1
SLOWEST = 0.05
FEWEST_FOR_TAIL = 20
FULLER = 1.2
LONG_GAP = 2.0  # median gaps
STALL = 10.0
INTERFERES = 0.5
SHARE_OF_TIME = 0.01
FEWEST_PAIRS = 12
A_STEP = 1.5
MORE = 1.2
SHORTEST_S = 1e-12
BOTH_ARMS = "requests of both arms (bench keeps them; counters and tables do not)"


def tail_causes(case: Case) -> Iterator[Cause | Unchecked]:
    """All of them."""
    if case.plain is None:
        for code in ("mean_better_tail_worse", "harmed_segment", "ttft_worse"):
            yield Unchecked(code, "a baseline run under the same load")
    else:
        yield from _tail(case, case.plain)
        yield from _segments(case, case.plain)
        yield from _first_token(case, case.plain)
    yield from _preempted(case)


def _surely(estimate: Estimate, bound: float) -> Surely:
    return Surely.SURE if estimate.low is not None and estimate.low > bound else Surely.POSSIBLE


def _tail(case: Case, plain: Run) -> Iterator[Cause | Unchecked]:
    tail, gain = case.figures.tpot_p99_ratio, case.figures.gain
    if tail is None or gain is None:
        yield Unchecked("mean_better_tail_worse", BOTH_ARMS)
        return
    if gain.value <= 1 or tail.value <= WORSE_TAIL:
        return
    yield Cause(
        "mean_better_tail_worse",
        f"the mean pace is {gain.value:.3g} times the baseline's, and the P99 time per token {tail.value:.3g} times as long",
        {"speedup": gain.value, "tpot_p99_ratio": tail.value},
        "decide by the tail that users were promised; the causes beside this one say who is slow",
        _surely(tail, 1),
        1 - 1 / tail.value,
    )
    yield from _slowest(case, plain)


def _slowest(case: Case, plain: Run) -> Iterator[Cause | Unchecked]:
    """Are the slowest requests those with few tokens per step, or those with long steps?"""
    counted = [(record, counts) for record, counts in case.counted if counts.steps and record.timing.output_tokens > 1]
    if len(counted) < FEWEST_FOR_TAIL:
        yield Unchecked("uneven_acceptance", f"acceptance and steps of each request, of {FEWEST_FOR_TAIL} or more")
        return
    records = [record for record, _ in counted]
    tokens = np.array([counts.tokens_per_step for _, counts in counted])
    tpot_s = np.array([record.timing.tpot_s for record in records])
    step_s = tpot_s * tokens
    slow = np.zeros(tpot_s.size, dtype=np.bool_)
    slow[np.argsort(tpot_s, kind="stable")[-ceil(SLOWEST * tpot_s.size) :]] = True
    few, long = (float(np.median(each[~slow]) / np.median(each[slow])) for each in (tokens, 1 / np.maximum(step_s, SHORTEST_S)))
    if few >= max(long, WORSE_TAIL):
        yield Cause(
            "uneven_acceptance",
            f"the slowest requests get {np.median(tokens[slow]):.3g} tokens per step, the others {np.median(tokens[~slow]):.3g}: they pay "
            "for everybody's drafts and gain little",
            {"tokens_per_step_slowest": float(np.median(tokens[slow])), "tokens_per_step_others": float(np.median(tokens[~slow]))},
            "route what is predicted badly (by segment or language) to a server without drafts, or draft fewer tokens",
            Surely.LIKELY,
            1 - 1 / few,
        )
    elif long > WORSE_TAIL:
        yield from _long_steps(records, slow, long)
    yield from _prefills(case.speculative, plain)


def _long_steps(records: Sequence[RequestRecord], slow: npt.NDArray[np.bool_], longer: float) -> Iterator[Cause]:
    together = _in_flight(records)
    fuller = float(np.median(together[slow]) / np.median(together[~slow]))
    if fuller >= FULLER:
        yield Cause(
            "long_steps_at_full_batch",
            f"steps of the slowest requests are {longer:.3g} times as long, and {fuller:.3g} times as many requests ran beside them",
            {"step_time_slowest_over_others": longer, "in_flight_slowest_over_others": fuller},
            "cap the running requests, or draft fewer tokens when the batch is full (vLLM: num_speculative_tokens_per_batch_size)",
            Surely.LIKELY,
            1 - 1 / longer,
        )


def _in_flight(records: Sequence[RequestRecord]) -> FloatArray:
    """How many of the requests ran at the same time as each, on average over its time, itself included."""
    starts = np.array([each.timing.sent_at_s for each in records])
    ends = np.array([float(each.timing.chunk_at_s[-1]) for each in records])
    until = [_since(starts, at) - _since(ends, at) for at in (starts, ends)]
    return np.asarray((until[1] - until[0]) / np.maximum(ends - starts, SHORTEST_S))


def _since(instants: FloatArray, at: FloatArray) -> FloatArray:
    """Σ max(0, at − instant) for each entry of `at`: with starts and ends, the request-seconds until then."""
    ordered = np.sort(instants)
    before = np.searchsorted(ordered, at)
    return np.asarray(before * at - np.concatenate([[0.0], np.cumsum(ordered)])[before])


def _prefills(speculative: Run, plain: Run) -> Iterator[Cause | Unchecked]:
    ours, theirs = _long_gaps(plain), _long_gaps(speculative)
    if ours is None or theirs is None:
        yield Unchecked("prefill_interference", "every chunk's instant, of both arms")
        return
    of_prompts = theirs.with_prefill >= max(INTERFERES, 2 * theirs.any_with_prefill)
    if not of_prompts or theirs.time < max(SHARE_OF_TIME, MORE * ours.time):
        return
    yield Cause(
        "prefill_interference",
        f"{theirs.time:.1%} of the decode time is gaps over twice the median ({ours.time:.1%} without drafts), and another request's "
        f"prompt was read in {theirs.with_prefill:.0%} of them, against {theirs.any_with_prefill:.0%} of all gaps",
        {
            "long_gap_time_share": theirs.time,
            "long_gap_time_share_baseline": ours.time,
            "long_gaps_with_prefill": theirs.with_prefill,
            "gaps_with_prefill": theirs.any_with_prefill,
        },
        "bound the tokens of a step (chunked prefill, --max-num-batched-tokens), or read prompts on other servers",
        Surely.LIKELY,
        theirs.time,
    )


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Long gaps: their share of all gaps' time, the share of them and of all gaps in which another request's first token fell."""

    time: float
    with_prefill: float
    any_with_prefill: float


def _long_gaps(run: Run) -> _Gaps | None:
    done = [each for each in run.finished if each.timing.chunk_at_s.size > 1 and each.timing.detail is not Detail.ENDS]
    if not done:
        return None
    first_s = np.sort([float(each.timing.chunk_at_s[0]) for each in done])
    starts = np.concatenate([each.timing.chunk_at_s[:-1] for each in done])
    ends = np.concatenate([each.timing.chunk_at_s[1:] for each in done])
    gaps_s = ends - starts
    middle = float(np.median(gaps_s))
    prefilled, long = _with_first(first_s, starts, ends, middle), gaps_s > LONG_GAP * middle
    share = float(gaps_s[long].sum()) / max(float(gaps_s.sum()), SHORTEST_S)
    return _Gaps(share, float(prefilled[long].mean()) if long.any() else 0.0, float(prefilled.mean()))


def _with_first(first_s: FloatArray, starts: FloatArray, ends: FloatArray, middle_s: float) -> npt.NDArray[np.bool_]:
    """In which gaps another request's first token fell.

    It comes out of the same step as the chunk that ends the gap, so both edges are moved half a median gap later.
    """
    late = middle_s / 2
    return np.asarray(np.searchsorted(first_s, ends + late) > np.searchsorted(first_s, starts + late))


def _segments(case: Case, plain: Run) -> Iterator[Cause | Unchecked]:
    if plain.requests is None or case.speculative.requests is None:
        yield Unchecked("harmed_segment", BOTH_ARMS)
        return
    names = segments_of(case.speculative)
    if len(names) < 2:
        yield Unchecked("harmed_segment", "requests that name their segment (--segment-field, --segment-rule)")
        return
    confidence = 1 - (1 - case.confidence) / len(names)
    ratios = {name: _segment_ratio(case, plain, name, confidence) for name in names}
    paid = sum(each is not None and each.high is not None and each.high < 1 for each in ratios.values())
    harmed = {name: each for name, each in ratios.items() if each is not None and each.low is not None and each.low > 1}
    if not harmed or not paid:
        return
    worst = max(harmed, key=lambda name: harmed[name].value)
    yield Cause(
        "harmed_segment",
        f"{len(harmed)} of {len(names)} segments get slower and {paid} faster; {worst!a} takes {harmed[worst].value:.3g} times as long",
        {"tpot_ratio_by_segment": {name: each.value for name, each in harmed.items()}, "segments_that_gain": paid},
        "speculation is a server's setting and not a request's: send the segments that gain to a pool with drafts",
        Surely.SURE,
        1 - 1 / harmed[worst].value,
    )


def _segment_ratio(case: Case, plain: Run, name: str, confidence: float) -> Estimate | None:
    try:
        return metric_estimate("tpot_mean.ratio", plain, case.speculative, segment=name, confidence=confidence, rng=case.rng)
    except NoEvidenceError:
        return None


def _first_token(case: Case, plain: Run) -> Iterator[Cause | Unchecked]:
    ratio = case.figures.ttft_ratio
    if ratio is None:
        yield Unchecked("ttft_worse", "times to first token of both arms")
        return
    if ratio.value <= WORSE_TTFT:
        return
    yield Cause(
        "ttft_worse",
        f"the mean time to first token is {ratio.value:.3g} times the baseline's",
        {"ttft_ratio": ratio.value},
        "look at it apart from the pace, on prompts that the prefix cache knows and on those that it does not: a draft has a cache of its "
        "own, and where prompts are cached its part of the first token is the larger one",
        _surely(ratio, 1),
        1 - 1 / ratio.value,
    )
    yield from _why_first_token(case, plain)


def _why_first_token(case: Case, plain: Run) -> Iterator[Cause | Unchecked]:
    """In pairs: a rise that grows with the prompt is the draft's own prefill, one of about a step is the wait for a running step."""
    both = plain.requests is not None and case.speculative.requests is not None
    pairs = request_pairs(plain, case.speculative, segment=None) if both else ()
    timed = [(one, other) for one, other in pairs if one.timing.chunk_at_s.size and other.timing.chunk_at_s.size]
    if len(timed) < FEWEST_PAIRS:
        yield Unchecked("draft_prefill", "the same requests in both arms, twelve or more")
        return
    rise_s = np.array([other.timing.ttft_s - one.timing.ttft_s for one, other in timed])
    prompts = np.array([one.prompt_tokens for one, _ in timed], dtype=np.float64)
    slope, surely = _slope(prompts, rise_s)
    if surely and slope * prompts.mean() > rise_s.mean() / 2:
        yield Cause(
            "draft_prefill",
            f"the first token comes {rise_s.mean() * 1e3:.3g} ms later, {slope * 1e6:.3g} ms for every 1,000 prompt tokens",
            {"ttft_rise_s": float(rise_s.mean()), "rise_s_per_1000_prompt_tokens": slope * 1e3},
            "a smaller draft, or one without a prompt of its own (n-gram), where long prompts have a promise on their first token",
            Surely.LIKELY,
            0.2,
        )
        return
    ours, theirs = plain.step_seconds, case.speculative.step_seconds
    if ours is None or theirs is None:
        yield Unchecked("ttft_of_longer_steps", "seconds per step of both arms")
    elif 0 < rise_s.mean() <= A_STEP * theirs and theirs > ours:
        yield Cause(
            "ttft_of_longer_steps",
            f"the first token comes {rise_s.mean() * 1e3:.3g} ms later, no more than a step or so, and steps take {theirs * 1e3:.3g} ms "
            f"instead of {ours * 1e3:.3g}",
            {"ttft_rise_s": float(rise_s.mean()), "step_s": theirs, "step_s_baseline": ours},
            "nobody feels a rise of a step; a bound on the ratio alone would refuse it (gate --felt-ttft)",
            Surely.POSSIBLE,
            0.1,
        )


def _slope(x: FloatArray, y: FloatArray) -> tuple[float, bool]:
    """Of the least-squares line, and whether it is above 0 by four standard errors."""
    spread = x - x.mean()
    squares = float((spread**2).sum())
    if squares == 0:
        return 0.0, False
    slope = float((spread * (y - y.mean())).sum() / squares)
    left = y - y.mean() - slope * spread
    error = float(np.sqrt((left**2).sum() / (x.size - 2) / squares))
    return slope, slope > 4 * error


def _preempted(case: Case) -> Iterator[Cause | Unchecked]:
    counted = case.speculative.summaries.get("preemptions")
    if counted is not None:
        before = None if case.plain is None else case.plain.summaries.get("preemptions")
        if counted.value > (0 if before is None else before.value):
            yield _preemption(
                {"preemptions": counted.value} | ({} if before is None else {"preemptions_baseline": before.value}), Surely.SURE
            )
        return
    stalls = _stalls(case.speculative)
    if stalls is None:
        yield Unchecked("preemption", "the server's counter of preemptions, or every chunk's instant")
        return
    ours = None if case.plain is None else _stalls(case.plain)
    if stalls > (ours or 0.0) and stalls >= SHARE_OF_TIME:
        figures = {"requests_stalled_share": stalls} | ({} if ours is None else {"requests_stalled_share_baseline": ours})
        yield _preemption(figures, Surely.POSSIBLE)


def _preemption(figures: dict[str, float], surely: Surely) -> Cause:
    counted = figures.get("preemptions")
    what = f"{counted:.0f} requests were stopped for others" if counted is not None else "requests stand still for ten gaps and more"
    return Cause(
        "preemption",
        f"{what}: the draft's weights, its own cache and the slots for drafted tokens leave fewer blocks for the target's cache",
        figures,
        "lower --max-num-seqs or the context, give the server more memory, or a smaller draft; watch the cache's usage and the preemptions",
        surely,
        0.4,
    )


def _stalls(run: Run) -> float | None:
    """The share of requests with a gap of ten medians and more in which no other request's first token fell; None without chunks."""
    if run.requests is None:
        return None
    done = [each for each in run.finished if each.timing.chunk_at_s.size > 1 and each.timing.detail is not Detail.ENDS]
    if not done:
        return None
    first_s = np.sort([float(each.timing.chunk_at_s[0]) for each in done])
    middle = float(np.median(np.concatenate([each.timing.chunk_gaps_s for each in done])))
    return float(np.mean([_stands_still(each, middle, first_s) for each in done]))


def _stands_still(record: RequestRecord, middle_s: float, first_s: FloatArray) -> bool:
    starts, ends = record.timing.chunk_at_s[:-1], record.timing.chunk_at_s[1:]
    long = ends - starts > STALL * middle_s
    return bool((long & ~_with_first(first_s, starts, ends, middle_s)).any())
