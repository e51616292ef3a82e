"""The fake server over real loopback sockets: what it sends is what its record, its metrics and the simulator say."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from paceline.errors import BadInputError
from paceline.forecast.step_cost import StepCost
from paceline.live.fake_server import FakeServer, Running, serve
from paceline.live.fake_server_faults import NO_FAULTS, read_faults
from paceline.run import Load
from paceline.servers.counters import Counters
from paceline.servers.prometheus_text import parse_exposition
from paceline.servers.vllm.metrics import difference, read_counters
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation
from paceline.workload import Request, Workload
from tests.conftest import Answer as CommandAnswer

STEP_S = 0.002
COST = StepCost(token_s=np.minimum(np.arange(2049.0), 1.0) * STEP_S, kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(65))
DRAFTS = Drafting(
    speculation=Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None),
    acceptance={
        "all": Acceptance(survival=(0.8, 0.6, 0.45), coverage=1.0),
        "code": Acceptance(survival=(0.9, 0.8, 0.7), coverage=1.0),
    },
    spread=0.5,
    rejection=Rejection.IN_PASS,
)
SETTINGS = FakeServer(
    model="tiny",
    replica=Replica(kv_blocks=4000, block_tokens=16, max_requests=64, token_budget=2048),
    step_cost=COST,
    drafting=DRAFTS,
    seed=7,
    first_seed=100,
    speed=1.0,
    grace_s=0.0,
    default_output_tokens=12,
    faults=NO_FAULTS,
    record=None,
)
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
EVERYTHING = {"include_usage": True, "continuous_usage_stats": True}
Paceline = Callable[[Sequence[str]], CommandAnswer]


@dataclass(frozen=True)
class Reply:
    """What one request got: status, headers, the body (what there was of it), and whether it was complete."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The stream's events, the last one's `[DONE]` left out."""
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    @property
    def sizes(self) -> list[int]:
        """Tokens of each chunk, from the usage in it."""
        usages = [each["usage"]["completion_tokens"] for each in self.events if each["choices"]]
        return [after - before for before, after in pairwise(usages)]

    @property
    def text(self) -> str:
        """The answer's words."""
        choices = [each["choices"][0] for each in self.events if each["choices"]]
        return "".join(each["text"] if "text" in each else each["delta"]["content"] for each in choices)


NOTHING = Reply(0, {}, b"", complete=False)


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """One answer, as far as it goes."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return NOTHING
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = bytearray()
    try:
        if "content-length" in headers:
            body += await reader.readexactly(int(headers["content-length"]))
        while "transfer-encoding" in headers:
            size = int(await reader.readuntil(b"\r\n"), 16)
            body += (await reader.readexactly(size + 2))[:size]
            if not size:
                break
    except asyncio.IncompleteReadError as cut:
        return Reply(int(first.split()[1]), headers, bytes(body + cut.partial), complete=False)
    except ConnectionError:
        return Reply(int(first.split()[1]), headers, bytes(body), complete=False)
    return Reply(int(first.split()[1]), headers, bytes(body), complete=True)


def request_bytes(path: str, body: object, headers: dict[str, str]) -> bytes:
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n{told}\r\n".encode() + content
    )


async def ask(server: Running, path: str, body: object = None, **headers: str) -> Reply:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request_bytes(path, body, {name.replace("_", "-"): value for name, value in headers.items()}))
    reply = await read_reply(reader)
    writer.close()
    return reply


def chat(index: int | None = 0, tokens: int = 12, **fields: Any) -> dict[str, Any]:
    """A streamed chat of three prompt tokens with everything that tells about tokens."""
    seed = {} if index is None else {"seed": 100 + index}
    said = [{"role": "user", "content": "how are you"}]
    return {"model": "tiny", "messages": said, "max_tokens": tokens, "stream": True, "stream_options": EVERYTHING, **seed, **fields}


@asynccontextmanager
async def served(settings: FakeServer = SETTINGS) -> AsyncIterator[Running]:
    server = await serve(settings)
    try:
        yield server
    finally:
        await server.stop()


def run(test: Callable[[Running], Awaitable[None]], settings: FakeServer = SETTINGS) -> None:
    """The test against a server, which has stopped when this returns."""

    async def whole() -> None:
        async with served(settings) as server:
            await test(server)

    asyncio.run(asyncio.wait_for(whole(), 60))


def recorded(path: Path) -> list[dict[str, Any]]:
    """The record's requests."""
    first, *rest, last = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert first["schema"] == "paceline.fake-server/1"
    assert last["end"] == "stopped"
    return rest


