"""One replica under one load: worked numbers, then laws of whole runs."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, UnknownNameError
from paceline.forecast.step_cost import StepCost
from paceline.run import Arm, Evidence, Load, Outcome, Run
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate, simulate_arms
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation, Tree
from paceline.workload import Request, Workload

ROOMY = Replica(kv_blocks=100, block_tokens=4, max_requests=8, token_budget=100)
AT_ONCE = Load(concurrency=None, rate_per_s=None)
# A step takes as many seconds as it has tokens: what was planned can be read off the clock.
SECOND_PER_TOKEN = StepCost(token_s=np.arange(101.0), kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(101))


def workload(*lengths: tuple[int, int], at_s: tuple[float, ...] = ()) -> Workload:
    """Requests of (prompt, output) tokens, all at 0 s unless said otherwise."""
    instants = at_s or (0.0,) * len(lengths)
    requests = tuple(
        Request(id=f"r{i}", arrived_at_s=t, prompt_tokens=p, output_tokens=o, segment="chat")
        for i, ((p, o), t) in enumerate(zip(lengths, instants, strict=True))
    )
    return Workload(requests=requests, source="by hand", seed=None)


def drafting(*survival: float, coverage: float = 1.0, spread: float = 0.0, rejection: Rejection = Rejection.IN_PASS) -> Drafting:
    return Drafting(
        speculation=Speculation(method=Method.EAGLE3, draft_tokens=len(survival), tree=None),
        acceptance={"all": Acceptance(survival=survival, coverage=coverage)},
        spread=spread,
        rejection=rejection,
    )


def run(
    asked: Workload,
    *,
    replica: Replica = ROOMY,
    cost: StepCost = SECOND_PER_TOKEN,
    drafts: Drafting | None = None,
    load: Load = AT_ONCE,
    seed: int = 1,
) -> Run:
    return simulate(asked, replica=replica, step_cost=cost, drafting=drafts, load=load, seed=seed)


def chunks(made: Run) -> list[list[float]]:
    return [each.timing.chunk_at_s.tolist() for each in made.requests or ()]


def sizes(made: Run) -> list[list[int]]:
    return [each.timing.chunk_tokens.tolist() for each in made.requests or ()]


def test_one_request_prefills_and_then_decodes_token_by_token() -> None:
    """TTFT and TPOT of an empty server are what every other figure is compared with."""
    made = run(workload((3, 3)))
    assert chunks(made) == [[3.0, 4.0, 5.0]]
    assert made.step_seconds == 1.0
    assert made.window_s == 5.0
    assert made.requests is not None
    assert made.requests[0].output_tokens == 3


def test_context_is_read_and_attended_to_at_its_price() -> None:
    """3 prompt tokens make 1 + 2 + 3 pairs (1.5 s); the decode steps read 3 and then 4 KV tokens (1.5 and 2 s)."""
    cost = replace(SECOND_PER_TOKEN, kv_token_s=0.5, prefill_attention_s=0.25)
    assert chunks(run(workload((3, 3)), cost=cost)) == [[4.5, 7.0, 10.0]]


def test_a_long_prompt_is_prefilled_in_chunks_and_emits_at_the_last() -> None:
    """Chunks of 2 and 1: 2 + 3·.25 s, then 1 + 2·.5 read + (2 + 1)·.25 s."""
    cost = replace(SECOND_PER_TOKEN, kv_token_s=0.5, prefill_attention_s=0.25)
    assert chunks(run(workload((3, 1)), cost=cost, replica=replace(ROOMY, token_budget=2))) == [[2.75 + 2.75]]


def test_decoding_comes_before_prefill_within_the_budget() -> None:
    """With a budget of 4: r0 prefills 2 and r1 its first 2; then r0 decodes 1 and r1 prefills 3; then both decode."""
    made = run(workload((2, 3), (5, 2)), replica=replace(ROOMY, token_budget=4))
    assert chunks(made) == [[4.0, 8.0, 10.0], [8.0, 10.0]]


def test_a_full_house_makes_the_next_request_wait() -> None:
    """One seat: r1 starts in the step after r0's last."""
    assert chunks(run(workload((2, 2), (2, 1)), replica=replace(ROOMY, max_requests=1))) == [[2.0, 3.0], [5.0]]


