"""A trained draft head as a dictionary for `--json` and as text: what it accepts, epoch by epoch, and what it cost."""

from collections.abc import Mapping
from typing import Any

from paceline.report.figures import plain
from paceline.report.text import columns
from paceline.speculation.trained_head import Epoch, TrainedHead

__all__ = ["epoch_dict", "head_dict", "head_text"]

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
        f"the best epoch's head is in {out}; replay it on traffic that it has never seen before you believe it",
    )
    return "\n".join([columns(HEAD, rows), "", *told])


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
