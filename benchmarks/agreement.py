"""What the load-tester sees of a fake server, beside what the simulator inside that server did.

    python benchmarks/agreement.py [--concurrency 16] [--requests 64] [--json]

The fake server's record holds the simulator's own instants (`due_ns`) and counts for every request. Acceptance must be the same to the
last count; latencies may differ by the way through two processes and the machine's scheduler, which is printed: P50, P90 and P99 of time
to first token, time per output token and the gap between chunks, as the client measured them and as the simulator had them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from paceline.files.runfile import read_run
from paceline.latency import Ended, RequestTiming, samples
from paceline.run import RequestRecord

QUANTILES = (0.5, 0.9, 0.99)
METRICS = ("ttft_s", "tpot_s", "chunk_gap_s")
PACELINE = (sys.executable, "-m", "paceline.cli.main")
START_LIMIT_S = 180.0


@contextmanager
def fake(port: int, record: Path, *more: str) -> Iterator[str]:
    command = [
        *PACELINE,
        "fake-server",
        "--port",
        str(port),
        "--record",
        str(record),
        "--first-seed",
        "1",
        "--target",
        "llama-3.1-8b",
        *more,
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(url)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(url: str) -> None:
    until = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - our own server on loopback
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{url} did not start")


def simulated(record: Path, requests: Sequence[RequestRecord]) -> tuple[list[RequestTiming], int, float]:
    """The simulator's own timings of these requests, how many counts differ from the client's, and how late the server wrote (P99, s)."""
    lines = [json.loads(each) for each in record.read_text(encoding="utf-8").splitlines()]
    by_id = {each["id"]: each for each in lines if "due_ns" in each}
    timings, differ, late_s = [], 0, list[float]()
    for each in requests:
        line = by_id[each.id]
        zero = line["arrived_ns"]
        at_s = np.array([(due - zero) / 1e9 for due in line["due_ns"]])
        timings.append(RequestTiming(0.0, 0.0, np.maximum(at_s, 0.0), np.array(line["tokens"]), Ended.LENGTH))
        late_s += [(wrote - due) / 1e9 for wrote, due in zip(line["written_ns"], line["due_ns"], strict=True)]
        counts = (
            None if each.acceptance is None else (each.acceptance.drafts, each.acceptance.drafted_tokens, each.acceptance.accepted_tokens)
        )
        own = line["acceptance"]
        differ += counts is not None and counts != (own["drafts"], own["drafted_tokens"], own["accepted_tokens"])
    return timings, differ, float(np.quantile(np.array(late_s), 0.99))


def compared(out: Path, arm: str, record: Path, concurrency: int) -> dict[str, Any]:
    run = read_run(out / "runs" / f"c{concurrency:04d}-{arm}.json")
    requests = run.finished
    own, differ, late_s = simulated(record, requests)
    seen = [each.timing for each in requests]
    rows = {
        metric: {
            f"p{100 * q:g}": {
                "seen_ms": 1000 * float(np.quantile(samples(metric, seen), q)),
                "own_ms": 1000 * float(np.quantile(samples(metric, own), q)),
            }
            for q in QUANTILES
        }
        for metric in METRICS
    }
    return {"arm": arm, "requests": len(requests), "requests_whose_counts_differ": differ, "server_late_p99_ms": 1000 * late_s, **rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        records = {arm: here / f"{arm}.jsonl" for arm in ("baseline", "speculative")}
        with (
            fake(8431, records["baseline"], "--method", "none") as one,
            fake(8432, records["speculative"], "--survival", ".8,.6,.45") as two,
        ):
            command = [*PACELINE, "bench", "--baseline", one, "--speculative", two, "--requests", str(asked.requests)]
            command += ["--concurrency", str(asked.concurrency), "--max-tokens", "100", "--out", str(here / "out")]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        rows = [compared(here / "out", arm, record, asked.concurrency) for arm, record in records.items()]
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        differ, late_ms = row["requests_whose_counts_differ"], row["server_late_p99_ms"]
        print(f"{row['arm']}: {row['requests']} requests, counts differ in {differ}; server late P99 {late_ms:.2f} ms")
        for metric in METRICS:
            print(
                f"  {metric:<12}",
                *(f"{q} {each['seen_ms']:7.2f} seen {each['own_ms']:7.2f} own" for q, each in row[metric].items()),
                sep="  ",
            )


if __name__ == "__main__":
    main()
