"""What the verbs of `predict` do once they are asked."""

import argparse
from dataclasses import asdict, replace
from math import ceil
from typing import Any

import numpy as np

from paceline.cli.acceptance_options import asked_acceptance
from paceline.cli.options import reading, scenario_asked
from paceline.cli.output import answer, progress
from paceline.cli.replica_options import asked_lengths
from paceline.errors import BadInputError, ascii_controls
from paceline.files.runfile import write_run
from paceline.files.whole import make_folder
from paceline.forecast.acceptance_model import RangedAcceptance
from paceline.forecast.acceptance_shifts import at_temperature, beyond_draft_context
from paceline.forecast.activations import LargestStep
from paceline.forecast.calibrate import Calibration
from paceline.forecast.lesson import lesson
from paceline.forecast.speedup import Lengths, forecast
from paceline.forecast.when_not import when_not
from paceline.jobs.acceptance import choose, pairing_of
from paceline.jobs.calibration import calibrated, calibration_notes, family_calibration
from paceline.jobs.labels import labelled
from paceline.jobs.memory import memory_asked
from paceline.jobs.scenario import Scenario, config_hashes, on_disk, scenario
from paceline.jobs.simulation import SimulationPlan, cost_of, simulated_arms
from paceline.jobs.traffic import load_traffic
from paceline.report.acceptances import ranged_dict, ranged_lines, tree_dict, tree_lines
from paceline.report.predictions import (
    activations_dict,
    blend_dict,
    blend_text,
    forecast_dict,
    forecast_text,
    lesson_dict,
    lesson_text,
    memory_dict,
    memory_text,
)
from paceline.report.simulations import (
    arms_dict,
    arms_text,
    goodput_dict,
    harmed_requests,
    paired_dict,
    plan_figures,
    plan_line,
    saturation_text,
)
from paceline.run import Evidence, Load
from paceline.simulate.saturation import saturation
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.blend import blend_by_generated_tokens

__all__ = [
    "asked_calibration",
    "calibrated_plan",
    "calibration_dict",
    "calibration_lines",
    "run_forecast",
    "run_lesson",
    "run_memory",
    "run_simulate",
    "simulation_plan",
]

CONFIDENCE = 0.95
POWER = 0.9
WORTH_HAVING = 1.05  # the default policy's speed-up
ALL = "all"
DEFAULT_CONCURRENCY = 32
DRAFT_LENGTHS = tuple(range(1, 9))


def run_lesson(options: argparse.Namespace) -> int:
    """`lesson`, for one α or for a blend of segments."""
    K, overhead = options.draft_tokens, options.overhead
    if (options.alpha is None) == (not options.segment):
        raise BadInputError("give --alpha, or --segment NAME:SHARE:ALPHA once per segment")
    if not options.segment:
        said = lesson(alpha=options.alpha, draft_tokens=K, overhead=overhead)
        answer(options, body=lesson_dict(said), text=lesson_text(said), inputs={})
        return 0
    segments = {each.name: Acceptance.from_alpha(each.alpha, draft_tokens=K) for each in options.segment}
    shares = {each.name: each.share for each in options.segment}
    if len(segments) < len(options.segment) or abs(sum(shares.values()) - 1) > 1e-9:
        raise BadInputError(f"segments need names of their own and shares that add up to 1, not {shares}")
    blended = blend_by_generated_tokens(segments, shares)
    said = lesson(alpha=min(1.0, blended.alpha), draft_tokens=K, overhead=overhead)
    blend = blend_dict(blended, segments, shares, ratio=1 + overhead)
    text = f"{blend_text(blended, segments, shares, ratio=1 + overhead)}\n\n{lesson_text(said)}"
    answer(options, body=lesson_dict(said) | {"blend": blend}, text=text, inputs={})
    return 0


