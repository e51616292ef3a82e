"""What a dialect's table alone says of a configuration: options that a version lacks, values out of range, things that do not combine.

A table is `data/servers/<engine>.toml`; a row holds from `since` to `until`, both inclusive, and says its `source`:

    flags          name, value (what it takes: none, text, count, number, and two lenient kinds), least, most, choices, instead
    methods        name, note
    combinations   code, severity, when, field, message, remedy

`when` says of each place what its value must be for the finding to hold. A place is a flag, `$VARIABLE`, `method`, or a dotted key of the
speculative block. A condition is `given`, `absent`, a comparison such as `> 1`, or `is a|b` and `is not a|b`. In a message {} stands for the
field's value. Values that are left open meet no condition but `given`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from paceline.errors import BadInputError, printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.served_config import ServedConfig, left_open

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
    "release_findings",
    "value_at",
]

RELEASE = re.compile(
    r"[vb]?([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:\.([0-9]{1,6}))?(?:[-.]?(?:rc|a|b|post|dev)[0-9]{0,6})*(?:\+[A-Za-z0-9.]{1,40})?"
)
WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
BEGINS_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,18})")
BEGINS_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)")
COMPARISON = re.compile(r"(<=|>=|<|>|==) (-?[0-9.]+)")
INT_MOST = 2**31 - 1

Row = Mapping[str, Any]
Parts = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Release:
    """A server's version as it was asked for, and as numbers that compare."""

    asked: str
    parts: Parts


def parse_release(text: str, *, engine: str) -> Release:
    """`0.5.10.post1` as (0, 5, 10), a build such as `b11434` as (11434, 0, 0); rc, post and dev count as their release.

    Raises:
        BadInputError: no version.

    """
    match = RELEASE.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"{printable(text)} is no version of {engine}; write it like 0.5.10, or b11434 for llama-server")
    return Release(asked=text.strip(), parts=(int(match[1]), int(match[2] or 0), int(match[3] or 0)))


def holds(row: Row, release: Release) -> bool:
    """Whether the row holds in this release."""
    return _parts(row.get("since", "0")) <= release.parts <= _parts(row.get("until", "999999"))


def finding(severity: Severity, code: str, field: str | None, message: str, *, remedy: str, row: Row | None) -> ConfigFinding:
    """A finding over the span of the row that it rests on; in every version where it rests on none."""
    since, until = (None, None) if row is None else (row.get("since"), row.get("until"))
    return ConfigFinding(severity=severity, code=code, field=field, message=message, remedy=remedy, since=since, until=until)


def value_at(config: ServedConfig, place: str, method: str | None) -> Any:
    """What stands at a place of the configuration, None where nothing does; of several values the last, as servers take it."""
    if place == "method":
        return method
    if place.startswith("--"):
        value: Any = config.flags.get(place)
        return value[-1] if isinstance(value, tuple) and value else value
    if place.startswith("$"):
        return config.environment.get(place[1:])
    value = config.speculative
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def number_at(config: ServedConfig, place: str) -> float | None:
    """The number at a place, None where there is none or it is left open."""
    return _number(value_at(config, place, None))


def release_findings(release: Release, read: Sequence[str], engine: str) -> list[ConfigFinding]:
    """That a version is outside of those that were read, oldest and newest."""
    oldest, newest = read
    if _parts(oldest) <= release.parts <= _parts(newest):
        return []
    message = f"{engine} {release.asked} was not read (known: {oldest} to {newest}); what follows is what is known of the nearest"
    remedy = "check the server's log at start, and measure whether it drafts"
    return [finding(Severity.INFO, "unknown_version", None, message, remedy=remedy, row=None)]


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


def flag_findings(config: ServedConfig, rows: Iterable[Row], release: Release, *, engine: str) -> list[ConfigFinding]:
    """Options that this release lacks, and values that it does not take."""
    spans: dict[str, list[Row]] = {}
    for row in rows:
        spans.setdefault(row["name"], []).append(row)
    found = []
    for name, value in config.flags.items():
        known = spans.get(name, [])
        row = next((each for each in known if holds(each, release)), None)
        if row is not None:
            found += _value_findings(name, value, row)
        elif known:
            found.append(_missing(name, known, release, engine))
    return found


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


def _parts(text: str) -> Parts:
    return parse_release(text, engine="a table").parts


def _meets(value: Any, asked: str) -> bool:
    if asked in ("given", "absent"):
        return (value is None) == (asked == "absent")
    if value is None or left_open(value):
        return False
    comparison = COMPARISON.fullmatch(asked)
    if comparison is None:
        word, _, names = asked.removeprefix("is ").rpartition("not ")
        shown = str(value).casefold() if isinstance(value, bool) else str(value)
        return (shown in names.split("|")) != bool(word or asked.startswith("is not "))
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
    later = [row for row in rows if "since" in row and _parts(row["since"]) > release.parts]
    row = later[0] if later else rows[-1]
    code, since, until = "not_yet" if later else "removed", None, None
    if later:
        until = _next(row["since"], -1)
        message = f"{engine} {release.asked} has no {name} yet; it comes with {row['since']}"
    else:
        since = _next(row["until"], 1)
        message = f"{engine} {release.asked} has no {name} any more; {row['until']} was the last known to have it"
    remedy = row.get("instead") or (f"run {engine} {row['since']} or later, or leave it out" if later else "leave it out")
    return ConfigFinding(severity=Severity.ERROR, code=code, field=field or name, message=message, remedy=remedy, since=since, until=until)


def _next(version: str, step: int) -> str | None:
    """The neighbour of a version in its last number, None where there is none below."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + step}" if int(last) + step >= 0 else None


def _value_findings(name: str, value: str | bool | tuple[str, ...], row: Row) -> list[ConfigFinding]:
    takes = row["value"]
    found = []
    if isinstance(value, tuple) and takes != "several":
        message = f"{name} stands {len(value)} times ({printable(', '.join(value))}); the last one counts"
        found.append(finding(Severity.WARNING, "given_twice", name, message, remedy=f"keep one {name}", row=row))
    last = value[-1] if isinstance(value, tuple) and value else value
    if left_open(last):
        return found
    fault = _fault(last, takes, row)
    if fault is not None:
        shown = "" if last is True else f" {printable(last)}"
        message = f"{name}{shown} {fault}"
        found.append(finding(Severity.ERROR, "bad_value", name, message, remedy=row.get("instead") or _range(row), row=row))
    return found


def _fault(value: Any, takes: str, row: Row) -> str | None:
    """What is wrong with an option's value, None where nothing is."""
    if takes in ("none", "switch") or value is True:
        if takes == "none" and value is not True:
            return "takes no value"
        return None if takes in ("none", "switch") else "needs a value"
    if "choices" in row:
        parts = value.split(",") if row.get("list") else [value]
        bad = next((each for each in parts if each not in row["choices"]), None)
        return (
            None if bad is None else f"is none of {', '.join(row['choices'])}" if bad == value else f"holds {printable(bad)}, which is none"
        )
    if takes in ("text", "several"):
        return None
    number = _read_number(value, takes)
    if number is None:
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
