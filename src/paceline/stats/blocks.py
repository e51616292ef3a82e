"""What the order of blocks did to a comparison: order effects, drift, and blocks that disagree.

A load-test serves the same requests to both arms, in pairs of blocks whose order alternates (`traffic.schedule`):
baseline, speculative | speculative, baseline | … Each pair p gives L_p = log(Σ baseline / Σ speculative) over its requests, with a standard
error s_p by request. Being second in a pair multiplies times by e^γ, so

    L_p = log S − γ   where the speculative block came second        (A: mean over these pairs)
    L_p = log S + γ   where it came first                            (B)
    log S = (A + B) / 2        γ = (B − A) / 2                       (the two-period crossover: Jones and Kenward, chapter 2)

γ is what the first block of a pair leaves behind (caches, heat, a queue) and a drift over one block alike; neither is in log S, nor is a
drift that is even over time. What is left of the L_p shows whether pairs differ by more than their requests do (chi-square on pairs − 2
degrees of freedom). If they surely do, blocks are the independent units and not requests: the interval then rests on the pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, stdtrit

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.latency import RequestTiming, has_sample, samples
from paceline.run import Run
from paceline.stats.intervals import FEWEST_CLUSTERS
from paceline.stats.paired import request_pairs
from paceline.verdict import Estimate

__all__ = ["BlockEffects", "BlockPair", "block_effects", "block_pairs", "blocks_stated"]

FloatArray = npt.NDArray[np.float64]

ARGUMENT = "blocks"
DISAGREE = 0.05
LEAST_ERROR = 1e-12
FARTHEST = 20.0  # on the log scale: an end beyond bounds nothing


@dataclass(frozen=True, slots=True)
class BlockPair:
    """One latency of the requests of two blocks, entry i of both the same request, shapes [requests]; which block came second."""

    baseline: FloatArray
    speculative: FloatArray
    speculative_second: bool


@dataclass(frozen=True, slots=True)
class BlockEffects:
    """What the blocks say.

    Attributes:
        speedup: seconds plain / speculative with order and even drift taken out; `n` counts requests, or pairs of blocks where those
            surely disagree.
        order: the factor by which coming second in a pair multiplies times; None where all pairs had the same order.
        drift: the factor by which times changed from the first pair to the last, of both arms; None with one pair.
        disagreement: the chance that pairs whose speed-up is the same differ as much as these; None where too few pairs show it.

    """

    speedup: Estimate
    order: Estimate | None
    drift: Estimate | None
    disagreement: float | None

    @property
    def blocks_disagree(self) -> bool:
        """Whether pairs of blocks surely differ by more than their requests do."""
        return self.disagreement is not None and self.disagreement < DISAGREE


def blocks_stated(run: Run) -> tuple[tuple[int, int], ...]:
    """Each block of a run and how many of its requests came from it, in their order: "0:120,3:120" in its provenance under `blocks`.

    Blocks are numbered from 0 on in the order of time over both arms.

    Raises:
        NoEvidenceError: the run does not say.
        BadInputError: what it says cannot be read, or does not add up to its requests.

    """
    text = run.provenance.arguments.get(ARGUMENT)
    if text is None or run.requests is None:
        raise NoEvidenceError("the run does not say which block each request was in; paceline bench writes runs that do")
    parts = [each.split(":") for each in text.split(",")]
    if not all(len(each) == 2 and all(part.isascii() and part.isdecimal() for part in each) for each in parts):
        raise BadInputError(f"blocks {printable(text)} are not of the form 0:120,3:120")
    found = tuple((int(number), int(count)) for number, count in parts)
    if sum(count for _, count in found) != len(run.requests):
        raise BadInputError(f"blocks {printable(text)} do not add up to the run's {len(run.requests)} requests")
    return found


def block_pairs(baseline: Run, speculative: Run, *, latency: str, segment: str | None) -> tuple[BlockPair, ...]:
    """The pairs of blocks in the order of time, of requests (of one segment, or all) that both arms finished.

    Raises:
        NoEvidenceError: a run does not say its blocks, or the arms did not serve the same requests.
        BadInputError: blocks that cannot be read.

    """
    of_baseline, of_speculative = _block_of(baseline), _block_of(speculative)
    twins = request_pairs(baseline, speculative, segment=segment)
    if not twins:
        raise NoEvidenceError("the arms did not serve the same requests, so their blocks are no pairs")
    grouped: dict[tuple[int, int], list[tuple[RequestTiming, RequestTiming]]] = {}
    for ours, theirs in twins:
        if has_sample(latency, ours.timing) and has_sample(latency, theirs.timing):
            grouped.setdefault((of_baseline[ours.id], of_speculative[theirs.id]), []).append((ours.timing, theirs.timing))
    found = []
    for (first, second), timings in sorted(grouped.items()):
        ours_s, theirs_s = (samples(latency, each) for each in zip(*timings, strict=True))
        found.append(BlockPair(baseline=ours_s, speculative=theirs_s, speculative_second=second > first))
    return tuple(found)


def _block_of(run: Run) -> dict[str, int]:
    """The number of each request's block, by its id."""
    numbers = [number for number, count in blocks_stated(run) for _ in range(count)]
    return dict(zip((each.id for each in run.requests or ()), numbers, strict=True))


