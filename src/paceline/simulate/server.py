"""One replica under one load, as a `Run`: with or without drafts, and both arms with the same chance.

The rules of a step are in `kernel`. A closed loop (`load.concurrency`) ignores the workload's instants: that many requests are in flight,
and the next one, in the workload's order, arrives when one leaves. An open loop follows the workload's instants.

The arms share what the requests ask for and every draw, and differ in cost, drafts and KV slots only, so they are compared in pairs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError
from paceline.forecast.step_cost import StepCost
from paceline.run import Load, Run
from paceline.simulate import kernel
from paceline.simulate import state as columns
from paceline.simulate.acceptance_draws import Chance, chance, conditional_by_request
from paceline.simulate.draft_lengths import fixed_length
from paceline.simulate.records import record
from paceline.simulate.replica import RECOMPUTE_LAST_BLOCK, Drafting, Rejection, Replica, need_room
from paceline.simulate.state import Cost, Lengths, Rules, State
from paceline.workload import PREFIX_BLOCK_TOKENS, Request, Workload

__all__ = ["Rows", "cost_of", "costs_of", "idle", "rows_of", "rules_of", "run_through", "simulate", "simulate_arms", "start"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROOM_STEPS = 4_096  # doubled as often as needed


def simulate(
    workload: Workload,
    *,
    replica: Replica,
    step_cost: StepCost | Sequence[StepCost],
    drafting: Drafting | None,
    load: Load,
    seed: int,
) -> Run:
    """What each user of this replica gets, and when: a `Run` with every request's chunks, until the last one leaves.

    Where the draft length changes by batch, `step_cost` is one cost for each length from 0 to K, else the one of the fixed length.
    `drafting` None gives the baseline arm. In the speculative arm acceptance is counted by request and by segment, drafts accepted beyond a
    stop included. A request that could never fit into the KV cache, its look-ahead slots included, is refused at arrival.
    The same arguments give the same bytes.

    Raises:
        BadInputError: the step cost ends before the replica's limits, the token budget is below one drafted request, or the costs are not
            those of the draft lengths.
        UnknownNameError: a segment without acceptance.

    """
    rules = rules_of(replica, drafting=drafting, load=load)
    cost = costs_of(replica, step_cost, drafting=drafting, rules=rules)
    state = start(workload, replica=replica, drafting=drafting, load=load, seed=seed)
    state = run_through(state, rules, cost)
    return record(state, workload, replica=replica, drafting=drafting, load=load, seed=seed)


def simulate_arms(
    workload: Workload,
    *,
    replica: Replica,
    baseline_cost: StepCost,
    speculative_cost: StepCost | Sequence[StepCost],
    drafting: Drafting,
    load: Load,
    seed: int,
) -> tuple[Run, Run]:
    """The baseline and the speculative arm of the same requests under the same load, with the same chance.

    Raises:
        BadInputError: as `simulate`.

    """
    baseline = simulate(workload, replica=replica, step_cost=baseline_cost, drafting=None, load=load, seed=seed)
    speculative = simulate(workload, replica=replica, step_cost=speculative_cost, drafting=drafting, load=load, seed=seed)
    return baseline, speculative


def run_through(state: State, rules: Rules, cost: Cost) -> State:
    """The state in which every request has left: steps are taken, and room is made for their ends, until then."""
    kernel.advance(state, rules, cost, len(state.step_at_s))
    while state.counts[columns.FINISHED] + state.counts[columns.REFUSED] < len(state.table):
        state = state._replace(step_at_s=np.concatenate((state.step_at_s, np.empty_like(state.step_at_s))))
        kernel.advance(state, rules, cost, len(state.step_at_s))
    return state


def rules_of(replica: Replica, *, drafting: Drafting | None, load: Load) -> Rules:
    """The kernel's rules.

    Raises:
        BadInputError: a ladder climbs above the draft length.

    """
    draft_tokens = 0 if drafting is None else drafting.speculation.draft_tokens
    drops = drafting is not None and drafting.speculation.method in RECOMPUTE_LAST_BLOCK
    return Rules(
        block_tokens=replica.block_tokens,
        max_requests=replica.max_requests,
        token_budget=replica.token_budget,
        draft_tokens=draft_tokens,
        verified_tokens=1 if drafting is None else drafting.speculation.verified_tokens,
        two_pass=0 if drafting is None else int(drafting.rejection is Rejection.TWO_PASS),
        concurrency=load.concurrency or 0,
        prefix_tokens=PREFIX_BLOCK_TOKENS,
        dropped_tokens=replica.block_tokens if drops else 0,
        persistence=0.0 if drafting is None else float(drafting.persistence),
        lengths=_lengths_of(drafting, draft_tokens, replica.max_requests),
    )


def _lengths_of(drafting: Drafting | None, draft_tokens: int, max_requests: int) -> Lengths:
    if drafting is None or drafting.lengths is None:
        return fixed_length(draft_tokens)
    return drafting.lengths.rules(draft_tokens=draft_tokens, max_requests=max_requests)


def cost_of(costs: Sequence[StepCost], *, draft_tokens: int) -> Cost:
    """The kernel's cost, of each draft length or of the one fixed length: copies, so that a read-only array does not make numba compile
    everything again.
    """
    by_length = {draft_tokens: costs[0]} if len(costs) == 1 else dict(enumerate(costs))
    draft_s = np.zeros((draft_tokens + 1, max(len(each.draft_s) for each in costs)))
    kv_token_s = np.zeros(draft_tokens + 1)
    for length, each in by_length.items():
        draft_s[length, : len(each.draft_s)] = each.draft_s
        kv_token_s[length] = each.kv_token_s
    return Cost(
        token_s=np.array(costs[-1].token_s, dtype=np.float64),
        kv_token_s=kv_token_s,
        prefill_attention_s=float(costs[-1].prefill_attention_s),
        draft_s=draft_s,
    )


class Rows(NamedTuple):
    """What requests bring into the state: their rows of `table`, how often their steps draft, and what they accept by position."""

    table: IntArray  # [requests, COLUMNS]
    coverage: FloatArray  # [requests]
    conditional: FloatArray  # [requests, K]


def rows_of(requests: Sequence[Request], *, replica: Replica, drafting: Drafting | None, drawn: Chance) -> Rows:
    """The rows of requests with these draws; one that could never fit into the KV cache, its look-ahead slots included, is to be refused.

    Raises:
        UnknownNameError: a segment without acceptance.

    """
    segments = tuple(each.segment for each in requests)
    by_segment = {} if drafting is None else {segment: drafting.of(segment) for segment in sorted(set(segments))}
    draft_tokens = 0 if drafting is None else drafting.speculation.draft_tokens
    coverage = np.array([by_segment[each].coverage if by_segment else 0.0 for each in segments])
    look_ahead = np.where(coverage > 0, 0 if drafting is None else drafting.speculation.verified_tokens - 1, 0)
    table = np.zeros((len(requests), columns.COLUMNS), dtype=np.int64)
    table[:, columns.PROMPT] = [each.prompt_tokens for each in requests]
    table[:, columns.OUTPUT] = [each.output_tokens for each in requests]
    table[:, [columns.KEY_A, columns.KEY_B]] = drawn.keys
    most_kv_tokens = table[:, columns.PROMPT] + table[:, columns.OUTPUT] - 1 + look_ahead
    table[:, columns.REFUSE] = most_kv_tokens > replica.kv_blocks * replica.block_tokens
    spread = 0.0 if drafting is None else drafting.spread
    conditional = np.zeros((len(requests), 0))
    if by_segment:
        conditional = conditional_by_request(by_segment, segments, draft_tokens=draft_tokens, spread=spread, ease=drawn.ease)
    return Rows(table=table, coverage=coverage, conditional=conditional)


def idle(replica: Replica, *, drafting: Drafting | None, room: int) -> State:
    """The state of a replica that nobody has asked anything, with room for `room` requests that nobody knows yet."""
    draft_tokens = 0 if drafting is None else drafting.speculation.draft_tokens
    rows = Rows(
        table=np.zeros((room, columns.COLUMNS), dtype=np.int64), coverage=np.zeros(room), conditional=np.zeros((room, draft_tokens))
    )
    rung, ema = _first_rungs(_lengths_of(drafting, draft_tokens, replica.max_requests), draft_tokens)
    state = _empty_state(rows, arrived_at_s=np.full(room, np.inf), seats=replica.max_requests, kv_blocks=replica.kv_blocks)
    return state._replace(rung=rung, ema=ema, batches=np.zeros_like(rung))


def costs_of(replica: Replica, step_cost: StepCost | Sequence[StepCost], *, drafting: Drafting | None, rules: Rules) -> Cost:
    """The kernel's cost of a replica that drafts so.

    Raises:
        BadInputError: the costs are not those of the draft lengths, or end before the replica's limits.

    """
    costs = (step_cost,) if isinstance(step_cost, StepCost) else tuple(step_cost)
    if len(costs) != (1 if drafting is None or drafting.lengths is None else rules.draft_tokens + 1):
        raise BadInputError(f"{len(costs)} step costs; draft lengths by batch need one for each length from 0 to K, anything else just one")
    need_room(replica, costs, rules.verified_tokens)
    return cost_of(costs, draft_tokens=rules.draft_tokens)


def start(workload: Workload, *, replica: Replica, drafting: Drafting | None, load: Load, seed: int) -> State:
    """The state before the first step: nobody has arrived and every block is free.

    Raises:
        UnknownNameError: a segment without acceptance.

    """
    requests = workload.requests
    rows = rows_of(requests, replica=replica, drafting=drafting, drawn=chance(seed, requests=len(requests)))
    draft_tokens = 0 if drafting is None else drafting.speculation.draft_tokens
    seats = min(replica.max_requests, load.concurrency or len(requests), len(requests))
    prefix_from, prefix_ids = _prefixes(requests)
    none_cached = np.full(int(prefix_ids.max(initial=-1)) + 1, -1, dtype=np.int64)
    rung, ema = _first_rungs(_lengths_of(drafting, draft_tokens, replica.max_requests), draft_tokens)
    return _empty_state(
        rows,
        arrived_at_s=np.array([each.arrived_at_s for each in requests]),
        seats=seats,
        kv_blocks=replica.kv_blocks,
    )._replace(
        prefix_from=prefix_from,
        prefix_ids=prefix_ids,
        pins=none_cached,
        older=none_cached.copy(),
        newer=none_cached.copy(),
        rung=rung,
        ema=ema,
        batches=np.zeros_like(rung),
    )


def _prefixes(requests: Sequence[Request]) -> tuple[IntArray, IntArray]:
    """Where each request's prefix ids start, shape [requests + 1], and the ids, counted from 0."""
    hashes = [each.prefix_hashes or () for each in requests]
    prefix_from = np.concatenate(([0], np.cumsum([len(each) for each in hashes], dtype=np.int64)))
    numbers: dict[int, int] = {}
    ids = [numbers.setdefault(block, len(numbers)) for each in hashes for block in each]
    return prefix_from, np.array(ids, dtype=np.int64)


