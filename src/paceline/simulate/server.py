"""One replica under one load, as a `Run`: with or without drafts, and both arms with the same chance.

The rules of a step are in `kernel`. A closed loop (`load.concurrency`) ignores the workload's instants: that many requests are in flight,
and the next one, in the workload's order, arrives when one leaves. An open loop follows the workload's instants.

The arms share what the requests ask for and every draw, and differ in cost, drafts and KV slots only, so they are compared in pairs.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paceline import __version__
from paceline.forecast.step_cost import StepCost
from paceline.latency import Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run
from paceline.simulate import kernel
from paceline.simulate.acceptance_draws import chance, conditional_by_request
from paceline.simulate.replica import Drafting, Rejection, Replica, need_room
from paceline.speculation.counts import AcceptanceCounts
from paceline.workload import Request, Workload

__all__ = ["cost_of", "record", "rules_of", "simulate", "simulate_arms", "start"]

IntArray = npt.NDArray[np.int64]

ALL_STEPS = 2**62


def simulate(workload: Workload, *, replica: Replica, step_cost: StepCost, drafting: Drafting | None, load: Load, seed: int) -> Run:
    """What each user of this replica gets, and when: a `Run` with every request's chunks, until the last one leaves.

    `drafting` None gives the baseline arm. In the speculative arm acceptance is counted by request and by segment, drafts accepted beyond a
    stop included. A request that could never fit into the KV cache, its look-ahead slots included, is refused at arrival.
    The same arguments give the same bytes.

    Raises:
        BadInputError: the step cost ends before the replica's limits, or the token budget is below one drafted request.
        UnknownNameError: a segment without acceptance.

    """
    rules = rules_of(replica, drafting=drafting, load=load)
    need_room(replica, step_cost, rules.verified_tokens)
    state = start(workload, replica=replica, drafting=drafting, load=load, seed=seed)
    kernel.advance(state, rules, cost_of(step_cost), ALL_STEPS)
    return record(state, workload, replica=replica, drafting=drafting, load=load, seed=seed)


def simulate_arms(
    workload: Workload,
    *,
    replica: Replica,
    baseline_cost: StepCost,
    speculative_cost: StepCost,
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


def rules_of(replica: Replica, *, drafting: Drafting | None, load: Load) -> kernel.Rules:
    """The kernel's rules."""
    return kernel.Rules(
        block_tokens=replica.block_tokens,
        max_requests=replica.max_requests,
        token_budget=replica.token_budget,
        draft_tokens=0 if drafting is None else drafting.speculation.draft_tokens,
        verified_tokens=1 if drafting is None else drafting.speculation.verified_tokens,
        two_pass=0 if drafting is None else int(drafting.rejection is Rejection.TWO_PASS),
        concurrency=load.concurrency or 0,
    )


def cost_of(cost: StepCost) -> kernel.Cost:
    """The kernel's cost: copies, so that a read-only array does not make numba compile everything again."""
    return kernel.Cost(
        token_s=np.array(cost.token_s, dtype=np.float64),
        kv_token_s=float(cost.kv_token_s),
        prefill_attention_s=float(cost.prefill_attention_s),
        draft_s=np.array(cost.draft_s, dtype=np.float64),
    )


