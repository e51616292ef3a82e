"""What a body asks of the fake server: whatever comes, it is read or refused with a reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import PacelineError
from paceline.live.fake_server_answer import Answer
from paceline.live.fake_server_asking import read_asking
from paceline.live.fake_server_faults import KINDS, faults_in_header

ROOT = Path(__file__).parent.parent
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["max_tokens", "min_tokens", "ignore_eos", "seed", "temperature", "stream", "stream_options", "logprobs", "return_token_ids", "n"]
METADATA = st.dictionaries(st.sampled_from(["segment", "prompt_tokens", "output_tokens"]), JSON | st.integers(1, 20), max_size=3)
MESSAGE = st.fixed_dictionaries({"role": JSON | st.just("user"), "content": JSON})
BODY = st.fixed_dictionaries(
    {"messages": JSON | st.lists(MESSAGE, min_size=1, max_size=2), "prompt": JSON | st.text() | st.lists(st.integers(), max_size=3)},
    optional={name: JSON | st.integers(1, 20) | st.booleans() for name in FIELDS} | {"metadata": JSON | METADATA},
)


Read = TypeVar("Read")


def or_reason(read: Callable[[], Read]) -> Read | str:
    """What was read, or why it was refused."""
    try:
        return read()
    except PacelineError as fault:
        return str(fault)


@settings(max_examples=80)
@given(JSON | BODY, st.sampled_from(["chat", "completions"]))
def test_any_body_is_read_or_refused_with_a_reason(body: Any, api: str) -> None:
    """A stranger's request would end the rehearsal of everybody else."""
    content = json.dumps(body).encode()
    asking = or_reason(lambda: read_asking(content, api=api, model="tiny", default_output_tokens=12))
    if isinstance(asking, str):
        assert asking.isprintable()
        return
    assert asking.prompt_tokens >= 1
    assert asking.output_tokens >= 1
    if asking.output_tokens <= 20:
        answer = Answer(asking, id_="a", model="tiny", created_s=0, wrong_from=None)
        event = json.loads(answer.chunk(asking.output_tokens, last=True).removeprefix(b"data: "))
        choice = event["choices"][0]
        text = choice["delta"]["content"] if api == "chat" else choice["text"]
        assert len(text.split()) == asking.output_tokens


@settings(max_examples=30)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_with_a_reason(content: bytes) -> None:
    """As above, for what is no JSON."""
    with pytest.raises(PacelineError):
        read_asking(content, api="completions", model="tiny", default_output_tokens=12)


@settings(max_examples=80)
@given(st.text(max_size=40) | st.from_regex(r"(stall|cut|error) (after_chunks|seconds|status)=[0-9.e+\-²inf]{1,6}", fullmatch=True))
def test_any_header_of_faults_is_read_or_refused_with_a_reason(text: str) -> None:
    """As above, for the header."""
    faults = or_reason(lambda: faults_in_header(text))
    if isinstance(faults, str):
        assert faults.isprintable()
        return
    assert all(0 <= each.seconds <= 3600 for each in faults)


def test_every_kind_of_fault_is_in_its_reference() -> None:
    """A fault that nobody can look up is never made."""
    text = (ROOT / "docs" / "reference" / "fake-server.md").read_text(encoding="utf-8")
    assert not [kind for kind in KINDS if f"| `{kind}` |" not in text]
