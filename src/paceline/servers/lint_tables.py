"""What a dialect's table alone says of a configuration: options that a version lacks, values out of range, things that do not combine.

A table is `data/servers/<engine>.toml`; a row holds from `since` to `until`, both inclusive, and says its `source`:

    flags, fields  name, value (what it takes), least, most, choices, list (choices with commas), instead, types (that have a field)
    methods        name, note
    combinations   code, severity, when, field, message, remedy

An option takes none, a switch (with or without a value), text, several, a count, a number, or a leading_count or leading_number, which end
where C stops reading digits; a field of a block a flag, a mapping or any.

`when` says of each place what its value must be for the finding to hold. A place is a flag, `$VARIABLE`, `method`, or a dotted key of the
speculative block. A condition is `given`, `absent`, a comparison such as `> 1`, or `is a|b` and `is not a|b`. In a message {} stands for
the field's value. Values that are left open meet no condition but `given`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from paceline.data.tables import table
from paceline.errors import BadInputError, ascii_controls, printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.served_config import ServedConfig, left_open
from paceline.verdict import Caution

__all__ = [
    "Release",
    "combination_findings",
    "finding",
    "flag_findings",
    "holds",
    "method_findings",
    "number_at",
    "open_findings",
    "parse_release",
    "plain_server",
    "unknown_flags",
    "value_at",
    "value_fault",
]

RELEASE = re.compile(
    r"[vb]?([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:\.([0-9]{1,6}))?(?:[-.]?(?:rc|a|b|post|dev)[0-9]{0,6})*(?:\+[A-Za-z0-9.]{1,40})?"
)
WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
BEGINS_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,18})")
BEGINS_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)")
COMPARISON = re.compile(r"(<=|>=|<|>|==) (-?[0-9.]+)")
INT_MOST = 2**31 - 1
MOST = 10**6
KINDS: Mapping[str, type | tuple[type, ...]] = {"flag": bool, "mapping": dict, "any": object}
TRUTHS = ("true", "false", "True", "False")

Row = Mapping[str, Any]
Parts = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Release:
    """A server's version as it was asked for, as numbers that compare, and a caution where the table was made of others."""

    asked: str
    parts: Parts
    caution: Caution | None


def parse_release(text: str, *, read: Sequence[str], engine: str) -> Release:
    """`0.5.10.post1` as (0, 5, 10), a build such as `b11434` as (11434, 0, 0); rc, post and dev count as their release.

    `read` are the oldest and the newest version that the table was made of; outside of them there is a caution.

    Raises:
        BadInputError: no version.

    """
    match = RELEASE.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"{printable(text)} is no version of {engine}; write it like {read[1]}")
    parts = (int(match[1]), int(match[2] or 0), int(match[3] or 0))
    known = _first(read[0]) <= parts <= _last(read[1])
    span = read[0] if read[0] == read[1] else f"{read[0]} to {read[1]}"
    message = f"{engine} {printable(text)} was not read (known: {span}); what is said is known of the nearest"
    return Release(asked=text.strip(), parts=parts, caution=None if known else Caution("unknown_version", message))


def holds(row: Row, release: Release) -> bool:
    """Whether the row holds in this release."""
    return _first(row.get("since", "0")) <= release.parts <= _last(row.get("until", str(MOST)))


def finding(severity: Severity, code: str, field: str | None, message: str, *, remedy: str, row: Row | None) -> ConfigFinding:
    """A finding over the span of the row that it rests on; in every version where it rests on none. Control characters are escaped."""
    since, until = (None, None) if row is None else (row.get("since"), row.get("until"))
    shown = None if field is None else ascii_controls(field)
    return ConfigFinding(
        severity=severity, code=code, field=shown, message=ascii_controls(message), remedy=ascii_controls(remedy), since=since, until=until
    )


def value_at(config: ServedConfig, place: str, method: str | None) -> Any:
    """What stands at a place of the configuration, None where nothing does; of several values the last, as servers take it."""
    if place == "method":
        return method
    value: Any = config.speculative
    if place.startswith("--"):
        value = config.flags.get(place)
        return value[-1] if isinstance(value, tuple) and value else value
    if place.startswith("$"):
        return config.environment.get(place[1:])
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def number_at(config: ServedConfig, place: str) -> float | None:
    """The number at a place, None where there is none or it is left open."""
    return _number(value_at(config, place, None))


