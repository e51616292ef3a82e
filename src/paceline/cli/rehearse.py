"""The verb that rehearses without GPUs: fake-server."""

import argparse
from pathlib import Path

from paceline.cli.acceptance_options import add_acceptance
from paceline.cli.options import (
    Verbs,
    add_draws,
    add_hardware,
    add_json,
    add_method,
    add_replica,
    add_seed,
    add_verb,
    duration,
    place,
    positive,
    positive_int,
    whole_number,
)
from paceline.cli.replica_options import add_draft_lengths

__all__ = ["add_verbs"]

DEFAULT_PORT = 8000


def add_verbs(verbs: Verbs) -> None:
    """The verbs of this group."""
    _add_fake_server(verbs)


def _add_fake_server(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "fake-server",
        _fake_server,
        question="how would my clients, dashboards and rollout behave, without a GPU?",
        example="paceline fake-server --port 8000 --target llama-3.3-70b --gpu h100 --gpus 4 --method eagle3 --survival .8,.6,.45 --for 1s",
    )
    server = parser.add_argument_group("server")
    server.add_argument("--port", type=whole_number, default=DEFAULT_PORT, help="0 takes one that is free (default 8000)")
    server.add_argument("--host", default="127.0.0.1", help="the address it listens on (default 127.0.0.1: this machine alone)")
    server.add_argument("--served-model-name", default=None, metavar="NAME", help="the model's name (default: the target's)")
    server.add_argument("--speed", type=positive, default=1.0, metavar="X", help="time passes X times as fast as simulated (default 1)")
    server.add_argument(
        "--grace",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="who arrives so long after a step began is in time for it: what client and network take in a closed loop (default 0s)",
    )
    server.add_argument(
        "--first-seed", type=whole_number, default=0, metavar="N", help="a request with seed N + i has the draws of request i (default 0)"
    )
    server.add_argument(
        "--output-tokens", type=positive_int, default=128, metavar="N", help="output length of requests that state none (default 128)"
    )
    server.add_argument("--faults", type=Path, default=None, metavar="FILE", help="what goes wrong, and when (TOML)")
    server.add_argument("--record", type=place, default=None, metavar="FILE", help="write there what was sent, and when (JSON lines)")
    server.add_argument("--for", dest="for_s", type=duration, default=None, metavar="TIME", help="end after that time (default: at Ctrl-C)")
    add_hardware(parser)
    add_method(parser, matches=False, or_none=True)
    add_acceptance(parser)
    parser.add_argument("--segments", default="", metavar="NAME,…", help="segments that have acceptance of their own, beside all")
    add_replica(parser)
    drawing = parser.add_argument_group("simulation")
    add_draws(drawing)
    add_draft_lengths(drawing)
    add_seed(parser)
    add_json(parser)


def _fake_server(options: argparse.Namespace) -> int:
    from paceline.cli.rehearsing import run_fake_server

    return run_fake_server(options)
