"""`paceline VERB …`: finds the verb, runs it, and turns what was raised into an exit code.

Results go to stdout, progress and complaints to stderr.
Exit codes: 0 yes or done, 1 no, 2 bad input, 3 server fault, 4 not enough evidence, 70 a fault of
ours, 130 interrupted.
"""

import argparse
import io
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import paceline
from paceline.cli import draft, experiment, operate, predict, rehearse, train
from paceline.cli.idle_options import given_options, refuse_idle
from paceline.errors import PacelineError, printable

__all__ = ["build_parser", "main"]

REFUSED_BY_THE_MACHINE = 2
INTERNAL_FAULT = 70  # EX_SOFTWARE: none of the codes that mean something here
INTERRUPTED = 130
OPTION = re.compile(r"--[a-z][a-z-]*")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are escaped and point at `--help`; of the whole command line it has the verbs' own.

    Options are taken by their whole names: `diagnose --baseline RUN` would otherwise be read as --baseline-answers.
    """

    verbs: Mapping[str, argparse.ArgumentParser]

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with 2."""
        self.exit(2, f"{self.prog}: error: {escaped(message)} (see {self.prog} --help)\n")


def escaped(text: str) -> str:
    """`text` without anything that steers a terminal; line breaks stay."""
    return "\n".join(printable(line)[1:-1] if not line.isprintable() else line for line in text.split("\n"))


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(prog="paceline", description="Speculative decoding into production, or not: forecast, measure, decide, roll out.")
    parser.add_argument("--version", action="version", version=f"paceline {paceline.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for group in (operate, predict, experiment, train, draft, rehearse):
        group.add_verbs(verbs)
    parser.verbs = verbs.choices
    return parser


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """What was typed. What no option takes is told by the verb itself, with the nearest that it has, and ends with 2."""
    parser = build_parser()
    options, unknown = parser.parse_known_args(words)
    if unknown:
        verb = parser.verbs[options.verb]
        name = unknown[0].partition("=")[0]
        near = get_close_matches(name, sorted(set(OPTION.findall(verb.format_help()))), n=3) if name.startswith("-") else []
        what = "option" if name.startswith("-") else "argument"
        verb.error(f"unknown {what} {name}{'; nearest: ' if near else ''}{', '.join(near)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    _prepare_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parsed(words)
    try:
        options.given = given_options(options, words)
        refuse_idle(options, options.given)
        code: int = options.run(options)
    except PacelineError as error:
        complain(options.verb, str(error))
        return error.exit_code
    except (OSError, MemoryError) as error:
        complain(options.verb, f"the machine refused: {error or type(error).__name__}")
        return REFUSED_BY_THE_MACHINE
    except KeyboardInterrupt as stop:
        complain(options.verb, f"interrupted; {str(stop) or 'files already written are complete'}")
        return INTERRUPTED
    except Exception:  # a fault of ours must not end in a code that means yes or no
        complain(options.verb, f"internal fault, please report it:\n{traceback.format_exc()}")
        return INTERNAL_FAULT
    return code


def complain(verb: str, text: str) -> None:
    """A line for a person, on stderr."""
    print(f"paceline {verb}: {escaped(text)}", file=sys.stderr)  # noqa: T201  # this is the terminal's shell


def _prepare_streams() -> None:
    """A terminal that cannot show α shows an escape; a stream that is closed swallows what it is given."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
