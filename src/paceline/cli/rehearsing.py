"""What `fake-server` does once it is asked."""

import argparse
import asyncio
import gc
import json
import signal
from contextlib import suppress

from paceline.cli.acceptance_options import asked_acceptance
from paceline.cli.options import scenario_asked
from paceline.cli.output import emit, envelope, say
from paceline.cli.replica_options import asked_lengths
from paceline.errors import BadInputError, ascii_controls
from paceline.jobs.acceptance import KnownAcceptance, choose
from paceline.jobs.fake_server import Rehearsal, fake_server
from paceline.jobs.scenario import scenario
from paceline.jobs.simulation import SimulationPlan
from paceline.live.fake_server import FakeServer, Running, serve
from paceline.live.fake_server_faults import NO_FAULTS, read_faults
from paceline.speculation.method import Method

__all__ = ["run_fake_server"]

ANY_SEGMENT = "all"
NOTHING = "none"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run_fake_server(options: argparse.Namespace) -> int:
    """`fake-server`: until Ctrl-C, or for a time."""
    plain = options.method == NOTHING
    if plain:
        options.method = Method.NGRAM  # takes no memory, and nothing is drafted
    asked = scenario(scenario_asked(options))
    known = None if plain else _acceptance(options, target=asked.target.name, draft_tokens=asked.speculation.draft_tokens)
    settings = fake_server(
        asked,
        None if known is None else known.by_segment,
        _plan(options),
        Rehearsal(
            first_seed=options.first_seed,
            speed=options.speed,
            grace_s=options.grace,
            default_output_tokens=options.output_tokens,
            faults=NO_FAULTS if options.faults is None else read_faults(options.faults),
            record=options.record,
        ),
        model=options.served_model_name or asked.target.name,
    )
    where = f"{asked.where.dtype.value} on {asked.where.gpus} {asked.where.gpu.name}"
    drafts = "no drafts" if known is None else f"{options.method.value}, K = {settings.draft_tokens}, acceptance {known.label}"
    return asyncio.run(_serve(options, settings, what=f"{where}, {drafts}"))


def _acceptance(options: argparse.Namespace, *, target: str, draft_tokens: int) -> KnownAcceptance:
    named = [each.strip() for each in options.segments.split(",") if each.strip()]
    segments = dict.fromkeys((ANY_SEGMENT, *named, *dict(options.segment_alpha)))
    return choose(
        asked_acceptance(options), replayed=None, method=options.method, segments=segments, draft_tokens=draft_tokens, target=target
    )


def _plan(options: argparse.Namespace) -> SimulationPlan:
    return SimulationPlan(
        requests=1,
        max_requests=options.max_requests,
        token_budget=options.token_budget,
        spread=options.spread,
        rejection=options.rejection,
        seed=options.seed,
        persistence=options.persistence,
        lengths=asked_lengths(options),
    )


async def _serve(options: argparse.Namespace, settings: FakeServer, *, what: str) -> int:
    if not 0 <= options.port < 65_536:
        raise BadInputError(f"port {options.port} is not between 0 and 65535")
    say("compiling the simulator")
    running = await serve(settings, host=options.host, port=options.port)
    try:
        _announce(options, settings, running, what=what)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop.set)
        # What is there now stays; collecting it again and again would come in the middle of a step.
        gc.collect()
        gc.freeze()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), options.for_s)
    finally:
        await running.stop()
        gc.unfreeze()
    _farewell(options, running)
    return 0


def _announce(options: argparse.Namespace, settings: FakeServer, running: Running, *, what: str) -> None:
    notes = []
    if options.host not in LOOPBACK:
        notes.append(
            "it listens beyond this machine: whoever can reach it gets invented text and simulated figures, labelled as such here only"
        )
    if settings.speed != 1:
        notes.append(f"time passes {settings.speed:g} times as fast as simulated: latencies are that much shorter, rates that much higher")
    if options.json:
        body = {"url": running.url, "port": running.port, "model": settings.model, "fake": True, "what": what, "notes": notes}
        emit(json.dumps(envelope(options, body, inputs={}), ensure_ascii=False))
        return
    lines = [f"fake server of {settings.model} ({what}) at {running.url}: simulated, no model behind it; Ctrl-C ends it"]
    emit("\n".join(ascii_controls(each) for each in (*lines, *(f"note: {each}" for each in notes))))


def _farewell(options: argparse.Namespace, running: Running) -> None:
    """How late the server itself was."""
    figures = running.lateness.figures()
    if options.json:
        emit(json.dumps({"requests": running.requests, "lateness": figures}))
    elif figures["chunks"]:
        late = ", ".join(f"{name} {1000 * figures[key]:.2f} ms" for name, key in (("P50", "p50_s"), ("P99", "p99_s"), ("worst", "worst_s")))
        emit(f"{running.requests} requests, {figures['chunks']} chunks; written later than due: {late}")
    else:
        emit(f"{running.requests} requests, nothing was streamed")