def _first_rungs(lengths: Lengths, draft_tokens: int) -> tuple[IntArray, FloatArray]:
    """Each slot starts at the draft length, or in the middle of its candidates, as if one less had been accepted (SGLang's start)."""
    slots = len(lengths.rungs)
    rung, ema = np.zeros(slots, dtype=np.int64), np.zeros(slots)
    for slot, count in enumerate(lengths.rungs.tolist()):
        candidates = lengths.candidates[slot, :count].tolist()
        rung[slot] = candidates.index(draft_tokens) if draft_tokens in candidates else count // 2
        ema[slot] = candidates[rung[slot]] - 1.0
    return rung, ema


def _empty_state(rows: Rows, *, arrived_at_s: FloatArray, seats: int, kv_blocks: int) -> State:
    """Room for `seats` requests at once and for every chunk; memory that is never written is never taken from the machine."""
    table, coverage, conditional = rows
    served = table[table[:, columns.REFUSE] == 0, columns.OUTPUT]  # a refused request gets no chunk, however long it asked for
    longest, tokens = int(served.max(initial=1)), int(served.sum())
    requests, draft_tokens = conditional.shape
    counts = np.zeros(columns.COUNTERS, dtype=np.int64)
    counts[[columns.FREE_BLOCKS, columns.LEAST_FREE_BLOCKS]] = kv_blocks
    counts[columns.FREE_BUFFERS] = seats
    counts[[columns.OLDEST, columns.NEWEST]] = -1
    none = np.empty(0, dtype=np.int64)
    return State(
        table=table,
        arrived_at_s=arrived_at_s,
        coverage=coverage,
        conditional=conditional,
        accepted=np.zeros((requests, draft_tokens + 1), dtype=np.int64),
        running=np.zeros(seats, dtype=np.int64),
        preempted=np.zeros(seats, dtype=np.int64),
        buffers=np.arange(seats, dtype=np.int64)[::-1].copy(),
        buffer_at_s=np.empty((seats, longest)),
        buffer_tokens=np.empty((seats, longest), dtype=np.int16),
        step_at_s=np.empty(ROOM_STEPS),
        log_at_s=np.empty(tokens),
        log_tokens=np.empty(tokens if draft_tokens else 0, dtype=np.int16),
        counts=counts,
        seconds=np.zeros(2),
        rung=none,
        ema=np.empty(0),
        batches=none,
        prefix_from=np.zeros(requests + 1, dtype=np.int64),
        prefix_ids=none,
        pins=none,
        older=none,
        newer=none,
    )