async def counters(server: Running) -> Counters:
    reply = await ask(server, "/metrics")
    read = parse_exposition(reply.body.decode())
    assert not read.malformed
    return read_counters(read.samples, model="tiny")


async def running(server: Running) -> float:
    """Requests running and waiting, as /metrics says."""
    samples = parse_exposition((await ask(server, "/metrics")).body.decode()).samples
    return sum(each.value or 0.0 for each in samples if each.name in ("vllm:num_requests_running", "vllm:num_requests_waiting"))


def test_a_streamed_chat_is_what_vllm_would_send_and_what_the_record_says(tmp_path: Path) -> None:
    """A client that counts role chunks or trailing usage as tokens would go unnoticed."""
    file = tmp_path / "sent.jsonl"
    replies: list[Reply] = []
    began_ns = perf_counter_ns()

    async def test(server: Running) -> None:
        replies.append(await ask(server, CHAT, chat(tokens=20), x_request_id="mine-1"))

    run(test, replace(SETTINGS, record=file))
    (reply,), (line,) = replies, recorded(file)
    assert reply.complete
    assert reply.headers["x-request-id"] == line["id"] == "mine-1"
    role, *chunks, usage = reply.events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [each["choices"][0]["finish_reason"] for each in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "total_tokens": 23, "completion_tokens": 20}
    assert reply.sizes == line["tokens"]
    assert len(reply.text.split()) == sum(line["tokens"]) == 20
    assert began_ns < line["arrived_ns"] < line["written_ns"][0] < line["written_ns"][-1]
    assert all(written >= due for written, due in zip(line["written_ns"], line["due_ns"], strict=True))
    gaps_ns = np.diff(line["due_ns"])
    assert np.abs(gaps_ns - STEP_S * 1e9).max() <= 1
    told, counts = usage["metrics"]["speculative_decoding"], line["acceptance"]
    assert told["num_spec_steps"] == counts["drafts"] == len(told["per_step_accepted"])
    assert told["num_accepted_draft_tokens"] == counts["accepted_tokens"] == sum(told["per_step_accepted"])
    assert told["num_draft_tokens"] == counts["drafted_tokens"] == sum(told["per_step_drafted"])
    assert told["acceptance_histogram"] == [told["per_step_accepted"].count(i) for i in range(4)]


def test_the_same_workload_is_accepted_as_the_simulator_says_whatever_the_timing(tmp_path: Path) -> None:
    """A load-tester that was checked against this server would be checked against another truth than the simulator's."""
    file = tmp_path / "sent.jsonl"
    segments = ["chat" if i % 3 else "code" for i in range(24)]
    requests = tuple(
        Request(id=str(i), arrived_at_s=0.0, prompt_tokens=3, output_tokens=10 + i, segment=segment) for i, segment in enumerate(segments)
    )
    load = Load(concurrency=4, rate_per_s=None)
    asked = Workload(requests=requests, source="by hand", seed=None)
    simulated = simulate(asked, replica=SETTINGS.replica, step_cost=COST, drafting=DRAFTS, load=load, seed=7)

    async def test(server: Running) -> None:
        bodies = [chat(i, 10 + i, metadata={"segment": segment}) for i, segment in enumerate(segments)]
        await asyncio.gather(*(ask(server, CHAT, body, x_request_id=str(i)) for i, body in reversed(list(enumerate(bodies)))))

    run(test, replace(SETTINGS, record=file))
    lines = {line["id"]: line for line in recorded(file)}
    assert simulated.requests is not None
    for request in simulated.requests:
        line, counts = lines[request.id], request.acceptance
        assert counts is not None
        assert line["segment"] == request.segment
        assert (
            AcceptanceCounts(**{**line["acceptance"], "accepted_per_position": tuple(line["acceptance"]["accepted_per_position"])})
            == counts
        )
        assert line["tokens"] == request.timing.chunk_tokens.tolist()


