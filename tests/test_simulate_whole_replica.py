"""The rest of a replica: a prefix cache, draft lengths by batch, and steps that depend on the steps before."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from paceline.errors import BadInputError
from paceline.forecast.step_cost import StepCost
from paceline.run import Load, Run
from paceline.simulate import state as columns
from paceline.simulate.draft_lengths import Ladder, LadderSlot, LengthTable, ladder_from_table
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import cost_of, rules_of, run_through, simulate, start
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation, Tree
from paceline.workload import Request, Workload

ROOMY = Replica(kv_blocks=4000, block_tokens=16, max_requests=8, token_budget=4000)
# A step takes as many seconds as it has tokens: what was planned can be read off the clock.
TOKENS = StepCost(token_s=np.arange(4001.0), kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(9))
SIGMAS = 5.5


def asked(*requests: tuple[float, int, int, tuple[int, ...] | None]) -> Workload:
    """Requests of (instant, prompt, output, hashes)."""
    made = tuple(
        Request(id=f"r{i}", arrived_at_s=at_s, prompt_tokens=prompt, output_tokens=output, segment="chat", prefix_hashes=hashes)
        for i, (at_s, prompt, output, hashes) in enumerate(requests)
    )
    return Workload(requests=made, source="by hand", seed=None)


def drafting(*survival: float, method: Method = Method.EAGLE3, coverage: float = 1.0, persistence: float = 0.0) -> Drafting:
    return Drafting(
        speculation=Speculation(method=method, draft_tokens=len(survival), tree=None),
        acceptance={"all": Acceptance(survival=survival, coverage=coverage)},
        spread=0.0,
        rejection=Rejection.IN_PASS,
        persistence=persistence,
    )


def run(
    workload: Workload,
    *,
    replica: Replica = ROOMY,
    drafts: Drafting | None = None,
    cost: StepCost | Sequence[StepCost] = TOKENS,
    concurrency: int | None = None,
) -> Run:
    load = Load(concurrency=concurrency, rate_per_s=None)
    return simulate(workload, replica=replica, step_cost=cost, drafting=drafts, load=load, seed=1)


def first_chunks(made: Run) -> list[float]:
    """Seconds from arrival to the first chunk: with `TOKENS`, the tokens prefilled."""
    return [each.timing.ttft_s for each in made.requests or ()]


def test_a_prompt_seen_before_is_not_prefilled_again() -> None:
    """Prompts of 1,024 + 8 tokens share 1,024: the second prefills 8. A trace of agents without it looks four times slower than it is."""
    again = asked((0.0, 1032, 1, (7, 8, 1)), (5000.0, 1032, 1, (7, 8, 2)), (9000.0, 1032, 1, (3, 8, 1)))
    assert first_chunks(run(again)) == [1032.0, 8.0, 1032.0], "the last one differs from its first block on"


def test_without_hashes_every_prompt_is_prefilled() -> None:
    """Two equal lengths are not two equal texts."""
    assert first_chunks(run(asked((0.0, 600, 1, None), (5000.0, 600, 1, None)))) == [600.0, 600.0]


def test_the_last_token_is_always_computed() -> None:
    """A prompt of 1,024 tokens all cached keeps its last KV block of 16 to compute: something must give the first output token."""
    assert first_chunks(run(asked((0.0, 1024, 1, (1, 2)), (5000.0, 1024, 1, (1, 2))))) == [1024.0, 16.0]


def test_a_head_gives_up_the_last_matched_block() -> None:
    """EAGLE needs the target's hidden states there: 16 more tokens; n-gram lookup does not."""
    twice = asked((0.0, 1032, 1, (7, 8, 1)), (5000.0, 1032, 1, (7, 8, 2)))
    assert first_chunks(run(twice, drafts=drafting(0.5)))[1] == 24.0
    assert first_chunks(run(twice, drafts=drafting(0.5, method=Method.NGRAM)))[1] == 8.0


def test_the_least_recently_used_prefix_leaves_first() -> None:
    """While a prompt of 33 KV blocks runs, the 67 others hold two prefixes. At the fourth name 2 is the oldest, for 1 was used again."""
    small = replace(ROOMY, kv_blocks=100)
    visits = [1, 2, 1, 3, 4, 1, 3, 2]
    made = run(asked(*((2000.0 * i, 520, 1, (name,)) for i, name in enumerate(visits))), replica=small)
    assert first_chunks(made) == [520.0, 520.0, 8.0, 520.0, 520.0, 8.0, 8.0, 520.0]


