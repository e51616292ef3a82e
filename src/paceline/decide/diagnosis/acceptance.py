"""Causes in what was accepted: broken drafts, weak ones, and acceptance that depends on temperature, position or time.

Where nothing is accepted the output is still right, for verification is lossless; correct answers clear no draft.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from paceline.decide.diagnosis.case import Case
from paceline.decide.diagnosis.cause import Cause, Surely, Unchecked
from paceline.decide.diagnosis.usual import USUAL_CONDITIONAL, shortfall
from paceline.errors import NoEvidenceError
from paceline.speculation.acceptance import conditional_from_tokens
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.intervals import mean_interval, wilson

__all__ = ["acceptance_causes", "first_only", "is_dead", "surely_lower"]

FloatArray = npt.NDArray[np.float64]

DEAD = 0.05  # accepted tokens per draft up to which a draft is useless whatever the load
SURELY_DEAD = 0.1
FEWEST_REACHED = 10  # drafts that reached the second position, below which none surviving it says little
HARDLY_AFTER_FIRST = 0.1  # a trained head keeps .7 or more of its first position's acceptance (EAGLE, arXiv 2401.15077, n-α)
WEAK = 0.5
FEWEST_DRAFTS = 200  # α = .3 is then known to about a fifth of itself
WIDE = 0.1  # a mean over prompts that is uncertain by more than this tells no version from another
FEWEST_OVER_TIME = 24
FELL = 0.9
SELDOM = 0.3


def acceptance_causes(case: Case) -> Iterator[Cause | Unchecked]:
    """All of them."""
    yield from _dead(case)
    yield from _after_first(case)
    yield from _weak(case)
    yield from _lookup(case)
    yield from _temperature(case)
    yield from _few(case)
    yield from _over_time(case)


def is_dead(case: Case) -> bool:
    """Whether a draft that is made in every step is next to never accepted."""
    counts = case.counts
    return counts is not None and case.drafts_always and counts.accepted_tokens <= DEAD * counts.drafts


def _dead(case: Case) -> Iterator[Cause | Unchecked]:
    counts = case.counts
    if counts is None:
        yield Unchecked("nothing_accepted", "counts of drafts and accepted tokens: /metrics, the server's log, or per-request statistics")
        return
    if not is_dead(case):
        return
    high = wilson(successes=min(counts.accepted_tokens, counts.drafts), n=counts.drafts, confidence=case.confidence).high or 0.0
    yield Cause(
        "nothing_accepted",
        f"{counts.accepted_tokens} of {counts.drafted_tokens} drafted tokens were accepted in {counts.drafts} drafts; correct output does "
        "not clear the draft, for rejected drafts cost speed and no quality",
        {"drafts": counts.drafts, "drafted_tokens": counts.drafted_tokens, "accepted_tokens": counts.accepted_tokens},
        "roll back; then check that the method names the checkpoint's own kind (an EAGLE-3 head under draft_model or eagle loads and never "
        "matches), that the log loads the head's d2t table and every weight, that the head was trained for this very target and chat "
        "template, that the draft's context covers the prompts, and that its KV cache has the target's dtype and block table",
        Surely.SURE if high < SURELY_DEAD else Surely.LIKELY,
        1.0,
    )


def first_only(counts: AcceptanceCounts) -> tuple[int, int] | None:
    """Drafts accepted at the first position and tokens accepted after it, where hardly any is; None where that is not so or not known."""
    positions = counts.accepted_per_position
    if positions is None or len(positions) < 2 or positions[0] < FEWEST_REACHED:
        return None
    return (positions[0], sum(positions[1:])) if positions[1] <= HARDLY_AFTER_FIRST * positions[0] else None


def _after_first(case: Case) -> Iterator[Cause | Unchecked]:
    counts, k = case.counts, case.draft_tokens
    if counts is None or counts.accepted_per_position is None:
        yield Unchecked("draft_faulty_after_first", "acceptance by position")
        return
    found = first_only(counts)
    if found is None or not case.drafts_always or is_dead(case):
        return
    high = wilson(successes=counts.accepted_per_position[1], n=found[0], confidence=case.confidence).high or 0.0
    yield Cause(
        "draft_faulty_after_first",
        f"the first position is accepted in {found[0]} of {counts.drafts} drafts, and of these {counts.accepted_per_position[1]} go on to "
        f"the second: a weak draft falls off slowly, this one is fed wrongly from the second position on (K = {k})",
        {"drafts": counts.drafts, "survival_1": counts.survival[0], "accepted_after_first": found[1]},
        "check what the draft gets as input after its first token (hidden states, positions, block table) and the training of the head's "
        "later steps; until then draft one token",
        Surely.SURE if high < 2 * HARDLY_AFTER_FIRST else Surely.LIKELY,
        0.9,
    )


def _weak(case: Case) -> Iterator[Cause | Unchecked]:
    """Low acceptance is a cause only where drafting does not pay: α = .2 may, and .74 may not."""
    alpha, tokens, k = case.figures.alpha, case.figures.tokens_per_step, case.draft_tokens
    if alpha is None or case.pays is None:
        needs = (
            "acceptance" if alpha is None else "a baseline run under the same load: whether an acceptance is low depends on what steps cost"
        )
        yield Unchecked("low_acceptance", needs)
        return
    if case.pays or is_dead(case):
        return
    beta, short = None, shortfall(case)
    if k is not None and tokens is not None and case.drafts_always and 1 <= tokens.value <= k + 1:
        beta = conditional_from_tokens(tokens.value, draft_tokens=k)
    weak = (alpha.value if beta is None else beta) < WEAK
    if not weak and (short is None or short.fewer <= short.dearer):
        return
    figures = {"alpha": alpha.value} | ({} if beta is None or tokens is None else {"tokens_per_step": tokens.value, "conditional": beta})
    shown = f"α = {alpha.value:.3g}" + ("" if beta is None else f", {beta:.2f} of the drafts that are reached")
    yield Cause(
        "low_acceptance",
        f"{shown}; a draft that fits its target has about {USUAL_CONDITIONAL:g} at every position",
        figures,
        "check that the draft belongs to this target and revision, that prompts go through the target's chat template, and that sampling "
        "is that of production; then train or choose a draft on this traffic",
        Surely.LIKELY if beta is not None and weak else Surely.POSSIBLE,
        0.2 if short is None else max(0.0, 1 - 1 / short.fewer),
    )


def _lookup(case: Case) -> Iterator[Cause | Unchecked]:
    counts = case.counts
    if case.drafts_always or counts is None:
        return
    try:
        coverage = counts.coverage
    except NoEvidenceError:
        yield Unchecked("lookup_seldom_matches", "decode steps beside drafts: counters of drafts leave out steps without a match")
        return
    if case.pays or coverage >= SELDOM:
        return
    yield Cause(
        "lookup_seldom_matches",
        f"a match was found in {coverage:.1%} of the steps; in all others the lookup and the wider step are for nothing",
        {"coverage": coverage, "acceptance_length": counts.acceptance_length},
        "prompt lookup pays where answers repeat their prompts (summaries, edits, code): send only that traffic to it, or use a trained "
        "draft; `replay` tells the coverage of logged traffic without a server",
        Surely.LIKELY,
        1 - coverage,
    )


def _temperature(case: Case) -> Iterator[Cause | Unchecked]:
    alpha, told = case.figures.alpha, case.told.get("temperature")
    temperature = _number(told)
    if temperature is None:
        yield Unchecked("temperature", "the temperature of the requests; bench records it")
        return
    if temperature == 0 or alpha is None or alpha.value >= WEAK or not case.drafts_always:
        return
    yield Cause(
        "temperature",
        f"requests were drawn at temperature {temperature:g} with α = {alpha.value:.3g}; a greedy draft is accepted only as often as the "
        "target draws its most likely token",
        {"temperature": temperature, "alpha": alpha.value},
        "measure at production's temperature; where the server can, let the draft sample too (vLLM: draft_sample_method probabilistic), "
        "and measure once at 0 to see what the temperature costs",
        Surely.POSSIBLE,
        0.3,
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _few(case: Case) -> Iterator[Cause | Unchecked]:
    """Prompts where requests tell, else drafts."""
    per_prompt = np.array([counts.acceptance_length for _, counts in case.counted])
    if per_prompt.size:
        mean = mean_interval(per_prompt, confidence=case.confidence)
        half = None if mean.high is None else mean.high - mean.value
        if half is not None and half <= WIDE * mean.value:
            return
        yield Cause(
            "too_few_prompts",
            f"{mean.n} prompts give {mean.value:.3g} tokens per drafted step"
            + ("" if half is None else f" within ± {half:.2g}")
            + "; repeats of one greedy prompt would add nothing",
            {"prompts": mean.n, "tokens_per_step": mean.value} | ({} if half is None else {"half_width": half}),
            "measure more different prompts; a change of 10 % cannot be claimed from these",
            Surely.SURE,
            0.5,
        )
    elif case.counts is not None and case.counts.drafts < FEWEST_DRAFTS and not is_dead(case):
        yield Cause(
            "too_few_drafts",
            f"{case.counts.drafts} drafts of a handful of answers: acceptance differs by half between prompts",
            {"drafts": case.counts.drafts},
            "measure longer, over many prompts",
            Surely.SURE,
            0.4,
        )


def _over_time(case: Case) -> Iterator[Cause | Unchecked]:
    """The first third of the requests against the last, each request less its segment's mean, so that a changing mix is no decay."""
    ordered = sorted(case.counted, key=lambda each: each[0].timing.arrived_at_s)
    if len(ordered) < FEWEST_OVER_TIME:
        yield Unchecked("acceptance_decays", f"acceptance of {FEWEST_OVER_TIME} requests or more, in the order in which they came")
        return
    rates = np.array([counts.alpha for _, counts in ordered])
    segments = np.array([record.segment for record, _ in ordered])
    flat = rates.copy()
    for name in np.unique(segments):
        flat[segments == name] += rates.mean() - rates[segments == name].mean()
    third = len(ordered) // 3
    first, last = flat[:third], flat[-third:]
    if last.mean() >= FELL * first.mean() or not surely_lower(last, first):
        return
    span_s = ordered[-1][0].timing.arrived_at_s - ordered[0][0].timing.arrived_at_s
    yield Cause(
        "acceptance_decays",
        f"α falls from {first.mean():.3g} in the first third of the requests to {last.mean():.3g} in the last, over {span_s:.0f} s",
        {"alpha_first": float(first.mean()), "alpha_last": float(last.mean()), "span_s": span_s},
        "restart the server and see whether acceptance comes back; if so, pin another version and alert on acceptance in production",
        Surely.LIKELY,
        1 - float(last.mean() / first.mean()),
    )


def surely_lower(low: FloatArray, high: FloatArray) -> bool:
    """Whether the mean of one sample surely lies below the other's: Welch's t test, one false alarm in a thousand; two values each."""
    errors = np.array([low.var(ddof=1) / low.size, high.var(ddof=1) / high.size])
    if errors.sum() == 0:
        return bool(low.mean() < high.mean())
    freedom = errors.sum() ** 2 / (errors**2 / np.array([low.size - 1, high.size - 1])).sum()
    return bool(stdtr(freedom, (low.mean() - high.mean()) / np.sqrt(errors.sum())) < 0.001)