def test_the_simulator_given_the_recorded_arrivals_says_when_every_chunk_was_due(tmp_path: Path) -> None:
    """Queueing over real sockets would follow other rules than the forecast it is compared with."""
    file = tmp_path / "sent.jsonl"
    crowded = replace(SETTINGS, replica=replace(SETTINGS.replica, kv_blocks=20, max_requests=4), record=file)

    async def test(server: Running) -> None:
        async def one_after_the_other(lane: int) -> None:
            for turn in range(3):
                prompt = {"prompt_tokens": 10 + 7 * lane}
                await ask(server, CHAT, chat(None, 10 + 5 * turn + lane, metadata=prompt))

        await asyncio.gather(*map(one_after_the_other, range(8)))

    run(test, crowded)
    lines = sorted(recorded(file), key=lambda line: line["index"])
    first_ns = lines[0]["arrived_ns"]
    requests = tuple(
        Request(
            id=line["id"],
            arrived_at_s=(line["arrived_ns"] - first_ns) / 1e9,
            prompt_tokens=line["prompt_tokens"],
            output_tokens=line["asked_output_tokens"],
            segment=line["segment"],
        )
        for line in lines
    )
    asked = Workload(requests=requests, source="record", seed=None)
    load = Load(concurrency=None, rate_per_s=None)
    simulated = simulate(asked, replica=crowded.replica, step_cost=COST, drafting=DRAFTS, load=load, seed=7)
    assert simulated.requests is not None
    for line, request in zip(lines, simulated.requests, strict=True):
        due_s = (np.array(line["due_ns"]) - first_ns) / 1e9
        assert line["tokens"] == request.timing.chunk_tokens.tolist()
        assert due_s == pytest.approx(request.timing.chunk_at_s, abs=1e-6)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_whole_answers_and_streams_hold_the_same_text_with_and_without_drafts(api: str) -> None:
    """A rollout's check that speculation is lossless would fail on a server that is."""
    path = CHAT if api == "chat" else COMPLETIONS
    body = chat() if api == "chat" else {**chat(), "prompt": "how are you"}
    texts: list[str] = []

    async def test(server: Running) -> None:
        streamed = await ask(server, path, body)
        whole = await ask(server, path, {**body, "stream": False, "stream_options": None})
        choice = whole.json["choices"][0]
        texts.extend([streamed.text, choice["text"] if api == "completions" else choice["message"]["content"]])
        assert whole.json["usage"] == {"prompt_tokens": 3, "total_tokens": 15, "completion_tokens": 12}
        assert choice["finish_reason"] == "length"

    run(test)
    run(test, replace(SETTINGS, drafting=None))
    assert len(set(texts)) == 1
    assert len(texts[0].split()) == 12


@pytest.mark.parametrize(
    ("fields", "tokens", "reason"),
    [
        ({"max_tokens": None}, 12, "length"),
        ({"metadata": {"output_tokens": "5"}}, 5, "stop"),
        ({"metadata": {"output_tokens": 5}, "ignore_eos": True}, 12, "length"),
        ({"metadata": {"output_tokens": 5}, "min_tokens": 8}, 8, "stop"),
        ({"metadata": {"output_tokens": 50}}, 12, "length"),
        ({"max_completion_tokens": 3}, 3, "length"),
    ],
)
def test_an_answer_has_exactly_the_tokens_that_were_asked_for(fields: dict[str, Any], tokens: int, reason: str) -> None:
    """TPOT is divided by a number of tokens that nobody got."""

    async def test(server: Running) -> None:
        reply = await ask(server, CHAT, chat(**fields))
        assert sum(reply.sizes) == len(reply.text.split()) == tokens
        assert reply.events[-2]["choices"][0]["finish_reason"] == reason

    run(test)


def test_chunks_carry_token_ids_and_logprobs_where_they_are_asked_for() -> None:
    """A client without usage in its chunks could not count tokens."""

    async def test(server: Running) -> None:
        reply = await ask(server, CHAT, chat(logprobs=True, return_token_ids=True))
        choices = [each["choices"][0] for each in reply.events[1:-1]]
        assert [len(each["token_ids"]) for each in choices] == reply.sizes
        assert [len(each["logprobs"]["content"]) for each in choices] == reply.sizes
        plain = await ask(server, COMPLETIONS, {"prompt": [1, 2, 3, 4], "max_tokens": 3, "logprobs": 0})
        assert len(plain.json["choices"][0]["logprobs"]["tokens"]) == 3
        assert plain.json["usage"]["prompt_tokens"] == 4

    run(test)