def run_forecast(options: argparse.Namespace) -> int:
    """`forecast`."""
    source, typed = dtype_words(options), scenario_asked(options)
    asked = scenario(typed)
    K = asked.speculation.draft_tokens
    known = choose(
        asked_acceptance(options), replayed=None, method=options.method, segments=(ALL,), draft_tokens=K, target=asked.target.name
    )
    context = options.context or options.prompt_tokens + ceil(options.output_tokens / 2)
    measured = known.ranged(ALL)
    moved = _moved(options, measured, context_tokens=context)
    lengths = Lengths(prompt_tokens=options.prompt_tokens, output_tokens=options.output_tokens, context_tokens=context)
    calibration = asked_calibration(options, asked, context_tokens=context)
    rows = forecast(
        target=asked.target,
        where=asked.where,
        speculation=asked.speculation,
        draft=asked.draft,
        acceptance=moved,
        concurrencies=options.concurrency,
        lengths=lengths,
        draft_lengths=DRAFT_LENGTHS,
        utilisation=asked.utilisation,
        calibration=calibration,
    )
    profile_label = known.label if known.evidence is Evidence.PROFILE else None
    conditions = when_not(row=rows[-1], lengths=lengths, target=asked.target, pairing=pairing_of(known, typed, traffic={}))
    said = lesson(alpha=moved.value.alpha, draft_tokens=K, overhead=max(0.0, rows[0].step_time_ratio.value - 1))
    where = asked.where
    head = f"{asked.target.name} {where.dtype.value}{source} on {where.gpus} {where.gpu.name}, {options.method.value}, K = {K}"
    chain = "the chain's figure for a tree, which accepts more" if asked.speculation.tree and profile_label else ""
    shifted = moved.label.removeprefix(measured.label).removeprefix("; ")
    label = "; ".join(each for each in (known.label, chain, shifted) if each)
    said_of_tree = None if asked.speculation.tree is None else tree_dict(asked.speculation.tree, moved.value, options.rank_acceptance)
    body = forecast_dict(rows, conditions) | {
        "acceptance": {"label": label, "evidence": known.evidence.value, **ranged_dict(moved)},
        "tree": said_of_tree,
        "lesson": lesson_dict(said),
        "deviations": lesson_dict(said)["deviations"],
        **calibration_dict(calibration),
    }
    told = [ascii_controls(f"{head}; acceptance {label}"), *ranged_lines(moved), *tree_lines(said_of_tree), *calibration_lines(calibration)]
    answer(options, body=body, text="\n".join(told) + f"\n\n{forecast_text(rows, conditions)}", inputs=config_hashes(typed))
    return 0


def _moved(options: argparse.Namespace, known: RangedAcceptance, *, context_tokens: int) -> RangedAcceptance:
    """The acceptance where the forecast is asked for, if it was stated for another temperature or a shorter context."""
    if options.draft_context is not None:
        known = beyond_draft_context(known, context_tokens=context_tokens, draft_context_tokens=options.draft_context)
    return known if options.temperature is None else at_temperature(known, temperature=options.temperature)


def asked_calibration(options: argparse.Namespace, asked: Scenario, *, context_tokens: int) -> Calibration | None:
    """The calibration that was typed, None for the packaged coefficients; a point without context has `context_tokens`."""
    if options.calibrate:
        return calibrated(options.calibrate, asked, context_tokens=context_tokens, engine=options.engine)
    return None if options.engine is None else family_calibration(options.engine)


def calibration_dict(found: Calibration | None) -> dict[str, Any]:
    """The calibration as JSON has it."""
    return {"calibration": None if found is None else asdict(found) | {"notes": calibration_notes(found)}}


def calibration_lines(found: Calibration | None) -> tuple[str, ...]:
    """The calibration as a header tells it; nothing without one."""
    if found is None:
        return ()
    engine = found.engine
    arithmetic = "" if engine.arithmetic == 1 else f" (arithmetic at {engine.arithmetic:.2g} times the stated peak)"
    fitted = (
        f"calibrated on {found.n} points: {1000 * engine.overhead_s:.2f} ms per speculative step, draft passes "
        f"{engine.draft_scale:.2f} times as priced, kernels at {engine.efficiency:.0%}{arithmetic}; fit error {found.error:.1%}"
    )
    return fitted, *(f"! {each}" for each in calibration_notes(found))


def calibrated_plan(options: argparse.Namespace, found: Calibration | None) -> SimulationPlan:
    """How a scenario is to be simulated, on the calibrated engine where there is one."""
    return replace(simulation_plan(options), engine=None if found is None else found.engine)


def dtype_words(options: argparse.Namespace) -> str:
    """Where the dtype is from, behind it in a header; empty where it was typed. Ask before `scenario_asked` fills it in."""
    if options.dtype is not None:
        return ""
    return " (the default)" if on_disk(options.target) is None else " (as its config.json states)"


