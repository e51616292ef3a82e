"""A real asyncio server that answers each connection's requests with scripted bytes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["ScriptedServer", "chunked", "event_stream", "scripted"]

Answering = Callable[["Exchange"], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@dataclass
class Exchange:
    """One request as it came, and the connection to answer on."""

    head: bytes
    body: bytes
    writer: asyncio.StreamWriter
    number: int

    async def send(self, *packets: bytes) -> None:
        """Write each as a packet of its own, as far as the loopback keeps them apart."""
        for packet in packets:
            self.writer.write(packet)
            await self.writer.drain()
            await asyncio.sleep(0.002)


@dataclass
class ScriptedServer:
    """Where it listens and what it was sent."""

    url: str
    requests: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def scripted(answer: Answering, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """A server on a free port that calls `answer` for each request until it closes the connection."""
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
                body = await reader.readexactly(length)
                server.requests.append(head)
                server.bodies.append(body)
                await answer(Exchange(head, body, writer, len(server.requests)))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for each in list(tasks):
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def chunked(pieces: Sequence[bytes]) -> list[bytes]:
    """HTTP chunks, the last one included."""
    return [*(f"{len(each):x}\r\n".encode() + each + b"\r\n" for each in pieces), b"0\r\n\r\n"]


def event_stream(*data: str, end: str = "\n") -> list[bytes]:
    """One server-sent event per string."""
    return [f"data: {each}{end}{end}".encode() for each in data]
