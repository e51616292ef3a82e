"""Every branch that chance can take, with its probability: the exact law of what a function returns."""

from collections import defaultdict
from collections.abc import Callable, Hashable
from itertools import product
from typing import TypeVar

import torch
from torch import Tensor

__all__ = ["Scripted", "law_of", "product_law"]

T = TypeVar("T", bound=Hashable)


class Scripted:
    """Chance that follows a script, then always takes the first branch; `untaken` has the scripts of the branches it left."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self._script = script
        self._taken: list[int] = []
        self.probability = 1.0
        self.untaken: list[tuple[int, ...]] = []

    def _branch(self, chances: list[float]) -> int:
        place = len(self._taken)
        possible = [branch for branch, chance in enumerate(chances) if chance > 0]
        branch = self._script[place] if place < len(self._script) else possible[0]
        if place >= len(self._script):
            self.untaken += [(*self._taken, other) for other in possible[1:]]
        self._taken.append(branch)
        self.probability *= chances[branch]
        return branch

    def coin(self, probability: float) -> bool:
        """True on branch 1."""
        accepted = min(1.0, probability)
        return bool(self._branch([1.0 - accepted, accepted]))

    def pick(self, law: Tensor) -> int:
        """The branch's number."""
        return self._branch(law.tolist())


def law_of(run: Callable[[Scripted], T]) -> dict[T, float]:
    """The probability of each value that `run` returns."""
    law: dict[T, float] = defaultdict(float)
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        chance = Scripted(scripts.pop())
        law[run(chance)] += chance.probability
        scripts += chance.untaken
    return dict(law)


def product_law(target: Callable[[tuple[int, ...]], Tensor], *, vocab: int, tokens: int) -> dict[tuple[int, ...], float]:
    """The law of so many tokens drawn one after the other from `target`, which has the law behind a prefix."""
    law: dict[tuple[int, ...], float] = {}
    for sequence in product(range(vocab), repeat=tokens):
        law[sequence] = float(torch.stack([target(sequence[:place])[token] for place, token in enumerate(sequence)]).prod())
    return law
