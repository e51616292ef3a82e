"""Whether drafts change what a server answers."""

import json

import numpy as np
import pytest

from paceline.decide.diagnosis.validity import loops
from paceline.decide.losslessness import Answers, Losslessness, losslessness
from paceline.decide.structured import leaves, structure
from paceline.errors import NoEvidenceError
from paceline.verdict import Holds


def texts(n: int, changed: int = 0, *, at: int = 6) -> dict[str, str]:
    """Answers of which the first `changed` differ from the plain ones from character `at` on."""
    plain = [f"answer {i} of some length" for i in range(n)]
    return {str(i): text[:at] + "#" + text[at + 1 :] if i < changed else text for i, text in enumerate(plain)}


def said(
    baseline: dict[str, str], speculative: dict[str, str], repeat: dict[str, str] | None = None, *, temperature: float | None = 0.0
) -> Losslessness:
    answers = Answers(baseline=baseline, speculative=speculative, repeat=repeat or {})
    return losslessness(answers, temperature=temperature, encode=None, confidence=0.95, rng=np.random.default_rng(1))


def test_equal_answers_are_lossless_without_a_noise_floor() -> None:
    """Equality proves itself; asking for a floor would cost a measurement for nothing."""
    found = said(texts(40), texts(40))
    assert (found.lossless, found.floor, found.excess) == (Holds.YES, None, None)
    assert found.divergence is not None
    assert (found.divergence.share.value, found.divergence.first_character) == (0, ())
    few = said(texts(5), texts(5))
    assert (few.lossless, "few" in few.why) == (Holds.CANNOT_TELL, True)


def test_different_answers_say_nothing_without_a_noise_floor() -> None:
    """A server whose numerics flip near-ties in both arms is no lossy one."""
    found = said(texts(40), texts(40, 10))
    assert found.lossless is Holds.CANNOT_TELL
    assert "--noise-floor" in found.why
    assert found.divergence is not None
    assert found.divergence.first_character == (6,) * 10


@pytest.mark.parametrize(
    ("changed", "noise", "lossless"), [(80, 4, Holds.NO), (8, 8, Holds.YES), (12, 8, Holds.YES), (24, 8, Holds.CANNOT_TELL)]
)
def test_answers_are_lossy_only_where_they_differ_surely_more_than_the_floor(changed: int, noise: int, lossless: Holds) -> None:
    """Without the floor every greedy comparison of two GPUs fails; with it a broken verification still does."""
    found = said(texts(200), texts(200, changed), {name: text for name, text in texts(200, noise).items() if int(name) < 100})
    assert found.lossless is lossless
    assert found.excess is not None
    assert found.excess.value == pytest.approx(changed / 200 - noise / 100)


@pytest.mark.parametrize(("temperature", "words"), [(0.7, "temperature 0.7"), (None, "not recorded")])
def test_drawn_answers_cannot_be_told_this_way(temperature: float | None, words: str) -> None:
    """Two draws differ; calling that a loss would stop every rollout at production's temperature."""
    found = said(texts(40), texts(40, 40), temperature=temperature)
    assert (found.lossless, found.divergence) == (Holds.CANNOT_TELL, None)
    assert words in found.why


def test_tokens_and_lengths_are_those_of_the_tokenizer() -> None:
    """A first difference in tokens can be looked up in the log-probabilities; one in characters cannot."""
    answers = Answers({"a": "x y z", "b": "x"}, {"a": "x y q q", "b": "x"}, {})
    found = losslessness(
        answers, temperature=0, encode=lambda text: [ord(each) for each in text.split()], confidence=0.95, rng=np.random.default_rng(1)
    )
    assert found.divergence is not None
    assert (found.divergence.first_character, found.divergence.first_token) == ((4,), (2,))
    assert found.length_ratio.value == 5 / 4


