"""A log as its target sees it: every exchange in the target's own tokens and template, answered by it, with its hidden states on disk.

What a training and a neural replay both begin with. Answers go to `answers.jsonl`, a chat log with token ids, so that other methods can be
replayed on the very same tokens.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from paceline.engine.answers import Asked, Decoding, answer_all
from paceline.engine.chat import Chat, load_chat
from paceline.engine.checkpoint import longest_context
from paceline.engine.peers import Peers, find_peers
from paceline.engine.sharded_target import ShardedTarget, load_sharded_target
from paceline.engine.states import Conversation, StatesFolder, open_states
from paceline.engine.target import Target, load_target
from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.chatlog import read_chat_logs
from paceline.files.modeldir import weights_fingerprint
from paceline.files.whole import write_text
from paceline.jobs.traffic import file_hashes
from paceline.servers.eagle_head import default_auxiliary_layers
from paceline.traffic.exchange import Exchange
from paceline.traffic.segments import segment_rule

__all__ = ["Bar", "LogAsked", "SeenLog", "Step", "see_log"]

SHARD_CONVERSATIONS = 128
ROWS = 64
STATES, ANSWERS = "states", "answers.jsonl"
Step = Callable[[str], None]
Bar = Callable[[str, float | None], Callable[[float], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAsked:
    """Which log, and how its target answers it.

    Attributes:
        target: folder of the target.
        logs: chat logs.
        segment_rule: as for every log.
        segment_field: as for every log.
        logged_answers: whether the log's own answers are taken where there are any; else the target answers every prompt.
        max_tokens: longest answer of the target.
        sharded: whether the target's layers are shared by the processes that `torchrun` started, else each holds the target.

    """

    target: Path
    logs: tuple[Path, ...]
    segment_rule: str | None
    segment_field: str | None
    logged_answers: bool
    max_tokens: int
    sharded: bool


@dataclass(frozen=True, slots=True, eq=False)
class SeenLog:
    """A log whose states are on disk.

    Attributes:
        exchanges: all of the log, in order.
        target: that read them.
        states: where the shards are.
        shards: how many.
        kept: exchanges whose states are there.
        left_out: why the others are not, None where there are none.
        inputs: SHA-256 by file name.

    """

    exchanges: tuple[Exchange, ...]
    target: Target
    states: StatesFolder
    shards: int
    kept: int
    left_out: str | None
    inputs: dict[str, str]

    def conversations(self) -> Iterator[Conversation]:
        """All conversations, in the log's order."""
        for shard in range(self.shards):
            yield from self.states.read(shard)


def see_log(asked: LogAsked, *, readers: Sequence[Path], aux_layers: tuple[int, ...] | None, folder: Path, step: Step, bar: Bar) -> SeenLog:
    """Have the target answer what is not answered yet, and keep its states at `aux_layers` (None: the usual three) in `folder`.

    An exchange that is longer than the target, or one of the other `readers` of its tokens, has positions for is left out. `step` is told
    what begins, `bar` makes a progress bar of a name and a total.

    Raises:
        BadInputError: the target or a log cannot be used, or `folder` holds another log's states.
        NoEvidenceError: no exchange has a prompt that can be answered.

    """
    peers = find_peers()
    target = _target(asked, peers)
    chat = load_chat(asked.target)
    layers = aux_layers or default_auxiliary_layers(target.layers)
    _need_layers(layers, asked.target, target.layers)
    rule = segment_rule(name=asked.segment_rule, field=asked.segment_field)
    exchanges = tuple(read_chat_logs(asked.logs, segment=rule, progress=None))
    inputs = file_hashes(asked.logs)
    fingerprint = weights_fingerprint(asked.target)
    settings = {
        "target": fingerprint,
        "log": sorted(inputs.values()),
        "aux_layers": list(layers),
        "logged_answers": asked.logged_answers,
        "max_tokens": asked.max_tokens,
        "shard_conversations": SHARD_CONVERSATIONS,
    }
    states = open_states(folder / STATES, settings)
    every = [_asked(number, each, chat, logged_answers=asked.logged_answers) for number, each in enumerate(exchanges)]
    questions, left_out = _short_enough(every, asked, longest=longest_context(asked.target, *readers))
    if left_out is not None:
        step(left_out)
    shards = [questions[at : at + SHARD_CONVERSATIONS] for at in range(0, len(questions), SHARD_CONVERSATIONS)]
    decoding = Decoding(hidden_layers=layers, end_ids=chat.end_ids, max_tokens=asked.max_tokens, rows=ROWS, kept=torch.bfloat16)
    step(f"{asked.target.name} {'reads' if asked.logged_answers else 'answers'} {len(questions):,} prompts")
    own = sum(map(len, peers.share(shards)))
    answer_all(target, shards, states, decoding, peers=peers, progress=bar("answering", own))
    if isinstance(target, ShardedTarget):
        target.help_others()
    peers.wait()
    inputs[asked.target.resolve().name] = fingerprint
    seen = SeenLog(
        exchanges=exchanges,
        target=target,
        states=states,
        shards=len(shards),
        kept=len(questions),
        left_out=left_out,
        inputs=inputs,
    )
    if peers.is_first:
        _write_answers(seen, chat, folder / ANSWERS)
    return seen


