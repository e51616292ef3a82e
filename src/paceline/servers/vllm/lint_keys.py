"""The keys of vLLM's --speculative-config: which ones a version knows, what values it takes, and which method reads them.

Ranges are those that the configuration itself is held to; what depends on another key, a flag or a checkpoint is told elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from paceline.data.tables import table
from paceline.errors import printable
from paceline.servers.lint import ConfigFinding, Severity
from paceline.servers.lint_tables import finding
from paceline.servers.vllm.lint_values import NOT_TAKEN, taken_for
from paceline.servers.vllm.versions import Version, holds, parse_version

__all__ = ["Keys", "normalised", "read_keys"]

DASHES_SINCE = (0, 26, 0)
RANGES_OF_METHODS = "range_for_methods"
ARGUMENT_OF_HIDDEN_STATES = "draft_model_config"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What a configuration states.

    Attributes:
        values: each key with the value that vLLM takes it for; a key that is refused, ignored or null is not among them.
        named: every key that stands there and is not null, refused ones too.

    """

    values: Mapping[str, Any]
    named: frozenset[str]


def normalised(speculative: Mapping[str, Any], version: Version) -> dict[str, Any]:
    """The configuration with its keys as this version reads them: from 0.26.0 on a dash is an underscore."""
    dashes = version.answers >= DASHES_SINCE
    return {key.replace("-", "_") if dashes else key: value for key, value in speculative.items()}


def read_keys(speculative: Mapping[str, Any], *, method: str, version: Version) -> tuple[Keys, tuple[ConfigFinding, ...]]:
    """The keys (normalised) as this version takes them for a method, and what is wrong with them."""
    values: dict[str, Any] = {}
    found: list[ConfigFinding] = []
    for name, value in speculative.items():
        row = _row("fields", name, version)
        if row is None:
            found.append(_internal(name, method, version) or _unknown(name, version))
            continue
        wrong = _wrong(row, value, method, version)
        if wrong is not None:
            found.append(wrong)
        elif value is not None:
            values[name] = taken_for(row["kind"], value)
        if value is not None and method not in row.get("methods", [method]):
            found.append(_idle(row, method))
    return Keys(values=values, named=frozenset(name for name, value in speculative.items() if value is not None)), tuple(found)


def _tables() -> Mapping[str, Any]:
    return table("servers/vllm_fields")


def _row(which: str, name: str, version: Version) -> Row | None:
    return next((row for row in _tables()[which] if row["name"] == name and holds(row, version)), None)


def _internal(name: str, method: str, version: Version) -> ConfigFinding | None:
    row = _row("internal", name, version)
    if row is None:
        return None
    used = name == ARGUMENT_OF_HIDDEN_STATES and method == "extract_hidden_states"
    return finding(
        Severity.INFO if used else Severity.WARNING,
        "internal_key",
        name,
        f"{name} is vLLM's own: " + ("only its layer numbers are read" if used else "what is written there is overwritten"),
        remedy="fine for extract_hidden_states" if used else "leave it out",
        row=row,
    )


def _unknown(name: str, version: Version) -> ConfigFinding:
    """A key that this version does not know."""
    policy = next(row for row in table("servers/vllm")["unknown_keys"] if holds(row, version))
    rows = [row for row in _tables()["fields"] if row["name"] == name]
    known = sorted(row["name"] for row in _tables()["fields"] if holds(row, version))
    near = get_close_matches(name.replace("-", "_"), known, n=2)
    ignored = policy["policy"] == "ignored"
    what = "is silently ignored" if ignored else "makes the server refuse to start"
    spans = " and ".join(f"from {row['since']} to {row.get('until', 'now')}" for row in rows)
    return finding(
        Severity.WARNING if ignored else Severity.ERROR,
        "key_of_another_version" if rows else "unknown_key",
        name,
        f"key {printable(name)} is not known in vLLM {version} and {what}" + (f"; it is {spans}" if rows else ""),
        remedy=f"write {' or '.join(near)}" if near and not rows else "leave it out, or serve a version that knows it",
        row=policy,
    )


