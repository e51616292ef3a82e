"""One GET, bounded in size and time: what a server's /metrics answers.

1. The whole answer is there within the time-out, or it is a fault: a server that drips bytes is one that does not answer.
2. At most 64 MiB, unpacked. An answer shorter than it said is half a scrape, and half a scrape is none.
3. Redirects are not followed: the key would go to whoever is at the other end.
4. The key comes from the environment (PACELINE_API_KEY) and is in no message.
"""

import zlib
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.parse import urlsplit

import paceline
from paceline.errors import BadInputError, PacelineError, ServerFaultError, printable
from paceline.live.http_message import is_host
from paceline.live.openai import KEY_VARIABLE, authorization, without_key, without_key_bytes

__all__ = ["fetch", "metrics_url"]

LARGEST_BYTES = 64 * 2**20
CHUNK_BYTES = 2**16
GZIP_WINDOW = 31
ON_SWITCH = "SGLang needs --enable-metrics, llama-server --metrics, LMDeploy --enable-metrics"


def metrics_url(url: str) -> str:
    """The address of a server's metrics: as given where its path ends in `metrics`, else /metrics of that server.

    Raises:
        BadInputError: no http or https address, or one that holds a password, a query or a fragment.

    """
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and is_host(parts.hostname or "") and (parts.port is None or parts.port > 0)
    except ValueError:
        has_host = False
    if not has_host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise BadInputError(f"{printable(url)} is no address of a server; write it like http://127.0.0.1:8000")
    if parts.username is not None or parts.query or parts.fragment:
        raise BadInputError(
            f"the address may hold no user name, password or query, which would be written down; set {KEY_VARIABLE} instead"
        )
    path = parts.path.rstrip("/")
    if not path.endswith("metrics"):
        path = path.removesuffix("/v1") + "/metrics"
    return f"{parts.scheme}://{parts.netloc}{path}"


def fetch(url: str, timeout_s: float) -> bytes:
    """The body of a 200 answer, unpacked.

    Raises:
        ServerFaultError: no answer in time, another status, a redirect, too much, or less than was said.
        BadInputError: the key has a character that no header may have.

    """
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    answered: SimpleQueue[bytes | PacelineError] = SimpleQueue()
    Thread(target=_answer, args=(connection, url, answered), daemon=True).start()
    try:
        answer = answered.get(timeout=timeout_s)
    except Empty:
        _hang_up(connection)
        raise ServerFaultError(f"{printable(url)} did not answer within {timeout_s:g} s") from None
    if isinstance(answer, PacelineError):
        raise answer
    return answer


def _hang_up(connection: HTTPConnection) -> None:
    """End the thread that waits: its socket answers no more."""
    if connection.sock is not None:
        try:
            connection.sock.shutdown(2)
        except OSError:  # gone already
            return


def _answer(connection: HTTPConnection, url: str, answered: "SimpleQueue[bytes | PacelineError]") -> None:
    try:
        answered.put(_ask(connection, url))
    except PacelineError as fault:
        answered.put(fault)
    except (OSError, HTTPException, ValueError) as fault:
        answered.put(ServerFaultError(f"{printable(url)} cannot be read: {printable(without_key(str(fault)) or type(fault).__name__)}"))
    finally:
        connection.close()


def _ask(connection: HTTPConnection, url: str) -> bytes:
    headers = {"Accept": "text/plain, application/json", "Accept-Encoding": "gzip", "User-Agent": f"paceline/{paceline.__version__}"}
    headers |= authorization()
    connection.request("GET", urlsplit(url).path or "/", headers=headers)
    with connection.getresponse() as response:
        _need_ok(response, url)
        encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
        if encoding not in ("gzip", "identity"):
            raise ServerFaultError(f"{printable(url)} answers in {printable(without_key(encoding))}, which was not asked for")
        body = _whole_body(response, url)
    return without_key_bytes(_unpacked(body, url) if encoding == "gzip" else body)


def _need_ok(response: HTTPResponse, url: str) -> None:
    status = response.status
    if status == 200:
        return
    if 300 <= status < 400:
        to = printable(without_key(response.getheader("Location") or ""))
        raise ServerFaultError(f"{printable(url)} redirects ({status}) to {to}; redirects are not followed, give the address itself")
    remedy = {401: f"; set {KEY_VARIABLE}", 403: f"; set {KEY_VARIABLE}", 404: f"; {ON_SWITCH}, TensorRT-LLM has /prometheus/metrics"}.get(
        status, ""
    )
    raise ServerFaultError(f"{printable(url)} answers {status}{remedy}")


def _whole_body(response: HTTPResponse, url: str) -> bytes:
    parts, size = [], 0
    while chunk := response.read(CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > LARGEST_BYTES:
            raise ServerFaultError(f"{printable(url)} answers more than {LARGEST_BYTES // 2**20} MiB")
    if response.length:
        raise ServerFaultError(f"{printable(url)} broke off {response.length} bytes before the end it had announced: half a scrape")
    return b"".join(parts)


def _unpacked(body: bytes, url: str) -> bytes:
    unpacker = zlib.decompressobj(GZIP_WINDOW)
    try:
        text = unpacker.decompress(body, LARGEST_BYTES + 1)
    except zlib.error as fault:
        raise ServerFaultError(f"{printable(url)} answers damaged gzip ({fault})") from None
    if len(text) > LARGEST_BYTES:
        raise ServerFaultError(f"{printable(url)} answers more than {LARGEST_BYTES // 2**20} MiB, unpacked")
    if not unpacker.eof:
        raise ServerFaultError(f"{printable(url)} answers gzip that is cut off: half a scrape")
    return text
