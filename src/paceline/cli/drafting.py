"""What the verbs of `draft` do once they are asked."""

import argparse
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np

from paceline.cli.options import VLLM_SUFFIX
from paceline.cli.output import answer, progress
from paceline.cli.training import engine_needed
from paceline.errors import BadInputError, printable
from paceline.files.bounded import read_bounded
from paceline.replay.ngram import NgramRule
from paceline.replay.suffix import SuffixRule
from paceline.report.evidence import replayed_dict
from paceline.report.generation import generation_dict, generation_text, shown
from paceline.speculation.method import Method

if TYPE_CHECKING:
    from paceline.jobs.generating import Generating

__all__ = ["run_generate"]

CONFIDENCE = 0.95
MOST_PROMPT_BYTES = 64 << 20


def run_generate(options: argparse.Namespace) -> int:
    """`generate`: texts, and where each of their tokens came from."""
    if options.method is Method.EAGLE2 and options.tree is None:
        raise BadInputError("--method eagle2 drafts a tree; give --tree D,T,N, or --method eagle for a chain with the same head")
    prompts = _prompts(options)
    with engine_needed():
        import torch

        from paceline.engine.sampling import Sampling
        from paceline.jobs.generating import load_drafter, load_engine, write

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    asked = _asked(options)
    engine = load_engine(options.target, dtype=options.dtype, device=options.device)
    drafter = load_drafter(asked, engine.target)
    sampling = Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
    )
    with nullcontext(_unseen) if options.stream else progress("writing", len(prompts) * options.max_tokens) as bar:
        written, seconds = write(
            engine,
            drafter,
            prompts,
            raw=options.raw,
            sampling=sampling,
            most_tokens=options.max_tokens,
            positions=asked.positions,
            seed=options.seed,
            on_text=_streamed if options.stream else _kept,
            progress=bar,
        )
    rng = np.random.default_rng(options.seed)
    acceptance = replayed_dict({"all": [each.counts for each in written]}, confidence=CONFIDENCE, rng=rng)
    body = generation_dict(written, acceptance, seconds=seconds)
    how = "plain decoding" if asked.method is None else f"drafts: {asked.method.value}, K = {asked.positions}"
    if asked.tree is not None:
        how += f", a tree {asked.tree.depth},{asked.tree.topk},{asked.tree.nodes}"
    text = generation_text(written, body, how=how, streamed=options.stream)
    answer(options, body=body, text=("\n\n" if options.stream else "") + text, inputs={})
    return 0


def _prompts(options: argparse.Namespace) -> list[str]:
    if options.stream and options.json:
        raise BadInputError("--stream prints text while it is written, --json one object at the end; give one of them")
    lines = []
    if options.prompt_file is not None:
        content = read_bounded(options.prompt_file, what="the prompts", most_bytes=MOST_PROMPT_BYTES, remedy="give a text, a prompt a line")
        try:
            lines = content.decode("utf-8").splitlines()
        except UnicodeDecodeError as fault:
            raise BadInputError(f"the prompts {printable(str(options.prompt_file))} cannot be read: {printable(str(fault))}") from None
    prompts = [*options.prompt, *(line for line in lines if line.strip())]
    if not prompts:
        raise BadInputError("nothing is asked; give --prompt, or --prompt-file with a prompt a line")
    return prompts


def _asked(options: argparse.Namespace) -> "Generating":
    from paceline.jobs.generating import Generating

    depth = options.draft_tokens if options.tree is None else options.tree.depth
    rule = (
        SuffixRule(draft_tokens=depth, **{name: getattr(options, f"suffix_{name}") for name in VLLM_SUFFIX})
        if options.method == Method.SUFFIX
        else NgramRule(min_tokens=options.ngram_min, max_tokens=options.ngram_max, draft_tokens=depth)
    )
    return Generating(
        method=options.method if isinstance(options.method, Method) else None,
        draft=options.draft,
        draft_tokens=depth,
        tree=options.tree,
        draft_temperature=options.draft_temperature,
        rule=rule,
    )


def _streamed(text: str) -> None:
    sys.stdout.write(shown(text))
    sys.stdout.flush()


def _kept(text: str) -> None:
    """Text that is printed at the end."""


def _unseen(_done: float) -> None:
    """Progress that the text itself shows."""
