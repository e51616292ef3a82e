"""What the compiled step knows: the replica's rules and costs, and everything that changes.

A request is a row of `State.table`. Columns, counters and seconds are the constants below; ids of prefix blocks count from 0.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "ACCEPTED",
    "ARRIVED",
    "BLOCKS",
    "BUFFER",
    "CACHED",
    "CHUNKS",
    "CLOCK",
    "COLUMNS",
    "COUNTERS",
    "Cost",
    "DECODES",
    "DECODE_SECONDS",
    "DRAFTED",
    "DRAFT_NOW",
    "EMITTED",
    "EVICTABLE",
    "FINISHED",
    "FREE_BLOCKS",
    "FREE_BUFFERS",
    "INSTANTS_FROM",
    "KEY_A",
    "KEY_B",
    "KV",
    "LEAST_FREE_BLOCKS",
    "LOGGED",
    "LOGGED_INSTANTS",
    "Lengths",
    "NEWEST",
    "NEXT",
    "OLDEST",
    "OUTPUT",
    "PAUSED",
    "PINNED",
    "PLANNED",
    "PREEMPTED",
    "PREEMPTIONS",
    "PREFILL",
    "PROMPT",
    "REFUSE",
    "REFUSED",
    "RUNNING",
    "Rules",
    "SIZES_FROM",
    "SLOT_NOW",
    "SOURCE",
    "STEPS",
    "State",
    "TAKEN_STEPS",
    "TIMES_PREEMPTED",
    "VERIFY_NOW",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SizeArray = npt.NDArray[np.int16]

# Columns of `table`: what is asked for, …
PROMPT, OUTPUT, REFUSE, KEY_A, KEY_B = range(5)
# … where the request stands (PREFILL: tokens its KV needs before it decodes; ACCEPTED: drafts accepted in this step; SOURCE: the step whose
# draws decide; PINNED: whether it pins its prefix), …
KV, PREFILL, EMITTED, BLOCKS, PLANNED, ACCEPTED, BUFFER, SOURCE, PINNED = range(5, 14)
# … what has come of it (DRAFTED: tokens drafted; CACHED: prompt tokens that a cached prefix saved).
STEPS, CHUNKS, TIMES_PREEMPTED, DRAFTED, CACHED = range(14, 19)
# Where its chunks are: sizes from SIZES_FROM on in `log_tokens`; instants from INSTANTS_FROM on in `step_at_s`, or where it PAUSED between
# two chunks in `log_at_s`.
SIZES_FROM, INSTANTS_FROM, PAUSED = range(19, 22)
COLUMNS = 22

# `counts`; NEXT is the first request that was never admitted, DECODES are request-steps, TAKEN_STEPS engine steps.
ARRIVED, NEXT, RUNNING, PREEMPTED, FINISHED, REFUSED = range(6)
FREE_BLOCKS, LEAST_FREE_BLOCKS, FREE_BUFFERS, LOGGED, DECODES, PREEMPTIONS, TAKEN_STEPS = range(6, 13)
# The step's draft length, the tokens a drafting request verifies, the ladder's slot; the ends and the length of the list of evictable
# prefix blocks.
DRAFT_NOW, VERIFY_NOW, SLOT_NOW, OLDEST, NEWEST, EVICTABLE = range(13, 19)
# Instants in `log_at_s`; LOGGED counts sizes.
LOGGED_INSTANTS = 19
COUNTERS = 20

# `seconds`: the clock, and Σ over engine steps of duration × decoding requests.
CLOCK, DECODE_SECONDS = range(2)


class Lengths(NamedTuple):
    """The draft length by batch size: `by_batch` holds it, or with a ladder (`rungs` not empty) the ladder's slot."""

    by_batch: IntArray  # [max requests + 1]
    candidates: IntArray  # [slots, most rungs], rising
    rungs: IntArray  # [slots], candidates in use
    up: FloatArray  # [slots], hysteresis
    down: FloatArray  # [slots], hysteresis
    weight: float
    warm_up: int
    interval: int


class Rules(NamedTuple):
    """What does not change while the replica runs; `concurrency` is 0 in an open loop."""

    block_tokens: int
    max_requests: int
    token_budget: int
    draft_tokens: int
    verified_tokens: int
    two_pass: int
    concurrency: int
    prefix_tokens: int
    dropped_tokens: int
    persistence: float
    lengths: Lengths


class Cost(NamedTuple):
    """Step costs as the kernel takes them, those of drafting by draft length."""

    token_s: FloatArray  # [tokens + 1]
    kv_token_s: FloatArray  # [K + 1]
    prefill_attention_s: float
    draft_s: FloatArray  # [K + 1, requests + 1]


class State(NamedTuple):
    """Everything that changes.

    A request's chunks stay in its buffer until it finishes. A chunk arrives at the end of a step, so that the instants of a request that
    got one in every step are a stretch of `step_at_s`; only those of a request that paused are copied to `log_at_s`.
    """

    table: IntArray  # [requests, COLUMNS]
    arrived_at_s: FloatArray  # [requests]
    coverage: FloatArray  # [requests]
    conditional: FloatArray  # [requests, K]
    accepted: IntArray  # [requests, K + 1], drafted steps by drafts accepted
    running: IntArray  # [seats], in order of admission
    preempted: IntArray  # [seats], a stack: the head of the queue is last
    buffers: IntArray  # [seats], a stack of free buffers
    buffer_at_s: FloatArray  # [seats, longest output]
    buffer_tokens: SizeArray  # [seats, longest output]
    step_at_s: FloatArray  # [room], the ends of the steps taken
    log_at_s: FloatArray  # [output tokens]
    log_tokens: SizeArray  # [output tokens], or empty without drafts, where every chunk has one token
    counts: IntArray  # [COUNTERS]
    seconds: FloatArray  # [2]
    rung: IntArray  # [slots], the ladder's place
    ema: FloatArray  # [slots], moving mean of accepted drafts
    batches: IntArray  # [slots], batches seen
    prefix_from: IntArray  # [requests + 1], where a request's ids start
    prefix_ids: IntArray  # [ids of all requests]
    pins: IntArray  # [ids], requests that run on the block; 0 where it can be evicted, -1 where it is not cached
    older: IntArray  # [ids], the next older evictable block, -1 at the end
    newer: IntArray  # [ids], the next newer one, -1 at the end
