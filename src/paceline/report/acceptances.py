"""Acceptance with its range, and draft trees, as dictionaries for `--json` and as lines of text."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.forecast.acceptance_model import RangedAcceptance
from paceline.forecast.trees import RankAcceptance, candidate_nodes
from paceline.report.figures import interval, plain
from paceline.report.json_view import estimate_dict
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Tree

__all__ = ["ranged_dict", "ranged_lines", "tree_dict", "tree_lines"]


def ranged_dict(given: RangedAcceptance) -> dict[str, Any]:
    """Survival, and tokens per step with the range that was measured or modelled: null where acceptance was taken as given."""
    return {
        "survival": list(given.value.survival),
        "tokens_per_step": given.value.tokens_per_step,
        "tokens_per_step_range": estimate_dict(None if given.is_exact else given.tokens_per_step),
    }


def ranged_lines(given: RangedAcceptance) -> list[str]:
    """One line where acceptance has a range, none where it was taken as given."""
    if given.is_exact:
        return []
    how = "modelled" if given.label else f"measured on {given.n:,} conversations"
    return [f"acceptance is {how}: {interval(given.tokens_per_step)} tokens per step; the ranges of the speed-ups below hold that"]


def tree_dict(tree: Tree, acceptance: Acceptance, ranks: Sequence[float] | None) -> dict[str, Any]:
    """The tree's tokens per step and nodes verified, beside the chain of its first ranks, None where ranks were not stated."""
    chain = None if ranks is None else RankAcceptance.alike(ranks, depth=tree.depth).chain
    return {
        "tokens_per_step": acceptance.tokens_per_step,
        "drafted_nodes": tree.nodes,
        "candidate_nodes": candidate_nodes(tree),
        "chain": None if chain is None else {"tokens_per_step": chain.tokens_per_step, "drafted_nodes": tree.depth},
    }


def tree_lines(said: Mapping[str, Any] | None) -> list[str]:
    """The tree beside its chain; none without a tree."""
    if said is None:
        return []
    whole = f"tree: {plain(said['tokens_per_step'])} tokens per step from {said['drafted_nodes']} nodes verified"
    chain = said["chain"]
    beside = "" if chain is None else f"; the chain of its first ranks: {plain(chain['tokens_per_step'])} from {chain['drafted_nodes']}"
    return [f"{whole}{beside}. Accepted over drafted nodes compares no tree with a chain, so no break-even α is given."]
