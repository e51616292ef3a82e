"""CPU per server-sent event of our client and of `vllm bench serve`, against one server in one run; and a thousand streams at once.

    python benchmarks/client_cost.py [--vllm-python PATH --tokenizer DIR] [--streams 64] [--repeats 2] [--thousand] [--json]

The server (`paced_server.py`) sends 50 messages per second on each stream, each stream on its own phase. A client's cost per event is the
slope between a short and a long run, in CPU seconds of its process from the first request to the last figure, so that imports and starts
are left out; for ours, receiving and reading (parsing) are also told apart. The clients take turns, but a busy machine makes caches cold
and every figure larger: compare the ratios. `--vllm-python` is the interpreter that scripts/install_vllm prints; `--tokenizer` any local
tokenizer.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHORT_STEPS, LONG_STEPS = 50, 550
TOKENS = 2
VLLM = """
import argparse, time
from vllm.benchmarks import serve
measure = serve.benchmark
async def timed(*args, **kwargs):
    began_s = time.process_time()
    result = await measure(*args, **kwargs)
    print("cpu_s", time.process_time() - began_s)
    return result
serve.benchmark = timed
parser = argparse.ArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
"""


@contextmanager
def paced_server(step_s: float) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [sys.executable, str(HERE / "paced_server.py"), "--step-s", str(step_s), "--tokens", str(TOKENS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def ours(url: str, streams: int, steps: int, loop: str = "ours") -> dict[str, Any]:
    """What our client reports of itself."""
    command = [sys.executable, str(HERE / "paced_client.py"), url, "--streams", str(streams), "--steps", str(steps), "--loop", loop]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def vllm_cpu_s(python: str, tokenizer: str, url: str, streams: int, steps: int) -> float:
    """CPU seconds of one `vllm bench serve`, from its first request to its last figure."""
    options = ["--backend", "openai-chat", "--base-url", url, "--endpoint", "/v1/chat/completions", "--model", "paced"]
    options += ["--tokenizer", tokenizer, "--dataset-name", "random", "--random-input-len", "8", "--random-output-len", str(steps * TOKENS)]
    options += ["--num-prompts", str(streams), "--max-concurrency", str(streams), "--ignore-eos", "--disable-tqdm"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([python, "-c", VLLM, *options], capture_output=True, text=True, check=False, env=environment)
    if done.returncode or f"Successful requests:                     {streams}" not in done.stdout:
        raise SystemExit(f"vllm bench serve failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return float(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("cpu_s")))


def one_round(given: argparse.Namespace, url: str) -> dict[str, float]:
    """CPU microseconds per event of each client, and ratios to vLLM's where it was measured."""
    events = given.streams * (LONG_STEPS - SHORT_STEPS)
    short, long = (ours(url, given.streams, steps) for steps in (SHORT_STEPS, LONG_STEPS))
    receive, read = (1e6 * (long[name] - short[name]) / events for name in ("receive_cpu_s", "read_cpu_s"))
    figures = {"ours_us": receive + read, "ours_receive_us": receive, "ours_read_us": read}
    if given.vllm_python:
        short_s, long_s = (vllm_cpu_s(given.vllm_python, given.tokenizer, url, given.streams, steps) for steps in (SHORT_STEPS, LONG_STEPS))
        vllm = 1e6 * (long_s - short_s) / events
        figures |= {"vllm_us": vllm, "ratio": (receive + read) / vllm, "receive_ratio": receive / vllm}
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python")
    parser.add_argument("--tokenizer")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--thousand", action="store_true", help="1,000 streams of 5 messages per second for 60 s instead")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    if given.thousand:
        with paced_server(0.2) as url:
            figures: dict[str, Any] = ours(url, 1000, 300)
    else:
        with paced_server(0.02) as url:
            figures = {"rounds": [one_round(given, url) for _ in range(given.repeats)]}
    figures |= {"load_average": load, "cores": os.cpu_count()}
    if given.json:
        print(json.dumps(figures))
        return
    for line in figures.pop("rounds", []):
        print("  ".join(f"{name} {value:g}" for name, value in line.items()))
    for name, value in figures.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
