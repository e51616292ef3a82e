"""Two arms compared: ratios of means and of percentiles, and how many requests a comparison needs.

Where both arms served the same requests, a request is compared with itself: what makes it slow (its length, its prompt) cancels, and fewer
requests settle the question. Where they did not, each arm is resampled apart.

    ratio of means         Σ x_r / Σ y_r over pairs, or mean(x) / mean(y)        bootstrap-t
    ratio of percentiles   Q(x) / Q(y)                                           order statistics of both arms, combined

A percentile that the sample cannot bound (fewer than log((1 − confidence)/2) / log q requests: 368 for the 99th at 95 %) has unknown ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, floor, isfinite, log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from paceline.errors import BadInputError, NoEvidenceError
from paceline.latency import gap_samples, has_sample, samples
from paceline.run import RequestRecord, Run
from paceline.stats.intervals import (
    FEWEST_CLUSTERS,
    ROUNDING,
    clustered_quantile_intervals,
    quantile_interval,
    ratio_of_sums,
    resampled_counts,
)
from paceline.verdict import Estimate

__all__ = [
    "TwoArms",
    "combined_ratio",
    "distance_told",
    "gap_quantile_ratio",
    "mean_ratio",
    "minimum_detectable_effect",
    "quantile_ratio",
    "request_pairs",
    "requests_needed",
    "requests_to_bound_quantile",
    "requests_to_settle",
    "same_requests",
    "speedup_spread",
    "two_arms",
]

FloatArray = npt.NDArray[np.float64]

MATCHED_SHARE = 0.9  # the pairs stand for both arms only if nearly every request has its twin
MOST_REQUESTS = 10_000_000  # a difference that needs more is none


@dataclass(frozen=True, slots=True)
class TwoArms:
    """One latency of both arms' finished requests; where `paired`, entry i of both is the same request. Shapes [requests]."""

    baseline: FloatArray  # [baseline requests]
    speculative: FloatArray  # [speculative requests]
    paired: bool

    @property
    def n(self) -> int:
        """Requests of the smaller arm: what the comparison rests on."""
        return min(self.baseline.size, self.speculative.size)


def request_pairs(baseline: Run, speculative: Run, *, segment: str | None) -> tuple[tuple[RequestRecord, RequestRecord], ...]:
    """The finished requests that both arms served, in the baseline's order; empty unless at least nine in ten have a twin.

    A twin has the same id and as many prompt tokens.

    Raises:
        NoEvidenceError: a run has no per-request records.

    """
    ours, theirs = _finished(baseline, segment), _finished(speculative, segment)
    by_id = {each.id: each for each in theirs}
    pairs = tuple((each, by_id[each.id]) for each in ours if each.id in by_id and by_id[each.id].prompt_tokens == each.prompt_tokens)
    unique = len(by_id) == len(theirs) and len({each.id for each in ours}) == len(ours)
    return pairs if unique and len(pairs) >= MATCHED_SHARE * max(len(ours), len(theirs)) else ()


def same_requests(baseline: Run, speculative: Run) -> bool:
    """Whether nearly all requests of the two runs are the same ones, so that they may be compared in pairs.

    Raises:
        NoEvidenceError: a run has no per-request records.

    """
    return bool(request_pairs(baseline, speculative, segment=None))


def two_arms(baseline: Run, speculative: Run, *, latency: str, segment: str | None) -> TwoArms:
    """`ttft_s`, `tpot_s` or `e2e_s` of both arms' finished requests, in pairs where they served the same requests.

    Raises:
        NoEvidenceError: a run has no per-request records, or an arm has no sample.

    """
    pairs = request_pairs(baseline, speculative, segment=segment)
    whole = [(a.timing, b.timing) for a, b in pairs if has_sample(latency, a.timing) and has_sample(latency, b.timing)]
    if whole:
        ours, theirs = (samples(latency, each) for each in zip(*whole, strict=True))
        return TwoArms(baseline=ours, speculative=theirs, paired=True)
    arms = [samples(latency, [each.timing for each in _finished(run, segment)]) for run in (baseline, speculative)]
    if not all(each.size for each in arms):
        raise NoEvidenceError(f"an arm has no finished request with {latency}")
    return TwoArms(baseline=arms[0], speculative=arms[1], paired=False)


