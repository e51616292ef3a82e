"""What training a draft head came to, its curves and its sizes; or what was prepared for another trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.speculation.counts import AcceptanceCounts

__all__ = ["Epoch", "SpeculatorsData", "TrainedHead", "best_epoch"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One point of the curves.

    Attributes:
        epoch: from 1 on.
        updates: since the start.
        loss: mean over the epoch's updates.
        learning_rate: at its end.
        by_exchange: acceptance at K of exchanges that training never sees, one by one, by walking steps.
        answer_tokens: trained on in this epoch.
        seconds: of its updates; of those that a killed training did again, once.

    """

    epoch: int
    updates: int
    loss: float
    learning_rate: float
    by_exchange: tuple[AcceptanceCounts, ...]
    answer_tokens: int
    seconds: float

    @property
    def held_out(self) -> AcceptanceCounts:
        """Acceptance at K of all that is held out."""
        return AcceptanceCounts.pooled(self.by_exchange)


def best_epoch(curves: Sequence[Epoch]) -> Epoch:
    """The epoch whose head is kept: the first of those with the most held-out tokens per step."""
    return max(curves, key=lambda each: each.held_out.tokens_per_step)


@dataclass(frozen=True, slots=True)
class TrainedHead:
    """A trained head.

    Attributes:
        curves: every epoch.
        best: the one whose head was kept.
        parameters: of the head, the target's embeddings not counted.
        draft_vocab: tokens that it can draft.
        coverage: their share of the training's answer tokens.
        aux_layers: layers of the target that it reads, index k after k layers.
        conversations: trained on.
        held_out_conversations: that judged the epochs.
        left_out: why conversations of the log are in neither, None where all are in one.
        answer_tokens: of the conversations trained on.
        inputs: SHA-256 by file name.

    """

    curves: tuple[Epoch, ...]
    best: Epoch
    parameters: int
    draft_vocab: int
    coverage: float
    aux_layers: tuple[int, ...]
    conversations: int
    held_out_conversations: int
    left_out: str | None
    answer_tokens: int
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SpeculatorsData:
    """A training prepared for the speculators library.

    Attributes:
        rows: one per answer.
        left_out: why conversations of the log have no row, None where all have.
        answer_tokens: of all rows.
        longest_tokens: of a row.
        draft_vocab: tokens that the head will be able to draft.
        coverage: their share of the answers that would train a head here.
        aux_layers: layers of the target whose states are there, index k after k layers.
        inputs: SHA-256 by file name.

    """

    rows: int
    left_out: str | None
    answer_tokens: int
    longest_tokens: int
    draft_vocab: int
    coverage: float
    aux_layers: tuple[int, ...]
    inputs: Mapping[str, str]
