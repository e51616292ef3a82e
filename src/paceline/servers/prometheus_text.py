r"""The text a /metrics endpoint answers, as samples.

The grammar is Prometheus' text format 0.0.4 with OpenMetrics' exemplars:

    name {label="value", …} value [timestamp] [# exemplar]

Comments, HELP, TYPE and EOF lines are skipped, timestamps and exemplars dropped. In a label's value `\\`, `\"` and `\n` are escapes. A
line that does not follow the grammar is set aside with its number and never guessed at.
Source: prometheus.io/docs/instrumenting/exposition_formats.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from paceline.errors import BadInputError, printable

__all__ = ["Exposition", "MalformedLine", "Sample", "parse_exposition"]

LINE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+"
    r'(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\}[ \t]*+)?+'
    r"(?P<value>[^\s{}#]++)"
    r"(?:[ \t]++-?[0-9.]++)?+[ \t]*+(?:#.*)?+"
)
LABEL = re.compile(r'[ \t]*+(?P<name>[a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"(?P<value>(?:[^"\\]|\\.)*+)"[ \t]*+(?:,|$)')
NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?inf(?:inity)?|nan", re.IGNORECASE)
ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at one moment; `value` may be infinite and is None where the server wrote NaN (not measured)."""

    name: str
    labels: Mapping[str, str]
    value: float | None


@dataclass(frozen=True, slots=True)
class MalformedLine:
    """A line that is no sample and no comment: its number, from 1 on, and what is wrong with it."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Exposition:
    """What one scrape said, and the lines of it that could not be read."""

    samples: tuple[Sample, ...]
    malformed: tuple[MalformedLine, ...]


def parse_exposition(text: str) -> Exposition:
    """The samples of a scrape in their order, and the malformed lines.

    Raises:
        BadInputError: no line is a sample, or the text holds NUL characters (it is binary).

    """
    if "\x00" in text:
        raise BadInputError("this is binary data, not a /metrics text; give what the server's /metrics answered")
    samples: list[Sample] = []
    malformed: list[MalformedLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip(" \t\r")
        if not stripped or stripped.startswith("#"):
            continue
        try:
            samples.append(_sample(stripped))
        except BadInputError as error:
            malformed.append(MalformedLine(number=number, why=str(error)))
    if not samples:
        first = f"; line {malformed[0].number}: {malformed[0].why}" if malformed else ""
        raise BadInputError(f"no line is a Prometheus sample (name{{labels}} value){first}")
    return Exposition(samples=tuple(samples), malformed=tuple(malformed))


def _sample(line: str) -> Sample:
    match = LINE.fullmatch(line)
    if match is None:
        raise BadInputError(f"{printable(line)} is not 'name{{labels}} value'")
    if NUMBER.fullmatch(match["value"]) is None:
        raise BadInputError(f"{printable(match['value'])} is not a number")
    value = float(match["value"])
    return Sample(name=match["name"], labels=_labels(match["labels"] or ""), value=None if isnan(value) else value)


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while text[position:].strip(" \t"):
        match = LABEL.match(text, position)
        if match is None:
            raise BadInputError(f'{printable(text[position:])} is not a list of label="value"')
        if match["name"] in labels:
            raise BadInputError(f"label {printable(match['name'])} is given twice")
        labels[match["name"]] = ESCAPE.sub(_unescaped, match["value"])
        position = match.end()
    return labels


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