def _finished(run: Run, segment: str | None) -> tuple[RequestRecord, ...]:
    return tuple(each for each in run.finished if segment is None or each.segment == segment)


def mean_ratio(numerator: FloatArray, denominator: FloatArray, *, paired: bool, confidence: float, rng: np.random.Generator) -> Estimate:
    """mean(numerator) / mean(denominator) of positive samples with a bootstrap-t interval; fewer than 8 in an arm leave the ends None.

    Paired samples are drawn in pairs, unpaired ones each arm apart (errors then on the log scale).

    Raises:
        NoEvidenceError: an arm is empty or all zero.

    """
    if paired:
        return ratio_of_sums(numerator, denominator, largest=None, confidence=confidence, rng=rng)
    _need_positive(numerator, denominator)
    n, value = min(numerator.size, denominator.size), float(numerator.mean() / denominator.mean())
    if n < FEWEST_CLUSTERS:
        return Estimate(value=value, low=None, high=None, confidence=confidence, n=n)
    width = float(np.hypot(_relative_error(numerator), _relative_error(denominator)))
    if width == 0:
        return Estimate(value=value, low=value, high=value, confidence=confidence, n=n)
    up, up_error = _resampled_log_means(numerator, rng=rng)
    down, down_error = _resampled_log_means(denominator, rng=rng)
    rows = min(up.size, down.size)
    shift, spread = (up[:rows] - down[:rows]), np.hypot(up_error[:rows], down_error[:rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.sort(np.nan_to_num(shift / spread, nan=0.0, posinf=np.inf, neginf=-np.inf))
    rank = floor((1 - confidence) / 2 * rows)
    low, high = value * np.exp(-scores[-1 - rank] * width), value * np.exp(-scores[rank] * width)
    ends = (min(value, float(low)), max(value, float(high)))
    return Estimate(value=value, low=ends[0], high=ends[1] if isfinite(ends[1]) else None, confidence=confidence, n=n)


def _need_positive(*arms: FloatArray) -> None:
    if not all(each.size and each.min() >= 0 and each.max() > 0 for each in arms):
        raise NoEvidenceError("an arm has no time above 0, so there is no ratio")


def _relative_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / sqrt(values.size) / values.mean())


def _resampled_log_means(values: FloatArray, *, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """log(mean* / mean) and its standard error, per resample."""
    n, centre = values.size, values.mean()
    moments = np.stack([values / centre, (values / centre - 1) ** 2], axis=1)
    means, squares = np.vstack([block @ moments for block in resampled_counts(n, rng=rng)]).T / n
    variance = np.maximum(0.0, squares - (means - 1) ** 2) / (n - 1)
    return np.log(means), np.sqrt(variance) / means


def quantile_ratio(numerator: FloatArray, denominator: FloatArray, q: float, *, paired: bool, confidence: float) -> Estimate:
    """The q-quantile (type 7) of one arm over that of the other, from the order statistics that hold each arm's quantile.

    The distances to the ends of both arms add in squares on the log scale, less what pairs have in common: quantiles of
    paired samples depend on each other as much as being above them does. An end is None where an arm has no order statistic for it
    (`requests_to_bound_quantile`). Pairs that all have the very same ratio have no doubt.

    Raises:
        NoEvidenceError: an arm is empty or all zero, or its quantile is 0.

    """
    _need_positive(numerator, denominator)
    up, down = (quantile_interval(each, q, confidence=confidence) for each in (numerator, denominator))
    if down.value == 0:
        raise NoEvidenceError("the baseline's quantile is 0, so there is no ratio")
    if not paired:
        return combined_ratio(up, down)
    value, n = up.value / down.value, up.n
    if n >= FEWEST_CLUSTERS and np.allclose(numerator, value * denominator, rtol=ROUNDING, atol=0):
        return Estimate(value=value, low=value, high=value, confidence=confidence, n=n)
    shared = _correlation(numerator > up.value, denominator > down.value)
    return _combined(up, down, correlation=shared)


def _correlation(left: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> float:
    """The correlation of two yes-or-no values, 0 where it is negative or one of them never changes: that makes no interval too short."""
    shares = float(left.mean()), float(right.mean())
    spread = sqrt(shares[0] * (1 - shares[0]) * shares[1] * (1 - shares[1]))
    return max(0.0, (float((left & right).mean()) - shares[0] * shares[1]) / spread) if spread > 0 else 0.0


def gap_quantile_ratio(baseline: Run, speculative: Run, q: float, *, segment: str | None, confidence: float) -> Estimate:
    """The q-quantile of visible chunk gaps, speculative over baseline, gaps of one request depending on each other.

    Raises:
        NoEvidenceError: a run has no per-request records or no gaps, or the baseline's quantile is 0.

    """
    arms = [gap_samples("chunk_gap_s", [each.timing for each in _finished(run, segment)]) for run in (speculative, baseline)]
    (up,), (down,) = (clustered_quantile_intervals(*each, (q,), confidence=confidence) for each in arms)
    return combined_ratio(up, down)


def combined_ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The ratio of two independent positive estimates; an end that needs an unknown end is None.

    The distances to the ends add in squares on the log scale (the method of variance estimates recovery: Zou and Donner 2008,
    Statistics in Medicine 27).

    Raises:
        NoEvidenceError: the denominator is 0.

    """
    return _combined(numerator, denominator, correlation=0.0)


def _combined(numerator: Estimate, denominator: Estimate, *, correlation: float) -> Estimate:
    """The same where the errors depend on each other: less twice the product of the distances (Zou 2007, Psychological Methods 12)."""
    if denominator.value <= 0:
        raise NoEvidenceError("the baseline's value is 0, so there is no ratio")
    value = numerator.value / denominator.value
    low = _far_end(numerator, numerator.low, denominator, denominator.high, correlation)
    high = _far_end(numerator, numerator.high, denominator, denominator.low, correlation)
    return Estimate(
        value=value,
        low=None if low is None else value / low,
        high=None if high is None else value * high,
        confidence=numerator.confidence,
        n=min(numerator.n, denominator.n),
    )


def _far_end(up: Estimate, up_end: float | None, down: Estimate, down_end: float | None, correlation: float) -> float | None:
    """By which factor, at least 1, the ratio may lie off on one side."""
    if up_end is None or down_end is None or min(up.value, up_end, down_end) <= 0:
        return None
    a, b = abs(log(up_end / up.value)), abs(log(down_end / down.value))
    return exp(sqrt(max(0.0, a * a + b * b - 2 * correlation * a * b)))


def speedup_spread(arms: TwoArms) -> float:
    """How much one pair says of the logarithm of Σ baseline / Σ speculative: its standard error times √pairs, what `requests_needed` asks.

    About the standard deviation of the pairs' log-ratios, more where slow requests weigh more.

    Raises:
        NoEvidenceError: the arms are not in pairs, there are fewer than 8, or an arm took no time.

    """
    if not arms.paired or arms.n < FEWEST_CLUSTERS:
        raise NoEvidenceError("the spread of paired ratios needs at least 8 requests served by both arms")
    _need_positive(arms.baseline, arms.speculative)
    return float((arms.baseline / arms.baseline.mean() - arms.speculative / arms.speculative.mean()).std(ddof=1))


def requests_needed(*, effect: float, spread: float, confidence: float, power: float) -> int:
    """Requests per arm that show a paired log-ratio of `effect` with probability `power`, when pairs spread by `spread`.

    `effect` is |log(ratio) − log(bound)|; `spread` is what one pair says of it, from a pilot (`speedup_spread`). Two-sided at
    `confidence`, Student's t: the smallest n with n ≥ ((t_(1+confidence)/2 + t_power) · spread / effect)², at least 2.

    Raises:
        BadInputError: an effect of 0 or less, a negative spread, or a power outside (0, 1).

    """
    if not (effect > 0 and spread >= 0 and 0 < power < 1 and 0 < confidence < 1):
        raise BadInputError(
            f"effect {effect!r} must be above 0, spread {spread!r} from 0 on, power {power!r} and confidence {confidence!r} between 0 and 1"
        )
    n = max(2, min(MOST_REQUESTS, ceil((_factor(ndtri, confidence, power) * spread / effect) ** 2)))
    while n < MOST_REQUESTS and n < (_t_factor(n, confidence, power) * spread / effect) ** 2:
        n += 1
    return n


def minimum_detectable_effect(*, n: int, spread: float, confidence: float, power: float) -> float:
    """The smallest paired log-ratio that `n` pairs show with probability `power`: 0.05 is a change of 5 %.

    Raises:
        BadInputError: fewer than 2 pairs.

    """
    if n < 2:
        raise BadInputError(f"{n!r} pairs show no effect of any size; at least 2 are needed")
    return _t_factor(n, confidence, power) * spread / sqrt(n)


def _t_factor(n: int, confidence: float, power: float) -> float:
    return _factor(lambda p: stdtrit(n - 1, p), confidence, power)


def _factor(quantile: Callable[[float], float], confidence: float, power: float) -> float:
    return float(quantile((1 + confidence) / 2)) + float(quantile(power))


def requests_to_bound_quantile(q: float, *, confidence: float) -> int:
    """The fewest requests from which the two-sided interval of a quantile in the upper half has an upper end.

    Their largest value then lies above the q-quantile with probability (1 + confidence) / 2 or more: smallest n with
    1 − qⁿ ≥ (1 + confidence) / 2. 368 for the 99th percentile at 95 %.

    Raises:
        BadInputError: q or confidence outside (0, 1).

    """
    if not (0 < q < 1 and 0 < confidence < 1):
        raise BadInputError(f"quantile {q!r} and confidence {confidence!r} must lie between 0 and 1")
    tail = (1 - confidence) / 2
    n = max(1, floor(log(tail) / log(q)))
    while q**n > tail:
        n += 1
    return n


def requests_to_settle(estimate: Estimate, bound: float, *, power: float) -> int | None:
    """Requests in all that would put `bound` outside the interval with probability `power`, if the value stays what it is.

    The interval shrinks with the square root of the requests. None where the end towards the bound is unknown, or where the value lies
    so near the bound that no feasible number settles it.
    """
    reach, distance = _reach_towards(estimate, bound, power=power), abs(bound - estimate.value)
    if reach is None or distance == 0:
        return None
    growth = (reach / distance) ** 2
    return ceil(estimate.n * growth) if estimate.n * growth <= MOST_REQUESTS else None


def distance_told(estimate: Estimate, bound: float, *, requests: int, power: float) -> float | None:
    """How far from `bound` a value must lie for as many requests to tell it apart with probability `power`; None as above.

    The minimum detectable effect of a test so large, in the metric's own unit.
    """
    reach = _reach_towards(estimate, bound, power=power)
    return None if reach is None else reach * sqrt(estimate.n / requests)


def _reach_towards(estimate: Estimate, bound: float, *, power: float) -> float | None:
    """The distance from the bound that as many requests as there are tell with probability `power`; None where that end is unknown."""
    end = estimate.high if bound >= estimate.value else estimate.low
    if end is None or estimate.n == 0:
        return None
    z = float(ndtri((1 + estimate.confidence) / 2))
    return abs(end - estimate.value) * (z + float(ndtri(power))) / z
