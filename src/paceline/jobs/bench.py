"""Measures one or two servers with the user's traffic, block by block, and keeps everything as soon as it is there.

The schedule is in `traffic.schedule`, sending in `live.sending`, the folder in `files.benchfolder`, what a block's answers amount to in
`jobs.bench_runs`. What is decided from it is not decided here.

1. A server is warmed up with short rounds until they stop getting faster; those are in no figure.
2. Both arms get the same requests with the same temperature and seeds, in blocks that take turns.
3. Packets are kept as they come and read after the block, so that reading costs the measurement nothing.
4. A block that was stopped is gone on with: what was answered counts, the rest is sent.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.errors import ServerFaultError, printable
from paceline.files.benchfolder import BenchFolder
from paceline.jobs.asking import ToAsk, shortened
from paceline.jobs.bench_runs import Measured, Scrapes, Settings, came_of, part_of, sent_of, whole_run
from paceline.live.http_client import Http
from paceline.live.http_connection import Received, StreamEnd, Timeouts
from paceline.live.openai import Ask, Server, authorization, body_of, headers_of, optional_fields
from paceline.live.sending import Post, Sent, Watched, send_closed, send_open, watched
from paceline.run import Arm, Load, Outcome, Run
from paceline.stats.warm_up import rounds_needed
from paceline.traffic.schedule import Block, blocks

__all__ = ["Bench", "BenchLoad", "Watcher", "measure_servers"]

FloatArray = npt.NDArray[np.float64]

WARM_UP_REQUESTS = 8
WARM_UP_TOKENS = 16
MOST_WARM_UP_ROUNDS = 8
SCRAPE_TIMEOUT_S = 10.0
EXCERPT = 200


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """One load: a closed loop, or an open one with the instant at which each counted request is due, in seconds from the first one's."""

    name: str
    load: Load
    due_s: tuple[float, ...] | None
    edge: int


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured.

    Attributes:
        servers: by arm; one of them, or both.
        to_ask: the requests.
        loads: one after the other.
        pairs: pairs of blocks at each load.
        timeouts: of each request.
        settings: what is written into the runs.

    """

    servers: Mapping[Arm, Server]
    to_ask: ToAsk
    loads: tuple[BenchLoad, ...]
    pairs: Mapping[str, int]
    timeouts: Timeouts
    settings: Settings


class Watcher(Protocol):
    """Who is told how far it is."""

    def step(self, text: str) -> None:
        """Something begins."""

    def answered(self) -> None:
        """A request ended."""


def measure_servers(bench: Bench, folder: BenchFolder, watcher: Watcher) -> bool:
    """Measure what is not yet measured; whether all of it is there now. False: it was stopped, and what came is kept.

    Raises:
        ServerFaultError: a server does not answer a warm-up as it should.

    """
    sitting = _Sitting(bench, folder, watcher)
    try:
        asyncio.run(sitting.measure())
    except KeyboardInterrupt:
        return False
    finally:
        for load in bench.loads:
            sitting.keep_stopped(load)
            for arm in bench.servers:
                sitting.join(load, arm)
    return True


class _Sitting:
    """One go at the schedule."""

    def __init__(self, bench: Bench, folder: BenchFolder, watcher: Watcher) -> None:
        self._bench = bench
        self._folder = folder
        self._watcher = watcher
        self._http = Http()
        self._warm: dict[Arm, Warmed] = {}

    async def measure(self) -> None:
        """All blocks in the order of time."""
        try:
            for load in self._bench.loads:
                for block in self._blocks(load):
                    if self._folder.run_of(load.name, block) is None:
                        await self._block(load, block)
        finally:
            self._http.close()

    def _blocks(self, load: BenchLoad) -> tuple[Block, ...]:
        arms, requests = tuple(self._bench.servers), len(self._bench.to_ask.counted)
        return blocks(requests, arms=arms, pairs=self._bench.pairs[load.name], edge=load.edge)

    async def _block(self, load: BenchLoad, block: Block) -> None:
        await self._warm_up(block.arm)
        self.keep_stopped_block(load, block)
        answered = {each.id for part in self._folder.parts(load.name, block) for each in part.requests or ()}
        counted = [each for each in self._bench.to_ask.counted[block.first : block.first + block.count] if each.id not in answered]
        self._watcher.step(f"{block.arm.value}, block {block.number + 1}: {len(counted)} requests, {load.name}")
        before = await self._scrape(block.arm)
        sent, told = await self._send(load, block, counted)
        after = await self._scrape(block.arm)
        for when, text in (("before", before), ("after", after)):
            if text is not None:
                self._folder.keep_scrape(load.name, block, when, text)
        part = self._part(load, block, sent, watched=told, scrapes=(before, after))
        self._folder.keep_run(load.name, block, whole_run((*self._folder.parts(load.name, block), part)))

    def _part(self, load: BenchLoad, block: Block, sent: Sequence[Sent], *, watched: Watched | None, scrapes: Scrapes) -> Run:
        """The run of these answers; their texts are kept."""
        made = self._measured(block, sent)
        answers = made.answers(self._bench.settings.count_tokens)
        texts = {each.record.id: each.text for each in answers if each.record.outcome is Outcome.FINISHED}
        self._folder.keep_answers(load.name, block.arm, texts)
        return part_of(made, answers, load.load, self._bench.settings, watched=watched, scrapes=scrapes)

    def _measured(self, block: Block, sent: Sequence[Sent]) -> Measured:
        return Measured(
            arm=block.arm,
            server=self._bench.servers[block.arm],
            sent=tuple(sent),
            counted=frozenset(each.id for each in self._bench.to_ask.counted),
            warm_up_rounds=self._warm[block.arm].rounds if block.arm in self._warm else None,
        )

    async def _send(self, load: BenchLoad, block: Block, counted: Sequence[Ask]) -> tuple[list[Sent], Watched]:
        sent: list[Sent] = []
        with self._folder.writer(load.name, block) as writer:

            def on_done(each: Sent) -> None:
                sent.append(each)
                writer.add(came_of(each))
                self._watcher.answered()

            post = self._poster(block.arm)
            async with watched() as told:
                if load.due_s is None:
                    before, after = self._edges(load.edge)
                    asks = [*before, *counted, *after]
                    await send_closed(post, asks, concurrency=load.load.concurrency or 1, on_done=on_done)
                else:
                    due = dict(zip((each.id for each in self._bench.to_ask.counted), load.due_s, strict=True))
                    first_s = due[counted[0].id] if counted else 0.0
                    await send_open(post, counted, [due[each.id] - first_s for each in counted], on_done=on_done)
        return sent, told

    def _edges(self, edge: int) -> tuple[Sequence[Ask], Sequence[Ask]]:
        spare = self._bench.to_ask.spare
        return spare[:edge], spare[edge : 2 * edge]

    def _poster(self, arm: Arm) -> Post:
        """Sends one request; its bytes are ready before the block starts for most of what they cost."""
        server, without = self._bench.servers[arm], self._warm[arm].without
        http, timeouts, endpoint = self._http, self._bench.timeouts, self._bench.servers[arm].endpoint

        async def post(ask: Ask) -> Received:
            body = body_of(ask, server, without=without)
            return await http.post_stream(endpoint, body, headers=headers_of(ask), timeouts=timeouts, started=None)

        return post

    async def _scrape(self, arm: Arm) -> str | None:
        """What /metrics says; None where there is none."""
        url = f"{self._bench.servers[arm].root}/metrics"
        try:
            reply = await self._http.get(url, headers=authorization(), timeout_s=SCRAPE_TIMEOUT_S)
        except ServerFaultError:
            return None
        return reply.body.decode("utf-8", "replace") if reply.status == 200 else None

    async def _warm_up(self, arm: Arm) -> None:
        if arm in self._warm:
            return
        self._watcher.step(f"warming up the {arm.value} server")
        without = await self._accepted_fields(arm)
        self._warm[arm] = Warmed(without=without, rounds=None)
        post = self._poster(arm)
        rounds: list[FloatArray] = []
        asks = self._warm_up_asks()
        while len(rounds) < MOST_WARM_UP_ROUNDS:
            done: list[Sent] = []
            await send_closed(post, asks, concurrency=len(asks), on_done=done.append)
            _need_answers(done, arm)
            rounds.append(np.array([(each.received.ended_at_ns - each.due_ns) * 1e-9 for each in done]))
            if rounds_needed(rounds) is not None:
                break
        self._warm[arm] = Warmed(without=without, rounds=rounds_needed(rounds))

    def _warm_up_asks(self) -> list[Ask]:
        asks = (self._bench.to_ask.spare or self._bench.to_ask.counted)[:WARM_UP_REQUESTS]
        return [shortened(each, number=number, max_tokens=WARM_UP_TOKENS) for number, each in enumerate(asks)]

    async def _accepted_fields(self, arm: Arm) -> tuple[str, ...]:
        """The optional fields that this server refuses, found by asking once for each refusal."""
        server, ask = self._bench.servers[arm], self._warm_up_asks()[0]
        without: list[str] = []
        for name in (*reversed(optional_fields(server)), None):
            body = body_of(ask, server, without=without)
            received = await self._http.post_stream(
                server.endpoint, body, headers=headers_of(ask), timeouts=self._bench.timeouts, started=None
            )
            if received.status not in (400, 422) or name is None:
                _need_answers([Sent(ask=ask, due_ns=received.sent_at_ns, received=received)], arm)
                break
            without.append(name)
        return tuple(without)

    def keep_stopped(self, load: BenchLoad) -> None:
        """Turn what was answered of blocks that were stopped into parts of them."""
        for block in self._blocks(load):
            self.keep_stopped_block(load, block)

    def keep_stopped_block(self, load: BenchLoad, block: Block) -> None:
        """The same for one block."""
        known = {each.id: each for each in (*self._bench.to_ask.counted, *self._bench.to_ask.spare)}
        answered = {each.id for part in self._folder.parts(load.name, block) for each in part.requests or ()}
        sent = [sent_of(each, known) for each in self._folder.came(load.name, block) if each.told["id"] in known]
        kept = [each for each in sent if each.ask.id not in answered]
        counted = {each.id for each in self._bench.to_ask.counted}
        if any(each.ask.id in counted for each in kept):
            self._folder.keep_part(load.name, block, self._part(load, block, kept, watched=None, scrapes=(None, None)))
        self._folder.forget_came(load.name, block)

    def join(self, load: BenchLoad, arm: Arm) -> None:
        """Write the arm's run at this load: all blocks and parts that are there."""
        there: list[Run] = []
        for block in self._blocks(load):
            run = self._folder.run_of(load.name, block)
            if block.arm is arm:
                there += [run] if run is not None else self._folder.parts(load.name, block)
        if there:
            self._folder.keep_joined(load.name, whole_run(there))


@dataclass(frozen=True, slots=True)
class Warmed:
    """A server that was warmed up: the optional fields it refuses, and after how many rounds it had settled (None: not within 8)."""

    without: tuple[str, ...]
    rounds: int | None


def _need_answers(done: Sequence[Sent], arm: Arm) -> None:
    """Nothing, where all were answered.

    Raises:
        ServerFaultError: with the status and the start of what came.

    """
    for each in done:
        got = each.received
        if got.ended is StreamEnd.COMPLETE and got.status == 200:
            continue
        what = f"HTTP {got.status}" if got.status is not None else got.error or got.ended.value
        excerpt = got.body[:EXCERPT].decode("utf-8", "replace")
        said = f", {printable(excerpt)}" if excerpt else ""
        raise ServerFaultError(f"the {arm.value} server did not answer a warm-up request: {what}{said}")
