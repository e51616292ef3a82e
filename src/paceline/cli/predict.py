"""Verbs that need no server: lesson, forecast, memory, simulate, sweep."""

import argparse
import os
from pathlib import Path

from paceline.cli.acceptance_options import add_acceptance
from paceline.cli.options import (
    Verbs,
    add_hardware,
    add_json,
    add_method,
    add_replica,
    add_seed,
    add_simulation,
    add_traffic,
    add_verb,
    counts,
    fraction,
    not_negative,
    place,
    positive,
    positive_int,
    probabilities,
    segment_share,
)
from paceline.cli.replica_options import add_whole_replica

__all__ = ["add_verbs"]


def add_verbs(verbs: Verbs) -> None:
    """The verbs of this group."""
    _add_lesson(verbs)
    _add_forecast(verbs)
    _add_memory(verbs)
    _add_simulate(verbs)
    _add_sweep(verbs)


def _add_lesson(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "lesson",
        _lesson,
        question="what does the textbook say, and where does it part with reality?",
        example="paceline lesson --alpha 0.7 --draft-tokens 5 --overhead 0.1",
    )
    parser.add_argument("--alpha", type=fraction, help="acceptance rate, as the textbook reads it")
    parser.add_argument("--draft-tokens", type=positive_int, required=True, metavar="K", help="tokens drafted per step")
    parser.add_argument(
        "--overhead", type=not_negative, required=True, metavar="E", help="ε: what a speculative step costs beyond a plain one"
    )
    parser.add_argument(
        "--segment",
        type=segment_share,
        action="append",
        default=[],
        metavar="NAME:SHARE:ALPHA",
        help="blend segments instead of --alpha; SHARE is of generated tokens",
    )
    add_json(parser)


def _lesson(options: argparse.Namespace) -> int:
    from paceline.cli.predicting import run_lesson

    return run_lesson(options)


def _add_forecast(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "forecast",
        _forecast,
        question="what would drafting buy, by concurrency?",
        example="paceline forecast --target llama-3.3-70b --gpu h100 --gpus 4 --method eagle3 --alpha 0.5 --concurrency 1,8,64,256",
    )
    add_hardware(parser)
    add_method(parser, matches=False, or_none=False)
    add_acceptance(parser)
    parser.add_argument("--concurrency", type=counts, default=(1, 8, 32, 64, 128, 256), metavar="N,…", help="requests decoding together")
    parser.add_argument(
        "--context", type=positive_int, default=None, metavar="TOKENS", help="context of a decode step (default: prompt + output / 2)"
    )
    parser.add_argument("--prompt-tokens", type=positive_int, default=500, metavar="N", help="prompt length (default 500)")
    parser.add_argument("--output-tokens", type=positive_int, default=250, metavar="N", help="output length (default 250)")
    shift = parser.add_argument_group("where acceptance was measured elsewhere (off unless given)")
    shift.add_argument("--temperature", type=not_negative, default=None, metavar="T", help="sample at T; acceptance is stated for 0")
    shift.add_argument(
        "--draft-context", type=positive_int, default=None, metavar="N", help="longest context the draft knows; beyond it acceptance decays"
    )
    add_calibration(parser)
    add_json(parser)


def add_calibration(parser: argparse.ArgumentParser) -> None:
    """What the cost of a step is calibrated with."""
    engine = parser.add_argument_group("calibration (without either, packaged coefficients with the error of published points)")
    engine.add_argument(
        "--calibrate",
        type=Path,
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="two or more points of your own server, in one or several files: CSV or JSON with concurrency, draft_tokens, context, "
        "plain_step_s, speculative_step_s, step_time_ratio; or run files, or the folder that holds them; a point without "
        "context has the forecast's, the traffic's mean, or a sweep's first",
    )
    engine.add_argument(
        "--engine", default=None, metavar="NAME", help="engine family fitted to published points: vllm, sglang, hf, llama.cpp"
    )


