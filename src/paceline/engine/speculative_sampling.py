"""Verification: which drafted tokens are kept, and the one that follows them, so that the output's law is the target's.

A draft is a tree of tokens; a chain is a tree in which each node has one child. Every node's children were either named by a rule (the
likeliest tokens of a draft head, a lookup) or drawn, independently, from a law q that the draft states. At a node with the target's law p
the children are tried in order:

    accept the child x with probability min(1, p(x) / q(x)), else go on with p ← norm(max(0, p − q))

where q is one at x for a child that was named. The first accepted child is the next node. Where none is accepted, the token that follows
is drawn from what is left of p: *recovered*. Where a node without children is reached, it is drawn from p: a *bonus*. With one drawn child
that is Leviathan et al. (arXiv 2211.17192), algorithm 1; with several SpecInfer's multi-step sampling (arXiv 2305.09781); with named ones
what EAGLE does. Greedy decoding is the case in which p is one at a single token.

All chance passes through `Chance`, so a test can walk every branch with its probability and add up the output's law exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Chance", "Draft", "Generated", "Verified", "chain", "verify", "verify_greedy"]

ROOT = -1


class Chance(Protocol):
    """Where chance comes from."""

    def coin(self, probability: float) -> bool:
        """True with `probability`, which may exceed 1 by rounding."""

    def pick(self, law: Tensor) -> int:
        """An index of `law` [outcomes], with its probability; `law` adds up to 1."""


class Generated:
    """Chance from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def coin(self, probability: float) -> bool:
        """True with `probability`."""
        return float(torch.rand((), generator=self._generator, dtype=torch.float64)) < probability

    def pick(self, law: Tensor) -> int:
        """An index of `law`, with its probability."""
        steps = law.to(device="cpu", dtype=torch.float64).cumsum(0)
        draw = torch.rand((), generator=self._generator, dtype=torch.float64) * steps[-1]
        place = int(torch.searchsorted(steps, draw, right=True))
        return min(place, int(law.shape[0]) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What was drafted behind a context.

    Attributes:
        tokens: of the nodes; parents come before children, and siblings in the order in which they are tried.
        parents: of the nodes, −1 for the root, the context's last token.
        laws: by parent that drew its children, the law [vocab] they were drawn from; the others named theirs.

    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    laws: dict[int, Tensor]

    def children(self, node: int) -> list[int]:
        """The nodes below `node`, in the order in which they are tried."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    @property
    def is_chain(self) -> bool:
        """Whether each node is the one before's only child."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    def paths(self) -> list[tuple[int, ...]]:
        """The tokens from the root to each node, the node included; first the root's own, empty."""
        paths: list[tuple[int, ...]] = [()]
        for token, parent in zip(self.tokens, self.parents, strict=True):
            paths.append((*paths[parent + 1], token))
        return paths

    def depths(self) -> list[int]:
        """How deep each node is, 1 for the root's children."""
        return [len(path) for path in self.paths()[1:]]


def chain(tokens: Sequence[int], laws: Sequence[Tensor] | None) -> Draft:
    """A draft of one token behind the other; `laws` has what each was drawn from, None where they were named."""
    drawn = {} if laws is None else {place - 1: law for place, law in enumerate(laws)}
    return Draft(tuple(tokens), tuple(range(-1, len(tokens) - 1)), drawn)


@dataclass(frozen=True, slots=True)
class Verified:
    """What a step keeps: the accepted nodes from the root down, and the token that follows them.

    `is_bonus` says that nothing was refused: the last accepted node had no children.
    """

    nodes: tuple[int, ...]
    token: int
    is_bonus: bool


def verify(draft: Draft, laws: Tensor, chance: Chance) -> Verified:
    """The outcome of a step. `laws` [nodes + 1, vocab] has the target's law behind the root and behind each node."""
    nodes: list[int] = []
    node = ROOT
    while children := draft.children(node):
        law, accepted = laws[node + 1], None
        for child in children:
            accepted, law = _tried(draft.tokens[child], law, draft.laws.get(node), chance)
            if accepted:
                node = child
                break
        if not accepted:
            return Verified(tuple(nodes), chance.pick(law), is_bonus=False)
        nodes.append(node)
    return Verified(tuple(nodes), chance.pick(laws[node + 1]), is_bonus=True)


def _tried(token: int, law: Tensor, drawn_from: Tensor | None, chance: Chance) -> tuple[bool, Tensor]:
    """Whether a child is accepted under the target's `law`, and what is left of it if not."""
    proposed = 1.0 if drawn_from is None else float(drawn_from[token])
    if chance.coin(float(law[token]) / proposed):
        return True, law
    left = law.clone()
    if drawn_from is None:
        left[token] = 0.0
    else:
        left = (law - drawn_from).clamp_(min=0.0)
    total = left.sum()
    # Rounding can refuse a token that has all of the law; what is left is then the law itself.
    return False, left / total if float(total) > 0 else law


def verify_greedy(draft: Draft, best: Sequence[int]) -> Verified:
    """`verify` at temperature 0: `best` has the target's likeliest token behind the root and behind each node."""
    nodes: list[int] = []
    node = ROOT
    while True:
        children = draft.children(node)
        right = next((child for child in children if draft.tokens[child] == best[node + 1]), None)
        if right is None:
            return Verified(tuple(nodes), best[node + 1], is_bonus=not children)
        node = right
        nodes.append(node)
