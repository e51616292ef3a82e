"""An OpenAI-compatible server without a model: HTTP and server-sent events, paced by the simulator.

What a real server would make of a GPU's time is computed by `simulate.online`; everything else is real: sockets, streams, clients that go
away, /metrics that are scraped in the middle of a step. It knows the truth: the record says what was sent, when, and what was accepted.

    POST /v1/chat/completions, /v1/completions      GET /metrics, /health, /v1/models, /version
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

from paceline import __version__
from paceline.errors import BadInputError, PacelineError, printable
from paceline.forecast.step_cost import StepCost
from paceline.live.fake_server_answer import Answer, error_body
from paceline.live.fake_server_asking import Asking, read_asking
from paceline.live.fake_server_faults import Fault, Faults, faults_in_header
from paceline.live.fake_server_http import Connection, HttpRequest
from paceline.live.fake_server_metrics import exposition
from paceline.live.fake_server_pace import Pace
from paceline.live.fake_server_record import Lateness, Record
from paceline.live.fake_server_stream import Stream, Who
from paceline.live.http_message import is_host
from paceline.simulate.online import OnlineReplica
from paceline.simulate.replica import Drafting, Replica
from paceline.workload import Request

__all__ = ["FakeServer", "Running", "serve"]

MOST_CONNECTIONS = 4_096
PLAIN_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
APIS = {CHAT: "chat", COMPLETIONS: "completions"}
SEEDS = 2**64
LOOPBACK = "127.0.0.1"
AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class FakeServer:
    """What is served.

    Attributes:
        model: the model's name.
        replica: its limits.
        step_cost: what a step costs, as `simulate` takes it.
        drafting: how it drafts, None for a plain server.
        seed: of all chance, as `simulate` takes it.
        first_seed: the seed that a client sends with the first request of a workload: seed first_seed + i has the draws of row i.
        speed: how much faster than the simulated server time passes; 1 is real time.
        grace_s: a request that arrives so long after a step began is in time for it: what client and network take in a closed loop.
        default_output_tokens: output length of a request that states none.
        faults: what goes wrong, and when.
        record: where what was sent is written, None for nowhere.

    """

    model: str
    replica: Replica
    step_cost: StepCost | Sequence[StepCost]
    drafting: Drafting | None
    seed: int
    first_seed: int
    speed: float
    grace_s: float
    default_output_tokens: int
    faults: Faults
    record: Path | None

    @property
    def draft_tokens(self) -> int:
        """K, 0 for a plain server."""
        return 0 if self.drafting is None else self.drafting.speculation.draft_tokens

    def engine(self) -> OnlineReplica:
        """A replica that nobody has asked anything, its costs as fast as `speed` says.

        Raises:
            BadInputError: costs and limits do not go together.

        """
        costs = (self.step_cost,) if isinstance(self.step_cost, StepCost) else self.step_cost
        fast = [
            StepCost(
                token_s=each.token_s / self.speed,
                kv_token_s=each.kv_token_s / self.speed,
                prefill_attention_s=each.prefill_attention_s / self.speed,
                draft_s=each.draft_s / self.speed,
            )
            for each in costs
        ]
        return OnlineReplica(self.replica, step_cost=fast, drafting=self.drafting, seed=self.seed)


class Running:
    """A server that listens: its `url` and `port`, how late its writes are, and `stop`."""

    def __init__(self, settings: FakeServer, *, host: str) -> None:
        self._settings = settings
        self._host = host
        self._connections: set[Connection] = set()
        self._streams: dict[Connection, Stream] = {}
        self._requests = self._scrapes = 0
        self._listener: asyncio.Server | None = None
        self._stopped = False
        self._later: set[asyncio.TimerHandle] = set()
        self.port = 0
        self.lateness = Lateness()
        self._record = Record(settings.record, first_line=_first_line(settings))
        self._pace = self._new_pace()

    def _new_pace(self) -> Pace:
        settings = self._settings
        return Pace(
            settings.engine(),
            draft_tokens=settings.draft_tokens,
            grace_s=settings.grace_s,
            record=self._record,
            lateness=self.lateness,
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    @property
    def requests(self) -> int:
        """How many requests asked for tokens."""
        return self._requests

    async def listen(self, port: int) -> None:
        """Take connections.

        Raises:
            BadInputError: the port is in use, or the address is none of this machine's.

        """
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(lambda: Connection(self), self._host, port, backlog=1024)
        except (OSError, OverflowError) as fault:
            raise BadInputError(
                f"cannot listen on {printable(self._host)} port {port}: {fault}; is another server there? choose another --port"
            ) from None
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Drop everybody, free the port and complete the record."""
        if self._stopped:
            return
        self._stopped = True
        for timer in self._later:
            timer.cancel()
        self._drop("interrupted")
        self._record.close({"end": "stopped", "requests": self._requests, "lateness": self.lateness.figures()})
        await asyncio.sleep(0)  # what was cut is told so before the loop may close

    def _drop(self, why: str) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._pace.stop(why)
        for each in tuple(self._connections):
            each.cut()

    # What a connection tells.

    def connected(self, connection: Connection) -> bool:
        """Whether there is room for it."""
        self._connections.add(connection)
        return len(self._connections) <= MOST_CONNECTIONS

    def gone(self, connection: Connection) -> None:
        """It ended."""
        self._connections.discard(connection)
        stream = self._streams.pop(connection, None)
        if stream is not None:
            self._pace.gone(stream)

    def asked(self, connection: Connection, request: HttpRequest) -> None:
        """Answer a request, or let it in."""
        get: Mapping[str, Callable[[Connection, HttpRequest], None]] = {
            "/metrics": self._metrics,
            "/health": lambda to, _: to.answer(200, b""),
            "/v1/models": lambda to, _: to.answer_json(self._models()),
            "/version": lambda to, _: to.answer_json({"version": f"paceline-fake {__version__}"}),
        }
        wanted = "POST" if request.path in APIS else "GET"
        if request.path not in APIS and request.path not in get:
            connection.answer(404, error_body(404, f"nothing is served at {printable(request.path)}"))
        elif request.method != wanted:
            connection.answer(405, error_body(405, f"{request.path} takes {wanted}"), headers={"allow": wanted})
        elif request.path in get:
            get[request.path](connection, request)
        else:
            try:
                self._let_in(connection, request)
            except (PacelineError, RecursionError) as fault:
                self._streams.pop(connection, None)
                connection.answer(400, error_body(400, str(fault)))

    def _models(self) -> dict[str, Any]:
        model = {"id": self._settings.model, "object": "model", "created": int(time()), "owned_by": "paceline-fake"}
        return {"object": "list", "data": [model]}

    def _metrics(self, connection: Connection, request: HttpRequest) -> None:
        try:
            faults = (*self._settings.faults.of("scrapes", self._scrapes), *faults_in_header(request.headers.get("x-fake-fault", "")))
        except PacelineError as fault:
            connection.answer(400, error_body(400, str(fault)))
            return
        self._scrapes += 1
        if self._befall(faults):
            return
        replica = self._settings.replica
        text = exposition(
            self._pace.counters,
            self._pace.gauges,
            model=self._settings.model,
            started_s=self._pace.started_s,
            kv_blocks=replica.kv_blocks,
            block_tokens=replica.block_tokens,
        ).encode()
        half = len(text) // 2 if any(each.kind == "half_scrape" for each in faults) else None
        connection.answer(200, text, kind="text/plain; version=0.0.4; charset=utf-8", sent=half)

    def _befall(self, faults: Sequence[Fault]) -> bool:
        """Let happen what happens to the whole server; whether it is gone."""
        for each in faults:
            if each.kind == "counter_reset":
                self._pace.reset_counters()
            if each.kind == "restart":
                self._restart(each.seconds)
                return True
        return False

    def _restart(self, seconds: float) -> None:
        """Drop everybody, refuse connections for a while, and come back knowing nothing."""
        self._drop("restart")
        self._pace = self._new_pace()
        self._after(seconds, lambda: _keep(asyncio.get_running_loop().create_task(self._listen_again())))

    async def _listen_again(self) -> None:
        try:
            await self.listen(self.port)
        except BadInputError:  # somebody took the port meanwhile
            self._after(AGAIN_S, lambda: _keep(asyncio.get_running_loop().create_task(self._listen_again())))

    def _after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call that later, unless the server has stopped by then."""

        def due() -> None:
            self._later.discard(timer)
            call()

        timer = asyncio.get_running_loop().call_later(seconds, due)
        self._later.add(timer)

    def _let_in(self, connection: Connection, request: HttpRequest) -> None:
        """Let a request into the engine, or make it fail as was asked for."""
        settings = self._settings
        asking = read_asking(
            request.body, api=APIS[request.path], model=settings.model, default_output_tokens=settings.default_output_tokens
        )
        index = self._requests if asking.seed is None else (asking.seed - settings.first_seed) % SEEDS
        faults = (*settings.faults.of("requests", index), *faults_in_header(request.headers.get("x-fake-fault", "")))
        asked_id = request.headers.get("x-request-id", "")
        id_ = asked_id if PLAIN_ID.fullmatch(asked_id) else f"fake-{self._requests}"
        self._requests += 1
        if self._befall(faults):
            return
        stream = self._stream(asking, connection, faults, Who(id=id_, index=index, arrived_ns=request.arrived_ns))
        at_once = next((each for each in faults if each.kind in ("error", "cut") and not each.after_chunks), None)
        if at_once is None:
            self._streams[connection] = stream
            self._pace.let_in(stream)
            return
        stream.ended = at_once.kind
        self._record.keep(stream)
        self._record.write_while(None)
        if at_once.kind == "cut":
            connection.cut()
        else:
            connection.answer(at_once.status, error_body(at_once.status, "this fault was asked for"))

    def _stream(self, asking: Asking, connection: Connection, faults: tuple[Fault, ...], who: Who) -> Stream:
        wrong = next((each.after_chunks for each in faults if each.kind == "wrong_content"), None)
        answer = Answer(asking, id_=who.id, model=self._settings.model, created_s=int(time()), wrong_from=wrong)
        return Stream(who=who, asking=asking, answer=answer, connection=connection, faults=faults, later=self._after)


_tasks: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    """Hold a task until it is done: the loop alone does not."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _first_line(settings: FakeServer) -> dict[str, Any]:
    drafting = settings.drafting
    method = None if drafting is None else str(drafting.speculation.method)
    return {
        "schema": "paceline.fake-server/1",
        "provenance": {
            "made_by": "paceline fake-server",
            "version": __version__,
            "model": settings.model,
            "method": method,
            "draft_tokens": settings.draft_tokens,
            "seed": settings.seed,
            "first_seed": settings.first_seed,
            "speed": settings.speed,
            "grace_s": settings.grace_s,
        },
    }


