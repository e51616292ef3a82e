"""What a load-test was asked for, and everything it needs before the first request is sent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np

from paceline.errors import BadInputError, printable
from paceline.files.tokens import load_tokenizer
from paceline.files.trace import read_trace
from paceline.jobs.asking import Asking, read_asks
from paceline.jobs.bench import Bench, BenchLoad
from paceline.jobs.bench_runs import Settings
from paceline.live.event_loop import run_in_loop
from paceline.live.http_client import Http
from paceline.live.http_connection import Timeouts
from paceline.live.openai import Server, served_models
from paceline.run import Arm, Load
from paceline.speculation.method import Speculation
from paceline.traffic.schedule import pairs_that_fit
from paceline.traffic.synthetic import arrivals, rescaled_arrivals

__all__ = ["BenchAsked", "OpenLoad", "prepared"]

MODELS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """An open loop: arrivals at a rate (`rate_per_s`, `burstiness`), or a trace's own, `time_scale` times as fast."""

    rate_per_s: float | None
    burstiness: float
    trace: Path | None
    time_scale: float


@dataclass(frozen=True, slots=True)
class BenchAsked:
    """A load-test as asked for.

    Attributes:
        urls: servers by arm.
        model: the model's name, None where each server has one.
        asking: which requests; its `spare` is set by the loads.
        concurrencies: closed loops, one after the other; empty for an open one.
        open_load: the open loop, None for closed ones.
        pairs: pairs of blocks, None for as many as fit.
        noise_floor: the share of the requests that the baseline gets twice, None for none.
        first_byte_s: until the first byte of an answer, in seconds.
        gap_s: between two messages, in seconds.
        speculation: how the speculative server drafts, None where nobody said.
        tokenizer: the target's, for servers that count no tokens.

    """

    urls: Mapping[Arm, str]
    model: str | None
    asking: Asking
    concurrencies: tuple[int, ...]
    open_load: OpenLoad | None
    pairs: int | None
    noise_floor: float | None
    first_byte_s: float
    gap_s: float
    speculation: Speculation | None
    tokenizer: Path | None


def prepared(asked: BenchAsked, *, progress: Callable[[int], None]) -> Bench:
    """The servers asked for their models, the traffic read, the loads laid out. `progress` gets bytes of traffic as they are read.

    Raises:
        BadInputError: something that was asked for cannot be measured.
        ServerFaultError: a server does not answer.

    """
    loads = _loads(asked)
    both = len(asked.urls) > 1
    pairs = {each.name: (asked.pairs or pairs_that_fit(asked.asking.requests, edge=each.edge)) if both else 1 for each in loads}
    servers = run_in_loop(_servers(asked))
    to_ask = read_asks(replace(asked.asking, spare=2 * max(each.edge for each in loads)), progress=progress)
    tokenizer = None if asked.tokenizer is None else load_tokenizer(asked.tokenizer)
    settings = Settings(
        speculation=asked.speculation,
        arguments={
            "temperature": f"{asked.asking.temperature:g}",
            "max_tokens": str(asked.asking.max_tokens),
            "ignore_eos": str(asked.asking.ignore_eos).lower(),
            "api": asked.asking.api,
            "distinct_prompts": str(len({each.messages or each.prompt for each in to_ask.counted})),
        },
        inputs=to_ask.inputs,
        seed=asked.asking.seed,
        cautions=to_ask.cautions,
        count_tokens=None if tokenizer is None else lambda text: int(tokenizer.encode(text).size),
    )
    timeouts = Timeouts(first_byte_s=asked.first_byte_s, gap_s=asked.gap_s, total_s=inf)
    return Bench(
        servers=servers,
        identity={arm: {"URL": server.root, "model": server.model} for arm, server in servers.items()},
        to_ask=to_ask,
        loads=loads,
        pairs=pairs,
        noise_floor=asked.noise_floor,
        timeouts=timeouts,
        settings=settings,
    )


def _loads(asked: BenchAsked) -> tuple[BenchLoad, ...]:
    if asked.open_load is not None:
        return (_open_load(asked.open_load, requests=asked.asking.requests, seed=asked.asking.seed),)
    return tuple(
        BenchLoad(name=f"c{each:04d}", load=Load(concurrency=each, rate_per_s=None), due_s=None, edge=each) for each in asked.concurrencies
    )


def _open_load(load: OpenLoad, *, requests: int, seed: int) -> BenchLoad:
    if load.trace is None:
        assert load.rate_per_s is not None
        due_s = arrivals(requests, rate_per_s=load.rate_per_s, burstiness=load.burstiness, rng=np.random.default_rng(seed))
        return BenchLoad(name=f"r{load.rate_per_s:g}", load=Load(concurrency=None, rate_per_s=load.rate_per_s), due_s=due_s, edge=0)
    workload, _ = read_trace(load.trace, segment="all", segment_field=None, limit=requests)
    if len(workload.requests) < requests:
        raise BadInputError(f"{printable(load.trace.name)} has {len(workload.requests)} arrivals; ask for fewer than --requests {requests}")
    due_s = tuple(each.arrived_at_s for each in rescaled_arrivals(workload, time_scale=load.time_scale).requests)
    rate = len(due_s) / due_s[-1] if due_s[-1] > 0 else None
    return BenchLoad(name="trace", load=Load(concurrency=None, rate_per_s=rate), due_s=due_s, edge=0)


async def _servers(asked: BenchAsked) -> dict[Arm, Server]:
    """The servers that were named, each with the model it serves."""
    http = Http()
    try:
        return {arm: await _server(http, asked.urls[arm], asked) for arm in Arm if arm in asked.urls}
    finally:
        http.close()


async def _server(http: Http, url: str, asked: BenchAsked) -> Server:
    server = Server(url=url, api=asked.asking.api, model=asked.model or "", dialect=None)
    if asked.model is not None:
        return server
    models = await served_models(http, server, timeout_s=MODELS_TIMEOUT_S)
    if len(models) != 1:
        raise BadInputError(f"{printable(url)} serves {', '.join(map(printable, models)) or 'no model'}; name one with --model")
    return replace(server, model=models[0])
