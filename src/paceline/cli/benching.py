"""What `bench` does once it is asked."""

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from paceline.cli.output import Progress, answer, arguments, progress, say
from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.files.benchfolder import BenchFolder
from paceline.files.tokens import load_tokenizer
from paceline.files.trace import read_trace
from paceline.jobs.asking import Asking, ToAsk, read_asks
from paceline.jobs.bench import Bench, BenchLoad, measure_servers
from paceline.jobs.bench_runs import Settings
from paceline.live.http_client import Http
from paceline.live.http_connection import Timeouts
from paceline.live.openai import Server, served_models
from paceline.report.benches import bench_dict, bench_text, saturated
from paceline.run import Arm, Load, Run
from paceline.speculation.method import Speculation
from paceline.traffic.schedule import pairs_that_fit
from paceline.traffic.synthetic import arrivals, rescaled_arrivals

__all__ = ["run_bench"]

CONFIDENCE = 0.95
MODELS_TIMEOUT_S = 10.0
INTERRUPTED = 130
NOT_IN_PLAN = frozenset({"baseline", "speculative", "resume", "model"})


def run_bench(options: argparse.Namespace) -> int:
    """`bench`: measure, keep, and say what was measured. Exit code 4 where the client itself is a visible share of the effect."""
    _need_sense(options)
    loads, pairs = _loads(options)
    servers = asyncio.run(_servers(options))
    to_ask = _to_ask(options, loads)
    folder = BenchFolder(options.out)
    plan = {name: value for name, value in arguments(options).items() if name not in NOT_IN_PLAN} | {
        "inputs": dict(to_ask.inputs),
        "seed": options.seed,
    }
    folder.open(plan, arms=tuple(servers), resume=options.resume)
    bench = Bench(
        servers=servers,
        to_ask=to_ask,
        loads=loads,
        pairs=pairs,
        timeouts=Timeouts(first_byte_s=options.first_byte_timeout, gap_s=options.gap_timeout, total_s=inf),
        settings=_settings(options, to_ask),
    )
    with _watching(bench) as watcher:
        whole = measure_servers(bench, folder, watcher)
    made = {load.name: {arm: run for arm in Arm if (run := folder.joined(load.name, arm)) is not None} for load in loads}
    return _tell(options, made, whole=whole, inputs=to_ask.inputs)


def _need_sense(options: argparse.Namespace) -> None:
    """Nothing, where the options go together.

    Raises:
        BadInputError: naming those that do not.

    """
    if options.baseline is None and options.speculative is None:
        raise BadInputError("give --baseline URL, --speculative URL, or both")
    if options.baseline is not None and options.baseline == options.speculative:
        raise BadInputError(
            f"both arms are {printable(options.baseline)}: one server does not run with and without drafts; start two, or one at a time"
        )
    loads = [name for name in ("concurrency", "rate", "trace") if getattr(options, name) is not None]
    if len(loads) > 1:
        raise BadInputError(f"--{' and --'.join(loads)}: give one load")
    if options.burstiness != 1 and options.rate is None:
        raise BadInputError("--burstiness shapes arrivals at a rate; give --rate too")
    if options.time_scale != 1 and options.trace is None:
        raise BadInputError("--time-scale speeds a trace's own times up; give --trace too")
    if (options.method is None) != (options.draft_tokens is None):
        raise BadInputError("--method and --draft-tokens say together how the speculative server drafts; give both or neither")


def _loads(options: argparse.Namespace) -> tuple[tuple[BenchLoad, ...], dict[str, int]]:
    """The loads, and pairs of blocks at each."""
    if options.rate is not None or options.trace is not None:
        loads: tuple[BenchLoad, ...] = (_open_load(options),)
    else:
        loads = tuple(
            BenchLoad(name=f"c{each:04d}", load=Load(concurrency=each, rate_per_s=None), due_s=None, edge=each)
            for each in options.concurrency or (8,)
        )
    both = options.baseline is not None and options.speculative is not None
    wanted = {each.name: options.pairs or pairs_that_fit(options.requests, edge=each.edge) for each in loads}
    return loads, {name: pairs if both else 1 for name, pairs in wanted.items()}


