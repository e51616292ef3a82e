"""Seconds of a sweep of 9 α × 8 draft lengths × 8 concurrencies, simulated, on the local cores.

    python benchmarks/sweep.py [--requests 1000] [--output-tokens 250] [--workers 2] [--json]

Every point simulates its speculative arm; a load's plain arm is simulated once per worker. Time is the wall clock's, start of the worker
processes included, beside the processor time it took: on a busy machine half of that is what two free cores
need. A first sweep of one point fills numba's cache and is reported apart.
"""

import argparse
import json
import os
import resource
import time
from dataclasses import replace

from paceline.hardware import Dtype
from paceline.jobs.scenario import Asked
from paceline.jobs.simulation import SimulationPlan
from paceline.jobs.sweep import Grid, Sweep, sweep
from paceline.simulate.replica import Rejection
from paceline.speculation.method import Method

GRID = Grid(
    alphas=tuple(i / 10 for i in range(1, 10)),
    draft_lengths=tuple(range(1, 9)),
    concurrencies=(1, 2, 4, 8, 16, 32, 64, 128),
    contexts=(700,),
    reference_draft_tokens=3,
)
ASKED = Asked(
    target="llama-3.3-70b",
    gpu="h100",
    gpus=4,
    dtype=Dtype.FP8,
    utilisation=0.9,
    method=Method.EAGLE3,
    draft=None,
    draft_tokens=3,
    draft_vocab=None,
    tree=None,
)


def cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds(job: Sweep, workers: int) -> tuple[float, float, int]:
    began, used = time.perf_counter(), cpu_seconds()
    points = sweep(job, None, workers=workers, done=lambda _: None)
    return time.perf_counter() - began, cpu_seconds() - used, len(points)


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of a sweep of 9 α × 8 draft lengths × 8 concurrencies.")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--output-tokens", type=int, default=250)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    plan = SimulationPlan(requests=given.requests, max_requests=256, token_budget=8192, spread=0.5, rejection=Rejection.IN_PASS, seed=1)
    job = Sweep(asked=ASKED, grid=GRID, output_tokens=given.output_tokens, simulation=plan, calibration=None)
    one = replace(GRID, alphas=(0.5,), draft_lengths=(3,), concurrencies=(1,))
    first_s, _, _ = seconds(replace(job, grid=one), 1)
    spent_s, used_s, points = seconds(job, given.workers)
    forecast_s, _, _ = seconds(replace(job, simulation=None), 1)
    answer = {
        "points": points,
        "workers": given.workers,
        "first_s": first_s,
        "simulated_s": spent_s,
        "simulated_cpu_s": used_s,
        "forecast_s": forecast_s,
    }
    if given.json:
        print(json.dumps(answer, indent=2))
        return
    print(f"first point {first_s:.1f} s (compilation, or numba's cache)")
    print(
        f"{points} points, {given.requests} requests each, {given.workers} workers: {spent_s:.1f} s "
        f"({used_s:.1f} s of processor time); forecast alone: {forecast_s:.1f} s"
    )


if __name__ == "__main__":
    main()
