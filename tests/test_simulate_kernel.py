"""The engine step: its invariants hold between any two steps, whatever the workload and however tight the replica."""

from dataclasses import dataclass

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from paceline.forecast.step_cost import StepCost
from paceline.run import Load
from paceline.simulate import state as k
from paceline.simulate.draws import uniform
from paceline.simulate.kernel import advance
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import cost_of, rules_of, start
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
from paceline.workload import Request, Workload

COST = StepCost(token_s=np.linspace(0.0, 2.0, 41), kv_token_s=0.01, prefill_attention_s=0.001, draft_s=np.linspace(0.0, 1.0, 41))


def step(state: k.State, rules: k.Rules, steps: int) -> None:
    """Take that many engine steps."""
    advance(state, rules, cost_of((COST,), draft_tokens=rules.draft_tokens), steps)


@dataclass(frozen=True)
class Case:
    """A workload on a replica, ready to be stepped."""

    workload: Workload
    replica: Replica
    drafting: Drafting | None
    load: Load
    seed: int

    def start(self) -> tuple[k.State, k.Rules]:
        """The state before the first step, and the rules."""
        state = start(self.workload, replica=self.replica, drafting=self.drafting, load=self.load, seed=self.seed)
        return state, rules_of(self.replica, drafting=self.drafting, load=self.load)


def _drafting(draft_tokens: int, beta: float, coverage: float, rejection: Rejection) -> Drafting:
    acceptance = Acceptance(survival=tuple(beta**i for i in range(1, draft_tokens + 1)), coverage=coverage)
    speculation = Speculation(method=Method.NGRAM, draft_tokens=draft_tokens, tree=None)
    return Drafting(speculation=speculation, acceptance={"all": acceptance}, spread=0.0, rejection=rejection)


DRAFTINGS = st.builds(_drafting, st.integers(1, 3), st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(Rejection))
REPLICAS = st.builds(
    Replica, kv_blocks=st.integers(3, 20), block_tokens=st.integers(1, 4), max_requests=st.integers(1, 4), token_budget=st.integers(4, 16)
)
LOADS = st.builds(Load, concurrency=st.sampled_from([None, 1, 2, 4]), rate_per_s=st.none())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    asked = draw(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 9), st.floats(0, 4)), min_size=1, max_size=6))
    at_s = np.cumsum([wait for _, _, wait in asked]).tolist()
    requests = tuple(
        Request(id=str(i), arrived_at_s=t, prompt_tokens=p, output_tokens=o, segment="chat")
        for i, ((p, o, _), t) in enumerate(zip(asked, at_s, strict=True))
    )
    return Case(
        workload=Workload(requests=requests, source="drawn", seed=None),
        replica=draw(REPLICAS),
        drafting=draw(st.none() | DRAFTINGS),
        load=draw(LOADS),
        seed=draw(st.integers(0, 1000)),
    )


def waiting(state: k.State) -> int:
    """Requests that have arrived and neither run nor have left."""
    never_admitted = state.table[state.counts[k.NEXT] : state.counts[k.ARRIVED], k.REFUSE]
    return int(state.counts[k.PREEMPTED] + (never_admitted == 0).sum())


def need_invariants(state: k.State, case: Case) -> None:
    """What holds between any two steps."""
    table, counts, replica = state.table, state.counts, case.replica
    running = state.running[: counts[k.RUNNING]]
    assert counts[k.FREE_BLOCKS] + table[:, k.BLOCKS].sum() == replica.kv_blocks
    assert counts[k.FREE_BLOCKS] >= counts[k.LEAST_FREE_BLOCKS] >= 0
    assert (table[:, k.BLOCKS] * replica.block_tokens >= table[:, k.KV])[running].all()
    assert table[:, k.BLOCKS].sum() == table[running, k.BLOCKS].sum()
    assert counts[k.ARRIVED] == counts[k.FINISHED] + counts[k.RUNNING] + waiting(state) + counts[k.REFUSED]
    assert counts[k.RUNNING] <= replica.max_requests
    assert table[running, k.PLANNED].sum() <= replica.token_budget
    assert (table[:, k.EMITTED] <= table[:, k.OUTPUT]).all()
    assert len(set(running.tolist())) == len(running)
    assert (table[running, k.KV] < table[running, k.PREFILL])[:-1].sum() == 0


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_every_step_conserves_requests_and_blocks_and_moves_the_clock(case: Case) -> None:
    """A lost block or request would make a simulated replica look slower, or faster, than any real one."""
    state, rules = case.start()
    left = -1
    while left < len(state.table):
        before, steps = state.seconds[k.CLOCK], state.counts[k.TAKEN_STEPS]
        could_run = state.counts[k.RUNNING] + waiting(state) > 0
        step(state, rules, 1)
        stepped = state.counts[k.TAKEN_STEPS] > steps
        assert stepped or not could_run, "an idle step while a request could run"
        assert state.seconds[k.CLOCK] > before or not stepped
        assert state.seconds[k.CLOCK] >= before
        need_invariants(state, case)
        left = state.counts[k.FINISHED] + state.counts[k.REFUSED]
    event(f"preempted: {state.counts[k.PREEMPTIONS] > 0}")
    assert state.counts[k.FREE_BLOCKS] == case.replica.kv_blocks


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_everybody_gets_the_tokens_asked_for_in_order(case: Case) -> None:
    """Causality and completeness: arrived ≤ first ≤ … ≤ last, 1 to K + 1 tokens at a time, as many as asked for."""
    state, rules = case.start()
    step(state, rules, 2**62)
    largest = 1 + (case.drafting.speculation.draft_tokens if case.drafting else 0)
    for r, row in enumerate(state.table):
        first, first_size = row[k.INSTANTS_FROM], row[k.SIZES_FROM]
        instants = (state.log_at_s if row[k.PAUSED] else state.step_at_s)[first : first + row[k.CHUNKS]]
        assert (np.diff(np.concatenate(([state.arrived_at_s[r]], instants))) > 0).all()
        sizes = state.log_tokens[first_size : first_size + row[k.CHUNKS]] if case.drafting else np.ones(row[k.CHUNKS])
        assert sizes.sum() == (0 if row[k.REFUSE] else row[k.OUTPUT])
        assert ((sizes >= 1) & (sizes <= largest)).all()


