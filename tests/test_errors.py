"""What a refusal looks like: its exit code, what it quotes, and what it never lets through to a terminal."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import (
    BadInputError,
    NoEvidenceError,
    PacelineError,
    ServerFaultError,
    UnknownNameError,
    ascii_controls,
    is_count,
    printable,
)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(PacelineError, 1), (BadInputError, 2), (UnknownNameError, 2), (ServerFaultError, 3), (NoEvidenceError, 4)],
)
def test_every_error_is_ours_and_carries_its_exit_code(error: type[PacelineError], exit_code: int) -> None:
    """A deploy script that branches on the exit code takes a dead server for a "no"."""
    assert issubclass(error, PacelineError)
    assert error.exit_code == exit_code


def test_an_unknown_name_is_answered_with_the_nearest_names_first() -> None:
    """Whoever mistypes a GPU has to search the documentation for how it is spelled."""
    error = UnknownNameError("GPU", "H10O", ["l40s", "h200", "h100", "a100", "mi300x"])
    assert str(error) == "unknown GPU 'H10O'; nearest: h100, h200, a100"


def test_an_unknown_name_finds_the_known_one_whatever_its_case() -> None:
    """`H100` is refused with a list that does not hold h100."""
    assert str(UnknownNameError("model", "llama-3.1-8b", ["Llama-3.1-8B", "Qwen3-8B"])).startswith(
        "unknown model 'llama-3.1-8b'; nearest: Llama-3.1-8B"
    )


@pytest.mark.parametrize(("known", "remedy"), [(["b", "a"], "known: a, b"), ([], "known: none")])
def test_a_name_like_no_other_is_answered_with_all_that_are_known(known: list[str], remedy: str) -> None:
    """Whoever guesses wildly is told nothing that helps."""
    assert str(UnknownNameError("method", "zzzzzz", known)) == f"unknown method 'zzzzzz'; {remedy}"


def test_known_names_that_come_from_a_log_cannot_steer_the_terminal() -> None:
    """A segment name in somebody's chat log clears the screen of whoever mistypes another one."""
    assert "\x1b" not in str(UnknownNameError("segment", "chat", ["chat\x1b[2J"]))


@pytest.mark.parametrize("error", [UnknownNameError("GPU", "h10", ["h100"]), BadInputError("no"), NoEvidenceError("nothing")])
def test_an_error_survives_the_way_back_from_a_worker_process(error: PacelineError) -> None:
    """One mistyped name in a sweep hangs its process pool instead of being reported."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, made on this line
    assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("h100", "'h100'"),
        ("it's", '"it\'s"'),
        (0.5, "0.5"),
        (None, "None"),
        ("\x1b[31mred\x1b[0m", r"'\x1b[31mred\x1b[0m'"),
        ("two\nlines\t\x00", r"'two\nlines\t\x00'"),
        ("right\u202eleft", r"'right\u202eleft'"),
        ("\ud800", r"'\ud800'"),
        ("größer 你好", "'größer 你好'"),
    ],
)
def test_a_value_is_quoted_with_its_control_characters_escaped(value: object, shown: str) -> None:
    """A value from a hostile log line forges a verdict on the operator's terminal."""
    assert printable(value) == shown


def test_a_long_value_is_cut_to_eighty_characters() -> None:
    """A prompt of a megabyte that stands in the wrong column fills the screen."""
    assert printable("x" * 80) == "'" + "x" * 80 + "'"
    assert printable("x" * 40 + "y" + "z" * 40) == "'" + "x" * 40 + "…" + "z" * 40 + "'"
    assert printable(list(range(1000))) == repr(list(range(1000)))[:40] + "…" + repr(list(range(1000)))[-40:]


class _Steering:
    def __repr__(self) -> str:
        return "\x1b[2J\x07"


def test_a_repr_cannot_steer_the_terminal_either() -> None:
    """A value whose own repr holds an escape sequence clears the screen."""
    assert printable(_Steering()) == r"\x1b[2J\x07"


@given(st.text())
def test_what_is_shown_holds_printable_characters_only(text: str) -> None:
    """Some character that nobody thought of moves the cursor."""
    assert printable(text).isprintable()
    assert ascii_controls(text).isprintable()


@given(st.text(alphabet=st.characters(categories=["L", "N", "P"])))
def test_text_without_control_characters_stays_as_it_is(text: str) -> None:
    """Names in any script are shown as code points."""
    assert ascii_controls(text) == text


@pytest.mark.parametrize("whole", [int, np.int64, np.int32, np.uint8])
def test_a_count_is_any_whole_number_from_the_least_on(whole: Callable[[int], object]) -> None:
    """A count that comes out of an array is refused, and every caller must convert."""
    assert is_count(whole(3), least=3)
    assert is_count(whole(4), least=3)
    assert not is_count(whole(2), least=3)


@pytest.mark.parametrize("value", [True, False, np.True_, 2.0, 2.5, float("nan"), float("inf"), np.float64(2), "2", None])
def test_nothing_else_is_a_count(value: object) -> None:
    """A flag or a ratio in a column of counts is added up without a word."""
    assert not is_count(value, least=0)
