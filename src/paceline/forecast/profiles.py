"""Published acceptance by method and segment: a starting point where nothing was measured on one's own traffic.

A profile belongs to the head and the data it was measured with, and its label says so. Where a source gives acceptance lengths τ(K) only,
survival between two lengths falls by one ratio, so that τ comes out exactly at each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.data.tables import table
from paceline.errors import UnknownNameError
from paceline.speculation.acceptance import Acceptance, conditional_from_tokens
from paceline.speculation.method import Method

__all__ = ["Profile", "ProfileSegment", "known_profiles", "profile", "survival_from_lengths"]


@dataclass(frozen=True, slots=True)
class ProfileSegment:
    """Acceptance on one kind of traffic.

    Attributes:
        name: the segment.
        dataset: what was run.
        evidence: "measured", "scaled" (from another measurement) or "stand-in" (of another segment).
        acceptance: at the longest measured draft length; `acceptance_model.extrapolated` gives other lengths.
        measured_draft_tokens: that length; beyond it acceptance is an extrapolation.
        source: where it was published.

    """

    name: str
    dataset: str
    evidence: str
    acceptance: Acceptance
    measured_draft_tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Acceptance of one method with one target, by segment; `label` says what a reader must know before using it elsewhere."""

    name: str
    method: Method
    target: str
    label: str
    segments: Mapping[str, ProfileSegment]

    def segment(self, name: str) -> ProfileSegment:
        """One segment.

        Raises:
            UnknownNameError: the profile has no such segment.

        """
        if name not in self.segments:
            raise UnknownNameError(f"segment of profile {self.name}", name, self.segments)
        return self.segments[name]


def known_profiles() -> tuple[str, ...]:
    """The names of the profiles in the table, in its order; that of a method is its default profile."""
    return tuple(row["name"] for row in table("acceptance_profiles")["profile"])


def profile(name: str) -> Profile:
    """The profile called `name` ("eagle3", "eagle3-70b", "ngram", …).

    Raises:
        UnknownNameError: there is none.

    """
    rows = {row["name"]: row for row in table("acceptance_profiles")["profile"]}
    if name not in rows:
        raise UnknownNameError("acceptance profile", name, rows)
    row = rows[name]
    return Profile(
        name=row["name"],
        method=Method(row["method"]),
        target=row["target"],
        label=row["label"],
        segments={each["name"]: _segment(each) for each in row["segment"]},
    )


def _segment(row: Mapping[str, Any]) -> ProfileSegment:
    if "survival" in row:
        survival = tuple(float(each) for each in row["survival"])
    else:
        survival = survival_from_lengths({int(K): float(length) for K, length in row["lengths"].items()})
    return ProfileSegment(
        name=row["name"],
        dataset=row["dataset"],
        evidence=row["evidence"],
        acceptance=Acceptance(survival=survival, coverage=1.0),
        measured_draft_tokens=len(survival),
        source=row["source"],
    )


def survival_from_lengths(lengths: Mapping[int, float]) -> tuple[float, ...]:
    """Survival by position, up to the longest K, whose sums give the acceptance lengths τ by K.

    Between two lengths every position keeps the same share of the one before. A length that no survival can give (τ falling with K, or
    rising by more than the last survival allows) is met as nearly as possible.
    """
    survival: list[float] = []
    last, reached = 1.0, 1.0
    for K in sorted(lengths):
        positions = K - len(survival)
        tokens = 1 + max(0.0, lengths[K] - reached) / last if last > 0 else 1.0
        ratio = conditional_from_tokens(min(tokens, positions + 1.0), draft_tokens=positions)
        survival.extend(last * ratio**i for i in range(1, positions + 1))
        last, reached = survival[-1], 1 + sum(survival)
    return tuple(survival)