def _warm_up(settings: FakeServer) -> None:
    """Compile what the engine needs, so that the first request does not wait for that."""
    replica = settings.engine()
    asked = Request(id="", arrived_at_s=0.0, prompt_tokens=1, output_tokens=1, segment=_any_segment(settings.drafting))
    try:
        replica.arrive(asked, index=0)
        replica.cancel(replica.arrive(asked, index=1))
        replica.step(grace_s=0.0)
    except BadInputError:
        return  # a replica with no room for a single token refuses every request by itself


def _any_segment(drafting: Drafting | None) -> str:
    return "all" if drafting is None else next(iter(drafting.acceptance))


async def serve(settings: FakeServer, *, host: str = LOOPBACK, port: int = 0) -> Running:
    """A server that listens on `host` and `port` (0: one that is free) until it is stopped.

    Raises:
        BadInputError: the host's name is none, the port is in use, or costs and limits do not go together.

    """
    if settings.speed <= 0:
        raise BadInputError(f"speed {settings.speed!r} is not above 0")
    if not is_host(host):
        raise BadInputError(f"{printable(host)} is no host name: a label is empty or over 63 characters")
    _warm_up(settings)
    running = Running(settings, host=host)
    try:
        await running.listen(port)
    except PacelineError:
        await running.stop()
        raise
    return running
