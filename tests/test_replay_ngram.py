"""N-gram drafting on logged tokens: worked by hand, against the obvious implementation, and by its laws."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError
from paceline.replay import ngram, ngram_kernel
from paceline.replay.ngram import NgramRule, RequestAcceptance, pool_by_segment, propose, replay, replay_streams
from paceline.replay.ngram_oracle import propose_obviously, replay_obviously
from paceline.speculation.counts import AcceptanceCounts
from paceline.traffic.exchange import END_OF_SEQUENCE, TokenStream

COMPILED = hasattr(ngram_kernel.walk, "py_func")
RANDOM_CONTEXTS = 10_000 if COMPILED else 300
RANDOM_STREAMS = 300 if COMPILED else 40


def rule(min_tokens: int, max_tokens: int, draft_tokens: int) -> NgramRule:
    return NgramRule(min_tokens=min_tokens, max_tokens=max_tokens, draft_tokens=draft_tokens)


def ids(tokens: Sequence[int]) -> npt.NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def stream(prompt: Sequence[int], output: Sequence[int], *, stopped: bool, name: str = "r1", segment: str = "chat") -> TokenStream:
    return TokenStream(name, segment, ids(prompt), ids(output), stopped)


def drafted(context: Sequence[int], by: NgramRule) -> list[int]:
    """What both implementations draft; they have to agree."""
    fast, obvious = propose(ids(context), by), propose_obviously(ids(context), by)
    tokens: list[int] = fast.tolist()
    assert fast.dtype == obvious.dtype == np.int32
    assert tokens == obvious.tolist()
    return tokens


def replayed(one: TokenStream, by: NgramRule) -> tuple[int | None, int, int, int, tuple[int, ...] | None]:
    """What both implementations count: steps, drafts, drafted, accepted, accepted per position."""
    counts = replay(one, by)
    assert counts == replay_obviously(one, by)
    return counts.steps, counts.drafts, counts.drafted_tokens, counts.accepted_tokens, counts.accepted_per_position


def interpreted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Python runs it; without the compiler it is the function itself."""
    python: Callable[..., Any] = getattr(kernel, "py_func", kernel)
    return python


