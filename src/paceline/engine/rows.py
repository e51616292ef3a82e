"""What one forward pass takes and gives: rows of tokens, each of one sequence with its own cache.

The rows of a pass are packed behind one another, without padding: what works on single tokens (projections, norms) takes all of them at
once, and attention goes row by row. So sequences of any length share a pass, and each gets what it would get alone.

A row is a chain, or a tree: the tokens of a draft tree stand in any order in which parents come before children, each sees what the cache
remembers, its ancestors and itself, and its position is the cache's length plus its depth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from paceline.engine.kv_cache import Cache
from paceline.errors import BadInputError

__all__ = ["Answered", "Layout", "Row", "chain_mask", "need_numbers", "tree_layout", "wide"]

CacheT = TypeVar("CacheT", bound=Cache)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Who sees whom in a tree of tokens, and how deep each is."""

    depths: Tensor  # [tokens], 0 for the first
    sees: Tensor  # [tokens, tokens] bool: ancestors and the token itself


@dataclass(frozen=True, slots=True, eq=False)
class Row(Generic[CacheT]):
    """Tokens of one sequence to be run behind what its cache remembers.

    Attributes:
        tokens: ids [tokens], int64.
        cache: of the target that runs them; it remembers them all afterwards.
        layout: of a tree, None for a chain.
        logits: of how many of the last tokens logits are wanted.

    """

    tokens: Tensor
    cache: CacheT
    layout: Layout | None
    logits: int


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """What a forward pass says about one row.

    Attributes:
        logits: of the last tokens, as many as were asked for [logits, vocab], float32 or wider.
        features: the last layer's output behind the final norm, which the output head reads [tokens, hidden].
        hidden: at each layer that was asked for, the residual stream [tokens, hidden].

    """

    logits: Tensor
    features: Tensor
    hidden: tuple[Tensor, ...]


def tree_layout(parents: Sequence[int], *, device: torch.device) -> Layout:
    """The layout of a tree of tokens. `parents` has each token's parent, one that stands before it, and −1 for the first, the root."""
    depths: list[int] = []
    sees = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        assert -1 <= parent < node
        depths.append(0 if parent < 0 else depths[parent] + 1)
        if parent >= 0:
            sees[node] |= sees[parent]
    return Layout(torch.tensor(depths, device=device), sees.to(device))


def chain_mask(tokens: int, length: int, layout: Layout | None, *, device: torch.device) -> Tensor | None:
    """Which of `length` remembered tokens and the row's own each of its `tokens` sees [tokens, length + tokens]; None: a token sees all."""
    if tokens == 1:
        return None
    own = torch.ones((tokens, tokens), dtype=torch.bool, device=device).tril() if layout is None else layout.sees
    return torch.cat((own.new_ones((tokens, length)), own), dim=1)


def wide(logits: Tensor) -> Tensor:
    """Logits in float32, or as they are where they are wider: laws are not made from half precision."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def need_numbers(logits: Tensor) -> None:
    """Refuse logits of which some are none: argmax would make token 0 of them, and whoever drafts token 0 would be right.

    Raises:
        BadInputError: a NaN or an infinity.

    """
    if not torch.isfinite(logits).all():
        raise BadInputError(
            "the target's logits are no numbers (NaN or infinite): its weights are damaged or overflow in this precision, or its "
            "config.json is wrong (rms_norm_eps, rope_theta); copy the folder again"
        )
