"""What load-testers say of one and the same servers: each client's own P99 "inter-token latency", and our two figures that it mixes up.

    python benchmarks/five_clients.py [--client NAME=PYTHON ...] [--tokenizer FOLDER] [--repeats 3] [--requests 48] [--concurrency 8]
                                      [--output-tokens 128] [--seed 1] [--json]

The servers are `five_clients_server.py`: plain 20 ms per step; speculative 24 ms per step and 2.533 tokens per step; stalled the same with
2 % of the steps 200 ms longer. So the pace per token more than halves (24 / 2.533 = 9.5 ms), the gap between what a user sees grows by a
fifth, and with stalls the P99 of that gap is 224 ms. A client that has one number for both says "faster" or "slower" by its definition.

Clients: vllm, inference-perf, sglang, guidellm, aiperf. One is run where `--client NAME=PYTHON` names a Python that has it; vllm also
where scripts/install_vllm put it. The others need a tokenizer: a folder that transformers reads, by default what scripts/install_engine
made. Each client has a process of its own, so its start-up is in no figure; clients and servers share the machine's processors.

    truth     from the server: gaps and pace of what it really sent, and how late it was (P99) against its own plan
    paceline  `bench`: plain and speculative in one paired test, stalled alone
    others    one run per server; the change is speculative / plain − 1, of the client's own figure
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # the script may be run from anywhere

from benchmarks.five_clients_others import CLIENTS, Asked

ARMS = ("plain", "speculative", "stalled")
MODEL = "mock"
PROMPT_TOKENS = 32
CLIENT_LIMIT_S = 600
CACHE = Path(os.environ.get("PACELINE_CACHE", Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "paceline"))
QUIET = {"TOKENIZERS_PARALLELISM": "false", "VLLM_NO_USAGE_STATS": "1", "PYTHONWARNINGS": "ignore"}


@dataclass(slots=True, kw_only=True)
class Row:
    """One figure of one client, in milliseconds by arm, one value per repeat."""

    client: str
    figure: str
    values_ms: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ARMS})

    @property
    def change(self) -> float | None:
        """Speculative / plain − 1, of the medians; None where either is missing."""
        plain, speculative = (self.values_ms[arm] for arm in ARMS[:2])
        return statistics.median(speculative) / statistics.median(plain) - 1 if plain and speculative else None

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        change = "–" if self.change is None else f"{self.change:+.0%}"
        return self.client, self.figure, *(_range(self.values_ms[arm]) for arm in ARMS[:2]), change, _range(self.values_ms["stalled"])


def _range(values: list[float]) -> str:
    return "–" if not values else f"{min(values):.1f}–{max(values):.1f}"


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    """The URL of each arm's server, in a process of its own."""
    script = Path(__file__).with_name("five_clients_server.py")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield json.loads(next(iter(process.stdout or ())))
        finally:
            process.terminate()


def truth(url: str) -> dict[str, Any]:
    """What a server sent since it was asked last."""
    with urllib.request.urlopen(f"{url}/truth", timeout=30) as reply:  # noqa: S310 - our own server
        told: dict[str, Any] = json.load(reply)
    return told


def run(command: list[str], folder: Path) -> str | None:
    """Run a client; None where it ended well, else the end of what it said."""
    log = folder / "client.log"
    env = {**os.environ, **QUIET}
    with log.open("wb") as told:
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=folder,
                timeout=CLIENT_LIMIT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"it took longer than {CLIENT_LIMIT_S} s"
    said = log.read_text("utf-8", "replace").strip().splitlines()
    return None if code == 0 else f"exit code {code}: {' | '.join(said[-3:])[-300:]}"


def ours(asked: Asked, urls: Mapping[str, str], rows: Mapping[str, Row], doubts: list[str]) -> None:
    """Our own two figures: both arms in one paired test, the stalled server alone."""
    tests = {
        "paired": ["--baseline", urls["plain"], "--speculative", urls["speculative"]],
        "alone": ["--speculative", urls["stalled"]],
    }
    for name, arms in tests.items():
        folder = asked.folder / name
        command = [sys.executable, "-m", "paceline.cli.main", "bench", *arms, "--out", str(folder), "--json", "--ignore-eos"]
        command += ["--requests", str(asked.requests), "--concurrency", str(asked.concurrency)]
        command += ["--max-tokens", str(asked.output_tokens), "--seed", str(asked.seed), "--traffic", str(_prompts(asked))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CLIENT_LIMIT_S)
        if not done.stdout:
            doubts.append(f"paceline: exit code {done.returncode}: {done.stderr[-300:]}")
            continue
        body = json.loads(done.stdout)
        doubts += [f"paceline: [{each['code']}] {each['message']}" for each in body["warnings"]]
        for kind, arm in (("baseline", "plain"), ("speculative", "speculative" if name == "paired" else "stalled")):
            if kind in body["arms"]:
                figures = body["arms"][kind]
                rows["tpot"].values_ms[arm].append(figures["tpot_s"]["p50"]["value"] * 1e3)
                rows["gap"].values_ms[arm].append(figures["chunk_gap_s"]["p99"]["value"] * 1e3)