def test_the_clock_jumps_to_the_next_arrival_when_nothing_runs() -> None:
    """An idle server costs no step; r1 is served at once at 10 s."""
    made = run(workload((1, 1), (1, 1), at_s=(2.0, 10.0)))
    assert chunks(made) == [[3.0], [11.0]]
    assert made.window_s == 9.0


def test_a_closed_loop_sends_the_next_request_when_one_leaves() -> None:
    """Latency at concurrency 1 must not contain waiting, whatever the workload's own instants say."""
    made = run(workload((2, 2), (3, 1), at_s=(0.0, 50.0)), load=Load(concurrency=1, rate_per_s=None))
    assert chunks(made) == [[2.0, 3.0], [6.0]]
    assert made.requests is not None
    assert [each.timing.arrived_at_s for each in made.requests] == [0.0, 3.0]
    assert [each.timing.sent_at_s for each in made.requests] == [0.0, 3.0]


def test_accepted_drafts_arrive_in_one_chunk_cut_at_the_output_length() -> None:
    """Output 6 = 1 + 3 + 2; the third token of the last step is accepted and counted, but not emitted."""
    cost = replace(SECOND_PER_TOKEN, draft_s=np.array([0.0, 0.5]))
    made = run(workload((2, 6)), cost=cost, drafts=drafting(1.0, 1.0), replica=replace(ROOMY, max_requests=1))
    assert (chunks(made), sizes(made)) == ([[2.0, 5.5, 9.0]], [[1, 3, 2]])
    counts = AcceptanceCounts(steps=2, drafts=2, drafted_tokens=4, accepted_tokens=4, accepted_per_position=(2, 2))
    assert made.requests is not None
    assert made.requests[0].acceptance == counts
    assert made.acceptance_by_segment == {"chat": counts}
    assert made.step_seconds == 3.5


def test_a_tree_verifies_its_nodes_and_accepts_along_one_path() -> None:
    """A tree of 6 nodes puts 7 tokens into the step and emits at most its depth + 1."""
    tree = Speculation(method=Method.EAGLE2, draft_tokens=2, tree=Tree(depth=2, topk=3, nodes=6))
    made = run(workload((2, 4)), drafts=replace(drafting(1.0, 1.0), speculation=tree))
    assert (chunks(made), sizes(made)) == ([[2.0, 9.0]], [[1, 3]])
    assert made.acceptance.drafted_tokens == 6


def test_a_reroll_pays_a_second_pass_for_the_requests_with_a_rejection() -> None:
    """3 verified tokens, then 1 token of the second pass with its KV read once more: the textbook's slower server."""
    cost = replace(SECOND_PER_TOKEN, kv_token_s=0.5)
    in_pass = run(workload((2, 2)), cost=cost, drafts=drafting(0.0, 0.0))
    two_pass = run(workload((2, 2)), cost=cost, drafts=drafting(0.0, 0.0, rejection=Rejection.TWO_PASS))
    assert chunks(in_pass) == [[2.0, 2 + 3 + 1.0]]
    assert chunks(two_pass) == [[2.0, 2 + 3 + 1.0 + 1 + 1.0]]
    kept = run(workload((2, 2)), cost=cost, drafts=drafting(1.0, 1.0, rejection=Rejection.TWO_PASS))
    assert chunks(kept) == [[2.0, 2 + 3 + 1.0]]


def test_a_draft_that_does_not_fit_into_the_budget_is_left_out() -> None:
    """Budget 4: of two decoding requests the older drafts (3 tokens), the younger decodes plainly."""
    made = run(workload((1, 4), (1, 4)), drafts=drafting(1.0, 1.0), replica=replace(ROOMY, token_budget=4))
    assert sizes(made) == [[1, 3], [1, 1, 2]]
    assert chunks(made) == [[2.0, 6.0], [2.0, 6.0, 9.0]]


def test_a_spent_budget_leaves_the_youngest_without_a_token() -> None:
    """Budget 3, drafts of 2: r0 takes the whole step, r1 goes on when r0 is done."""
    made = run(workload((1, 4), (1, 2)), drafts=drafting(1.0, 1.0), replica=replace(ROOMY, token_budget=3))
    assert chunks(made) == [[2.0, 5.0], [2.0, 8.0]]


