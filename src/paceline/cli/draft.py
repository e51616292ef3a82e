"""Verbs of the drafting engine, which need the extra `engine`: generate."""

import argparse
from pathlib import Path

from paceline.cli.options import (
    Verbs,
    add_json,
    add_ngram,
    add_seed,
    add_verb,
    finite,
    fraction,
    not_negative,
    positive,
    positive_int,
    positive_int_to,
    tree,
    whole_number,
)
from paceline.cli.replica_options import add_suffix
from paceline.speculation.method import Method

__all__ = ["add_verbs"]

NOTHING = "none"
MOST_THREADS = 4_096
DRAFTING = [Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE2, Method.EAGLE3, Method.NGRAM, Method.SUFFIX]


def add_verbs(verbs: Verbs) -> None:
    """The verbs of this group."""
    _add_generate(verbs)


def drafting_engine_method(text: str) -> Method | str:
    """A method, or none."""
    return Method(text) if text in list(Method) else text


def _add_generate(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "generate",
        _generate,
        question="what does drafting do, token by token? (needs the extra engine)",
        example='paceline generate --target smollm2-135m-instruct --method ngram --prompt "Say this twice: riders in a line."',
    )
    parser.add_argument(
        "--target", type=Path, required=True, metavar="DIR", help="the target's folder: config.json, safetensors, tokenizer"
    )
    parser.add_argument("--prompt", action="append", default=[], metavar="TEXT", help="what is asked; several are written side by side")
    parser.add_argument("--prompt-file", type=Path, default=None, metavar="FILE", help="prompts, one a line")
    parser.add_argument("--raw", action="store_true", help="prompts as they are, without the model's chat template")
    parser.add_argument("--max-tokens", type=positive_int, default=128, metavar="N", help="longest output (default 128)")
    parser.add_argument("--stream", action="store_true", help="print the text while it is written; of several prompts the first one's")
    drafting = parser.add_argument_group("drafting")
    drafting.add_argument(
        "--method",
        type=drafting_engine_method,
        choices=[*DRAFTING, NOTHING],
        default=Method.NGRAM,
        help="what drafts (default ngram); none: plain decoding",
    )
    drafting.add_argument("--draft", type=Path, default=None, metavar="DIR", help="the draft model's or head's folder, safetensors only")
    drafting.add_argument("--draft-tokens", type=positive_int, default=3, metavar="K", help="tokens drafted per step (default 3)")
    drafting.add_argument(
        "--tree", type=tree, default=None, metavar="D,T,N", help="of an EAGLE head: depth, children per node, nodes verified"
    )
    drafting.add_argument(
        "--draft-temperature",
        type=not_negative,
        default=0.0,
        metavar="T",
        help="0 drafts the likeliest tokens, above they are drawn (default 0)",
    )
    add_ngram(drafting)
    add_suffix(parser)
    _add_sampling(parser)
    running = parser.add_argument_group("running")
    running.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32", help="of all weights (default float32)")
    running.add_argument("--device", default="cpu", metavar="NAME", help="where: cpu, cuda, cuda:1, … (default cpu)")
    running.add_argument(
        "--threads", type=positive_int_to(MOST_THREADS), default=None, metavar="N", help="threads on a CPU (default: torch's own choice)"
    )
    add_seed(parser)
    add_json(parser)


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    """How a token is drawn."""
    group = parser.add_argument_group("sampling (applied at every verified position)")
    group.add_argument("--temperature", type=not_negative, default=0.0, metavar="T", help="0 takes the likeliest token (default 0)")
    group.add_argument("--top-k", type=whole_number, default=0, metavar="N", help="of the N likeliest tokens, 0 for all (default 0)")
    group.add_argument("--top-p", type=fraction, default=1.0, metavar="P", help="of the likeliest tokens up to probability P (default 1)")
    group.add_argument("--min-p", type=fraction, default=0.0, metavar="P", help="of tokens at least P times as likely as the likeliest (0)")
    group.add_argument("--repetition-penalty", type=positive, default=1.0, metavar="R", help="on tokens seen before (default 1: none)")
    group.add_argument("--presence-penalty", type=finite, default=0.0, metavar="R", help="on tokens of the output (default 0)")
    group.add_argument("--frequency-penalty", type=finite, default=0.0, metavar="R", help="the same, times how often (default 0)")


def _generate(options: argparse.Namespace) -> int:
    from paceline.cli.drafting import run_generate

    return run_generate(options)
