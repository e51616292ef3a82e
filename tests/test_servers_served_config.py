"""What a configuration says, as a record."""

from typing import Any

import pytest

from paceline.errors import BadInputError
from paceline.servers.served_config import ServedConfig, left_open


def config(**over: Any) -> ServedConfig:
    """A server of which nothing is known but what the test says."""
    plain: dict[str, Any] = {"target": None, "speculative": None, "environment": {}, "image": None, "others": (), "where": "command line"}
    return ServedConfig(**({"engine": None, "flags": {}} | plain | over))


def test_an_engine_that_is_none_is_refused() -> None:
    """Whoever writes a reader: a typo would be linted by nobody's rules."""
    assert config(engine="sglang").engine == "sglang"
    with pytest.raises(BadInputError, match="engine 'sgland' is none of llamacpp, sglang"):
        config(engine="sgland")


def test_a_flag_is_kept_under_its_long_spelling_only() -> None:
    """A rule that asks for --model-draft would not see -md."""
    assert config(flags={"--model-draft": "d.gguf"}).flags == {"--model-draft": "d.gguf"}
    with pytest.raises(BadInputError, match="flag '-md' is not a long option"):
        config(flags={"-md": "d.gguf"})


@pytest.mark.parametrize("text", ["{{ .Values.draft }}", "${DRAFT}", "$DRAFT", "$(DRAFT)", "`cat draft`", "<your draft>", ("a", "$B")])
def test_a_value_that_something_else_fills_in_is_open(text: object) -> None:
    """Whoever lints a chart: a template's braces are no draft length, and no error either."""
    assert left_open(text)


@pytest.mark.parametrize("text", ["EAGLE3", "4", True, None, 4, '{"a": {"b": 1}}', "a<b", "5$", ("a", "b"), ""])
def test_a_value_that_is_written_out_is_not_open(text: object) -> None:
    """A plain value that is taken for a template is never checked."""
    assert not left_open(text)