def start(workload: Workload, *, replica: Replica, drafting: Drafting | None, load: Load, seed: int) -> kernel.State:
    """The state before the first step: nobody has arrived and every block is free.

    Raises:
        UnknownNameError: a segment without acceptance.

    """
    requests = workload.requests
    drawn = chance(seed, requests=len(requests))
    segments = tuple(each.segment for each in requests)
    by_segment = {} if drafting is None else {segment: drafting.of(segment) for segment in workload.segments}
    draft_tokens = 0 if drafting is None else drafting.speculation.draft_tokens
    coverage = np.array([by_segment[each].coverage if by_segment else 0.0 for each in segments])
    look_ahead = np.where(coverage > 0, 0 if drafting is None else drafting.speculation.verified_tokens - 1, 0)
    table = np.zeros((len(requests), kernel.COLUMNS), dtype=np.int64)
    table[:, kernel.PROMPT] = [each.prompt_tokens for each in requests]
    table[:, kernel.OUTPUT] = [each.output_tokens for each in requests]
    table[:, [kernel.KEY_A, kernel.KEY_B]] = drawn.keys
    most_kv_tokens = table[:, kernel.PROMPT] + table[:, kernel.OUTPUT] - 1 + look_ahead
    table[:, kernel.REFUSE] = most_kv_tokens > replica.kv_blocks * replica.block_tokens
    spread = 0.0 if drafting is None else drafting.spread
    conditional = np.zeros((len(requests), 0))
    if by_segment:
        conditional = conditional_by_request(by_segment, segments, draft_tokens=draft_tokens, spread=spread, ease=drawn.ease)
    seats = min(replica.max_requests, load.concurrency or len(requests), len(requests))
    return _empty_state(
        table,
        arrived_at_s=np.array([each.arrived_at_s for each in requests]),
        coverage=coverage,
        conditional=conditional,
        seats=seats,
        kv_blocks=replica.kv_blocks,
    )


def _empty_state(
    table: IntArray,
    *,
    arrived_at_s: npt.NDArray[np.float64],
    coverage: npt.NDArray[np.float64],
    conditional: npt.NDArray[np.float64],
    seats: int,
    kv_blocks: int,
) -> kernel.State:
    """Room for `seats` requests at once and for every chunk; memory that is never written is never taken from the machine."""
    longest, tokens = int(table[:, kernel.OUTPUT].max()), int(table[:, kernel.OUTPUT].sum())
    requests, draft_tokens = conditional.shape
    counts = np.zeros(kernel.COUNTERS, dtype=np.int64)
    counts[[kernel.FREE_BLOCKS, kernel.LEAST_FREE_BLOCKS]] = kv_blocks
    counts[kernel.FREE_BUFFERS] = seats
    return kernel.State(
        table=table,
        arrived_at_s=arrived_at_s,
        coverage=coverage,
        conditional=conditional,
        accepted=np.zeros((requests, draft_tokens + 1), dtype=np.int64),
        running=np.zeros(seats, dtype=np.int64),
        preempted=np.zeros(seats, dtype=np.int64),
        buffers=np.arange(seats, dtype=np.int64)[::-1].copy(),
        buffer_at_s=np.empty((seats, longest)),
        buffer_tokens=np.empty((seats, longest), dtype=np.int64),
        log_at_s=np.empty(tokens),
        log_tokens=np.empty(tokens if draft_tokens else 0, dtype=np.int64),
        counts=counts,
        seconds=np.zeros(2),
    )


def record(state: kernel.State, workload: Workload, *, replica: Replica, drafting: Drafting | None, load: Load, seed: int) -> Run:
    """The run that this state, in which everybody has left, is the end of."""
    drafted_tokens = 0 if drafting is None else drafting.speculation.verified_tokens - 1
    acceptance = None if drafting is None else _by_request(state, drafted_tokens)
    decodes = int(state.counts[kernel.DECODES])
    return Run(
        arm=Arm.BASELINE if drafting is None else Arm.SPECULATIVE,
        speculation=None if drafting is None else drafting.speculation,
        load=load,
        requests=tuple(_records(state, workload.requests, acceptance)),
        acceptance_by_segment=None if drafting is None else _by_segment(state, workload, drafted_tokens),
        step_seconds=float(state.seconds[kernel.DECODE_SECONDS]) / decodes if decodes else None,
        summaries={},
        window_s=float(state.seconds[kernel.CLOCK] - state.arrived_at_s[0]),
        provenance=_provenance(workload, replica=replica, drafting=drafting, load=load, seed=seed),
    )


