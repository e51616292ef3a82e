"""Acceptance as a file tells it: what `replay` or `measure` printed with --json, a run file, or one by hand in the same shape."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.decide.comparability import synthetic_cautions
from paceline.errors import BadInputError, NoEvidenceError, is_count, printable
from paceline.files.bounded import read_bounded
from paceline.files.runfile import read_run
from paceline.run import Evidence
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method
from paceline.verdict import Estimate

__all__ = ["ANY_SEGMENT", "AcceptanceFile", "Told", "read_acceptance_file"]

ANY_SEGMENT = "all"
MOST_BYTES = 64 << 20
PRINTED = "give what replay or measure printed with --json, or a run file"
PRINTED_BY = {"paceline.replay": Evidence.REPLAYED, "paceline.measure": Evidence.MEASURED, "paceline.simulate": Evidence.SIMULATED}


@dataclass(frozen=True, slots=True)
class Told:
    """Counts, with the intervals of survival by position and of coverage; () and None where the file has none."""

    counts: AcceptanceCounts
    survival: tuple[Estimate, ...]
    coverage: Estimate | None


@dataclass(frozen=True, slots=True)
class AcceptanceFile:
    """Acceptance by segment and in all (`ANY_SEGMENT` where there are no segments), what it rests on, and hashes of what a replay read."""

    by_segment: Mapping[str, Told]
    total: Told
    evidence: Evidence
    inputs: Mapping[str, str]


def read_acceptance_file(path: Path, method: Method) -> AcceptanceFile:
    """What the file says of acceptance.

    Raises:
        BadInputError: the file holds no acceptance counts, or those of another method's replay.
        NoEvidenceError: acceptance was not measured.

    """
    document = _document(path)
    kind = str(document.get("schema", "")).rpartition("/")[0]
    if kind == "paceline.replay":
        _need_method(path, document, method)
    if kind == "paceline.run":
        run = read_run(path)
        if not run.acceptance_by_segment:
            raise NoEvidenceError(f"{printable(path.name)}: acceptance was not measured in this run")
        for caution in synthetic_cautions(run):
            raise BadInputError(f"{printable(path.name)} is no acceptance to go on with: {caution.message}")
        return _whole({name: _pointwise(each) for name, each in run.acceptance_by_segment.items()}, None, run.provenance.evidence)
    whole = document.get("acceptance", document)
    if whole is None:
        raise NoEvidenceError(f"{printable(path.name)}: acceptance was not measured there")
    parts = whole.get("segments") if isinstance(whole, dict) else None
    rows = parts if isinstance(parts, dict) and parts else {ANY_SEGMENT: whole}
    by_segment = {str(name): _told(path, row) for name, row in rows.items()}
    total = _told(path, whole) if isinstance(whole, dict) and "drafts" in whole else None
    found = _whole(by_segment, total, PRINTED_BY.get(kind, Evidence.STATED))
    return replace(found, inputs=_inputs(document) if kind == "paceline.replay" else {})


def _whole(by_segment: Mapping[str, Told], total: Told | None, evidence: Evidence) -> AcceptanceFile:
    """The file's answer; its total is that of the counts, with intervals where the file's own total is the same."""
    pooled = AcceptanceCounts.pooled(each.counts for each in by_segment.values())
    own = total if total is not None and total.counts == pooled else _pointwise(pooled)
    return AcceptanceFile(by_segment=by_segment, total=own, evidence=evidence, inputs={})


def _pointwise(counts: AcceptanceCounts) -> Told:
    return Told(counts=counts, survival=(), coverage=None)


def _inputs(document: Mapping[str, Any]) -> dict[str, str]:
    """The hashes in its provenance."""
    provenance = document.get("provenance")
    inputs = provenance.get("inputs") if isinstance(provenance, dict) else None
    return {name: each for name, each in inputs.items() if isinstance(each, str)} if isinstance(inputs, dict) else {}


def _need_method(path: Path, document: Mapping[str, Any], method: Method) -> None:
    """Refuse what was replayed with another method: what a head's drafts reach says nothing of a lookup's."""
    provenance = document.get("provenance")
    arguments = provenance.get("arguments") if isinstance(provenance, dict) else None
    replayed = arguments.get("method") if isinstance(arguments, dict) else None
    if isinstance(replayed, str) and replayed != method.value:
        raise BadInputError(
            f"{printable(path.name)} is acceptance of {printable(replayed)} drafts, not of {method.value}; give --method to match, or a "
            f"replay of {method.value}"
        )


def _document(path: Path) -> dict[str, Any]:
    content = read_bounded(path, what="acceptance in", most_bytes=MOST_BYTES, remedy=PRINTED)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"acceptance cannot be read from {printable(str(path))}: {printable(str(fault))}") from None
    if not isinstance(document, dict):
        raise BadInputError(f"{printable(str(path))} is no JSON object; {PRINTED}")
    return document


def _told(path: Path, row: object) -> Told:
    try:
        return _parsed(row)
    except (BadInputError, KeyError, OverflowError, TypeError, ValueError) as fault:
        raise BadInputError(
            f"{printable(str(path))} holds no acceptance counts (drafts, drafted_tokens, accepted_tokens, survival): "
            f"{printable(str(fault))}"
        ) from None


def _parsed(row: object) -> Told:
    """Counts and survival as `report.json_view` writes them; positions are survival times drafts."""
    if not isinstance(row, dict):
        raise TypeError(f"{type(row).__name__} where an object is needed")
    drafts = _count(row["drafts"])
    survival = None if row["survival"] is None else [each["value"] if isinstance(each, dict) else each for each in row["survival"]]
    positions = None if survival is None else tuple(round(float(each) * drafts) for each in survival)
    counts = AcceptanceCounts(
        steps=None if row.get("steps") is None else _count(row["steps"]),
        drafts=drafts,
        drafted_tokens=_count(row["drafted_tokens"]),
        accepted_tokens=_count(row["accepted_tokens"]),
        accepted_per_position=positions if drafts else (),
    )
    ends = [_estimate(each) for each in row["survival"] or () if isinstance(each, dict)] if drafts else []
    coverage = row.get("coverage")
    return Told(counts=counts, survival=tuple(ends), coverage=_estimate(coverage) if isinstance(coverage, dict) else None)


def _estimate(row: Mapping[str, Any]) -> Estimate:
    """A ratio as `report.json_view` writes it; its value is a share."""
    found = Estimate(**{key: row[key] for key in ("value", "low", "high", "confidence", "n")})
    if not all(0 <= each <= 1 for each in (found.value, found.low, found.high) if each is not None):
        raise ValueError(f"{found.value!r} in [{found.low!r}, {found.high!r}] is no share")
    return found


def _count(value: Any) -> int:
    if not is_count(value, least=0):
        raise TypeError(f"{printable(value)} is no whole number from 0 on")
    return int(value)
