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
   What a prefix cache holds of a prompt is not prefilled at admission.
7. The clock jumps only when nothing runs and nothing waits.

Because the oldest plan first, only the youngest running request can be in mid-prefill, so decoding comes before prefill. The oldest one can
always take every block, and alone it fits (rule 1), so something always runs.

Chance is in `draws`, the draft length of a step in `ladder`, the prefix cache in `prefixes`, and all that changes in `state`. `advance` can
be called again to go on.
"""

from paceline.simulate import draws, ladder, prefixes
from paceline.simulate import state as s
from paceline.simulate.compiled import compiled
from paceline.simulate.state import (
    ACCEPTED,
    ARRIVED,
    BLOCKS,
    BUFFER,
    CACHED,
    CHUNKS,
    CLOCK,
    DECODE_SECONDS,
    DECODES,
    DRAFT_NOW,
    DRAFTED,
    EMITTED,
    FINISHED,
    FREE_BLOCKS,
    FREE_BUFFERS,
    INSTANTS_FROM,
    KV,
    LEAST_FREE_BLOCKS,
    LOGGED,
    LOGGED_INSTANTS,
    NEXT,
    OUTPUT,
    PAUSED,
    PLANNED,
    PREEMPTED,
    PREEMPTIONS,
    PREFILL,
    PROMPT,
    REFUSE,
    REFUSED,
    RUNNING,
    SIZES_FROM,
    SOURCE,
    STEPS,
    TAKEN_STEPS,
    TIMES_PREEMPTED,
    VERIFY_NOW,
    Cost,
    IntArray,
    Rules,
    State,
)

__all__ = ["abort", "advance"]


@compiled(s, draws, ladder, prefixes)
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


@compiled(s, draws, ladder, prefixes)
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


@compiled(s, draws, ladder, prefixes)
def _preempt_last(state: State) -> None:
    """Send the most recently admitted request back to the head of the queue: rule 3."""
    table, counts = state.table, state.counts
    counts[RUNNING] -= 1
    r = state.running[counts[RUNNING]]
    prefixes.unpin(state, r)
    counts[FREE_BLOCKS] += table[r, BLOCKS]
    table[r, BLOCKS] = 0
    table[r, KV] = 0
    table[r, TIMES_PREEMPTED] += 1
    state.preempted[counts[PREEMPTED]] = r
    counts[PREEMPTED] += 1
    counts[PREEMPTIONS] += 1


@compiled(s, draws, ladder, prefixes)
def _wanted(table: IntArray, r: int, budget: int, verified: int, coverage: float) -> int:
    """Tokens that running request r plans, out of what is left of the budget: rule 2."""
    if table[r, KV] < table[r, PREFILL]:
        return int(min(table[r, PREFILL] - table[r, KV], budget))
    if verified == 1 or budget < verified or not draws.drafts_now(table, r, coverage):
        return min(1, budget)
    return int(verified)


@compiled(s, draws, ladder, prefixes)
def _plan_running(state: State, rules: Rules) -> int:
    """Plan the running requests, preempting where blocks are missing; what is left of the token budget."""
    table, counts, running = state.table, state.counts, state.running
    budget = rules.token_budget
    place = 0
    while place < counts[RUNNING]:
        r = running[place]
        wanted = _wanted(table, r, budget, counts[VERIFY_NOW], state.coverage[r])
        while place < counts[RUNNING] and not _hold(table, counts, r, table[r, KV] + wanted, rules.block_tokens):
            _preempt_last(state)
        if place < counts[RUNNING]:
            table[r, PLANNED] = wanted
            budget -= wanted
        place += 1
    return budget


@compiled(s, draws, ladder, prefixes)
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
        cached = prefixes.cached_tokens(state, rules, r)
        chunk = min(known - cached, budget)
        if not _hold(table, counts, r, cached + chunk, rules.block_tokens):
            return
        if counts[PREEMPTED]:
            counts[PREEMPTED] -= 1
        else:
            counts[NEXT] += 1
            counts[FREE_BUFFERS] -= 1
            table[r, BUFFER] = state.buffers[counts[FREE_BUFFERS]]
        table[r, KV] = cached
        table[r, CACHED] += cached
        table[r, PREFILL] = known
        table[r, PLANNED] = chunk
        state.running[counts[RUNNING]] = r
        counts[RUNNING] += 1
        budget -= chunk


@compiled(s, draws, ladder, prefixes)
def _forward(state: State, rules: Rules, cost: Cost) -> float:
    """Draft and verify what was planned; the step's seconds: rule 5."""
    table, counts = state.table, state.counts
    draft_tokens = counts[DRAFT_NOW]
    tokens = decoding = drafting = context = pairs = kept = rejected = rejected_context = 0
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
            accepted = draws.accepted_drafts(table, r, state.conditional, draft_tokens)
            table[r, ACCEPTED] = accepted
            table[r, DRAFTED] += planned - 1
            state.accepted[r, accepted] += 1
            kept += accepted
            if accepted < draft_tokens:
                rejected += 1
                rejected_context += kv
    assert tokens > 0, "a step without a token although a request could run"
    kv_token_s = cost.kv_token_s[draft_tokens]
    seconds = cost.token_s[tokens] + kv_token_s * context + cost.prefill_attention_s * pairs + cost.draft_s[draft_tokens, drafting]
    if rules.two_pass and rejected:
        seconds += cost.token_s[rejected] + kv_token_s * rejected_context
    ladder.learn(state, rules, decoding, kept)
    counts[DECODES] += decoding
    counts[TAKEN_STEPS] += 1
    state.seconds[DECODE_SECONDS] += seconds * decoding
    return float(seconds)


