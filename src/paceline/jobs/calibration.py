"""Calibrates a scenario: from files of points, from run files or their folder, or with the triple of an engine family.

Hardware that is in no table has peaks that somebody stated. How fast it is as a whole is then read off the points' own steps before the
fit, and what of its arithmetic is reached is a fourth thing that they tell, found by trying: it moves all prices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from pathlib import Path

from paceline.data.tables import table
from paceline.errors import BadInputError, printable
from paceline.files.calibration import CalibrationPoint, PrefillMixed, read_calibration
from paceline.forecast.calibrate import COEFFICIENTS, Calibration, Observation, Prior, Setting, calibrate, informed, priced, step_times
from paceline.forecast.engine_cost import EngineCost, engine_of_family, uncalibrated
from paceline.forecast.kernels import coefficient
from paceline.forecast.roofline import Placement, at_arithmetic
from paceline.forecast.shapes import known_gpus
from paceline.forecast.step_cost import StepCost, beside_seconds, step_cost, step_seconds
from paceline.jobs.labels import described
from paceline.jobs.scenario import Scenario
from paceline.speculation.method import Speculation

__all__ = ["calibrated", "calibration_notes", "family_calibration"]

MOST_REQUESTS = 4096
MOST_DRAFT_TOKENS = 64
LEAST_POINTS = 2
SHOWN_POINTS = 12
LARGEST_PREFILL = 0.6  # of a step's seconds; with more of it priced off little is left that was measured
KEPT_SD = 1e-3  # of a coefficient that the points do not tell
ARITHMETICS = tuple(exp(each / 8) for each in range(-32, 33))  # times the stated peak, from a fiftieth to fifty times
WORDS = {
    "overhead_s": "seconds per speculative step",
    "draft_scale": "scale of draft passes",
    "efficiency": "efficiency of kernels",
}


def family_calibration(name: str) -> Calibration:
    """The triple of an engine family, with the error and the reach of the published points behind it.

    Raises:
        UnknownNameError: no such family.

    """
    engine = engine_of_family(name)
    row = next(each for each in table("calibrations")["family"] if each["engine"] == name)
    return Calibration(
        engine=engine,
        error=row["error"],
        n=row["n"],
        requests=(row["requests"][0], row["requests"][1]),
        draft_tokens=(row["draft_tokens"][0], row["draft_tokens"][1]),
        freed=COEFFICIENTS,
        measured=None,
    )


def calibrated(files: Sequence[Path], asked: Scenario, *, context_tokens: int, engine: str | None) -> Calibration:
    """The calibration that the points of `files` give for `asked`, starting from the family `engine` or the packaged coefficients.

    Raises:
        BadInputError: fewer than two distinct points, one that is out of range, or points that contradict each other.
        UnknownNameError: no such family, or a column that means nothing.

    """
    points: list[CalibrationPoint] = []
    for point in (each for file in files for each in read_calibration(file)):
        points += [] if point in points else [point]  # one that was copied says nothing more
    if len(points) < LEAST_POINTS:
        raise BadInputError(
            f"{len(points)} distinct calibration point is too few for overhead, draft cost and efficiency; give two or more"
        )
    start: EngineCost = uncalibrated(asked.where.gpus) if engine is None else engine_of_family(engine)
    spread = coefficient("least_calibration_error")
    starts = [start]
    if asked.where.gpu.name not in known_gpus():
        starts = [_at_own_speed(points, asked, replace(start, arithmetic=each), context_tokens) for each in ARITHMETICS]
    fits = [_fit(points, asked, each, context_tokens=context_tokens, spread=spread) for each in starts]
    best = min(fits, key=lambda each: each.misfit)
    freed = len(best.told) + (len(starts) > 1)
    figures = [each for point in best.seen for each in (point.ratio, point.plain_step_s, point.speculative_step_s) if each is not None]
    free = sqrt(len(figures) / max(1, len(figures) - freed))  # a fit comes nearer to its points than to others
    error = best.found.error * free
    if error > coefficient("largest_calibration_error"):
        raise BadInputError(
            f"the calibration points contradict each other or are of something else: the best fit misses them by {error:.0%}, and "
            f"more than {coefficient('largest_calibration_error'):.0%} is worse than no calibration; look for seconds given as "
            "milliseconds, a mistyped ratio, another GPU, dtype or draft length, and leave such points out\n"
            + "\n".join(_given_and_fitted(best.seen, best.found.engine))
        )
    return replace(best.found, error=error, freed=best.told)


@dataclass(frozen=True, slots=True)
class _Fit:
    """A fit at one arithmetic: the points as they are priced there, what it is, which coefficients they told, and how badly it explains
    them, the prior's doubt included.
    """

    seen: Sequence[Observation]
    found: Calibration
    told: tuple[str, ...]
    misfit: float


def _at_own_speed(points: Sequence[CalibrationPoint], asked: Scenario, start: EngineCost, context_tokens: int) -> EngineCost:
    """The triple where hardware that was stated runs its kernels and draft passes as fast as the plain steps (without any: the speculative
    ones) say.
    """
    seen = [_observation(point, asked, start, context_tokens) for point in points]
    plain = [(each.terms.plain_s, each.plain_step_s - each.terms.engine_s) for each in seen if each.plain_step_s is not None]
    drafted = [(each.terms.verify_s, each.speculative_step_s) for each in seen if each.speculative_step_s is not None]
    told = [log(priced_s / step_s) for priced_s, step_s in plain or drafted if step_s > 0]
    if not told:
        return start
    efficiency = exp(sum(told) / len(told))
    return replace(start, efficiency=efficiency, draft_scale=start.draft_scale / efficiency)


def _fit(points: Sequence[CalibrationPoint], asked: Scenario, start: EngineCost, *, context_tokens: int, spread: float) -> _Fit:
    seen = [_observation(point, asked, start, context_tokens) for point in points]
    prior = Prior(start, *(coefficient(f"own_{each}_sd") for each in ("overhead", "draft", "efficiency")))
    told = informed(seen, prior=prior, spread=spread)
    believed = (prior.overhead_sd, prior.draft_sd, prior.efficiency_sd)
    sds = [sd if name in told else KEPT_SD for name, sd in zip(COEFFICIENTS, believed, strict=True)]
    found = calibrate(seen, prior=Prior(start, *sds), spread=spread, prefill_slowdown=0.0)
    moved = [log(getattr(found.engine, name) / getattr(start, name)) / sd for name, sd in zip(COEFFICIENTS, believed, strict=True)]
    doubts = [*moved, log(start.arithmetic) / coefficient("own_arithmetic_sd"), found.error / spread * sqrt(len(seen))]
    return _Fit(seen, found, told, sum(each * each for each in doubts))


def _given_and_fitted(seen: Sequence[Observation], engine: EngineCost) -> list[str]:
    """A line per point, the worst first: what was stated and what the best fit says instead."""
    lines = []
    for each in seen:
        plain_s, speculative_s = step_times(each.terms, engine)
        sides = (
            ("plain_step_s", each.plain_step_s, plain_s),
            ("speculative_step_s", each.speculative_step_s, speculative_s),
            ("step_time_ratio", each.ratio, speculative_s / plain_s),
        )
        told = [(name, given, fitted) for name, given, fitted in sides if given is not None]
        words = ", ".join(f"{name} {given:.4g} given, {fitted:.4g} fitted" for name, given, fitted in told)
        worst = max(abs(log(fitted / given)) for _, given, fitted in told)
        lines.append((worst, f"  {each.terms.requests} in flight, K = {each.terms.draft_tokens}: {words}"))
    ordered = [line for _, line in sorted(lines, key=lambda each: -each[0])]
    more = [f"  and {len(ordered) - SHOWN_POINTS} more points"] if len(ordered) > SHOWN_POINTS else []
    return ordered[:SHOWN_POINTS] + more


def calibration_notes(found: Calibration) -> tuple[str, ...]:
    """What a reader of a calibrated forecast has to know about its fit, in sentences; none for a family's triple."""
    if found.measured is None:
        return ()
    kept = [WORDS[name] for name in COEFFICIENTS if name not in found.freed]
    notes = []
    if kept:
        notes.append(f"the points do not tell {' and '.join(kept)}: kept as before the fit")
    if not found.measured:
        notes.append("no point has both arms at one concurrency, nor a ratio: the range of ρ is that without a calibration")
    if found.error > coefficient("loud_calibration_error"):
        notes.append(f"the points disagree: the best fit misses them by {found.error:.0%}, so look for one that is off")
    return tuple(notes)


