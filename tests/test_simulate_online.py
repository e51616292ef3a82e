"""The replica that serves whoever arrives: the same requests at the same instants get what `simulate` gives them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, UnknownNameError
from paceline.forecast.step_cost import StepCost
from paceline.run import Load, Run
from paceline.simulate.acceptance_draws import chance
from paceline.simulate.online import FIRST_ROOM, ROWS_OF_A_WORKLOAD, Draws, Left, OnlineReplica, Step
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
from paceline.workload import Request, Workload

COST = StepCost(token_s=np.linspace(0.0, 5.0, 101), kv_token_s=0.01, prefill_attention_s=0.001, draft_s=np.linspace(0.0, 1.0, 41))
SECOND_PER_TOKEN = StepCost(token_s=np.arange(101.0), kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(101))
ROOMY = Replica(kv_blocks=100, block_tokens=4, max_requests=8, token_budget=100)
SEED = 5


def drafting(*survival: float, coverage: float = 1.0, spread: float = 0.0, persistence: float = 0.0) -> Drafting:
    return Drafting(
        speculation=Speculation(method=Method.NGRAM, draft_tokens=len(survival), tree=None),
        acceptance={"all": Acceptance(survival=survival, coverage=coverage)},
        spread=spread,
        rejection=Rejection.IN_PASS,
        persistence=persistence,
    )


def request(prompt: int, output: int, *, at_s: float = 0.0, name: str = "r", segment: str = "chat") -> Request:
    return Request(id=name, arrived_at_s=at_s, prompt_tokens=prompt, output_tokens=output, segment=segment)


def online(replica: Replica = ROOMY, *, cost: StepCost = SECOND_PER_TOKEN, drafts: Drafting | None = None) -> OnlineReplica:
    return OnlineReplica(replica, step_cost=cost, drafting=drafts, seed=SEED)


@dataclass
class Seen:
    """What one request got from the online replica."""

    at_s: list[float]
    tokens: list[int]
    left: Left | None = None


def taken(server: OnlineReplica, seen: dict[int, Seen]) -> Step:
    """The next step, its chunks added to what each ticket has seen."""
    step = server.step(grace_s=0.0)
    for chunk in step.chunks:
        seen[chunk.ticket].at_s.append(step.ends_at_s)
        seen[chunk.ticket].tokens.append(chunk.tokens)
        seen[chunk.ticket].left = step.left.get(chunk.ticket)
    return step


def served(server: OnlineReplica, requests: tuple[Request, ...], *, concurrency: int | None) -> list[Seen]:
    """All requests through the online replica by a client without latency, in the workload's order; those that cannot fit are skipped."""
    seen: dict[int, Seen] = {}
    order: list[Seen] = []
    coming = list(enumerate(requests))

    def let_in(now_s: float | None) -> None:
        index, asked = coming.pop(0)
        mine = Seen([], [])
        order.append(mine)
        try:
            seen[server.arrive(asked if now_s is None else replace(asked, arrived_at_s=now_s), index=index)] = mine
        except BadInputError:
            return

    def in_flight() -> int:
        return sum(each.left is None for each in seen.values())

    now_s = 0.0
    while coming or in_flight():
        while coming and concurrency is None:
            let_in(None)
        while coming and concurrency is not None and in_flight() < concurrency:
            let_in(now_s)
        if in_flight():
            now_s = taken(server, seen).ends_at_s
    return order


REPLICAS = st.builds(
    Replica, kv_blocks=st.integers(3, 20), block_tokens=st.integers(1, 4), max_requests=st.integers(1, 4), token_budget=st.integers(4, 16)
)
DRAFTINGS = st.builds(
    lambda k, beta, coverage, spread, persistence: drafting(
        *(beta**i for i in range(1, k + 1)), coverage=coverage, spread=spread, persistence=persistence
    ),
    st.integers(1, 3),
    st.floats(0, 1),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 0.6]),
)
LENGTHS = st.lists(st.tuples(st.integers(1, 24), st.integers(1, 9), st.floats(0, 4)), min_size=1, max_size=6)


def workload(lengths: list[tuple[int, int, float]]) -> Workload:
    at_s = np.cumsum([wait for _, _, wait in lengths]).tolist()
    requests = tuple(request(p, o, at_s=t, name=str(i)) for i, ((p, o, _), t) in enumerate(zip(lengths, at_s, strict=True)))
    return Workload(requests=requests, source="drawn", seed=None)


def need_same(simulated: Run, order: list[Seen]) -> None:
    """The online replica gave each request the very chunks, instants and counts of the simulation."""
    assert simulated.requests is not None
    for record, mine in zip(simulated.requests, order, strict=True):
        assert mine.at_s == record.timing.chunk_at_s.tolist()
        assert mine.tokens == record.timing.chunk_tokens.tolist()
        if mine.left is not None:
            assert mine.left.acceptance == record.acceptance


