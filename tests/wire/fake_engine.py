"""A server that a test launches: speaks enough of vLLM's API to be measured, and misbehaves as it is told.

Run as a script with the standard library only, so that it is up in a tenth of a second:

    python fake_engine.py FLAGS… serve MODEL … --host H --port P [--speculative-config JSON]

--dies TEXT: prints it to stderr and ends with 1; --dies-once FILE TEXT: the first time only; --dies-when-asked: at its first completion;
--never-ready: /health answers 503; --ignores-speculation: drafts nothing though it is told to; --always-drafts: drafts though it is not;
--deaf: ignores SIGTERM; --forks FILE: leaves a process that ignores SIGTERM and has made itself a daemon, whose id goes into the file;
--says-key: prints the key that it got; --interrupts N: sends Ctrl-C to whoever started it before it answers the Nth
request that is neither a probe nor a warm-up.
A step takes 2 ms, with drafts 3 ms; with drafts it gives two tokens, or as many as `synthetic_acceptance_length` says.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

WORDS = sys.argv[1:]
STEP_S = 0.002
DRAFTED = 3
LABELS = '{engine="0",model_name="fake"}'


def value(option: str, *, places: int = 1) -> str | None:
    return WORDS[WORDS.index(option) + places] if option in WORDS else None


CONFIG = json.loads(value("--speculative-config") or "{}")
PER_STEP = round(CONFIG.get("synthetic_acceptance_length", 2))
CONFIGURED = value("--speculative-config") is not None
DRAFTS = (CONFIGURED and "--ignores-speculation" not in WORDS) or "--always-drafts" in WORDS
LOCK = threading.Lock()
COUNTS = {"accepted": 0, "asked": 0, "drafts": 0, "generated": 0, "requests": 0, "steps": 0}


def metrics() -> str:
    with LOCK:
        drafts, accepted, generated, requests, steps = (COUNTS[each] for each in ("drafts", "accepted", "generated", "requests", "steps"))
    series: dict[str, float] = {
        "generation_tokens_total": generated,
        "time_to_first_token_seconds_count": requests,
        "time_to_first_token_seconds_sum": requests * STEP_S,
        "inter_token_latency_seconds_count": steps,
        "inter_token_latency_seconds_sum": steps * STEP_S,
        "num_requests_running": 0,
    }
    if CONFIGURED or DRAFTS:
        series |= {"spec_decode_num_drafts_total": drafts, "spec_decode_num_draft_tokens_total": DRAFTED * drafts}
        series |= {"spec_decode_num_accepted_tokens_total": accepted}
    return "".join(f"vllm:{name}{LABELS} {number}\n" for name, number in series.items())


class Engine(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the messages of some steps come together

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """What it says of itself."""
        told = {
            "/health": "",
            "/metrics": metrics(),
            "/version": json.dumps({"version": "0.32.0"}),
            "/v1/models": json.dumps({"object": "list", "data": [{"id": value("--served-model-name") or "fake"}]}),
        }.get(self.path)
        status = 404 if told is None else 503 if self.path == "/health" and "--never-ready" in WORDS else 200
        body = (told or "").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """An answer, streamed."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "--dies-when-asked" in WORDS:
            sys.stderr.write("ValueError: head_dim 7 is not supported\n")
            sys.stderr.flush()
            os._exit(1)
        with LOCK:
            COUNTS["asked"] += not self.headers["X-Request-Id"].startswith(("probe", "warm-up"))
            if value("--interrupts") == str(COUNTS["asked"]):
                os.kill(starter(), signal.SIGINT)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._stream(int(asked["max_tokens"]), chat="messages" in asked)
        self._send(b"data: [DONE]\n\n")
        self._send(b"")

    def _stream(self, tokens: int, *, chat: bool) -> None:
        done = steps = 0
        while done < tokens:
            given = min(PER_STEP if DRAFTS and done else 1, tokens - done)
            done, steps = done + given, steps + 1
            time.sleep(STEP_S * 1.5 if DRAFTS else STEP_S)
            choice: dict[str, object] = {"index": 0, "finish_reason": "length" if done == tokens else None}
            text = "word " * given
            choice |= {"delta": {"content": text}} if chat else {"text": text}
            usage = {"prompt_tokens": 5, "completion_tokens": done, "total_tokens": 5 + done}
            event: dict[str, object] = {"id": "x", "choices": [choice], "usage": usage}
            if done == tokens:
                self._count(tokens, steps)
            self._send(f"data: {json.dumps(event)}\n\n".encode())

    @staticmethod
    def _count(tokens: int, steps: int) -> None:
        with LOCK:
            COUNTS["generated"] += tokens
            COUNTS["requests"] += 1
            COUNTS["steps"] += steps - 1
            COUNTS["drafts"] += steps - 1 if DRAFTS else 0
            COUNTS["accepted"] += tokens - steps if DRAFTS else 0

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()


def starter() -> int:
    """Who started the guardian that started this."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


class Listening(ThreadingHTTPServer):
    """Without asking who the host is, which takes a resolver's time."""

    def server_bind(self) -> None:
        """Listen."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0


def fork_daemon(file: str) -> None:
    """A grandchild in a session of its own that nothing but SIGKILL ends."""
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                signal.pause()
        Path(file).write_text(str(pid), encoding="ascii")
        os._exit(0)
    os.wait()


def main() -> None:
    """Serve until somebody ends it."""
    once = value("--dies-once")
    if once is not None and not Path(once).exists():
        Path(once).touch()
        sys.exit(value("--dies-once", places=2))
    if (text := value("--dies")) is not None:
        sys.exit(text)
    if "--deaf" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--says-key" in WORDS:
        sys.stderr.write(f"args: {os.environ.get('VLLM_API_KEY')} {os.environ.get('PACELINE_API_KEY')}\n")
        sys.stderr.flush()
    if (file := value("--forks")) is not None:
        fork_daemon(file)
    Listening((value("--host") or "", int(value("--port") or 0)), Engine).serve_forever(poll_interval=0.01)


main()
