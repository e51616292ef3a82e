"""Counts behind ratios that a log prints rounded.

    A, D    accepted and drafted tokens, printed exactly          d       drafts (steps in which something was drafted), not printed
    τ       acceptance length, two digits: 1 + A / d              s_i     survival, three digits: a_i / d, the a_i add up to A
    K       the longest draft, so that D / K ≤ d ≤ D

Every d that would have been printed as this line is possible. Where K is known and full drafts are among the possible, they are taken:
only n-gram and suffix lookups, a grammar or the end of a context make a draft shorter. Of the a_i the ones nearest to the rates are taken
that add up to A. What is not certain keeps its ends.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, inf

from paceline.errors import BadInputError

__all__ = ["Between", "Printed", "Rebuilt", "rebuilt"]

HALF_LENGTH = 0.005
HALF_RATE = 0.0005
SLACK = 1e-9  # decimal figures are no binary ones
MOST_CANDIDATES = 1000  # beyond as many drafts a rate of three digits excludes nothing


@dataclass(frozen=True, slots=True)
class Between:
    """A whole number and how far it may be off; adds with `+`."""

    value: int
    low: int
    high: int

    def __add__(self, other: "Between") -> "Between":
        """Both added, and their ends."""
        return Between(value=self.value + other.value, low=self.low + other.low, high=self.high + other.high)

    @property
    def is_exact(self) -> bool:
        """Whether only one number is possible."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Printed:
    """What one line says.

    Attributes:
        accepted_tokens: A.
        drafted_tokens: D.
        length: τ with the target's own token, None where not printed.
        rates: s_i, None where not printed.
        most_draft_tokens: K, None where not known.

    """

    accepted_tokens: int
    drafted_tokens: int
    length: float | None
    rates: tuple[float, ...] | None
    most_draft_tokens: int | None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The counts behind a line: its drafts, the accepted tokens by position (None where not printed), and whether those are certain."""

    drafts: Between
    positions: tuple[int, ...] | None
    positions_certain: bool


def rebuilt(printed: Printed, *, full_drafts: bool, counted_drafts: int | None) -> Rebuilt | None:
    """The counts; None where drafts cannot be told because neither τ nor s_i nor K is known.

    `full_drafts`: no draft was shorter than K. `counted_drafts`: d from elsewhere, taken where it is possible.

    Raises:
        BadInputError: no number of drafts gives this line.

    """
    if printed.accepted_tokens > printed.drafted_tokens:
        raise BadInputError(f"{printed.accepted_tokens} accepted of {printed.drafted_tokens} drafted tokens")
    told = printed.most_draft_tokens is not None or (
        printed.accepted_tokens > 0 and (printed.length is not None or printed.rates is not None)
    )
    if not told and counted_drafts is None:
        return None
    drafts = _drafts(printed, full_drafts=full_drafts)
    if counted_drafts is not None and max(1, drafts.low) <= counted_drafts <= drafts.high:
        drafts = Between(value=counted_drafts, low=counted_drafts, high=counted_drafts)
    elif not told:
        return None
    if printed.rates is None:
        return Rebuilt(drafts=drafts, positions=None, positions_certain=False)
    positions, certain = _positions(printed.accepted_tokens, printed.rates, drafts.value)
    return Rebuilt(drafts=drafts, positions=positions, positions_certain=certain and (drafts.is_exact or not printed.accepted_tokens))


def _drafts(printed: Printed, *, full_drafts: bool) -> Between:
    accepted, drafted, longest = printed.accepted_tokens, printed.drafted_tokens, printed.most_draft_tokens
    low, high = (0 if longest is None else -(-drafted // longest)), drafted
    for ratio, half in _accepted_per_draft(printed):
        least = accepted / max(ratio + half, SLACK) - SLACK
        most = accepted / (ratio - half) + SLACK if ratio > half else inf
        low, high = max(low, ceil(least)), high if most == inf else min(high, floor(most))
    if printed.rates is not None and low <= high and high <= MOST_CANDIDATES:
        possible = [each for each in range(low, high + 1) if _fits(accepted, printed.rates, each)]
        low, high = (possible[0], possible[-1]) if possible else (1, 0)
    if low > high:
        raise BadInputError(f"{accepted} accepted of {drafted} drafted tokens contradict the ratios beside them")
    full = None if longest is None else -(-drafted // longest)
    if full is not None and low <= full <= high:
        exact = full_drafts and drafted % (longest or 1) == 0
        return Between(value=full, low=full if exact else low, high=full if exact else high)
    likely = [round(accepted / ratio) for ratio, _ in _accepted_per_draft(printed) if ratio > 0]
    return Between(value=min(max(likely[-1] if likely else low, low), high), low=low, high=high)


def _accepted_per_draft(printed: Printed) -> list[tuple[float, float]]:
    """A / d as the length and as the rates say it, each with half of its last digit (for the rates, of all of them)."""
    found = []
    if printed.accepted_tokens and printed.length is not None:
        found.append((printed.length - 1, HALF_LENGTH))
    if printed.accepted_tokens and printed.rates is not None:
        found.append((sum(printed.rates), HALF_RATE * len(printed.rates)))
    return found


def _ends(rate: float, drafts: int) -> tuple[int, int]:
    """The fewest and the most accepted tokens at a position of this rate."""
    return max(0, ceil(drafts * (rate - HALF_RATE) - SLACK)), min(drafts, floor(drafts * (rate + HALF_RATE) + SLACK))


def _fits(accepted: int, rates: tuple[float, ...], drafts: int) -> bool:
    """Whether whole numbers at these rates add up to the accepted tokens."""
    ends = [_ends(rate, drafts) for rate in rates]
    return all(low <= high for low, high in ends) and sum(low for low, _ in ends) <= accepted <= sum(high for _, high in ends)


def _positions(accepted: int, rates: tuple[float, ...], drafts: int) -> tuple[tuple[int, ...] | None, bool]:
    """The whole numbers nearest to the rates that add up to the accepted tokens, and whether there are no others; None where none do."""
    if not _fits(accepted, rates, drafts):
        return None, False
    ends = [_ends(rate, drafts) for rate in rates]
    taken = [min(max(round(rate * drafts), low), high) for rate, (low, high) in zip(rates, ends, strict=True)]
    for i, (low, high) in enumerate(ends):
        missing = accepted - sum(taken)
        taken[i] = min(max(taken[i] + missing, low), high)
    if any(after > before for before, after in pairwise((drafts, *taken))):
        return None, False
    lows, highs = sum(low for low, _ in ends), sum(high for _, high in ends)
    certain = all(max(low, accepted - highs + high) == min(high, accepted - lows + low) for low, high in ends)
    return tuple(taken), certain
