"""What each vLLM version can do with speculation, read from the packaged table; each answer carries its source.

A version is compared as (major, minor, patch); `rc`, `post` and `dev` releases count as their release. A version that was not read is
answered as the nearest one before it, with a caution.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paceline.data.tables import table
from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.verdict import Caution

__all__ = [
    "Compatibility",
    "Status",
    "Version",
    "combines",
    "compatibilities",
    "has_flag",
    "holds",
    "max_draft_tokens",
    "metric_names",
    "need_method",
    "oldest_launchable",
    "parse_version",
    "usable_methods",
    "vllm_version",
    "written",
]

VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:\.?(?:rc|a|b|post|dev)[0-9]{1,4})*(?:\+[A-Za-z0-9.]{1,40})?")
OLDEST = (0, 0, 0)
NEWEST = (9999, 9999, 9999)

Parts = tuple[int, int, int]
Row = Mapping[str, Any]


class Status(StrEnum):
    """Whether a feature works together with speculation."""

    COMPATIBLE = "compatible"
    COSTS = "costs"
    PARTIAL = "partial"
    IGNORED = "ignored"
    INCOMPATIBLE = "incompatible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Version:
    """A vLLM version as asked for, and the version whose rows answer for it."""

    asked: str
    answers: Parts
    caution: Caution | None

    def __str__(self) -> str:
        """The version that answers."""
        return written(self.answers)


@dataclass(frozen=True, slots=True)
class Compatibility:
    """One feature with speculation in one version: whether it works, what to know, where that is from, and in which versions it holds."""

    feature: str
    status: Status
    note: str
    source: str
    since: str | None
    until: str | None


def written(parts: Parts) -> str:
    """(0, 18, 0) as 0.18.0."""
    return ".".join(map(str, parts))


def parse_version(text: str) -> Parts:
    """(major, minor, patch) of `0.18.0`, `v0.18`, `0.20.1.post1`, `0.32.0rc2` or `0.32.0+cpu`.

    Raises:
        BadInputError: none of these.

    """
    match = VERSION.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"{printable(text)} is no vLLM version; write it like 0.32.0")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def vllm_version(text: str) -> Version:
    """The version with the rows that answer for it: itself where it was read, else the nearest one before it, with a caution.

    Raises:
        BadInputError: `text` is no version.

    """
    parts = parse_version(text)
    known = sorted(parse_version(each) for each in _vllm()["versions"])
    if parts in known:
        return Version(asked=text, answers=parts, caution=None)
    before = [each for each in known if each < parts]
    nearest = before[-1] if before else known[0]
    message = f"vLLM {printable(text)} was not read (known: {written(known[0])} to {written(known[-1])}); answered as {written(nearest)}"
    return Version(asked=text, answers=nearest, caution=Caution("unknown_version", message))


def oldest_launchable() -> Parts:
    """The first version that we write a launch command for."""
    return parse_version(_vllm()["oldest_launchable"])


def usable_methods(version: Version) -> tuple[str, ...]:
    """Names, as vLLM writes them, of the methods that work in this version, sorted."""
    return tuple(sorted({row["name"] for row in _vllm()["methods"] if holds(row, version)}))


def need_method(method: str, version: Version) -> str:
    """What to know of `method` (vLLM's name) in this version.

    Raises:
        UnknownNameError: no such method.
        BadInputError: not usable in this version; the message says since when and until when it is.

    """
    rows = [row for row in _vllm()["methods"] if row["name"] == method]
    if not rows:
        raise UnknownNameError("vLLM method", method, {row["name"] for row in _vllm()["methods"]})
    for row in rows:
        if holds(row, version):
            return str(row["note"])
    spans = " and ".join(_span(row) for row in rows)
    raise BadInputError(f"method {method} does not work in vLLM {version}; it does {spans} ({rows[-1]['note']})")


def has_flag(name: str, version: Version) -> bool:
    """Whether `vllm serve` has the flag `name` in this version."""
    return any(row["name"] == name and holds(row, version) for row in _vllm()["flags"])


def max_draft_tokens(version: Version) -> int:
    """The longest draft that the rejection sampler takes; a longer one ends in an assertion while serving."""
    return int(next(row["draft_tokens"] for row in _vllm()["limits"] if holds(row, version)))


def metric_names(version: Version) -> tuple[str, ...]:
    """The series that matter for speculation and that this version exports, sorted."""
    return tuple(sorted(row["name"] for row in _vllm()["metrics"] if holds(row, version)))


def combines(method: str, version: Version) -> tuple[Compatibility, ...]:
    """Each feature with `method` in this version, in the table's order.

    Raises:
        UnknownNameError: no such method.
        BadInputError: the method is not usable in this version.

    """
    need_method(method, version)
    return compatibilities(method, version)


def compatibilities(method: str, version: Version) -> tuple[Compatibility, ...]:
    """What `combines` tells, of a method that need not work in this version nor be known."""
    found: dict[str, Compatibility] = {}
    for row in _vllm()["features"]:
        if row["feature"] not in found and method in row.get("methods", [method]) and holds(row, version):
            found[row["feature"]] = Compatibility(
                feature=row["feature"],
                status=Status(row["status"]),
                note=row["note"],
                source=row["source"],
                since=row.get("since"),
                until=row.get("until"),
            )
    return tuple(found.values())


def _vllm() -> Mapping[str, Any]:
    return table("servers/vllm")


def _range(row: Row) -> Sequence[Parts]:
    since, until = row.get("since"), row.get("until")
    return OLDEST if since is None else parse_version(since), NEWEST if until is None else parse_version(until)


def holds(row: Row, version: Version) -> bool:
    """Whether a table's row, by its `since` and `until`, holds in this version."""
    since, until = _range(row)
    return since <= version.answers <= until


def _span(row: Row) -> str:
    return f"from {row['since']} to {row['until']}" if "until" in row else f"from {row['since']} on"
