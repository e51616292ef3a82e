"""HTTP/1.1 messages: addresses, requests as bytes, and a reply that is parsed after it was received.

Rules. Nothing from outside reaches a request unchecked: a host, path or header with a control character is refused. A reply is parsed by
a library, packet by packet, each piece of the body keeping the instant at which its packet came; the caller chooses when. No compression
is asked for, because a compressed stream is flushed when the compressor likes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from paceline.errors import BadInputError, printable

__all__ = ["Address", "NotHttpError", "Packet", "Reply", "address_of", "is_host", "request_bytes"]

Packet = tuple[int, bytes]  # perf_counter_ns on receipt, what was received


class NotHttpError(Exception):
    """What came is no HTTP reply that this client can read."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a URL points: one connection serves all `target`s of one (tls, host, port)."""

    tls: bool
    host: str
    port: int
    target: str

    @property
    def peer(self) -> tuple[bool, str, int]:
        """What a connection belongs to."""
        return (self.tls, self.host, self.port)

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def address_of(url: str) -> Address:
    """The address that an http or https URL names.

    Raises:
        BadInputError: another scheme, no host, a port that is none, a user or password (they would end up in files), or a character that
            no URL has.

    """
    if "@" in url.partition("?")[0]:  # before anything is quoted
        raise BadInputError("a URL with a user in it would carry a secret into files; leave it out and set PACELINE_API_KEY")
    if not url.isascii() or any(each <= " " or each == "\x7f" for each in url):
        raise BadInputError(f"{printable(url)} holds a blank, a control or a non-ASCII character; percent-encode it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadInputError(f"{printable(url)} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInputError(f"{printable(url)} is not a server's URL; it begins with http:// or https:// and names a host")
    if not is_host(parts.hostname):
        raise BadInputError(f"{printable(url)} names no host: a label of {printable(parts.hostname)} is empty or over 63 characters")
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(tls=tls, host=parts.hostname, port=port if port is not None else 443 if tls else 80, target=target)


def is_host(name: str) -> bool:
    """Whether a name can be looked up at all: no label is empty or longer than 63 characters (RFC 1035)."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in name


def request_bytes(method: str, address: Address, *, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """One request, ready to be written.

    Raises:
        BadInputError: a header that would end its own line. Its value is not quoted: it may be a key.

    """
    lines = [f"{method} {address.target} HTTP/1.1", f"Host: {address.authority}", "Accept-Encoding: identity"]
    for name, value in headers.items():
        if not (name.isascii() and name.replace("-", "").isalnum() and value.isascii() and value.isprintable()):
            raise BadInputError(f"the header {printable(name)} has a character that no header may have; its value is left out here")
        lines.append(f"{name}: {value}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + (body or b"")


class Reply:
    """One reply as far as it was fed.

    Attributes:
        status: None until the status line was read.
        headers: names in lower case; of a name that stands twice, the last.
        body: pieces of the body, chunked coding removed, each with the instant of its packet.
        complete: whether the reply said so itself; one that ends with its connection never is.

    """

    __slots__ = ("_at_ns", "_parser", "body", "complete", "framed", "headers", "keep_alive", "status")

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._at_ns = 0
        self._forget()

    def _forget(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body: list[Packet] = []
        self.complete = False
        self.keep_alive = False
        self.framed = False

    def feed(self, packets: Iterable[Packet]) -> None:
        """Read on. What follows the end of the reply is not read, but the connection is not kept.

        Raises:
            NotHttpError: this is not HTTP.

        """
        try:
            for self._at_ns, data in packets:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keep_alive = False
            if not self.complete:
                raise NotHttpError(f"not an HTTP reply: {error}") from error

    def close(self) -> None:
        """Let go of the parser, which holds this object as this object holds it."""
        del self._parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if self.complete:
            raise NotHttpError("another reply follows")
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self.complete:
            raise NotHttpError("another reply follows")
        self.status = self._parser.get_status_code()
        # Without either, the body ends with the connection, and whether it was cut cannot be told from HTTP alone.
        self.keep_alive = self._parser.should_keep_alive()
        self.framed = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self.body.append((self._at_ns, data))

    def on_message_complete(self) -> None:
        """Called by the parser; an interim reply (100 to 199) is none."""
        if self.status is not None and self.status < 200:
            self._forget()
            return
        self.complete = True

    @property
    def expected_body_bytes(self) -> int | None:
        """The body's stated length, None where it is chunked or ends with the connection."""
        if "transfer-encoding" in self.headers:
            return None
        length = self.headers.get("content-length", "")
        return int(length) if length.isdecimal() and len(length) < 20 else None
