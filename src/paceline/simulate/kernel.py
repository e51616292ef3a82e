"""The engine step, compiled: who runs, what it costs, what it emits.

Rules, in the order of one step (vLLM's scheduler, version 1, is the model):

1. Requests arrive: at their own instants (open loop), or as others leave (closed loop). What could never fit into the KV cache is refused.
2. Running requests plan first, oldest admission first. A decoding request plans 1 token, or all it verifies where it drafts; a draft that
   does not fit into what is left of the token budget is left out. A prefilling one plans as much as the budget leaves.
3. Planned tokens need KV slots, look-ahead slots for drafts included. While blocks are missing, the most recently admitted request is
   preempted: its blocks are freed and it goes to the head of the queue, to prefill its prompt and all it has emitted again.
4. If nobody was preempted, waiting requests are admitted first come, first served, while budget, seats and blocks for the first chunk last.
5. The step takes token_s[tokens] + kv_token_s · Σ context + prefill_attention_s · Σ (token, context) pairs of prefill + draft_s[drafting].
   With a second pass, requests with a rejection add token_s[rejected] + kv_token_s · Σ their context.
6. At its end every decoding request emits 1 + accepted tokens in one chunk, cut at its output length; the last chunk of a prefill emits
   one. Blocks once held are kept until the request leaves or is preempted.
7. The clock jumps only when nothing runs and nothing waits.

Because the oldest plan first, only the youngest running request can be in mid-prefill, so decoding comes before prefill. The oldest one can
always take every block, and alone it fits (rule 1), so something always runs.

Chance is a hash of (request's keys, its step, position): it depends neither on the schedule nor on the load, so arms share it. It is made
of 32-bit words inside int64, which overflow neither compiled nor interpreted. All compiled functions live in this one module, because
numba's cache does not notice a change in another one.

A request is a row of `table`; columns and counters are the constants below. `advance` can be called again to go on.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = [
    "ACCEPTED",
    "ARRIVED",
    "BLOCKS",
    "BUFFER",
    "CHUNKS",
    "CHUNKS_FROM",
    "CLOCK",
    "COLUMNS",
    "COUNTERS",
    "Cost",
    "DECODES",
    "DECODE_SECONDS",
    "EMITTED",
    "FINISHED",
    "FREE_BLOCKS",
    "FREE_BUFFERS",
    "KEY_A",
    "KEY_B",
    "KV",
    "LEAST_FREE_BLOCKS",
    "LOGGED",
    "NEXT",
    "OUTPUT",
    "PLANNED",
    "PREEMPTED",
    "PREEMPTIONS",
    "PREFILL",
    "PROMPT",
    "REFUSE",
    "REFUSED",
    "RUNNING",
    "Rules",
    "STEPS",
    "State",
    "TAKEN_STEPS",
    "TIMES_PREEMPTED",
    "advance",
    "uniform",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Columns of `table`: what is asked for, …
PROMPT, OUTPUT, REFUSE, KEY_A, KEY_B = range(5)
# … where the request stands (PREFILL: tokens its KV needs before it decodes; ACCEPTED: drafts accepted in this step), …
KV, PREFILL, EMITTED, BLOCKS, PLANNED, ACCEPTED, BUFFER = range(5, 12)
# … and what has come of it.
STEPS, CHUNKS, CHUNKS_FROM, TIMES_PREEMPTED = range(12, 16)
COLUMNS = 16

# `counts`; NEXT is the first request that was never admitted, DECODES are request-steps, TAKEN_STEPS engine steps.
ARRIVED, NEXT, RUNNING, PREEMPTED, FINISHED, REFUSED = range(6)
FREE_BLOCKS, LEAST_FREE_BLOCKS, FREE_BUFFERS, LOGGED, DECODES, PREEMPTIONS, TAKEN_STEPS = range(6, 13)
COUNTERS = 13

# `seconds`: the clock, and Σ over engine steps of duration × decoding requests.
CLOCK, DECODE_SECONDS = range(2)

WORD = 0xFFFFFFFF
WORD_VALUES = 4294967296.0


class Rules(NamedTuple):
    """What does not change while the replica runs; `concurrency` is 0 in an open loop."""

    block_tokens: int
    max_requests: int
    token_budget: int
    draft_tokens: int
    verified_tokens: int
    two_pass: int
    concurrency: int


class Cost(NamedTuple):
    """A `StepCost` as the kernel takes it."""

    token_s: FloatArray
    kv_token_s: float
    prefill_attention_s: float
    draft_s: FloatArray


class State(NamedTuple):
    """Everything that changes. A request's chunks stay in its buffer until it finishes, then move to the log, one request after another."""

    table: IntArray  # [requests, COLUMNS]
    arrived_at_s: FloatArray  # [requests]
    coverage: FloatArray  # [requests]
    conditional: FloatArray  # [requests, K]
    accepted: IntArray  # [requests, K + 1], drafted steps by drafts accepted
    running: IntArray  # [seats], in order of admission
    preempted: IntArray  # [seats], a stack: the head of the queue is last
    buffers: IntArray  # [seats], a stack of free buffers
    buffer_at_s: FloatArray  # [seats, longest output]
    buffer_tokens: IntArray  # [seats, longest output]
    log_at_s: FloatArray  # [output tokens]
    log_tokens: IntArray  # [output tokens], or empty without drafts, where every chunk has one token
    counts: IntArray  # [COUNTERS]
    seconds: FloatArray  # [2]


