"""Verbs that turn evidence into figures: replay, measure, gate, diagnose."""

import argparse
from pathlib import Path

from paceline.cli.launch_options import add_launch, lengths
from paceline.cli.options import (
    Verbs,
    add_json,
    add_ngram,
    add_seed,
    add_traffic,
    add_verb,
    counts,
    duration,
    fraction,
    not_negative,
    place,
    positive,
    positive_int,
)
from paceline.cli.replica_options import add_suffix
from paceline.cli.train import add_answering
from paceline.hardware import Dtype
from paceline.speculation.method import Method

__all__ = ["add_verbs"]

EVIDENCE = (
    "a run file, a vLLM /metrics dump (since the server's start), or the result file or folder of a load-tester (docs: result-files); "
    "FILE#LABEL for one of several runs"
)


def add_verbs(verbs: Verbs) -> None:
    """The verbs of this group."""
    _add_replay(verbs)
    _add_bench(verbs)
    _add_measure(verbs)
    _add_gate(verbs)
    _add_diagnose(verbs)


def _add_replay(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "replay",
        _replay,
        question="what is the acceptance on my traffic, without a server?",
        example="paceline replay demo --method ngram --draft-tokens 5 --ngram-min 2 --ngram-max 4",
    )
    parser.add_argument("logs", nargs="+", metavar="LOG", help="chat logs (JSONL or JSON, .gz too), or demo for the packaged traffic")
    parser.add_argument(
        "--method",
        choices=["ngram", "suffix", "eagle3", "draft-model"],
        default="ngram",
        help="what drafts: ngram (default) or suffix need no model, eagle3 and draft-model need --target and --draft",
    )
    parser.add_argument("--draft-tokens", type=positive_int, default=3, metavar="K", help="tokens drafted per step (default 3)")
    add_ngram(parser)
    add_suffix(parser)
    add_traffic(parser)
    models = parser.add_argument_group("models (eagle3, draft-model)")
    models.add_argument("--target", type=Path, default=None, metavar="DIR", help="the target: a folder with config.json and safetensors")
    models.add_argument("--draft", type=Path, default=None, metavar="DIR", help="the EAGLE-3 head's or the draft model's folder")
    models.add_argument("--draft-temperature", type=positive, default=None, metavar="T", help="draw drafts at T (default: argmax)")
    models.add_argument(
        "--states", type=place, default=None, metavar="DIR", help="keep the target's answers and states there for next time"
    )
    add_answering(parser)
    add_seed(parser)
    add_json(parser)


def _replay(options: argparse.Namespace) -> int:
    if options.method in ("eagle3", "draft-model"):
        from paceline.cli.training import run_neural_replay

        return run_neural_replay(options)
    from paceline.cli.experimenting import run_replay

    return run_replay(options)