def test_blocks_of_running_requests_stay_and_are_shared() -> None:
    """The second arrives while the first decodes: its prefix is found although nothing was freed."""
    made = run(asked((0.0, 1032, 500, (7, 8, 1)), (1100.0, 1032, 1, (7, 8, 2))))
    assert made.requests is not None
    assert made.requests[1].timing.ttft_s < 12.0


@pytest.mark.parametrize("drafts", [None, drafting(0.7, 0.4)])
def test_pins_and_the_list_of_evictable_blocks_agree_under_preemption(drafts: Drafting | None) -> None:
    """A block pinned for ever would shrink the cache unnoticed; all pins are gone when everybody has left."""
    rng = np.random.default_rng(3)
    shared = [tuple(int(each) for each in rng.integers(0, 6, size=2)) for _ in range(60)]
    workload = asked(*((40.0 * i, 1040, 40, (a, 10 + 10 * a + b)) for i, (a, b) in enumerate(shared)))
    replica = replace(ROOMY, kv_blocks=132, max_requests=4)
    load = Load(concurrency=None, rate_per_s=None)
    state = start(workload, replica=replica, drafting=drafts, load=load, seed=1)
    rules = rules_of(replica, drafting=drafts, load=load)
    state = run_through(state, rules, cost_of((TOKENS,), draft_tokens=rules.draft_tokens))
    assert state.counts[columns.PREEMPTIONS] > 0
    assert state.table[:, columns.CACHED].sum() > 0
    assert state.pins.max() == 0
    assert (state.pins == 0).sum() == state.counts[columns.EVICTABLE]
    chain, block = [], int(state.counts[columns.OLDEST])
    while block >= 0:
        chain.append(block)
        block = int(state.newer[block])
    assert len(chain) == len(set(chain)) == state.counts[columns.EVICTABLE]
    assert chain[-1] == state.counts[columns.NEWEST]
    assert state.older[chain].tolist() == [-1, *chain[:-1]]


SIXTEEN = asked(*((0.0, 4, 60, None) for _ in range(16)))
BY_LENGTH = tuple(replace(TOKENS, draft_s=np.full(9, float(k)) * (np.arange(9) > 0)) for k in range(4))


def digest(made: Run) -> str:
    seen = hashlib.sha256(repr((made.step_seconds, made.window_s, made.acceptance_by_segment)).encode())
    for each in made.requests or ():
        seen.update(each.timing.chunk_at_s.tobytes() + each.timing.chunk_tokens.tobytes() + repr(each.acceptance).encode())
    return seen.hexdigest()


def test_a_table_with_one_entry_is_the_fixed_length_byte_for_byte() -> None:
    """Whoever tries a table first tries the one that changes nothing."""
    fixed = drafting(0.7, 0.5, 0.4)
    table = replace(fixed, lengths=LengthTable(((1, 8, 3),)))
    assert digest(run(SIXTEEN, drafts=table, cost=BY_LENGTH)) == digest(run(SIXTEEN, drafts=fixed, cost=BY_LENGTH[3]))


def test_a_table_of_length_zero_is_the_baseline() -> None:
    """Speculation switched off by the table costs nothing but the look-ahead that was reserved for nobody."""
    off = run(SIXTEEN, drafts=replace(drafting(0.7), lengths=LengthTable(((1, 8, 0),))), cost=BY_LENGTH[:2])
    plain = run(SIXTEEN)
    assert [each.timing.chunk_at_s.tolist() for each in off.requests or ()] == [
        each.timing.chunk_at_s.tolist() for each in plain.requests or ()
    ]
    assert off.acceptance.drafts == 0


def test_gaps_and_the_tail_carry_the_length_before_them_and_long_ones_are_cut() -> None:
    """Entry by entry as vLLM does: a table read otherwise drafts where the server does not."""
    table = LengthTable(((1, 2, 5), (4, 5, 2), (7, 7, 0)))
    rules = table.rules(draft_tokens=3, max_requests=9)
    assert rules.by_batch.tolist() == [3, 3, 3, 3, 2, 2, 2, 0, 0, 0]
    assert table.longest() == 5