def test_an_answer_that_goes_on_differs_where_the_other_ends() -> None:
    """An end token that one arm misses is the most common fault there is."""
    found = said({"a": "yes"}, {"a": "yes, and"})
    assert found.divergence is not None
    assert found.divergence.first_character == (3,)


def test_an_empty_baseline_has_no_length_to_compare_with() -> None:
    """A baseline that answers nothing is broken itself."""
    with pytest.raises(NoEvidenceError):
        said({"a": ""}, {"a": "x"})


def test_without_a_pair_there_is_nothing_to_say() -> None:
    """Answers to other requests compared would all differ."""
    with pytest.raises(NoEvidenceError, match="no request has an answer in both arms"):
        said({"a": "x"}, {"b": "x"})


def test_broken_and_emptied_json_is_counted_against_mended() -> None:
    """Tool calls that stop parsing take the product down while every latency looks better."""
    good = [json.dumps({"city": "Oslo", "degrees": i}) for i in range(6)]
    ours = dict(enumerate_ids([*good, "{cut", "no json"]))
    theirs = dict(enumerate_ids([good[0], good[1][:-4], '{"city": "Oslo"}', "I cannot", *good[4:], '{"whole": 1}', "no json"]))
    found = said(ours, theirs).structured
    assert found is not None
    assert (found.answers, found.broken, found.emptied, found.mended) == (6, 3, 1, 1)
    assert found.chance == pytest.approx(5 / 16)
    drawn = said(ours, theirs, temperature=1.0).structured
    assert drawn is not None
    assert (drawn.broken, drawn.emptied) == (2, 0)


def enumerate_ids(values: list[str]) -> list[tuple[str, str]]:
    return [(f"{i:02d}", each) for i, each in enumerate(values)]


def test_a_mended_answer_alone_is_structure_too() -> None:
    """An arm that fixes JSON is told as one that breaks it would be."""
    found = said({"a": "{cut"}, {"a": "[1]"}).structured
    assert found is not None
    assert (found.answers, found.mended, found.chance) == (0, 1, 1.0)
    assert said({"a": "plain"}, {"a": "plain"}).structured is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Hello.", []),
        ('{"a": 1}', [{"a": 1}]),
        ("  [1, 2]\n", [[1, 2]]),
        ('{"a": 1', None),
        ("[" * 100_000, None),
        ('I think {"a"</think>{"a": 2}', [{"a": 2}]),
        ('Here:\n```json\n{"a": 3}\n```\nDone.', [{"a": 3}]),
        ('```json\n{"a": 3}', [{"a": 3}]),
        ('<tool_call>{"name": "f"}</tool_call><tool_call>{"name":', None),
        ('<tool_call>{"name": "f"}</tool_call>', [{"name": "f"}]),
        ("[" + "9" * 5000 + "]", [[int("9" * 4000)]]),
    ],
)
def test_what_a_program_reads_in_an_answer_is_found(text: str, values: list[object] | None) -> None:
    """JSON in prose, fences and tool calls is what breaks when drafts cross the end of reasoning."""
    assert structure(text) == values


def test_leaves_count_what_an_answer_says() -> None:
    """A call whose arguments were emptied parses and says nothing."""
    assert leaves([{"name": "f", "arguments": {"a": 1, "b": [2, 3]}}]) == 4
    assert leaves([{"name": "f", "arguments": {}}]) == 1


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("The the the and the and, " * 14, True),
        ("A real beginning of a dozen words or so that does not come again. " + "and so on, " * 20, True),
        ("a" * 99, False),
        ("a" * 100, True),
        ("Short. " * 3, False),
        (" ".join(f"Sentence {i} says {i * i} and {i % 7}." for i in range(60)), False),
        ("", False),
        (json.dumps([{"city": f"C{i}", "degrees": i} for i in range(60)]), False),
    ],
)
def test_an_answer_that_runs_in_circles_is_told(text: str, looping: bool) -> None:
    """Acceptance on a loop is near 1 or near 0, and neither is the product's."""
    assert loops(text) is looping
