"""Measures one or two servers with the user's traffic, block by block, and keeps everything as soon as it is there.

The schedule is in `traffic.schedule`, sending in `live.sending`, the folder in `files.benchfolder`, what a block's answers amount to in
`jobs.bench_runs`. What is decided from it is not decided here.

1. A server is warmed up with short rounds until they stop getting faster; those are in no figure.
2. Both arms get the same requests with the same temperature and seeds, in blocks that take turns.
3. Packets are kept as they come and read after the block, so that reading costs the measurement nothing.
4. A block that was stopped is gone on with: what was answered counts, the rest is sent.
5. Where the noise floor is asked for, the first requests go to the baseline a second time after the blocks, under the same load. Only their
   texts are kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, ServerFaultError, printable
from paceline.files.answers import REPEAT
from paceline.files.benchfolder import BenchFolder
from paceline.jobs.asking import ToAsk, shortened
from paceline.jobs.bench_came import came_of, sent_of
from paceline.jobs.bench_runs import (
    Measured,
    Scrapes,
    Settings,
    has_counters_only,
    part_of,
    whole_run,
    with_blocks,
    with_reason,
    with_segments,
)
from paceline.jobs.bench_warm_up import Warmed, need_answers, need_text
from paceline.live.event_loop import run_in_loop
from paceline.live.http_client import Http
from paceline.live.http_connection import Received, StreamEnd, Timeouts
from paceline.live.openai import Ask, Server, authorization, body_of, headers_of, optional_fields, without_key
from paceline.live.sending import Post, Sent, Watched, send_closed, send_open, watched
from paceline.run import Arm, Load, Outcome, Run
from paceline.stats.warm_up import rounds_needed
from paceline.traffic.schedule import blocks
from paceline.verdict import Caution

__all__ = ["Bench", "BenchLoad", "Watcher", "measure_servers"]

FloatArray = npt.NDArray[np.float64]

WARM_UP_REQUESTS = 8
WARM_UP_TOKENS = 16
MOST_WARM_UP_ROUNDS = 8
SCRAPE_TIMEOUT_S = 10.0
OK = 200
REFUSED_IN_A_ROW = 5  # nobody listens there any more
SEGMENT_CONCURRENCY = 8


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
        identity: which server an arm is; another one does not go into the same folder.
        to_ask: the requests.
        loads: one after the other.
        pairs: pairs of blocks at each load.
        noise_floor: the share of the requests that the baseline gets twice, None for none.
        timeouts: of each request.
        settings: what is written into the runs.

    """

    servers: Mapping[Arm, Server]
    identity: Mapping[Arm, Mapping[str, str]]
    to_ask: ToAsk
    loads: tuple[BenchLoad, ...]
    pairs: Mapping[str, int]
    noise_floor: float | None
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
        BadInputError: the folder holds an arm of another server, or a block that is not the plan's.
        ServerFaultError: a server does not answer a warm-up as it should, or was gone in the middle; what came is kept.

    """
    for arm, identity in bench.identity.items():
        folder.need_server(arm, identity)
    sitting = _Sitting(bench, folder, watcher)
    for load in bench.loads:
        for stretch in sitting.stretches(load):
            sitting.need_planned(stretch)
    try:
        run_in_loop(sitting.measure())
    except KeyboardInterrupt:
        return False
    finally:
        for load in bench.loads:
            for stretch in sitting.stretches(load):
                sitting.keep_stopped(stretch)
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
        self._unscraped: dict[Arm, str] = {}
        self._damaged: dict[tuple[str, str], Caution] = {}

    async def measure(self) -> None:
        """All blocks in the order of time; then, where a server only has counters, each segment alone."""
        try:
            for each in chain.from_iterable(map(self.stretches, self._bench.loads)):
                await self._measure(each)
        finally:
            self._http.close()
        if not self._warm:
            self._watcher.step("everything had been measured before; nothing was sent")

    def stretches(self, load: BenchLoad) -> Iterator["Stretch"]:
        """What is to be measured at one load; the segments follow from what the blocks could not tell."""
        arms, counted = tuple(self._bench.servers), self._bench.to_ask.counted
        for block in blocks(len(counted), arms=arms, pairs=self._bench.pairs[load.name], edge=load.edge):
            asks = counted[block.first : block.first + block.count]
            yield Stretch(load=load, stem=block.name, arm=block.arm, asks=asks, texts=block.arm.value)
        yield from self._repeat(load)
        yield from self._segments(load)

    def _repeat(self, load: BenchLoad) -> Iterator["Stretch"]:
        """The first requests to the baseline once more: what differs between its own two answers is noise."""
        if self._bench.noise_floor is None or Arm.BASELINE not in self._bench.servers:
            return
        counted = self._bench.to_ask.counted
        asks = counted[: ceil(self._bench.noise_floor * len(counted))]
        yield Stretch(load=load, stem=REPEAT, arm=Arm.BASELINE, asks=asks, texts=REPEAT)

    def _segments(self, load: BenchLoad) -> Iterator["Stretch"]:
        """Each segment alone in a closed loop, so that the server's counters are the segment's."""
        names = sorted({each.segment for each in self._bench.to_ask.counted})
        blocks_done = self._runs(load, Arm.SPECULATIVE)
        if len(names) < 2 or not any(has_counters_only(each) for _, each in blocks_done):
            return
        alone = BenchLoad(
            name=load.name, load=Load(concurrency=load.load.concurrency or SEGMENT_CONCURRENCY, rate_per_s=None), due_s=None, edge=0
        )
        for number, name in enumerate(names):
            asks = tuple(each for each in self._bench.to_ask.counted if each.segment == name)
            yield Stretch(load=alone, stem=f"segment-{number:02d}", arm=Arm.SPECULATIVE, asks=asks, texts=None)

    def need_planned(self, stretch: "Stretch") -> None:
        """Nothing, where what is kept of a stretch is of its arm, its load and its requests.

        Raises:
            BadInputError: somebody moved or changed it.

        """
        name, stem, ids = stretch.load.name, stretch.stem, {each.id for each in stretch.asks}
        whole = self._folder.run_of(name, stem)
        for run in (*self._folder.parts(name, stem), *(() if whole is None else (whole,))):
            kept = [each.id for each in run.requests or ()]
            lawful = run.arm is stretch.arm and run.load == stretch.load.load and len(kept) == len(set(kept)) and ids.issuperset(kept)
            if not lawful or (run is whole and len(kept) < len(ids)):
                raise BadInputError(
                    f"{printable(str(self._folder.path))}: block {printable(stem)} at {printable(name)} is not what the plan has there "
                    "(another arm, load or other requests); move its files away and --resume measures it again"
                )

    async def _measure(self, stretch: "Stretch") -> None:
        """Measure what is not yet measured of it."""
        load, stem = stretch.load, stretch.stem
        if self._folder.run_of(load.name, stem) is not None:
            return
        await self._warm_up(stretch.arm)
        self.keep_stopped(stretch)
        answered = {each.id for part in self._folder.parts(load.name, stem) for each in part.requests or ()}
        counted = [each for each in stretch.asks if each.id not in answered]
        self._watcher.step(f"{load.name}, {stem}: {len(counted)} requests to the {stretch.arm.value} server")
        before = await self._scrape(stretch.arm)
        sent, told = await self._send(stretch, counted)
        after = await self._scrape(stretch.arm)
        for when, text in (("before", before), ("after", after)):
            if text is not None:
                self._folder.keep_scrape(load.name, stem, when, text)
        part = self._part(stretch, sent, watched=told, scrapes=(before, after))
        if stretch.arm in self._unscraped:
            part = with_reason(part, self._unscraped[stretch.arm])
        self._folder.keep_run(load.name, stem, whole_run((*self._folder.parts(load.name, stem), part)))

    def _part(self, stretch: "Stretch", sent: Sequence[Sent], *, watched: Watched | None, scrapes: Scrapes) -> Run:
        """The run of these answers; their texts are kept, once each."""
        made = Measured(
            arm=stretch.arm,
            server=self._bench.servers[stretch.arm],
            sent=tuple(sent),
            counted=frozenset(each.id for each in stretch.asks),
            warm_up_rounds=self._warm[stretch.arm].rounds if stretch.arm in self._warm else None,
        )
        answers = made.answers(self._bench.settings.count_tokens)
        if stretch.texts is not None:
            texts = {each.record.id: each.text for each in answers if each.record.outcome is Outcome.FINISHED}
            self._folder.keep_answers(stretch.load.name, stretch.texts, texts)
        part = part_of(made, answers, stretch.load.load, self._bench.settings, watched=watched, scrapes=scrapes)
        damaged = self._damaged.get((stretch.load.name, stretch.stem))
        return part if damaged is None else replace(part, cautions=(*part.cautions, damaged))

    async def _send(self, stretch: "Stretch", counted: Sequence[Ask]) -> tuple[list[Sent], Watched]:
        load, sent = stretch.load, list[Sent]()
        with self._folder.writer(load.name, stretch.stem) as writer:
            refused = 0

            def on_done(each: Sent) -> None:
                nonlocal refused
                refused = refused + 1 if each.received.ended is StreamEnd.REFUSED else 0
                if refused >= REFUSED_IN_A_ROW:
                    raise ServerFaultError(
                        f"the {stretch.arm.value} server is gone: {each.received.error}; start it again and go on with --resume"
                    )
                sent.append(each)
                writer.add(came_of(each))
                self._watcher.answered()

            post = self._poster(stretch.arm)
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
        """What /metrics says; None where there is none, and then the reason is kept."""
        url = f"{self._bench.servers[arm].root}/metrics"
        try:
            reply = await self._http.get(url, headers=authorization(), timeout_s=SCRAPE_TIMEOUT_S)
        except ServerFaultError as error:
            self._unscraped[arm] = str(error)
            return None
        if reply.status != OK:
            self._unscraped[arm] = f"GET {printable(url)}: HTTP {reply.status}"
            return None
        return without_key(reply.body.decode("utf-8", "replace"))

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
            answered = [each for each in done if each.received.status == OK] or done
            need_answers(answered, arm)
            need_text(answered, arm)
            rounds.append(np.array([(each.received.ended_at_ns - each.due_ns) * 1e-9 for each in answered]))
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
                need_answers([Sent(ask=ask, due_ns=received.sent_at_ns, received=received)], arm)
                break
            without.append(name)
        return tuple(without)

    def keep_stopped(self, stretch: "Stretch") -> None:
        """Turn what was answered of a stretch that was stopped into a part of it."""
        name, stem = stretch.load.name, stretch.stem
        known = {each.id: each for each in (*self._bench.to_ask.counted, *self._bench.to_ask.spare)}
        answered = {each.id for part in self._folder.parts(name, stem) for each in part.requests or ()}
        sent: list[Sent] = []
        try:
            for each in self._folder.came(name, stem):
                sent.append(sent_of(each, known))  # noqa: PERF401 - those before the first bad one stand
        except BadInputError as error:
            aside = self._folder.set_came_aside(name, stem)
            message = (
                f"{stem}: {error}; {len(sent)} before that stand, the rest was asked again; the file is kept as {printable(aside.name)}"
            )
            self._damaged[name, stem] = Caution("answers_damaged", message)
            self._watcher.step(message)
        # Whatever did not come whole in a sitting that was stopped is asked again: the server may have been what stopped it.
        kept = [each for each in sent if each.ask.id not in answered and each.received.ended is StreamEnd.COMPLETE]
        counted = {each.id for each in stretch.asks}
        if any(each.ask.id in counted for each in kept):
            self._folder.keep_part(name, stem, self._part(stretch, kept, watched=None, scrapes=(None, None)))
        self._folder.forget_came(name, stem)

    def _runs(self, load: BenchLoad, arm: Arm) -> list[tuple[int, Run]]:
        """The arm's finished blocks and parts at this load with their block's number, without segments."""
        found: list[tuple[int, Run]] = []
        for block in blocks(
            len(self._bench.to_ask.counted), arms=tuple(self._bench.servers), pairs=self._bench.pairs[load.name], edge=load.edge
        ):
            if block.arm is arm:
                run = self._folder.run_of(load.name, block.name)
                there = [run] if run is not None else self._folder.parts(load.name, block.name)
                found += [(block.number, each) for each in there]
        return found

    def join(self, load: BenchLoad, arm: Arm) -> None:
        """Write the arm's run at this load: all blocks and parts that are there, acceptance by segment where that was measured apart."""
        there = self._runs(load, arm)
        if not there:
            return
        whole = with_blocks(whole_run([each for _, each in there]), [(number, len(each.requests or ())) for number, each in there])
        if arm is Arm.SPECULATIVE:
            apart = {each: self._folder.run_of(load.name, each.stem) for each in self._segments(load)}
            measured = {each.asks[0].segment: run for each, run in apart.items() if run is not None}
            whole = with_segments(whole, measured) if apart and len(measured) == len(apart) else whole
        self._folder.keep_joined(load.name, whole)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Requests that go to one server without a break: a block, a segment alone, or the baseline's repeat.

    `texts` is the name under which the answers' texts are kept, None where they are not.
    """

    load: BenchLoad
    stem: str
    arm: Arm
    asks: tuple[Ask, ...]
    texts: str | None

    __hash__ = object.__hash__  # by identity: asks hold messages that do not hash
