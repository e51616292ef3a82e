"""`live/http_client` and `live/http_connection` over loopback sockets: framings, splits, cuts, time-outs, reuse."""

import asyncio
import ssl
from pathlib import Path
from time import perf_counter_ns

import pytest

from paceline.errors import BadInputError, ServerFaultError
from paceline.live.event_loop import run_in_loop
from paceline.live.http_client import Http
from paceline.live.http_connection import Connection, Received, StreamEnd, Timeouts
from paceline.live.http_message import address_of
from paceline.live.sse import read_events
from tests.wire.scripted_server import (
    CHUNKED,
    HEAD,
    PATIENT,
    Exchange,
    ScriptedServer,
    chunked,
    event_stream,
    forever,
    post,
    received_from,
    scripted,
)

TLS = Path(__file__).parent.parent / "data" / "tls"
EVENTS = event_stream('{"a": "één"}', '{"b": 2}', "[DONE]")


def data_of(received: Received) -> list[bytes]:
    """The events' data."""
    return [each.data for each in read_events(received.body_pieces(), ended=True).events]


EXPECTED = ['{"a": "één"}'.encode(), b'{"b": 2}', b"[DONE]"]


@pytest.mark.parametrize(
    "packets",
    [
        [CHUNKED, *chunked(*EVENTS)],
        [CHUNKED + b"".join(chunked(*EVENTS))],
        [CHUNKED, *chunked(b"".join(EVENTS)[:13], b"".join(EVENTS)[13:])],
        [CHUNKED, *chunked(*EVENTS)[:-1], b"0\r\nX-Trailer: 1\r\n\r\n"],
        [CHUNKED, *chunked(*(each.replace(b"\n", b"\r\n") for each in EVENTS))],
        [HEAD + f"Content-Length: {len(b''.join(EVENTS))}\r\n\r\n".encode(), *EVENTS],
        [b"HTTP/1.1 100 Continue\r\n\r\n", CHUNKED, *chunked(*EVENTS)],
    ],
    ids=["chunked", "one packet", "chunks across events", "trailers", "CRLF", "content length", "interim reply"],
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_every_framing_and_every_packet_gives_the_same_events(packets: list[bytes], bytewise: bool) -> None:
    """A proxy that cuts differently changes the measurement."""

    async def answer(exchange: Exchange) -> None:
        whole = b"".join(packets)
        await exchange.send(*([whole[at : at + 1] for at in range(len(whole))] if bytewise else packets))
        await forever()

    received = received_from(answer)
    assert (received.ended, received.status, received.error) == (StreamEnd.COMPLETE, 200, None)
    assert data_of(received) == EXPECTED


def test_a_body_that_ends_with_its_connection_is_complete() -> None:
    """Servers that speak HTTP/1.0 style would fail every request."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD + b"\r\n", *EVENTS)
        await exchange.cut()

    received = received_from(answer)
    assert received.ended is StreamEnd.COMPLETE
    assert data_of(received) == EXPECTED


def test_the_measuring_loop_gives_the_same_events() -> None:
    """What the tests try is not what measures."""

    async def main() -> Received:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(CHUNKED, *chunked(*EVENTS))

        async with scripted(answer) as server:
            http = Http()
            received = await post(http, server)
            http.close()
            return received

    assert data_of(run_in_loop(main())) == EXPECTED


@pytest.mark.parametrize(
    ("packets", "status", "says"),
    [
        ([], None, "before a whole header"),
        ([HEAD[:20]], None, "before a whole header"),
        ([CHUNKED, *chunked(*EVENTS)[:2]], 200, "in the middle"),
        ([CHUNKED, chunked(*EVENTS)[0][:9]], 200, "in the middle"),
        ([HEAD + b"Content-Length: 1000\r\n\r\n", *EVENTS], 200, "in the middle"),
    ],
    ids=["at once", "header", "body", "event", "length"],
)
def test_a_cut_stream_is_an_outcome_that_keeps_what_came(packets: list[bytes], status: int | None, says: str) -> None:
    """A server's crash passes for a short answer, or takes the load test down with it."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(*packets)
        await exchange.cut()

    received = received_from(answer)
    assert (received.ended, received.status) == (StreamEnd.CUT, status)
    assert received.error is not None
    assert says in received.error


@pytest.mark.parametrize(
    "packets",
    [[b"SSH-2.0-OpenSSH_9.6\r\n"], [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], [HEAD + b"X: " + b"a" * 70_000]],
    ids=["another protocol", "no chunk", "endless header"],
)
def test_what_is_not_http_ends_the_request_and_not_the_program(packets: list[bytes]) -> None:
    """A wrong port takes the load test down."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(*packets)
        await forever()

    received = received_from(answer)
    assert received.ended is StreamEnd.CUT
    assert received.error


def test_an_endless_body_is_cut_off_at_the_bound() -> None:
    """One broken server fills the memory of the machine that measures."""

    async def answer(exchange: Exchange) -> None:
        exchange.writer.write(HEAD + b"\r\n")
        while True:
            exchange.writer.write(b"data: " + b"x" * 2**20 + b"\n\n")
            await exchange.writer.drain()

    received = received_from(answer)
    assert received.ended is StreamEnd.CUT
    assert "more than this client holds" in str(received.error)


@pytest.mark.parametrize(
    ("packets", "timeouts", "says"),
    [
        ([], Timeouts(first_byte_s=0.05, gap_s=9, total_s=9), "no answer within 0.05 s"),
        ([CHUNKED], Timeouts(first_byte_s=0.05, gap_s=9, total_s=9), "no answer within 0.05 s"),
        ([CHUNKED, *chunked(*EVENTS)[:2]], Timeouts(first_byte_s=9, gap_s=0.05, total_s=9), "silent for 0.05 s"),
        ([CHUNKED, *chunked(*EVENTS)[:2]], Timeouts(first_byte_s=9, gap_s=9, total_s=0.05), "not finished within 0.05 s"),
    ],
    ids=["no header", "no body", "stall", "total"],
)
def test_each_time_out_is_an_outcome_that_keeps_what_came(packets: list[bytes], timeouts: Timeouts, says: str) -> None:
    """A stalled server hangs the load test, or its request vanishes from the figures."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(*packets)
        await forever()

    received = received_from(answer, timeouts=timeouts)
    assert received.ended is StreamEnd.TIMEOUT
    assert says in str(received.error)
    assert data_of(received) == EXPECTED[: max(len(packets) - 1, 0)]


def test_a_steady_stream_outlives_its_gap_time_out() -> None:
    """Long answers are cut by a limit that is meant for silence."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED)
        began_ns = perf_counter_ns()
        while perf_counter_ns() - began_ns < 0.3e9:
            await exchange.send(chunked(EVENTS[0])[0])
        await exchange.send(chunked()[0])
        await forever()

    assert received_from(answer, timeouts=Timeouts(first_byte_s=9, gap_s=0.1, total_s=9)).ended is StreamEnd.COMPLETE


def test_each_packet_s_stamp_lies_between_its_sending_and_its_use() -> None:
    """Latency is measured at parsing time, after everything else the loop had to do."""
    before: list[int] = []
    after: list[int] = []

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED)
        for each in chunked(*EVENTS):
            before.append(perf_counter_ns())
            await exchange.send(each)
            after.append(perf_counter_ns())
        await forever()

    received = received_from(answer)
    events = read_events(received.body_pieces(), ended=True).events
    assert len(events) == 3
    assert all(low < event.at_ns < high for low, event, high in zip(before[:3], events, after[:3], strict=True))
    assert received.sent_at_ns < before[0]


def test_connections_are_used_again_unless_the_server_closes_them() -> None:
    """Each request pays for a connection that its users would not."""

    async def main(head: bytes) -> int:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(head, *chunked(*EVENTS))

        async with scripted(answer) as server:
            http = Http()
            for _ in range(3):
                assert (await post(http, server)).ended is StreamEnd.COMPLETE
            http.close()
            return server.connections

    assert asyncio.run(main(CHUNKED)) == 1
    assert asyncio.run(main(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")) == 3


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"garbage"])
def test_a_connection_with_bytes_that_nobody_asked_for_is_not_used_again(extra: bytes) -> None:
    """The next request gets the answer to another."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED, b"".join(chunked(*EVENTS)) + (extra if exchange.number == 1 else b""))

    async def main() -> int:
        async with scripted(answer) as server:
            http = Http()
            for _ in range(2):
                assert data_of(await post(http, server)) == EXPECTED
            http.close()
            return server.connections

    with_extra_and_end = asyncio.run(main())
    assert with_extra_and_end == 2


def test_a_request_on_an_idle_connection_that_just_closed_is_sent_once_more_and_says_so() -> None:
    """Every pause longer than the server's keep-alive costs a request, or its second try passes for a first."""

    async def answer(exchange: Exchange) -> None:
        if exchange.number == 2:
            await exchange.cut()
        else:
            await exchange.send(CHUNKED, *chunked(*EVENTS))

    async def main() -> list[Received]:
        async with scripted(answer) as server:
            http = Http()
            received = [await post(http, server) for _ in range(2)]
            http.close()
            return received

    first, second = asyncio.run(main())
    assert (first.ended, first.sent_twice) == (StreamEnd.COMPLETE, False)
    assert (second.ended, second.sent_twice) == (StreamEnd.COMPLETE, True)


def test_a_server_that_closes_after_every_answer_costs_one_second_try_at_most() -> None:
    """All requests but the first are sent twice to a server that promises to keep connections and never does (llama-server's streams).

    None is where the end is read before the next request is written, which is the kernel's to say.
    """

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED, *chunked(*EVENTS))
        await exchange.cut()

    async def main() -> tuple[list[Received], int]:
        async with scripted(answer) as server:
            http = Http()
            received = [await post(http, server) for _ in range(5)]
            http.close()
            return received, server.connections

    received, connections = asyncio.run(main())
    assert [each.ended for each in received] == [StreamEnd.COMPLETE] * 5
    assert sum(each.sent_twice for each in received) <= 1
    assert connections == 5


