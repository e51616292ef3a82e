"""HTTP/1.1 on one connection: requests are read with bounds, answers written whole or as server-sent events.

A connection answers one request at a time, in the order they came. What is malformed gets a 4xx in JSON and the connection ends.
"""

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import perf_counter_ns
from typing import Any, Protocol

import httptools

from paceline.live.fake_server_answer import error_body

__all__ = ["Connection", "HttpRequest", "Server"]

MOST_HEAD_BYTES = 32 << 10
MOST_BODY_BYTES = 8 << 20
MOST_WAITING_REQUESTS = 4
MOST_UNREAD_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; header names in lower case; `arrived_ns` is when its last byte was received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    arrived_ns: int


class Server(Protocol):
    """What a connection talks to."""

    def connected(self, connection: "Connection") -> bool:
        """Whether there is room for another connection."""

    def asked(self, connection: "Connection", request: HttpRequest) -> None:
        """A request came: answer it on the connection, now or later."""

    def gone(self, connection: "Connection") -> None:
        """The client went away, or was cut off."""


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[HttpRequest] = deque()
        self._busy = False
        self._closing = False
        self._keep_alive = True
        self._in_chunks = True
        self._arrived_ns = 0
        self._begin()

    def _begin(self) -> None:
        self._target, self._headers, self._body, self._head_bytes, self._head_done = b"", dict[str, str](), bytearray(), 0, False
        self._idle_bytes = 0

    @property
    def open(self) -> bool:
        """Whether anything can still be written."""
        return not self._closing and not self._transport.is_closing()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MOST_UNREAD_BYTES)
        if not self._server.connected(self):
            self.refuse(503, "too many connections; close some")

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._arrived_ns = perf_counter_ns()
        if self._closing:
            return
        if not self._head_done:
            self._head_bytes += len(data)
        body_bytes = len(self._body)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(400, "this server upgrades to no other protocol")
        except httptools.HttpParserError as fault:
            self.refuse(400, f"this is no HTTP/1.1 request: {fault}")
        if not self._head_done and self._head_bytes > MOST_HEAD_BYTES:
            self.refuse(431, f"the request's head is longer than {MOST_HEAD_BYTES >> 10} KiB")
        elif self._head_done:
            self._idle_bytes = 0 if len(self._body) > body_bytes else self._idle_bytes + len(data)
            if self._idle_bytes > MOST_HEAD_BYTES:
                self.refuse(431, f"more than {MOST_HEAD_BYTES >> 10} KiB came that are neither head nor body")
        self._next()

    def pause_writing(self) -> None:
        """The client reads nothing of what it asked for: let it go before memory is full of it."""
        self.cut()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The connection ended."""
        self._closing = True
        self._waiting.clear()
        self._server.gone(self)

    # What the parser calls.

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. What stands behind the body is none."""
        if self._head_done:
            return
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._head_done = True
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length[:12]) > MOST_BODY_BYTES:
            self.refuse(413, f"the body is longer than {MOST_BODY_BYTES >> 20} MiB")
        elif self._headers.get("expect", "").lower() == "100-continue" and not self._closing:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if len(self._body) + len(body) > MOST_BODY_BYTES:
            self.refuse(413, f"the body is longer than {MOST_BODY_BYTES >> 20} MiB")
        elif not self._closing:
            self._body += body

    def on_message_complete(self) -> None:
        """A request is complete."""
        if self._closing:
            return
        if len(self._waiting) >= MOST_WAITING_REQUESTS:
            self.refuse(429, f"more than {MOST_WAITING_REQUESTS} requests wait on one connection; wait for answers")
            return
        path = self._target.partition(b"?")[0].decode("latin-1")
        method = self._parser.get_method().decode("latin-1")
        self._headers["connection"] = "keep-alive" if self._parser.should_keep_alive() else "close"
        self._headers[":version"] = self._parser.get_http_version()
        self._waiting.append(HttpRequest(method, path, self._headers, bytes(self._body), self._arrived_ns))
        self._begin()

    # Answers.

    def _next(self) -> None:
        while self._waiting and not self._busy and self.open:
            request = self._waiting.popleft()
            self._busy = True
            self._keep_alive = request.headers["connection"] == "keep-alive"
            self._in_chunks = request.headers[":version"] == "1.1"
            self._server.asked(self, request)

    def refuse(self, status: int, message: str) -> None:
        """Answer with an error and end the connection; in the middle of another answer, just end it."""
        if self.open and self._busy:
            self.cut()
        elif self.open:
            self._keep_alive = False
            self.answer(status, error_body(status, message))

    def answer(
        self, status: int, body: bytes, *, kind: str = "application/json", headers: Mapping[str, str] | None = None, sent: int | None = None
    ) -> None:
        """A whole answer. With `sent` only that many bytes of the body go out, and then the connection ends."""
        told = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 {status} {_phrase(status)}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{told}"
        if not self._keep_alive or sent is not None:
            head += "connection: close\r\n"
        self._transport.write(f"{head}\r\n".encode("latin-1") + body[:sent])
        self._keep_alive = self._keep_alive and sent is None
        self._done()

    def answer_json(self, body: Mapping[str, Any]) -> None:
        """A whole answer of 200."""
        self.answer(200, json.dumps(body).encode())

    def stream_head(self, request_id: str) -> bytes:
        """What comes before the first event."""
        framing = "transfer-encoding: chunked\r\n" if self._in_chunks else ""
        ending = "" if self._keep_alive and self._in_chunks else "connection: close\r\n"
        told = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: {request_id}\r\n{framing}{ending}\r\n"
        return told.encode("latin-1")

    def framed(self, event: bytes) -> bytes:
        """An event as it goes over the wire."""
        return b"%x\r\n%b\r\n" % (len(event), event) if self._in_chunks else event

    @property
    def stream_end(self) -> bytes:
        """What comes after the last event."""
        return b"0\r\n\r\n" if self._in_chunks else b""

    def write(self, data: bytes) -> None:
        """Send bytes at once."""
        self._transport.write(data)

    def end_stream(self) -> None:
        """The answer is complete."""
        self._keep_alive = self._keep_alive and self._in_chunks
        self._done()

    def _done(self) -> None:
        self._busy = False
        if not self._keep_alive:
            self._closing = True
            self._transport.close()
        else:
            asyncio.get_running_loop().call_soon(self._next)

    def cut(self) -> None:
        """End the connection at once, whatever was promised."""
        self._closing = True
        self._transport.abort()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Fault"