def random_context(rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Up to 60 tokens of a small alphabet, or a text-like context: frequent tokens and copied passages."""
    if rng.random() < 0.8:
        return rng.integers(0, rng.integers(1, 7), rng.integers(0, 61)).astype(np.int32)
    text = np.minimum(rng.zipf(1.5, 150), 50_000)
    passages = [text[start : start + 12] for start in rng.integers(0, 140, 6)]
    return np.concatenate((text, *passages)).astype(np.int32)


def random_rule(rng: np.random.Generator) -> NgramRule:
    shortest = int(rng.integers(1, 4))
    return rule(shortest, shortest + int(rng.integers(0, 4)), int(rng.integers(1, 7)))


def random_stream(rng: np.random.Generator) -> TokenStream:
    context = random_context(rng)
    tokens = np.append(context, rng.integers(0, 3, 1)).astype(np.int32)
    first = int(rng.integers(0, tokens.size))
    stopped = bool(rng.random() < 0.5)
    if stopped and rng.random() < 0.5:
        tokens[-1] = END_OF_SEQUENCE
    return TokenStream("r", "chat", tokens[:first], tokens[first:], stopped)


@pytest.mark.parametrize(
    ("context", "by", "expected"),
    [
        ([1, 2, 3, 4, 1, 2], rule(2, 4, 3), [3, 4, 1]),
        ([1, 2, 3, 4, 1, 2], rule(2, 4, 9), [3, 4, 1, 2]),
        ([5, 6, 1, 5, 6, 2, 5, 6], rule(2, 2, 2), [1, 5]),
        ([6, 7, 5, 6, 8, 5, 6], rule(1, 2, 1), [8]),
        ([6, 7, 5, 6, 8, 5, 6], rule(1, 1, 1), [7]),
        ([7, 7, 7], rule(2, 2, 3), [7]),
        ([7, 7, 7, 7], rule(1, 2, 3), [7, 7]),
    ],
    ids=["follows", "cut at the end", "earliest of ties", "longest first", "capped length", "overlap", "overlap, earliest"],
)
def test_a_draft_is_what_followed_the_earliest_occurrence_of_the_longest_suffix(
    context: list[int], by: NgramRule, expected: list[int]
) -> None:
    """Whoever reads α before switching n-gram drafting on would read it for a drafter that no engine has."""
    assert drafted(context, by) == expected


@pytest.mark.parametrize(
    ("context", "by"),
    [([], rule(1, 2, 3)), ([1], rule(1, 1, 3)), ([1, 1], rule(2, 4, 3)), ([1, 2, 3], rule(1, 3, 3)), ([1, 2, 3, 1, 3], rule(2, 3, 3))],
    ids=["empty", "one token", "no room for two", "all new", "too short a match"],
)
def test_no_earlier_occurrence_gives_no_draft(context: list[int], by: NgramRule) -> None:
    """A step without a match must not count as drafted, or coverage is overstated."""
    assert drafted(context, by) == []


def test_tokens_decide_and_not_their_hashes() -> None:
    """Two bigrams in one slot taken for the same would draft, and accept, what no engine drafts."""
    modulus, grown = ngram_kernel.HASH_MASK + 1, ngram_kernel._grown
    behind = int(grown(0, 78))
    wanted = int(grown(grown(0, 77), 5)) - int(grown(behind, 0))
    one, other = [5, 77], [wanted * pow(ngram_kernel.FACTOR, -1, modulus) % modulus, 78]
    assert grown(grown(0, 77), 5) == grown(behind, other[0])
    assert replayed(stream([*one, 8, other[0]], [other[1], 9], stopped=False), rule(2, 2, 3)) == (1, 0, 0, 0, (0, 0, 0))
    assert replayed(stream([*one, 8, *other, 8, one[0]], [one[1], 8, other[0]], stopped=False), rule(2, 2, 3)) == (1, 1, 2, 2, (1, 1, 0))


def test_both_implementations_propose_the_same_on_random_contexts() -> None:
    """A fast path that differs from the rule in a rare case would shift α with nobody noticing."""
    rng = np.random.default_rng(20240229)
    some = sum(bool(drafted(random_context(rng).tolist(), random_rule(rng))) for _ in range(RANDOM_CONTEXTS))
    assert RANDOM_CONTEXTS * 0.5 < some < RANDOM_CONTEXTS


def test_the_earlier_ends_give_the_same_draft_as_the_rule_at_every_token() -> None:
    """The replay drafts from these ends: one that is wrong, or not the earliest, is a wrong draft."""
    rng = np.random.default_rng(7)
    room = ngram_kernel.room_for(300, 300)
    for array in room:
        array[:] = 3
    for _ in range(RANDOM_STREAMS):
        tokens, by = np.append(random_context(rng), 1).astype(np.int32), random_rule(rng)
        first, ends = int(rng.integers(0, tokens.size)), np.full(tokens.size, 9, dtype=np.int32)
        ngram_kernel.find_earlier_ends(tokens, first, by.min_tokens, by.max_tokens, ends, room)
        for last in range(first, tokens.size):
            end = int(ends[last])
            draft = tokens[end + 1 : last + 1][: by.draft_tokens] if end >= 0 else ids([])
            assert draft.tolist() == propose_obviously(tokens[: last + 1], by).tolist()


def test_compiled_and_interpreted_kernels_agree() -> None:
    """Coverage is measured interpreted and results are computed compiled: a difference would leave the second untested."""
    rng = np.random.default_rng(11)
    for _ in range(20):
        tokens, by = np.append(random_context(rng), 1).astype(np.int32), random_rule(rng)
        first, size = int(rng.integers(0, tokens.size)), tokens.size
        results = []
        for run in (lambda kernel: kernel, interpreted):
            ends, counts = np.full(size, -1, dtype=np.int32), np.zeros(4 + by.draft_tokens, dtype=np.int64)
            run(ngram_kernel.find_earlier_ends)(tokens, first, by.min_tokens, by.max_tokens, ends, ngram_kernel.room_for(size, size))
            run(ngram_kernel.walk)(tokens, first, size + by.draft_tokens, ends, counts)
            match = run(ngram_kernel.longest_match)(tokens, by.min_tokens, by.max_tokens)
            results.append((ends.tolist(), counts.tolist(), match))
        assert results[0] == results[1]


def test_the_walk_goes_by_steps_and_restarts_after_what_was_emitted() -> None:
    """Counting every token as a possible start overstates or understates α: steps start after rejections.

    Context 1 2 3 4 1: the draft 2 3 is accepted, 4 is the bonus. Context 1 2 3 4 1 2 3 4: of the draft 1 2 the log can judge one token,
    and 5 came instead.
    """
    assert replayed(stream([1, 2, 3, 4], [1, 2, 3, 4, 5], stopped=False), rule(1, 2, 2)) == (2, 2, 3, 2, (1, 1))


def test_a_step_without_a_draft_counts_as_a_step_only() -> None:
    """Coverage would be 1 for every n-gram drafter, and the speed-up overstated."""
    one = stream([1, 2], [3, 4, 1, 2, 3], stopped=False)
    assert replayed(one, rule(1, 2, 2)) == (3, 1, 2, 2, (1, 1))
    assert replay(one, rule(1, 2, 2)).coverage == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("output", "stopped", "expected"),
    [
        ([1, 2, 9], False, (1, 1, 2, 2, (1, 1, 0, 0))),
        ([1, 2, 9], True, (1, 1, 4, 2, (1, 1, 0, 0))),
        ([1, 2, END_OF_SEQUENCE], True, (1, 1, 4, 1, (1, 0, 0, 0))),
        ([1, 2, 9, END_OF_SEQUENCE], True, (1, 1, 4, 2, (1, 1, 0, 0))),
        ([1, END_OF_SEQUENCE], True, (1, 1, 4, 0, (0, 0, 0, 0))),
    ],
    ids=[
        "cut: censored",
        "real end accepted",
        "end refuses the second draft",
        "end refuses the third draft",
        "end refuses the first draft",
    ],
)
def test_the_end_of_the_log_censors_a_cut_output_and_refuses_beyond_a_stop(
    output: list[int], stopped: bool, expected: tuple[int, int, int, int, tuple[int, ...]]
) -> None:
    """With short answers the last step is a large share of all: judged wrongly, α is off for chat and right for essays.

    Prompt 1 2 9 4 and first token 1: the draft is 2 9 4 1.
    """
    assert replayed(stream([1, 2, 9, 4], output, stopped=stopped), rule(1, 2, 4)) == expected


def test_an_end_of_sequence_is_generated_in_a_step_of_its_own_where_nothing_is_left_to_accept() -> None:
    """Leaving that step out would overstate tokens per step: the engine runs it."""
    assert replayed(stream([1, 2, 3, 4], [1, 2, 3, END_OF_SEQUENCE], stopped=True), rule(1, 2, 1)) == (2, 2, 2, 1, (1,))


def test_one_output_token_has_no_step() -> None:
    """The first token comes from prefill; a step counted for it would dilute coverage."""
    assert replayed(stream([1, 1], [1], stopped=True), rule(1, 2, 3)) == (0, 0, 0, 0, (0, 0, 0))
    assert replayed(stream([], [END_OF_SEQUENCE], stopped=True), rule(1, 2, 3)) == (0, 0, 0, 0, (0, 0, 0))


def test_an_empty_output_is_refused_by_name() -> None:
    """An exchange without an answer is no evidence; counted as one it hides that the log is broken."""
    empty = stream([1, 2], [], stopped=False, name="chat-17")
    with pytest.raises(BadInputError, match="'chat-17' has no output tokens"):
        replay(empty, rule(1, 2, 3))
    with pytest.raises(BadInputError, match="no output tokens"):
        replay_obviously(empty, rule(1, 2, 3))


@pytest.mark.parametrize(
    ("prompt", "output", "stopped"),
    [([1, -1, 2], [3, 4], True), ([1, 2], [3, -1, 4], True), ([1, 2], [3, -1], False), ([1, 2], [-7], False)],
    ids=["in the prompt", "within the output", "ends a cut output", "no end of sequence"],
)
def test_a_negative_token_is_refused_but_at_the_end_of_a_stopped_output(prompt: list[int], output: list[int], stopped: bool) -> None:
    """Two ends of sequence would match one another and be drafted."""
    good = stream([1], [2, -1], stopped=True, name="good")
    bad = stream(prompt, output, stopped=stopped, name="bad")
    with pytest.raises(BadInputError, match="'bad' contains token id -"):
        list(replay_streams([good, good, bad, good], rule(1, 2, 3)))


def test_a_context_with_an_end_of_sequence_is_refused() -> None:
    """A draft may never contain one: the engine has no such token to verify."""
    for by in (propose, propose_obviously):
        with pytest.raises(BadInputError, match="context contains token id -1"):
            by(ids([1, END_OF_SEQUENCE, 1]), rule(1, 2, 3))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((0, 2, 3), "shortest n-gram = 0 tokens is not between 1 and 64"),
        ((3, 2, 3), "longest n-gram = 2 tokens is not between 3 and 64"),
        ((1, 65, 3), "longest n-gram = 65 tokens"),
        ((1, 2, 0), "draft length = 0 tokens is not between 1 and 256"),
        ((1, 2, 257), "draft length = 257 tokens"),
    ],
)
def test_a_rule_that_looks_nothing_up_is_refused(lengths: tuple[int, int, int], message: str) -> None:
    """Swapped bounds would silently draft nothing, and the answer would be "n-gram does not help"."""
    with pytest.raises(BadInputError, match=message):
        rule(*lengths)


def test_many_streams_give_what_each_gives_alone() -> None:
    """A leftover of one request in the tables of the next would let drafts leak between users."""
    rng = np.random.default_rng(3)
    streams, by = [random_stream(rng) for _ in range(RANDOM_STREAMS)], random_rule(rng)
    together = [each.counts for each in replay_streams(streams, by)]
    assert together == [replay(each, by) for each in streams] == [replay_obviously(each, by) for each in streams]


def test_a_log_is_taken_in_chunks_and_in_order() -> None:
    """A log of many gigabytes read at once ends the process, and its user has no answer."""
    taken = 0

    def log() -> Iterator[TokenStream]:
        nonlocal taken
        for taken in range(1, ngram.CHUNK_STREAMS + 11):
            yield stream([1, 2], [1, 2], stopped=False, name=str(taken))

    answers = replay_streams(log(), rule(1, 2, 1))
    assert taken == 0
    names = [next(answers).id]
    assert taken == ngram.CHUNK_STREAMS
    names += [each.id for each in answers]
    assert names == [str(each) for each in range(1, ngram.CHUNK_STREAMS + 11)]


def test_long_streams_fill_a_chunk_by_their_tokens() -> None:
    """Four thousand books in one chunk would be gigabytes of tokens."""
    book = TokenStream("book", "chat", np.zeros(ngram.CHUNK_TOKENS // 2, dtype=np.int32), ids([1]), False)
    assert [len(chunk) for chunk in ngram._chunks([book] * 5)] == [2, 2, 1]
    assert list(replay_streams([], rule(1, 2, 3))) == []


def test_segments_pool_counts_and_not_ratios() -> None:
    """The mean of two requests' α hides the long request that drafts most."""
    one = AcceptanceCounts(steps=10, drafts=10, drafted_tokens=10, accepted_tokens=9, accepted_per_position=(9,))
    other = AcceptanceCounts(steps=90, drafts=45, drafted_tokens=90, accepted_tokens=1, accepted_per_position=(1, 0))
    requests = [RequestAcceptance("a", "code", one), RequestAcceptance("b", "chat", one), RequestAcceptance("c", "code", other)]
    pooled = pool_by_segment(iter(requests))
    assert list(pooled) == ["code", "chat"]
    assert pooled["code"] == AcceptanceCounts(steps=100, drafts=55, drafted_tokens=100, accepted_tokens=10, accepted_per_position=(10, 0))
    assert (pooled["code"].alpha, pooled["code"].coverage) == (0.1, 0.55)
    assert pooled["chat"] == one


small_tokens = st.lists(st.integers(0, 3), max_size=30)
rules = st.builds(lambda low, more, k: rule(low, low + more, k), st.integers(1, 3), st.integers(0, 3), st.integers(1, 6))


@settings(max_examples=150, deadline=None)
@given(small_tokens, small_tokens.filter(bool), st.booleans(), rules)
def test_every_output_token_is_emitted_once(prompt: list[int], output: list[int], stopped: bool, by: NgramRule) -> None:
    """Output tokens = 1 + Σ emitted; a walk that loses or repeats tokens misstates tokens per step.

    Emitted is accepted + 1 in each step, but for a last one that accepts all that remains.
    """
    one = stream(prompt, output, stopped=stopped)
    steps, drafts, drafted_tokens, accepted, positions = replayed(one, by)
    assert steps is not None
    assert positions is not None
    assert len(output) <= 1 + steps + accepted <= len(output) + 1
    assert accepted <= drafted_tokens <= drafts * by.draft_tokens
    assert len(positions) == by.draft_tokens
    assert sum(positions) == accepted


@settings(max_examples=100, deadline=None)
@given(small_tokens, rules, st.integers(1, 5))
def test_a_longer_draft_begins_with_the_shorter_one(context: list[int], by: NgramRule, more: int) -> None:
    """So a larger K never lowers what a given step emits; otherwise a sweep over K compares different drafters."""
    longer = rule(by.min_tokens, by.max_tokens, by.draft_tokens + more)
    assert drafted(context, longer)[: by.draft_tokens] == drafted(context, by)


@settings(max_examples=100, deadline=None)
@given(small_tokens, small_tokens.filter(bool), st.booleans(), rules)
def test_counts_do_not_depend_on_which_tokens_the_ids_stand_for(prompt: list[int], output: list[int], stopped: bool, by: NgramRule) -> None:
    """Ids only match or do not; a hash that looked at their size would favour a tokenizer."""
    renamed = [[2**31 - 1 - 7919 * token for token in part] for part in (prompt, output)]
    assert replayed(stream(*renamed, stopped=stopped), by) == replayed(stream(prompt, output, stopped=stopped), by)
