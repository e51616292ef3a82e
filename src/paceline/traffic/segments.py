"""Which kind of traffic an exchange is: acceptance differs so much between kinds that one figure for all of them misleads.

A rule is one of four:

- a named field of the log's line, as a dotted path (`metadata.kind`);
- the first of KNOWN_FIELDS that the line has, where no field is named;
- `code-or-chat`: code where the question or the answer holds a fenced block or a line that begins like a program's, else chat;
- `single`: one segment, "all".

A line without the field is of segment "unlabelled". A key that is spelled with the dots wins over the path.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from paceline.errors import BadInputError, UnknownNameError

__all__ = ["KNOWN_FIELDS", "SegmentRule", "SegmentRuleKind", "UNLABELLED", "named_fields", "segment_rule"]

UNLABELLED = "unlabelled"
SINGLE = "all"
LABELS = ("segment", "category", "task", "task_type", "dataset", "domain")
KNOWN_FIELDS = (*LABELS, *(f"metadata.{label}" for label in LABELS))

CODE_LINE = re.compile(  # a line break leads, so that the search goes from line to line and not from character to character
    r"""\n[ \t]*(?:
        ```                                                # a fenced block
      | (?:async[ \t]+)?def[ \t]+\w+[ \t]*\(               # Python
      | class[ \t]+\w+[ \t]*[:({]
      | import[ \t]+[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*;?[ \t]*$
      | from[ \t]+[\w.]+[ \t]+import[ \t]+\S
      | (?:export[ \t]+)?(?:async[ \t]+)?function\b[ \t]*\w*[ \t]*\(   # JavaScript
      | (?:const|let|var)[ \t]+\w+[ \t]*=
      | \#include[ \t]*[<"]                                # C, C++
      | (?:public|private|protected)[ \t]+(?:static[ \t]+)?[\w<>\[\]]+[ \t]+\w+[ \t]*\([^)\n]*\)[ \t]*[{;]   # Java, C#
      | func[ \t]+\w*[ \t]*\(                              # Go
      | fn[ \t]+\w+[ \t]*[(<]                              # Rust
      | SELECT\b.+\bFROM\b                                 # SQL
    )""",
    re.MULTILINE | re.VERBOSE,
)


class SegmentRuleKind(StrEnum):
    """How a rule finds the segment."""

    FIELD = "field"
    CODE_OR_CHAT = "code-or-chat"
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """How the segment of an exchange is found; `fields` are tried in order where it is by field, and are empty otherwise."""

    kind: SegmentRuleKind
    fields: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject a rule by field without one, fields that no rule reads, and empty names.

        Raises:
            BadInputError: with the fields.

        """
        if (self.kind is SegmentRuleKind.FIELD) != bool(self.fields):
            raise BadInputError(
                f"segment rule {self.kind.value} with the fields {self.fields!r}: fields belong to a rule by field, and only to it"
            )
        if not all(self.fields):
            raise BadInputError("the segment's field has no name; name a field of the log's lines, such as category or metadata.kind")

    def segment_of(self, row: dict[str, object], *, texts: Iterable[str]) -> str:
        """The segment's name, "unlabelled" where `row` lacks the field. `texts` (question and answer) is read by `code-or-chat` only."""
        if self.kind is SegmentRuleKind.SINGLE:
            return SINGLE
        if self.kind is SegmentRuleKind.CODE_OR_CHAT:
            return "code" if any(CODE_LINE.search(f"\n{text}") for text in texts) else "chat"
        return next(filter(None, (_label(row, field) for field in self.fields)), UNLABELLED)


def segment_rule(*, name: str | None, field: str | None) -> SegmentRule:
    """The rule of that name, or the one that reads that field; with neither, the one that reads the first of KNOWN_FIELDS.

    Raises:
        UnknownNameError: no rule has that name.
        BadInputError: both were given, or a field without a name.

    """
    if name is not None and field is not None:
        raise BadInputError(f"a segment rule {name!r} and a segment field {field!r}; give one of them")
    if field is not None:
        return SegmentRule(kind=SegmentRuleKind.FIELD, fields=(field,))
    if name is None:
        return SegmentRule(kind=SegmentRuleKind.FIELD, fields=KNOWN_FIELDS)
    named = {each.value: each for each in (SegmentRuleKind.CODE_OR_CHAT, SegmentRuleKind.SINGLE)}
    if name not in named:
        raise UnknownNameError("segment rule", name, named)
    return SegmentRule(kind=named[name], fields=())


def named_fields(row: dict[str, object]) -> tuple[str, ...]:
    """The fields of a log's line that hold a name, one level of nesting included: what could name a segment."""
    nested = (f"{outer}.{inner}" for outer, value in row.items() if isinstance(value, dict) for inner in value)
    return tuple(field for field in (*row, *nested) if _label(row, field) is not None)


def _label(row: dict[str, object], field: str) -> str | None:
    """The field's value as a name; None where there is none or it is no name (an object, an array, null, empty)."""
    value: object = row.get(field)
    if value is None:
        value = row
        for key in field.split("."):
            value = value.get(key) if isinstance(value, dict) else None
            if value is None:
                return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip() or None if isinstance(value, str | int | float) else None
