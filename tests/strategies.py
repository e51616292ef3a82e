"""Hypothesis strategies for our records: each draws what a record accepts, edges included, and nothing it refuses."""

import numpy as np
from hypothesis import strategies as st

from paceline.latency import Ended, RequestTiming
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Claim, Estimate
from paceline.workload import Request, Workload

__all__ = [
    "acceptance_counts",
    "acceptances",
    "chain_steps",
    "claims",
    "counts_of_steps",
    "draft_lengths",
    "estimates",
    "probabilities",
    "request_timings",
    "segment_names",
    "workloads",
]

segment_names = st.sampled_from(["chat", "code", "extraction", "summary"])
probabilities = st.floats(0, 1)
draft_lengths = st.integers(1, 8)


@st.composite
def chain_steps(draw: st.DrawFn, *, draft_tokens: int, least: int = 0) -> list[tuple[int, int]]:
    """Steps of a chain as (drafted, accepted) tokens; a step without a draft is (0, 0)."""
    drafted = draw(st.lists(st.sampled_from([0, draft_tokens]), min_size=least, max_size=12))
    return [(each, draw(st.integers(0, each))) for each in drafted]


def counts_of_steps(steps: list[tuple[int, int]], *, draft_tokens: int) -> AcceptanceCounts:
    """The obvious count of (drafted, accepted) steps: the oracle that `+` is held against."""
    return AcceptanceCounts(
        steps=len(steps),
        drafts=sum(1 for drafted, _ in steps if drafted),
        drafted_tokens=sum(drafted for drafted, _ in steps),
        accepted_tokens=sum(accepted for _, accepted in steps),
        accepted_per_position=tuple(sum(1 for _, accepted in steps if accepted > i) for i in range(draft_tokens)),
    )


@st.composite
def acceptance_counts(draw: st.DrawFn, *, complete: bool = False) -> AcceptanceCounts:
    """Counts of any source: steps and positions may be unknown unless `complete`, coverage may be below 1, drafts may be short."""
    positions = sorted(draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=8)), reverse=True)
    drafts = positions[0] + draw(st.integers(0, 10_000))
    drafted_tokens = max(drafts, sum(positions)) + draw(st.integers(0, 10_000)) * (drafts > 0)
    steps = drafts + draw(st.integers(0, 10_000))
    return AcceptanceCounts(
        steps=steps if complete or draw(st.booleans()) else None,
        drafts=drafts,
        drafted_tokens=drafted_tokens,
        accepted_tokens=sum(positions),
        accepted_per_position=tuple(positions) if complete or draw(st.booleans()) else None,
    )


@st.composite
def acceptances(draw: st.DrawFn) -> Acceptance:
    """Any survival that never rises, with any coverage."""
    survival = sorted(draw(st.lists(probabilities, min_size=1, max_size=8)), reverse=True)
    return Acceptance(survival=tuple(survival), coverage=draw(probabilities))


@st.composite
def request_timings(draw: st.DrawFn, *, least_chunks: int = 0) -> RequestTiming:
    """A request of which 0 to 12 chunks arrived, some at the same instant."""
    gaps = draw(st.lists(st.floats(0, 100), min_size=2 + least_chunks, max_size=14))
    arrived_at_s, sent_at_s, *chunk_at_s = np.cumsum(gaps).tolist()
    tokens = draw(st.lists(st.integers(1, 6), min_size=len(chunk_at_s), max_size=len(chunk_at_s)))
    return RequestTiming(
        arrived_at_s=arrived_at_s,
        sent_at_s=sent_at_s,
        chunk_at_s=np.array(chunk_at_s, dtype=np.float64),
        chunk_tokens=np.array(tokens, dtype=np.int64),
        ended=draw(st.sampled_from(Ended)),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """1 to 20 requests of up to four segments, in order of arrival."""
    arrivals = sorted(draw(st.lists(st.floats(0, 1e4), min_size=1, max_size=20)))
    requests = tuple(
        Request(
            id=f"r{i}",
            arrived_at_s=arrived_at_s,
            prompt_tokens=draw(st.integers(1, 8192)),
            output_tokens=draw(st.integers(1, 2048)),
            segment=draw(segment_names),
        )
        for i, arrived_at_s in enumerate(arrivals)
    )
    return Workload(requests=requests, source="drawn", seed=None)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    """An estimate either end of which may be unknown."""
    low, value, high = sorted(draw(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3)))
    return Estimate(
        value=value,
        low=low if draw(st.booleans()) else None,
        high=high if draw(st.booleans()) else None,
        confidence=0.95,
        n=draw(st.integers(0, 1000)),
    )


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    """A bound from above or from below, on all traffic or one segment."""
    bound = draw(st.floats(-1e6, 1e6))
    above = draw(st.booleans())
    return Claim(
        metric="tpot_s.ratio",
        at_most=bound if above else None,
        at_least=None if above else bound,
        segment=draw(st.none() | segment_names),
    )
