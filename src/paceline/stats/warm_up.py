"""When a server is warm: rounds of the same small load take the same time.

A cold server compiles kernels, captures graphs and fills caches; its first answers take seconds where later ones take milliseconds. A
round is one answer's time for each of a few requests sent at once. The server has settled when a round's median is no longer clearly below
that of the round before it.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["has_settled", "rounds_needed"]

FloatArray = npt.NDArray[np.float64]

STILL_FALLING = 0.9


def has_settled(before_s: FloatArray, now_s: FloatArray) -> bool:
    """Whether the later round's median is at least nine tenths of the earlier one's. Seconds, shape [requests] each, neither empty."""
    return bool(np.median(now_s) >= STILL_FALLING * np.median(before_s))


def rounds_needed(rounds: Sequence[FloatArray]) -> int | None:
    """After how many rounds the server had settled: the first one that the next does not clearly undercut; None where none is known."""
    for place, (before_s, now_s) in enumerate(pairwise(rounds)):
        if has_settled(before_s, now_s):
            return place + 1
    return None