def test_a_connection_that_is_not_kept_is_closed() -> None:
    """The server ends it while the event loop closes, which is a fault there and ends a measurement that had just finished."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED, *chunked(*EVENTS))
        if exchange.number < 3:
            await exchange.cut()

    async def main() -> bool:
        async with scripted(answer) as server:
            http = Http()
            for _ in range(3):
                await post(http, server)
            assert server.client is not None
            is_open = server.client.is_open
            http.close()
            return is_open

    assert not asyncio.run(main())


def test_a_server_that_closed_a_connection_after_a_pause_still_gets_the_next_one_kept() -> None:
    """One keep-alive that ran out as a request left makes every later request pay for a connection."""

    async def answer(exchange: Exchange) -> None:
        if exchange.number == 2:
            await exchange.cut()
        else:
            await exchange.send(CHUNKED, *chunked(*EVENTS))

    async def main() -> tuple[list[bool], int]:
        async with scripted(answer) as server:
            http = Http()
            twice = [(await post(http, server)).sent_twice]
            assert server.client is not None
            server.client.idle_since_ns -= 1_500_000_000
            twice += [(await post(http, server)).sent_twice for _ in range(3)]
            http.close()
            return twice, server.connections

    assert asyncio.run(main()) == ([False, True, False, False], 2)


def test_a_fresh_connection_that_closes_is_cut_and_not_tried_again() -> None:
    """A server that crashes on a request gets it again and again."""

    async def main() -> tuple[Received, int]:
        async with scripted(lambda exchange: exchange.cut()) as server:
            http = Http()
            received = await post(http, server)
            http.close()
            return received, len(server.heads)

    received, requests = asyncio.run(main())
    assert (received.ended, received.sent_twice, requests) == (StreamEnd.CUT, False, 1)


async def cancelled_by(how: str) -> Received:
    """A stream of two events, then cancelled."""
    under_way = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED, *chunked(*EVENTS)[:2])
        under_way.set()
        await forever()

    async with scripted(answer) as server:
        http = Http()
        task = asyncio.create_task(post(http, server))
        await under_way.wait()
        if how == "all":
            http.cancel_streams()
        elif how == "one":
            assert server.client is not None
            server.client.cancel()
        else:
            task.cancel()
        try:
            return await task
        finally:
            assert server.client is not None
            assert not server.client.is_open
            http.close()


@pytest.mark.parametrize("how", ["all", "one"])
def test_a_cancelled_stream_keeps_what_came(how: str) -> None:
    """Ctrl-C loses the requests that were under way."""
    received = asyncio.run(cancelled_by(how))
    assert received.ended is StreamEnd.CANCELLED
    assert data_of(received) == EXPECTED[:2]


def test_cancelling_the_task_closes_the_connection_and_goes_on() -> None:
    """A task group cannot end its tasks, or their streams go on loading the server."""
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled_by("task"))


def test_nobody_there_is_an_outcome() -> None:
    """A restarting server takes the load test down."""

    async def main() -> Received:
        async with scripted(lambda exchange: exchange.cut()) as server:
            url = server.url
        http = Http()
        return await post(http, ScriptedServer(url=url))

    received = asyncio.run(main())
    assert (received.ended, received.status, received.packets) == (StreamEnd.REFUSED, None, ())
    assert "no connection" in str(received.error)


def test_a_redirect_is_not_followed() -> None:
    """The key goes to whoever the server names."""

    async def main() -> tuple[Received, int]:
        async with scripted(lambda exchange: exchange.cut()) as elsewhere:

            async def answer(exchange: Exchange) -> None:
                await exchange.send(f"HTTP/1.1 307 Temporary\r\nLocation: {elsewhere.url}/\r\nContent-Length: 0\r\n\r\n".encode())

            async with scripted(answer) as server:
                http = Http()
                received = await post(http, server, headers={"Authorization": "Bearer secret"})
                http.close()
            return received, elsewhere.connections

    received, followed = asyncio.run(main())
    assert (received.status, followed) == (307, 0)


def over_tls(client: ssl.SSLContext | None) -> Received:
    """One request to a server with a certificate of its own making."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem")

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED, *chunked(*EVENTS))

    async def main() -> Received:
        async with scripted(answer, tls=context) as server:
            http = Http(tls=client)
            try:
                return await post(http, server)
            finally:
                http.close()

    return asyncio.run(main())


