"""Everything paceline raises on purpose.

    PacelineError
    ├── BadInputError        the user gave something impossible: exit code 2
    │   └── UnknownNameError a name we do not know; the message lists the nearest ones
    ├── ServerFaultError     a server did not answer, or not as it should: exit code 3
    └── NoEvidenceError      nothing was measured, so nothing may be said: exit code 4

A message says what is wrong, quotes the value and names the remedy. Our own bugs are assertions, never one of these.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import ClassVar

__all__ = [
    "BadInputError",
    "NoEvidenceError",
    "PacelineError",
    "ServerFaultError",
    "UnknownNameError",
    "ascii_controls",
    "is_count",
    "printable",
]

QUOTED_CHARACTERS = 80


class PacelineError(Exception):
    """Something paceline refuses or cannot do; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1


class BadInputError(PacelineError):
    """The input is impossible, malformed or empty."""

    exit_code: ClassVar[int] = 2


class ServerFaultError(PacelineError):
    """A server failed or answered with something that cannot be used."""

    exit_code: ClassVar[int] = 3


class NoEvidenceError(PacelineError):
    """A figure was asked for of which nothing was measured."""

    exit_code: ClassVar[int] = 4


class UnknownNameError(BadInputError):
    """A name that is not in a table. The message quotes it and lists the nearest names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(kind, name, tuple(sorted(known)))  # what __init__ takes again, or the error cannot cross a process boundary

    def __str__(self) -> str:
        """The message."""
        kind, name, names = self.args
        by_fold = {each.casefold(): each for each in names}
        near = [by_fold[fold] for fold in get_close_matches(name.casefold(), by_fold, n=3, cutoff=0.4)]
        remedy = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names) or 'none'}"
        return f"unknown {kind} {printable(name)}; {ascii_controls(remedy)}"


def printable(value: object) -> str:
    """`value` as it may be shown on a terminal: quoted, control characters escaped, at most 80 characters of it.

    A longer one is cut in the middle: of a path the end tells most.
    """
    text = value if isinstance(value, str) else repr(value)
    half = QUOTED_CHARACTERS // 2
    shown = text if len(text) <= QUOTED_CHARACTERS else f"{text[:half]}…{text[-half:]}"
    return ascii_controls(repr(shown) if isinstance(value, str) else shown)


def ascii_controls(text: str) -> str:
    """`text` with every character that could steer a terminal or hide itself written as an escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def is_count(value: object, *, least: int) -> bool:
    """Whether `value` is a whole number from `least` on. numpy's integers are; a bool, a float (2.0 too) and NaN are not."""
    # The abstract class is slow to ask, and a hundred thousand records ask it.
    if type(value) is int:
        return value >= least
    return type(value) is not bool and isinstance(value, Integral) and not value < least
