"""An HTTP client that stamps every packet when it comes and reads it later.

Rules.
- A packet is noted as (perf_counter_ns, bytes) and looked through for an empty line; HTTP is parsed when the end is suspected, when headers
  are still missing, or when the stream is over. So each packet is parsed once, and none before it was stamped.
- On Linux the stamp of plain HTTP is the kernel's (`PacketReader`); elsewhere and under TLS it is taken when the packet is handed over.
- What a stream ends in is a value (`StreamEnd`), not an exception: refused, cut, timed out, cancelled.
- Connections stay open between requests. A server may close an idle one just when a request is written to it; where nothing came back on
  a connection that had served before, the request is sent once more on a fresh one, and `Received.sent_twice` says so.
- No keep-alive is as short as `SHORTEST_KEEP_ALIVE_S`: a server that closes sooner closes after every answer, whatever its headers say
  (llama-server after each stream), and gets a fresh connection for each request from then on.
- Redirects are never followed: the key would go where nobody sent it. Certificates are checked (SSL_CERT_FILE adds one's own authority).
- What one stream may hold is bounded.
"""

import asyncio
import gc
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from time import perf_counter_ns

from paceline.errors import ServerFaultError, ascii_controls
from paceline.live.http_connection import Connection, Received, StreamEnd, Timeouts
from paceline.live.http_message import Address, address_of, request_bytes
from paceline.live.packet_reader import PacketReader

__all__ = ["Http", "Response"]

SHORTEST_KEEP_ALIVE_S = 1.0


@dataclass(frozen=True, slots=True)
class Response:
    """A whole reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """Connections to any number of servers, for one event loop. `tls` replaces the standard certificate checks."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._reader: PacketReader | None = None
        self._idle: dict[tuple[bool, str, int], list[Connection]] = {}
        self._closing_peers: set[tuple[bool, str, int]] = set()
        self._streaming: set[Connection] = set()

    async def get(self, url: str, *, headers: Mapping[str, str], timeout_s: float) -> Response:
        """The reply to a GET, whatever its status.

        Raises:
            ServerFaultError: no whole reply came within `timeout_s`.
            BadInputError: not a URL.

        """
        address = address_of(url)
        timeouts = Timeouts(first_byte_s=timeout_s, gap_s=timeout_s, total_s=timeout_s)
        received = await self._send(address, request_bytes("GET", address, headers=headers, body=None), timeouts, None)
        if received.ended is not StreamEnd.COMPLETE or received.status is None:
            why = received.error or received.ended.value
            raise ServerFaultError(f"GET {ascii_controls(url)}: {why}; is the server up, and is this its address?")
        return Response(status=received.status, headers=received.headers, body=received.body)

    async def post_stream(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        started: Callable[[Connection], None] | None,
    ) -> Received:
        """Everything that came back on a POST, with instants, however it ended.

        `started` is called when the request is written; the connection it gets knows `sent_at_ns` and can `cancel()`. If the awaiting task
        is cancelled, the connection is closed and the cancellation goes on.

        Raises:
            BadInputError: not a URL, or a header that no request may have.

        """
        address = address_of(url)
        self._need_reader(address)
        return await self._send(address, request_bytes("POST", address, headers=headers, body=body), timeouts, started)

    def cancel_streams(self) -> None:
        """End every request in flight; each awaiting task gets what came so far, as CANCELLED."""
        for each in list(self._streaming):
            each.cancel()

    def close(self) -> None:
        """Close idle connections and end what is in flight."""
        self.cancel_streams()
        for pool in self._idle.values():
            for each in pool:
                each.close()
        self._idle.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    async def _send(self, address: Address, request: bytes, timeouts: Timeouts, started: Callable[[Connection], None] | None) -> Received:
        connection = self._take_idle(address)
        if connection is not None:
            idle_since_ns = connection.idle_since_ns
            received = await self._over(connection, request, timeouts, started)
            if not (received.ended is StreamEnd.CUT and received.received_bytes == 0):
                return received
            if received.ended_at_ns - idle_since_ns < SHORTEST_KEEP_ALIVE_S * 1e9:
                self._closing_peers.add(address.peer)
        try:
            wait_s = min(timeouts.first_byte_s, timeouts.total_s)
            async with asyncio.timeout(wait_s if wait_s < inf else None):
                fresh = await self._connect(address)
        except TimeoutError:
            return _never_sent(StreamEnd.TIMEOUT, "no connection in time")
        except (OSError, ssl.SSLError) as error:
            return _never_sent(StreamEnd.REFUSED, f"no connection: {error}")
        received = await self._over(fresh, request, timeouts, started)
        return received.again() if connection is not None else received

    def _take_idle(self, address: Address) -> Connection | None:
        pool = self._idle.get(address.peer, [])
        while pool:
            connection = pool.pop()
            if connection.is_open:
                self._stamp(connection)
                return connection
            self._note_if_not_kept(connection)
        return None

    def _note_if_not_kept(self, connection: Connection) -> None:
        """Note the peer of a connection that it ended right after an answer."""
        ended_ns = connection.ended_by_peer_ns
        if ended_ns is not None and ended_ns - connection.idle_since_ns < SHORTEST_KEEP_ALIVE_S * 1e9:
            self._closing_peers.add(connection.peer)

    def _need_reader(self, address: Address) -> None:
        """Make the reader, which takes seconds where it was never compiled, outside of what any time-out counts. GET needs no stamps."""
        if self._reader is None and not address.tls and PacketReader.is_possible():
            self._reader = PacketReader()
            gc.freeze()  # what it loaded stays, and a full collection would go through it

    async def _connect(self, address: Address) -> Connection:
        tls = (self._tls or ssl.create_default_context()) if address.tls else None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(address.peer), address.host, address.port, ssl=tls)
        self._tls = tls or self._tls
        self._stamp(connection)
        return connection

    def _stamp(self, connection: Connection) -> None:
        """Have the reader read a plain connection, if there is one and it does not yet."""
        if self._reader is not None and not connection.peer[0]:
            try:
                connection.read_by(self._reader)
            except OSError:
                connection.close()
                raise

    async def _over(
        self, connection: Connection, request: bytes, timeouts: Timeouts, started: Callable[[Connection], None] | None
    ) -> Received:
        self._streaming.add(connection)
        try:
            received = await connection.exchange(request, timeouts, started)
        except asyncio.CancelledError:
            connection.close()  # the reply may have ended just before, and then nobody else would
            raise
        finally:
            self._streaming.discard(connection)
        if connection.peer in self._closing_peers:
            connection.close()  # before the server does: an end that comes while the event loop closes is a fault there
        elif connection.is_open:
            self._idle.setdefault(connection.peer, []).append(connection)
        elif received.ended is StreamEnd.COMPLETE:
            self._note_if_not_kept(connection)
        return received


def _never_sent(ended: StreamEnd, error: str) -> Received:
    return Received(
        sent_at_ns=perf_counter_ns(),
        status=None,
        headers={},
        packets=(),
        ended=ended,
        ended_at_ns=perf_counter_ns(),
        error=ascii_controls(error)[:300],
        received_bytes=0,
        sent_twice=False,
    )