def _observation(point: CalibrationPoint, asked: Scenario, start: EngineCost, context_tokens: int) -> Observation:
    _need_same(point, asked)
    draft_tokens = asked.speculation.draft_tokens if point.draft_tokens is None else point.draft_tokens
    if point.concurrency > MOST_REQUESTS or draft_tokens > MOST_DRAFT_TOKENS:
        raise BadInputError(f"a calibration point of {point.concurrency} requests and {draft_tokens} drafts is larger than what is priced")
    tree = asked.speculation.tree if draft_tokens == asked.speculation.draft_tokens else None
    gpu = at_arithmetic(asked.where.gpu, start.arithmetic)
    setting = Setting(
        target=asked.target,
        where=Placement(gpu=gpu, gpus=asked.where.gpus, dtype=asked.where.dtype),
        speculation=Speculation(asked.speculation.method, draft_tokens, tree),
        draft=asked.draft,
        requests=point.concurrency,
        context_tokens=context_tokens if point.context is None else point.context,
        prompt_tokens=None,
        output_tokens=None,
    )
    return Observation(
        terms=priced(setting),
        ratio=point.step_time_ratio,
        tokens_per_step=1.0,
        plain_step_s=_of_decoding(point.plain_step_s, point, setting, None, start),
        speculative_step_s=_of_decoding(point.speculative_step_s, point, setting, setting.speculation, start),
        weight=1.0,
    )