def test_prompt_tokens_are_counted_by_the_documented_rule() -> None:
    """A load-tester cannot send the workload it was given."""

    async def test(server: Running) -> None:
        parts = [{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {}}]
        messages = [
            {"role": "system", "content": "one  two\nthree"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None},
        ]
        for fields, tokens in (({"messages": messages}, 5), ({"messages": messages, "metadata": {"prompt_tokens": 900}}, 900)):
            reply = await ask(server, CHAT, chat(**fields, stream=False))
            assert reply.json["usage"]["prompt_tokens"] == tokens

    run(test)


def test_the_difference_of_two_scrapes_is_the_record(tmp_path: Path) -> None:
    """Dashboards and our own reader would be tried against numbers that nobody produced."""
    file = tmp_path / "sent.jsonl"
    seen: list[Counters] = []

    async def test(server: Running) -> None:
        await ask(server, CHAT, chat(0))
        seen.append(await counters(server))
        await asyncio.gather(*(ask(server, CHAT, chat(i, 5 * i)) for i in range(1, 9)))
        seen.append(await counters(server))

    run(test, replace(SETTINGS, record=file))
    lines = [line for line in recorded(file) if line["index"] > 0]
    window = difference(*seen)
    assert window.cautions == ()
    assert window.speculates
    assert window.generation_tokens == sum(sum(line["tokens"]) for line in lines) == 5 * 36
    assert window.prompt_tokens == sum(line["prompt_tokens"] for line in lines)
    assert window.drafts == sum(line["acceptance"]["drafts"] for line in lines)
    assert window.drafted_tokens == sum(line["acceptance"]["drafted_tokens"] for line in lines)
    assert window.accepted_tokens == sum(line["acceptance"]["accepted_tokens"] for line in lines)
    assert window.accepted_per_position == tuple(np.sum([line["acceptance"]["accepted_per_position"] for line in lines], axis=0))
    assert window.steps == sum(line["steps"] for line in lines)
    assert window.gauges["requests_running"].value == 0
    ttfts_s = [(line["due_ns"][0] - line["arrived_ns"]) / 1e9 for line in lines]
    spans_s = [(line["due_ns"][-1] - line["due_ns"][0]) / 1e9 for line in lines]
    tpots_s = [span / (sum(line["tokens"]) - 1) for span, line in zip(spans_s, lines, strict=True)]
    for observed, values in (
        (window.first_token, ttfts_s),
        (window.decode, spans_s),
        (window.tpot, tpots_s),
        (window.e2e, [(line["due_ns"][-1] - line["arrived_ns"]) / 1e9 for line in lines]),
    ):
        assert observed is not None
        assert observed.count == len(values)
        assert observed.total == pytest.approx(sum(values))
    assert window.step_gap is not None
    assert window.step_gap.total == pytest.approx(sum(spans_s))


def test_a_plain_server_exports_no_series_of_speculation() -> None:
    """A server with speculation off would read as one that accepts nothing."""

    async def test(server: Running) -> None:
        reply = await ask(server, CHAT, chat())
        assert reply.sizes == [1] * 12
        assert "metrics" not in reply.events[-1]
        window = difference(None, await counters(server))
        assert not window.speculates
        assert window.generation_tokens == 12

    run(test, replace(SETTINGS, drafting=None))


