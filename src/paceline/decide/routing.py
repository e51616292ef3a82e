"""What is it worth to send only some segments to drafts?

    x_r, y_r   seconds per output token of request r without and with drafts, in pairs
    S_s        Σ x_r / Σ y_r over segment s: its speed-up
    all on     Σ x / Σ y
    routed     Σ x / (Σ y over segments with S_s > 1, Σ x over the others)

Routed is at least the larger of all on and all off, because every segment gets its better arm: that holds for the values, while segments
whose intervals hold 1 are routed on luck, so what routing is worth is read with them in mind. Both pools are taken to decode as fast as
they did with all traffic; with part of it their batches are smaller, which makes both faster.
"""

import numpy as np
import numpy.typing as npt

from paceline.errors import NoEvidenceError
from paceline.latency import has_sample
from paceline.run import Run
from paceline.stats.intervals import ratio_of_sums, wilson
from paceline.stats.paired import request_pairs
from paceline.verdict import Estimate, Routing, SegmentGain

__all__ = ["routed", "routing"]

FloatArray = npt.NDArray[np.float64]
FEWEST_SEGMENTS = 2


def routing(baseline: Run, speculative: Run, *, confidence: float, rng: np.random.Generator) -> Routing | None:
    """The gain of each segment and of routing, None where a run has no requests, they have no twins, or all are of one segment."""
    try:
        pairs = request_pairs(baseline, speculative, segment=None)
    except NoEvidenceError:
        return None
    known = [
        (a.segment, a.timing.tpot_s, b.timing.tpot_s) for a, b in pairs if has_sample("tpot_s", a.timing) and has_sample("tpot_s", b.timing)
    ]
    names = np.array([each[0] for each in known])
    if len(set(names.tolist())) < FEWEST_SEGMENTS:
        return None
    plain_s, drafted_s = (np.array([each[i] for each in known], dtype=np.float64) for i in (1, 2))
    return routed(names, plain_s, drafted_s, confidence=confidence, rng=rng) if min(plain_s.min(), drafted_s.min()) > 0 else None


def routed(
    segments: npt.NDArray[np.str_],  # [requests]
    plain_s: FloatArray,  # [requests]
    drafted_s: FloatArray,  # [requests]
    *,
    confidence: float,
    rng: np.random.Generator,
) -> Routing:
    """The same from each request's segment and its pace in both arms, in seconds above 0."""
    gains = tuple(
        _gain(name, plain_s[segments == name], drafted_s[segments == name], of=plain_s.size, confidence=confidence, rng=rng)
        for name in sorted(set(segments.tolist()))
    )
    sent = tuple(each.name for each in gains if each.speedup.value > 1)
    chosen_s = np.where(np.isin(segments, sent), drafted_s, plain_s)
    return Routing(
        segments=gains,
        routed=sent,
        all_on=ratio_of_sums(plain_s, drafted_s, largest=None, confidence=confidence, rng=rng),
        with_routing=ratio_of_sums(plain_s, chosen_s, largest=None, confidence=confidence, rng=rng),
        harmed_all_on=_slower(plain_s, drafted_s, confidence=confidence),
        harmed_routed=_slower(plain_s, chosen_s, confidence=confidence),
    )


def _gain(name: str, plain_s: FloatArray, drafted_s: FloatArray, *, of: int, confidence: float, rng: np.random.Generator) -> SegmentGain:
    return SegmentGain(
        name=name,
        share=plain_s.size / of,
        speedup=ratio_of_sums(plain_s, drafted_s, largest=None, confidence=confidence, rng=rng),
        slower=_slower(plain_s, drafted_s, confidence=confidence),
    )


def _slower(plain_s: FloatArray, later_s: FloatArray, *, confidence: float) -> Estimate:
    return wilson(successes=int(np.count_nonzero(later_s > plain_s)), n=plain_s.size, confidence=confidence)
