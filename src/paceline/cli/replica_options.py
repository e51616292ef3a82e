"""Options of the whole replica: arrivals that burst or are sped up, draft length by batch, promised latencies."""

import argparse
from typing import TYPE_CHECKING, Any

from paceline.cli.options import duration, fraction, positive
from paceline.errors import BadInputError, printable

__all__ = ["add_draft_lengths", "add_whole_replica", "asked_lengths", "length_table", "slo"]

if TYPE_CHECKING:
    from paceline.simulate.draft_lengths import Ladder, LengthTable
    from paceline.stats.goodput import Slo


def length_table(text: str) -> "LengthTable":
    """`1-16:5,17-32:3,33-512:0`: batch sizes, and the draft length there."""
    from paceline.simulate.draft_lengths import LengthTable

    try:
        entries = []
        for each in text.split(","):
            sizes, length = each.split(":")
            first, _, last = sizes.partition("-")
            entries.append((int(first), int(last or first), int(length)))
        return LengthTable(tuple(entries))
    except (ValueError, BadInputError) as fault:
        raise argparse.ArgumentTypeError(f"{printable(text)} is no table FIRST-LAST:K,…: {fault}") from None


def slo(text: str) -> "Slo":
    """`ttft=500ms,tpot=50ms`."""
    from paceline.stats.goodput import Slo

    pairs = [each.partition("=") for each in text.split(",")]
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names) or not set(names) <= {"ttft", "tpot", "e2e"}:
        raise argparse.ArgumentTypeError(f"{printable(text)} is not ttft=TIME,tpot=TIME,e2e=TIME with each at most once")
    promised = {name: duration(time) for name, _, time in pairs}
    try:
        return Slo(ttft_s=promised.get("ttft"), tpot_s=promised.get("tpot"), e2e_s=promised.get("e2e"))
    except BadInputError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None


def add_whole_replica(parser: argparse.ArgumentParser) -> None:
    """What `simulate` alone can be asked: arrivals that burst or are sped up, draft lengths by batch, objectives."""
    group = parser.add_argument_group("arrivals, draft length by batch, objectives")
    group.add_argument(
        "--burstiness",
        type=positive,
        default=1.0,
        metavar="B",
        help="with --rate: shape of the gaps; 1 Poisson, below 1 in bursts (default 1)",
    )
    group.add_argument(
        "--time-scale", type=positive, default=1.0, metavar="X", help="with --own-times: 2 sends the trace twice as fast (default 1)"
    )
    add_draft_lengths(group)
    group.add_argument(
        "--slo", type=slo, default=None, metavar="ttft=T,tpot=T", help="promised latencies, such as ttft=500ms,tpot=50ms: adds goodput"
    )


def add_draft_lengths(group: Any) -> None:
    """Acceptance that persists, and draft lengths by batch."""
    group.add_argument(
        "--persistence",
        type=fraction,
        default=0.0,
        metavar="P",
        help="correlation of acceptance between neighbouring steps of a request, below 1 (default 0)",
    )
    lengths = group.add_mutually_exclusive_group()
    lengths.add_argument(
        "--draft-tokens-by-batch",
        type=length_table,
        default=None,
        metavar="FIRST-LAST:K,…",
        help="draft length by requests running, as vLLM's num_speculative_tokens_per_batch_size; lengths above --draft-tokens are cut",
    )
    lengths.add_argument(
        "--adaptive", action="store_true", help="SGLang's adaptive ladder 1, 3, 5, 7 by acceptance and batch; needs --draft-tokens 7"
    )


def asked_lengths(options: argparse.Namespace) -> "LengthTable | Ladder | None":
    """The draft length by batch, None where it is fixed."""
    from paceline.simulate.draft_lengths import ladder_from_table

    if getattr(options, "adaptive", False):
        return ladder_from_table("sglang")
    found: LengthTable | None = getattr(options, "draft_tokens_by_batch", None)
    return found
