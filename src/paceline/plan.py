"""What to do about a verdict: stages of exposure, guards that watch them, and what happens on a breach.

A plan only ever raises the traffic share stage by stage, and names before it starts what sends it back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from paceline.errors import BadInputError, is_count, printable

__all__ = ["Guard", "Plan", "Stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the rollout.

    Attributes:
        name: short, unique within the plan.
        purpose: one sentence: what this stage finds out.
        traffic_share: share of production traffic that decodes with drafts, 0 to 1.
        min_duration_s: seconds it lasts at least.
        min_requests: requests it needs at least before it may be judged, computed from the smallest effect worth finding.
        do: what to run, one command or act per line.
        passes_when: what must hold to go on, one condition per line.

    """

    name: str
    purpose: str
    traffic_share: float
    min_duration_s: float
    min_requests: int
    do: tuple[str, ...]
    passes_when: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject shares outside [0, 1] and negative minima.

        Raises:
            BadInputError: with the value.

        """
        if not (isfinite(self.traffic_share) and 0 <= self.traffic_share <= 1):
            raise BadInputError(f"stage {printable(self.name)}: traffic share {self.traffic_share!r} is not between 0 and 1")
        if not (isfinite(self.min_duration_s) and self.min_duration_s >= 0 and is_count(self.min_requests, least=0)):
            raise BadInputError(
                f"stage {printable(self.name)}: {self.min_duration_s!r} s and {self.min_requests!r} whole requests must be from 0 on"
            )


@dataclass(frozen=True, slots=True)
class Guard:
    """A bound watched while traffic is exposed: breached when `metric` passes its bound for `breach_after_s` seconds on end.

    `felt_s` goes with a ratio of latencies: a ratio above its bound is no breach while the difference in seconds stays below it; None where
    every ratio counts as it stands.
    """

    metric: str
    at_most: float | None
    at_least: float | None
    breach_after_s: float
    felt_s: float | None

    def __post_init__(self) -> None:
        """Reject a guard without exactly one finite bound, or with a negative patience.

        Raises:
            BadInputError: with the guard.

        """
        bounds = [each for each in (self.at_most, self.at_least) if each is not None]
        if len(bounds) != 1 or not isfinite(bounds[0]):
            raise BadInputError(f"guard on {printable(self.metric)} needs exactly one finite bound of at_most and at_least, not {bounds!r}")
        if self.felt_s is not None and not (isfinite(self.felt_s) and self.felt_s >= 0):
            raise BadInputError(f"guard on {printable(self.metric)}: {self.felt_s!r} s is no difference that is felt or not")
        if not (isfinite(self.breach_after_s) and self.breach_after_s >= 0):
            raise BadInputError(f"guard on {printable(self.metric)}: {self.breach_after_s!r} s of patience is not from 0 on")


@dataclass(frozen=True, slots=True)
class Plan:
    """A staged rollout.

    Attributes:
        title: what is rolled out, on what.
        opt_in: why speculation stays off unless asked for.
        measurement: how it is measured, by heading (benchmark, traffic, concurrency, deciding metric, requests).
        stages: in order; traffic shares never fall.
        guards: what is watched while traffic is exposed.
        on_breach: what to do at once, one act per line.

    """

    title: str
    opt_in: str
    measurement: Mapping[str, str]
    stages: tuple[Stage, ...]
    guards: tuple[Guard, ...]
    on_breach: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject a plan without stages, guards or a way back, with falling shares or doubled stage names.

        Raises:
            BadInputError: with what is missing.

        """
        if not self.stages or not self.guards or not self.on_breach:
            raise BadInputError("a plan needs at least one stage, one guard and one act on a breach")
        for before, after in pairwise(self.stages):
            if after.traffic_share < before.traffic_share:
                raise BadInputError(f"stage {printable(after.name)} lowers the traffic share; only a breach does that")
        if len({each.name for each in self.stages}) < len(self.stages):
            raise BadInputError("two stages share a name")