@given(case=cases(), outputs=st.lists(st.integers(1, 40), min_size=6, max_size=6), steps=st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_future_output_lengths_change_no_decision_already_made(case: Case, outputs: list[int], steps: int) -> None:
    """A scheduler that knows how long an answer will be is better than any real one."""
    (ours, rules), (theirs, _) = case.start(), case.start()
    step(ours, rules, steps)
    unfinished = ours.table[:, k.EMITTED] < ours.table[:, k.OUTPUT]
    longer = ours.table[:, k.EMITTED] + outputs[: len(unfinished)]
    theirs.table[:, k.OUTPUT] = np.where(unfinished, longer, ours.table[:, k.OUTPUT])
    room = theirs._replace(
        buffer_at_s=np.zeros((len(theirs.running), 80)),
        buffer_tokens=np.zeros((len(theirs.running), 80), dtype=np.int16),
    )
    step(room, rules, steps)
    kept = [column for column in range(k.COLUMNS) if column != k.OUTPUT]
    assert ours.table[:, kept].tolist() == room.table[:, kept].tolist()
    assert ours.counts.tolist() == room.counts.tolist()
    assert ours.seconds.tolist() == room.seconds.tolist()


def test_a_tight_cache_preempts_and_everybody_still_finishes() -> None:
    """Eight requests of up to 23 KV tokens share 24: the worst case for a scheduler that could deadlock."""
    requests = tuple(Request(id=str(i), arrived_at_s=0.0, prompt_tokens=4, output_tokens=16, segment="chat") for i in range(8))
    case = Case(
        workload=Workload(requests=requests, source="by hand", seed=None),
        replica=Replica(kv_blocks=12, block_tokens=2, max_requests=8, token_budget=40),
        drafting=_drafting(3, 0.5, 1.0, Rejection.IN_PASS),
        load=Load(concurrency=8, rate_per_s=None),
        seed=2,
    )
    state, rules = case.start()
    step(state, rules, 2**62)
    assert state.counts[k.FINISHED] == 8
    assert state.counts[k.PREEMPTIONS] >= 5
    assert (state.table[:, k.TIMES_PREEMPTED] > 0).sum() >= 5
    assert state.counts[k.LEAST_FREE_BLOCKS] == 0


def test_draws_are_uniform_and_neighbours_independent() -> None:
    """5,000 draws at neighbouring counters: each of 16 bins within 5.5 standard deviations, neighbours uncorrelated (|r| < 5.5/√n)."""
    draws = np.array([[uniform(123456789, 987654321, step, position) for position in range(5)] for step in range(1000)])
    counts = np.bincount((draws.ravel() * 16).astype(int), minlength=16)
    assert len(counts) == 16
    assert (abs(counts - 5000 / 16) < 5.5 * np.sqrt(5000 * 15 / 256)).all()
    for ours, theirs in [(draws[:, 0], draws[:, 1]), (draws[:-1, 0], draws[1:, 0]), (draws[:-1, 1], draws[1:, 0])]:
        assert abs(np.corrcoef(ours, theirs)[0, 1]) < 5.5 / np.sqrt(len(ours))


def test_requests_with_neighbouring_keys_draw_apart() -> None:
    """Keys that differ in one bit must not share a stream: requests would accept in lockstep."""
    first = np.array([uniform(1, 7, step, 1) for step in range(1000)])
    for keys in [(3, 7), (1, 6), (0, 7)]:
        other = np.array([uniform(*keys, step, 1) for step in range(1000)])
        assert abs(np.corrcoef(first, other)[0, 1]) < 5.5 / np.sqrt(1000)
