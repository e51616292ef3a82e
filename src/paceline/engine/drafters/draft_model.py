"""Drafts from a smaller model with the target's tokenizer, which remembers the sequence in a cache of its own."""

from collections.abc import Sequence
from itertools import takewhile

import torch

from paceline.engine.rows import Answered, Row
from paceline.engine.speculative_sampling import Chance, Draft, chain
from paceline.engine.target import Target
from paceline.errors import BadInputError

__all__ = ["ModelDrafter"]


class ModelDrafter:
    """Drafts `draft_tokens` tokens one after the other: named at `temperature` 0, else drawn from the model's law at that temperature."""

    hidden_layers: tuple[int, ...] = ()

    def __init__(self, model: Target, *, draft_tokens: int, temperature: float, vocab: int) -> None:
        """`vocab` is the target's.

        Raises:
            BadInputError: the two vocabularies differ in size, so ids mean different tokens.

        """
        if model.vocab != vocab:
            raise BadInputError(
                f"the draft model's vocabulary has {model.vocab} tokens, the target's {vocab}; both need the same tokenizer"
            )
        self._model, self._draft_tokens, self._temperature = model, draft_tokens, temperature

    def begin(self) -> "_ModelDrafting":
        """Start with a new sequence."""
        return _ModelDrafting(self._model, self._draft_tokens, self._temperature)


class _ModelDrafting:
    """The smaller model's run through one sequence."""

    def __init__(self, model: Target, draft_tokens: int, temperature: float) -> None:
        self._model, self._draft_tokens, self._temperature = model, draft_tokens, temperature
        self._cache = model.new_cache()
        self._remembered: list[int] = []

    def observe(self, answered: Answered, kept: Sequence[int] | None) -> None:
        """Nothing is read off the target."""

    def draft(self, context: Sequence[int], chance: Chance) -> Draft:
        """K tokens behind `context`."""
        self._forget_refused(context)
        new = list(context[len(self._remembered) :])
        tokens: list[int] = []
        laws: list[torch.Tensor] = []
        while True:
            logits = self._run(new)
            if self._temperature == 0:
                tokens.append(int(logits.argmax()))
            else:
                laws.append(torch.softmax(logits / self._temperature, dim=-1))
                tokens.append(chance.pick(laws[-1]))
            if len(tokens) == self._draft_tokens:
                return chain(tokens, laws or None)
            new = tokens[-1:]

    def finish(self, output: Sequence[int]) -> None:
        """Nothing is kept for the next sequence."""

    def _run(self, tokens: list[int]) -> torch.Tensor:
        row = Row(torch.tensor(tokens, device=self._model.device), self._cache, None, 1)
        self._remembered += tokens
        return self._model.forward([row], hidden_layers=())[0].logits[-1]

    def _forget_refused(self, context: Sequence[int]) -> None:
        """Roll back to what the context and the cache have in common; of the context at least one token is left to run."""
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._remembered, context[:-1], strict=False)))
        self._cache.rollback(same)
        del self._remembered[same:]
