"""An EAGLE-3 head unrolled over whole texts: the drafts of every step that could start anywhere in an answer, a few passes for all of them.

A step that starts at row p drafts from what the target knew at row p and from token p + 1: its first draft is judged by token p + 2, its
j-th by token p + 1 + j. In the first pass the head reads the target's hidden states, in later ones its own output at the pass before
(training-time test, arXiv 2503.01840 §3.3). Text is teacher-forced: a draft that hits the
text is the text, and behind a miss nothing counts.

Attention is what it is while drafting: pass j of a step sees the rows up to p as the first pass computed them, and of its own step the
passes 1 to j. It never sees another step's guesses.

A step is alive at pass j while all of its drafts before were accepted. Only alive steps are run: what comes after a rejection never reaches
a user, in training it would teach the head to go on from mistakes, and leaving it out spares about half of the work.

Notation: K passes, n steps alive, heads = kv_heads · group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from paceline.engine.eagle3 import Eagle3Head
from paceline.engine.rotary import Rotary
from paceline.engine.states import Conversation

__all__ = ["Accept", "Batch", "Drafted", "Pass", "batch_of", "is_named", "unroll"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Conversations packed for the head: their rows behind one another, and the steps that can start in them.

    Attributes:
        tokens: all tokens [tokens].
        aux: the target's hidden states [rows, layers · hidden].
        features: what the target's output head reads [rows, hidden].
        next_token: of every row, where in `tokens` the token behind it stands [rows].
        positions: of every row, its place in its conversation [rows].
        starts: rows at which a step can start and draft something that the text can judge [steps].
        drafts_left: how many drafts of each step the text can judge [steps].
        conversation: of each row, which conversation it is from [rows].
        padded: rows by conversation [conversations, longest], −1 behind the end.

    """

    tokens: Tensor
    aux: Tensor
    features: Tensor
    next_token: Tensor
    positions: Tensor
    starts: Tensor
    drafts_left: Tensor
    conversation: Tensor
    padded: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """What one pass drafts for the steps that are still alive, and what judges it.

    Attributes:
        logits: of the draft vocabulary [n, draft vocab].
        wanted: the text's token, which the draft has to hit [n].
        features: what the target's output head reads where it gives the token's distribution [n, hidden].

    """

    logits: Tensor
    wanted: Tensor
    features: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass: which of the batch's steps were alive [n], what it drafted, and what is accepted [n]."""

    steps: Tensor
    drafted: Drafted
    hit: Tensor


Accept = Callable[[Eagle3Head, Drafted], Tensor]
"""Which drafts are accepted [n], bool."""


def is_named(head: Eagle3Head, drafted: Drafted) -> Tensor:
    """Whether the head's likeliest token is the text's: what a server accepts that drafts by argmax, whatever the target's temperature."""
    return head.target_ids(drafted.logits.detach().argmax(-1)) == drafted.wanted


def batch_of(conversations: Sequence[Conversation], *, like: Tensor) -> Batch:
    """The conversations packed, of `like`'s dtype and on its device. Each needs a prompt token and an answer of two."""
    sizes = [each.tokens.shape[0] for each in conversations]
    places = [torch.arange(size - 1) for size in sizes]
    rows = list(accumulate((size - 1 for size in sizes), initial=0))
    begins = [torch.arange(each.prompt_tokens - 1, size - 2) for each, size in zip(conversations, sizes, strict=True)]
    padded = torch.full((len(sizes), max(sizes) - 1), -1)
    for number, place in enumerate(places):
        padded[number, : place.shape[0]] = place + rows[number]
    packed = Batch(
        tokens=torch.cat([each.tokens for each in conversations]),
        aux=torch.cat([each.aux for each in conversations]).to(like.dtype),
        features=torch.cat([each.features for each in conversations]).to(like.dtype),
        next_token=torch.cat([place + row + number + 1 for number, (place, row) in enumerate(zip(places, rows, strict=False))]),
        positions=torch.cat(places),
        starts=torch.cat([begin + row for begin, row in zip(begins, rows, strict=False)]),
        drafts_left=torch.cat([size - 2 - begin for begin, size in zip(begins, sizes, strict=True)]),
        conversation=torch.repeat_interleave(torch.tensor([size - 1 for size in sizes])),
        padded=padded,
    )
    return Batch(**{each.name: getattr(packed, each.name).to(like.device) for each in fields(Batch)})


def unroll(head: Eagle3Head, embedding: Tensor, batch: Batch, *, draft_tokens: int, accept: Accept) -> Iterator[Pass]:
    """The passes of all steps, one after the other, until `draft_tokens` or until no step is alive."""
    seen = _Seen(head, embedding, batch)
    steps = torch.arange(batch.starts.shape[0], device=batch.starts.device)
    hidden = None
    for number in range(draft_tokens):
        if not steps.shape[0]:
            return
        rows = batch.starts[steps]
        hidden = seen.first(hidden_at=rows) if number == 0 else seen.later(hidden, rows, number)
        judge = rows + number + 1
        drafted = Drafted(head.draft_logits(hidden), wanted=batch.tokens[batch.next_token[judge]], features=batch.features[judge])
        hit = accept(head, drafted)
        yield Pass(steps=steps, drafted=drafted, hit=hit)
        alive = hit & (batch.drafts_left[steps] > number + 1)
        steps, hidden = steps[alive], hidden[alive]
        seen.keep(alive)