def _forecast(options: argparse.Namespace) -> int:
    from paceline.cli.predicting import run_forecast

    return run_forecast(options)


def _add_memory(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "memory",
        _memory,
        question="does the draft fit, and what does it cost in concurrency?",
        example="paceline memory --target llama-3.3-70b --gpu h100 --gpus 2 --dtype fp8 --method eagle3 --context 2000",
    )
    add_hardware(parser)
    add_method(parser, matches=False, or_none=False)
    parser.add_argument("--context", type=positive_int, default=2000, metavar="TOKENS", help="tokens of context per request (default 2000)")
    add_replica(parser)
    add_json(parser)


def _memory(options: argparse.Namespace) -> int:
    from paceline.cli.predicting import run_memory

    return run_memory(options)


def _add_simulate(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "simulate",
        _simulate,
        question="what would users feel, with and without drafts?",
        example="paceline simulate --traffic demo --target llama-3.3-70b --gpu h100 --gpus 4 --concurrency 32 --out out-simulate",
    )
    add_hardware(parser)
    add_method(parser, matches=True, or_none=False)
    add_acceptance(parser)
    add_traffic(parser)
    parser.add_argument(
        "--traffic",
        default="demo",
        metavar="LOG|demo",
        help="a chat log, a trace (Azure, BurstGPT, Mooncake), or the packaged demo traffic (default)",
    )
    arrivals = parser.add_mutually_exclusive_group()
    arrivals.add_argument("--concurrency", type=positive_int, default=None, metavar="N", help="requests in flight (default 32)")
    arrivals.add_argument("--rate", type=positive, default=None, metavar="R", help="Poisson arrivals, requests per second")
    arrivals.add_argument("--own-times", action="store_true", help="the trace's own arrivals")
    parser.add_argument("--out", type=place, default=None, metavar="DIR", help="write both run files there")
    add_simulation(parser)
    add_whole_replica(parser)
    add_calibration(parser)
    add_seed(parser)
    add_json(parser)


def _simulate(options: argparse.Namespace) -> int:
    from paceline.cli.predicting import run_simulate

    return run_simulate(options)


def _add_sweep(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "sweep",
        _sweep,
        question="where does drafting pay, and with which draft length at which load?",
        example="paceline sweep --gpu h100 --gpus 4 --alphas .3,.5,.7 --draft-lengths 1,3,5 --concurrencies 1,8,64,256",
    )
    add_hardware(parser)
    add_method(parser, matches=False, or_none=False)
    group = parser.add_argument_group("grid")
    group.add_argument(
        "--alphas",
        type=probabilities,
        default=(0.3, 0.5, 0.7),
        metavar="A,…",
        help="accepted / drafted at --draft-tokens (default .3,.5,.7)",
    )
    group.add_argument("--draft-lengths", type=counts, default=(1, 3, 5), metavar="K,…", help="tokens drafted per step (default 1,3,5)")
    group.add_argument(
        "--concurrencies", type=counts, default=None, metavar="N,…", help="requests in flight (default 1, 8, 64 and --max-requests)"
    )
    group.add_argument(
        "--contexts", type=counts, default=(700, 2000), metavar="TOKENS,…", help="context of a decode step (default 700,2000)"
    )
    group.add_argument("--output-tokens", type=positive_int, default=250, metavar="N", help="output length (default 250)")
    parser.add_argument("--simulate", action="store_true", help="simulate every point too; best draft lengths then rest on that")
    parser.add_argument("--out", type=place, default=None, metavar="DIR", help="keep points there as they finish, and go on from them")
    parser.add_argument("--workers", type=positive_int, default=os.cpu_count() or 1, metavar="N", help="processes (default: one per core)")
    add_simulation(parser)
    add_calibration(parser)
    add_seed(parser)
    add_json(parser)


def _sweep(options: argparse.Namespace) -> int:
    from paceline.cli.sweeping import run_sweep

    return run_sweep(options)
