"""`paceline VERB …`: finds the verb, runs it, and turns what was raised into an exit code.

Results go to stdout, progress and complaints to stderr.
Exit codes: 0 yes or done, 1 no, 2 bad input, 3 server fault, 4 not enough evidence.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import paceline
from paceline.cli import experiment, operate, predict
from paceline.errors import PacelineError, printable

__all__ = ["build_parser", "main"]

INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are escaped and point at `--help`."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with 2."""
        self.exit(2, f"{self.prog}: error: {escaped(message)} (see {self.prog} --help)\n")


def escaped(text: str) -> str:
    """`text` without anything that steers a terminal; line breaks stay."""
    return "\n".join(printable(line)[1:-1] if not line.isprintable() else line for line in text.split("\n"))


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(prog="paceline", description="Speculative decoding into production, or not: forecast, measure, decide, roll out.")
    parser.add_argument("--version", action="version", version=f"paceline {paceline.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for group in (operate, predict, experiment):
        group.add_verbs(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    options = build_parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except PacelineError as error:
        print(f"paceline {options.verb}: {escaped(str(error))}", file=sys.stderr)  # noqa: T201  # this is the terminal's shell
        return error.exit_code
    except BrokenPipeError:
        # The reader went away; a second complaint at interpreter exit would only repeat it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"paceline {options.verb}: interrupted; files already written are complete", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