@njit(cache=True)
def _mixed(word: int) -> int:
    """A 32-bit word scrambled one to one (constants from C. Wellons's hash prospector; below 2^31, so that int64 holds the products)."""
    word ^= word >> 16
    word = (word * 0x21F0AAAD) & WORD
    word ^= word >> 15
    word = (word * 0x735A2D97) & WORD
    return word ^ (word >> 15)


@njit(cache=True)
def uniform(key_a: int, key_b: int, step: int, position: int) -> float:
    """A number in (0, 1), uniform and independent over (keys, step, position); position 0 decides on drafting, i on the i-th draft."""
    at_step = _mixed((key_a + step * 0x1E3779B1) & WORD)
    return (_mixed(at_step ^ ((key_b + position * 0x5BD1E995) & WORD)) + 0.5) / WORD_VALUES


@njit(cache=True)
def _arrive(state: State, rules: Rules) -> None:
    """Let requests in whose time has come: rule 1."""
    table, counts = state.table, state.counts
    requests, clock = len(table), state.seconds[CLOCK]
    while counts[ARRIVED] < requests:
        r = counts[ARRIVED]
        if rules.concurrency > 0:
            if counts[ARRIVED] - counts[REFUSED] - counts[FINISHED] >= rules.concurrency:
                return
            state.arrived_at_s[r] = clock
        elif state.arrived_at_s[r] > clock:
            return
        counts[ARRIVED] += 1
        counts[REFUSED] += table[r, REFUSE]


@njit(cache=True)
def _hold(table: IntArray, counts: IntArray, r: int, tokens: int, block_tokens: int) -> bool:
    """Whether request r now holds blocks for `tokens` KV tokens; takes what is missing if all of it is free."""
    missing = (tokens + block_tokens - 1) // block_tokens - table[r, BLOCKS]
    if missing <= 0:
        return True
    if missing > counts[FREE_BLOCKS]:
        return False
    table[r, BLOCKS] += missing
    counts[FREE_BLOCKS] -= missing
    counts[LEAST_FREE_BLOCKS] = min(counts[LEAST_FREE_BLOCKS], counts[FREE_BLOCKS])
    return True


