"""Neural replay: what a draft head or a draft model would have drafted on logged answers, and what of it the target would have kept.

One pass of the target over the text, and as many passes of the draft as a step drafts, for every place where a step could start at once;
nothing is generated. Acceptance at every draft length is then a walk over places: a step starts, accepts n drafts, and the next starts
n + 1 tokens on. Steps begin after rejections, where text is hard: counting every place as a start overstates acceptance.

A server that drafts by argmax (vLLM's and SGLang's default) is replayed exactly, whatever the target's temperature: its draft is accepted
with the probability that the target draws that very token, and given the log it is accepted where it is the logged token.

A server that draws its drafts from the draft's distribution q is replayed by chance. Given that the logged token x was drawn from the
target's p, the draft is x and accepted with probability min(1, q(x) / p(x)), which is Σ min(p, q) in the mean over x; what follows a
rejection has the residual's law (Leviathan et al., arXiv 2211.17192, §2.3 and theorem 3.5). So a drawn walk has the law that speculative
sampling has given this text. A mean of Σ min(p, q) alone would not: an accepted token is not a token of p.

The end of the log is `replay.ngram`'s: where the target stopped by itself, drafts beyond the end count as drafted and not accepted; where
the answer was cut at a length, the last step's draft counts as far as there is text to judge it.

Notation: K draft length, n accepted drafts.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from paceline.engine.unroll import Accept, Batch, Drafted, batch_of, unroll
from paceline.speculation.counts import AcceptanceCounts

__all__ = ["Replayed", "by_chance", "head_replay", "model_replay", "runs_of_hits", "starting_places", "walk"]

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
    head: Eagle3Head, embedding: Tensor, conversations: Iterable[Conversation], *, draft_tokens: int, rows: int, accept: Accept
) -> Iterator[Replayed]:
    """An EAGLE-3 head's runs on conversations with the target's states, `rows` conversations at once, in their order."""
    for group in _grouped(conversations, rows):
        batch = batch_of(group, like=embedding)
        runs = torch.zeros_like(batch.starts)
        with torch.no_grad():
            for each in unroll(head, embedding, batch, draft_tokens=draft_tokens, accept=accept):
                runs[each.steps] += each.hit
        yield from _cut(group, batch, runs)


def by_chance(output_head: Tensor, *, temperature: float, rng: np.random.Generator) -> Accept:
    """Acceptance of drafts that are drawn at `temperature`, as the target's tokens were; `output_head` [vocab, hidden] is the target's."""

    def accept(head: Eagle3Head, drafted: Drafted) -> Tensor:
        draft = torch.softmax(drafted.logits / temperature, dim=-1)
        own = head.target_ids(torch.arange(draft.shape[1], device=draft.device)) == drafted.wanted[:, None]
        share = (draft * own).sum(-1) / _target_share(drafted, output_head, temperature)
        return _drawn(share, rng)

    return accept


def _target_share(drafted: Drafted, output_head: Tensor, temperature: float) -> Tensor:
    """How likely the target was to draw the logged token [n]."""
    target = torch.softmax(torch.nn.functional.linear(drafted.features, output_head) / temperature, dim=-1)
    return target.gather(1, drafted.wanted[:, None])[:, 0]


def _drawn(shares: Tensor, rng: np.random.Generator) -> Tensor:
    """True with the probability of each share, always from 1 on."""
    return torch.from_numpy(rng.random(shares.shape[0])).to(shares.device) < shares.double()


def model_replay(
    model: Target,
    conversations: Iterable[Conversation],
    *,
    draft_tokens: int,
    rows: int,
    temperature: float | None,
    rng: np.random.Generator,
    output_head: Tensor,
) -> Iterator[Replayed]:
    """A draft model's runs, `rows` conversations at once, in their order.

    Its only input is text, so one pass says what it drafts behind every place; drafts are named where `temperature` is None, else drawn.
    """
    for group in _grouped(conversations, rows):
        asked = [Row(each.tokens[:-1], model.new_cache(), None, logits=each.answer_tokens - 1) for each in group]
        for each, said in zip(group, model.forward(asked, hidden_layers=()), strict=True):
            wanted = each.tokens[each.prompt_tokens + 1 :]
            if temperature is None:
                hits = said.logits.argmax(-1) == wanted
            else:
                drafted = Drafted(said.logits, wanted=wanted, features=each.features[each.prompt_tokens :].float())
                share = torch.softmax(said.logits / temperature, dim=-1).gather(1, wanted[:, None])[:, 0]
                hits = _drawn(share / _target_share(drafted, output_head, temperature), rng)
            yield _replayed(each, torch.from_numpy(runs_of_hits(hits.numpy(), draft_tokens)))


def runs_of_hits(hits: npt.NDArray[np.bool_], draft_tokens: int) -> Array:
    """From each place on, how many hits follow without a miss, up to K [places]."""
    places = np.arange(hits.size)
    misses = np.append(np.flatnonzero(~hits), hits.size)
    following: Array = misses[np.searchsorted(misses, places)] - places
    return np.minimum(following, draft_tokens)


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
    runs = runs.cpu()
    for each, own in zip(group, runs.split(counts), strict=True):
        yield _replayed(each, own)


def _replayed(conversation: Conversation, runs: Tensor) -> Replayed:
    output_tokens = conversation.answer_tokens
    return Replayed(
        number=conversation.number,
        runs=runs.numpy(),
        output_tokens=output_tokens,
        stopped=conversation.stopped,
    )
