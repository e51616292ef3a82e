"""A real asyncio server that answers each request with scripted bytes, and the client's side of such an exchange."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from paceline.live.http_client import Http
from paceline.live.http_connection import Connection, Received, Timeouts

__all__ = [
    "CHUNKED",
    "HEAD",
    "PATIENT",
    "Exchange",
    "ScriptedServer",
    "chunked",
    "event_stream",
    "forever",
    "post",
    "received_from",
    "scripted",
]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PATIENT = Timeouts(first_byte_s=10, gap_s=10, total_s=10)


@dataclass
class ScriptedServer:
    """Where it listens and what it was sent; `client` is the connection of the request in flight, if the client tells."""

    url: str
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    client: Connection | None = None


@dataclass
class Exchange:
    """One request as it came, the connection to answer on, and the request's number from 1 on."""

    server: ScriptedServer
    head: bytes
    body: bytes
    writer: asyncio.StreamWriter
    number: int
    sent_bytes: int = 0

    async def send(self, *packets: bytes) -> None:
        """Write each packet, and wait until the client has it before the next: so the loopback keeps them apart."""
        for packet in packets:
            self.writer.write(packet)
            await self.writer.drain()
            self.sent_bytes += len(packet)
            client = self.server.client
            while client is not None and client.received_bytes < self.sent_bytes and not self.writer.is_closing():
                await asyncio.sleep(0)

    async def cut(self) -> None:
        """Close the connection."""
        self.writer.close()
        await self.writer.wait_closed()


@asynccontextmanager
async def scripted(answer: Callable[[Exchange], Awaitable[None]], *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """A server on a free port that calls `answer` for each request, until either side closes the connection."""
    server = ScriptedServer(url="")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
                server.heads.append(head)
                server.bodies.append(await reader.readexactly(length))
                await answer(Exchange(server, head, server.bodies[-1], writer, len(server.heads)))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        waiting = list(tasks)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


def chunked(*pieces: bytes) -> list[bytes]:
    """HTTP chunks, the last one included."""
    return [*(f"{len(each):x}\r\n".encode() + each + b"\r\n" for each in pieces), b"0\r\n\r\n"]


def event_stream(*data: str, end: str = "\n") -> list[bytes]:
    """One server-sent event per string."""
    return [f"data: {each}{end}{end}".encode() for each in data]


async def post(
    http: Http, server: ScriptedServer, *, timeouts: Timeouts = PATIENT, headers: Mapping[str, str] | None = None, body: bytes = b"{}"
) -> Received:
    """What comes back on one POST; the server learns which connection it is answering."""

    def started(connection: Connection) -> None:
        server.client = connection

    return await http.post_stream(f"{server.url}/v1/chat/completions", body, headers=headers or {}, timeouts=timeouts, started=started)


def received_from(answer: Callable[[Exchange], Awaitable[None]], *, timeouts: Timeouts = PATIENT) -> Received:
    """What comes back on one request that `answer` answers."""

    async def main() -> Received:
        async with scripted(answer) as server:
            http = Http()
            try:
                return await post(http, server, timeouts=timeouts)
            finally:
                http.close()

    return asyncio.run(main())