def test_the_batch_decides_how_much_is_drafted() -> None:
    """Two run, then one: with K = 1 for two and 3 for one, the last chunks of the longer answer have 4 tokens."""
    both = asked((0.0, 2, 5, None), (0.0, 2, 13, None))
    drafts = replace(drafting(1.0, 1.0, 1.0), lengths=LengthTable(((1, 1, 3), (2, 8, 1))))
    made = run(both, drafts=drafts, cost=BY_LENGTH)
    assert [each.timing.chunk_tokens.tolist() for each in made.requests or ()] == [[1, 2, 2], [1, 2, 2, 4, 4]]
    counts = made.acceptance
    assert (counts.drafts, counts.drafted_tokens) == (6, 4 * 1 + 2 * 3)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ((), "start at a batch of 1"),
        (((2, 4, 1),), "start at a batch of 1"),
        (((1, 4, 1), (4, 8, 0)), "overlap"),
        (((1, 4, -1),), "draft length from 0 on"),
        (((1, 0, 1),), "first ≤ last"),
    ],
)
def test_tables_that_vllm_would_die_of_are_refused(entries: tuple[tuple[int, int, int], ...], told: str) -> None:
    """The engine validates them when its scheduler is built, minutes after the launch."""
    with pytest.raises(BadInputError, match=told):
        LengthTable(entries)


def ladder(*candidates: int, down: float = 0.0) -> Ladder:
    return Ladder(slots=(LadderSlot(first=1, candidates=candidates, up=0.0, down=down),), weight=0.5, warm_up=2, interval=2)


def drafted_lengths(survival: tuple[float, ...], rungs: Ladder, *, output: int = 40) -> list[int]:
    """Tokens of each chunk of one request after its first."""
    costs = tuple(replace(TOKENS, draft_s=np.zeros(9)) for _ in range(len(survival) + 1))
    made = run(asked((0.0, 2, output, None)), drafts=replace(drafting(*survival), lengths=rungs), cost=costs)
    assert made.requests is not None
    return [int(each) for each in made.requests[0].timing.chunk_tokens[1:]]


def test_a_ladder_climbs_where_everything_is_accepted() -> None:
    """From the middle candidate 3 with a mean of 2: after 4 batches of 3 accepted drafts the mean is 2.94 > 3 − ½, so K = 5."""
    assert drafted_lengths((1.0,) * 6, ladder(0, 1, 3, 5))[:5] == [4, 4, 4, 4, 6]
    assert drafted_lengths((1.0,) * 3, ladder(0, 1, 3))[:5] == [4] * 5, "starts at the draft length where that is a candidate"


def test_a_ladder_goes_down_to_plain_decoding_and_probes_again() -> None:
    """Nothing is accepted: K falls to 0, and every `interval` batches one probe is paid, for traffic may change."""
    made = run(
        asked((0.0, 2, 30, None)),
        drafts=replace(drafting(0.0, 0.0, 0.0, 0.0), lengths=ladder(0, 1, 3)),
        cost=(TOKENS,) * 5,
    )
    assert made.requests is not None
    gaps = made.requests[0].timing.chunk_gaps_s.tolist()
    assert gaps[:4] == [2.0] * 4, "K = 1 from the middle, undecided for four batches"
    assert gaps[4:12] == [1.0, 1.0, 2.0, 2.0] * 2, "0, then a probe of 1, and so on"


def test_a_ladder_without_zero_stays_on_its_lowest_rung() -> None:
    """SGLang's slot for small batches never stops drafting."""
    assert set(drafted_lengths((0.0,) * 7, ladder(1, 3, 5, 7, down=-0.25))) == {1}
    rules = ladder(1, 3).rules(draft_tokens=3, max_requests=4)
    assert rules.by_batch.tolist() == [0] * 5


def test_a_slot_of_zero_alone_never_drafts() -> None:
    """SGLang's slot for large batches."""
    only = Ladder(slots=(LadderSlot(first=1, candidates=(0,), up=0.0, down=0.0),), weight=0.5, warm_up=0, interval=1)
    assert set(drafted_lengths((1.0,), only, output=12)) == {1}


def test_a_run_of_many_steps_gets_room_as_it_goes() -> None:
    """5,000 steps, each one second: a clock that ends early would lose the rest of the answer."""
    made = run(asked((0.0, 1, 5000, None)))
    assert made.requests is not None
    assert made.requests[0].timing.chunk_at_s.tolist() == [float(each) for each in range(1, 5001)]


def test_sglangs_ladder_is_the_published_one() -> None:
    """A wrong constant would advise against a setting that works."""
    published = ladder_from_table("sglang")
    assert [(each.first, each.candidates, each.down) for each in published.slots] == [
        (1, (1, 3, 5, 7), -0.25),
        (8, (0, 1, 3), 0.0),
        (32, (0, 1), 0.0),
        (64, (0,), 0.0),
    ]
    assert (published.weight, published.warm_up, published.interval, published.longest()) == (0.2, 10, 5, 7)
    with pytest.raises(BadInputError, match="climbs to 7 drafts, but the draft length is 3"):
        published.rules(draft_tokens=3, max_requests=8)


