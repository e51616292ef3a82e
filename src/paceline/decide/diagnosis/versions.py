"""Two speculative runs, an earlier and a later one: an upgrade, another setting, another draft length."""

from collections.abc import Iterator

from paceline.decide.diagnosis.case import Case, measured
from paceline.decide.diagnosis.cause import Cause, Surely, Unchecked
from paceline.run import Run
from paceline.speculation.counts import AcceptanceCounts

__all__ = ["version_causes"]

SAME_ACCEPTANCE = 0.02  # what vLLM's own acceptance tests allow on 80 prompts
SLOWER = 0.98


def version_causes(case: Case) -> Iterator[Cause | Unchecked]:
    """Nothing unless two speculative runs are compared."""
    earlier = case.earlier
    if earlier is None:
        return
    lengths = [None if run.speculation is None else run.speculation.draft_tokens for run in (earlier, case.speculative)]
    if lengths[0] is not None and lengths[1] is not None and lengths[0] != lengths[1]:
        yield from _lengths(case, earlier, lengths[0], lengths[1])
    else:
        yield from _same_length(case, earlier)


def _lengths(case: Case, earlier: Run, before: int, after: int) -> Iterator[Cause | Unchecked]:
    gain = case.figures.gain
    if gain is None:
        yield Unchecked("longer_draft_slower", "the speed of both runs")
        return
    longer_gain = gain.value if after > before else 1 / gain.value
    if longer_gain > SLOWER:
        return
    tokens = [_tokens(case, run) for run in (earlier, case.speculative)]
    known = tokens[0] is not None and tokens[1] is not None
    gained = abs((tokens[1] or 0.0) - (tokens[0] or 0.0))
    better, longer = min(before, after), max(before, after)
    yield Cause(
        "longer_draft_slower",
        f"K = {longer} gives {longer_gain:.3g} times the speed of K = {better}"
        + (f": {longer - better} more drafted tokens yield {gained:.2g} more tokens per step" if known else ""),
        {"better_draft_tokens": better, "draft_tokens": longer, "throughput_ratio": longer_gain}
        | ({"tokens_per_step_gained": gained} if known else {}),
        f"draft {better} tokens; try fewer still, until the speed falls",
        Surely.SURE if gain.low is not None and gain.high is not None and not gain.low <= 1 <= gain.high else Surely.LIKELY,
        1 - longer_gain,
    )


def _tokens(case: Case, run: Run) -> float | None:
    found = measured(None, run, confidence=case.confidence, rng=case.rng).tokens_per_step
    return None if found is None else found.value


def _same_length(case: Case, earlier: Run) -> Iterator[Cause | Unchecked]:
    gain, tokens = case.figures.gain, [_tokens(case, run) for run in (earlier, case.speculative)]
    before, after = tokens
    if before is None or after is None:
        for code in ("acceptance_fell", "slower_at_equal_acceptance"):
            yield Unchecked(code, "tokens per step of both runs")
        return
    speed = {} if gain is None else {"speedup": gain.value}
    if after < before * (1 - SAME_ACCEPTANCE):
        alphas = _alphas(earlier, case.speculative)
        yield Cause(
            "acceptance_fell",
            f"tokens per step fall from {before:.3g} to {after:.3g}",
            {"tokens_per_step_before": before, "tokens_per_step_after": after} | alphas | speed,
            "compare what changed between the two: version, draft checkpoint, how drafts are sampled, template, quantisation of the cache",
            Surely.LIKELY,
            1 - after / before,
        )
    elif gain is None:
        yield Unchecked("slower_at_equal_acceptance", "the speed of both runs")
    elif gain.value < SLOWER:
        yield Cause(
            "slower_at_equal_acceptance",
            f"tokens per step are {before:.3g} and {after:.3g}, and the later run has {gain.value:.3g} times the speed",
            speed | {"tokens_per_step_before": before, "tokens_per_step_after": after},
            "the draft is not the cause: undo the engine's change (version, scheduler, overlap, graphs), not the speculation",
            Surely.SURE if gain.high is not None and gain.high < 1 else Surely.LIKELY,
            1 - gain.value,
        )


def _alphas(earlier: Run, later: Run) -> dict[str, float]:
    pooled = [AcceptanceCounts.pooled((run.acceptance_by_segment or {}).values()) for run in (earlier, later)]
    if not all(each.drafted_tokens for each in pooled):
        return {}
    return {"alpha_before": pooled[0].alpha, "alpha_after": pooled[1].alpha}