def open_findings(config: ServedConfig) -> list[ConfigFinding]:
    """Each value that a template, a shell or a person has still to fill in: it was not checked."""
    values = [*config.flags.items(), *((f"${name}", value) for name, value in config.environment.items())]
    values += list((config.speculative or {}).items())
    return [
        finding(
            Severity.INFO,
            "left_open",
            name,
            f"{name} is {printable(value)}, which something else fills in: not checked",
            remedy="render the template or give the value itself",
            row=None,
        )
        for name, value in values
        if left_open(value)
    ]


def plain_server(config: ServedConfig, field: str, *, remedy: str, row: Row | None) -> list[ConfigFinding]:
    """That no option switches speculation on, so that this server does not speculate; unless words that stand for options are left open."""
    words = [each for each in config.others if left_open(each)]
    if words:
        message = f"{printable(' '.join(words))} may stand for any options: whether this server speculates was not checked"
        return [finding(Severity.INFO, "left_open", None, message, remedy="write the options themselves and lint again", row=None)]
    message = "no speculation is switched on: this is a plain server"
    return [finding(Severity.INFO, "no_speculation", field, message, remedy=remedy, row=row)]


def unknown_flags(config: ServedConfig, known: Iterable[str], *, engine: str) -> list[ConfigFinding]:
    """Options about speculation, by how they begin, that no release has."""
    names, found = set(known), []
    for name in config.flags:
        if not name.startswith("--spec") or name in names or left_open(name):
            continue
        near = get_close_matches(name.replace("_", "-"), names, n=1, cutoff=0.6)
        remedy = f"write {near[0]}" if near else "leave it out"
        message = f"{engine} has no option {printable(name)} and does not start with it"
        found.append(finding(Severity.ERROR, "unknown_flag", name, message, remedy=remedy, row=None))
    return found


def flag_findings(config: ServedConfig, rows: Iterable[Row], release: Release, *, engine: str) -> list[ConfigFinding]:
    """Options that this release lacks, and values that it does not take."""
    spans: dict[str, list[Row]] = {}
    for row in rows:
        spans.setdefault(row["name"], []).append(row)
    found = []
    for name, value in config.flags.items():
        known = spans.get(name, [])
        here = next((each for each in known if holds(each, release)), None)
        if here is not None:
            found += _value_findings(name, value, here)
        elif known:
            found.append(_missing(_as_typed(name, config.engine), known, release, engine, field=name))
    return found


def _as_typed(name: str, engine: str | None) -> str:
    """The option with its other spellings, one of which may be what stands in the configuration."""
    others = [] if engine is None else table("servers/spellings").get(engine, {}).get("spellings", {}).get(name, [])
    return f"{name} (or {', '.join(others)})" if others else name


def method_findings(method: str, rows: Sequence[Row], release: Release, *, field: str, engine: str) -> list[ConfigFinding]:
    """That this release has no such method, with the nearest that it has, or since and until when it has it."""
    usable = sorted({row["name"] for row in rows if holds(row, release)})
    if method in usable:
        return []
    named = [row for row in rows if row["name"] == method]
    if named:
        return [_missing(method, named, release, engine, field=field)]
    by_fold = {each.casefold(): each for each in usable}
    near = [by_fold[each] for each in get_close_matches(method.casefold(), by_fold, n=1, cutoff=0.5)]
    remedy = f"did you mean {near[0]}?" if near else f"take one of {', '.join(usable)}"
    message = f"{engine} {release.asked} knows no method {printable(method)} (it has {', '.join(usable)})"
    return [finding(Severity.ERROR, "unknown_method", field, message, remedy=remedy, row=None)]


def combination_findings(config: ServedConfig, rows: Iterable[Row], release: Release, *, method: str | None) -> list[ConfigFinding]:
    """Each combination of the table that this configuration has in this release."""
    found = []
    for row in rows:
        if not holds(row, release) or not all(_meets(value_at(config, place, method), asked) for place, asked in row["when"].items()):
            continue
        field = row.get("field") or next((place for place in row["when"] if place != "method"), None)
        value = "" if field is None else value_at(config, field, method)
        message = row["message"].replace("{}", printable(value) if isinstance(value, str) else str(value)).replace("{method}", str(method))
        found.append(finding(Severity(row["severity"]), row["code"], field, message, remedy=row["remedy"], row=row))
    return found


def _first(version: str) -> Parts:
    """The first release that a table's version names: of 1.4 it is 1.4.0."""
    numbers = [*map(int, version.split(".")), 0, 0]
    return numbers[0], numbers[1], numbers[2]


def _last(version: str) -> Parts:
    """The last release that a table's version names: of 1.3 it is any 1.3.x."""
    numbers = [*map(int, version.split(".")), MOST, MOST]
    return numbers[0], numbers[1], numbers[2]