def test_impossible_ladders_are_refused() -> None:
    """Compiled code must never index past its candidates."""
    slot = LadderSlot(first=1, candidates=(1, 3), up=0.0, down=0.0)
    for slots, told in [
        ((), "start at 1"),
        ((replace(slot, first=2),), "start at 1"),
        ((slot, slot), "rise"),
        ((replace(slot, candidates=(3, 1)),), "rising"),
        ((replace(slot, candidates=()),), "rising"),
        ((replace(slot, up=float("nan")),), "finite"),
    ]:
        with pytest.raises(BadInputError, match=told):
            Ladder(slots=slots, weight=0.2, warm_up=10, interval=5)
    with pytest.raises(BadInputError, match="moving mean"):
        Ladder(slots=(slot,), weight=0.0, warm_up=10, interval=5)


def test_what_cannot_be_drafted_by_batch_is_refused() -> None:
    """A tree has no length to cut, and a length without a cost has no price."""
    table = LengthTable(((1, 8, 1),))
    tree = Speculation(method=Method.EAGLE2, draft_tokens=2, tree=Tree(depth=2, topk=3, nodes=6))
    with pytest.raises(BadInputError, match="for chains"):
        replace(drafting(0.5, 0.4), speculation=tree, lengths=table)
    with pytest.raises(BadInputError, match="1 step costs"):
        run(SIXTEEN, drafts=replace(drafting(0.5), lengths=table))
    with pytest.raises(BadInputError, match="2 step costs"):
        run(SIXTEEN, drafts=drafting(0.5), cost=(TOKENS, TOKENS))
    for persistence in (1.0, -0.1, float("nan")):
        with pytest.raises(BadInputError, match="persistence"):
            drafting(0.5, persistence=persistence)


LONG = asked(*((0.0, 1, 1201, None) for _ in range(8)))


def accepted_by_step(made: Run) -> list[np.ndarray]:
    """Drafts accepted in each step but the last, which may be cut."""
    return [each.timing.chunk_tokens[1:-1].astype(np.float64) - 1 for each in made.requests or ()]


def test_neighbouring_steps_correlate_by_the_persistence_and_the_mean_stays() -> None:
    """Runs of good and bad luck make tails longer; they must not move the acceptance that was measured."""
    long = run(LONG, drafts=drafting(0.7, 0.5, persistence=0.5))
    rows = accepted_by_step(long)
    pooled = np.concatenate(rows)
    pairs = np.concatenate([np.stack([each[:-1], each[1:]]) for each in rows], axis=1)
    n = pooled.size
    assert np.corrcoef(pairs)[0, 1] == pytest.approx(0.5, abs=SIGMAS * 2 / sqrt(n))
    # The mean of a DAR(1) series varies as that of n (1 − φ) / (1 + φ) independent steps.
    assert pooled.mean() == pytest.approx(1.2, abs=SIGMAS * pooled.std() / sqrt(n / 3) + 0.01)


def test_persistence_makes_matches_of_prompt_lookup_come_in_bursts() -> None:
    """An n-gram match is seldom alone: the share of drafted steps is the stated one, and they stand together."""
    bursts = run(LONG, drafts=drafting(1.0, 1.0, method=Method.NGRAM, coverage=0.4, persistence=0.8))
    rows = accepted_by_step(bursts)
    pairs = np.concatenate([np.stack([each[:-1], each[1:]]) for each in rows], axis=1)
    n = pairs.shape[1]
    assert bursts.acceptance.coverage == pytest.approx(0.4, abs=SIGMAS * sqrt(0.24 * 9 / n) + 0.01)
    assert np.corrcoef(pairs)[0, 1] == pytest.approx(0.8, abs=SIGMAS * 2 / sqrt(n))
    assert bursts.provenance.arguments["persistence"] == "0.8"


def test_without_persistence_the_bytes_are_those_of_independent_steps() -> None:
    """A figure published before must come out again: hash of a run made before persistence, tables and prefixes existed."""
    drafts = replace(drafting(0.7, 0.5, 0.4, coverage=0.8), spread=0.7, rejection=Rejection.TWO_PASS)
    made = run(SIXTEEN, drafts=drafts, replica=replace(ROOMY, kv_blocks=20), concurrency=5)
    instants = np.concatenate([each.timing.chunk_at_s for each in made.requests or ()])
    assert hashlib.sha256(instants.tobytes()).hexdigest()[:16] == "cf39ac0ce6e50c87"