@compiled(s, draws, ladder, prefixes)
def _leave(state: State, r: int) -> None:
    """Free what request r holds."""
    table, counts = state.table, state.counts
    prefixes.unpin(state, r)
    counts[FREE_BLOCKS] += table[r, BLOCKS]
    table[r, BLOCKS] = 0
    counts[FINISHED] += 1
    state.buffers[counts[FREE_BUFFERS]] = table[r, BUFFER]
    counts[FREE_BUFFERS] += 1


@compiled(s, draws, ladder, prefixes)
def _finish(state: State, r: int) -> None:
    """Let request r go and keep what it got."""
    table, counts = state.table, state.counts
    _leave(state, r)
    buffer, chunks = table[r, BUFFER], table[r, CHUNKS]
    if table[r, PAUSED]:
        table[r, INSTANTS_FROM] = counts[LOGGED_INSTANTS]
        for chunk in range(chunks):
            state.log_at_s[counts[LOGGED_INSTANTS] + chunk] = state.buffer_at_s[buffer, chunk]
        counts[LOGGED_INSTANTS] += chunks
    if len(state.log_tokens):
        table[r, SIZES_FROM] = counts[LOGGED]
        for chunk in range(chunks):
            state.log_tokens[counts[LOGGED] + chunk] = state.buffer_tokens[buffer, chunk]
        counts[LOGGED] += chunks


@compiled(s, draws, ladder, prefixes)
def _emit(state: State, rules: Rules) -> None:
    """Give every request its tokens at the clock, and let the finished leave: rule 6."""
    table, counts, running = state.table, state.counts, state.running
    clock, step, kept = state.seconds[CLOCK], counts[TAKEN_STEPS] - 1, 0
    state.step_at_s[step] = clock
    for place in range(counts[RUNNING]):
        r = running[place]
        planned = table[r, PLANNED]
        emitted = 0
        if planned and table[r, KV] < table[r, PREFILL]:
            table[r, KV] += planned
            if table[r, KV] == table[r, PREFILL]:
                emitted = 1
                prefixes.pin(state, r)
        elif planned:
            table[r, STEPS] += 1
            if rules.persistence > 0.0:
                draws.next_source(table, r, rules.persistence)
            else:
                table[r, SOURCE] = table[r, STEPS]
            emitted = 1 + table[r, ACCEPTED]
            table[r, KV] += emitted
        if emitted:
            emitted = min(emitted, table[r, OUTPUT] - table[r, EMITTED])
            table[r, EMITTED] += emitted
            chunk = table[r, CHUNKS]
            if chunk == 0:
                table[r, INSTANTS_FROM] = step
            elif table[r, INSTANTS_FROM] + chunk != step:
                table[r, PAUSED] = 1
            state.buffer_at_s[table[r, BUFFER], chunk] = clock
            state.buffer_tokens[table[r, BUFFER], chunk] = emitted
            table[r, CHUNKS] = chunk + 1
        if table[r, EMITTED] == table[r, OUTPUT]:
            _finish(state, r)
        else:
            running[kept] = r
            kept += 1
    counts[RUNNING] = kept


@compiled(s, draws, ladder, prefixes)
def advance(state: State, rules: Rules, cost: Cost, most_steps: int) -> None:
    """Run until every request has left, `most_steps` engine steps were taken or `step_at_s` is full; may be called again to go on."""
    counts, seconds = state.counts, state.seconds
    for _ in range(min(most_steps, len(state.step_at_s) - counts[TAKEN_STEPS])):
        _arrive(state, rules)
        if counts[ARRIVED] == counts[FINISHED] + counts[REFUSED]:
            if counts[ARRIVED] == len(state.table):
                return
            seconds[CLOCK] = state.arrived_at_s[counts[ARRIVED]]
            _arrive(state, rules)
            continue
        ladder.choose_length(state, rules)
        preempted_before = counts[PREEMPTIONS]
        budget = _plan_running(state, rules)
        if counts[PREEMPTIONS] == preempted_before:
            _admit(state, rules, budget)
        prefixes.evict(state, rules)
        seconds[CLOCK] += _forward(state, rules, cost)
        _emit(state, rules)


@compiled(s, draws, ladder, prefixes)
def _without(members: IntArray, count: int, r: int) -> int:
    """How many members are left when r, if it is one, is taken out; the others keep their order."""
    kept = 0
    for place in range(count):
        members[kept] = members[place]
        kept += members[place] != r
    return kept


@compiled(s, draws, ladder, prefixes)
def abort(state: State, r: int) -> None:
    """Let request r, which has not left yet, go between two steps: what it holds is free, and where it waits it is refused."""
    table, counts = state.table, state.counts
    admitted = counts[RUNNING] + counts[PREEMPTED]
    counts[RUNNING] = _without(state.running, counts[RUNNING], r)
    counts[PREEMPTED] = _without(state.preempted, counts[PREEMPTED], r)
    if counts[RUNNING] + counts[PREEMPTED] < admitted:
        _leave(state, r)
        return
    table[r, REFUSE] = 1
    if r < counts[ARRIVED]:
        counts[REFUSED] += 1