def _meets(value: Any, asked: str) -> bool:
    if asked in ("given", "absent"):
        return (value is None) == (asked == "absent")
    if value is None or left_open(value):
        return False
    comparison = COMPARISON.fullmatch(asked)
    if comparison is None:
        shown, wanted = str(value).casefold() if isinstance(value, bool) else str(value), not asked.startswith("is not ")
        return (shown in asked.removeprefix("is not ").removeprefix("is ").split("|")) == wanted
    number, other = _number(value), float(comparison[2])
    if number is None:
        return False
    return {"<": number < other, ">": number > other, "<=": number <= other, ">=": number >= other, "==": number == other}[comparison[1]]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def _missing(name: str, rows: Sequence[Row], release: Release, engine: str, *, field: str | None = None) -> ConfigFinding:
    """That a flag or method is not in this release: not yet, or no longer."""
    later = [row for row in rows if "since" in row and _first(row["since"]) > release.parts]
    row = later[0] if later else rows[-1]
    code, since, until = "not_yet" if later else "removed", None, None
    if later:
        until = _next(row["since"], -1)
        message = f"{engine} {release.asked} has no {name} yet; it comes with {row['since']}"
    else:
        since = _next(row["until"], 1)
        message = f"{engine} {release.asked} has no {name} any more; it is gone from {since} on"
    remedy = row.get("instead") or (f"run {engine} {row['since']} or later, or leave it out" if later else "leave it out")
    return ConfigFinding(severity=Severity.ERROR, code=code, field=field or name, message=message, remedy=remedy, since=since, until=until)


def _next(version: str, step: int) -> str | None:
    """The neighbour of a version in its last number, None where there is none below."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + step}" if int(last) + step >= 0 else None


def _value_findings(name: str, value: Any, row: Row) -> list[ConfigFinding]:
    takes = row["value"]
    found = []
    if isinstance(value, tuple) and takes != "several":
        message = f"{name} stands {len(value)} times ({printable(', '.join(value))}); the last one counts"
        found.append(finding(Severity.WARNING, "given_twice", name, message, remedy=f"keep one {name}", row=row))
    last = value[-1] if isinstance(value, tuple) and value else value
    if left_open(last):
        return found
    fault = value_fault(last, row)
    if fault is not None:
        shown = "" if last is True else f" {printable(last)}"
        message = f"{name}{shown} {fault}"
        found.append(finding(Severity.ERROR, "bad_value", name, message, remedy=row.get("instead") or _range(row), row=row))
    return found


def value_fault(value: Any, row: Row) -> str | None:
    """What is wrong with a value by its row, as the end of a sentence; None where nothing is. True is an option without a value."""
    takes = row["value"]
    if takes in KINDS:
        return None if isinstance(value, KINDS[takes]) or (takes == "flag" and value in TRUTHS) else f"is no {takes}"
    if takes in ("none", "switch") or value is True:
        if takes == "none":
            return None if value is True else "takes no value"
        return None if takes == "switch" else "needs a value"
    if "choices" in row:
        bad = [each for each in (str(value).split(",") if row.get("list") else [str(value)]) if each not in row["choices"]]
        return None if not bad else f"holds {printable(bad[0])}, which is none of {', '.join(row['choices'])}"
    if takes in ("text", "several"):
        return None if isinstance(value, str | tuple) else "is no text"
    number = _read_number(str(value), takes)
    if number is None or isinstance(value, dict | list):
        return "is no whole number" if takes.endswith("count") else "is no number"
    if not row.get("least", number) <= number <= row.get("most", number):
        return f"is out of range ({_range(row)})"
    return None


def _read_number(value: str, takes: str) -> float | None:
    """The number as Python's int and float read it, or (leading_…) as C's stoi and stof, which stop at what is no digit."""
    if takes == "count":
        return int(value) if WHOLE.fullmatch(value) else None
    if takes == "number":
        return _number(value)
    match = (BEGINS_WHOLE if takes == "leading_count" else BEGINS_NUMBER).match(value)
    if match is None or (takes == "leading_count" and abs(int(match[1])) > INT_MOST):
        return None
    return float(match[1])


def _range(row: Row) -> str:
    if "choices" in row:
        return f"take one of {', '.join(row['choices'])}"
    ends = [f"{word} {row[key]}" for word, key in (("at least", "least"), ("at most", "most")) if key in row]
    return "give " + (
        f"a number of {' and '.join(ends)}" if ends else {"none": "it without a value"}.get(row["value"], "a value of its kind")
    )
