"""Where drafting pays, over acceptance, draft length, concurrency and context: a sweep's points, and the best draft length of each load.

The acceptance rate of a point is stated at one reference draft length for all, because a drafter is a drafter: with K its acceptance is
read on from there (`Acceptance.at`), instead of granting every K the same α. Break-even is what α at that K would have to be.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Corner", "Point", "Setting", "best_draft_lengths"]


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Corner:
    """A load: tokens of context and requests in flight."""

    context_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Setting:
    """One combination of the grid: a load, a draft length K, and α at the reference draft length."""

    corner: Corner
    draft_tokens: int
    alpha: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What drafting does there.

    Attributes:
        setting: where.
        tokens_per_step: E at this K.
        step_time_ratio: ρ by forecast, with its stated range in `step_time_low` and `step_time_high`.
        break_even_alpha: α at this K at which S = 1, with the range that ρ leaves.
        speedup: S = E / ρ.
        simulated_speedup: mean TPOT without drafts / with, None where it was not simulated.
        simulated_step_time_ratio: ρ of the simulated steps, None as above.
        simulated_tpot_p99_ratio: P99 of TPOT with drafts / without, None as above.

    """

    setting: Setting
    tokens_per_step: float
    step_time_ratio: float
    step_time_low: float
    step_time_high: float
    break_even_alpha: float
    break_even_low: float
    break_even_high: float
    speedup: float
    simulated_speedup: float | None
    simulated_step_time_ratio: float | None
    simulated_tpot_p99_ratio: float | None

    @property
    def best_known_speedup(self) -> float:
        """The simulated speed-up where there is one, else the forecast's."""
        return self.speedup if self.simulated_speedup is None else self.simulated_speedup

    @property
    def simulated_break_even_alpha(self) -> float | None:
        """α at this K at which the simulated speed-up would be 1, if a step cost what it costs at this α: (E / S − 1) / K.

        Above 1 drafting never pays; None where nothing was simulated.
        """
        if self.simulated_speedup is None:
            return None
        return (self.tokens_per_step / self.simulated_speedup - 1) / self.setting.draft_tokens


def best_draft_lengths(points: Iterable[Point]) -> Mapping[tuple[int, float], dict[int, int]]:
    """By context and α: the draft length with the largest speed-up at each concurrency, 0 where none is above 1; of equals the shorter."""
    best: dict[tuple[int, float], dict[int, tuple[float, int]]] = {}
    for each in points:
        where = each.setting
        row = best.setdefault((where.corner.context_tokens, where.alpha), {})
        rival = (each.best_known_speedup, -where.draft_tokens)
        row[where.corner.concurrency] = max(row.get(where.corner.concurrency, (1.0, 0)), rival)
    return {key: {size: -length for size, (_, length) in sorted(row.items())} for key, row in sorted(best.items())}
