"""EAGLE-2's draft tree (Li et al., arXiv 2406.16858): grow where the draft is confident, keep what is likeliest overall.

A node's value is the product of the draft's probabilities along its path: an estimate of how likely the target accepts it. At each level
the `topk` nodes of the highest value are expanded, each into its `topk` likeliest children; in the end the `nodes` of the highest value
among all are verified. A child's value never exceeds its parent's, so what is kept hangs together.

Where children are drawn instead (SpecInfer, arXiv 2305.09781), what is verified may not depend on what was drawn below it: a child left out
for its low value would leave the others with another law than the one they were drawn from. The first `nodes` drawn are kept then, and
values only say which nodes are expanded.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from paceline.engine.speculative_sampling import ROOT, Draft

__all__ = ["GrowingTree"]


@dataclass(slots=True)
class GrowingTree:
    """All candidates so far, and which of them are expanded next; `laws` has what the children of a node were drawn from."""

    topk: int
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    log_values: list[float] = field(default_factory=list)
    laws: dict[int, Tensor] = field(default_factory=dict)
    frontier: list[int] = field(default_factory=lambda: [ROOT])

    def grow(self, ids: Tensor, log_probabilities: Tensor) -> None:
        """Add the frontier's children, `ids` and `log_probabilities` [frontier, topk], the likeliest first; the best are next."""
        before = torch.tensor([0.0 if node == ROOT else self.log_values[node] for node in self.frontier])
        values = (before[:, None] + log_probabilities.to(before)).flatten()
        first, width = len(self.tokens), ids.shape[1]
        self.tokens += ids.flatten().tolist()
        self.parents += [node for node in self.frontier for _ in range(width)]
        self.log_values += values.tolist()
        best = torch.sort(values, descending=True, stable=True).indices[: self.topk]
        self.frontier = sorted(first + place for place in best.tolist())

    def best(self, nodes: int) -> tuple[Draft, list[int]]:
        """The `nodes` candidates of the highest value, as a draft whose children were named; and which candidates they are."""
        # A parent stands before its children, so of equal values it is the one that is kept.
        order = sorted(range(len(self.tokens)), key=lambda node: (-self.log_values[node], node))
        kept = sorted(order[:nodes])
        place = {ROOT: ROOT, **{node: number for number, node in enumerate(kept)}}
        return Draft(tuple(self.tokens[node] for node in kept), tuple(place[self.parents[node]] for node in kept), {}), kept

    def first(self, nodes: int) -> Draft:
        """The first `nodes` candidates, as a draft whose children were drawn."""
        parents = tuple(self.parents[:nodes])
        return Draft(tuple(self.tokens[:nodes]), parents, {node: self.laws[node] for node in set(parents)})
