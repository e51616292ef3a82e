"""Whether an open loop's server keeps up with its arrivals, and how much of its time goes into prefill.

A server that keeps up lets the last requests wait for their first token about as long as the first ones. Where it does not, the queue and
with it the wait grow as long as requests arrive, and every latency says how long the trace was and not how good the server is.
"""

from dataclasses import dataclass

import numpy as np

from paceline.forecast.step_cost import StepCost
from paceline.run import Run

__all__ = ["Saturation", "saturation"]

LEAST_REQUESTS = 40
GROWTH, LEAST_WAIT_S = 2.0, 1.0
BACKLOG = 0.05  # of the time in which requests arrive


@dataclass(frozen=True, slots=True)
class Saturation:
    """An overrun server.

    Attributes:
        early_ttft_s: median time to first token of the first quarter of requests.
        late_ttft_s: of the last quarter.
        prefill_share: share of the time between steps that decoding does not explain, from 0 to 1.

    """

    early_ttft_s: float
    late_ttft_s: float
    prefill_share: float


def saturation(run: Run, plain: StepCost) -> Saturation | None:
    """How an arm without drafts is overrun; None in a closed loop, where the server keeps up, or with fewer than 40 requests.

    `plain` is what its steps cost.
    """
    requests = [each for each in run.requests or () if each.timing.chunk_at_s.size]
    if run.load.concurrency is not None or len(requests) < LEAST_REQUESTS:
        return None
    requests.sort(key=lambda each: each.timing.arrived_at_s)
    quarter = len(requests) // 4
    waits_s = np.array([each.timing.ttft_s for each in requests])
    early_s, late_s = float(np.median(waits_s[:quarter])), float(np.median(waits_s[-quarter:]))
    first_s, last_s = requests[0].timing.arrived_at_s, requests[-1].timing.arrived_at_s
    backlog_s = max(float(each.timing.chunk_at_s[-1]) for each in requests) - last_s
    if late_s < max(LEAST_WAIT_S, GROWTH * early_s) or backlog_s < BACKLOG * (last_s - first_s):
        return None
    return Saturation(early_ttft_s=early_s, late_ttft_s=late_s, prefill_share=_prefill_share(run, plain))


def _prefill_share(run: Run, plain: StepCost) -> float:
    """Seconds between steps beyond what the requests decoding in them cost, over all of them."""
    requests = [each for each in run.requests or () if each.timing.chunk_at_s.size]
    later = [each for each in requests if each.timing.chunk_at_s.size > 1]
    if not later:
        return 1.0
    ends_s = np.unique(np.concatenate([each.timing.chunk_at_s for each in requests]))
    steps_s = np.diff(ends_s)
    decoding = np.zeros(len(ends_s), dtype=np.int64)
    context = np.zeros(len(ends_s))
    for each in later:
        at = np.searchsorted(ends_s, each.timing.chunk_at_s[1:])
        decoding[at] += 1
        context[at] += each.prompt_tokens + np.cumsum(each.timing.chunk_tokens)[:-1]
    decode_s = plain.token_s[np.minimum(decoding[1:], len(plain.token_s) - 1)] + plain.kv_token_s * context[1:]
    return float(np.maximum(0.0, steps_s - decode_s).sum() / steps_s.sum())
