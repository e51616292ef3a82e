"""SGLang's adaptive draft length: the JSON behind --speculative-adaptive-config (0.5.11 and later; EAGLE heads, chains).

The server keeps a moving average of accepted drafts per request and, every few batches, moves to the longest candidate that pays for it.
Candidates are listed by the smallest batch size they hold for; 0 is no speculation. Smoothing, update interval and warm-up are the server's
defaults, and so are the hysteresis downwards and the ceiling; upwards it waits for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import BadInputError
from paceline.servers.batch_ranges import BatchRange, batch_ranges

__all__ = ["adaptive_config", "adaptive_of_ranges", "start_steps"]

SMOOTHING = {"ema_alpha": 0.2, "update_interval": 5, "warmup_batches": 10}
HYSTERESIS = {"up_hysteresis": 0.0, "down_hysteresis": -0.25, "ceiling_coeff": 0.0}


def adaptive_config(best: Sequence[Mapping[int, int]], *, most_requests: int) -> dict[str, Any]:
    """The configuration whose candidates at a batch size are the best draft lengths there, one for each acceptance that is expected.

    `best` has draft length by batch size, once per acceptance.

    Raises:
        BadInputError: no acceptance, or as `batch_ranges`.

    """
    if not best:
        raise BadInputError("no acceptance to adapt to; give at least one")
    return adaptive_of_ranges([batch_ranges(each, most_requests=most_requests) for each in best])


def adaptive_of_ranges(tables: Sequence[Sequence[BatchRange]]) -> dict[str, Any]:
    """The configuration whose candidates at a batch size are the draft lengths that the tables have there; each is without gaps."""
    starts = sorted({start for table in tables for start, _, _ in table})
    candidates = {
        start: sorted({length for table in tables for first, last, length in table if first <= start <= last}) for start in starts
    }
    kept = [start for i, start in enumerate(starts) if i == 0 or candidates[start] != candidates[starts[i - 1]]]
    return {str(start): {"candidate_steps": candidates[start], **HYSTERESIS} for start in kept} | SMOOTHING


def start_steps(config: Mapping[str, Any]) -> int:
    """What --speculative-num-steps is to be: it must be one of the candidates, and the largest lets every other one be reached."""
    return max(int(step) for key, each in config.items() if key not in SMOOTHING for step in each["candidate_steps"])
