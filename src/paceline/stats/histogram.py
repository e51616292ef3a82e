"""A quantile of which only a histogram is known: how many values lie at or below each of a few edges.

The sample's quantile is somewhere in its bucket, so the bucket's edges are as much of an interval as rounding alone leaves. On top of it
comes chance: the order statistics that hold the true quantile at the confidence (`stats.intervals`) may lie in other buckets, and then the
interval reaches to theirs. Its ends are always edges, below the first edge 0; nothing is said of what lies above the last.
"""

from collections.abc import Sequence
from math import ceil, inf

from paceline.errors import NoEvidenceError
from paceline.stats.intervals import binomial_quantile
from paceline.verdict import Estimate

__all__ = ["CONFIDENCE", "bucket_quantile"]

CONFIDENCE = 0.99  # at which a histogram is read where nobody asks yet: it serves every usual policy's


def bucket_quantile(
    buckets: Sequence[tuple[float, int]],  # upper edge, values at or below it; the last edge is infinite
    q: float,
    *,
    independent: int,
    confidence: float,
) -> Estimate:
    """The q-quantile of values from 0 on, `value` by a straight line through its bucket, the ends edges of buckets.

    `independent` of the values are worth as much as all (requests, where there are several values of each); `n` is that number. An upper
    end in the last bucket, or beyond the sample, is None. Where the value itself lies in the last bucket it is that bucket's lower edge.

    Raises:
        NoEvidenceError: no values.

    """
    n = buckets[-1][1] if buckets else 0
    if n == 0 or independent == 0:
        raise NoEvidenceError("no values in the histogram, so no quantile")
    edges = [0.0, *(edge for edge, _ in buckets)]
    counts = [0, *(count for _, count in buckets)]
    tail = (1 - confidence) / 2
    first = max(1, binomial_quantile(tail, independent, q))
    last = binomial_quantile(1 - tail, independent, q) + 1
    at = _bucket_of(counts, max(1, ceil(q * n)))
    low = edges[min(at, _bucket_of(counts, max(1, ceil(first * n / independent))))]
    value = _within(edges, counts, at, q * n)
    high = edges[max(at, _bucket_of(counts, ceil(last * n / independent))) + 1] if last <= independent else inf
    return Estimate(value=value, low=min(low, value), high=high if high < inf else None, confidence=confidence, n=independent)


def _bucket_of(counts: Sequence[int], rank: int) -> int:
    """Which bucket holds the value of that rank, from 1 on; bucket i lies between edges i and i + 1."""
    return next(i for i, count in enumerate(counts[1:]) if count >= rank)


def _within(edges: Sequence[float], counts: Sequence[int], at: int, rank: float) -> float:
    """The value at that rank if a bucket's values lie evenly in it."""
    if edges[at + 1] == inf:
        return edges[at]
    share = min(1.0, max(0.0, (rank - counts[at]) / (counts[at + 1] - counts[at])))
    return edges[at] + share * (edges[at + 1] - edges[at])