def test_a_certificate_that_nobody_signed_is_refused() -> None:
    """Whoever sits in between reads the key."""
    received = over_tls(None)
    assert received.ended is StreamEnd.REFUSED
    assert "certificate" in str(received.error).lower()


def test_a_certificate_of_a_known_authority_is_taken() -> None:
    """Nobody with a private authority can measure."""
    received = over_tls(ssl.create_default_context(cafile=str(TLS / "authority.pem")))
    assert received.ended is StreamEnd.COMPLETE
    assert data_of(received) == EXPECTED


def test_get_gives_a_whole_reply_or_a_server_fault() -> None:
    """Half a scrape passes for all of it."""

    async def answer(exchange: Exchange) -> None:
        if exchange.head.startswith(b"GET /whole"):
            await exchange.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n", b"gone")
        else:
            await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", b"half")
            await exchange.cut()

    async def main() -> None:
        async with scripted(answer) as server:
            http = Http()
            reply = await http.get(f"{server.url}/whole", headers={}, timeout_s=9)
            assert (reply.status, reply.body) == (404, b"gone")
            with pytest.raises(ServerFaultError, match="in the middle of the reply"):
                await http.get(f"{server.url}/half", headers={}, timeout_s=9)
            http.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/",
        "http://",
        "//a",
        "http://user:hush@a/",
        "ftp://user:hush@a/",
        "http://user:hush @a/",
        "http://a b/",
        "http://a/\r\nX: y",
        "http://a:99999/",
        "http://[::1/",
    ],
)
def test_what_is_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    """A line break in a URL writes headers of its own; a password in one ends up in files."""
    with pytest.raises(BadInputError) as refused:
        address_of(url)
    assert "hush" not in str(refused.value)


