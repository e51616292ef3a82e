"""A server that streams chat answers at a fixed pace and writes into each message when it was due and when it left.

    python benchmarks/paced_server.py --step-s 0.02 --tokens 2 [--lock-step]

Prints its URL and runs until it is ended. An answer of `max_tokens` tokens has max_tokens / tokens messages, `step_s` apart: in lock-step
all streams on the same ticks, otherwise each on its own phase. `sent_at_ns` and `due_at_ns` in a message are perf_counter_ns, which all
processes of one machine share on Linux. The stamp is taken just before the write, so what it holds up is the client's to explain.
"""

import argparse
import asyncio
import json
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, cast

from paceline.live.event_loop import run_in_loop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
MODEL = "paced"
MESSAGE = (  # as long as vLLM's
    b'data: {"id":"chatcmpl-99e5b9851ac43aa0","object":"chat.completion.chunk","created":1795962291,"model":"paced","choices":[{"index":0,'
    b'"delta":{"content":" quick brown"},"logprobs":null,"finish_reason":%b,"token_ids":null}],%b"due_at_ns":%d,"sent_at_ns":%d}\n\n'
)


@dataclass(frozen=True)
class Pace:
    """Seconds between two messages of a stream, tokens in each, and whether all streams share their ticks."""

    step_s: float
    tokens: int
    lock_step: bool


class Streams:
    """All streams under way, written to by one timer each, or all by one."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.active: list[Stream] = []
        self._ticking = False

    def add(self, stream: "Stream") -> None:
        """Begin to write to `stream`."""
        self.active.append(stream)
        loop = asyncio.get_running_loop()
        if not self.pace.lock_step:
            loop.call_at(stream.begun_s + self.pace.step_s, stream.emit_and_go_on)
        elif not self._ticking:
            self._ticking = True
            loop.call_at(self._next_tick_s(loop.time()), self.tick, self._next_tick_s(loop.time()))

    def tick(self, due_s: float) -> None:
        """Write to all streams, and go on at the next tick."""
        due_ns = int(due_s * 1e9)
        self.active = [each for each in self.active if each.emit(due_ns)]
        self._ticking = bool(self.active)
        if self.active:
            asyncio.get_running_loop().call_at(due_s + self.pace.step_s, self.tick, due_s + self.pace.step_s)

    def _next_tick_s(self, now_s: float) -> float:
        return (now_s // self.pace.step_s + 1) * self.pace.step_s


class Stream(asyncio.Protocol):
    """One connection; one answer at a time."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self._received = b""
        self.step = self.steps = 0
        self.begun_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: answer each whole request."""
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
        if found and len(rest) >= length:
            self._received = rest[length:]
            self._answer(head, rest[:length])

    def _answer(self, head: bytes, body: bytes) -> None:
        if not head.startswith(b"POST"):
            reply = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model", "root": MODEL}]}).encode()
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(reply), reply)
            )
            return
        asked: dict[str, Any] = json.loads(body)
        self.counted = (asked.get("stream_options") or {}).get("continuous_usage_stats", False)
        self.step, self.steps = 0, int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16) // self.streams.pace.tokens
        self.begun_s = asyncio.get_running_loop().time()
        role = {"role": "assistant", "content": ""}
        self._transport.write(HEAD + _chunk({"choices": [{"index": 0, "delta": role, "logprobs": None, "finish_reason": None}]}))
        self.streams.add(self)

    def emit_and_go_on(self) -> None:
        """Write one message, and the next a step later."""
        step_s = self.streams.pace.step_s
        if self.emit(int((self.begun_s + (self.step + 1) * step_s) * 1e9)):
            asyncio.get_running_loop().call_at(self.begun_s + (self.step + 1) * step_s, self.emit_and_go_on)

    def emit(self, due_ns: int) -> bool:
        """Write one message; whether there is another."""
        if self._transport.is_closing():
            return False
        self.step += 1
        last = self.step == self.steps
        tokens = self.step * self.streams.pace.tokens
        usage = b'"usage":{"prompt_tokens":8,"total_tokens":%d,"completion_tokens":%d},' % (tokens + 8, tokens)
        data = MESSAGE % (b'"length"' if last else b"null", usage if self.counted else b"", due_ns, perf_counter_ns())
        packet = b"%x\r\n%b\r\n" % (len(data), data)
        if last:
            end = {"choices": [], "usage": {"prompt_tokens": 8, "total_tokens": tokens + 8, "completion_tokens": tokens}}
            packet += _chunk(end) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
        self._transport.write(packet)
        return not last


def _chunk(fields: dict[str, Any]) -> bytes:
    data = b"data: " + json.dumps(fields | {"object": "chat.completion.chunk", "model": MODEL}).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(pace: Pace) -> None:
    streams = Streams(pace)
    server = await asyncio.get_running_loop().create_server(lambda: Stream(streams), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--lock-step", action="store_true")
    given = parser.parse_args()
    run_in_loop(serve(Pace(step_s=given.step_s, tokens=given.tokens, lock_step=given.lock_step)))


if __name__ == "__main__":
    main()