def run_memory(options: argparse.Namespace) -> int:
    """`memory`."""
    source, typed = dtype_words(options), scenario_asked(options)
    step = LargestStep(requests=options.max_requests, step_tokens=options.token_budget)
    found = memory_asked(typed, context_tokens=options.context, step=step)
    asked, where = found.scenario, found.scenario.where
    head = f"{asked.target.name} {where.dtype.value}{source} on {where.gpus} {where.gpu.name}, {asked.utilisation:.0%} of memory"
    text = memory_text(found.fits, asked.draft, found.activations, context_tokens=options.context, stored=found.stored)
    body = {"gpus": where.gpus, "context_tokens": options.context, "draft_from_checkpoint": found.stored}
    body |= memory_dict(found.fits, asked.draft) | {"activations": activations_dict(found.activations)}
    answer(options, body=body, text=f"{ascii_controls(head)}\n\n{text}", inputs=config_hashes(typed))
    return 0


def run_simulate(options: argparse.Namespace) -> int:
    """`simulate`: both arms, at one concurrency, one rate, or a trace's own times."""
    if options.concurrency is None and options.rate is None and not options.own_times:
        options.concurrency = DEFAULT_CONCURRENCY
    typed = scenario_asked(options)
    asked = scenario(typed)
    with progress("reading traffic", total=None) as bar:
        traffic = load_traffic((options.traffic,), reading(options), progress=bar)
    known = choose(
        asked_acceptance(options),
        replayed=traffic.pooled(options.method),
        method=options.method,
        segments=traffic.workload.segments,
        draft_tokens=asked.speculation.draft_tokens,
        target=asked.target.name,
    )
    if options.own_times and not traffic.has_arrivals:
        raise BadInputError(f"{traffic.workload.source} has no times of its own; give --concurrency or --rate")
    load = Load(concurrency=options.concurrency, rate_per_s=options.rate)
    calibration = asked_calibration(options, asked, context_tokens=max(1, ceil(traffic.workload.mean_context_tokens)))
    plan = calibrated_plan(options, calibration)
    made = simulated_arms(asked, traffic.workload, known.by_segment, load, plan, own_arrivals=options.own_times)
    arms = labelled(made, asked, known, traffic, range_=None, slo=options.slo)
    if options.out is not None:
        make_folder(options.out)
        for run in arms:
            write_run(run, options.out / f"{run.arm.value}.json")
    overrun = saturation(arms[0], cost_of(asked, plan, draft_tokens=0))
    told = () if overrun is None else (saturation_text(overrun),)
    rng = np.random.default_rng(options.seed)
    figures = arms_dict(*arms, confidence=CONFIDENCE, rng=rng)
    if options.slo is not None:
        for run in arms:
            figures["arms"][run.arm.value]["goodput"] = goodput_dict(run, options.slo, confidence=CONFIDENCE)
    needed = plan_figures(*arms, bound=WORTH_HAVING, confidence=CONFIDENCE, power=POWER)
    body = figures | {
        "measurement": needed,
        "paired_differences": paired_dict(*arms, confidence=CONFIDENCE),
        "harmed": harmed_requests(*arms, most=len(arms[0].requests or ())),
        "acceptance_label": known.label,
        "saturation": None if overrun is None else asdict(overrun),
        "notes": [*told, *traffic.notes, *traffic.warnings],
        **calibration_dict(calibration),
    }
    notes = "\n".join(f"note: {ascii_controls(each)}" for each in (f"acceptance {known.label}", *traffic.notes, *traffic.warnings))
    asked_for = () if needed is None else (plan_line(needed),)
    parts = [*(f"! {each}" for each in told), *calibration_lines(calibration), arms_text(*arms, body), *asked_for, notes]
    answer(options, body=body, text="\n\n".join(parts), inputs={**config_hashes(typed), **traffic.inputs})
    return 0


def simulation_plan(options: argparse.Namespace) -> SimulationPlan:
    """How a scenario is to be simulated."""
    return SimulationPlan(
        requests=options.requests,
        max_requests=options.max_requests,
        token_budget=options.token_budget,
        spread=options.spread,
        rejection=options.rejection,
        seed=options.seed,
        burstiness=getattr(options, "burstiness", 1.0),
        time_scale=getattr(options, "time_scale", 1.0),
        persistence=getattr(options, "persistence", 0.0),
        lengths=asked_lengths(options),
    )
