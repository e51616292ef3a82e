"""A real server for the time of some tests: on loopback, on a port that was free, ended whatever happens."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.live.scrape import Watch, measure_server
from paceline.run import Run

POLL_S = 0.2
LAST_LINES = 40
END_S = 15.0


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], *, port: int, log: Path, ready_s: float, env: Mapping[str, str]) -> Iterator[str]:
    """The URL of a server started by `command`, once /health answers. It ends with the block, or with this process."""
    with log.open("wb") as told:
        server = subprocess.Popen(
            [*_dies_with_us(), *command],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, server, log=log, ready_s=ready_s)
        yield url
    finally:
        _end(server)


def scrape(url: str, file: Path) -> Path:
    """What /metrics says now, in a file."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as reply:  # noqa: S310 - our own server
        file.write_bytes(reply.read())
    return file


def complete(url: str, prompt: str, *, model: str, tokens: int) -> dict[str, Any]:
    """The server's whole answer to one prompt, not streamed."""
    asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "seed": 1}
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/v1/completions", data=json.dumps(asked).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as reply:  # noqa: S310 - our own server
        answer: dict[str, Any] = json.load(reply)
    return answer


def watched(url: str, prompt: str, *, model: str, tokens: int) -> tuple[Run, dict[str, Any]]:
    """What `measure --url` makes of a window in which the server answers one prompt, and that answer."""
    answers: list[dict[str, Any]] = []

    def progress(_: float) -> None:
        if not answers:
            answers.append(complete(url, prompt, model=model, tokens=tokens))

    run = measure_server(Watch(url=url, model=None, window_s=0.5, every_s=0.5, timeout_s=30), progress=progress)
    return run, answers[0]


def _dies_with_us() -> list[str]:
    """The kernel kills the server when this process is gone, however that came about."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "TERM", "--"] if found else []


def _wait(url: str, server: subprocess.Popen[bytes], *, log: Path, ready_s: float) -> None:
    until_s = time.monotonic() + ready_s
    while time.monotonic() < until_s:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - our own server
                return
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
    said = "\n".join(log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:])
    raise AssertionError(f"the server was not ready within {ready_s:g} s (exit code {server.poll()}):\n{said}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the whole group: a server has workers of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
        except ProcessLookupError:
            break
        try:
            server.wait(END_S)
        except subprocess.TimeoutExpired:
            continue
    server.wait()