def _need_layers(layers: Sequence[int], target: Path, of: int) -> None:
    strange = next((each for each in layers if not 0 <= each <= of), None)
    if strange is not None:
        raise BadInputError(f"layer {strange} is none of {printable(target.name)}'s {of}; give other --aux-layers, or a head made for it")


def _short_enough(every: list[Asked], asked: LogAsked, *, longest: int | None) -> tuple[list[Asked], str | None]:
    """Those of which prompt and answer, the longest that the target may give, are no longer; and what is said of the others."""
    if longest is None:
        return every, None
    kept = [each for each in every if len(each.prompt) + (asked.max_tokens if each.answer is None else len(each.answer)) <= longest]
    if len(kept) == len(every):
        return every, None
    what = "prompt and answer" if asked.logged_answers else f"prompt and --max-tokens {asked.max_tokens}"
    many = f"{len(every) - len(kept):,} of {len(every):,} conversations"
    said = f"{many} are left out: {what} are more than the {longest:,} positions of the models"
    if not kept:
        raise NoEvidenceError(said)
    return kept, said


def _target(asked: LogAsked, peers: Peers) -> Target:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if not asked.sharded:
        return load_target(asked.target, dtype=dtype, device=device)
    if peers.size == 1:
        raise BadInputError("--fsdp shares the target's layers between processes, and this is the only one; start several with torchrun")
    return load_sharded_target(asked.target, dtype=dtype, device=device, peers=peers)


def _asked(number: int, exchange: Exchange, chat: Chat, *, logged_answers: bool) -> Asked:
    prompt = exchange.prompt_token_ids or chat.prompt(exchange.messages)
    if not logged_answers:
        return Asked(number=number, prompt=tuple(prompt), answer=None, stopped=False)
    if exchange.answer is None:
        raise NoEvidenceError(f"exchange {printable(exchange.id)} has no answer; have the target answer: leave --logged-answers out")
    stopped = exchange.finish_reason != "length"
    answer = exchange.output_token_ids or (*chat.answer(exchange.answer), *(sorted(chat.end_ids)[:1] if stopped else ()))
    if not answer:
        raise NoEvidenceError(f"exchange {printable(exchange.id)}: its answer has no tokens; leave it out")
    return Asked(number=number, prompt=tuple(prompt), answer=tuple(answer), stopped=stopped)


def _write_answers(seen: SeenLog, chat: Chat, file: Path) -> None:
    write_text(file, "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in _answer_lines(seen, chat)))


def _answer_lines(seen: SeenLog, chat: Chat) -> Iterator[dict[str, object]]:
    for each in seen.conversations():
        exchange = seen.exchanges[each.number]
        output = each.tokens[each.prompt_tokens :].tolist()
        asked = [{"role": said.role, "content": said.content} for said in exchange.messages]
        yield {
            "messages": [*asked, {"role": "assistant", "content": chat.text(output)}],
            "segment": exchange.segment,
            "finish_reason": "stop" if each.stopped else "length",
            "prompt_token_ids": each.tokens[: each.prompt_tokens].tolist(),
            "token_ids": output,
        }