def test_the_youngest_is_preempted_and_prefills_again_what_it_had_emitted() -> None:
    """4 blocks of 1 token: in step 3 r0 needs a third block, r1 gives up its 2 and later prefills 1 + 2 tokens again."""
    made = run(workload((1, 3), (1, 3)), replica=Replica(kv_blocks=4, block_tokens=1, max_requests=8, token_budget=100))
    assert chunks(made) == [[2.0, 4.0, 5.0], [2.0, 4.0, 8.0]]


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    """In step 3 one token of budget and one block are left: r1, just preempted, must not come back to be preempted again."""
    made = run(workload((1, 3), (1, 3)), replica=Replica(kv_blocks=4, block_tokens=1, max_requests=8, token_budget=2))
    assert chunks(made) == [[2.0, 4.0, 5.0], [2.0, 4.0, 8.0]]


def test_the_oldest_of_the_preempted_comes_back_first() -> None:
    """5 blocks of 1 token: r2 and then r1 give way to r0; at 8 s r1 is back first, and r3, who came last, starts when r2 has room too."""
    made = run(workload((1, 5), (1, 5), (1, 5), (1, 1)), replica=Replica(kv_blocks=5, block_tokens=1, max_requests=3, token_budget=100))
    assert chunks(made) == [[3.0, 5.0, 6.0, 7.0, 8.0], [3.0, 5.0, 13.0, 14.0, 15.0], [3.0, 13.0, 19.0, 20.0, 21.0], [19.0]]


def test_a_request_that_could_never_fit_is_refused_at_arrival_and_blocks_nobody() -> None:
    """Waiting for blocks that do not exist would hang the queue."""
    made = run(workload((100, 1), (1, 1), (2, 3)), replica=Replica(kv_blocks=2, block_tokens=2, max_requests=8, token_budget=100))
    assert made.requests is not None
    assert [each.outcome for each in made.requests] == [Outcome.REFUSED, Outcome.FINISHED, Outcome.FINISHED]
    assert made.requests[0].output_tokens == 0
    assert len(chunks(made)[0]) == 0


def test_look_ahead_slots_count_towards_what_fits() -> None:
    """Prompt 2 and output 3 need 4 KV tokens plainly, 6 with two drafts: with 4 the drafting replica could never end."""
    tight = Replica(kv_blocks=4, block_tokens=1, max_requests=1, token_budget=100)
    assert len(run(workload((2, 3)), replica=tight).finished) == 1
    assert len(run(workload((2, 3)), replica=tight, drafts=drafting(0.5, 0.5)).finished) == 0
    assert len(run(workload((2, 3)), replica=tight, drafts=drafting(0.5, 0.5, coverage=0.0)).finished) == 1
    assert len(run(workload((2, 3)), replica=replace(tight, kv_blocks=6), drafts=drafting(0.5, 0.5)).finished) == 1


@pytest.mark.parametrize("load", [AT_ONCE, Load(concurrency=2, rate_per_s=None)])
def test_a_run_in_which_everybody_is_refused_ends_with_nothing_measured(load: Load) -> None:
    """No step, so no step time: None and not 0."""
    made = run(workload((9, 1), (9, 1), at_s=(1.0, 2.0)), replica=replace(ROOMY, kv_blocks=1), load=load, drafts=drafting(0.5))
    assert (made.step_seconds, made.finished) == (None, ())
    assert made.acceptance.steps == 0


def test_the_record_says_what_it_is() -> None:
    """The gate must know a simulated run from a measured one, and both arms from each other."""
    asked = workload((2, 2))
    both = simulate_arms(
        asked,
        replica=ROOMY,
        baseline_cost=SECOND_PER_TOKEN,
        speculative_cost=SECOND_PER_TOKEN,
        drafting=drafting(0.5),
        load=Load(concurrency=3, rate_per_s=None),
        seed=5,
    )
    assert [each.arm for each in both] == [Arm.BASELINE, Arm.SPECULATIVE]
    assert [each.provenance.evidence for each in both] == [Evidence.SIMULATED] * 2
    assert [each.provenance.seed for each in both] == [5, 5]
    assert (both[0].acceptance_by_segment, both[0].speculation) == (None, None)
    assert both[1].provenance.arguments["drafting"] == "eagle3, 1 tokens, spread 0, in-pass"
    assert both[1].provenance.arguments["load"] == "concurrency 3"
    assert run(asked).provenance.arguments == {
        "workload": "by hand",
        "replica": "100 blocks of 4, 8 requests, 100 tokens per step",
        "load": "the workload's instants",
    }


