"""Faults that the fake server makes on request: which, when, and for how long.

A file (TOML) has a `seed` and a list of `[[fault]]`; a request may carry its own in the header `X-Fake-Fault`, as in
`stall after_chunks=2 seconds=1`, several separated by semicolons. `KINDS` says what each kind takes. Which requests or scrapes of /metrics
a fault of a file strikes is told by their index: a list, every n-th, or a share that is drawn by (seed, fault, index), so that the same
file strikes the same ones whatever the timing.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.errors import BadInputError, UnknownNameError, is_count, printable
from paceline.files.bounded import read_bounded

__all__ = ["Fault", "Faults", "KINDS", "NO_FAULTS", "faults_in_header", "read_faults"]

# What each kind may be told beside whom it strikes.
KINDS: Mapping[str, frozenset[str]] = {
    "stall": frozenset({"after_chunks", "seconds"}),
    "slow_first_byte": frozenset({"seconds"}),
    "cut": frozenset({"after_chunks"}),
    "error": frozenset({"after_chunks", "status"}),
    "wrong_content": frozenset({"after_chunks"}),
    "half_scrape": frozenset(),
    "counter_reset": frozenset(),
    "restart": frozenset({"seconds"}),
}
OF_SCRAPES = frozenset({"half_scrape", "counter_reset", "restart"})
OF_REQUESTS = frozenset(KINDS) - {"half_scrape"}
SELECTORS = frozenset({"requests", "scrapes", "every", "share"})
MOST_BYTES = 1 << 20
MOST_SECONDS = 3600.0
MOST_HEADER_FAULTS = 8


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: one of `KINDS`.
        after_chunks: chunks (for wrong content: tokens) that are right before it strikes.
        seconds: how long it lasts.
        status: of an error.
        on: "requests" or "scrapes".
        indices, every, share: which of them it strikes; the first that is not None decides.

    """

    kind: str
    after_chunks: int
    seconds: float
    status: int
    on: str
    indices: frozenset[int] | None
    every: int | None
    share: float | None

    def strikes(self, index: int, *, seed: int, place: int) -> bool:
        """Whether it strikes that request or scrape."""
        if self.indices is not None:
            return index in self.indices
        if self.every is not None:
            return (index + 1) % self.every == 0
        return self.share is not None and np.random.default_rng((seed, place, index)).random() < self.share


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a file."""

    seed: int
    faults: tuple[Fault, ...]

    def of(self, on: str, index: int) -> tuple[Fault, ...]:
        """What strikes request or scrape (`on`) number `index`."""
        return tuple(each for place, each in enumerate(self.faults) if each.on == on and each.strikes(index, seed=self.seed, place=place))


NO_FAULTS = Faults(seed=0, faults=())


def read_faults(path: Path) -> Faults:
    """The faults of a file.

    Raises:
        BadInputError: it cannot be read, or says something that no fault takes.

    """
    name = printable(str(path))
    content = read_bounded(path, what="the list of faults", most_bytes=MOST_BYTES, remedy="give a TOML file of faults")
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"faults cannot be read from {name}: {printable(str(fault))}") from None
    for key in document:
        if key not in ("seed", "fault"):
            raise UnknownNameError(f"key of {name}", key, ("seed", "fault"))
    seed, rows = document.get("seed", 0), document.get("fault", [])
    if not is_count(seed, least=0) or not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
        raise BadInputError(f"{name} needs a seed from 0 on and faults as [[fault]]")
    return Faults(seed=seed, faults=tuple(_fault(each) for each in rows))


def faults_in_header(text: str) -> tuple[Fault, ...]:
    """The faults that a request asks for itself.

    Raises:
        BadInputError: a kind or a value that there is not, or more than eight.

    """
    parts = [each.split() for each in text.split(";") if each.strip()]
    if len(parts) > MOST_HEADER_FAULTS:
        raise BadInputError(f"{len(parts)} faults in one header, at most {MOST_HEADER_FAULTS} are taken")
    return tuple(_fault({"kind": kind, **dict(map(_pair, pairs)), "every": 1}) for kind, *pairs in parts)


def _pair(text: str) -> tuple[str, float | int]:
    name, _, value = text.partition("=")
    try:
        return name, int(value) if value.isdigit() else float(value)
    except ValueError:
        raise BadInputError(f"{printable(text)} is not NAME=NUMBER") from None


def _fault(row: Mapping[str, Any]) -> Fault:
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnknownNameError("kind of fault", str(kind), KINDS)
    taken = {"kind", *KINDS[kind], *SELECTORS}
    for key in row:
        if key not in taken:
            raise UnknownNameError(f"key of a {kind} fault", key, taken)
    on = "scrapes" if "scrapes" in row or kind not in OF_REQUESTS else "requests"
    if on == "scrapes" and kind not in OF_SCRAPES:
        raise BadInputError(f"a {kind} fault strikes requests, not scrapes")
    if sum(each in row for each in SELECTORS) != 1:
        raise BadInputError(f"a {kind} fault needs one of {', '.join(sorted(SELECTORS))}, to say whom it strikes")
    indices = row.get(on)
    if indices is not None and not (isinstance(indices, list) and all(is_count(each, least=0) for each in indices)):
        raise BadInputError(f"{on} = {printable(indices)} is no list of indices from 0 on")
    if ("requests" in row) and on == "scrapes":
        raise BadInputError(f"a {kind} fault strikes scrapes, not requests")
    return Fault(
        kind=kind,
        after_chunks=_count(row, "after_chunks", default=0 if kind in ("error", "wrong_content") else 1, least=0),
        seconds=_seconds(row),
        status=_count(row, "status", default=500, least=400, most=599),
        on=on,
        indices=None if indices is None else frozenset(indices),
        every=_count(row, "every", default=1, least=1) if "every" in row else None,
        share=_share(row) if "share" in row else None,
    )


def _count(row: Mapping[str, Any], name: str, *, default: int, least: int, most: int = 1_000_000) -> int:
    value = row.get(name, default)
    if not is_count(value, least=least) or value > most:
        raise BadInputError(f"{name} = {printable(value)} is not a whole number from {least} to {most}")
    return int(value)


def _seconds(row: Mapping[str, Any]) -> float:
    value = row.get("seconds", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_SECONDS:
        raise BadInputError(f"seconds = {printable(value)} is not a time from 0 to {MOST_SECONDS:g} s")
    return float(value)


def _share(row: Mapping[str, Any]) -> float:
    value = row["share"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInputError(f"share = {printable(value)} is not between 0 and 1")
    return float(value)