@njit(cache=True)
def _preempt_last(state: State) -> None:
    """Send the most recently admitted request back to the head of the queue: rule 3."""
    table, counts = state.table, state.counts
    counts[RUNNING] -= 1
    r = state.running[counts[RUNNING]]
    counts[FREE_BLOCKS] += table[r, BLOCKS]
    table[r, BLOCKS] = 0
    table[r, KV] = 0
    table[r, TIMES_PREEMPTED] += 1
    state.preempted[counts[PREEMPTED]] = r
    counts[PREEMPTED] += 1
    counts[PREEMPTIONS] += 1


@njit(cache=True)
def _wanted(state: State, rules: Rules, r: int, budget: int) -> int:
    """Tokens that running request r plans, out of what is left of the budget: rule 2."""
    table = state.table
    if table[r, KV] < table[r, PREFILL]:
        return int(min(table[r, PREFILL] - table[r, KV], budget))
    coverage = state.coverage[r]
    if coverage <= 0.0 or budget < rules.verified_tokens:
        return min(1, budget)
    if coverage < 1.0 and uniform(table[r, KEY_A], table[r, KEY_B], table[r, STEPS], 0) >= coverage:
        return 1
    return rules.verified_tokens


@njit(cache=True)
def _plan_running(state: State, rules: Rules) -> int:
    """Plan the running requests, preempting where blocks are missing; what is left of the token budget."""
    table, counts, running = state.table, state.counts, state.running
    budget = rules.token_budget
    place = 0
    while place < counts[RUNNING]:
        r = running[place]
        wanted = _wanted(state, rules, r, budget)
        while place < counts[RUNNING] and not _hold(table, counts, r, table[r, KV] + wanted, rules.block_tokens):
            _preempt_last(state)
        if place < counts[RUNNING]:
            table[r, PLANNED] = wanted
            budget -= wanted
        place += 1
    return budget


@njit(cache=True)
def _admit(state: State, rules: Rules, budget: int) -> None:
    """Let waiting requests run, the preempted first, within the budget that is left: rule 4."""
    table, counts = state.table, state.counts
    while budget > 0 and counts[RUNNING] < rules.max_requests:
        while counts[NEXT] < counts[ARRIVED] and table[counts[NEXT], REFUSE]:
            counts[NEXT] += 1
        if counts[PREEMPTED] == 0 and counts[NEXT] == counts[ARRIVED]:
            return
        r = state.preempted[counts[PREEMPTED] - 1] if counts[PREEMPTED] else counts[NEXT]
        known = table[r, PROMPT] + table[r, EMITTED]
        chunk = min(known, budget)
        if not _hold(table, counts, r, chunk, rules.block_tokens):
            return
        if counts[PREEMPTED]:
            counts[PREEMPTED] -= 1
        else:
            counts[NEXT] += 1
            counts[FREE_BUFFERS] -= 1
            table[r, BUFFER] = state.buffers[counts[FREE_BUFFERS]]
        table[r, PREFILL] = known
        table[r, PLANNED] = chunk
        state.running[counts[RUNNING]] = r
        counts[RUNNING] += 1
        budget -= chunk


@njit(cache=True)
def _accepted(state: State, r: int, draft_tokens: int) -> int:
    """How many drafts of request r are accepted in this step: the first rejection ends it."""
    table = state.table
    for position in range(draft_tokens):
        if uniform(table[r, KEY_A], table[r, KEY_B], table[r, STEPS], position + 1) >= state.conditional[r, position]:
            return position
    return draft_tokens


