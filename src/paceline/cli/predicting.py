"""What the verbs of `predict` do once they are asked."""

import argparse
from math import ceil
from pathlib import Path

import numpy as np

from paceline.cli.options import asked_acceptance, reading, scenario_asked
from paceline.cli.output import answer, progress
from paceline.cli.replica_options import asked_lengths
from paceline.errors import BadInputError, ascii_controls
from paceline.files.runfile import write_run
from paceline.files.whole import make_folder
from paceline.forecast.lesson import lesson
from paceline.forecast.speedup import Lengths, forecast
from paceline.forecast.when_not import Pairing, when_not
from paceline.jobs.acceptance import choose
from paceline.jobs.scenario import scenario
from paceline.jobs.simulation import SimulationPlan, simulated_arms
from paceline.jobs.traffic import load_traffic
from paceline.report.predictions import (
    blend_dict,
    blend_text,
    forecast_dict,
    forecast_text,
    lesson_dict,
    lesson_text,
    memory_dict,
    memory_text,
)
from paceline.report.simulations import arms_dict, arms_text, goodput_dict, harmed_requests, paired_dict
from paceline.run import Evidence, Load
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.blend import blend_by_generated_tokens

__all__ = ["run_forecast", "run_lesson", "run_memory", "run_simulate"]

CONFIDENCE = 0.95
ALL = "all"
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
    asked = scenario(scenario_asked(options))
    K = asked.speculation.draft_tokens
    known = choose(
        asked_acceptance(options), replayed=None, method=options.method, segments=(ALL,), draft_tokens=K, target=asked.target.name
    )
    context = options.context or options.prompt_tokens + ceil(options.output_tokens / 2)
    lengths = Lengths(prompt_tokens=options.prompt_tokens, output_tokens=options.output_tokens, context_tokens=context)
    rows = forecast(
        target=asked.target,
        where=asked.where,
        speculation=asked.speculation,
        draft=asked.draft,
        acceptance=known.by_segment[ALL],
        concurrencies=options.concurrency,
        lengths=lengths,
        draft_lengths=DRAFT_LENGTHS,
        utilisation=asked.utilisation,
    )
    profile_label = known.label if known.evidence is Evidence.PROFILE else None
    pairing = Pairing(trained_for=None, draft_vocab=None, profile_label=profile_label)
    conditions = when_not(row=rows[-1], lengths=lengths, target=asked.target, pairing=pairing)
    said = lesson(alpha=known.by_segment[ALL].alpha, draft_tokens=K, overhead=max(0.0, rows[0].step_time_ratio.value - 1))
    where = asked.where
    head = f"{asked.target.name} {where.dtype.value} on {where.gpus} {where.gpu.name}, {options.method.value}, K = {K}"
    body = forecast_dict(rows, conditions) | {
        "acceptance": {"label": known.label, "evidence": known.evidence.value, "survival": list(known.by_segment[ALL].survival)},
        "lesson": lesson_dict(said),
        "deviations": lesson_dict(said)["deviations"],
    }
    text = f"{ascii_controls(f'{head}; acceptance {known.label}')}\n\n{forecast_text(rows, conditions)}"
    answer(options, body=body, text=text, inputs={})
    return 0


def run_memory(options: argparse.Namespace) -> int:
    """`memory`."""
    asked = scenario(scenario_asked(options))
    found = asked.memory(options.context)
    where = asked.where
    head = f"{asked.target.name} {where.dtype.value} on {where.gpus} {where.gpu.name}, {asked.utilisation:.0%} of memory"
    text = f"{ascii_controls(head)}\n\n{memory_text(found, asked.draft, context_tokens=options.context)}"
    body = {"gpus": where.gpus, "context_tokens": options.context} | memory_dict(found, asked.draft)
    answer(options, body=body, text=text, inputs={})
    return 0


def run_simulate(options: argparse.Namespace) -> int:
    """`simulate`: both arms, at one concurrency, one rate, or a trace's own times."""
    asked = scenario(scenario_asked(options))
    with progress("reading traffic", total=None) as bar:
        traffic = load_traffic((options.traffic,), reading(options), progress=bar)
    replayed = None if traffic.replayed is None else traffic.replayed.pooled()
    known = choose(
        asked_acceptance(options),
        replayed=replayed,
        method=options.method,
        segments=traffic.workload.segments,
        draft_tokens=asked.speculation.draft_tokens,
        target=asked.target.name,
    )
    if options.own_times and not traffic.has_arrivals:
        raise BadInputError(f"{traffic.workload.source} has no times of its own; give --concurrency or --rate")
    load = Load(concurrency=None if options.own_times or options.rate else options.concurrency, rate_per_s=options.rate)
    arms = simulated_arms(asked, traffic.workload, known.by_segment, load, simulation_plan(options), own_arrivals=options.own_times)
    if options.out is not None:
        make_folder(options.out)
        for run in arms:
            write_run(run, options.out / f"{run.arm.value}.json")
    rng = np.random.default_rng(options.seed)
    figures = arms_dict(*arms, confidence=CONFIDENCE, rng=rng)
    if options.slo is not None:
        for run in arms:
            figures["arms"][run.arm.value]["goodput"] = goodput_dict(run, options.slo, confidence=CONFIDENCE)
    body = figures | {
        "paired_differences": paired_dict(*arms, confidence=CONFIDENCE),
        "harmed": harmed_requests(*arms, most=len(arms[0].requests or ())),
        "acceptance_label": known.label,
        "notes": [*traffic.notes, *traffic.warnings],
    }
    notes = "\n".join(f"note: {ascii_controls(each)}" for each in (f"acceptance {known.label}", *traffic.notes, *traffic.warnings))
    answer(options, body=body, text=f"{arms_text(*arms, body)}\n\n{notes}", inputs=traffic.inputs)
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


def written(out: Path | None) -> str:
    """Where files went, as a line for a person."""
    return "" if out is None else f"files in {out}"