def _need_same(point: CalibrationPoint, asked: Scenario) -> None:
    stated = dict(point.measured_on) | ({} if point.method is None else {"method": point.method})
    for key, wanted in (described(asked) | {"method": asked.speculation.method.value}).items():
        if stated.get(key, wanted) != wanted:
            raise BadInputError(
                f"a calibration run's {key} is {printable(stated[key])}, not {printable(wanted)}; calibrate on the target, hardware and "
                "method asked for"
            )


def _of_decoding(
    step_s: float | None, point: CalibrationPoint, setting: Setting, speculation: Speculation | None, start: EngineCost
) -> float | None:
    """Seconds of a step in which everybody decodes, and drafts where `speculation` does: what was measured less the prefill in it, and as
    much longer as pricing says where some steps did not draft.
    """
    if step_s is None or (point.mixed is None and point.coverage in (None, 1.0)):
        return step_s
    prompt_tokens = 0 if point.mixed is None else point.mixed.prompt_tokens
    tokens = setting.requests * (1 if speculation is None else speculation.verified_tokens)
    cost = step_cost(
        target=setting.target,
        gpu=setting.where.gpu,
        gpus=setting.where.gpus,
        dtype=setting.where.dtype,
        speculation=speculation,
        draft=None if speculation is None else setting.draft,
        max_tokens=tokens + prompt_tokens,
        max_requests=setting.requests,
        engine=replace(start, arithmetic=1.0),  # which the setting's GPU is at already
    )
    if point.mixed is not None:
        step_s -= _prefill_in_a_step(cost, tokens, point, point.mixed, step_s)
    if speculation is None or point.coverage is None:
        return step_s
    whole_s, some_s = (
        step_seconds(cost, requests=setting.requests, context_tokens=setting.context_tokens, speculation=speculation, coverage=share)
        for share in (1.0, point.coverage)
    )
    return step_s * whole_s / some_s


def _prefill_in_a_step(cost: StepCost, tokens: int, point: CalibrationPoint, mixed: PrefillMixed, step_s: float) -> float:
    """Mean seconds that the others' prefills add to a step."""
    share_s = (point.concurrency - 1) * beside_seconds(cost, tokens=tokens, prompt_tokens=mixed.prompt_tokens) / mixed.steps
    if share_s > LARGEST_PREFILL * step_s:
        raise BadInputError(
            f"a calibration run at concurrency {point.concurrency} spends {share_s / step_s:.0%} of its steps on prefill, so it says "
            "little of decoding; measure at a lower concurrency, or with shorter prompts or longer outputs"
        )
    return share_s
