"""How often a load-test was looked at while it ran, as its runs state it, and what that costs every interval.

`bench` looks after pairs of blocks and stops once it knows enough. Each look is a chance to stop on luck, so a run that could have stopped
says how many looks were planned and taken and what the last one said, and its intervals hold at all of them together:

    speed-up of pairs, α of counted requests       the mixture of `stats.sequential`, for the design whose hard stop is the most requests
    everything else                                one look's interval at 1 − (1 − confidence) / planned looks (Bonferroni), for the number
                                                   of looks is fixed before the first
"""

import re
from dataclasses import dataclass, replace

from paceline.errors import BadInputError, is_count, printable
from paceline.run import Run
from paceline.stats.sequential import HARD_STOP, SequentialDesign
from paceline.stats.several import corrected_confidence
from paceline.verdict import Decision

__all__ = ["Looks", "looks_stated", "with_looks"]

ARGUMENT = "looks"
STATED = re.compile(r"(\d{1,6}) of (\d{1,6}), at most (\d{1,9}) requests: (ship|ship_segments|keep|cannot_tell)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Looks taken and planned, the requests per arm at the last one planned, and the decision at the last one taken."""

    taken: int
    planned: int
    most_requests: int
    decision: Decision

    def __post_init__(self) -> None:
        """Reject more looks than planned, and plans of nothing.

        Raises:
            BadInputError: with the values.

        """
        counted = is_count(self.planned, least=1) and is_count(self.taken, least=0) and is_count(self.most_requests, least=1)
        if not counted or self.taken > self.planned:
            raise BadInputError(f"{self.taken!r} of {self.planned!r} looks, at most {self.most_requests!r} requests: no such test")

    def __str__(self) -> str:
        """As a run's provenance states it."""
        return f"{self.taken} of {self.planned}, at most {self.most_requests} requests: {self.decision.value}"

    def design(self, *, confidence: float, power: float) -> SequentialDesign:
        """The sequential test whose hard stop is the most requests."""
        fixed = max(2, self.most_requests // HARD_STOP)
        return SequentialDesign(fixed_requests=fixed, confidence=confidence, power=power)

    def each_at(self, confidence: float) -> float:
        """The confidence of one look's interval with which those of all looks hold together."""
        return corrected_confidence(confidence, claims=self.planned)


def with_looks(run: Run, looks: Looks) -> Run:
    """The run, saying how often it was looked at."""
    return replace(run, provenance=replace(run.provenance, arguments={**run.provenance.arguments, ARGUMENT: str(looks)}))


def looks_stated(*runs: Run) -> Looks | None:
    """How often these runs of one test were looked at, of several statements the one with the most planned; None where none was.

    Raises:
        BadInputError: what a run says cannot be read.

    """
    found = []
    for run in runs:
        text = run.provenance.arguments.get(ARGUMENT)
        if text is not None:
            parts = STATED.fullmatch(text)
            if parts is None:
                raise BadInputError(f"looks {printable(text)} are not of the form '3 of 7, at most 400 requests: ship'")
            taken, planned, most = (int(each) for each in parts.groups()[:3])
            found.append(Looks(taken=taken, planned=planned, most_requests=most, decision=Decision(parts[4])))
    return max(found, key=lambda each: each.planned, default=None)
