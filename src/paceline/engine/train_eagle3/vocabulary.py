"""The draft vocabulary: which of the target's tokens the head can draft.

A head's largest matrix is its output, and a domain writes few tokens. So the head drafts the tokens that the target writes most in this
traffic; what it cannot draft is rejected, and `coverage` says how much of the traffic that is.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.errors import BadInputError

__all__ = ["DraftVocabulary", "draft_vocabulary"]


@dataclass(frozen=True, slots=True, eq=False)
class DraftVocabulary:
    """The target's tokens that can be drafted.

    Attributes:
        ids: the target's id of each draft id, ascending [draft vocab], int64.
        coverage: share of the traffic's answer tokens that are among them.

    """

    ids: Tensor
    coverage: float

    @property
    def d2t(self) -> Tensor:
        """What to add to a draft id to get the target's [draft vocab], int64."""
        return self.ids - torch.arange(self.ids.shape[0])

    def t2d(self, vocab: int) -> Tensor:
        """Whether each of the target's `vocab` tokens can be drafted [vocab], bool."""
        can = torch.zeros(vocab, dtype=torch.bool)
        can[self.ids] = True
        return can


def draft_vocabulary(answers: Iterable[Tensor], *, vocab: int, size: int) -> DraftVocabulary:
    """The `size` tokens that `answers` [tokens] hold most often, of a target with `vocab` tokens; those of lower id where counts are equal.

    Tokens that no answer holds fill the rest, lowest ids first.

    Raises:
        BadInputError: the size is larger than the vocabulary, or below 1.

    """
    if not 1 <= size <= vocab:
        raise BadInputError(f"a draft vocabulary of {size} tokens is not between 1 and the target's {vocab}; give --draft-vocab")
    counts = torch.zeros(vocab, dtype=torch.int64)
    for each in answers:
        counts += torch.bincount(each, minlength=vocab)
    ids = counts.argsort(descending=True, stable=True)[:size].sort().values
    total = int(counts.sum())
    return DraftVocabulary(ids=ids, coverage=int(counts[ids].sum()) / total if total else 0.0)