def test_the_small_endpoints_answer() -> None:
    """Whatever waits for a server to be healthy would wait for ever."""

    async def test(server: Running) -> None:
        assert (await ask(server, "/health")).status == 200
        assert (await ask(server, "/v1/models?x=1")).json["data"][0]["id"] == "tiny"
        assert "fake" in (await ask(server, "/version")).json["version"]
        assert (await ask(server, "/nowhere")).status == 404
        assert (await ask(server, CHAT)).status == 405
        assert (await ask(server, "/metrics", {})).headers["allow"] == "GET"

    run(test)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "JSON object"),
        (b"\xff\xfe", "no JSON"),
        (chat(model="other"), "'other' is not served"),
        (chat(n=2), "n = 2"),
        (chat(messages=[]), "messages"),
        (chat(messages=["x"]), "a message must be"),
        (chat(messages=[{"role": "user", "content": 5}]), "content must be"),
        (chat(max_tokens=0), "max_tokens"),
        (chat(max_tokens=10**9), "max_tokens"),
        (chat(max_tokens=True), "max_tokens"),
        (chat(seed="x"), "seed"),
        (chat(seed=10**30), "seed"),
        (chat(temperature=float("nan")), "temperature"),
        (chat(stream="yes"), "stream"),
        (chat(stream_options=[]), "stream_options"),
        (chat(min_tokens=13), "min_tokens"),
        (chat(metadata={"segment": ""}), "segment"),
        (chat(metadata={"prompt_tokens": 200_000}), "do not fit"),
    ],
)
def test_a_bad_request_is_refused_with_a_reason_and_the_server_lives(body: object, says: str) -> None:
    """One malformed client would take the rehearsal down."""

    async def test(server: Running) -> None:
        reply = await ask(server, CHAT, body)
        assert reply.status == 400
        assert says in reply.json["error"]["message"]
        assert (await ask(server, COMPLETIONS, {"prompt": {}})).status == 400
        assert (await ask(server, CHAT, chat())).complete

    run(test)