class _Seen:
    """What the passes attend to: every row as the first pass computed it, and each alive step's own passes since."""

    def __init__(self, head: Eagle3Head, embedding: Tensor, batch: Batch) -> None:
        self._head, self._embedding, self._batch = head, embedding, batch
        shape = head.config.shape
        self._group = shape.heads // shape.kv_heads
        self._fused = head.fuse(batch.aux)
        self._present = (batch.padded >= 0)[:, None, :]
        self._gather = batch.padded.clamp(min=0)
        self._own: list[tuple[Tensor, Tensor]] = []
        self._rows: tuple[Tensor, Tensor]

    def _embed(self, rows: Tensor, ahead: int) -> Tensor:
        batch = self._batch
        return functional.embedding(batch.tokens[batch.next_token[rows] + ahead], self._embedding)

    def first(self, *, hidden_at: Tensor) -> Tensor:
        """The hidden states of the first pass at rows `hidden_at`; of other rows only keys and values are made."""
        batch, layer = self._batch, self._head.midlayer
        everywhere = torch.arange(batch.positions.shape[0], device=batch.positions.device)
        is_start = torch.zeros_like(everywhere, dtype=torch.bool)
        is_start[hidden_at] = True
        others = everywhere[~is_start]
        order = torch.cat((others, hidden_at)).argsort()
        x = torch.cat((layer.input_layernorm(self._embed(others, 0)), layer.hidden_norm(self._fused[others])), dim=-1)
        heads = (layer.self_attn.k_proj(x), layer.self_attn.v_proj(x))
        keys, values = (each.unflatten(-1, (-1, self._head.config.shape.head_dim)).transpose(0, 1) for each in heads)
        keys = Rotary.turned(keys, *self._head.turn(batch.positions[others], keys))

        def attend(queries: Tensor, own_keys: Tensor, own_values: Tensor) -> Tensor:
            every = (torch.cat(pair, dim=1)[:, order] for pair in ((keys, own_keys), (values, own_values)))
            padded_keys, padded_values = (each[:, self._gather].transpose(0, 1) for each in every)
            self._rows = (padded_keys, padded_values)  # [conversations, kv_heads, longest, head_dim]
            return self._attend(queries, hidden_at)

        return self._head(self._embed(hidden_at, 0), self._fused[hidden_at], positions=batch.positions[hidden_at], attend=attend)

    def later(self, hidden: Tensor, rows: Tensor, number: int) -> Tensor:
        """The hidden states of pass `number` (0 was the first) of the steps at `rows`, from those of the pass before."""

        def attend(queries: Tensor, own_keys: Tensor, own_values: Tensor) -> Tensor:
            self._own.append((own_keys, own_values))
            return self._attend(queries, rows)

        positions = self._batch.positions[rows] + number
        return self._head(self._embed(rows, number), hidden, positions=positions, attend=attend)

    def keep(self, alive: Tensor) -> None:
        """Forget the steps that are not `alive` [n] any more."""
        self._own = [(keys[:, alive], values[:, alive]) for keys, values in self._own]

    def _attend(self, queries: Tensor, rows: Tensor) -> Tensor:
        """`queries` [heads, n, head_dim] over the rows up to `rows` [n] and the steps' own passes; [n, heads · head_dim]."""
        batch, (keys, values) = self._batch, self._rows
        heads, count, head_dim = queries.shape
        place, slot = _places(batch.conversation[rows], len(batch.padded))
        grouped = queries.view(heads // self._group, self._group, count, head_dim).permute(2, 0, 1, 3)  # [n, kv_heads, group, head_dim]
        padded = grouped[place].transpose(1, 2)  # [conversations, kv_heads, most, group, head_dim]
        scale = head_dim**-0.5
        scores = torch.matmul(padded.flatten(2, 3), keys.transpose(2, 3)).unflatten(2, (-1, self._group)) * scale
        visible = (torch.arange(keys.shape[2], device=keys.device) <= batch.positions[rows][place][:, :, None]) & self._present
        scores = scores.masked_fill(~visible[:, None, :, None, :], float("-inf"))
        if not self._own:
            weights = scores.softmax(-1)
            attended = torch.matmul(weights.flatten(2, 3), values).unflatten(2, (-1, self._group))
            return attended.transpose(1, 2).flatten(0, 1)[slot].flatten(1)
        own_keys, own_values = (
            torch.stack(each, dim=2).transpose(0, 1) for each in zip(*self._own, strict=True)
        )  # [n, kv_heads, own, head_dim]
        own_scores = (grouped[:, :, :, None] * own_keys[:, :, None]).sum(-1) * scale  # [n, kv_heads, group, own]
        weights = torch.cat((scores, own_scores[place].transpose(1, 2)), dim=-1).softmax(-1)
        seen = keys.shape[2]
        attended = torch.matmul(weights[..., :seen].flatten(2, 3), values).unflatten(2, (-1, self._group))
        own_weights = weights[..., seen:].transpose(1, 2).flatten(0, 1)[slot]  # [n, kv_heads, group, own]
        own = (own_weights[..., None] * own_values[:, :, None]).sum(3)
        return (attended.transpose(1, 2).flatten(0, 1)[slot] + own).flatten(1)


def _places(owner: Tensor, conversations: int) -> tuple[Tensor, Tensor]:
    """How n things, ascending by `owner` [n], lie in a table [conversations, most], and where each of them is in the flattened table.

    Free places of the table repeat the first thing; nobody reads them back.
    """
    counts = torch.bincount(owner, minlength=conversations)
    begins = counts.cumsum(0) - counts
    order = torch.arange(owner.shape[0], device=owner.device)
    within = order - begins[owner]
    most = int(counts.max())
    slot = owner * most + within
    place = torch.zeros(conversations * most, dtype=torch.int64, device=owner.device)
    place[slot] = order
    return place.view(conversations, most), slot
