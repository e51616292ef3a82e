"""The textbook's gate beside ours: acceptance at or above a floor, and the 99th-percentile gap between chunks no worse.

It is printed so that both answers can be compared, and each disagreement gets a sentence. It reads points where we read intervals.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paceline.decide.measured import metric_estimate
from paceline.errors import NoEvidenceError
from paceline.run import Run
from paceline.verdict import Decision, Estimate, Verdict

__all__ = ["LessonVerdict", "lesson_verdict"]


@dataclass(frozen=True, slots=True)
class LessonVerdict:
    """What the textbook's gate says; None where its figure was not measured.

    Attributes:
        alpha_clears_floor: whether the acceptance rate reaches the floor.
        chunk_gap_not_worse: whether the 99th-percentile chunk gap did not rise.
        disagreements: one sentence for each way in which it misleads here.

    """

    alpha_clears_floor: bool | None
    chunk_gap_not_worse: bool | None
    disagreements: tuple[str, ...]

    @property
    def passes(self) -> bool | None:
        """Pass only if both hold, fail if either does not, None where that is unknown."""
        answers = (self.alpha_clears_floor, self.chunk_gap_not_worse)
        return False if False in answers else None if None in answers else True


def lesson_verdict(
    baseline: Run, speculative: Run, verdict: Verdict, *, alpha_floor: float, confidence: float, rng: np.random.Generator
) -> LessonVerdict:
    """The textbook's answer on the same runs, and where it departs from `verdict` and why."""
    try:
        gap = metric_estimate("chunk_gap_p99.ratio", baseline, speculative, segment=None, confidence=confidence, rng=rng)
    except NoEvidenceError:
        gap = None
    clears = None if verdict.alpha is None else verdict.alpha.value >= alpha_floor
    holds = None if gap is None else gap.value <= 1
    told = (*_about_floor(verdict, speculative, clears, alpha_floor), *_about_gap(verdict, gap))
    lesson = LessonVerdict(alpha_clears_floor=clears, chunk_gap_not_worse=holds, disagreements=told)
    if lesson.passes is None or verdict.decision is not Decision.CANNOT_TELL:
        return lesson
    answer = "says yes" if lesson.passes else "says no"
    doubt = f"It {answer} from points; whole intervals, or arms that do not compare, leave a claim open here."
    return LessonVerdict(alpha_clears_floor=clears, chunk_gap_not_worse=holds, disagreements=(*told, doubt))


def _about_floor(verdict: Verdict, speculative: Run, clears: bool | None, floor: float) -> Iterator[str]:  # noqa: FBT001 (an answer, not a switch)
    if verdict.alpha is None or clears is None:
        return
    alpha, even = verdict.alpha.value, verdict.break_even_alpha
    asks = "" if even is None else f": break-even at this load is {even.value:.3g}"
    ships = verdict.decision in (Decision.SHIP, Decision.SHIP_SEGMENTS)
    if not clears and ships:
        yield f"Acceptance {alpha:.3g} is below the floor {floor:g}, yet drafting pays{asks}."
    if clears and verdict.decision is Decision.KEEP:
        yield f"Acceptance {alpha:.3g} clears the floor {floor:g}, yet the claims fail{asks}."
    first = _first_position(speculative)
    if not clears and first is not None and first >= floor:
        yield f"The floor flips on the draft length alone: at K = 1 the same drafts have {first:.3g}, at this length {alpha:.3g}."


def _first_position(run: Run) -> float | None:
    """α at K = 1: the share of drafted steps whose first draft was accepted."""
    try:
        survival = run.acceptance.survival
    except NoEvidenceError:
        return None
    return survival[0] if len(survival) > 1 else None


def _about_gap(verdict: Verdict, gap: Estimate | None) -> Iterator[str]:
    if gap is not None and gap.value > 1 and verdict.decision in (Decision.SHIP, Decision.SHIP_SEGMENTS):
        yield (
            f"The 99th-percentile chunk gap is {gap.value:.3g} times the baseline's, and must rise by about the step-time ratio under "
            "speculation even when every request gets faster: a chunk carries several tokens, so pace (TPOT) is what a user waits for."
        )