@njit(cache=True)
def _forward(state: State, rules: Rules, cost: Cost) -> float:
    """Draft and verify what was planned; the step's seconds: rule 5."""
    table, counts = state.table, state.counts
    tokens = decoding = drafting = context = pairs = rejected = rejected_context = 0
    for place in range(counts[RUNNING]):
        r = state.running[place]
        kv, planned = table[r, KV], table[r, PLANNED]
        tokens += planned
        context += kv if planned else 0
        if kv < table[r, PREFILL]:
            pairs += planned * kv + planned * (planned + 1) // 2
            continue
        decoding += min(planned, 1)
        table[r, ACCEPTED] = 0
        if planned > 1:
            drafting += 1
            accepted = _accepted(state, r, rules.draft_tokens)
            table[r, ACCEPTED] = accepted
            state.accepted[r, accepted] += 1
            if accepted < rules.draft_tokens:
                rejected += 1
                rejected_context += kv
    assert tokens > 0, "a step without a token although a request could run"
    seconds = cost.token_s[tokens] + cost.kv_token_s * context + cost.prefill_attention_s * pairs + cost.draft_s[drafting]
    if rules.two_pass and rejected:
        seconds += cost.token_s[rejected] + cost.kv_token_s * rejected_context
    counts[DECODES] += decoding
    counts[TAKEN_STEPS] += 1
    state.seconds[DECODE_SECONDS] += seconds * decoding
    return float(seconds)


@njit(cache=True)
def _finish(state: State, r: int) -> None:
    """Free what request r holds and move its chunks to the log."""
    table, counts = state.table, state.counts
    counts[FREE_BLOCKS] += table[r, BLOCKS]
    table[r, BLOCKS] = 0
    counts[FINISHED] += 1
    buffer, start = table[r, BUFFER], counts[LOGGED]
    table[r, CHUNKS_FROM] = start
    for chunk in range(table[r, CHUNKS]):
        state.log_at_s[start + chunk] = state.buffer_at_s[buffer, chunk]
    if len(state.log_tokens):
        for chunk in range(table[r, CHUNKS]):
            state.log_tokens[start + chunk] = state.buffer_tokens[buffer, chunk]
    counts[LOGGED] += table[r, CHUNKS]
    state.buffers[counts[FREE_BUFFERS]] = buffer
    counts[FREE_BUFFERS] += 1


@njit(cache=True)
def _emit(state: State) -> None:
    """Give every request its tokens at the clock, and let the finished leave: rule 6."""
    table, counts, running = state.table, state.counts, state.running
    clock, kept = state.seconds[CLOCK], 0
    for place in range(counts[RUNNING]):
        r = running[place]
        planned = table[r, PLANNED]
        emitted = 0
        if planned and table[r, KV] < table[r, PREFILL]:
            table[r, KV] += planned
            emitted = 1 if table[r, KV] == table[r, PREFILL] else 0
        elif planned:
            table[r, STEPS] += 1
            emitted = 1 + table[r, ACCEPTED]
            table[r, KV] += emitted
        if emitted:
            emitted = min(emitted, table[r, OUTPUT] - table[r, EMITTED])
            table[r, EMITTED] += emitted
            chunk = table[r, CHUNKS]
            state.buffer_at_s[table[r, BUFFER], chunk] = clock
            state.buffer_tokens[table[r, BUFFER], chunk] = emitted
            table[r, CHUNKS] = chunk + 1
        if table[r, EMITTED] == table[r, OUTPUT]:
            _finish(state, r)
        else:
            running[kept] = r
            kept += 1
    counts[RUNNING] = kept


@njit(cache=True)
def advance(state: State, rules: Rules, cost: Cost, most_steps: int) -> None:
    """Run until every request has left or `most_steps` engine steps were taken; may be called again to go on."""
    counts, seconds = state.counts, state.seconds
    for _ in range(most_steps):
        _arrive(state, rules)
        if counts[ARRIVED] == counts[FINISHED] + counts[REFUSED]:
            if counts[ARRIVED] == len(state.table):
                return
            seconds[CLOCK] = state.arrived_at_s[counts[ARRIVED]]
            _arrive(state, rules)
            continue
        preempted_before = counts[PREEMPTIONS]
        budget = _plan_running(state, rules)
        if counts[PREEMPTIONS] == preempted_before:
            _admit(state, rules, budget)
        seconds[CLOCK] += _forward(state, rules, cost)
        _emit(state)
