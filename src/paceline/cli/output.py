"""What a verb prints: one JSON object with `schema` and `provenance` first, or text.

Long work shows a bar on stderr where that is a terminal, and a line now and then where it is a log.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import paceline

__all__ = ["Progress", "answer", "arguments", "emit", "envelope", "lines_of_progress", "progress", "say"]


NOT_ARGUMENTS = frozenset({"run", "given", "verb", "json", "out", "seed", "workers"})


def arguments(options: argparse.Namespace) -> dict[str, Any]:
    """What was asked, as far as it changes the result: given options by name, files by their last name only."""
    asked = {name: value for name, value in sorted(vars(options).items()) if name not in NOT_ARGUMENTS and value not in (None, [])}
    return {name: _plain(value) for name, value in asked.items()}


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return value.name
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, str) and os.sep in value and Path(value).exists():
        return Path(value).resolve().name
    return value


def envelope(options: argparse.Namespace, body: Mapping[str, Any], *, inputs: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object of one verb: its schema, what made it (verb, version, arguments, hashes of the inputs, seed; no clock, host or
    absolute path), then the answer.
    """
    made = {
        "made_by": f"paceline {options.verb}",
        "version": paceline.__version__,
        "arguments": arguments(options),
        "inputs": dict(inputs),
        "seed": getattr(options, "seed", None),
    }
    return {"schema": f"paceline.{options.verb}/1", "provenance": made, **body}


def emit(text: str) -> None:
    """One result to stdout. A reader that went away changes nothing about the verb's answer, which is also its exit code."""
    try:
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would complain again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def answer(options: argparse.Namespace, *, body: Mapping[str, Any], text: str, inputs: Mapping[str, str]) -> None:
    """The result to stdout: one JSON object with --json (NaN would be a bug of ours and is refused), else the text."""
    if options.json:
        emit(json.dumps(envelope(options, body, inputs=inputs), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        emit(text)


def say(text: str) -> None:
    """One line about progress to stderr, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text} …\n")


LINE_S = 30.0


class Progress(Protocol):
    """Called with how much is done since the last call."""

    def __call__(self, done: float) -> None:
        """Advance the bar."""


@contextmanager
def progress(what: str, total: float | None) -> Iterator[Progress]:
    """A bar with ETA on stderr where that is a terminal; elsewhere a line every LINE_S seconds, none for what is done before."""
    if not sys.stderr.isatty():
        yield lines_of_progress(what, total, clock=monotonic, write=sys.stderr.write)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def lines_of_progress(what: str, total: float | None, *, clock: Callable[[], float], write: Callable[[str], object]) -> Progress:
    """Writes a line every LINE_S seconds of `clock`: how far it is, and what is left at the pace since the line before."""
    reached, told, told_at_s = 0.0, 0.0, clock()

    def advance(done: float) -> None:
        nonlocal reached, told, told_at_s
        reached += done
        since_s = clock() - told_at_s
        if since_s < LINE_S:
            return
        pace = (reached - told) / since_s
        left = "" if total is None or pace <= 0 else f", about {max(total - reached, 0) / pace / 60:,.0f} min left"
        write(f"{what}: {f'{reached:,.0f}' if total is None else f'{reached:,.0f} of {total:,.0f}'}{left}\n")
        told, told_at_s = reached, clock()

    return advance
