"""A target's folder of which somebody else wrote every file: its chat template ends, and so does opening it."""

import json
import os
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from paceline.engine.bounded_run import RanTooLongError, run_bounded
from paceline.engine.chat import load_chat
from paceline.errors import BadInputError
from paceline.traffic.exchange import Message
from tests.engine.trainable import talking_model

ASKED = [Message("user", "c d"), Message("assistant", "e"), Message("user", "d d")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that can be talked to."""
    return talking_model(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture
def target(folder: Path, tmp_path: Path) -> Path:
    """The same, its files linked, so that one can be replaced."""
    for each in folder.iterdir():
        (tmp_path / each.name).symlink_to(each)
    return tmp_path


def replaced(target: Path, name: str, text: str) -> None:
    """Another file in its place."""
    (target / name).unlink(missing_ok=True)
    (target / name).write_text(text)


def test_a_prompt_is_what_the_library_makes_of_it(target: Path) -> None:
    """A head would be trained behind another prompt than the server's."""
    library = AutoTokenizer.from_pretrained(target, local_files_only=True)
    turns = [{"role": each.role, "content": each.content} for each in ASKED]
    own = library.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    before = sys.gettrace()
    assert load_chat(target).prompt(ASKED) == tuple(own)
    assert sys.gettrace() is before


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for i in range(10**9) %}{% endfor %}", "cannot render a prompt: .*Range too big"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "does not come to an end: it ran more than"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "cannot render a prompt: .*recursion"),
        (
            "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "cannot render a prompt: 'MemoryError'",
        ),
        ("{{ 'a' * 10**12 }}", "cannot render a prompt: 'MemoryError'"),
    ],
)
def test_a_template_that_would_not_end_is_refused(template: str, said: str, target: Path) -> None:
    """A model from anywhere would stop the machine that looks at it."""
    replaced(target, "chat_template.jinja", template)
    chat = load_chat(target)
    with pytest.raises(BadInputError, match=rf"the target's chat template {said}.*; give the target's own"):
        chat.prompt(ASKED)


def test_a_run_within_its_bound_gives_its_result() -> None:
    """A long chat would be refused, or a bound kept for what comes after."""
    assert run_bounded(lambda: sum(each for each in range(100)), most_lines=1_000, most_bytes=1 << 20) == 4950
    with pytest.raises(RanTooLongError, match="it ran more than 50 lines"):
        run_bounded(lambda: [str(each) for each in range(100) if all(each for each in range(100))], most_lines=50, most_bytes=1 << 20)
    assert len(bytearray(1 << 21)) == 1 << 21


@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"])
def test_a_pipe_in_the_folder_is_refused_and_not_waited_for(name: str, target: Path) -> None:
    """The library opens what it finds, and would wait for a writer that never comes."""
    (target / name).unlink(missing_ok=True)
    os.mkfifo(target / name)
    with pytest.raises(BadInputError, match=rf"{name}' cannot be read: it is a named pipe"):
        load_chat(target)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tokenizer.json", "{}", "no tokenizer that can be loaded"),
        ("tokenizer_config.json", "[1]", "no tokenizer that can be loaded"),
        ("generation_config.json", "[1]", "holds no JSON object"),
        ("generation_config.json", json.dumps({"eos_token_id": "end"}), "eos_token_id is 'end', which is no token"),
        ("generation_config.json", json.dumps({"eos_token_id": [2, -1]}), "eos_token_id is -1, which is no token"),
    ],
)
def test_files_that_are_not_what_their_name_says_are_refused(name: str, text: str, said: str, target: Path) -> None:
    """A damaged download would end in a fault of ours, which nobody can act upon."""
    replaced(target, name, text)
    with pytest.raises(BadInputError, match=said):
        load_chat(target)
