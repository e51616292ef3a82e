"""What `lint` prints: each finding with its remedy and the versions in which it holds."""

from collections.abc import Sequence
from typing import Any

from paceline.errors import ascii_controls
from paceline.servers.lint import ConfigFinding
from paceline.verdict import Caution

__all__ = ["findings_dict", "findings_text"]

NOTHING = "nothing to say: this version takes it as it stands"


def findings_dict(findings: Sequence[ConfigFinding], *, where: str) -> list[dict[str, Any]]:
    """The findings of one server as JSON; `where` says which."""
    return [
        {
            "severity": each.severity.value,
            "code": each.code,
            "field": each.field,
            "message": each.message,
            "remedy": each.remedy,
            "since": each.since,
            "until": each.until,
            "where": where,
        }
        for each in findings
    ]


def findings_text(servers: Sequence[tuple[str, Sequence[ConfigFinding]]], *, cautions: Sequence[Caution]) -> str:
    """A paragraph per server (its place where there are several), two lines per finding."""
    parts = []
    for where, findings in servers:
        lines = [ascii_controls(where)] if len(servers) > 1 else []
        lines += [line for each in findings for line in _lines(each)] or [NOTHING]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *(f"note: {ascii_controls(each.message)}" for each in cautions)])


def _lines(found: ConfigFinding) -> list[str]:
    span = _span(found)
    return [
        f"{found.severity.value:7}  {found.code}: {ascii_controls(found.message)}{span}",
        f"{'':7}  {ascii_controls(found.remedy)}",
    ]


def _span(found: ConfigFinding) -> str:
    since = f"from {found.since}" if found.since else ""
    until = f"up to {found.until}" if found.until else ""
    return f" ({' '.join(each for each in (since, until) if each)})" if since or until else ""