def _wrong(row: Row, value: object, method: str, version: Version) -> ConfigFinding | None:
    """What is wrong with a value; None where vLLM takes it."""
    name = row["name"]
    taken = taken_for(row["kind"], value)
    if value is None and row["null"]:
        return None
    if taken is NOT_TAKEN and row["kind"] == "schedule":
        return _schedule_form(row, value)
    if taken is NOT_TAKEN:
        return _wrong_type(row, value, version)
    ranged = method in row["methods"] if row.get(RANGES_OF_METHODS) else True
    least, most = row.get("least"), row.get("most")
    if ranged and ((least is not None and not taken >= least) or (most is not None and not taken <= most)):
        span = f"from {least} on" if most is None else f"from {least} to {most}"
        return _refused(row, "out_of_range", f"{name} = {printable(value)} is out of its range", f"write a number {span}")
    return _choice(row, taken, method, version)


def _wrong_type(row: Row, value: object, version: Version) -> ConfigFinding:
    since = _tables()["enforced_since"]
    enforced = version.answers >= parse_version(since)
    article = "an" if row["kind"] in ("integer", "object") else "a"
    return finding(
        Severity.ERROR if enforced else Severity.WARNING,
        "wrong_type",
        row["name"],
        f"{row['name']} = {printable(value)} is not {article} {row['kind']}"
        + ("" if enforced else ", which this version does not look at before it fails"),
        remedy=f"write {article} {row['kind']}" + ("; leave the key out for the default" if value is None else ""),
        row={"since": since if enforced else None, "until": None if enforced else "0.9.0"},
    )


def _schedule_form(row: Row, value: object) -> ConfigFinding:
    """A table of draft lengths that is no list of triples; a mapping from ranges, as it was once proposed, is rewritten."""
    rows = _from_mapping(value)
    remedy = "write it as a list of [first batch size, last, K]"
    return _refused(
        row,
        "schedule_form",
        f"{row['name']} is not a list of [first batch size, last, K]: {printable(value)}",
        f"{remedy}: {rows}" if rows else f"{remedy}, such as [[1, 16, 4], [17, 64, 2]]",
    )


def _from_mapping(value: object) -> list[list[int]]:
    """{"1-16": 3} as [[1, 16, 3]]; empty where it is something else."""
    rows = []
    for span, length in value.items() if isinstance(value, Mapping) else ():
        parts = [taken_for("integer", each) for each in (*str(span).split("-"), length)]
        if len(parts) != 3 or NOT_TAKEN in parts:
            return []
        rows.append(parts)
    return rows


def _choice(row: Row, taken: Any, method: str, version: Version) -> ConfigFinding | None:
    """A value that is none of those that the version lists; None where it is, or where no list was read."""
    lists = [each for each in _tables()["choices"] if each["field"] == row["name"]]
    choices = next((each for each in lists if holds(each, version)), None)
    # what a text names is looked up only where a draft is loaded with it
    if choices is None or (row["kind"] == "text" and method not in row["methods"]):
        return None
    if choices.get("any_case"):
        taken = next((each for each in choices["values"] if each.casefold() == taken.casefold()), taken)
    if taken in choices["values"]:
        return None
    near = get_close_matches(taken, choices["values"], n=3) or choices["values"][:8]
    elsewhere = any(taken in each["values"] for each in lists)
    return finding(
        Severity.ERROR,
        "unknown_choice",
        row["name"],
        f"{row['name']} = {printable(taken)} is not known in vLLM {version}" + (", but in others" if elsewhere else ""),
        remedy=f"write one of {', '.join(near)}",
        row={"since": choices.get("since"), "until": choices.get("until")},
    )


def _idle(row: Row, method: str) -> ConfigFinding:
    return finding(
        Severity.WARNING,
        "ignored_key",
        row["name"],
        f"{row['name']} does nothing with method {method}",
        remedy=f"leave it out; it belongs to {', '.join(row['methods'])}",
        row=row,
    )


def _refused(row: Row, code: str, message: str, remedy: str) -> ConfigFinding:
    return finding(Severity.ERROR, code, row["name"], message, remedy=remedy, row=row)