def _add_bench(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "bench",
        _bench,
        question="what do my servers do?",
        example="paceline bench --baseline http://127.0.0.1:8000 --speculative http://127.0.0.1:8001 --traffic demo --out bench",
    )
    servers = parser.add_argument_group("servers (one after the other on one GPU: two commands with the same --out)")
    servers.add_argument("--baseline", metavar="URL", help="the server without drafts")
    servers.add_argument("--speculative", metavar="URL", help="the server with drafts")
    servers.add_argument("--api", choices=["chat", "completions"], default="chat", help="which API is asked (default chat)")
    servers.add_argument("--model", default=None, metavar="NAME", help="the model's name, where a server has several")
    servers.add_argument("--method", type=Method, choices=list(Method), default=None, help="how the speculative server drafts")
    servers.add_argument("--draft-tokens", type=positive_int, default=None, metavar="K", help="the same: tokens drafted per step")
    _add_bench_traffic(parser)
    load = parser.add_argument_group("load (one of the first three; 8 in flight without any)")
    load.add_argument("--concurrency", type=counts, default=None, metavar="C[,C]", help="closed loop: requests in flight, one or several")
    load.add_argument("--rate", type=positive, default=None, metavar="R", help="open loop: requests per second, at random")
    load.add_argument("--trace", type=Path, default=None, metavar="FILE", help="open loop: a trace's own times")
    load.add_argument("--burstiness", type=positive, default=1.0, metavar="B", help="of arrivals at a rate: below 1 in bursts (default 1)")
    load.add_argument("--time-scale", type=positive, default=1.0, metavar="F", help="a trace's times F times as fast (default 1)")
    load.add_argument("--pairs", type=positive_int, default=None, metavar="P", help="pairs of blocks (default: as many as fit, 4 at most)")
    load.add_argument(
        "--noise-floor",
        type=fraction,
        default=None,
        metavar="SHARE",
        help="send that share to the baseline twice: how often its own answers differ",
    )
    load.add_argument(
        "--stop-when-decided",
        type=Path,
        nargs="?",
        const=True,
        default=None,
        metavar="POLICY",
        help="stop as soon as the gate can tell under that policy file (default: its own), looked at after each pair of blocks from the "
        "second on; --requests at most. Without it all are sent, whose intervals are the narrowest",
    )
    load.add_argument("--first-byte-timeout", type=duration, default=300.0, metavar="TIME", help="until the first byte (default 300s)")
    load.add_argument("--gap-timeout", type=duration, default=60.0, metavar="TIME", help="between two messages (default 60s)")
    _add_synthetic(parser)
    parser.add_argument("--out", type=place, required=True, metavar="DIR", help="the folder for everything that is measured")
    parser.add_argument("--resume", action="store_true", help="go on with a test that was stopped")
    add_seed(parser)
    add_json(parser)


def _add_synthetic(parser: argparse.ArgumentParser) -> None:
    """Servers that are started here and told what to accept."""
    group = add_launch(parser, title="servers that are started here and told what to accept (instead of --baseline and --speculative)")
    group.add_argument(
        "--synthetic-acceptance",
        type=lengths,
        default=None,
        metavar="L,…",
        help="tokens per step to make up, each from 1 to K + 1: where drafting starts to pay here, before there is a draft",
    )
    group.add_argument("--gpus", type=positive_int, default=1, metavar="N", help="GPUs the target is split over (default 1)")
    group.add_argument("--engine-version", default="0.32.0", metavar="V", help="vLLM's version (default 0.32.0)")


def _add_bench_traffic(parser: argparse.ArgumentParser) -> None:
    """What is sent."""
    group = parser.add_argument_group("traffic")
    group.add_argument("--traffic", nargs="+", default=["demo"], metavar="LOG", help="chat logs, or demo for packaged ones (default)")
    group.add_argument("--requests", type=positive_int, default=400, metavar="N", help="requests counted in each arm (default 400)")
    group.add_argument("--max-tokens", type=positive_int, default=256, metavar="N", help="longest output asked for (default 256)")
    group.add_argument("--temperature", type=not_negative, default=0.0, metavar="T", help="sent with every request (default 0)")
    group.add_argument("--ignore-eos", action="store_true", help="ask servers to go on to the full length")
    group.add_argument("--tokenizer", type=Path, metavar="FILE", help="the target's tokenizer.json, for servers that count no tokens")
    group.add_argument("--segment-field", metavar="NAME", help="the field that names the segment, dots for nested fields")
    group.add_argument("--segment-rule", metavar="RULE", help="code-or-chat or single, where no field names the segment")


def _bench(options: argparse.Namespace) -> int:
    from paceline.cli.benching import run_bench

    return run_bench(options)


