"""Drafts from an EAGLE head: a chain, EAGLE-2's confidence tree, or a tree of drawn children; the head may be EAGLE-1's or EAGLE-3's.

The head runs over pairs: the hidden state at position i with the embedding of token i + 1. Where the target has been, the hidden state is
the target's; beyond, the head's own output stands in. What the head computed from its own output is forgotten after each draft, and is
computed again from the target's once tokens were accepted.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from paceline.engine.decoder_layer import Attend
from paceline.engine.drafters.confidence_tree import GrowingTree
from paceline.engine.drafters.drafter import LoneDrafting, drafted_alone
from paceline.engine.kv_cache import KvCache
from paceline.engine.llama import LlamaShape, attend
from paceline.engine.rows import Answered, wide
from paceline.engine.speculative_sampling import Chance, Draft, chain
from paceline.speculation.method import Tree

__all__ = ["EagleDrafter", "FeatureHead"]


class FeatureHead(Protocol):
    """A head that turns the target's hidden states and the next tokens into what comes after."""

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """Which of the target's layers it reads."""

    @property
    def layers(self) -> int:
        """Its own decoder layers."""

    @property
    def shape(self) -> LlamaShape:
        """Sizes of each of them."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""

    @property
    def device(self) -> torch.device:
        """Where its weights are."""

    @property
    def vocab(self) -> int:
        """The target's vocabulary."""

    def read(self, answered: Answered) -> Tensor:
        """What the head takes from the target's pass, by token [tokens, hidden]."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings [tokens, hidden]."""

    def run(self, embeddings: Tensor, hidden: Tensor, *, positions: Tensor, attends: Sequence[Attend]) -> Tensor:
        """The next hidden states [tokens, hidden]; each layer attends by its own of `attends`."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over draft ids [tokens, draft vocab]."""

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """The target's ids of draft ids."""


class EagleDrafter:
    """Drafts with a head: `tree`, or a chain of `draft_tokens` where there is none.

    Tokens are named at `temperature` 0, else drawn from the head's law at that temperature: one behind the other on a chain, in a tree as
    many below every expanded node as it has children.
    """

    def __init__(self, head: FeatureHead, *, draft_tokens: int, tree: Tree | None, temperature: float) -> None:
        self._head, self._draft_tokens, self._tree, self._temperature = head, draft_tokens, tree, temperature
        self.hidden_layers = head.hidden_layers

    def begin(self) -> "_EagleDrafting":
        """Start with a new sequence."""
        return _EagleDrafting(self._head, self._draft_tokens, self._tree, self._temperature)

    def draft_together(
        self, draftings: Sequence[LoneDrafting], contexts: Sequence[Sequence[int]], chances: Sequence[Chance]
    ) -> list[Draft]:
        """A chain or tree behind each context."""
        return drafted_alone(draftings, contexts, chances)


