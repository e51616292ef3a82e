"""Exchanges as tokens: from the log, from a tokenizer.json, or from bytes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from paceline.errors import BadInputError, NoEvidenceError
from paceline.files.tokens import Tokenizer, has_token_ids, load_tokenizer, prompt_tokens, render, to_stream
from paceline.traffic.exchange import END_OF_SEQUENCE, Exchange, Message

BYTES = load_tokenizer(None)
EXCHANGE = Exchange(
    id="1.1",
    segment="chat",
    messages=(Message(role="system", content="S"), Message(role="user", content="hi there")),
    answer="hi",
    finish_reason=None,
    prompt_token_ids=None,
    output_token_ids=None,
    arrived_at_s=None,
)
RENDERED = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi there<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(name="words")
def words_(tmp_path: Path) -> Tokenizer:
    """A word tokenizer with the two marks of ChatML as single tokens, and a truncation to 3 tokens in its file."""
    names = ["[UNK]", "hi", "there", "user", "system", "assistant", "S"]
    library = Library(WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))  # noqa: S106  # a token of text
    library.pre_tokenizer = Whitespace()
    library.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    library.enable_truncation(3)
    library.enable_padding(length=40)
    library.save(str(tmp_path / "tokenizer.json"))
    return load_tokenizer(tmp_path / "tokenizer.json")


def test_the_prompt_is_rendered_as_chatml() -> None:
    """Without the marks between turns a draft would match across them, which no server lets it."""
    assert render(EXCHANGE.messages) == RENDERED


def test_a_tokenizer_file_is_used_as_it_stands_but_for_its_cuts(words: Tokenizer, tmp_path: Path) -> None:
    """A truncation left over from training would cut every prompt to 3 tokens, and acceptance would fall with it."""
    assert words.encode(RENDERED).tolist() == [7, 4, 6, 8, 7, 3, 1, 2, 8, 7, 5]
    assert words.encode("hi").dtype == np.int32
    assert words.name.startswith("tokenizer.json sha256:")
    assert len(words.name) == len("tokenizer.json sha256:") + 64
    assert not words.is_fallback
    assert load_tokenizer(tmp_path).name == words.name


def test_bytes_say_that_they_are_a_fallback() -> None:
    """Acceptance in bytes would be quoted as acceptance in tokens."""
    assert BYTES.is_fallback
    assert BYTES.name.startswith("bytes (fallback: ")
    assert BYTES.encode("aé").tolist() == [97, 195, 169]
    assert BYTES.encode("").shape == (0,)


def test_the_logs_own_tokens_win(words: Tokenizer) -> None:
    """Text tokenised again differs from what the target wrote; its end-of-sequence token is in there already."""
    exchange = replace(EXCHANGE, prompt_token_ids=(9, 8), output_token_ids=(7, 2))
    stream = to_stream(exchange, words)
    assert has_token_ids(exchange)
    assert (stream.prompt.tolist(), stream.output.tolist(), stream.stopped) == ([9, 8], [7, 2], True)
    assert stream.prompt.dtype == np.int32
    assert stream.output.dtype == np.int32
    assert not to_stream(replace(exchange, finish_reason="length"), words).stopped
    assert prompt_tokens(exchange, words).tolist() == [9, 8]


@pytest.mark.parametrize("ids", [{"prompt_token_ids": (9,)}, {"output_token_ids": (9,)}, {}])
def test_half_of_the_tokens_are_none(words: Tokenizer, ids: dict[str, tuple[int, ...]]) -> None:
    """Ids of two vocabularies in one stream never match each other."""
    exchange = replace(EXCHANGE, **ids)  # type: ignore[arg-type]  # the fields share one type
    stream = to_stream(exchange, words)
    assert not has_token_ids(exchange)
    assert (stream.prompt.tolist(), stream.output.tolist()) == ([7, 4, 6, 8, 7, 3, 1, 2, 8, 7, 5], [1, END_OF_SEQUENCE])
    assert (stream.id, stream.segment) == ("1.1", "chat")


def test_an_answer_that_was_cut_has_no_end(words: Tokenizer) -> None:
    """A token that the target never wrote would count as a step without acceptance."""
    stream = to_stream(replace(EXCHANGE, finish_reason="length"), words)
    assert (stream.output.tolist(), stream.stopped) == ([1], False)
    assert to_stream(replace(EXCHANGE, finish_reason="stop"), words).output.tolist() == [1, END_OF_SEQUENCE]


def test_without_an_answer_there_is_no_evidence(words: Tokenizer) -> None:
    """Zero tokens would be reported as zero acceptance."""
    with pytest.raises(NoEvidenceError, match=r"exchange '1\.1' has no answer: acceptance is not measured"):
        to_stream(replace(EXCHANGE, answer=None), BYTES)
    with pytest.raises(NoEvidenceError, match="its answer has no tokens"):
        to_stream(replace(EXCHANGE, answer="  "), words)
    assert prompt_tokens(replace(EXCHANGE, answer=None), BYTES).size == len(RENDERED)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", json.dumps({"model": {"type": "No"}}).encode(), b"[" * 100_000])
def test_a_file_that_is_no_tokenizer_is_bad_input(tmp_path: Path, content: bytes) -> None:
    """A bare exception of a library names neither the file nor the remedy."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"is no tokenizer we can load .*; give the target's tokenizer.json"):
        load_tokenizer(path)


def test_a_tokenizer_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    """A folder without the file, or a typo, would fall back to bytes."""
    for path in (tmp_path, tmp_path / "no.json", Path("a\0")):
        with pytest.raises(BadInputError, match=r"cannot be read: .*; give a tokenizer.json"):
            load_tokenizer(path)


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1), st.text(), st.sampled_from([None, "stop", "length"]))
def test_bytes_give_back_the_text(answer: str, prompt: str, finish: str | None) -> None:
    """A byte lost or gained shifts every match behind it."""
    exchange = replace(EXCHANGE, messages=(Message(role="user", content=prompt),), answer=answer, finish_reason=finish)
    stream = to_stream(exchange, BYTES)
    ended = stream.output[-1] == END_OF_SEQUENCE
    assert ended == stream.stopped == (finish != "length")
    assert bytes(stream.output[: -1 if ended else None].tolist()).decode() == answer
    assert bytes(stream.prompt.tolist()).decode() == render(exchange.messages)
