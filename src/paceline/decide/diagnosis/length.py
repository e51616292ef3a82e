"""Causes in lengths: drafts that are too long, and prompts on which acceptance falls or steps get dearer.

Speed-up at k of K drafted tokens is E(k) / ρ(k), with E(k) = 1 + s_1 + … + s_k exact for a chain, and of ρ only ρ(K) known. Two readings
bound it: all extra time is in proportion to k, or half of it is there at any k.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

import numpy as np
import numpy.typing as npt

from paceline.decide.diagnosis.acceptance import first_only, is_dead, surely_lower
from paceline.decide.diagnosis.case import Case
from paceline.decide.diagnosis.cause import Cause, Surely, Unchecked
from paceline.run import RequestRecord, Run
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts

__all__ = ["length_causes"]

FloatArray = npt.NDArray[np.float64]

WORTH = 1.02
SURELY_WORTH = 1.01
FIXED_SHARE = 0.5
FEWEST_BY_LENGTH = 4
LONGER = 2.0  # times the shortest prompts that the longest must have before lengths are compared
FALLS = 0.75
USELESS = 0.15
USELESS_TOKENS = 1.2
EIGHTHS = 8
DEARER = 1.15


def length_causes(case: Case) -> Iterator[Cause | Unchecked]:
    """All of them."""
    yield from _draft_length(case)
    yield from _by_prompt(case)


def _draft_length(case: Case) -> Iterator[Cause | Unchecked]:
    counts, k = case.counts, case.draft_tokens
    tree = case.method is not None and case.method.tree is not None
    if counts is None or k is None or tree:
        yield Unchecked("draft_too_long", "acceptance of a chain, by position if there is")
        return
    if k == 1 or is_dead(case) or first_only(counts) is not None:
        return
    survival = _survival(counts, k)
    useful = sum(each > 0 for each in survival)
    if counts.accepted_per_position is not None and useful < k - 1:
        yield _dead_tail(counts, k, useful)
    else:
        yield from _best_length(case, survival)


def _survival(counts: AcceptanceCounts, k: int) -> tuple[float, ...]:
    """By position where counted, else the i.i.d. shape of the same acceptance."""
    if counts.accepted_per_position is not None:
        return (counts.survival + (0.0,) * k)[:k]
    length = min(counts.acceptance_length, k + 1)
    return Acceptance.from_acceptance_length(length, draft_tokens=k).survival


def _dead_tail(counts: AcceptanceCounts, k: int, useful: int) -> Cause:
    alpha = counts.accepted_tokens / (counts.drafts * useful)
    return Cause(
        "draft_too_long",
        f"positions {useful + 1} to {k} were accepted in none of {counts.drafts} drafts; at K = {useful} the same tokens come, and α reads "
        f"{alpha:.2g} instead of {counts.alpha:.2g}",
        {"draft_tokens": k, "useful_draft_tokens": useful, "alpha": counts.alpha, "alpha_at_useful_length": alpha},
        f"draft {useful} tokens or fewer; the low α is the length's doing and not the draft's",
        Surely.SURE,
        0.3,
    )


def _best_length(case: Case, survival: Sequence[float]) -> Iterator[Cause | Unchecked]:
    ratio, counts, k = case.figures.step_time_ratio, case.counts, len(survival)
    assert counts is not None
    if ratio is None or not case.drafts_always:
        yield Unchecked("draft_too_long", "the step times of both arms at equal load")
        return
    tokens = 1 + np.cumsum(survival)
    lengths = np.arange(1, k + 1)
    by_share = [1 + (ratio.value - 1) * (share + (1 - share) * lengths / k) for share in (0.0, FIXED_SHARE)]
    speedups = [tokens / each for each in by_share]
    best = int(np.argmax(speedups[0]))
    gains = [float(each[best] / each[-1]) for each in speedups]
    if gains[0] < WORTH:
        return
    positions = counts.accepted_per_position is not None
    yield Cause(
        "draft_too_long",
        f"of {k} drafted tokens the last yields {survival[-1]:.2g} tokens per step and costs {(ratio.value - 1) / k:.2g} plain steps; "
        f"K = {best + 1} promises {speedups[0][best]:.3g} instead of {speedups[0][-1]:.3g} times the baseline's speed",
        {
            "draft_tokens": k,
            "best_draft_tokens": best + 1,
            "speedup_at_best": float(speedups[0][best]),
            "speedup_now": float(speedups[0][-1]),
            "step_time_ratio": ratio.value,
            "last_survival": float(survival[-1]),
        },
        f"measure K = {best + 1} against K = {k}",
        Surely.LIKELY if positions and gains[1] >= SURELY_WORTH else Surely.POSSIBLE,
        1 - 1 / gains[0],
    )


def _by_prompt(case: Case) -> Iterator[Cause | Unchecked]:
    """Requests by prompt length, the shortest quarter against the longest."""
    ordered = sorted(case.counted, key=lambda each: each[0].prompt_tokens)
    quarter = max(1, len(ordered) // 4)
    short, long = ordered[:quarter], ordered[-quarter:]
    if len(ordered) < FEWEST_BY_LENGTH or _mean_prompt(long) < LONGER * _mean_prompt(short):
        for code in ("acceptance_falls_with_context", "step_cost_rises_with_context"):
            yield Unchecked(
                code, "each request's acceptance on prompts of which the longest have twice the tokens of the shortest, or more"
            )
        return
    yield from _acceptance_falls(case, short, long)
    yield from _cost_rises(case, short, long)


Counted = Sequence[tuple[RequestRecord, AcceptanceCounts]]


def _mean_prompt(counted: Counted) -> float:
    return float(np.mean([record.prompt_tokens for record, _ in counted])) if counted else 0.0


def _length(counted: Counted) -> float:
    return AcceptanceCounts.pooled(counts for _, counts in counted).acceptance_length


def _lengths(counted: Counted) -> FloatArray:
    return np.array([counts.acceptance_length for _, counts in counted])


def _acceptance_falls(case: Case, short: Counted, long: Counted) -> Iterator[Cause | Unchecked]:
    if len(short) < 2:
        yield Unchecked("acceptance_falls_with_context", "each request's acceptance, of eight requests or more")
        return
    before, after = _length(short), _length(long)
    if after - 1 >= FALLS * (before - 1) or not surely_lower(_lengths(long), _lengths(short)):
        return
    useless = _useless_from(case.counted, before)
    lengths = {"prompt_tokens_short": _mean_prompt(short), "prompt_tokens_long": _mean_prompt(long)}
    figures = lengths | {"tokens_per_step_short": before, "tokens_per_step_long": after}
    known = {} if useless is None else {"useless_from_prompt_tokens": float(useless)}
    yield Cause(
        "acceptance_falls_with_context",
        f"tokens per drafted step fall from {before:.3g} on prompts of about {lengths['prompt_tokens_short']:.0f} tokens to {after:.3g} on "
        f"{lengths['prompt_tokens_long']:.0f}" + ("" if useless is None else f"; from {useless} tokens on drafts are hardly worth making"),
        figures | known,
        "decide by prompt length: route long prompts to a server without drafts, or take a draft trained on long contexts (sliding window)",
        Surely.LIKELY,
        1 - after / before,
    )
    if useless is not None and after <= USELESS_TOKENS:
        yield Cause(
            "draft_context_exceeded",
            f"from {useless} prompt tokens on {after:.3g} tokens come per drafted step: the draft sees no more than that",
            known | {"tokens_per_step_long": after},
            "compare the draft's max_position_embeddings and sliding window with the target's context, and --max-model-len with both",
            Surely.POSSIBLE,
            1 - after / before,
        )


def _useless_from(counted: Counted, before: float) -> int | None:
    """Where the prompts begin on which drafts gain less than 15 % of what they gain on short ones, and go on to; eighths are looked at."""
    ordered = sorted(counted, key=lambda each: each[0].prompt_tokens)
    ends = np.linspace(0, len(ordered), min(EIGHTHS, len(ordered)) + 1).astype(int)
    parts = [ordered[start:end] for start, end in pairwise(ends)]
    useless = list(takewhile(lambda part: _length(part) - 1 <= USELESS * (before - 1), reversed(parts)))
    return useless[-1][0][0].prompt_tokens if useless else None


def _cost_rises(case: Case, short: Counted, long: Counted) -> Iterator[Cause | Unchecked]:
    steps = [_step_s(each) for each in (short, long)]
    if steps[0] is None or steps[1] is None:
        yield Unchecked("step_cost_rises_with_context", "each request's decode steps and times")
        return
    plain = [_plain_step_s(case.plain, each) for each in (short, long)]
    figures = {
        "prompt_tokens_short": _mean_prompt(short),
        "prompt_tokens_long": _mean_prompt(long),
        "step_s_short": steps[0],
        "step_s_long": steps[1],
    }
    remedy = "draft fewer tokens on long prompts, or route them to a server without drafts: verification reads the longer cache too"
    if plain[0] is not None and plain[1] is not None:
        ratios = steps[0] / plain[0], steps[1] / plain[1]
        if ratios[1] <= DEARER * ratios[0]:
            return
        more = {"step_time_ratio_short": ratios[0], "step_time_ratio_long": ratios[1]}
        more |= {"speedup_short": _tokens(short) / ratios[0], "speedup_long": _tokens(long) / ratios[1]}
        message = f"a step with drafts takes {ratios[0]:.3g} plain steps on short prompts and {ratios[1]:.3g} on long ones"
        yield Cause("step_cost_rises_with_context", message, figures | more, remedy, Surely.LIKELY, max(0.0, 1 - ratios[0] / ratios[1]))
    elif steps[1] > DEARER * steps[0]:
        message = f"a step takes {steps[0] * 1e3:.3g} ms on short prompts and {steps[1] * 1e3:.3g} ms on long ones"
        also = f"measure the baseline on the same prompts, whose steps get longer too; {remedy}"
        yield Cause("step_cost_rises_with_context", message, figures, also, Surely.POSSIBLE, 1 - steps[0] / steps[1])


def _tokens(counted: Counted) -> float:
    return AcceptanceCounts.pooled(counts for _, counts in counted).tokens_per_step


def _step_s(counted: Counted) -> float | None:
    """Decode seconds per step of these requests; None where steps were not counted or nothing was timed."""
    done = [(record, counts.steps) for record, counts in counted if counts.steps and record.timing.output_tokens > 1]
    seconds = sum(record.timing.e2e_s - record.timing.ttft_s for record, _ in done)
    return seconds / sum(steps for _, steps in done) if len(done) == len(counted) and seconds > 0 else None


def _plain_step_s(plain: Run | None, counted: Counted) -> float | None:
    """Seconds per token without drafts on prompts of these lengths; None where there are none."""
    if plain is None or plain.requests is None:
        return None
    low, high = (edge(record.prompt_tokens for record, _ in counted) for edge in (min, max))
    done = [each for each in plain.finished if low <= each.prompt_tokens <= high and each.timing.output_tokens > 1]
    tokens = sum(each.timing.output_tokens - 1 for each in done)
    seconds = sum(each.timing.e2e_s - each.timing.ttft_s for each in done)
    return seconds / tokens if seconds > 0 else None