def block_effects(pairs: Sequence[BlockPair], *, confidence: float) -> BlockEffects:
    """The speed-up with order and drift taken out, and what they were. Intervals are Student's, on the log scale.

    Raises:
        NoEvidenceError: no pair, a pair with fewer than 8 requests, or a block without time.

    """
    if not pairs or min(each.baseline.size for each in pairs) < FEWEST_CLUSTERS:
        raise NoEvidenceError("blocks are compared from 8 requests on in each")
    if not all(each.baseline.sum() > 0 and each.speculative.sum() > 0 for each in pairs):
        raise NoEvidenceError("the requests of a block took no time, so there is no ratio")
    requests = sum(each.baseline.size for each in pairs)
    gains, errors = np.array([_gain(each) for each in pairs]).T
    second = np.array([each.speculative_second for each in pairs])
    groups = [chosen for chosen in (second, ~second) if chosen.any()]
    fits = [_weighted_mean(gains[chosen], errors[chosen]) for chosen in groups]
    centre, error = sum(mean for mean, _ in fits) / len(fits), sqrt(sum(square for _, square in fits)) / len(fits)
    scatter = sum(float((((gains[chosen] - mean) / errors[chosen]) ** 2).sum()) for chosen, (mean, _) in zip(groups, fits, strict=True))
    free = len(pairs) - len(groups)
    disagreement = float(chdtrc(free, scatter)) if free else None
    n, width, degrees = requests, error, requests - len(groups)
    if disagreement is not None and disagreement < DISAGREE:
        n, width, degrees = len(pairs), error * sqrt(scatter / free), free
    return BlockEffects(
        speedup=_factor(centre, width, degrees=degrees, n=n, confidence=confidence),
        order=_factor((fits[1][0] - fits[0][0]) / 2, width, degrees=degrees, n=n, confidence=confidence) if len(fits) > 1 else None,
        drift=_drift(pairs, confidence=confidence) if len(pairs) > 1 else None,
        disagreement=disagreement,
    )


def _gain(pair: BlockPair) -> tuple[float, float]:
    """log(Σ baseline / Σ speculative) of a pair of blocks, and its standard error by request."""
    each = pair.baseline / pair.baseline.mean() - pair.speculative / pair.speculative.mean()
    return log(pair.baseline.mean() / pair.speculative.mean()), _error_of(each)


def _error_of(values: FloatArray) -> float:
    return max(LEAST_ERROR, float(values.std(ddof=1)) / sqrt(values.size))


def _weighted_mean(values: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """The mean weighted by 1 / error², and its squared error."""
    weights = errors**-2.0
    return float(weights @ values / weights.sum()), 1 / float(weights.sum())


def _drift(pairs: Sequence[BlockPair], *, confidence: float) -> Estimate:
    """By which factor both arms' times changed from the first pair to the last: a line through the pairs' levels on the log scale."""
    levels = np.array([(log(each.baseline.mean()) + log(each.speculative.mean())) / 2 for each in pairs])
    relative = [(each.baseline / each.baseline.mean() + each.speculative / each.speculative.mean()) / 2 for each in pairs]
    weights = np.array([_error_of(each) for each in relative]) ** -2.0
    place = np.linspace(0, 1, len(pairs))
    place = place - weights @ place / weights.sum()
    square = float(weights @ place**2)
    requests = sum(each.baseline.size for each in pairs)
    return _factor(float(weights @ (place * levels)) / square, sqrt(1 / square), degrees=requests - 2, n=requests, confidence=confidence)


def _factor(centre: float, error: float, *, degrees: int, n: int, confidence: float) -> Estimate:
    half = float(stdtrit(degrees, (1 + confidence) / 2)) * error
    high = exp(centre + half) if half < FARTHEST else None
    return Estimate(value=exp(centre), low=exp(centre - half) if half < FARTHEST else None, high=high, confidence=confidence, n=n)
