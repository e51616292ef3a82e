"""A trained draft head as a dictionary for `--json` and as text: what it accepts, epoch by epoch, and what it cost."""

from collections.abc import Mapping
from shlex import quote
from typing import Any

from paceline.report.figures import plain
from paceline.report.text import columns
from paceline.speculation.trained_head import Epoch, SpeculatorsData, TrainedHead

__all__ = ["epoch_dict", "head_dict", "head_text", "speculators_dict", "speculators_text"]

LEAST_HELD_OUT = 8  # the acceptance of a conversation varies by a factor of two
HEAD = ("epoch", "updates", "loss", "α held out", "tokens per step", "survival", "tokens/s")


def epoch_dict(point: Epoch) -> dict[str, Any]:
    """A point of the curves: held-out counts, and the ratios made of them."""
    counts = point.held_out
    return {
        "epoch": point.epoch,
        "updates": point.updates,
        "loss": point.loss,
        "learning_rate": point.learning_rate,
        "steps": counts.steps,
        "drafted_tokens": counts.drafted_tokens,
        "accepted_per_position": list(counts.accepted_per_position or ()),
        "alpha": counts.alpha,
        "tokens_per_step": counts.tokens_per_step,
        "survival": list(counts.survival),
        "answer_tokens": point.answer_tokens,
        "seconds": point.seconds,
        "answer_tokens_per_s": point.answer_tokens / point.seconds,
    }


def head_dict(head: TrainedHead) -> dict[str, Any]:
    """The head's sizes, what it was trained on, its best epoch and its curves."""
    return {
        "parameters": head.parameters,
        "draft_vocab": head.draft_vocab,
        "draft_vocab_coverage": head.coverage,
        "aux_layers": list(head.aux_layers),
        "conversations": head.conversations,
        "held_out_conversations": head.held_out_conversations,
        "left_out": head.left_out,
        "answer_tokens": head.answer_tokens,
        "best": epoch_dict(head.best),
        "epochs": [epoch_dict(each) for each in head.curves],
    }


def head_text(body: Mapping[str, Any], *, out: str) -> str:
    """A line per epoch, and what the head is."""
    rows = [_row(each, body["best"]["epoch"]) for each in body["epochs"]]
    layers = ", ".join(map(str, body["aux_layers"]))
    told = (
        f"EAGLE-3 head of {body['parameters'] / 1e6:.1f} million parameters, reading the target after {layers} layers",
        f"trained on {body['conversations']:,} conversations ({body['answer_tokens']:,} answer tokens), "
        f"judged on {body['held_out_conversations']:,} others",
        f"it can draft {body['draft_vocab']:,} tokens, which are {body['draft_vocab_coverage']:.2%} of the answers",
        f"the best epoch's head is in {out}, its curves are in report.html there;",
        "replay it on traffic that it has never seen before you believe it",
    )
    few = body["held_out_conversations"] < LEAST_HELD_OUT
    caution = (
        f"! {body['held_out_conversations']} conversations held out cannot tell epochs apart; give more traffic or a larger --held-out"
    )
    cautions = [*([caution] if few else []), *_left_out(body["left_out"])]
    return "\n".join([columns(HEAD, rows), "", *told, *cautions])


def _left_out(why: str | None) -> list[str]:
    return [] if why is None else [f"! {why}"]


def speculators_dict(data: SpeculatorsData) -> dict[str, Any]:
    """What was prepared for the speculators library."""
    return {
        "rows": data.rows,
        "left_out": data.left_out,
        "answer_tokens": data.answer_tokens,
        "longest_tokens": data.longest_tokens,
        "draft_vocab": data.draft_vocab,
        "draft_vocab_coverage": data.coverage,
        "aux_layers": list(data.aux_layers),
    }


def speculators_text(data: SpeculatorsData, *, target: str, folder: str) -> str:
    """What was prepared, and the command that goes on with it."""
    layers = " ".join(map(str, data.aux_layers))
    return "\n".join(
        (
            f"{data.rows:,} answers of {data.answer_tokens:,} tokens are in {folder}, with the target's states after {layers} layers;",
            f"the draft vocabulary of {data.draft_vocab:,} tokens covers {data.coverage:.2%} of them. Train on with",
            "",
            f"  speculators train --speculator-type eagle3 --verifier-name-or-path {quote(target)} --data-path {quote(folder)} \\",
            f"    --draft-vocab-size {data.draft_vocab} --target-layer-ids {layers} --on-missing raise --save-path checkpoints",
            *_left_out(data.left_out),
        )
    )


def _row(each: Mapping[str, Any], best: int) -> tuple[str, ...]:
    survival = ", ".join(plain(value) for value in each["survival"])
    mark = " (best)" if each["epoch"] == best else ""
    return (
        f"{each['epoch']}{mark}",
        f"{each['updates']:,}",
        plain(each["loss"]),
        plain(each["alpha"]),
        plain(each["tokens_per_step"]),
        survival,
        f"{each['answer_tokens_per_s']:,.0f}",
    )
