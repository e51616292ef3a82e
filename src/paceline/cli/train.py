"""The verb that makes a draft: train-eagle3."""

import argparse
from pathlib import Path

from paceline.cli.options import (
    Verbs,
    add_json,
    add_seed,
    add_verb,
    counts,
    fraction,
    not_negative,
    place,
    positive,
    positive_int,
    positive_int_to,
)
from paceline.speculation.method import MOST_DRAFT_TOKENS

__all__ = ["add_answering", "add_verbs"]


def add_verbs(verbs: Verbs) -> None:
    """The verb of this group."""
    parser = add_verb(
        verbs,
        "train-eagle3",
        _train,
        question="my α is too low: train a draft head on my own traffic that vLLM and SGLang load",
        example="paceline train-eagle3 chats.jsonl --target SmolLM2-135M-Instruct --out head",
    )
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="chat logs; prompts are enough, for the target answers them")
    parser.add_argument("--target", type=Path, required=True, metavar="DIR", help="the target: a folder with config.json and safetensors")
    parser.add_argument("--out", type=place, required=True, metavar="DIR", help="folder for the head, its curves and the work in progress")
    parser.add_argument("--resume", action="store_true", help="go on with the training in --out")
    parser.add_argument(
        "--fsdp", action="store_true", help="share the target's layers between torchrun's processes: for a target larger than one device"
    )
    parser.add_argument(
        "--for-speculators", type=place, metavar="DIR", help="write answers and states to DIR for the speculators library; do not train"
    )
    add_answering(parser)
    _add_head(parser)
    _add_training(parser)
    add_seed(parser)
    add_json(parser)


def add_answering(parser: argparse.ArgumentParser) -> None:
    """How a log's answers come about, and how it is read."""
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--logged-answers", action="store_true", help="take the log's own answers, written by this target; else it answers at temperature 0"
    )
    group.add_argument("--max-tokens", type=positive_int, default=256, metavar="N", help="longest answer of the target (default 256)")


def _add_head(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("head")
    group.add_argument("--draft-vocab", type=positive_int, default=2048, metavar="N", help="tokens that it can draft (default 2048)")
    group.add_argument(
        "--aux-layers", type=counts, default=None, metavar="N,…", help="layers it reads, N after N layers (default 2, half, all but 3)"
    )
    group.add_argument(
        "--intermediate", type=positive_int, default=None, metavar="N", help="size within its feed-forward (default: the target's)"
    )
    group.add_argument("--segment-field", metavar="NAME", help="the field that names the segment, dots for nested fields")
    group.add_argument("--segment-rule", metavar="RULE", help="code-or-chat or single, where no field names the segment")


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", type=positive_int, default=10, metavar="N", help="passes over the conversations (default 10)")
    group.add_argument("--rows", type=positive_int, default=4, metavar="N", help="conversations per update (default 4)")
    group.add_argument(
        "--passes",
        type=positive_int_to(MOST_DRAFT_TOKENS),
        default=4,
        metavar="N",
        help="drafts per step that the head learns on its own output (default 4)",
    )
    group.add_argument(
        "--draft-tokens",
        type=positive_int_to(MOST_DRAFT_TOKENS),
        default=3,
        metavar="K",
        help="K at which the best epoch is chosen (default 3)",
    )
    group.add_argument("--learning-rate", type=positive, default=1e-3, metavar="R", help="AdamW's, at its peak (default .001)")
    group.add_argument("--weight-decay", type=not_negative, default=0.01, metavar="W", help="AdamW's, on matrices (default .01)")
    group.add_argument("--pass-decay", type=fraction, default=0.9, metavar="D", help="weight of a pass to the one before (default .9)")
    group.add_argument(
        "--elsewhere", type=fraction, default=0.3, metavar="W", help="weight of places at which no step would start (default .3)"
    )
    group.add_argument("--average", type=fraction, default=0.98, metavar="A", help="share of the moving average kept per update (.98)")
    group.add_argument("--held-out", type=fraction, default=0.05, metavar="SHARE", help="conversations that judge the epochs (default .05)")
    group.add_argument("--save-every", type=positive_int, default=100, metavar="N", help="updates between saved states (default 100)")


def _train(options: argparse.Namespace) -> int:
    from paceline.cli.training import run_train_eagle3

    return run_train_eagle3(options)
