"""Our client against a paced server: many streams at once, what they received, and what that cost.

    python benchmarks/paced_client.py URL --streams 64 --steps 200 [--loop asyncio]     prints one line of JSON

The streams start spread over `--ramp-s`. CPU is this process's own: `receive` until the last stream ended, `read` for reading all answers.
"""

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.live.answer import Answer, read_answer
from paceline.live.event_loop import run_in_loop
from paceline.live.http_client import Http
from paceline.live.http_connection import Received, Timeouts
from paceline.live.openai import Ask, Server, body_of, headers_of
from paceline.live.sse import read_events
from paceline.run import Outcome

TOKENS = 2


@dataclass(frozen=True)
class Load:
    """How many streams of how many steps, started over how many seconds."""

    streams: int
    steps: int
    ramp_s: float


def asks(load: Load) -> list[Ask]:
    return [
        Ask(id=str(each), segment="all", messages=None, prompt="Go.", max_tokens=load.steps * TOKENS, temperature=0.0, seed=each, extra={})
        for each in range(load.streams)
    ]


async def receive(url: str, load: Load) -> list[Received]:
    """What came back on all streams."""
    http, server = Http(), Server(url=url, api="chat", model="paced", dialect="vllm")
    timeouts = Timeouts(first_byte_s=60, gap_s=60, total_s=3600)

    async def one(place: int, ask: Ask) -> Received:
        await asyncio.sleep(place * load.ramp_s / load.streams)
        body, headers = body_of(ask, server, without=()), headers_of(ask)
        return await http.post_stream(server.endpoint, body, headers=headers, timeouts=timeouts, started=None)

    try:
        return await asyncio.gather(*(one(place, ask) for place, ask in enumerate(asks(load))))
    finally:
        http.close()


def stamp_errors_ms(received: Sequence[Received]) -> tuple[np.ndarray, np.ndarray]:
    """Client stamp − server's send stamp, and the server's own lateness, by message, in milliseconds."""
    errors, lateness = [], []
    for each in received:
        for event in read_events(each.body_pieces(), ended=True).events:
            if b"sent_at_ns" in event.data:
                fields = json.loads(event.data)
                errors.append(event.at_ns - fields["sent_at_ns"])
                lateness.append(fields["sent_at_ns"] - fields["due_at_ns"])
    return np.array(errors) / 1e6, np.array(lateness) / 1e6


def percentiles(values: np.ndarray) -> dict[str, float]:
    p50, p90, p99, most = np.quantile(values, [0.5, 0.9, 0.99, 1.0])
    return {"p50": round(float(p50), 3), "p90": round(float(p90), 3), "p99": round(float(p99), 3), "max": round(float(most), 3)}


def lost(answers: Sequence[Answer], load: Load) -> dict[str, int]:
    """Streams that did not finish, and chunks and tokens that did not come."""
    chunks = sum(each.record.timing.chunk_at_s.size for each in answers)
    tokens = sum(each.record.output_tokens for each in answers)
    return {
        "streams": sum(each.record.outcome is not Outcome.FINISHED for each in answers),
        "chunks": load.streams * load.steps - chunks,
        "tokens": load.streams * load.steps * TOKENS - tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ramp-s", type=float, default=0.5)
    parser.add_argument("--loop", choices=["ours", "asyncio"], default="ours")
    given = parser.parse_args()
    load = Load(streams=given.streams, steps=given.steps, ramp_s=given.ramp_s)
    run = run_in_loop if given.loop == "ours" else asyncio.run
    began_s = time.process_time()
    received = run(receive(given.url, load))
    received_s = time.process_time()
    answers = [
        read_answer(each, ask, arrived_at_s=None, clock_origin_ns=0, count_tokens=None)
        for each, ask in zip(received, asks(load), strict=True)
    ]
    read_s = time.process_time()
    errors, lateness = stamp_errors_ms(received)
    print(
        json.dumps(
            {
                "events": load.streams * load.steps,
                "receive_cpu_s": received_s - began_s,
                "read_cpu_s": read_s - received_s,
                "lost": lost(answers, load),
                "stamp_error_ms": percentiles(errors),
                "server_lateness_ms": percentiles(lateness),
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
