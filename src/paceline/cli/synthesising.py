"""What `bench --synthetic-acceptance` does once it is asked."""

import argparse

import numpy as np

from paceline.cli.launch_options import END_S, launch_program
from paceline.cli.output import answer, envelope, say
from paceline.decide.synthetic import break_even, synthetic_point
from paceline.errors import BadInputError, printable
from paceline.jobs.arm_commands import Launching
from paceline.jobs.bench_asked import BenchAsked
from paceline.jobs.labels import without_folders
from paceline.jobs.synthetic import keep_break_even, measured_lengths
from paceline.report.synthetic import synthetic_dict, synthetic_text
from paceline.servers.vllm.versions import vllm_version

__all__ = ["run_synthetic"]

CONFIDENCE = 0.95


def run_synthetic(options: argparse.Namespace, asked: BenchAsked) -> int:
    """Measure every length, and say from which acceptance on drafting pays."""
    if not asked.concurrencies:
        raise BadInputError("--synthetic-acceptance compares steps at equal batch; give --concurrency, not --rate or --trace")
    launching = _launching(options)
    found = measured_lengths(asked, launching, options.synthetic_acceptance, options.out, resume=options.resume, step=say)
    rng = np.random.default_rng(options.seed)
    points = {
        concurrency: [
            synthetic_point(length, each.baseline, run, confidence=CONFIDENCE, rng=rng) for length, run in each.speculative.items()
        ]
        for concurrency, each in found.items()
    }
    ends = {concurrency: break_even(each) for concurrency, each in points.items()}
    body = synthetic_dict(points, ends)
    inputs = next(iter(found.values())).baseline.provenance.inputs
    keep_break_even(envelope(options, body, inputs=inputs), options.out)
    text = f"{synthetic_text(points, ends)}\n\nwritten to {printable(str(options.out))}: break-even.json, plain/, length-…/"
    answer(options, body=body, text=text, inputs=inputs)
    return 0


def _launching(options: argparse.Namespace) -> Launching:
    """How the servers are started.

    Raises:
        BadInputError: nobody said what is loaded, or how it drafts.

    """
    if options.launch_model is None or options.method is None:
        raise BadInputError("say what the servers load and how they draft: --launch-model, --method and --draft-tokens")
    return Launching(
        engine=options.launch,
        program=launch_program(options),
        model=options.launch_model,
        name=options.model or without_folders([options.launch_model])[0],
        method=options.method,
        draft=options.launch_draft,
        draft_tokens=options.draft_tokens,
        ngram=(1, 1),
        gpus=options.gpus,
        version=vllm_version(options.engine_version),
        extra=tuple(options.launch_arg),
        synthetic_length=None,
        ready_s=options.launch_timeout,
        end_s=END_S,
    )
