"""Neural replay: what a draft head or a draft model would have drafted on logged answers, and what of it the target would have kept.

One pass of the target over the text, and as many passes of the draft as a step drafts, for every place where a step could start at once;
nothing is generated. Acceptance at every draft length is then a walk over places: a step starts, accepts n drafts, and the next starts
n + 1 tokens on. Steps begin after rejections, where text is hard: counting every place as a start overstates acceptance.

Greedy logs are replayed exactly: a draft is accepted where it is the logged token. For text sampled at a temperature the walk is drawn.
Given that the logged token x was drawn from the target's distribution p, and the draft's is q, the step goes on behind x with the
probability min(1, q(x) / p(x)); so a draft is accepted with Σ min(p, q) in the mean, and accepted runs have the law that speculative
sampling gives them (Leviathan et al., arXiv 2211.17192, §2.3), rejected ones the residual's.

The end of the log is `replay.ngram`'s: where the target stopped by itself, drafts beyond the end count as drafted and not accepted; where
the answer was cut at a length, the last step's draft counts as far as there is text to judge it.

Notation: K draft length, n accepted drafts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.engine.eagle3 import Eagle3Head
from paceline.engine.rows import Row
from paceline.engine.states import Conversation
from paceline.engine.target import Target
from paceline.engine.unroll import Batch, Pass, batch_of, unroll
from paceline.speculation.counts import AcceptanceCounts

__all__ = ["Replayed", "Sampled", "head_replay", "model_replay", "starting_places", "walk"]

Array: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """One conversation: how many drafts a step would have had accepted from each place on, and how many the text could judge.

    Attributes:
        number: which exchange of the log.
        runs: accepted drafts of a step that starts there, up to the longest draft [places].
        output_tokens: of the answer.
        stopped: whether the target ended it itself.

    """

    number: int
    runs: Array
    output_tokens: int
    stopped: bool


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """How a log was sampled, so that its drafts are judged by chance: at `temperature`, with draws of `rng`."""

    temperature: float
    rng: np.random.Generator


def walk(replayed: Replayed, draft_tokens: int) -> AcceptanceCounts:
    """What drafting K tokens per step would have counted in one conversation; `accepted_per_position` is K long.

    Prefill gives the first output token and is no step. The step at place i has `output_tokens` − 1 − i tokens left to emit.
    """
    left = replayed.output_tokens - 1 - starting_places(replayed.runs, draft_tokens)  # [steps]
    accepted = np.minimum(replayed.runs[replayed.output_tokens - 1 - left], draft_tokens)
    drafted = left.size * draft_tokens if replayed.stopped else int(np.minimum(left, draft_tokens).sum())
    per_position = tuple(int((accepted > position).sum()) for position in range(draft_tokens))
    return AcceptanceCounts(
        steps=left.size,
        drafts=left.size,
        drafted_tokens=drafted,
        accepted_tokens=sum(per_position),
        accepted_per_position=per_position,
    )


def starting_places(runs: Array, draft_tokens: int) -> Array:
    """The places [steps] at which steps start when each accepts up to K drafts, given the `runs` [places] of all."""
    places, place = [], 0
    reach = (np.minimum(runs, draft_tokens) + 1).tolist()
    while place < len(reach):
        places.append(place)
        place += reach[place]
    return np.array(places, dtype=np.int64)


def head_replay(
    head: Eagle3Head, embedding: Tensor, conversations: Iterable[Conversation], *, draft_tokens: int, rows: int, sampled: Sampled | None
) -> Iterator[Replayed]:
    """An EAGLE-3 head's runs on conversations with the target's states, `rows` conversations at once, in their order.

    `sampled` is None for greedy logs; else features must be those of the target whose `embedding`-sized output head made the text.
    """
    for group in _grouped(conversations, rows):
        batch = batch_of(group)
        runs = torch.zeros(batch.starts.shape[0], dtype=torch.int64)
        with torch.no_grad():
            for each in unroll(head, embedding, batch, draft_tokens=draft_tokens):
                runs[each.steps] += each.hit
        yield from _cut(group, batch, runs)


def _grouped(conversations: Iterable[Conversation], rows: int) -> Iterator[list[Conversation]]:
    group: list[Conversation] = []
    for each in conversations:
        group.append(each)
        if len(group) == rows:
            yield group
            group = []
    if group:
        yield group


def _cut(group: Sequence[Conversation], batch: Batch, runs: Tensor) -> Iterator[Replayed]:
    """A batch's runs by conversation."""
    counts = torch.bincount(batch.conversation[batch.starts], minlength=len(group)).tolist()
    for each, own in zip(group, runs.split(counts), strict=True):
        yield _replayed(each, own)


def _replayed(conversation: Conversation, runs: Tensor) -> Replayed:
    output_tokens = conversation.tokens.shape[0] - conversation.prompt_tokens
    return Replayed(
        number=conversation.number,
        runs=runs.numpy(),
        output_tokens=output_tokens,
        stopped=conversation.stopped,
    )
