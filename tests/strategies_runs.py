"""Hand-made runs for the tests of statistics, decisions and reports: every latency follows from a few numbers that a test states."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from paceline.latency import Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation


def provenance(evidence: Evidence = Evidence.MEASURED) -> Provenance:
    """Where a hand-made run says it comes from."""
    return Provenance(made_by="bench", version="0.1.0", evidence=evidence, arguments={"seed": "1"}, inputs={"log.jsonl": "ab12"}, seed=1)


def timing(*, sent_at_s: float, ttft_s: float, gaps_s: list[float], tokens: list[int]) -> RequestTiming:
    """One request's chunks from its first instant and the gaps between them."""
    instants = sent_at_s + ttft_s + np.concatenate([[0.0], np.cumsum(gaps_s)])
    return RequestTiming(
        arrived_at_s=sent_at_s, sent_at_s=sent_at_s, chunk_at_s=instants, chunk_tokens=np.array(tokens, dtype=np.int64), ended=Ended.STOP
    )


def _emitted(tokens: int, *, alpha: float, draft_tokens: int, rng: np.random.Generator) -> list[int]:
    """Tokens of each decode step until `tokens` are out, drafts accepted one by one with chance `alpha`."""
    steps: list[int] = []
    left = tokens - 1
    while left > 0:
        drawn = rng.random(draft_tokens).tolist()
        accepted = next((depth for depth, each in enumerate(drawn) if each >= alpha), draft_tokens)
        steps.append(min(accepted + 1, left))
        left -= steps[-1]
    return steps


def record(
    i: int, *, segment: str, step_s: float, alpha: float | None, draft_tokens: int, ttft_s: float, prefix: str, seed: int
) -> RequestRecord:
    """Request number i: length and prompt follow from i alone, so that both arms serve the same ones; `alpha` None decodes plainly."""
    tokens = 40 + (i * 37) % 120
    rng = np.random.default_rng([seed, i])
    emitted = [1] * (tokens - 1) if alpha is None else _emitted(tokens, alpha=alpha, draft_tokens=draft_tokens, rng=rng)
    gaps_s = step_s * (1 + 0.05 * rng.random(len(emitted)))
    counts = None
    if alpha is not None:
        reached = tuple((np.array(emitted)[:, None] > np.arange(1, draft_tokens + 1)).sum(axis=0).tolist())
        n = len(emitted)
        counts = AcceptanceCounts(
            steps=n, drafts=n, drafted_tokens=n * draft_tokens, accepted_tokens=sum(reached), accepted_per_position=reached
        )
    return RequestRecord(
        id=f"{prefix}{i}",
        segment=segment,
        prompt_tokens=100 + i % 50,
        output_tokens=tokens,
        timing=timing(sent_at_s=i * 0.1, ttft_s=ttft_s * (1 + 0.2 * rng.random()), gaps_s=gaps_s.tolist(), tokens=[1, *emitted]),
        acceptance=counts,
        outcome=Outcome.FINISHED,
    )


@lru_cache(maxsize=64)  # the plain arm is nearly always the same, and many tests ask for the same pair
def _records(n: int, mix: tuple[tuple[str, float | None], ...], **how: Any) -> tuple[RequestRecord, ...]:
    """`n` requests, spread over the segments of (name, alpha) in turn."""
    turns = (mix[i % len(mix)] for i in range(n))
    return tuple(record(i, segment=segment, alpha=alpha, **how) for i, (segment, alpha) in enumerate(turns))


def run(
    arm: Arm,
    *,
    n: int,
    step_s: float,
    alphas: Mapping[str, float],
    draft_tokens: int = 3,
    ttft_s: float = 0.2,
    concurrency: int | None = 8,
    evidence: Evidence = Evidence.MEASURED,
    prefix: str = "r",
    seed: int = 7,
) -> Run:
    """A run of `n` requests spread over the segments of `alphas` in turn; the baseline ignores the alphas' values."""
    drafting = arm is Arm.SPECULATIVE
    mix = tuple((name, alpha if drafting else None) for name, alpha in alphas.items())
    records = _records(n, mix, step_s=step_s, draft_tokens=draft_tokens, ttft_s=ttft_s, prefix=prefix, seed=seed + drafting)
    by_segment: dict[str, AcceptanceCounts] = {}
    for each in records:
        if each.acceptance is not None:
            by_segment[each.segment] = by_segment.get(each.segment, AcceptanceCounts.none()) + each.acceptance
    return Run(
        arm=arm,
        speculation=Speculation(method=Method.EAGLE3, draft_tokens=draft_tokens, tree=None) if drafting else None,
        load=Load(concurrency=concurrency, rate_per_s=None),
        requests=records,
        acceptance_by_segment=by_segment or None,
        step_seconds=step_s,
        summaries={},
        window_s=sum(each.timing.e2e_s for each in records) / (concurrency or 1) if records else 1.0,
        provenance=provenance(evidence),
        cautions=(),
    )


def pair(
    *, n: int = 400, step_s: float = 0.012, alphas: Mapping[str, float] | None = None, concurrency: int = 8, draft_tokens: int = 3
) -> tuple[Run, Run]:
    """A plain arm at 10 ms a step and a speculative one at `step_s`, over the same requests."""
    mix = {"chat": 0.7, "code": 0.8} if alphas is None else alphas
    return (
        run(Arm.BASELINE, n=n, step_s=0.010, alphas=mix, concurrency=concurrency),
        run(Arm.SPECULATIVE, n=n, step_s=step_s, alphas=mix, concurrency=concurrency, draft_tokens=draft_tokens),
    )


def summaries_only(
    arm: Arm,
    *,
    step_s: float | None,
    counts: AcceptanceCounts | None,
    draft_tokens: int = 3,
    summaries: Mapping[str, Summary] | None = None,
) -> Run:
    """What a metrics dump knows: totals and means, no request."""
    return Run(
        arm=arm,
        speculation=Speculation(method=Method.EAGLE3, draft_tokens=draft_tokens, tree=None) if arm is Arm.SPECULATIVE else None,
        load=Load(concurrency=None, rate_per_s=None),
        requests=None,
        acceptance_by_segment=None if counts is None else {"all": counts},
        step_seconds=step_s,
        summaries=summaries or {},
        window_s=None,
        provenance=provenance(),
        cautions=(),
    )
