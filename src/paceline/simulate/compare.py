"""What two arms of the same requests say about each other.

Requests are paired by id; a pair counts where both arms finished it with at least two output tokens. TPOT is the deciding figure, because
gaps between chunks get longer under speculation even where everybody is served faster.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import NoEvidenceError
from paceline.latency import Distribution, distribution, samples
from paceline.run import Outcome, Run

__all__ = ["ArmFigures", "arm_figures", "harmed_share", "paired_tpots_s", "speedup", "step_time_ratio"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm's latencies and throughput over its finished requests; None where there is no sample or no window.

    `requests` counts all of the arm's requests, `failed` those refused or failed.
    """

    ttft_s: Distribution | None
    tpot_s: Distribution | None
    chunk_gap_s: Distribution | None
    token_gap_s: Distribution | None
    e2e_s: Distribution | None
    output_tokens_per_s: float | None
    requests: int
    failed: int


def arm_figures(run: Run) -> ArmFigures:
    """The figures of one arm.

    Raises:
        NoEvidenceError: the run has no per-request records.

    """
    finished = run.finished
    records = run.requests or ()

    def of(metric: str) -> Distribution | None:
        values = samples(metric, (each.timing for each in finished))
        return distribution(values) if values.size else None

    return ArmFigures(
        ttft_s=of("ttft_s"),
        tpot_s=of("tpot_s"),
        chunk_gap_s=of("chunk_gap_s"),
        token_gap_s=of("token_gap_s"),
        e2e_s=of("e2e_s"),
        output_tokens_per_s=run.output_tokens_per_s if run.window_s else None,
        requests=len(records),
        failed=sum(each.outcome in (Outcome.REFUSED, Outcome.FAILED) for each in records),
    )


def paired_tpots_s(baseline: Run, speculative: Run) -> tuple[FloatArray, FloatArray]:
    """TPOT of the paired requests in both arms, in the baseline's order, shape [pairs] each.

    Raises:
        NoEvidenceError: a run has no per-request records, or no request can be paired.

    """
    theirs = _tpots_s(speculative)
    pairs = [(ours, theirs[id_]) for id_, ours in _tpots_s(baseline).items() if id_ in theirs]
    if not pairs:
        raise NoEvidenceError("no request finished in both arms with at least 2 output tokens, so nothing can be paired")
    both = np.array(pairs)
    return both[:, 0], both[:, 1]


def _tpots_s(run: Run) -> dict[str, float]:
    return {each.id: each.timing.tpot_s for each in run.finished if each.timing.output_tokens > 1}


def speedup(baseline: Run, speculative: Run) -> float:
    """S: mean TPOT of the baseline / mean TPOT of the speculative arm, over the paired requests. Above 1 where drafts pay.

    Raises:
        NoEvidenceError: nothing to pair, or the speculative arm took no time.

    """
    ours, theirs = paired_tpots_s(baseline, speculative)
    return _ratio(float(ours.mean()), float(theirs.mean()), "the speculative arm's mean TPOT")


def harmed_share(baseline: Run, speculative: Run) -> float:
    """The share of paired requests whose TPOT is larger with drafts, in [0, 1].

    Raises:
        NoEvidenceError: nothing to pair.

    """
    ours, theirs = paired_tpots_s(baseline, speculative)
    return float((theirs > ours).mean())


def step_time_ratio(baseline: Run, speculative: Run) -> float:
    """ρ: seconds per speculative step / seconds per plain step, as requests see them.

    Raises:
        NoEvidenceError: an arm has no decode step, or the baseline's take no time.

    """
    if baseline.step_seconds is None or speculative.step_seconds is None:
        raise NoEvidenceError("an arm has no decode step, so step times cannot be compared")
    return _ratio(speculative.step_seconds, baseline.step_seconds, "the baseline's step time")


def _ratio(above: float, below: float, what: str) -> float:
    if below == 0:
        raise NoEvidenceError(f"{what} is 0, so this ratio does not exist")
    return above / below
