"""The target's own greedy answers to a log's prompts, with the hidden states that it computed on the way.

A draft head has to follow what the target writes, not what somebody else once answered, so a log's prompts are enough. Rows of any length
share a pass, without padding; a row whose answer has ended makes room for the next prompt, so that passes stay full. What a row gets does
not depend on who shares its pass, but for the last bits of a sum.

The states of a token are those of the pass that read it: nothing is computed twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from paceline.engine.peers import Peers
from paceline.engine.rows import Answered, Row
from paceline.engine.shared_cache import SharedCache
from paceline.engine.states import Conversation, StatesFolder
from paceline.engine.target import Target

__all__ = ["Asked", "Decoding", "answer_all"]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """An exchange to be run: its number in the log, its prompt [tokens], and a logged answer [tokens] (None: the target answers)."""

    number: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...] | None
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How the target answers.

    Attributes:
        hidden_layers: the auxiliary layers, index k being the residual stream after k decoder layers.
        end_ids: tokens that end an answer.
        max_tokens: longest answer.
        rows: conversations in one pass.
        kept: what states are kept as.

    """

    hidden_layers: tuple[int, ...]
    end_ids: frozenset[int]
    max_tokens: int
    rows: int
    kept: torch.dtype


@dataclass(slots=True, eq=False)
class _Open:
    """A conversation that is being answered."""

    asked: Asked
    cache: Any
    tokens: list[int]
    unread: list[int]
    aux: list[Tensor] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)


class _Caches:
    """Caches for at most `slots` conversations at once: of one block where the target has such, so that they attend together."""

    def __init__(self, target: Target, *, slots: int, room_tokens: int) -> None:
        self._target = target
        self._block = target.new_block(slots=slots, room_tokens=room_tokens)
        self._free = list(range(slots - 1, -1, -1))

    def take(self) -> Any:
        """An empty cache."""
        return self._target.new_cache() if self._block is None else self._block.cache(self._free.pop())

    def give_back(self, cache: Any) -> None:
        """Its conversation has ended."""
        if isinstance(cache, SharedCache):
            self._free.append(cache.slot)


def answer_all(
    target: Target,
    shards: Sequence[Sequence[Asked]],
    states: StatesFolder,
    decoding: Decoding,
    *,
    peers: Peers,
    progress: Callable[[float], None],
) -> None:
    """Run what is not yet on disk, of several processes' work this one's share.

    `progress` gets the number of conversations done since it was last called.

    Raises:
        BadInputError: a shard cannot be written.

    """
    for number, asked in peers.share(list(enumerate(shards))):
        if states.has(number):
            progress(len(asked))
            continue
        done = []
        for each in _answered(target, asked, decoding):
            done.append(each)
            progress(1)
        states.write(number, sorted(done, key=lambda each: each.number))


def _answered(target: Target, asked: Sequence[Asked], decoding: Decoding) -> Iterator[Conversation]:
    """The conversations as they end. New prompts have a pass of their own, so that those that go on attend together."""
    waiting = iter(asked)
    room = max((len(each.prompt) + len(each.answer or ()) for each in asked), default=0) + decoding.max_tokens
    caches = _Caches(target, slots=min(decoding.rows, len(asked)), room_tokens=room)
    running: list[_Open] = []
    while True:
        new = [_opened(each, caches.take()) for each in islice(waiting, decoding.rows - len(running))]
        if not new and not running:
            return
        passed = [*_passed(target, running, decoding), *_passed(target, new, decoding)]
        for each, _ in filter(itemgetter(1), passed):
            caches.give_back(each.cache)
        yield from (ended for _, ended in passed if ended is not None)
        still = [each for each, ended in passed if ended is None]
        running = sorted(still, key=lambda each: getattr(each.cache, "slot", 0))


def _passed(target: Target, group: Sequence[_Open], decoding: Decoding) -> Iterator[tuple[_Open, Conversation | None]]:
    """Run one pass, if there is anything to run, and say of each conversation whether it has ended."""
    if not group:
        return
    rows = [Row(torch.tensor(each.unread, device=target.device), each.cache, None, logits=int(each.asked.answer is None)) for each in group]
    for each, said in zip(group, target.forward(rows, hidden_layers=decoding.hidden_layers), strict=True):
        yield each, _take(each, said, decoding)


def _opened(asked: Asked, cache: Any) -> _Open:
    tokens = [*asked.prompt, *(asked.answer or ())]
    return _Open(asked=asked, cache=cache, tokens=tokens, unread=tokens if asked.answer is None else tokens[:-1])


def _take(each: _Open, said: Answered, decoding: Decoding) -> Conversation | None:
    """Note what a pass said; the conversation once it has ended."""
    each.aux.append(torch.cat(said.hidden, dim=-1).to(decoding.kept).cpu())
    each.features.append(said.features.to(decoding.kept).cpu())
    stopped = each.asked.stopped
    if each.asked.answer is None:
        token = int(said.logits[-1].argmax())
        each.tokens.append(token)
        each.unread = [token]
        stopped = token in decoding.end_ids
        if not stopped and len(each.tokens) - len(each.asked.prompt) < decoding.max_tokens:
            return None
    return Conversation(
        number=each.asked.number,
        tokens=torch.tensor(each.tokens),
        prompt_tokens=len(each.asked.prompt),
        stopped=stopped,
        aux=torch.cat(each.aux),
        features=torch.cat(each.features),
    )
