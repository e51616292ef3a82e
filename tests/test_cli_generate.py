"""`generate` where the engine is not installed, and what it refuses before it loads anything."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import Answer

Paceline = Callable[[Sequence[str]], Answer]
ASKED = ["generate", "--target", "model", "--prompt", "Hello"]


def test_without_the_extra_it_says_what_to_install(paceline: Paceline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of the forecast has no torch: a traceback about a module tells them nothing."""
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = paceline(ASKED)
    assert answer.code == 2
    assert "torch" in answer.err
    assert "paceline[engine]" in answer.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--target", "model"], "nothing is asked"),
        ([*ASKED, "--stream", "--json"], "give one of them"),
        ([*ASKED, "--prompt-file", "no-such-file"], "cannot be read"),
        ([*ASKED, "--draft", "head"], "--draft does nothing with --method ngram"),
        ([*ASKED, "--method", "eagle3", "--ngram-min", "1"], "--ngram-min does nothing with --method eagle3"),
        ([*ASKED, "--method", "none", "--draft-tokens", "3"], "--draft-tokens does nothing with --method none"),
        ([*ASKED, "--method", "eagle2"], "give --tree"),
        ([*ASKED, "--method", "draft-model", "--draft", "d", "--tree", "2,2,4"], "--tree does nothing with --method draft-model"),
        ([*ASKED, "--draft-temperature", "1"], "--draft-temperature does nothing with --method ngram"),
        ([*ASKED, "--method", "eagle3", "--tree", "2,2,4", "--draft-temperature", "1"], "--draft-temperature does nothing with --tree"),
    ],
)
def test_what_would_do_nothing_is_refused(arguments: list[str], message: str, paceline: Paceline, tmp_path: Path) -> None:
    """An option without effect is taken for what the answer rests on."""
    answer = paceline([each.replace("no-such-file", str(tmp_path / "none")) for each in arguments])
    assert answer.code == 2
    assert message in answer.err