def test_addresses_name_host_port_and_target() -> None:
    """Requests go to another server."""
    assert address_of("https://[::1]:8443/v1?x=1").authority == "[::1]:8443"
    assert address_of("https://[::1]:8443/v1?x=1").target == "/v1?x=1"
    assert address_of("http://example").peer == (False, "example", 80)
    assert address_of("https://example").authority == "example"


def test_a_header_with_a_line_break_is_refused_without_its_value() -> None:
    """A request's id writes headers of its own; a mistyped key ends up on the screen."""

    async def main() -> None:
        http = Http()
        with pytest.raises(BadInputError) as refused:
            await http.post_stream("http://127.0.0.1:1/", b"", headers={"X": "secret\r\nY: 1"}, timeouts=PATIENT, started=None)
        assert "secret" not in str(refused.value)

    asyncio.run(main())


def test_bytes_on_an_idle_connection_close_it() -> None:
    """An early answer is taken for the next request's."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(CHUNKED, *chunked(*EVENTS))
        if exchange.number == 1:
            exchange.writer.write(b"x")
            while isinstance(exchange.server.client, Connection) and exchange.server.client.is_open:
                await asyncio.sleep(0)

    async def main() -> int:
        async with scripted(answer) as server:
            http = Http()
            await post(http, server)
            while server.client is not None and server.client.is_open:
                await asyncio.sleep(0)
            await post(http, server)
            http.close()
            return server.connections

    assert asyncio.run(main()) == 2
