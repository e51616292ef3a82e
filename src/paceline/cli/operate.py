"""Verbs that act: rollout, plan, config, lint."""

import argparse
from pathlib import Path

from paceline.cli.acceptance_options import add_acceptance
from paceline.cli.engine_options import add_any_engine, add_emitted
from paceline.cli.experiment import add_policy
from paceline.cli.launch_options import add_launch
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
)

__all__ = ["add_verbs"]

ENGINES = ("vllm", "sglang", "llamacpp", "tensorrt_llm")


def add_verbs(verbs: Verbs) -> None:
    """The verbs of this group."""
    _add_rollout(verbs)
    _add_plan(verbs)
    _add_config(verbs)
    _add_lint(verbs)


def _add_rollout(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "rollout",
        _rollout,
        question="the whole job: traffic in; acceptance, forecast, both arms, verdict, plan and report out",
        example="paceline rollout --traffic demo --target llama-3.3-70b --gpu h100 --gpus 4 --out out-rollout",
    )
    parser.add_argument("--traffic", nargs="+", default=["demo"], metavar="LOG", help="chat logs, one trace, or demo (default)")
    parser.add_argument(
        "--out", type=place, default=Path("out"), metavar="DIR", help="folder for report, plan, verdict and runs (default out)"
    )
    parser.add_argument(
        "--concurrency", type=counts, default=(1, 8, 32, 64), metavar="N,…", help="points to decide at; the largest is production"
    )
    parser.add_argument(
        "--requests-per-s", type=positive, default=None, metavar="R", help="production traffic, for the length of ramp stages"
    )
    servers = parser.add_argument_group("servers (without them both arms are simulated, and rehearsed on two fake servers)")
    servers.add_argument("--baseline", metavar="URL", default=None, help="your server without drafts")
    servers.add_argument("--speculative", metavar="URL", default=None, help="your server with drafts")
    servers.add_argument("--model", metavar="NAME", default=None, help="the model's name, where a server has several")
    servers.add_argument(
        "--measured-requests", type=positive_int, default=400, metavar="N", help="requests measured per arm and point (400)"
    )
    servers.add_argument("--max-tokens", type=positive_int, default=256, metavar="N", help="longest output asked for (default 256)")
    servers.add_argument("--temperature", type=not_negative, default=0.0, metavar="T", help="sent with every request (default 0)")
    servers.add_argument(
        "--noise-floor",
        type=fraction,
        default=0.25,
        metavar="SHARE",
        help="at temperature 0 send that share to the baseline twice: how often its own answers differ (default .25; 0: none)",
    )
    servers.add_argument("--resume", action="store_true", help="go on with a measurement that was stopped, or decide again from it")
    servers.add_argument("--no-rehearsal", action="store_true", help="start no fake servers")
    add_launch(parser, title="servers that are started here (instead of --baseline and --speculative)")
    parser.add_argument("--exit-verdict", action="store_true", help="exit by the verdict, as gate does")
    add_engine(parser)
    add_hardware(parser)
    add_method(parser, matches=True, or_none=False)
    add_acceptance(parser)
    add_traffic(parser, tokenizer="that of --target DIR; else bytes, labelled as such")
    add_simulation(parser)
    add_policy(parser)
    add_seed(parser)
    add_json(parser)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Which server, in which version."""
    group = parser.add_argument_group("server")
    group.add_argument("--engine", choices=["vllm"], default="vllm", help="server dialect; this version writes vLLM's")
    group.add_argument("--engine-version", default="0.32.0", metavar="V", help="its version (default 0.32.0)")


def _rollout(options: argparse.Namespace) -> int:
    from paceline.cli.operating import run_rollout

    return run_rollout(options)


def _add_plan(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "plan",
        _plan,
        question="how do I roll it out?",
        example="paceline plan out-rollout --target llama-3.3-70b --gpu h100 --gpus 4 --method eagle3",
    )
    parser.add_argument(
        "evidence", nargs="+", type=Path, metavar="FILE", help="BASELINE and SPECULATIVE run files, or the folder that rollout wrote"
    )
    parser.add_argument(
        "--requests-per-s", type=positive, default=None, metavar="R", help="production traffic, for the length of ramp stages"
    )
    parser.add_argument("--out", type=place, default=None, metavar="DIR", help="write plan.md and plan.json there")
    add_engine(parser)
    add_hardware(parser)
    add_method(parser, matches=True, or_none=False)
    add_replica(parser)
    add_policy(parser)
    add_seed(parser)
    add_json(parser)


def _plan(options: argparse.Namespace) -> int:
    from paceline.cli.operating import run_plan

    return run_plan(options)


def _add_config(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "config",
        _config,
        question="how do I switch it on, and what does it combine with in that version?",
        example="paceline config --engine vllm --engine-version 0.18.0 --target llama-3.3-70b --method eagle3 --draft-tokens 3",
    )
    add_any_engine(parser)
    add_emitted(parser)
    add_hardware(parser)
    add_method(parser, matches=True, or_none=False)
    add_replica(parser)
    add_json(parser)


def _config(options: argparse.Namespace) -> int:
    from paceline.cli.configuring import run_config

    return run_config(options)


def _add_lint(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "lint",
        _lint,
        question="is this configuration right for that version? (exit code 0 yes, 1 an error was found)",
        example="""
          paceline lint --engine vllm --engine-version 0.18.0 --speculative-config '{"method": "ngram", "num_speculative_tokens": 4}'
        """,
    )
    parser.add_argument(
        "configuration",
        nargs="*",
        metavar="FILE",
        help="JSON, YAML, a script, a compose file or a Kubernetes manifest; or, behind --, a whole command line: -- vllm serve …",
    )
    parser.add_argument("--engine", choices=ENGINES, default="vllm", help="server dialect (default vllm)")
    parser.add_argument("--engine-version", required=True, metavar="V", help="its version, such as 0.32.0")
    parser.add_argument("--speculative-config", default=None, metavar="JSON", help="vLLM's, alone or beside a command line")
    parser.add_argument("--target", type=Path, default=None, metavar="DIR", help="the served model's folder (default: where one is named)")
    parser.add_argument("--draft", type=Path, default=None, metavar="DIR", help="the draft's folder (default: where one is named)")
    parser.add_argument(
        "--requests-use",
        action="append",
        choices=("images", "logit-bias", "min-p", "n", "penalties", "structured-output"),
        default=None,
        help="what requests use, several times for several: judged instead of only mentioned",
    )
    add_json(parser)


def _lint(options: argparse.Namespace) -> int:
    from paceline.cli.linting import run_lint

    return run_lint(options)