class _EagleDrafting:
    """The head's run through one sequence."""

    def __init__(self, head: FeatureHead, draft_tokens: int, tree: Tree | None, temperature: float) -> None:
        self._head, self._draft_tokens, self._tree, self._temperature = head, draft_tokens, tree, temperature
        shape = head.shape
        self._cache = KvCache(layers=head.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim, dtype=head.dtype, device=head.device)
        self._unread: list[Tensor] = []

    def observe(self, answered: Answered, kept: Sequence[int] | None) -> None:
        """Note the hidden states of the tokens that were kept."""
        hidden = self._head.read(answered)
        self._unread.append(hidden if kept is None else hidden[list(kept)])

    def draft(self, context: Sequence[int], chance: Chance) -> Draft:
        """A chain or tree behind `context`."""
        hidden = torch.cat(self._unread)
        self._unread.clear()
        start = self._cache.length
        assert start + hidden.shape[0] == len(context) - 1, "every token but the last was observed"
        causal = None if hidden.shape[0] == 1 else torch.ones((hidden.shape[0],) * 2, dtype=torch.bool, device=self._head.device).tril()
        made = self._run(context[start + 1 :], hidden, depths=list(range(hidden.shape[0])), sees=causal)[-1:]
        committed = self._cache.length
        draft = self._chain(made, chance) if self._tree is None else self._grown(made, self._tree, chance)
        self._cache.rollback(committed)
        return draft

    def finish(self, output: Sequence[int]) -> None:
        """Nothing is kept for the next sequence."""

    def _run(self, tokens: Sequence[int], hidden: Tensor, *, depths: Sequence[int], sees: Tensor | None) -> Tensor:
        """The head over `tokens` behind its cache, which remembers them. Positions are the cache's first free one plus `depths`.

        `sees` [tokens, seen] says which of the last tokens that are remembered or run each sees; all before those are seen.
        """
        head, cache = self._head, self._cache
        count = len(tokens)
        cache.reserve(count)
        mask = None if sees is None else torch.cat((sees.new_ones((count, cache.length + count - sees.shape[1])), sees), dim=1)

        def remembering(layer: int) -> Attend:
            return lambda queries, keys, values: attend(queries, *cache.write(layer, keys, values), mask)

        attends = [remembering(layer) for layer in range(head.layers)]
        positions = torch.tensor(depths, device=head.device) + cache.length
        made = head.run(head.embed(torch.tensor(tokens, device=head.device)), hidden, positions=positions, attends=attends)
        cache.length += count
        return made

    def _chain(self, hidden: Tensor, chance: Chance) -> Draft:
        tokens: list[int] = []
        laws: list[Tensor] = []
        while True:
            logits = self._head.logits(hidden)[-1]
            if self._temperature == 0:
                draft_id = logits.argmax()
            else:
                law = torch.softmax(wide(logits) / self._temperature, dim=-1)
                draft_id = torch.tensor(chance.pick(law), device=law.device)
                laws.append(self._over_vocabulary(law))
            tokens.append(int(self._head.target_ids(draft_id)))
            if len(tokens) == self._draft_tokens:
                return chain(tokens, laws or None)
            hidden = self._run(tokens[-1:], hidden, depths=[0], sees=None)

    def _grown(self, hidden: Tensor, tree: Tree, chance: Chance) -> Draft:
        growing = GrowingTree(tree.topk)
        growing.grow(*self._children(hidden, growing, chance))
        committed = self._cache.length
        slots: dict[int, int] = {}  # of an expanded candidate: its place behind what is committed
        made: dict[int, Tensor] = {}  # what the head gives at each expanded candidate
        for depth in range(1, tree.depth):
            frontier = growing.frontier
            before = torch.stack([hidden[-1] if growing.parents[node] < 0 else made[growing.parents[node]] for node in frontier])
            sees = torch.zeros((len(frontier), len(slots) + len(frontier)), dtype=torch.bool, device=self._head.device)
            for row, node in enumerate(frontier):
                slots[node] = len(slots)
                above = node
                while above >= 0:
                    sees[row, slots[above]] = True
                    above = growing.parents[above]
            offset = committed + depth - 1 - self._cache.length
            given = self._run([growing.tokens[node] for node in frontier], before, depths=[offset] * len(frontier), sees=sees)
            made.update(zip(frontier, given, strict=True))
            growing.grow(*self._children(given, growing, chance))
        return growing.best(tree.nodes)[0] if self._temperature == 0 else growing.first(tree.nodes)

    def _children(self, hidden: Tensor, growing: GrowingTree, chance: Chance) -> tuple[Tensor, Tensor]:
        """The target's ids of the frontier's children and their log-probabilities [frontier, topk]; `hidden` is what the head gave."""
        logits = wide(self._head.logits(hidden))
        if self._temperature == 0:
            best = torch.log_softmax(logits, dim=-1).topk(growing.topk)
            return self._head.target_ids(best.indices), best.values
        laws = torch.softmax(logits / self._temperature, dim=-1)
        drawn = torch.tensor([[chance.pick(law) for _ in range(growing.topk)] for law in laws], device=laws.device)
        growing.laws.update(zip(growing.frontier, map(self._over_vocabulary, laws), strict=True))
        return self._head.target_ids(drawn), laws.gather(1, drawn).log()

    def _over_vocabulary(self, law: Tensor) -> Tensor:
        """A law over draft ids as one over the target's vocabulary."""
        ids = self._head.target_ids(torch.arange(law.shape[0], device=law.device))
        return law.new_zeros(self._head.vocab).scatter(0, ids, law)
