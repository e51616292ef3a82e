"""What became of every line of an input file: how many were used, and why the others were not.

Rules:

- Nothing is dropped unsaid. Every line is blank, used or bad: `lines = blank + used_lines + sum(bad_lines.values())`.
- One line may hold several answers (the turns of a conversation). One that cannot be used is a skipped turn; a line of which no turn
  could be used is a bad line as well, under its first reason.
- A reason is one of few fixed phrases, so that it can be counted; the detail beside it quotes what was found.
- In a JSON array "line" means element: its number from 1 on.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BadLine", "KEPT_EXAMPLES", "ReadReport", "Tally", "Unusable"]

KEPT_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line, or one turn of it, that could not be used: the file's name, the line's number from 1 on, the reason and what was found."""

    file: str
    line: int
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


class Unusable(Exception):  # noqa: N818  # no fault of ours or of a server: it ends the reading of one line and never leaves this package
    """One line cannot be used, for `reason`, with what was found as `detail`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What was read from a file, or from several where reports were added up.

    Attributes:
        file: the file's name; several are joined with a comma.
        lines: lines or array elements, blank ones included, a CSV header not.
        blank: lines with nothing on them.
        used_lines: lines that gave at least one exchange or request.
        exchanges: exchanges; of a trace, its requests.
        without_answer: those of them that have no answer's text.
        unlabelled: those of them whose line lacks the field that names the segment.
        bad_lines: lines that gave nothing, by reason.
        skipped_turns: turns that were left out, by reason, those of bad lines included.
        notes: lines about which something is worth knowing though they were used, by what it is.
        examples: the first 20 bad lines and skipped turns.

    """

    file: str
    lines: int
    blank: int
    used_lines: int
    exchanges: int
    without_answer: int
    unlabelled: int
    bad_lines: Mapping[str, int]
    skipped_turns: Mapping[str, int]
    notes: Mapping[str, int]
    examples: tuple[BadLine, ...]

    def __add__(self, other: "ReadReport") -> "ReadReport":
        """Both files' counts together."""
        return ReadReport(
            file=f"{self.file}, {other.file}",
            lines=self.lines + other.lines,
            blank=self.blank + other.blank,
            used_lines=self.used_lines + other.used_lines,
            exchanges=self.exchanges + other.exchanges,
            without_answer=self.without_answer + other.without_answer,
            unlabelled=self.unlabelled + other.unlabelled,
            bad_lines=Counter(self.bad_lines) + Counter(other.bad_lines),
            skipped_turns=Counter(self.skipped_turns) + Counter(other.skipped_turns),
            notes=Counter(self.notes) + Counter(other.notes),
            examples=(self.examples + other.examples)[:KEPT_EXAMPLES],
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each reason why something was left out or is to be read with care, with its count and its first example."""
        first = {each.reason: f"; first: {each}" for each in reversed(self.examples)}
        lines = [f"{count} of {self.lines} lines not used: {why}{first.get(why, '')}" for why, count in self.bad_lines.items()]
        turns = [f"{count} turns left out: {why}{first.get(why, '')}" for why, count in self.skipped_turns.items()]
        return (*lines, *turns, *(f"{count} lines: {what}" for what, count in self.notes.items()))


class Tally:
    """Counts the lines of one file as they are read; `report` is the count so far."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._counts: Counter[str] = Counter()
        self._bad_lines: Counter[str] = Counter()
        self._skipped_turns: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._examples: list[BadLine] = []

    def blank(self) -> None:
        """One line with nothing on it."""
        self._counts["lines"] += 1
        self._counts["blank"] += 1

    def used(self) -> None:
        """One line that gave something."""
        self._counts["lines"] += 1
        self._counts["used_lines"] += 1

    def bad(self, line: int, why: Unusable) -> None:
        """One line that gave nothing."""
        self._counts["lines"] += 1
        self._bad_lines[why.reason] += 1
        self._example(line, why)

    def bad_for_its_turns(self, why: Unusable) -> None:
        """One line that gave nothing because every turn of it was skipped; its example is the turn's."""
        self._counts["lines"] += 1
        self._bad_lines[why.reason] += 1

    def skipped_turn(self, line: int, why: Unusable) -> None:
        """One turn of a line that was left out."""
        self._skipped_turns[why.reason] += 1
        self._example(line, why)

    def note(self, what: str) -> None:
        """One line that is used, with something to know about it."""
        self._notes[what] += 1

    def exchange(self, *, has_answer: bool, labelled: bool) -> None:
        """One exchange or request."""
        self._counts["exchanges"] += 1
        self._counts["without_answer"] += not has_answer
        self._counts["unlabelled"] += not labelled

    def _example(self, line: int, why: Unusable) -> None:
        if len(self._examples) < KEPT_EXAMPLES:
            self._examples.append(BadLine(file=self.file, line=line, reason=why.reason, detail=why.detail))

    @property
    def report(self) -> ReadReport:
        """The counts so far."""
        return ReadReport(
            file=self.file,
            lines=self._counts["lines"],
            blank=self._counts["blank"],
            used_lines=self._counts["used_lines"],
            exchanges=self._counts["exchanges"],
            without_answer=self._counts["without_answer"],
            unlabelled=self._counts["unlabelled"],
            bad_lines=Counter(self._bad_lines),
            skipped_turns=Counter(self._skipped_turns),
            notes=Counter(self._notes),
            examples=tuple(self._examples),
        )
