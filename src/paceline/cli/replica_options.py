"""Options of the whole replica: arrivals that burst or are sped up, draft length by batch, promised latencies."""

import argparse
from typing import TYPE_CHECKING, Any

from paceline.cli.options import duration, fraction, not_negative, positive, positive_int, whole_number
from paceline.errors import BadInputError, printable

__all__ = [
    "add_draft_lengths",
    "add_length_table",
    "add_suffix",
    "add_whole_replica",
    "asked_lengths",
    "asked_table",
    "length_table",
    "slo",
]

if TYPE_CHECKING:
    from paceline.simulate.draft_lengths import Ladder, LengthTable
    from paceline.stats.goodput import Slo


def length_table(text: str) -> "LengthTable":
    """`1-16:5,17-32:3,33-512:0`: batch sizes, and the draft length there; from 1 on, without a gap."""
    from paceline.simulate.draft_lengths import LengthTable

    entries = [_entry(each) for each in text.split(",")]
    expected = 1
    for first, last, _ in entries:
        if first > last:
            raise argparse.ArgumentTypeError(f"{printable(text)}: {first}-{last} runs backwards; write {last}-{first}")
        if first != expected:
            raise argparse.ArgumentTypeError(
                f"{printable(text)}: after a batch of {expected - 1} comes {expected}, not {first}; leave no gap"
            )
        expected = last + 1
    return LengthTable(tuple(entries))


def _entry(text: str) -> tuple[int, int, int]:
    """`17-32:3`."""
    sizes, _, length = text.partition(":")
    first, _, last = sizes.partition("-")
    numbers = [each.strip() for each in (first, last or first, length)]
    if not all(each.isdecimal() for each in numbers):
        raise argparse.ArgumentTypeError(f"{printable(text)} is not FIRST-LAST:K in whole numbers, as in 1-16:5,17-256:0")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


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
    add_length_table(lengths)
    lengths.add_argument(
        "--adaptive", action="store_true", help="SGLang's adaptive ladder 1, 3, 5, 7 by acceptance and batch; needs --draft-tokens 7"
    )


def add_length_table(group: Any) -> None:
    """Draft lengths by batch."""
    group.add_argument(
        "--draft-tokens-by-batch",
        type=length_table,
        default=None,
        metavar="FIRST-LAST:K,…",
        help="draft length by requests running, as vLLM's num_speculative_tokens_per_batch_size: from 1 to the most that run, "
        "without a gap, up to --draft-tokens",
    )


def add_suffix(parser: argparse.ArgumentParser) -> None:
    """What suffix decoding looks up; elsewhere vLLM's defaults stand, as they do in the server it launches."""
    group = parser.add_argument_group("suffix decoding (defaults are vLLM's)")
    group.add_argument("--suffix-depth", type=positive_int, default=24, metavar="N", help="tokens of match and draft together (default 24)")
    group.add_argument(
        "--suffix-cached-requests", type=whole_number, default=10_000, metavar="N", help="earlier outputs kept, 0 for none (default 10000)"
    )
    group.add_argument("--suffix-factor", type=not_negative, default=1.0, metavar="F", help="tokens drafted per token matched (default 1)")
    group.add_argument("--suffix-least-probability", type=fraction, default=0.1, metavar="P", help="of a drafted token (default .1)")


def asked_lengths(options: argparse.Namespace) -> "LengthTable | Ladder | None":
    """The draft length by batch, None where it is fixed."""
    from paceline.simulate.draft_lengths import ladder_from_table

    if getattr(options, "adaptive", False):
        return ladder_from_table("sglang")
    return asked_table(options)


def asked_table(options: argparse.Namespace) -> "LengthTable | None":
    """The table of draft lengths that was typed.

    Raises:
        BadInputError: it does not cover every batch that can run, or drafts more than --draft-tokens.

    """
    found: LengthTable | None = getattr(options, "draft_tokens_by_batch", None)
    if found is not None:
        _need_whole_table(found, options)
    return found


def _need_whole_table(table: "LengthTable", options: argparse.Namespace) -> None:
    """Nothing, where the table has a draft length for every batch that can run, none longer than --draft-tokens."""
    if table.longest() > options.draft_tokens:
        raise BadInputError(
            f"--draft-tokens-by-batch drafts up to {table.longest()} tokens, and --draft-tokens is {options.draft_tokens}; raise the latter"
        )
    in_flight = getattr(options, "concurrency", None)  # None in an open loop; a fake server does not know how many will come
    largest = options.max_requests if in_flight is None else min(options.max_requests, in_flight)
    last = table.entries[-1][1]
    if last < largest:
        raise BadInputError(
            f"--draft-tokens-by-batch ends at a batch of {last}, and up to {largest} requests run at once; add {last + 1}-{largest}:K, "
            "with K = 0 for no drafts"
        )
