"""What was drafted and accepted, as counts; every ratio is derived from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from paceline.errors import BadInputError, NoEvidenceError, is_count

__all__ = ["AcceptanceCounts", "conditional_acceptance"]


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """What was drafted and accepted, as counts that add with `+`.

    Attributes:
        steps: decode steps, None where the source does not count them.
        drafts: steps in which something was drafted.
        drafted_tokens: tokens drafted.
        accepted_tokens: drafted tokens accepted, a stop in mid-draft not subtracted.
        accepted_per_position: drafted steps whose first i + 1 drafts were all accepted, None where the source does not say.

    """

    steps: int | None
    drafts: int
    drafted_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...] | None

    def __post_init__(self) -> None:
        """Reject counts that no decoding can give.

        Raises:
            BadInputError: with the two counts that contradict each other.

        """
        if not self._is_lawful():
            self._refuse()

    def _is_lawful(self) -> bool:
        """Whether plain integers hold the law, by the fewest comparisons: a hundred thousand records ask."""
        steps, drafts, positions = self.steps, self.drafts, self.accepted_per_position
        if type(steps) is not int or type(self.drafted_tokens) is not int or not positions or drafts == 0:
            return False
        before, total = drafts, 0
        for each in positions:
            if type(each) is not int or not 0 <= each <= before:
                return False
            before, total = each, total + each
        return type(drafts) is int and total == self.accepted_tokens <= self.drafted_tokens >= drafts <= steps

    def _refuse(self) -> None:
        """Say which two counts contradict each other; nothing, where all is well in a form that the short way does not know."""
        _need_ordered("accepted tokens", self.accepted_tokens, "drafted tokens", self.drafted_tokens)
        _need_ordered("drafts", self.drafts, "drafted tokens", self.drafted_tokens)
        if self.drafts == 0 and self.drafted_tokens > 0:
            raise BadInputError(f"{self.drafted_tokens} drafted tokens in no draft")
        if self.steps is not None:
            _need_ordered("drafts", self.drafts, "steps", self.steps)
        if self.accepted_per_position is not None:
            self._need_consistent_positions(self.accepted_per_position)

    def _need_consistent_positions(self, positions: tuple[int, ...]) -> None:
        for before, after in pairwise((self.drafts, *positions)):
            _need_ordered("accepted at one position", after, "at the one before (or drafts)", before)
        if sum(positions) != self.accepted_tokens:
            raise BadInputError(f"accepted per position adds up to {sum(positions)}, not to the {self.accepted_tokens} accepted tokens")

    def __add__(self, other: "AcceptanceCounts") -> "AcceptanceCounts":
        """The counts pooled; what one side did not measure, the sum does not know."""
        steps = None if self.steps is None or other.steps is None else self.steps + other.steps
        ours, theirs = self.accepted_per_position, other.accepted_per_position
        positions = None if ours is None or theirs is None else tuple(a + b for a, b in zip_longest(ours, theirs, fillvalue=0))
        return AcceptanceCounts(
            steps=steps,
            drafts=self.drafts + other.drafts,
            drafted_tokens=self.drafted_tokens + other.drafted_tokens,
            accepted_tokens=self.accepted_tokens + other.accepted_tokens,
            accepted_per_position=positions,
        )

    @classmethod
    def none(cls) -> "AcceptanceCounts":
        """Nothing drafted in no step: the neutral element of `+`."""
        return cls(steps=0, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=())

    @classmethod
    def pooled(cls, counts: Iterable["AcceptanceCounts"]) -> "AcceptanceCounts":
        """All counts added up; nothing in no step where there are none."""
        return sum(counts, start=cls.none())

    @classmethod
    def by_segment(cls, counted: Iterable[tuple[str, "AcceptanceCounts"]]) -> dict[str, "AcceptanceCounts"]:
        """(segment, counts) pairs added up by segment, in order of appearance."""
        pooled: dict[str, AcceptanceCounts] = {}
        for segment, counts in counted:
            pooled[segment] = pooled.get(segment, cls.none()) + counts
        return pooled

    @property
    def alpha(self) -> float:
        """Acceptance rate: accepted / drafted tokens.

        Raises:
            NoEvidenceError: nothing was drafted.

        """
        return self.accepted_tokens / _some(self.drafted_tokens, "drafted tokens")

    @property
    def acceptance_length(self) -> float:
        """Tokens emitted per drafted step, the recovered or bonus token included.

        Raises:
            NoEvidenceError: nothing was drafted.

        """
        return 1 + self.accepted_tokens / _some(self.drafts, "drafted steps")

    @property
    def coverage(self) -> float:
        """Drafted steps / steps.

        Raises:
            NoEvidenceError: steps were not counted, or there was none.

        """
        return self.drafts / _some(self.steps, "steps")

    @property
    def tokens_per_step(self) -> float:
        """Tokens emitted per step, undrafted steps included, before a stop truncates.

        Raises:
            NoEvidenceError: steps were not counted, or there was none.

        """
        return 1 + self.accepted_tokens / _some(self.steps, "steps")

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of drafted steps whose first i + 1 drafts were all accepted, by position; never increasing.

        Raises:
            NoEvidenceError: positions were not counted, or nothing was drafted.

        """
        if self.accepted_per_position is None:
            raise NoEvidenceError("acceptance per position was not measured; this source has totals only")
        drafts = _some(self.drafts, "drafted steps")
        return tuple(each / drafts for each in self.accepted_per_position)

    @property
    def conditional(self) -> tuple[float, ...]:
        """Acceptance at each position given that all before were accepted, up to the last position ever reached.

        Exact only where every draft had the full length; shorter drafts (n-gram) bias the later positions down.

        Raises:
            NoEvidenceError: positions were not counted, or nothing was drafted.

        """
        return conditional_acceptance(self.survival)


def _need_ordered(name: str, small: int, other: str, large: int) -> None:
    if not (is_count(small, least=0) and is_count(large, least=0) and small <= large):
        raise BadInputError(f"{name} = {small!r} is not a whole number between 0 and {other} = {large!r}")


def _some(count: int | None, what: str) -> int:
    if count is None:
        raise NoEvidenceError(f"{what} were not counted by this source")
    if count == 0:
        raise NoEvidenceError(f"no {what}, so this ratio does not exist")
    return count


def conditional_acceptance(survival: tuple[float, ...]) -> tuple[float, ...]:
    """s_i / s_(i−1) by position, up to the last position that is ever reached."""
    reached = [(before, after) for before, after in pairwise((1.0, *survival)) if before > 0]
    return tuple(after / before for before, after in reached)