def _open_load(options: argparse.Namespace) -> BenchLoad:
    if options.trace is not None:
        workload, _ = read_trace(options.trace, segment="all", segment_field=None, limit=options.requests)
        if len(workload.requests) < options.requests:
            raise BadInputError(
                f"{printable(options.trace.name)} has {len(workload.requests)} arrivals; ask for fewer than --requests {options.requests}"
            )
        due = [each.arrived_at_s for each in rescaled_arrivals(workload, time_scale=options.time_scale).requests]
        rate = len(due) / due[-1] if due[-1] > 0 else None
        return BenchLoad(name="trace", load=Load(concurrency=None, rate_per_s=rate), due_s=tuple(due), edge=0)
    due_s = arrivals(options.requests, rate_per_s=options.rate, burstiness=options.burstiness, rng=np.random.default_rng(options.seed))
    return BenchLoad(name=f"r{options.rate:g}", load=Load(concurrency=None, rate_per_s=options.rate), due_s=due_s, edge=0)


async def _servers(options: argparse.Namespace) -> dict[Arm, Server]:
    """The servers that were named, each with the model it serves."""
    urls = {Arm.BASELINE: options.baseline, Arm.SPECULATIVE: options.speculative}
    http = Http()
    try:
        return {arm: await _server(http, url, options) for arm, url in urls.items() if url is not None}
    finally:
        http.close()


async def _server(http: Http, url: str, options: argparse.Namespace) -> Server:
    asked = Server(url=url, api=options.api, model=options.model or "", dialect=None)
    if options.model is not None:
        return asked
    models = await served_models(http, asked, timeout_s=MODELS_TIMEOUT_S)
    if len(models) != 1:
        raise BadInputError(f"{printable(url)} serves {', '.join(map(printable, models)) or 'no model'}; name one with --model")
    return replace(asked, model=models[0])


def _to_ask(options: argparse.Namespace, loads: tuple[BenchLoad, ...]) -> ToAsk:
    asking = Asking(
        paths=tuple(options.traffic),
        segment_rule=options.segment_rule,
        segment_field=options.segment_field,
        requests=options.requests,
        spare=2 * max(each.edge for each in loads),
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        ignore_eos=options.ignore_eos,
        api=options.api,
        seed=options.seed,
    )
    with progress("reading traffic", total=None) as bar:
        return read_asks(asking, progress=bar)


def _settings(options: argparse.Namespace, to_ask: ToAsk) -> Settings:
    speculation = None if options.method is None else Speculation(method=options.method, draft_tokens=options.draft_tokens, tree=None)
    tokenizer = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    return Settings(
        speculation=speculation,
        arguments={"temperature": f"{options.temperature:g}", "max_tokens": str(options.max_tokens), "api": options.api},
        inputs=to_ask.inputs,
        seed=options.seed,
        cautions=to_ask.cautions,
        count_tokens=None if tokenizer is None else lambda text: int(tokenizer.encode(text).size),
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """A person told how far it is."""

    bar: Progress

    def step(self, text: str) -> None:
        """Something begins."""
        say(text)

    def answered(self) -> None:
        """A request ended."""
        self.bar(1)


@contextmanager
def _watching(bench: Bench) -> Iterator[_Told]:
    """A bar over all requests."""
    arms = len(bench.servers)
    total = sum(arms * (len(bench.to_ask.counted) + 2 * each.edge * bench.pairs[each.name]) for each in bench.loads)
    with progress("measuring", total=total) as bar:
        yield _Told(bar)


def _tell(options: argparse.Namespace, made: Mapping[str, Mapping[Arm, Run]], *, whole: bool, inputs: Mapping[str, str]) -> int:
    """Print what is there; the exit code."""
    if not any(made.values()):
        raise NoEvidenceError("stopped before a request was finished: nothing was measured")
    rng = np.random.default_rng(options.seed)
    bodies: dict[str, dict[str, Any]] = {
        name: bench_dict(arms.get(Arm.BASELINE), arms.get(Arm.SPECULATIVE), confidence=CONFIDENCE, rng=rng)
        for name, arms in made.items()
        if arms
    }
    last = bodies[list(bodies)[-1]]
    body = {**last, "by_load": bodies, "complete": whole}
    texts = [
        f"{name}:\n\n{bench_text(made[name].get(Arm.BASELINE), made[name].get(Arm.SPECULATIVE), each)}" for name, each in bodies.items()
    ]
    end = f"run files: {printable(str(options.out / 'runs'))}"
    if not whole:
        end = f"stopped: what was finished is above and kept; go on with --resume\n{end}"
    answer(options, body=body, text="\n\n".join([*texts, end]), inputs=inputs)
    if not whole:
        return INTERRUPTED
    return NoEvidenceError.exit_code if any(saturated(each) for each in bodies.values()) else 0
