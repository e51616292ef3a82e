"""Why is it slow, or slower than it could be? Ranked causes, from the evidence that the gate takes.

A diagnosis decides nothing. Every cause carries the figures that point to it and how surely they do; what the evidence cannot tell is
listed with what would. The checks are in `decide.diagnosis`, their codes in `decide.diagnosis.cause`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from paceline.decide.break_even import same_load
from paceline.decide.cautions import evidence_cautions
from paceline.decide.diagnosis.acceptance import acceptance_causes
from paceline.decide.diagnosis.case import Case, Measured, measured
from paceline.decide.diagnosis.cause import Cause, Surely, Unchecked, ranked
from paceline.decide.diagnosis.cost import cost_causes
from paceline.decide.diagnosis.length import length_causes
from paceline.decide.diagnosis.tails import tail_causes
from paceline.decide.diagnosis.validity import validity_causes
from paceline.decide.diagnosis.versions import version_causes
from paceline.decide.losslessness import Answers, Losslessness
from paceline.errors import BadInputError
from paceline.run import Arm, Run
from paceline.verdict import Caution

__all__ = ["Asked", "Diagnosis", "across_loads", "diagnose"]

CHECKS = (validity_causes, acceptance_causes, version_causes, cost_causes, length_causes, tail_causes)
SWING = 0.03


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known beside the runs, and how it is asked.

    Attributes:
        answers: texts by request, None where they were not kept.
        losslessness: what they say, None where there is nothing to compare.
        forecast_ratio: ρ that target and hardware lead one to expect, None where they were not stated.
        is_moe: whether the target has experts, None where that is not known.
        gpus: over how many GPUs it is split, None where that is not known.
        margin: the gain worth having, as a fraction.
        confidence: of every interval.

    """

    answers: Answers | None
    losslessness: Losslessness | None
    forecast_ratio: float | None
    is_moe: bool | None
    gpus: int | None
    margin: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found at one load.

    Attributes:
        concurrency: requests in flight, None where the load was not a closed loop.
        figures: of the comparison.
        causes: by rank.
        unchecked: causes that this evidence cannot tell.
        losslessness: what the answers say, None where there were none to compare.
        warnings: what a reader must know about the evidence.

    """

    concurrency: int | None
    figures: Measured
    causes: tuple[Cause, ...]
    unchecked: tuple[Unchecked, ...]
    losslessness: Losslessness | None
    warnings: tuple[Caution, ...]


def diagnose(baseline: Run | None, speculative: Run, *, asked: Asked, rng: np.random.Generator) -> Diagnosis:
    """The causes that the evidence of one load points to. `baseline` may be missing, or an earlier speculative run; one under another load
    is compared with nothing.

    Raises:
        BadInputError: the second run is a baseline.

    """
    if speculative.arm is not Arm.SPECULATIVE:
        raise BadInputError("a diagnosis is of a run with drafts; give the baseline first and the speculative run last")
    comparable = baseline if baseline is not None and same_load(baseline, speculative) else None
    figures = measured(comparable, speculative, confidence=asked.confidence, rng=rng)
    case = Case(
        baseline=comparable,
        speculative=speculative,
        answers=asked.answers,
        losslessness=asked.losslessness,
        forecast_ratio=asked.forecast_ratio,
        is_moe=asked.is_moe,
        gpus=asked.gpus,
        margin=asked.margin,
        confidence=asked.confidence,
        figures=figures,
        rng=rng,
    )
    causes, unchecked = ranked(found for check in CHECKS for found in check(case))
    warnings = speculative.cautions
    if baseline is not None:
        alpha, even = figures.alpha, figures.break_even_alpha
        warnings = evidence_cautions(baseline, speculative, alpha=alpha, break_even=even, alpha_floor=None, confidence=asked.confidence)
    return Diagnosis(
        concurrency=speculative.load.concurrency,
        figures=figures,
        causes=causes,
        unchecked=unchecked,
        losslessness=asked.losslessness,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def across_loads(diagnoses: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The diagnoses by rising concurrency; where the gain swings up and down between them, the largest load's says so.

    Raises:
        BadInputError: there is none.

    """
    if not diagnoses:
        raise BadInputError("no load was measured, so there is nothing to diagnose")
    ordered = sorted(diagnoses, key=lambda each: each.concurrency or 0)
    gains = {each.concurrency: each.figures.gain.value for each in ordered if each.concurrency and each.figures.gain is not None}
    steps = [after - before for before, after in pairwise(gains.values()) if abs(after - before) > SWING]
    turns = sum(before * after < 0 for before, after in pairwise(steps))
    if turns < 2:  # one turn is physics: experts at small batches, compute at large ones
        return tuple(ordered)
    swings = Cause(
        "gain_not_monotone",
        f"the gain is {', '.join(f'{gain:.3g} at {load}' for load, gain in gains.items())}: it turns {turns} times",
        {"gain_by_concurrency": {str(load): gain for load, gain in gains.items()}, "turns": float(turns)},
        "repeat the points before acting on one of them, and read no break-even off a line through them",
        Surely.POSSIBLE,
        0.3,
    )
    last = ordered[-1]
    return (*ordered[:-1], replace(last, causes=ranked((swings, *last.causes))[0]))
