"""Suffix decoding on logged tokens: worked by hand, against the obvious implementation, and by its laws."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.replay import suffix, suffix_kernel
from paceline.replay.suffix import SuffixRule, propose_suffix, replay_suffix
from paceline.replay.suffix_oracle import propose_obviously, replay_obviously
from paceline.traffic.exchange import END_OF_SEQUENCE, TokenStream

COMPILED = hasattr(suffix_kernel.walk, "py_func")
LOGS = 150 if COMPILED else 30
RULE = SuffixRule(depth=24, cached_requests=10_000, factor=1.0, least_probability=0.1, draft_tokens=24)


def stream(prompt: Sequence[int], output: Sequence[int], *, stopped: bool = False, name: str = "r") -> TokenStream:
    return TokenStream(name, "chat", np.array(prompt, dtype=np.int32), np.array(output, dtype=np.int32), stopped)


def replayed(streams: list[TokenStream], rule: SuffixRule) -> list[tuple[int, int, int, int]]:
    """What both implementations count; they have to agree."""
    rows = []
    for each in replay_suffix(streams, rule):
        counts = each.counts
        assert counts.steps is not None
        assert counts.accepted_per_position is not None
        assert len(counts.accepted_per_position) == rule.draft_tokens
        rows.append((counts.steps, counts.drafts, counts.drafted_tokens, counts.accepted_tokens))
    assert rows == replay_obviously(streams, rule)
    return rows


def test_a_draft_is_as_long_as_its_match_and_follows_what_is_most_frequent() -> None:
    """Context 1 2 3 9 1 2 4 9 1 2 3 9 1 2: after 1 2 came 3 twice and 4 once, of four occurrences.

    m = 1 and 2: 3 with probability 2/4, then 9 with 2/4. From m = 3 on (9 1 2) 4 follows one of three, from m = 4 on (3 9 1 2) one of
    two, the other occurrence being the end: m tokens at 1/2 each. The longest match, 1 2 3 9 1 2, has the largest score: 6 · 1/2.
    """
    own = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 9, 1, 2]
    assert propose_obviously(own, [], RULE) == [4, 9, 1, 2, 3, 9]
    assert propose_obviously(own, [], replace(RULE, draft_tokens=1)) == [4]
    assert propose_obviously(own, [], replace(RULE, factor=0.5)) == [4, 9, 1]
    assert propose_obviously(own, [], replace(RULE, least_probability=0.51)) == []
    assert propose_obviously(own, [], replace(RULE, depth=3)) == [3]


def test_earlier_outputs_are_drafted_from() -> None:
    """The second answer repeats the first: without the cache an agent's loop would seem to gain nothing.

    Step 1, context 8 1: 2 (1 matched). Accepted, emits 2 3. Context 8 1 2 3: 1 2 3 matched, draft 4 5 6. Accepted, emits 4 5 6 7. Then
    nothing remains.
    """
    twice = [stream([9], [1, 2, 3, 4, 5, 6, 7]), stream([8], [1, 2, 3, 4, 5, 6, 7])]
    assert replayed(twice, RULE)[1] == (2, 2, 4, 4)
    assert replayed(twice, replace(RULE, cached_requests=0))[1] == (6, 0, 0, 0)
    assert replayed([*twice[:1], stream([8], [5] * 3), *twice[1:]], replace(RULE, cached_requests=1))[2] == (6, 0, 0, 0)


def test_the_end_that_outputs_share_can_be_drafted() -> None:
    """An answer that repeats another stops where that one did, and the step that ends it is no loss."""
    ends = [stream([9], [1, 2, END_OF_SEQUENCE], stopped=True), stream([8], [1, 2, END_OF_SEQUENCE], stopped=True)]
    assert replayed(ends, RULE)[1] == (1, 1, 1, 1)


def random_log(rng: np.random.Generator) -> list[TokenStream]:
    """A few short streams of a small alphabet, copied passages among them."""
    letters = int(rng.integers(2, 6))
    texts = [rng.integers(0, letters, rng.integers(1, 30)).tolist() for _ in range(int(rng.integers(1, 6)))]
    texts += [texts[int(rng.integers(0, len(texts)))] for _ in range(2)]
    return [stream(rng.integers(0, letters, rng.integers(0, 20)).tolist(), text, stopped=bool(rng.random() < 0.5)) for text in texts]


def random_rule(rng: np.random.Generator) -> SuffixRule:
    return SuffixRule(
        depth=int(rng.integers(2, 10)),
        cached_requests=int(rng.integers(0, 4)),
        factor=float(rng.choice([0.5, 1.0, 2.0])),
        least_probability=float(rng.choice([0.0, 0.1, 0.4])),
        draft_tokens=int(rng.integers(1, 9)),
    )


def test_both_implementations_count_the_same_on_random_logs() -> None:
    """A place lost at a border between outputs, or one that was evicted, would shift acceptance with nobody noticing."""
    rng = np.random.default_rng(20241104)
    accepted = sum(sum(row[3] for row in replayed(random_log(rng), random_rule(rng))) for _ in range(LOGS))
    assert accepted > LOGS


def test_a_cache_that_outgrows_its_room_keeps_its_outputs() -> None:
    """Outputs lost while arrays grow would make acceptance fall with the length of the log."""
    rng = np.random.default_rng(5)
    log = [stream([], rng.integers(0, 3, 40).tolist()) for _ in range(10)]
    assert sum(each.output.size for each in log) > suffix.FIRST_ROOM_TOKENS
    for kept in (4, 100):
        replayed(log, replace(RULE, depth=5, cached_requests=kept))


def test_a_vocabulary_that_outgrows_its_room_keeps_its_words() -> None:
    """Words beyond the first few hundred would be drafted as one another."""
    many = list(range(5, suffix.FIRST_ROOM_TOKENS + 50))
    log = [stream([], [1, 2, 3]), stream(many, [7, 8, 9, 10]), stream([1, 2, *many[::-1]], [1, 2, 3, 300, 299])]
    assert [row[3] for row in replayed(log, replace(RULE, depth=4, draft_tokens=2))] == [0, 2, 2]


def test_figures_do_not_depend_on_the_compiler() -> None:
    """Coverage is measured interpreted and results are computed compiled."""
    rng = np.random.default_rng(9)
    corpus = suffix_kernel.Corpus(*(np.full(40, -1, dtype=np.int32) for _ in range(3)))
    corpus.text[:] = rng.integers(1, 4, 40)
    limits, ids, results = suffix_kernel.Limits(8, 6, 1.0, 0.1, 1), np.arange(40), []
    suffix_kernel.link(corpus, 0, 40)
    for run in (suffix_kernel.speculate, getattr(suffix_kernel.speculate, "py_func", suffix_kernel.speculate)):
        drafts = np.zeros((2, 6), dtype=np.int32)
        length, score = run(corpus, 0, 40, corpus.text[-8:], limits, ids, np.zeros(40, dtype=np.int32), drafts)
        results.append((length, score, drafts[0].tolist()))
    assert results[0] == results[1]
    assert suffix_kernel.speculate(corpus, 0, 40, corpus.text[:0], limits, ids, np.zeros(40, dtype=np.int32), drafts) == (0, 0.0)


def test_unusable_streams_are_refused_by_name() -> None:
    """An end of sequence in mid-text would be drafted as if a vocabulary had it."""
    for bad in (
        stream([1], [], name="bad"),
        stream([-1], [1], name="bad"),
        stream([1], [2, -1], name="bad"),
        stream([1], [-1, 2], stopped=True, name="bad"),
    ):
        with pytest.raises(BadInputError, match="stream 'bad'"):
            list(replay_suffix([bad], RULE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 1}, "depth = 1 tokens is not between 2 and 256"),
        ({"draft_tokens": 257}, "draft length = 257 tokens"),
        ({"cached_requests": -1}, "-1 cached requests"),
        ({"factor": float("nan")}, "factor nan"),
        ({"least_probability": 1.5}, "least probability 1.5"),
    ],
)
def test_a_rule_that_drafts_nothing_sensible_is_refused(change: dict[str, Any], message: str) -> None:
    """Out of range, an option would silently mean another drafter."""
    with pytest.raises(BadInputError, match=message):
        replace(RULE, **change)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=4), st.integers(1, 6))
def test_every_output_token_is_emitted_once(outputs: list[list[int]], K: int) -> None:
    """Output tokens = 1 + Σ emitted; emitted is accepted + 1 in each step, but for a last one that accepts all that remains."""
    rows = replayed([stream([1, 2], each) for each in outputs], replace(RULE, draft_tokens=K))
    for (steps, drafts, drafted, accepted), output in zip(rows, outputs, strict=True):
        assert len(output) <= 1 + steps + accepted <= len(output) + 1
        assert accepted <= drafted <= drafts * K


@pytest.mark.parametrize("seed", range(30 if COMPILED else 5))
def test_one_proposal_is_the_obvious_one(seed: int) -> None:
    """The engine drafts by this function what replay counted: two rules would give two acceptances for one method."""
    rng = np.random.default_rng(seed)
    words = np.array([7, 2, 900, 41], dtype=np.int32)
    own = words[rng.integers(0, 4, size=rng.integers(1, 40))]
    cached = [words[rng.integers(0, 4, size=rng.integers(1, 30))] for _ in range(seed % 4)]
    rule = SuffixRule(depth=12, cached_requests=9, factor=float(rng.uniform(0.5, 3)), least_probability=0.15, draft_tokens=6)
    wanted = propose_obviously(own.tolist(), [each.tolist() for each in cached], rule)
    assert propose_suffix(own, cached, rule).tolist() == wanted


def test_a_proposal_after_an_end_of_sequence_is_refused() -> None:
    """What stands for the end of a logged output is no token that a model could be given."""
    with pytest.raises(BadInputError, match="token id -1"):
        propose_suffix(np.array([1, 2], dtype=np.int32), [np.array([3, END_OF_SEQUENCE], dtype=np.int32)], RULE)
