"""What training a draft head came to: its curves and its sizes."""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.speculation.counts import AcceptanceCounts

__all__ = ["Epoch", "TrainedHead"]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One point of the curves.

    Attributes:
        epoch: from 1 on.
        updates: since the start.
        loss: mean over the epoch's updates.
        learning_rate: at its end.
        held_out: acceptance at K of conversations that training never sees, by walking steps.
        answer_tokens: trained on in this epoch.
        seconds: of its updates; of those that a killed training did again, once.

    """

    epoch: int
    updates: int
    loss: float
    learning_rate: float
    held_out: AcceptanceCounts
    answer_tokens: int
    seconds: float


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
    answer_tokens: int
    inputs: Mapping[str, str]
