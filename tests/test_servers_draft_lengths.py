"""Draft length by batch size, as three servers write it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.servers.batch_ranges import batch_ranges, not_looked_at
from paceline.servers.sglang.adaptive import adaptive_config, start_steps
from paceline.servers.tensorrt_llm.schedule import draft_len_schedule
from paceline.servers.vllm.config import batch_size_table, batch_size_table_cautions

BEST = {1: 5, 8: 5, 64: 1, 256: 0}


def test_vllms_table_cuts_halfway_between_the_sizes_that_were_looked_at() -> None:
    """√(8 · 64) = 22.6 and √(64 · 256) = 128. The scheduler refuses a table that does not start at 1 only when the server is up."""
    assert batch_size_table(BEST, most_requests=256) == [[1, 22, 5], [23, 128, 1], [129, 256, 0]]


def test_tensorrt_llms_schedule_names_the_last_batch_of_each_length() -> None:
    """Read as first batch sizes, every length would hold one range too early; beyond the last key nothing is drafted."""
    assert draft_len_schedule(BEST, most_requests=256) == {22: 5, 128: 1}
    assert draft_len_schedule({1: 1, 8: 3}, most_requests=8) == {2: 1, 8: 1}, "the length at the smallest key is max_draft_len"
    assert draft_len_schedule({1: 0, 8: 3}, most_requests=8) is None


def test_sglangs_candidates_are_the_best_lengths_of_each_acceptance() -> None:
    """A candidate that never pays costs its probing; one that is missing can never be reached."""
    made = adaptive_config([BEST, {1: 7, 8: 5, 64: 1, 256: 0}], most_requests=256)
    steps = {key: each["candidate_steps"] for key, each in made.items() if key.isdigit()}
    assert steps == {"1": [5, 7], "3": [5], "23": [1], "129": [0]}
    assert start_steps(made) == 7
    assert made["ema_alpha"] == 0.2
    assert set(made["1"]) == {"candidate_steps", "up_hysteresis", "down_hysteresis", "ceiling_coeff"}
    assert list(adaptive_config([{1: 1, 2: 3}, {1: 1, 2: 3}], most_requests=2)) == [
        "1",
        "2",
        "ema_alpha",
        "update_interval",
        "warmup_batches",
    ]
    with pytest.raises(BadInputError, match="no acceptance to adapt to"):
        adaptive_config([], most_requests=256)


def test_candidates_that_do_not_change_are_listed_once() -> None:
    """One acceptance goes from 1 to 3 where the other goes from 3 to 1: the pair stays the same."""
    made = adaptive_config([{1: 1, 4: 3}, {1: 3, 4: 1}], most_requests=4)
    assert [key for key in made if key.isdigit()] == ["1"]


def test_a_table_that_is_known_to_collapse_is_told() -> None:
    """Whoever lets vLLM switch drafts off by batch size may see a tenth of the throughput there (vllm#49548)."""
    codes = [each.code for each in batch_size_table_cautions([[1, 4, 2], [5, 512, 0]])]
    assert codes == ["dynamic_k_graphs", "dynamic_k_collapse"]
    assert "measure at 4, 5 and 6 in flight" in batch_size_table_cautions([[1, 4, 2], [5, 512, 0]])[1].message
    assert [each.code for each in batch_size_table_cautions([[1, 4, 2], [5, 512, 1]])] == ["dynamic_k_graphs"]
    assert batch_size_table_cautions([[1, 512, 2]]) == ()


@pytest.mark.parametrize("best", [{}, {0: 1}, {257: 1}, {8: -1}])
def test_impossible_sizes_and_lengths_are_refused(best: dict[int, int]) -> None:
    """A table for batches that never run is a table that never acts."""
    with pytest.raises(BadInputError, match=r"batch sizes|draft lengths"):
        batch_ranges(best, most_requests=256)


def test_no_cut_over_is_written_that_nobody_looked_at() -> None:
    """Drafts off from 65 on where 256 pays is a loss, and a cut-over that vLLM may collapse at; from where on nothing is known is told."""
    assert batch_ranges({1: 5, 64: 1}, most_requests=256) == ((1, 8, 5), (9, 256, 1))
    assert not_looked_at({1: 5, 64: 1}, most_requests=256) == 65
    assert not_looked_at({1: 5, 256: 1}, most_requests=256) is None
    assert batch_ranges({1: 5, 64: 0}, most_requests=256) == ((1, 8, 5), (9, 256, 0))
    assert batch_ranges({256: 2}, most_requests=256) == ((1, 256, 2),)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(1, 300), st.integers(0, 3), min_size=1, max_size=8))
def test_ranges_have_no_gap_and_hold_what_was_found(best: dict[int, int]) -> None:
    """A gap inherits the length before it: the server drafts where drafting was found to cost."""
    ranges = batch_ranges(best, most_requests=300)
    assert [ranges[0][0], ranges[-1][1]] == [1, 300]
    assert all(before[1] + 1 == after[0] and before[2] != after[2] for before, after in pairwise(ranges))
    assert all(first <= last for first, last, _ in ranges)
    assert all(next(length for first, last, length in ranges if first <= size <= last) == best[size] for size in best)