def _prompts(asked: Asked) -> Path:
    """Prompts as a chat log, each of its own text."""
    file = asked.folder / "prompts.jsonl"
    lines = [{"messages": [{"role": "user", "content": f"{number} " + "word " * PROMPT_TOKENS}]} for number in range(2 * asked.requests)]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return file


def measure(options: argparse.Namespace, pythons: Mapping[str, Path], scratch: Path) -> tuple[list[Row], list[str]]:
    """Every client against every server, repeated; what failed is said and not in the table."""
    said = {
        "tpot": Row(client="paceline", figure="TPOT p50: pace per token"),
        "gap": Row(client="paceline", figure="chunk gap p99: what a user sees"),
    }
    real = {
        key: Row(client="server", figure=f"truth, {name}")
        for key, name in (("tpot_p50_ms", "TPOT p50"), ("chunk_gap_p99_ms", "chunk gap p99"))
    }
    late = Row(client="server", figure="its own lateness p99")
    others = {name: Row(client=name, figure=CLIENTS[name].figure) for name in pythons}
    doubts: list[str] = []
    with servers() as urls:
        for repeat in range(options.repeats):
            asked = Asked(
                url="",
                model=MODEL,
                requests=options.requests,
                concurrency=options.concurrency,
                output_tokens=options.output_tokens,
                prompt_tokens=PROMPT_TOKENS,
                tokenizer=options.tokenizer,
                folder=scratch / f"{repeat}",
                seed=options.seed + repeat,
            )
            asked.folder.mkdir()
            ours(asked, urls, said, doubts)
            for arm, url in urls.items():
                told = truth(url)
                for key, row in (*real.items(), ("late_p99_ms", late)):
                    row.values_ms[arm] += [told[key]] if told[key] is not None else []
            for name, row in others.items():
                _measure_other(name, pythons[name], asked, urls, row, doubts)
    return [*real.values(), late, *said.values(), *others.values()], list(dict.fromkeys(doubts))


def _measure_other(name: str, python: Path, asked: Asked, urls: Mapping[str, str], row: Row, doubts: list[str]) -> None:
    for arm, url in urls.items():
        folder = asked.folder / f"{name}-{arm}"
        folder.mkdir()
        mine = replace(asked, url=url, folder=folder)
        fault = run(CLIENTS[name].command(python, mine), folder)
        truth(url)
        try:
            row.values_ms[arm].append(CLIENTS[name].read(folder))
        except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
            doubts.append(f"{name}, {arm}: {fault or f'its result could not be read: {error!r}'}")


def table(rows: list[Row]) -> str:
    """The rows as columns; ranges are over the repeats."""
    cells = [("client", "its figure (ms)", "plain", "speculative", "change", "stalled"), *(each.cells() for each in rows)]
    widths = [max(len(each[place]) for each in cells) for place in range(len(cells[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(each, widths, strict=True)).rstrip() for each in cells)


def pythons_of(options: argparse.Namespace) -> dict[str, Path]:
    """The Python of each client that is there."""
    named = dict(each.split("=", 1) for each in options.client)
    if unknown := sorted(set(named) - set(CLIENTS)):
        sys.exit(f"no client {unknown[0]}; there are {', '.join(CLIENTS)}")
    found = {name: Path(named[name]) for name in CLIENTS if name in named}
    installed = sorted(CACHE.glob("vllm-*/complete"))
    if "vllm" not in found and installed:
        found = {"vllm": installed[-1].parent / "bin" / "python", **found}
    return found


def main() -> None:
    """Print the table, or `--json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", action="append", default=[], metavar="NAME=PYTHON", help=f"one of {', '.join(CLIENTS)}, and its Python")
    parser.add_argument("--tokenizer", type=Path, default=CACHE / "smollm2-135m-instruct")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pythons = pythons_of(options)
    with tempfile.TemporaryDirectory() as scratch:
        rows, doubts = measure(options, pythons, Path(scratch))
    left_out = [name for name in CLIENTS if name not in pythons]
    if options.json:
        body = {"rows": [{**asdict(each), "change": each.change} for each in rows], "doubts": doubts, "not_installed": left_out}
        sys.stdout.write(json.dumps(body, indent=2) + "\n")
        return
    notes = [*(f"not installed: {name}" for name in left_out), *doubts]
    sys.stdout.write("\n".join([table(rows), *([""] if notes else []), *notes]) + "\n")


if __name__ == "__main__":
    main()
