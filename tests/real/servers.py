"""A real server for the time of some tests, started as `rollout --launch` starts one, and what it is asked."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.live.launch import Launch, launched
from paceline.live.scrape import Watch, measure_server
from paceline.run import Arm, Run

END_S = 15.0


@contextmanager
def running(
    command: Sequence[str], *, arm: Arm, engine: str, model: str, log: Path, ready_s: float, env: Mapping[str, str]
) -> Iterator[str]:
    """The URL of a server started by `command` (without an address), once it does what its arm must. It ends with the block, or with this
    process.
    """
    launch = Launch(arm=arm, engine=engine, command=tuple(command), environment=env, model=model, log=log, ready_s=ready_s, end_s=END_S)
    with launched(launch, step=lambda _: None) as server:
        yield server.server.root


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def healthy(command: Sequence[str], *, port: int, log: Path, ready_s: float) -> Iterator[str]:
    """The URL of a server that says it is well, whether or not it drafts as it was told."""
    url, until_s = f"http://127.0.0.1:{port}", time.monotonic() + ready_s
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as server:
        try:
            while not is_well(url):
                assert server.poll() is None, log.read_text(errors="replace")[-2000:]
                assert time.monotonic() < until_s, "not ready in time"
                time.sleep(0.1)
            yield url
        finally:
            server.kill()


def is_well(url: str) -> bool:
    """Whether the server's /health says so."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:  # noqa: S310 - our own server
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def vllm_environment(python: Path) -> dict[str, str]:
    """What vLLM needs on a CPU: one thread, and room for a small model's cache."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "KMP_BLOCKTIME": "0",  # threads that wait for each other would spin, and on a busy machine that costs more than it gives
        "LD_PRELOAD": str(python.parent.parent / "lib" / "libiomp5.so"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


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