@settings(max_examples=60)
@given(LENGTHS, REPLICAS, st.none() | DRAFTINGS, st.sampled_from([None, 1, 2, 4]))
def test_a_client_without_latency_gets_what_the_simulator_says_chunk_for_chunk(
    lengths: list[tuple[int, int, float]], replica: Replica, drafts: Drafting | None, concurrency: int | None
) -> None:
    """Whoever rehearses against the fake server measures another server than the one that was forecast."""
    asked = workload(lengths)
    load = Load(concurrency=concurrency, rate_per_s=None)
    simulated = simulate(asked, replica=replica, step_cost=COST, drafting=drafts, load=load, seed=SEED)
    order = served(online(replica, cost=COST, drafts=drafts), asked.requests, concurrency=concurrency)
    event(f"refused: {any(mine.left is None for mine in order)}")
    need_same(simulated, order)


def test_more_requests_than_there_are_rows_at_first_get_the_same_too() -> None:
    """After an hour the server would have forgotten who is who."""
    asked = workload([(1 + i % 7, 1 + i % 5, 0.3) for i in range(3 * FIRST_ROOM)])
    tight = Replica(kv_blocks=8, block_tokens=4, max_requests=4, token_budget=16)
    drafts = drafting(0.8, 0.5)
    simulated = simulate(asked, replica=tight, step_cost=COST, drafting=drafts, load=Load(concurrency=6, rate_per_s=None), seed=SEED)
    server = online(tight, cost=COST, drafts=drafts)
    need_same(simulated, served(server, asked.requests, concurrency=6))
    assert len(server._state.table) == FIRST_ROOM
    assert server.gauges.preemptions > 0


def test_a_queue_longer_than_the_rows_makes_them_grow() -> None:
    """A burst of requests would crash the server or be lost."""
    asked = workload([(2, 2, 0.0) for _ in range(2 * FIRST_ROOM + 1)])
    simulated = simulate(asked, replica=ROOMY, step_cost=COST, drafting=None, load=Load(concurrency=None, rate_per_s=None), seed=SEED)
    server = online(cost=COST)
    need_same(simulated, served(server, asked.requests, concurrency=None))
    assert len(server._state.table) == 4 * FIRST_ROOM


def test_acceptance_does_not_depend_on_when_and_in_which_order_requests_come() -> None:
    """A load-tester's timing would change what the server accepts, and no two runs could be compared."""
    asked = workload([(5 + i % 3, 4 + i, 0.0) for i in range(8)])
    drafts = drafting(0.8, 0.6, 0.45, spread=0.5, persistence=0.3)
    simulated = simulate(asked, replica=ROOMY, step_cost=COST, drafting=drafts, load=Load(concurrency=2, rate_per_s=None), seed=SEED)
    server, seen = online(cost=COST, drafts=drafts), dict[int, Seen]()
    rng, order, tickets = np.random.default_rng(0), [5, 2, 7, 0, 1, 6, 3, 4], dict[int, int]()
    while len(tickets) < len(order) or server.next_step_at_s is not None:
        if len(tickets) < len(order) and (server.next_step_at_s is None or rng.random() < 0.5):
            index = order[len(tickets)]
            at_s = 100.0 * len(tickets)
            tickets[index] = server.arrive(replace(asked.requests[index], arrived_at_s=at_s), index=index)
            seen[tickets[index]] = Seen([], [])
        else:
            taken(server, seen)
    assert simulated.requests is not None
    for index, ticket in tickets.items():
        left = seen[ticket].left
        assert left is not None
        assert left.acceptance == simulated.requests[index].acceptance


def test_one_request_is_served_by_the_clock_of_its_caller() -> None:
    """3 prompt tokens take 3 s from its arrival at 10 s, and then a token a second."""
    server = online()
    ticket = server.arrive(request(3, 2, at_s=10.0), index=0)
    assert server.next_step_at_s == 10.0
    first = server.step(grace_s=0.0)
    assert (first.began_at_s, first.ends_at_s, first.left) == (10.0, 13.0, {})
    assert first.chunks == ((ticket, 1, 0, 0, False),)
    assert server.gauges.running == 1
    last = server.step(grace_s=0.0)
    assert (last.ends_at_s, last.left) == (14.0, {ticket: Left(steps=1, acceptance=None, times_preempted=0)})
    assert server.gauges.kv_usage == 0.0


def test_a_step_s_drafts_and_what_was_accepted_of_them_come_with_its_chunk() -> None:
    """The server's metrics count other drafts than were made."""
    server = online(drafts=drafting(1.0, 0.0))
    server.arrive(request(3, 4), index=0)
    assert server.step(grace_s=0.0).chunks[0][1:] == (1, 0, 0, False)
    assert server.step(grace_s=0.0).chunks[0][1:] == (2, 2, 1, False)
    step = server.step(grace_s=0.0)
    assert step.chunks[0][1:] == (1, 2, 1, True)  # one accepted draft is beyond the end
    (left,) = step.left.values()
    assert left.acceptance is not None
    assert (left.acceptance.steps, left.acceptance.drafted_tokens, left.acceptance.accepted_per_position) == (2, 4, (2, 0))