def _counts(steps: int, at_least: list[int], drafted_tokens: int) -> AcceptanceCounts:
    """Counts from drafted steps that accepted at least 0, 1, … K drafts."""
    drafts, *positions = at_least
    return AcceptanceCounts(
        steps=steps,
        drafts=drafts,
        drafted_tokens=drafts * drafted_tokens,
        accepted_tokens=sum(positions),
        accepted_per_position=tuple(positions),
    )


def _by_request(state: kernel.State, drafted_tokens: int) -> list[AcceptanceCounts]:
    """Each request's counts."""
    steps = state.table[:, kernel.STEPS].tolist()
    return [_counts(*each, drafted_tokens) for each in zip(steps, _at_least(state).tolist(), strict=True)]


def _by_segment(state: kernel.State, workload: Workload, drafted_tokens: int) -> dict[str, AcceptanceCounts]:
    """Each segment's counts, added up before they become records: adding 100,000 records takes longer than simulating them."""
    of_request = np.array([each.segment for each in workload.requests])
    steps, at_least = state.table[:, kernel.STEPS], _at_least(state)
    return {
        segment: _counts(int(steps[mine].sum()), at_least[mine].sum(axis=0).tolist(), drafted_tokens)
        for segment in workload.segments
        for mine in [of_request == segment]
    }


def _at_least(state: kernel.State) -> IntArray:
    """Drafted steps that accepted at least 0, 1, … K drafts, by request; `accepted` is the histogram."""
    summed: IntArray = np.cumsum(state.accepted[:, ::-1], axis=1)[:, ::-1]
    return summed


def _records(state: kernel.State, requests: tuple[Request, ...], acceptance: list[AcceptanceCounts] | None) -> Iterator[RequestRecord]:
    """One record per request; the chunk arrays are views into the log."""
    one_each = np.ones(state.buffer_at_s.shape[1], dtype=np.int64)
    with_tokens = len(state.log_tokens) > 0
    starts, refused = state.table[:, kernel.CHUNKS_FROM], state.table[:, kernel.REFUSE]
    ends = starts + state.table[:, kernel.CHUNKS]
    columns = zip(requests, refused.tolist(), state.arrived_at_s.tolist(), starts.tolist(), ends.tolist(), strict=True)
    for r, (request, was_refused, arrived_at_s, first, end) in enumerate(columns):
        timing = RequestTiming(
            arrived_at_s=arrived_at_s,
            sent_at_s=arrived_at_s,
            chunk_at_s=state.log_at_s[first:end],
            chunk_tokens=state.log_tokens[first:end] if with_tokens else one_each[: end - first],
            ended=Ended.ERROR if was_refused else Ended.LENGTH,
        )
        yield RequestRecord(
            id=request.id,
            segment=request.segment,
            prompt_tokens=request.prompt_tokens,
            output_tokens=0 if was_refused else request.output_tokens,
            timing=timing,
            acceptance=None if acceptance is None else acceptance[r],
            outcome=Outcome.REFUSED if was_refused else Outcome.FINISHED,
        )


def _provenance(workload: Workload, *, replica: Replica, drafting: Drafting | None, load: Load, seed: int) -> Provenance:
    limits = (
        f"{replica.kv_blocks} blocks of {replica.block_tokens}, {replica.max_requests} requests, {replica.token_budget} tokens per step"
    )
    sent = "the workload's instants" if load.concurrency is None else f"concurrency {load.concurrency}"
    arguments = {"workload": workload.source, "replica": limits, "load": sent}
    if drafting is not None:
        how = drafting.speculation
        arguments["drafting"] = f"{how.method}, {how.draft_tokens} tokens, spread {drafting.spread:g}, {drafting.rejection}"
    return Provenance(
        made_by="paceline simulate", version=__version__, evidence=Evidence.SIMULATED, arguments=arguments, inputs={}, seed=seed
    )
