"""What is found in a server's configuration: what it refuses, ignores or pays for, in which versions, and what to write instead.

Each dialect's `lint` module makes the findings; this is the record that they share.
"""

from dataclasses import dataclass
from enum import StrEnum

from paceline.errors import BadInputError, printable

__all__ = ["ConfigFinding", "Severity", "worst_first"]


class Severity(StrEnum):
    """How bad a finding is.

    An error: the server refuses to start, or serves and silently does not speculate. A warning: something is ignored, lossy or slow.
    An info: good to know, nothing to change.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFinding:
    """One thing that is wrong with a configuration, or worth knowing about it.

    Attributes:
        severity: how bad it is.
        code: a stable name, as `unknown_key`.
        field: the key or flag that it is about, None where it is about the whole.
        message: what is wrong, the value quoted.
        remedy: what to write or do instead.
        since: the first version where it holds, None where it holds from the oldest version known.
        until: the last version where it holds, None where it still does.

    """

    severity: Severity
    code: str
    field: str | None
    message: str
    remedy: str
    since: str | None
    until: str | None

    def __post_init__(self) -> None:
        """Reject a finding without code, message or remedy.

        Raises:
            BadInputError: with the code.

        """
        if not (self.code and self.message and self.remedy):
            raise BadInputError(f"finding {printable(self.code)} needs a code, a message and a remedy")


def worst_first(findings: tuple[ConfigFinding, ...]) -> tuple[ConfigFinding, ...]:
    """The findings without repetitions, errors first, then warnings, then infos, each in the order they were found."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda each: list(Severity).index(each.severity)))
