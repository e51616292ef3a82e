"""A server whose pace is known to the last gap, for `benchmarks/five_clients.py`: one OpenAI-compatible port per arm.

plain        a token each 20 ms
speculative  a step each 24 ms with K = 3 drafts, each accepted with .7 given those before: 1 to 4 tokens in a message, 2.533 on average
stalled      the same, and 2 % of the steps take 200 ms longer

SGLang's client divides gaps by tokens only where the server says in /server_info that it drafts, so that is answered as SGLang answers it.
Each request has its own steps, due at fixed instants from its arrival on, so that a message sent late makes no later one late. How late
they are sent is kept apart; `GET /truth` tells it, with what was really sent since the last time it was asked.

    python benchmarks/five_clients_server.py      prints a line of JSON with the three URLs and serves until its standard input ends
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

MODEL = "mock"
DRAFT_TOKENS = 3
CONDITIONAL_ACCEPTANCE = 0.7
TOKENS_PER_STEP = 2.533
STALL_SHARE = 0.02
STALL_S = 0.2
FIRST_TOKEN_S = 0.05
LONGEST_OUTPUT_TOKENS = 4096
LONGEST_BODY_BYTES = 1 << 22
WORD = " the"  # one token in every tokenizer in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a step takes, whether it drafts, and how often it stalls."""

    name: str
    step_s: float
    draft_tokens: int
    stall_share: float


PACES = (
    Pace(name="plain", step_s=0.020, draft_tokens=0, stall_share=0.0),
    Pace(name="speculative", step_s=0.024, draft_tokens=DRAFT_TOKENS, stall_share=0.0),
    Pace(name="stalled", step_s=0.024, draft_tokens=DRAFT_TOKENS, stall_share=STALL_SHARE),
)


@dataclass(slots=True)
class Told:
    """What was sent: gaps between messages and seconds per token of each request, steps, tokens of them, and seconds each came late."""

    gaps_s: list[float] = field(default_factory=list)
    token_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    steps: int = 0
    tokens: int = 0

    def add(self, sent_s: list[float], tokens: list[int]) -> None:
        """One answer that was sent to its end."""
        self.gaps_s += [after - before for before, after in pairwise(sent_s)]
        self.steps += len(tokens) - 1
        self.tokens += sum(tokens[1:])
        if sum(tokens[1:]):
            self.token_s.append((sent_s[-1] - sent_s[0]) / sum(tokens[1:]))

    def told(self) -> dict[str, float | int | None]:
        """The truth in milliseconds."""
        return {
            "chunk_gap_p50_ms": _ms(self.gaps_s, 0.5),
            "chunk_gap_p99_ms": _ms(self.gaps_s, 0.99),
            "tpot_p50_ms": _ms(self.token_s, 0.5),
            "tokens_per_step": self.tokens / self.steps if self.steps else None,
            "late_p99_ms": _ms(self.late_s, 0.99),
            "requests": len(self.token_s),
        }


def _ms(values: list[float], quantile: float) -> float | None:
    return float(np.quantile(np.array(values), quantile)) * 1e3 if values else None


def steps_of(pace: Pace, output_tokens: int, rng: np.random.Generator) -> Iterator[tuple[float, int, int]]:
    """Seconds since arrival, tokens and accepted drafts of each message; the first is prefill's."""
    at_s, left = FIRST_TOKEN_S, output_tokens - 1
    yield at_s, 1, 0
    while left > 0:
        at_s += pace.step_s + (STALL_S if rng.random() < pace.stall_share else 0.0)
        draws = rng.random(pace.draft_tokens) < CONDITIONAL_ACCEPTANCE
        accepted = int(np.argmin(draws)) if not draws.all() else draws.size
        tokens = min(1 + accepted, left)
        left -= tokens
        yield at_s, tokens, accepted


