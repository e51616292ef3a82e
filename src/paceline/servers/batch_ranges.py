"""From draft lengths at some batch sizes to draft lengths at all of them.

Between two sizes that were looked at, the cut lies halfway on a logarithmic scale, rounded down: concurrencies are looked at in powers.
Below the smallest and above the largest the nearest one holds. A larger batch has less room for drafts, but no cut-over is written that
nobody looked at: `not_looked_at` says from where on nothing is known.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import isqrt

from paceline.errors import BadInputError, is_count

__all__ = ["BatchRange", "batch_ranges", "not_looked_at"]

BatchRange = tuple[int, int, int]  # first batch size, last one (both inclusive), draft length


def batch_ranges(best: Mapping[int, int], *, most_requests: int) -> tuple[BatchRange, ...]:
    """Ranges from 1 to `most_requests` without gaps, neighbours of one draft length joined; `best` is draft length by batch size.

    Raises:
        BadInputError: no batch size, one outside 1 to `most_requests`, or a draft length below 0.

    """
    sizes = sorted(best)
    if not sizes or not all(is_count(each, least=1) and each <= most_requests for each in sizes):
        raise BadInputError(f"batch sizes {sizes} are not one or more between 1 and {most_requests}, the requests a replica runs")
    if not all(is_count(best[each], least=0) for each in sizes):
        raise BadInputError(f"draft lengths {[best[each] for each in sizes]} are not whole numbers from 0 on")
    ends = [*(isqrt(low * high) for low, high in pairwise(sizes)), most_requests]
    ranges: list[BatchRange] = []
    for end, length in zip(ends, (best[size] for size in sizes), strict=True):
        start = ranges[-1][1] + 1 if ranges else 1
        if ranges and ranges[-1][2] == length:
            start = ranges.pop()[0]
        ranges.append((start, end, length))
    return tuple(ranges)


def not_looked_at(best: Mapping[int, int], *, most_requests: int) -> int | None:
    """The first batch size above all that were looked at, where a replica runs as many; None where the largest was."""
    largest = max(best)
    return largest + 1 if largest < most_requests else None
