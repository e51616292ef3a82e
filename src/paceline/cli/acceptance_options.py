"""Options that state acceptance, always typed, and how their text becomes what a job goes on with."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.options import fraction, positive, probabilities
from paceline.errors import BadInputError, printable
from paceline.forecast.trees import RankAcceptance, tree_acceptance
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Tree

__all__ = ["add_acceptance", "asked_acceptance", "stated_acceptance"]

if TYPE_CHECKING:
    from paceline.jobs.acceptance import AskedAcceptance


def segment_alpha(text: str) -> tuple[str, float]:
    """`code:.4`."""
    name, colon, alpha = text.rpartition(":")
    if not colon or not name:
        raise argparse.ArgumentTypeError(f"{printable(text)} is not NAME:ALPHA, as in code:.4")
    return name, fraction(alpha)


def add_acceptance(parser: argparse.ArgumentParser) -> None:
    """Acceptance, always typed."""
    whole = parser.add_argument_group("acceptance (at most one of the first six; without any, a labelled profile of the method)")
    group = whole.add_mutually_exclusive_group()
    group.add_argument("--alpha", type=fraction, help="accepted / drafted tokens at the given draft length")
    group.add_argument("--conditional", type=fraction, metavar="B", help="acceptance given that all before were accepted")
    group.add_argument("--survival", type=probabilities, metavar="S1,S2,…", help="share of drafts accepted up to each position")
    group.add_argument("--acceptance-length", type=positive, metavar="T", help="tokens per drafted step, bonus included")
    group.add_argument(
        "--rank-acceptance", type=probabilities, metavar="P1,P2,…", help="chance that a node's best, second best, … child is accepted"
    )
    group.add_argument("--acceptance-from", type=Path, metavar="FILE", help="JSON that replay or measure printed, or a run file")
    whole.add_argument(
        "--segment-alpha", type=segment_alpha, action="append", default=[], metavar="NAME:ALPHA", help="accepted / drafted of one segment"
    )


def stated_acceptance(options: argparse.Namespace) -> tuple[Acceptance, str] | None:
    """What was typed, as acceptance at the draft length, with its label; None where nothing was.

    Raises:
        BadInputError: a survival vector shorter than the draft length, α of a tree, or an impossible value.

    """
    k = options.draft_tokens if options.tree is None else options.tree.depth
    if options.rank_acceptance is not None:
        return by_rank(options.rank_acceptance, options.tree, draft_tokens=k)
    if options.alpha is not None and options.tree is not None:
        raise BadInputError(
            f"--alpha {options.alpha:g} with --tree: accepted over drafted nodes says nothing across shapes; state --rank-acceptance or "
            "--acceptance-length"
        )
    if options.alpha is not None:
        return Acceptance.from_alpha(options.alpha, draft_tokens=k), f"stated: α = {options.alpha:g} at K = {k}"
    if options.conditional is not None:
        return Acceptance.from_conditional(options.conditional, draft_tokens=k), f"stated: conditional acceptance {options.conditional:g}"
    if options.acceptance_length is not None:
        stated = Acceptance.from_acceptance_length(options.acceptance_length, draft_tokens=k)
        return stated, f"stated: acceptance length {options.acceptance_length:g} at K = {k}"
    if options.survival is not None:
        if len(options.survival) != k:
            width = "--draft-tokens" if options.tree is None else "the depth of --tree"
            raise BadInputError(f"--survival has {len(options.survival)} positions but {width} is {k}; give one per drafted token")
        return Acceptance(survival=options.survival, coverage=1.0), f"stated: survival {', '.join(f'{s:g}' for s in options.survival)}"
    return None


def by_rank(ranks: tuple[float, ...], shape: Tree | None, *, draft_tokens: int) -> tuple[Acceptance, str]:
    """Acceptance by rank, on every level alike, as that of the tree, or of the chain of first ranks where there is no tree."""
    stated = RankAcceptance.alike(ranks, depth=draft_tokens)
    return (
        stated.chain if shape is None else tree_acceptance(stated, shape),
        f"stated: ranks {', '.join(f'{each:g}' for each in ranks)} on each of {draft_tokens} levels",
    )


def asked_acceptance(options: argparse.Namespace) -> "AskedAcceptance":
    """All that was said about acceptance."""
    from paceline.jobs.acceptance import AskedAcceptance

    return AskedAcceptance(typed=stated_acceptance(options), file=options.acceptance_from, segment_alphas=dict(options.segment_alpha))
