"""From logits to the law a token is drawn from: penalties, temperature, min-p, top-k, top-p, in this order (vLLM's).

Speculative sampling is exact for the law that comes out here, so the same law must be made at every verified position: penalties look at
the tokens before *that* position, drafted ones included, and what top-p cuts there depends on that position's logits alone.

Temperature 0 is greedy: all mass on the first of the largest logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from paceline.errors import BadInputError, is_count

__all__ = ["GREEDY", "Sampling", "token_law", "token_laws"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a token is drawn.

    Attributes:
        temperature: what logits are divided by, 0 for greedy.
        top_k: most tokens that may be drawn, 0 for all.
        top_p: the likeliest tokens are kept until they have this much probability, above 0, 1 for all.
        min_p: a token needs this share of the likeliest token's probability, 0 for all.
        repetition_penalty: logits of tokens in the prompt or output are divided by it where positive, else multiplied; 1 for none.
        presence_penalty: what is taken from the logits of tokens in the output; 0 for none.
        frequency_penalty: the same, times how often the token is there.

    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float

    def __post_init__(self) -> None:
        """Reject what draws nothing.

        Raises:
            BadInputError: with the value and its range.

        """
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise BadInputError(f"temperature {self.temperature!r} is not a number from 0 on")
        if not is_count(self.top_k, least=0):
            raise BadInputError(f"top-k {self.top_k!r} is not a whole number from 0 on")
        if not 0 < self.top_p <= 1:
            raise BadInputError(f"top-p {self.top_p!r} is not above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise BadInputError(f"min-p {self.min_p!r} is not between 0 and 1")
        if not (isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise BadInputError(f"repetition penalty {self.repetition_penalty!r} is not a number above 0")
        for name, value in (("presence", self.presence_penalty), ("frequency", self.frequency_penalty)):
            if not isfinite(value):
                raise BadInputError(f"{name} penalty {value!r} is not a finite number")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0

    @property
    def is_plain_greedy(self) -> bool:
        """Whether the largest logit is always taken, whatever was written before."""
        return self.is_greedy and not self.has_penalties

    @property
    def has_penalties(self) -> bool:
        """Whether what was written before matters."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


GREEDY = Sampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)


def token_law(logits: Tensor, sampling: Sampling, *, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    """The probabilities [vocab] of the token that follows `output`, from its `logits` [vocab]; they add up to 1."""
    logits = _penalised(logits, sampling, prompt, output) if sampling.has_penalties else logits
    if sampling.is_greedy:
        law = torch.zeros_like(logits)
        law[logits.argmax()] = 1.0
        return law
    law = torch.softmax(logits / sampling.temperature, dim=-1)
    if sampling.min_p > 0:
        law = torch.where(law >= sampling.min_p * law.max(), law, 0.0)
    if sampling.top_k > 0:
        law = _highest(law, min(sampling.top_k, law.shape[-1]))
    if sampling.top_p < 1:
        law = _nucleus(law / law.sum(), sampling.top_p)
    return law / law.sum()


def token_laws(
    logits: Tensor, sampling: Sampling, *, prompt: Sequence[int], output: Sequence[int], paths: Sequence[Sequence[int]]
) -> Tensor:
    """`token_law` [nodes, vocab] at each of several positions, from their `logits` [nodes, vocab]: behind `output` and a node's path."""
    rows = zip(logits, paths, strict=True)
    return torch.stack([token_law(row, sampling, prompt=prompt, output=[*output, *path]) for row, path in rows])


def _penalised(logits: Tensor, sampling: Sampling, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    logits = logits.clone()
    if sampling.repetition_penalty != 1 and (prompt or output):
        seen = torch.tensor(sorted({*prompt, *output}), device=logits.device)
        old = logits[seen]
        logits[seen] = torch.where(old > 0, old / sampling.repetition_penalty, old * sampling.repetition_penalty)
    if output:
        written, times = torch.tensor(list(output), device=logits.device).unique(return_counts=True)
        logits[written] -= sampling.presence_penalty + sampling.frequency_penalty * times.to(logits.dtype)
    return logits


def _highest(law: Tensor, tokens: int) -> Tensor:
    """The `tokens` most likely, of equals those with smaller ids."""
    order = torch.sort(law, descending=True, stable=True).indices[:tokens]
    kept = torch.zeros_like(law)
    kept[order] = law[order]
    return kept


def _nucleus(law: Tensor, mass: float) -> Tensor:
    """The fewest likely tokens that have `mass` together."""
    ordered, order = torch.sort(law, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    ordered = torch.where(before < mass, ordered, 0.0)
    return torch.zeros_like(law).scatter(-1, order, ordered)
