"""Tokens per step of draft trees, from acceptance by rank.

    E  =  1 + Σ over verified nodes of the probability that the path to the node is accepted

A node's children are the draft's best continuations, rank 1 first; the target takes at most one of them, so the ranks of a level add up
to 1 at most. Growing follows EAGLE-2 (arXiv 2406.16858): on each level the `topk` nodes of largest path probability get `topk` children
each, topk + (depth − 1) · topk² candidates in all, and the `nodes` best of all candidates are verified. A child is never worth more than
its parent, so the chosen nodes hang together. A tree of topk 1 is the chain.

EAGLE-2 grows by the draft's confidence at each step; ours grows once, by average acceptance. A tree that adapts does no worse.

Trees and chains are compared by tokens per step and by nodes verified. Accepted over drafted nodes says nothing across shapes: 20 drafted
nodes at 2.92 tokens per step have α = .096.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite

from paceline.errors import BadInputError
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Tree

__all__ = ["RankAcceptance", "candidate_nodes", "tokens_per_step_tree", "tree_acceptance"]

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RankAcceptance:
    """Probability that the child of each rank is the one accepted, given that its parent was, by level of the tree.

    A rank that is not stated is taken as never accepted.
    """

    by_level: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Reject levels without ranks, values that are no probabilities, and ranks that add up to more than 1.

        Raises:
            BadInputError: with the level.

        """
        if not self.by_level:
            raise BadInputError("acceptance by rank has no level; give one probability per rank")
        for level, ranks in enumerate(self.by_level, 1):
            if not ranks or not all(isfinite(each) and 0 <= each <= 1 for each in ranks):
                raise BadInputError(f"acceptance by rank {ranks!r} on level {level} is not a list of probabilities between 0 and 1")
            if sum(ranks) > 1 + ROUNDING:
                raise BadInputError(f"ranks {ranks!r} on level {level} add up to more than 1; the target takes one child at most")

    @classmethod
    def alike(cls, ranks: Sequence[float], *, depth: int) -> "RankAcceptance":
        """The same ranks on every one of `depth` levels.

        Raises:
            BadInputError: as the record itself.

        """
        return cls(by_level=(tuple(ranks),) * depth)

    @property
    def chain(self) -> Acceptance:
        """Acceptance of the chain of first ranks, as deep as the levels stated."""
        return Acceptance(survival=tuple(accumulate((ranks[0] for ranks in self.by_level), float.__mul__)), coverage=1.0)


def candidate_nodes(tree: Tree) -> int:
    """Nodes that the draft grows before the best are chosen: topk + (depth − 1) · topk²."""
    return tree.topk + (tree.depth - 1) * tree.topk**2


def tokens_per_step_tree(ranks: RankAcceptance, tree: Tree) -> float:
    """E = 1 + Σ path probabilities of the verified nodes, in [1, depth + 1].

    Raises:
        BadInputError: fewer levels are stated than the tree is deep.

    """
    return tree_acceptance(ranks, tree).tokens_per_step


def tree_acceptance(ranks: RankAcceptance, tree: Tree) -> Acceptance:
    """The tree's survival by depth: the probability that i or more of its tokens are accepted. Its α is not one to compare.

    Raises:
        BadInputError: fewer levels are stated than the tree is deep.

    """
    if len(ranks.by_level) < tree.depth:
        raise BadInputError(f"acceptance by rank is stated for {len(ranks.by_level)} levels, but the tree is {tree.depth} deep")
    grown = _grown(ranks, tree)
    by_value = sorted(grown, key=lambda node: (-node[1], node[0]))
    totals = [sum(value for level, value in by_value[: tree.nodes] if level == depth) for depth in range(1, tree.depth + 1)]
    return Acceptance(survival=tuple(accumulate((min(1.0, each) for each in totals), min)), coverage=1.0)


def _grown(ranks: RankAcceptance, tree: Tree) -> list[tuple[int, float]]:
    """Every candidate as (level, path probability)."""
    grown: list[tuple[int, float]] = []
    parents = [1.0]
    for level, stated in enumerate(ranks.by_level[: tree.depth], 1):
        shares = (*stated, *(0.0,) * tree.topk)[: tree.topk]
        children = [parent * share for parent in parents for share in shares]
        grown.extend((level, value) for value in children)
        parents = sorted(children, reverse=True)[: tree.topk]
    return grown