@pytest.mark.parametrize(("grace_s", "first_step_s"), [(0.0, 3.0), (0.5, 8.0)])
def test_who_comes_within_the_grace_of_a_step_is_in_time_for_it(grace_s: float, first_step_s: float) -> None:
    """A closed loop over a network would always miss a step that the simulator's clients do not."""
    server = online()
    server.arrive(request(3, 2, at_s=1.0), index=0)
    server.arrive(request(5, 2, at_s=1.5), index=1)
    server.arrive(request(7, 2, at_s=1.6), index=2)
    step = server.step(grace_s=grace_s)
    assert step.ends_at_s - step.began_at_s == first_step_s


def test_nobody_s_step_has_no_instant() -> None:
    """An idle server would spin."""
    assert online().next_step_at_s is None


def test_requests_come_in_order_and_must_fit() -> None:
    """A request that can never run would wait for ever."""
    server = online(drafts=replace(drafting(0.5), acceptance={"chat": Acceptance(survival=(0.5,), coverage=1.0)}))
    server.arrive(request(3, 2, at_s=1.0), index=0)
    with pytest.raises(BadInputError, match="before one"):
        server.arrive(request(3, 2, at_s=0.5), index=1)
    with pytest.raises(BadInputError, match="do not fit into the KV cache of 400 tokens"):
        server.arrive(request(399, 2, at_s=1.0), index=1)
    with pytest.raises(UnknownNameError, match="segment 'code'"):
        server.arrive(request(3, 2, at_s=1.0, segment="code"), index=1)


CANCELLED = st.lists(st.integers(0, 40), max_size=8)


@settings(max_examples=60)
@given(LENGTHS, REPLICAS, st.none() | DRAFTINGS, CANCELLED)
def test_who_goes_away_frees_everything_and_the_others_are_served(
    lengths: list[tuple[int, int, float]], replica: Replica, drafts: Drafting | None, gone_after: list[int]
) -> None:
    """Every browser tab that closes would take KV blocks with it until nothing runs any more."""
    server, seen = online(replica, cost=COST, drafts=drafts), dict[int, Seen]()
    asked = {}
    for index, each in enumerate(workload(lengths).requests):
        try:
            ticket = server.arrive(each, index=index)
        except BadInputError:
            continue
        asked[ticket], seen[ticket] = each, Seen([], [])
    cancelled = {ticket: after for ticket, after in zip(asked, gone_after, strict=False) if after % 2}
    steps = 0
    while server.next_step_at_s is not None:
        for ticket, after in cancelled.items():
            if after <= steps:
                seen[ticket].left = server.cancel(ticket) or seen[ticket].left
        if server.next_step_at_s is not None:
            gauges = server.gauges
            assert gauges.running + gauges.waiting == sum(each.left is None for each in seen.values())
            taken(server, seen)
        steps += 1
    event(f"cancelled: {len(cancelled)}")
    assert (server.gauges.running, server.gauges.waiting, server.gauges.kv_usage) == (0, 0, 0.0)
    assert sorted(server._state.buffers.tolist()) == list(range(replica.max_requests))
    for ticket, each in asked.items():
        assert seen[ticket].left is not None
        emitted = sum(seen[ticket].tokens)
        assert emitted == each.output_tokens or (ticket in cancelled and emitted < each.output_tokens)


def test_a_waiting_request_that_goes_away_is_passed_over() -> None:
    """The queue would stand still behind somebody who left."""
    one_seat = replace(ROOMY, max_requests=1)
    server, seen = online(one_seat), {ticket: Seen([], []) for ticket in range(3)}
    tickets = [server.arrive(request(2, 2), index=i) for i in range(3)]
    taken(server, seen)
    assert server.gauges.waiting == 2
    assert server.cancel(tickets[1]) == Left(steps=0, acceptance=None, times_preempted=0)
    assert server.cancel(tickets[1]) is None
    while server.next_step_at_s is not None:
        taken(server, seen)
    assert [seen[each].tokens for each in tickets] == [[1, 1], [], [1, 1]]


def test_a_request_that_goes_away_before_its_time_comes_is_never_let_in() -> None:
    """A schedule that is cut short would go on by itself."""
    server, seen = online(), {ticket: Seen([], []) for ticket in range(3)}
    tickets = [server.arrive(request(2, 2, at_s=10.0 * i), index=i) for i in range(3)]
    server.cancel(tickets[1])
    while server.next_step_at_s is not None:
        taken(server, seen)
    assert [seen[each].at_s for each in tickets] == [[2.0, 3.0], [], [22.0, 23.0]]


def test_the_draws_of_a_request_are_those_of_its_row_in_a_workload() -> None:
    """The fake server accepts something else than the simulator for the same seed."""
    whole = chance(SEED, requests=1000)
    draws = Draws(SEED)
    for index in (3, 999, 0):
        assert (draws.of(index).keys == whole.keys[index]).all()
        assert draws.of(index).ease[0] == whole.ease[index]
    far: Callable[[int], list[int]] = lambda index: Draws(SEED).of(index).keys[0].tolist()  # noqa: E731 - a name for a long expression
    assert far(ROWS_OF_A_WORKLOAD) == far(ROWS_OF_A_WORKLOAD)
    assert far(ROWS_OF_A_WORKLOAD) != far(2**64)
