"""Intervals that hold at every look, so that a comparison may stop as soon as it is decided.

An ordinary 95 % interval holds its truth at one moment fixed before. Looked at after every request until it clears a bound, it is wrong far
more often than 1 time in 20. The intervals here hold the truth at *all* moments together with that confidence (confidence sequences), so
one may look whenever one likes, stop when one likes, and go on.

Rules.
1. Requests are the independent units, in the order in which they were answered. Nothing of the data decides the design.
2. R = Σ a_r / Σ b_r over requests r (α, or the speed-up of pairs); e_r = a_r − R·b_r; se(R) as in `intervals`; T = (R̂ − R) / se(R).
3. A claim is decided when its interval lies on one side of the bound. At twice the fixed design's requests it stops undecided.

Theory. If R is the truth, S_n = Σ e_r / sd(e) behaves like a random walk with steps of variance 1, and for every λ the process
exp(λ·S_n − λ²·n/2) is a bet on R lying off by λ standard deviations that wins nothing on average. So does its mean over λ ~ N(μ, τ²):

    M_n = (1 + τ²n)^(−1/2) · exp((τ²S² + 2μS − μ²n) / (2(1 + τ²n)))

It ever exceeds 1/a with probability at most a (Ville 1939): the R for which it does not are the interval, with a = (1 − confidence) / 2 for
each side (mixtures: Robbins 1970, Ann. Math. Statist. 41; confidence sequences: Howard, Ramdas, McAuliffe and Sekhon 2021, Ann. Statist.
49). μ is the design effect in standard deviations of a request, τ a quarter of it, which makes decisions soonest where the effect is about
what was planned for. sd(e) is estimated: the bound on T is moved from the normal to
Student's distribution with (Σb)² / Σb² − 1 degrees of freedom, for few long requests tell less than many alike, and away from the side to
which e is skewed, by the second term of its Cornish-Fisher expansion. What holds exactly for normal e then holds within the simulations
of `benchmarks/interval_coverage.py` for the others (Waudby-Smith et al. 2024, Ann. Statist. 52, give the limit theorem).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, exp, inf, log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtrit

from paceline.errors import BadInputError, NoEvidenceError, is_count, printable
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.intervals import FEWEST_CLUSTERS, ROUNDING
from paceline.stats.paired import TwoArms, requests_needed
from paceline.verdict import Claim, Estimate, Finding, Holds, judge

__all__ = ["Look", "SequentialDesign", "anytime_acceptance", "anytime_reach", "anytime_speedup", "look"]

FloatArray = npt.NDArray[np.float64]

HARD_STOP = 2  # times the fixed design
TAU = 0.25  # times the design effect
FARTHEST = 20.0  # on the log scale: an end beyond bounds nothing


@dataclass(frozen=True, slots=True)
class SequentialDesign:
    """A sequential test beside the fixed one that it replaces.

    Attributes:
        fixed_requests: what a test that is looked at once needs for the same effect, confidence and power.
        confidence: of all intervals at all looks together, two-sided.
        power: the chance that the fixed test shows the design effect.

    """

    fixed_requests: int
    confidence: float
    power: float

    def __post_init__(self) -> None:
        """Reject sizes and shares that are none.

        Raises:
            BadInputError: with the value.

        """
        if not is_count(self.fixed_requests, least=2):
            raise BadInputError(f"a design of {printable(self.fixed_requests)} requests shows nothing; at least 2 are needed")
        if not (0 < self.confidence < 1 and 0 < self.power < 1):
            raise BadInputError(f"confidence {self.confidence!r} and power {self.power!r} must lie between 0 and 1")

    @classmethod
    def of_effect(cls, *, effect: float, spread: float, confidence: float, power: float) -> "SequentialDesign":
        """The design for the smallest effect worth showing; `effect` and `spread` as in `requests_needed`.

        Raises:
            BadInputError: no effect, or shares that are none.

        """
        fixed = requests_needed(effect=effect, spread=spread, confidence=confidence, power=power)
        return cls(fixed_requests=fixed, confidence=confidence, power=power)

    @property
    def most_requests(self) -> int:
        """Where it stops undecided."""
        return HARD_STOP * self.fixed_requests

    @property
    def effect(self) -> float:
        """The design effect in standard deviations of one request."""
        return float(ndtri((1 + self.confidence) / 2) + ndtri(self.power)) / sqrt(self.fixed_requests)

    def critical(self, n: FloatArray, *, degrees: FloatArray) -> FloatArray:
        """How many standard errors the interval reaches to either side after `n` requests, before any allowance for skew.

        `degrees` of freedom are those of the standard error.
        """
        mu, tau, chance = self.effect, TAU * self.effect, (1 - self.confidence) / 2
        width = 1 + tau * tau * n
        right = 2 * width * (-log(chance) + np.log(width) / 2) + mu * mu * n
        reach = right / (mu + np.sqrt(mu * mu + tau * tau * right)) / np.sqrt(n)  # the positive root of M_n = 1 / chance, over √n
        return np.asarray(-stdtrit(degrees, ndtr(-reach)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Look:
    """A claim after some requests: what is found, and whether to stop now (decided, or the hard stop is reached)."""

    finding: Finding
    is_over: bool


def anytime_acceptance(counts: Sequence[AcceptanceCounts], *, design: SequentialDesign) -> Estimate:
    """α of the requests so far, with ends in [0, 1] that hold at every look.

    Both ends are None with fewer than 8 requests, and where all requests have the very same α: there is no spread to judge by.

    Raises:
        NoEvidenceError: nothing was drafted.

    """
    accepted = np.array([each.accepted_tokens for each in counts], dtype=np.float64)
    drafted = np.array([each.drafted_tokens for each in counts], dtype=np.float64)
    value, below, above = _last(accepted, drafted, design)
    if not 0 < below < inf:
        return Estimate(value=value, low=None, high=None, confidence=design.confidence, n=len(counts))
    low, high = max(0.0, value - below), min(1.0, value + above)
    return Estimate(value=value, low=low, high=high, confidence=design.confidence, n=len(counts))


def anytime_speedup(arms: TwoArms, *, design: SequentialDesign) -> Estimate:
    """Σ baseline / Σ speculative of the pairs so far, with ends that hold at every look. Fewer than 8 pairs leave both ends None.

    The ends lie as far off on the log scale as the standard error says there: se(R) / R. An end too far off to be a number is None.

    Raises:
        NoEvidenceError: the arms are not in pairs, or an arm took no time.

    """
    if not arms.paired:
        raise NoEvidenceError("looking at every moment needs pairs: the same requests in both arms")
    value, below, above = _last(arms.baseline, arms.speculative, design)
    if value == 0:
        raise NoEvidenceError("the baseline took no time, so there is no speed-up")
    low = value * exp(-below / value) if below / value < FARTHEST else None
    high = value * exp(above / value) if above / value < FARTHEST else None
    return Estimate(value=value, low=low, high=high, confidence=design.confidence, n=arms.n)


def anytime_reach(
    numerators: FloatArray,  # [..., requests]
    denominators: FloatArray,  # [..., requests]
    *,
    design: SequentialDesign,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Σ numerators / Σ denominators after each request, and how far below and above it the interval reaches; shape [..., requests] each.

    Infinitely far with fewer than 8 requests, or where long ones outweigh the rest so that they tell no more than fewer than 8 alike; not
    at all while all of them have the very same ratio.

    Raises:
        NoEvidenceError: a row's denominators add up to 0, or there are none.

    """
    total = denominators.sum(axis=-1, keepdims=True)
    if denominators.shape[-1] == 0 or (total <= 0).any():
        raise NoEvidenceError("nothing in the denominator, so this ratio does not exist")
    whole = numerators.sum(axis=-1, keepdims=True) / total
    off, n = numerators - whole * denominators, np.arange(1.0, denominators.shape[-1] + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        b = denominators.cumsum(axis=-1)
        shift = off.cumsum(axis=-1) / b
        square = _power_sum(off, denominators, shift, 2) / n
        spread = np.sqrt(np.maximum(square, 0.0))
        skew = _power_sum(off, denominators, shift, 3) / n / spread**3
        values = whole + shift
        constant = ~(spread > ROUNDING * np.abs(values) * b / n)
        degrees = np.maximum(b**2 / (denominators**2).cumsum(axis=-1) - 1, 1.0)
        reach = design.critical(n, degrees=degrees)
        error = np.sqrt((degrees + 1) / degrees * n) * spread / b
        skew *= skew**2 / (skew**2 + 6 / n)  # the skew of n normal values scatters by √(6/n): as much as that is no skew
        allowance = skew * (2 * reach * reach + 1) / (6 * np.sqrt(n))
        below, above = error * (reach + np.maximum(0.0, -allowance)), error * (reach + np.maximum(0.0, allowance))
    known = degrees >= FEWEST_CLUSTERS - 1 - ROUNDING
    below, above = (np.where(known & constant, 0.0, np.where(known & np.isfinite(each), each, inf)) for each in (below, above))
    return np.where(b > 0, values, 0.0), below, above


def _power_sum(off: FloatArray, denominators: FloatArray, shift: FloatArray, power: int) -> FloatArray:
    """Σ (off − shift · denominator)^power over the requests up to each, from running sums."""
    terms = (comb(power, i) * (-shift) ** i * (off ** (power - i) * denominators**i).cumsum(axis=-1) for i in range(power + 1))
    return np.asarray(sum(terms), dtype=np.float64)


def _last(numerators: FloatArray, denominators: FloatArray, design: SequentialDesign) -> tuple[float, float, float]:
    value, below, above = (float(each[-1]) for each in anytime_reach(numerators, denominators, design=design))
    return value, below, above


def look(claim: Claim, estimate: Estimate, *, design: SequentialDesign) -> Look:
    """The claim after `estimate.n` requests. At the hard stop what is not decided stays cannot tell, and no more requests are asked for."""
    finding = judge(claim, estimate)
    return Look(finding=finding, is_over=finding.holds is not Holds.CANNOT_TELL or estimate.n >= design.most_requests)
