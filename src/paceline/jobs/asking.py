"""A chat log as requests to send: sampled, in a fixed order, with everything that steers sampling said explicitly.

Every request has a seed of its own, the run's plus its number, so that a server that samples gives both arms the same chance. Outputs are
at most as long as the logged answer where the log has its tokens, so that the test asks for the lengths production asks for.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paceline.data.tables import DEMO_TRAFFIC, sha256
from paceline.errors import BadInputError, printable
from paceline.files.chatlog import demo_exchanges, read_chat_logs
from paceline.files.recognise import kind_of
from paceline.files.tokens import CHAT_TEMPLATE, render
from paceline.jobs.traffic import DEMO, file_hashes
from paceline.live.openai import Ask
from paceline.traffic.exchange import Exchange
from paceline.traffic.reservoir import Reservoir
from paceline.traffic.segments import segment_rule
from paceline.verdict import Caution

__all__ = ["Asking", "ToAsk", "read_asks", "shortened"]


@dataclass(frozen=True, slots=True)
class Asking:
    """How a log becomes requests.

    Attributes:
        paths: chat logs, or ("demo",).
        segment_rule: `code-or-chat` or `single`, None where a field names the segment or the default rule holds.
        segment_field: the field that names the segment.
        requests: how many are counted.
        spare: how many more are sent before and after the counted ones.
        max_tokens: longest output asked for.
        temperature: said in every request.
        ignore_eos: whether servers are asked to go on to the full length.
        api: chat, or completions with prompts in the template of `files.tokens`.
        seed: of the sample and, plus a request's number, of its sampling.

    """

    paths: tuple[str, ...]
    segment_rule: str | None
    segment_field: str | None
    requests: int
    spare: int
    max_tokens: int
    temperature: float
    ignore_eos: bool
    api: str
    seed: int


@dataclass(frozen=True, slots=True)
class ToAsk:
    """The counted requests, the spare ones, what a reader must know of them, and the hashes of the files."""

    counted: tuple[Ask, ...]
    spare: tuple[Ask, ...]
    cautions: tuple[Caution, ...]
    inputs: Mapping[str, str]


def read_asks(asking: Asking, *, progress: Callable[[int], None]) -> ToAsk:
    """Read the log once and draw from it. `progress` gets bytes as they are read.

    Raises:
        BadInputError: a file cannot be used, has no text, or no exchange.

    """
    exchanges, inputs = _opened(asking, progress)
    wanted = asking.requests + asking.spare
    kept: Reservoir[Exchange] = Reservoir(wanted, rng=np.random.default_rng(asking.seed))
    empty = 0
    for each in exchanges:
        if any(message.content.strip() for message in each.messages):
            kept.offer(each)
        else:
            empty += 1
    if not kept.kept:
        raise BadInputError(f"{printable(', '.join(asking.paths))} holds no exchange that can be sent")
    order = np.random.default_rng(asking.seed).permutation(len(kept.kept)).tolist()
    shuffled = [kept.kept[place] for place in order]
    asks = [_ask(shuffled[number % len(shuffled)], number, len(shuffled), asking) for number in range(wanted)]
    return ToAsk(
        counted=tuple(asks[: asking.requests]),
        spare=tuple(asks[asking.requests :]),
        cautions=tuple(_cautions(asking, len(shuffled), empty=empty)),
        inputs=inputs,
    )


def _opened(asking: Asking, progress: Callable[[int], None]) -> tuple[Iterable[Exchange], dict[str, str]]:
    if asking.paths == (DEMO,):
        return demo_exchanges(), {DEMO_TRAFFIC: sha256(DEMO_TRAFFIC)}
    files = tuple(Path(each) for each in asking.paths)
    for each in files:
        if kind_of(each) != "chat-log":
            raise BadInputError(f"{printable(str(each))} is a trace: it has lengths and times but no text to send; give chat logs too")
    rule = segment_rule(name=asking.segment_rule, field=asking.segment_field)
    return read_chat_logs(files, segment=rule, progress=progress), file_hashes(files)


def _ask(exchange: Exchange, number: int, available: int, asking: Asking) -> Ask:
    again = number // available
    logged = len(exchange.output_token_ids) if exchange.output_token_ids else asking.max_tokens
    return Ask(
        id=exchange.id if again == 0 else f"{exchange.id}#{again + 1}",
        segment=exchange.segment,
        messages=exchange.messages if asking.api == "chat" else None,
        prompt=None if asking.api == "chat" else render(exchange.messages),
        max_tokens=max(1, min(asking.max_tokens, logged)),
        temperature=asking.temperature,
        seed=asking.seed + number,
        extra={"ignore_eos": True} if asking.ignore_eos else {},
    )


def _cautions(asking: Asking, available: int, *, empty: int) -> Iterable[Caution]:
    if empty:
        yield Caution("empty_prompts", f"{empty} exchanges of the log have an empty prompt, which servers refuse; they were left out")
    if asking.api != "chat":
        yield Caution(
            "no_chat_template",
            f"prompts go to the completions API in the template {CHAT_TEMPLATE}, which may not be the target's: acceptance then is not "
            "that of chat traffic; use --api chat",
        )
    if asking.requests > available:
        yield Caution(
            "prompts_repeated",
            f"{asking.requests} requests from {available} exchanges: prompts repeat, so a prefix cache or a suffix tree serves them faster "
            "than new ones; give a longer log or fewer --requests",
        )


def shortened(ask: Ask, *, number: int, max_tokens: int) -> Ask:
    """The same request with a short output, for a warm-up."""
    return replace(ask, id=f"warm-up-{number}", max_tokens=min(ask.max_tokens, max_tokens))
