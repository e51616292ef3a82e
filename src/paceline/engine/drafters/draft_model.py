"""Drafts from a smaller model with the target's tokenizer, which remembers every sequence in a cache of its own."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

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

    def begin(self) -> "_Remembered":
        """Start with a new sequence."""
        return _Remembered(self._model.new_cache())

    def draft_together(
        self, draftings: Sequence["_Remembered"], contexts: Sequence[Sequence[int]], chances: Sequence[Chance]
    ) -> list[Draft]:
        """K tokens behind each context, a pass of the model drafting one for every sequence."""
        news = [each.behind(context) for each, context in zip(draftings, contexts, strict=True)]
        tokens: list[list[int]] = [[] for _ in contexts]
        laws: list[list[Tensor]] = [[] for _ in contexts]
        for _ in range(self._draft_tokens):
            for own, law, logits, chance in zip(tokens, laws, self._run(draftings, news), chances, strict=True):
                if self._temperature == 0:
                    own.append(int(logits.argmax()))
                else:
                    law.append(torch.softmax(logits / self._temperature, dim=-1))
                    own.append(chance.pick(law[-1]))
            news = [own[-1:] for own in tokens]
        return [chain(own, law or None) for own, law in zip(tokens, laws, strict=True)]

    def _run(self, draftings: Sequence["_Remembered"], news: Sequence[Sequence[int]]) -> list[Tensor]:
        """The logits [vocab] behind each sequence once it remembers its new tokens."""
        rows = []
        for each, new in zip(draftings, news, strict=True):
            each.tokens += new
            rows.append(Row(torch.tensor(new, device=self._model.device), each.cache, None, 1))
        return [answered.logits[-1] for answered in self._model.forward(rows, hidden_layers=())]


class _Remembered:
    """What the smaller model remembers of one sequence."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.tokens: list[int] = []

    def observe(self, answered: Answered, kept: Sequence[int] | None) -> None:
        """Nothing is read off the target."""

    def behind(self, context: Sequence[int]) -> list[int]:
        """What of `context` is to be run, at least one token, once all that is not of it is forgotten."""
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.tokens, context[:-1], strict=False)))
        self.cache.rollback(same)
        del self.tokens[same:]
        return list(context[same:])

    def finish(self, output: Sequence[int]) -> None:
        """Nothing is kept for the next sequence."""
