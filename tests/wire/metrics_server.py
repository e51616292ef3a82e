"""A real HTTP server on loopback that gives scripted answers to GET, one after the other, the last one again and again."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["MetricsServer", "answer", "serving", "vllm_text"]

Script = bytes | Callable[[socket.socket], None]


@dataclass
class MetricsServer:
    """Where it listens, and the head of each request it got."""

    url: str
    heads: list[bytes] = field(default_factory=list)


def answer(body: bytes | str, *, status: str = "200 OK", headers: Sequence[str] = (), length: int | None = None) -> bytes:
    """A whole HTTP answer; `length` lies about the body's."""
    content = body.encode() if isinstance(body, str) else body
    said = len(content) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {said}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def vllm_text(drafts: int, *, started_at_s: float = 100.0, running: int = 2) -> str:
    """What vLLM says after so many drafts of 3, of which 2 were accepted, in as many steps (.05 s each) of 10 requests."""
    labels = '{engine="0",model_name="m"}'
    series = {
        "spec_decode_num_drafts_total": drafts,
        "spec_decode_num_draft_tokens_total": 3 * drafts,
        "spec_decode_num_accepted_tokens_total": 2 * drafts,
        "generation_tokens_total": 3 * drafts + 10,
        "time_to_first_token_seconds_count": 10,
        "time_to_first_token_seconds_sum": 1.0,
        "inter_token_latency_seconds_count": drafts,
        "inter_token_latency_seconds_sum": 0.05 * drafts,
        "num_requests_running": running,
    }
    lines = [f"vllm:{name}{labels} {value}" for name, value in series.items()]
    return "\n".join([f"process_start_time_seconds {started_at_s}", *lines]) + "\n"


@contextmanager
def serving(*scripts: Script) -> Iterator[MetricsServer]:
    """Serve the scripts in order until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    server = MetricsServer(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    over = threading.Event()
    thread = threading.Thread(target=_serve, args=(listener, server, scripts, over))
    thread.start()
    try:
        yield server
    finally:
        over.set()
        thread.join()
        listener.close()


def _serve(listener: socket.socket, server: MetricsServer, scripts: Sequence[Script], over: threading.Event) -> None:
    while not over.is_set():
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        with client:
            client.settimeout(5)
            _converse(client, server, scripts)


def _converse(client: socket.socket, server: MetricsServer, scripts: Sequence[Script]) -> None:
    head = b""
    try:
        while b"\r\n\r\n" not in head and (more := client.recv(4096)):
            head += more
        script = scripts[min(len(server.heads), len(scripts) - 1)]
        server.heads.append(head)
        if callable(script):
            script(client)
        else:
            client.sendall(script)
    except OSError:  # the client hung up: what is tested is what it made of it
        return