def test_an_unknown_segment_is_refused_where_no_acceptance_stands_for_it() -> None:
    """Requests of a kind that nobody described would be simulated as another."""
    only = replace(SETTINGS, drafting=replace(DRAFTS, acceptance={"code": DRAFTS.acceptance["code"]}))

    async def test(server: Running) -> None:
        assert "unknown segment 'all'" in (await ask(server, CHAT, chat())).json["error"]["message"]

    run(test, only)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nx: " + b"y" * 40_000, 431),
        (b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 40_000, 431),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 400),
    ],
)
def test_broken_http_is_refused_and_the_connection_ended(sent: bytes, status: int) -> None:
    """A scanner's garbage, or a head without end, would fill memory or kill the server."""

    async def test(server: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        reply = await read_reply(reader)
        assert reply.status == status
        assert "message" in reply.json["error"]
        assert await reader.read() == b""
        writer.close()
        assert (await ask(server, "/health")).status == 200

    run(test)


def test_a_host_that_is_no_name_is_refused() -> None:
    """The look-up raises something that is no network error, and the command ends in a traceback."""
    with pytest.raises(BadInputError, match=r"'a\.\.b' is no host name"):
        asyncio.run(serve(SETTINGS, host="a..b"))


def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    """A client's pool would get one request's answer for another's."""

    async def test(server: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request_bytes(CHAT, chat(), {"x-request-id": "a"}) + request_bytes("/health", None, {}))
        writer.write(request_bytes(CHAT, chat(), {"x-request-id": "b"}))
        replies = [await read_reply(reader) for _ in range(3)]
        assert [each.headers.get("x-request-id") for each in replies] == ["a", None, "b"]
        assert all(each.complete for each in replies)
        writer.close()

    run(test)


def test_an_old_client_gets_a_stream_without_framing() -> None:
    """HTTP/1.0 has no chunks: it would read their sizes as text."""

    async def test(server: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request_bytes(CHAT, chat(), {}).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert len(Reply(200, {}, body, complete=True).text.split()) == 12
        writer.close()

    run(test)


def test_a_client_that_goes_away_is_cancelled_and_its_place_is_free(tmp_path: Path) -> None:
    """Abandoned requests would fill the server, as no real one lets them."""
    file = tmp_path / "sent.jsonl"

    async def test(server: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request_bytes(CHAT, chat(0, 10_000), {}))
        await reader.readuntil(b"usage")
        assert await running(server) == 1
        writer.transport.abort()
        while await running(server):
            pass
        assert (await ask(server, "/metrics")).body.count(b'finished_reason="abort",model_name="tiny"} 1.0') == 1

    run(test, replace(SETTINGS, record=file))
    (line,) = recorded(file)
    assert line["end"] == "cancelled"
    assert 0 < sum(line["tokens"]) < 10_000


def faults(tmp_path: Path, text: str) -> FakeServer:
    """The server with the faults of this file, and a record."""
    file = tmp_path / "faults.toml"
    file.write_text(text, encoding="utf-8")
    return replace(SETTINGS, faults=read_faults(file), record=tmp_path / "sent.jsonl")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["stall", "slow_first_byte"])
def test_a_stall_holds_the_answer_back_and_loses_nothing(kind: str, stream: bool, tmp_path: Path) -> None:
    """A client's time-outs and its P99 cannot be tried."""
    settings = faults(tmp_path, f'[[fault]]\nkind = "{kind}"\nseconds = 0.15\nrequests = [3]')

    async def test(server: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for index in (2, 3):
            writer.write(request_bytes(CHAT, chat(index, stream=stream), {}))
            assert (await read_reply(reader)).complete
        writer.write(request_bytes("/health", None, {}))
        assert (await read_reply(reader)).status == 200
        writer.close()

    run(test, settings)
    before, line = recorded(tmp_path / "sent.jsonl")
    assert (before["faults"], line["faults"]) == ([], [kind])
    assert line["end"] == "length"
    assert None not in line["written_ns"]
    assert line["written_ns"][-1] - line["arrived_ns"] >= 149e6


def test_a_cut_stream_ends_in_the_middle(tmp_path: Path) -> None:
    """A client that takes a cut answer for a short one would report a faster server."""
    settings = faults(
        tmp_path, '[[fault]]\nkind = "cut"\nafter_chunks = 2\nrequests = [0]\n[[fault]]\nkind = "cut"\nafter_chunks = 0\nrequests = [1]'
    )

    async def test(server: Running) -> None:
        reply = await ask(server, CHAT, chat(0, 40))
        assert not reply.complete
        assert await ask(server, CHAT, chat(1)) == NOTHING
        while await running(server):
            pass

    run(test, settings)
    first, second = recorded(tmp_path / "sent.jsonl")
    assert (first["end"], len(first["tokens"])) == ("cut", 2)
    assert (second["end"], second["tokens"]) == ("cut", [])


def test_an_error_comes_before_or_within_an_answer(tmp_path: Path) -> None:
    """An error after the first tokens has status 200, and is missed by whoever looks at that alone."""
    settings = faults(
        tmp_path, '[[fault]]\nkind = "error"\nstatus = 503\nrequests = [0]\n[[fault]]\nkind = "error"\nafter_chunks = 2\nrequests = [1]'
    )

    async def test(server: Running) -> None:
        assert (await ask(server, CHAT, chat(0))).status == 503
        within = await ask(server, CHAT, chat(1, 40))
        assert within.complete
        assert within.status == 200
        assert within.events[-1]["error"]["code"] == 500
        assert (await ask(server, CHAT, chat(1, 40, stream=False))).status == 500

    run(test, settings)
    assert [line["end"] for line in recorded(tmp_path / "sent.jsonl")] == ["error"] * 3


def test_wrong_content_is_as_long_as_the_right_one() -> None:
    """A check of losslessness that never saw a loss."""

    async def test(server: Running) -> None:
        right = await ask(server, CHAT, chat())
        wrong = await ask(server, CHAT, chat(), x_fake_fault="wrong_content after_chunks=4")
        assert right.text.split()[:4] == wrong.text.split()[:4]
        assert right.text != wrong.text
        assert right.sizes == wrong.sizes

    run(test)


def test_half_a_scrape_ends_before_its_length(tmp_path: Path) -> None:
    """Half a scrape that reads as a whole one shows counters that are missing as zero."""
    settings = faults(tmp_path, '[[fault]]\nkind = "half_scrape"\nscrapes = [1]')

    async def test(server: Running) -> None:
        whole, half, again = [await ask(server, "/metrics") for _ in range(3)]
        assert (whole.complete, half.complete, again.complete) == (True, False, True)
        assert len(half.body) == int(half.headers["content-length"]) // 2

    run(test, settings)


def test_counters_that_are_reset_fall(tmp_path: Path) -> None:
    """A reader that subtracts blindly gets negative rates."""
    settings = faults(tmp_path, '[[fault]]\nkind = "counter_reset"\nrequests = [1]')

    async def test(server: Running) -> None:
        await ask(server, CHAT, chat(0, 40))
        before = await counters(server)
        await ask(server, CHAT, chat(1, 12))
        window = difference(before, await counters(server))
        assert [each.code for each in window.cautions] == ["counter_reset"]
        assert window.generation_tokens == 12

    run(test, settings)


def test_a_restart_drops_everybody_refuses_for_a_while_and_counts_from_zero(tmp_path: Path) -> None:
    """A rollout that loses its server in the middle would be seen for the first time in production."""
    settings = faults(tmp_path, '[[fault]]\nkind = "restart"\nseconds = 0.1\nrequests = [1]')

    async def test(server: Running) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request_bytes(CHAT, chat(0, 10_000), {}))
        await reader.readuntil(b"usage")
        before = await counters(server)
        assert await ask(server, CHAT, chat(1)) == NOTHING
        assert not (await read_rest(reader)).endswith(b"0\r\n\r\n")
        writer.close()
        refused = 0
        while True:
            try:
                after = await counters(server)
                break
            except ConnectionRefusedError:
                refused += 1
        assert refused
        window = difference(before, after)
        assert window.generation_tokens == 0
        assert next(each.code for each in window.cautions) == "counter_reset"
        assert (await ask(server, CHAT, chat(2))).complete

    run(test, settings)
    assert [line["end"] for line in recorded(tmp_path / "sent.jsonl")] == ["restart", "length"]


async def read_rest(reader: asyncio.StreamReader) -> bytes:
    """All that still comes."""
    rest = b""
    try:
        while piece := await reader.read(65_536):
            rest = piece
    except ConnectionError:
        return rest
    return rest


def test_a_share_strikes_the_same_requests_every_time(tmp_path: Path) -> None:
    """A fault that cannot be repeated cannot be mended."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(
            'seed = 3\n[[fault]]\nkind = "error"\nshare = 0.3\n[[fault]]\nkind = "cut"\nevery = 4', encoding="utf-8"
        )
    one, other = (read_faults(tmp_path / name) for name in ("a", "b"))
    struck = [[each.kind for each in one.of("requests", index)] for index in range(400)]
    assert struck == [[each.kind for each in other.of("requests", index)] for index in range(400)]
    assert [i for i, kinds in enumerate(struck) if "cut" in kinds] == list(range(3, 400, 4))
    assert 80 <= sum("error" in kinds for kinds in struck) <= 160
    assert one.of("scrapes", 3) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "cannot be read"),
        ("spec = 1", "unknown key"),
        ("seed = -1", "seed from 0 on"),
        ("fault = 3", "as [[fault]]"),
        ('[[fault]]\nkind = "stal"\nevery = 1', "nearest: stall"),
        ('[[fault]]\nkind = "stall"', "whom it strikes"),
        ('[[fault]]\nkind = "stall"\nevery = 1\nshare = .5', "cannot be read"),
        ('[[fault]]\nkind = "stall"\nevery = 1\nshare = 0.5', "one of"),
        ('[[fault]]\nkind = "stall"\nstatus = 500\nevery = 1', "unknown key of a stall fault 'status'"),
        ('[[fault]]\nkind = "stall"\nscrapes = [1]', "not scrapes"),
        ('[[fault]]\nkind = "half_scrape"\nrequests = [1]', "not requests"),
        ('[[fault]]\nkind = "stall"\nrequests = [-1]', "no list of indices"),
        ('[[fault]]\nkind = "stall"\nevery = 0', "every = 0"),
        ('[[fault]]\nkind = "stall"\nshare = 2', "share = 2"),
        ('[[fault]]\nkind = "stall"\nevery = 1\nseconds = -1', "seconds = -1"),
        ('[[fault]]\nkind = "error"\nevery = 1\nstatus = 200', "status = 200"),
    ],
)
def test_a_file_of_faults_that_means_nothing_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """A typo switches the fault off, and the test against it passes."""
    file = tmp_path / "faults.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError) as refused:
        read_faults(file)
    assert says in str(refused.value)


def test_faults_in_a_header_are_checked_too() -> None:
    """As for a file."""

    async def test(server: Running) -> None:
        for text, says in (("stal", "nearest: stall"), ("stall seconds=x", "NAME=NUMBER"), ("cut;" * 9, "at most 8")):
            reply = await ask(server, CHAT, chat(), x_fake_fault=text)
            assert reply.status == 400
            assert says in reply.json["error"]["message"]
        assert (await ask(server, "/metrics", x_fake_fault="no")).status == 400
        assert not (await ask(server, "/metrics", x_fake_fault="half_scrape")).complete

    run(test)


def test_who_has_no_seed_has_the_draws_of_its_place_in_the_order(tmp_path: Path) -> None:
    """Other people's clients send no seed, or the same one for all."""
    file = tmp_path / "sent.jsonl"

    async def test(server: Running) -> None:
        for _ in range(3):
            await ask(server, CHAT, chat(None))

    run(test, replace(SETTINGS, record=file))
    assert [(line["id"], line["index"]) for line in recorded(file)] == [(f"fake-{i}", i) for i in range(3)]


def test_a_replica_without_room_for_one_token_still_answers_with_a_reason() -> None:
    """The server would die of its own warm-up."""
    tiny = replace(SETTINGS, replica=replace(SETTINGS.replica, kv_blocks=1, block_tokens=1))

    async def test(server: Running) -> None:
        assert "do not fit" in (await ask(server, CHAT, chat())).json["error"]["message"]

    run(test, tiny)


def test_a_port_in_use_is_refused_with_a_reason() -> None:
    """Somebody measures the server that was forgotten an hour ago."""

    async def test(server: Running) -> None:
        with pytest.raises(BadInputError, match="is another server there"):
            await serve(SETTINGS, port=server.port)

    run(test)
    with pytest.raises(BadInputError, match="speed 0"):
        asyncio.run(serve(replace(SETTINGS, speed=0)))


def test_time_passes_faster_on_request(tmp_path: Path) -> None:
    """A rehearsal of an hour takes an hour."""
    file = tmp_path / "sent.jsonl"

    async def test(server: Running) -> None:
        await ask(server, CHAT, chat())

    run(test, replace(SETTINGS, speed=4.0, record=file))
    (line,) = recorded(file)
    assert np.abs(np.diff(line["due_ns"]) - STEP_S * 1e9 / 4).max() <= 1


VERB = ["fake-server", "--port", "0", "--target", "llama-3.3-70b", "--gpu", "h100", "--gpus", "4"]


def test_the_verb_says_where_it_listens_and_how_late_it_was(paceline: Paceline) -> None:
    """A script cannot find the server that it started."""
    answer = paceline([*VERB, "--survival", ".8,.6,.45", "--segments", "chat", "--for", "0s", "--json", "--speed", "10"])
    first, last = map(json.loads, answer.out.splitlines())
    assert answer.code == 0
    assert first["fake"] is True
    assert first["url"] == f"http://127.0.0.1:{first['port']}"
    assert "10 times as fast" in first["notes"][0]
    assert last == {"requests": 0, "lateness": {"chunks": 0, "p50_s": None, "p99_s": None, "worst_s": None}}
    plain = paceline([*VERB, "--method", "none", "--for", "0s", "--host", "0.0.0.0"])  # noqa: S104 - for an instant, to see what is said
    assert "no drafts" in plain.out
    assert "beyond this machine" in plain.out
    assert paceline([*VERB, "--port", "70000", "--for", "0s"]).code == 2


def test_ctrl_c_ends_it_with_the_record_whole(tmp_path: Path) -> None:
    """The evidence of an afternoon is cut off in the middle of a line."""
    file = tmp_path / "sent.jsonl"
    command = [sys.executable, "-m", "paceline.cli.main", *VERB, "--survival", ".8,.6,.45", "--record", str(file), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]

        async def begin() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes(CHAT, {**chat(0, 10_000), "model": None}, {}))
            await reader.readuntil(b"usage")
            server.send_signal(signal.SIGINT)
            await read_rest(reader)
            writer.close()

        asyncio.run(begin())
        last = json.loads(server.stdout.readline())
        assert server.wait(30) == 0
    (line,) = recorded(file)
    assert line["end"] == "interrupted"
    assert last["requests"] == 1