def _add_measure(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "measure",
        _measure,
        question="what did that server accept?",
        example="paceline measure --before before.prom --after after.prom",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help=EVIDENCE)
    parser.add_argument("--arm", choices=["baseline", "speculative"], default=None, help="which arm it is, where the file does not say")
    parser.add_argument("--before", type=Path, metavar="DUMP", help="the dump at the window's start")
    parser.add_argument("--after", type=Path, metavar="DUMP", help="the dump at its end")
    parser.add_argument("--url", default=None, metavar="URL", help="a running server: http://HOST:PORT, or the address of its metrics")
    parser.add_argument("--window", type=duration, default=None, metavar="TIME", help="with --url: how long to watch (default 60s)")
    parser.add_argument("--every", type=duration, default=None, metavar="TIME", help="with --url: time between scrapes (default 2s)")
    parser.add_argument("--model", default=None, metavar="NAME", help="which model, where the server has several")
    parser.add_argument("--out", type=place, default=None, metavar="FILE", help="write the run file there")
    parser.add_argument(
        "--profile-out", type=place, default=None, metavar="FILE", help="write the acceptance there as NVIDIA's speculation_profile.json"
    )
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
        example="paceline gate out/runs/c0032-baseline.json out/runs/c0032-speculative.json",
    )
    parser.add_argument("baseline", type=Path, metavar="BASELINE", help="the plain arm: any file or folder that measure reads")
    parser.add_argument("speculative", type=Path, metavar="SPECULATIVE", help="the same of the arm with drafts")
    add_policy(parser)
    add_seed(parser)
    add_json(parser)


def add_policy(parser: argparse.ArgumentParser) -> None:
    """What must hold."""
    group = parser.add_argument_group("policy (what is typed here goes before what the file says)")
    group.add_argument("--policy", type=Path, default=None, metavar="FILE", help="claims, margin and confidence in TOML (docs: gate)")
    group.add_argument(
        "--margin",
        type=fraction,
        default=None,
        help="speed-up worth having, above 1; with --claim only for segments that ship alone (.05)",
    )
    group.add_argument("--confidence", type=fraction, default=None, help="of every interval (default .95)")
    group.add_argument(
        "--alpha-floor", type=fraction, default=None, help="the textbook's floor, a prior where no break-even was measured (default .55)"
    )
    group.add_argument(
        "--felt-ttft",
        type=duration,
        default=None,
        metavar="TIME",
        help="a rise of time to first token that stays below this counts as none (default 100ms; 0s: every rise counts)",
    )
    group.add_argument(
        "--claim", action="append", default=[], metavar="CLAIM", help="replaces the default claims, as 'tpot_p99.ratio <= 1.05 [chat]'"
    )


def _gate(options: argparse.Namespace) -> int:
    from paceline.cli.experimenting import run_gate

    return run_gate(options)


def _add_diagnose(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "diagnose",
        _diagnose,
        question="why is it slow, or slower than it could be?",
        example="paceline diagnose runs/baseline.json runs/speculative.json",
    )
    parser.add_argument(
        "evidence",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="BASELINE and SPECULATIVE, any file or folder that measure reads; SPECULATIVE alone; an earlier and a later speculative run; "
        "or the folder of bench or rollout",
    )
    group = parser.add_argument_group("what the evidence does not say")
    group.add_argument("--method", type=Method, choices=list(Method), default=None, help="how the speculative server drafts")
    group.add_argument("--draft-tokens", type=positive_int, default=None, metavar="K", help="the same: tokens drafted per step")
    group.add_argument("--target", default=None, help="target model, for the step time that its size and GPUs explain")
    group.add_argument("--gpu", default="h100", help="the same: GPU by name (default h100)")
    group.add_argument("--gpus", type=positive_int, default=None, metavar="N", help="the same: GPUs the target is split over")
    group.add_argument("--dtype", type=Dtype, choices=list(Dtype), default=Dtype.FP8, help="the same: weights (default fp8)")
    group.add_argument("--draft", default=None, metavar="NAME|DIR", help="the same: the draft model")
    texts = parser.add_argument_group("answers (default: those beside the runs of a bench folder)")
    texts.add_argument("--baseline-answers", type=Path, default=None, metavar="FILE", help='lines of {"id": …, "text": …}')
    texts.add_argument("--speculative-answers", type=Path, default=None, metavar="FILE", help="the same of the arm with drafts")
    texts.add_argument("--tokenizer", type=Path, metavar="FILE", help="the target's tokenizer.json, for first differing tokens")
    parser.add_argument("--margin", type=fraction, default=0.05, help="speed-up worth having, above 1 (default .05)")
    parser.add_argument("--confidence", type=fraction, default=0.95, help="of every interval (default .95)")
    add_seed(parser)
    add_json(parser)


def _diagnose(options: argparse.Namespace) -> int:
    from paceline.cli.diagnosing import run_diagnose

    return run_diagnose(options)