def test_impossible_input_is_refused() -> None:
    """Compiled code must never read past a table."""
    with pytest.raises(BadInputError, match="token_s ends"):
        run(workload((1, 1)), replica=replace(ROOMY, token_budget=101))
    with pytest.raises(UnknownNameError, match="chat"):
        run(workload((1, 1)), drafts=replace(drafting(0.5), acceptance={"code": Acceptance(survival=(0.5,), coverage=1.0)}))


MIXED = workload(*[(1 + 7 * i % 23, 1 + 5 * i % 31) for i in range(12)], at_s=tuple(2.0 * i for i in range(12)))
TIGHT = Replica(kv_blocks=14, block_tokens=4, max_requests=4, token_budget=24)


def digest(made: Run) -> str:
    """A hash over every instant, chunk and count of a run."""
    seen = hashlib.sha256(repr((made.step_seconds, made.window_s, made.acceptance_by_segment)).encode())
    for each in made.requests or ():
        seen.update(each.timing.chunk_at_s.tobytes() + each.timing.chunk_tokens.tobytes())
        seen.update(repr((each.id, each.outcome, each.acceptance, each.timing.arrived_at_s)).encode())
    return seen.hexdigest()


def mixed_digest() -> str:
    cost = replace(SECOND_PER_TOKEN, kv_token_s=0.013, prefill_attention_s=0.0007, draft_s=np.linspace(0, 3, 101))
    drafts = drafting(0.7, 0.5, 0.4, coverage=0.8, spread=0.7, rejection=Rejection.TWO_PASS)
    return digest(run(MIXED, replica=TIGHT, cost=cost, drafts=drafts, seed=11))


def test_compiled_and_interpreted_give_the_same_bytes() -> None:
    """A result must not depend on whether numba is at work; every overflow would be an error in the interpreted run."""
    other = "1" if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" else "0"
    code = "import test_simulate_server as here; print(here.mixed_digest())"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": other, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.strip() == mixed_digest()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    """A figure in a report can be made again."""
    drafts = drafting(0.7, 0.5, coverage=0.8)
    first, again, other = (digest(run(MIXED, replica=TIGHT, drafts=drafts, seed=seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@given(survival=st.floats(0, 1), replica=st.sampled_from([TIGHT, ROOMY]), concurrency=st.sampled_from([None, 1, 3]))
@settings(max_examples=15, deadline=None)
def test_drafting_in_no_step_is_the_baseline_byte_for_byte(survival: float, replica: Replica, concurrency: int | None) -> None:
    """Speculation switched off must cost nothing: invariant 10."""
    load = Load(concurrency=concurrency, rate_per_s=None)
    baseline = run(MIXED, replica=replica, load=load)
    off = run(MIXED, replica=replica, load=load, drafts=drafting(survival, survival / 2, coverage=0.0))
    assert [(e.timing, e.outcome) for e in baseline.requests or ()] == [(e.timing, e.outcome) for e in off.requests or ()]
    assert baseline.step_seconds == off.step_seconds


@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=8),
    concurrency=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=25, deadline=None)
def test_a_reroll_is_never_faster(lengths: list[tuple[int, int]], concurrency: int, seed: int) -> None:
    """In a closed loop both take the same steps, so every chunk of the textbook's server comes no earlier."""
    load = Load(concurrency=concurrency, rate_per_s=None)
    in_pass, two_pass = (
        run(workload(*lengths), replica=TIGHT, load=load, seed=seed, drafts=drafting(0.6, 0.3, rejection=rejection))
        for rejection in (Rejection.IN_PASS, Rejection.TWO_PASS)
    )
    assert sizes(in_pass) == sizes(two_pass)
    for ours, theirs in zip(chunks(in_pass), chunks(two_pass), strict=True):
        assert all(a <= b for a, b in zip(ours, theirs, strict=True))


def test_acceptance_does_not_depend_on_the_load() -> None:
    """Common random numbers: what a request accepts is its own, so loads and arms can be compared in pairs."""
    drafts = drafting(0.7, 0.5, coverage=0.6, spread=1.0)
    runs = [run(MIXED, load=Load(concurrency=each, rate_per_s=None), drafts=drafts) for each in (1, 4)]
    first, second = ([each.acceptance for each in made.requests or ()] for made in runs)
    assert first == second
