"""Verbs that turn evidence into figures: replay, measure, gate."""

import argparse
from pathlib import Path

from paceline.cli.options import (
    Verbs,
    add_json,
    add_ngram,
    add_seed,
    add_suffix,
    add_traffic,
    add_verb,
    duration,
    fraction,
    place,
    positive_int,
)

__all__ = ["add_verbs"]


def add_verbs(verbs: Verbs) -> None:
    """The verbs of this group."""
    _add_replay(verbs)
    _add_measure(verbs)
    _add_gate(verbs)


def _add_replay(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "replay",
        _replay,
        question="what is the acceptance on my traffic, without a server?",
        example="paceline replay demo --method ngram --draft-tokens 5 --ngram-min 2 --ngram-max 4",
    )
    parser.add_argument("logs", nargs="+", metavar="LOG", help="chat logs (JSONL or JSON, .gz too), or demo for the packaged traffic")
    parser.add_argument("--method", choices=["ngram", "suffix"], default="ngram", help="what drafts without a model (default ngram)")
    parser.add_argument("--draft-tokens", type=positive_int, default=5, metavar="K", help="tokens drafted per step (default 5)")
    add_ngram(parser)
    add_suffix(parser)
    add_traffic(parser)
    add_seed(parser)
    add_json(parser)


def _replay(options: argparse.Namespace) -> int:
    from paceline.cli.experimenting import run_replay

    return run_replay(options)


def _add_measure(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "measure",
        _measure,
        question="what did that server accept?",
        example="paceline measure --before before.prom --after after.prom",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a /metrics dump (since the server's start), or a run file")
    parser.add_argument("--before", type=Path, metavar="DUMP", help="the dump at the window's start")
    parser.add_argument("--after", type=Path, metavar="DUMP", help="the dump at its end")
    parser.add_argument("--url", default=None, metavar="URL", help="a running server: http://HOST:PORT, or the address of its metrics")
    parser.add_argument("--window", type=duration, default=None, metavar="TIME", help="with --url: how long to watch (default 60s)")
    parser.add_argument("--every", type=duration, default=None, metavar="TIME", help="with --url: time between scrapes (default 2s)")
    parser.add_argument("--model", default=None, metavar="NAME", help="which model, where the server has several")
    parser.add_argument("--out", type=place, default=None, metavar="FILE", help="write the run file there")
    add_json(parser)


def _measure(options: argparse.Namespace) -> int:
    from paceline.cli.experimenting import run_measure

    return run_measure(options)


def _add_gate(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "gate",
        _gate,
        question="ship it? (exit code 0 yes, 1 no, 4 not enough evidence)",
        example="paceline gate runs/baseline.json runs/speculative.json",
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="run file or /metrics dump of the plain arm")
    parser.add_argument("speculative", type=Path, metavar="SPECULATIVE", help="the same of the arm with drafts")
    add_policy(parser)
    add_seed(parser)
    add_json(parser)


def add_policy(parser: argparse.ArgumentParser) -> None:
    """What must hold."""
    group = parser.add_argument_group("policy")
    group.add_argument("--margin", type=fraction, default=0.05, help="speed-up worth having, above 1 (default .05)")
    group.add_argument("--confidence", type=fraction, default=0.95, help="of every interval (default .95)")
    group.add_argument("--alpha-floor", type=fraction, default=0.55, help="the textbook's floor, shown beside the verdict (default .55)")
    group.add_argument(
        "--felt-ttft",
        type=duration,
        default=0.1,
        metavar="TIME",
        help="a rise of time to first token that stays below this counts as none (default 100ms; 0s: every rise counts)",
    )
    group.add_argument(
        "--claim", action="append", default=[], metavar="CLAIM", help="replaces the default claims, as 'tpot_p99.ratio <= 1.05 [chat]'"
    )


def _gate(options: argparse.Namespace) -> int:
    from paceline.cli.experimenting import run_gate

    return run_gate(options)