@dataclass(slots=True)
class Port:
    """One arm: answers and keeps what it sent."""

    pace: Pace
    told: Told = field(default_factory=Told)
    served: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after the other."""
        try:
            while (request := await _request(reader)) is not None:
                await self._answer(*request, writer=writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # a client that went away, or is none
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes, *, writer: asyncio.StreamWriter) -> None:
        if path.startswith(("/v1/chat/completions", "/v1/completions")):
            await self._complete(json.loads(body), is_chat="chat" in path, writer=writer)
        elif path == "/truth":
            told, self.told = self.told.told(), Told()
            _reply(writer, told)
        elif path == "/server_info":
            _reply(writer, {"internal_states": [{"avg_spec_accept_length": TOKENS_PER_STEP}] if self.pace.draft_tokens else []})
        elif path == "/v1/models":
            _reply(
                writer,
                {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "mock", "max_model_len": 8192}]},
            )
        else:
            _reply(writer, {}, status="200 OK" if path in ("/health", "/ping", "/") else "404 Not Found")
        await writer.drain()

    async def _complete(self, asked: dict[str, Any], *, is_chat: bool, writer: asyncio.StreamWriter) -> None:
        arrived_s = time.monotonic()
        self.served += 1
        most = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16)
        steps = list(steps_of(self.pace, min(max(most, 1), LONGEST_OUTPUT_TOKENS), np.random.default_rng(self.served)))
        name = f"request-{self.served}"
        usage = {"prompt_tokens": max(1, len(json.dumps(asked.get("messages") or asked.get("prompt"))) // 5)}
        if not asked.get("stream"):
            await asyncio.sleep(steps[-1][0])
            tokens = sum(each for _, each, _ in steps)
            text = {"message": {"role": "assistant", "content": WORD * tokens}} if is_chat else {"text": WORD * tokens}
            choice = {"index": 0, "finish_reason": "length", **text}
            _reply(writer, {"id": name, "object": "completion", "model": MODEL, "choices": [choice], "usage": _usage(usage, tokens)})
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        messages = Messages(name=name, is_chat=is_chat, usage=usage, is_continuous="stream_options" in asked)
        sent_s: list[float] = []
        for number, (at_s, tokens, _) in enumerate(steps):
            await asyncio.sleep(max(0.0, arrived_s + at_s - time.monotonic()))
            if is_chat and not sent_s:
                writer.write(messages.role())
            sent_s.append(time.monotonic())
            writer.write(messages.tokens(tokens, is_last=number == len(steps) - 1))
            await writer.drain()
            self.told.late_s.append(sent_s[-1] - arrived_s - at_s)
        writer.write(messages.end([accepted for _, _, accepted in steps[1:]], self.pace.draft_tokens))
        self.told.add(sent_s, [tokens for _, tokens, _ in steps])


@dataclass(slots=True)
class Messages:
    """The messages of one streamed answer in vLLM's form."""

    name: str
    is_chat: bool
    usage: dict[str, int]
    is_continuous: bool
    sent: int = 0

    def role(self) -> bytes:
        """The first message of a chat: a role and no text, sent right before the first token, as vLLM does."""
        return self._message([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def tokens(self, count: int, *, is_last: bool) -> bytes:
        """The tokens of one step."""
        self.sent += count
        text = {"delta": {"content": WORD * count}} if self.is_chat else {"text": WORD * count}
        return self._message([{"index": 0, **text, "logprobs": None, "finish_reason": "length" if is_last else None}])

    def end(self, accepted: list[int], draft_tokens: int) -> bytes:
        """Usage, what was accepted, and the end mark."""
        histogram = [sum(each == place for each in accepted) for place in range(draft_tokens + 1)]
        drafts = {
            "num_spec_steps": len(accepted),
            "num_draft_tokens": len(accepted) * draft_tokens,
            "num_accepted_draft_tokens": sum(accepted),
            "num_spec_tokens": draft_tokens,
            "acceptance_histogram": histogram,
        }
        metrics = {"metrics": {"speculative_decoding": drafts}} if draft_tokens and accepted else {}
        last = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        return (self._message([], **metrics) if self.is_continuous else b"") + last

    def _message(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        fields = {"id": self.name, "object": kind, "created": 0, "model": MODEL, "choices": choices}
        usage = {"usage": _usage(self.usage, self.sent)} if self.is_continuous else {}
        return _chunk(b"data: " + json.dumps({**fields, **usage, **more}).encode() + b"\n\n")


def _usage(prompt: dict[str, int], completion_tokens: int) -> dict[str, int]:
    return {**prompt, "completion_tokens": completion_tokens, "total_tokens": prompt["prompt_tokens"] + completion_tokens}


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _reply(writer: asyncio.StreamWriter, fields: dict[str, Any], *, status: str = "200 OK") -> None:
    body = json.dumps(fields).encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes] | None:
    """The path and the body of the next request, None where the client has gone."""
    line = await reader.readline()
    if not line:
        return None
    size, path = 0, line.split()[1].decode("ascii", "replace")
    while (header := (await reader.readline()).strip()) != b"":
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    if not 0 <= size <= LONGEST_BODY_BYTES:
        raise ValueError(size)
    return path, await reader.readexactly(size)


async def main() -> None:
    """Serve the three arms until standard input ends."""
    servers = {pace.name: await asyncio.start_server(Port(pace).serve, "127.0.0.1", 0) for pace in PACES}
    urls = {name: f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for name, server in servers.items()}
    sys.stdout.write(json.dumps(urls) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
