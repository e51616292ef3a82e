"""Request-steps per second and memory of the simulator, with chunked prefill, paged KV and preemption all at work.

    python benchmarks/simulate.py [--requests 100000] [--concurrency 64] [--json]

A request-step is one decode step of one request. Times are CPU seconds of this process, so that other work on the machine does not count;
everything runs on one core. The first call's compilation (or load from numba's cache) is timed apart. The KV pool is sized so that at least
1 % of the requests are preempted. The second rate includes setting up and making the records. Both arms are held in memory, as `paceline
simulate` holds them; the peak is the process's, imports included.
"""

import argparse
import importlib
import json
import resource
import sys
import time
from typing import Any

import numpy as np

from paceline.forecast.step_cost import StepCost
from paceline.run import Load, Run
from paceline.simulate import state as columns
from paceline.simulate.records import record
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import cost_of, rules_of, run_through, start
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
from paceline.traffic.synthetic import poisson_arrivals
from paceline.workload import Request, Workload

REPLICA = Replica(kv_blocks=3000, block_tokens=16, max_requests=256, token_budget=2048)
TOKEN_S = np.concatenate(([0.0], 0.007 + 2.1e-5 * np.arange(1, REPLICA.token_budget + 1)))
PLAIN = StepCost(token_s=TOKEN_S, kv_token_s=3.9e-8, prefill_attention_s=1e-9, draft_s=np.zeros(REPLICA.max_requests + 1))
DRAFTED = StepCost(
    token_s=TOKEN_S,
    kv_token_s=3.9e-8,
    prefill_attention_s=1e-9,
    draft_s=np.concatenate(([0.0], 0.0021 + 2.5e-6 * np.arange(1, REPLICA.max_requests + 1))),
)
DRAFTING = Drafting(
    speculation=Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None),
    acceptance={"all": Acceptance(survival=(0.72, 0.5, 0.35), coverage=1.0)},
    spread=0.5,
    rejection=Rejection.IN_PASS,
)


def workload(requests: int) -> Workload:
    """Prompts of 1 to 1,199 tokens, outputs of 1 to 399."""
    rng = np.random.default_rng(0)
    lengths = zip(rng.integers(1, 1200, requests).tolist(), rng.integers(1, 400, requests).tolist(), strict=True)
    made = (
        Request(id=str(i), arrived_at_s=0.0, prompt_tokens=prompt, output_tokens=output, segment="all")
        for i, (prompt, output) in enumerate(lengths)
    )
    return Workload(requests=tuple(made), source="benchmark", seed=0)


def peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def one_arm(asked: Workload, *, cost: StepCost, drafting: Drafting | None, load: Load) -> tuple[Run, dict[str, float]]:
    """One arm, timed: the compiled steps, and the whole run with its records."""
    began = time.process_time()
    state = start(asked, replica=REPLICA, drafting=drafting, load=load, seed=1)
    rules = rules_of(REPLICA, drafting=drafting, load=load)
    stepping = time.process_time()
    state = run_through(state, rules, cost_of((cost,), draft_tokens=rules.draft_tokens))
    stepped = time.process_time()
    run = record(state, asked, replica=REPLICA, drafting=drafting, load=load, seed=1)
    ended = time.process_time()
    request_steps = int(state.counts[columns.DECODES])
    return run, {
        "request_steps": request_steps,
        "request_steps_per_s": request_steps / (stepped - stepping),
        "request_steps_per_s_with_records": request_steps / (ended - began),
        "run_s": ended - began,
        "preempted_share": float((state.table[:, columns.TIMES_PREEMPTED] > 0).mean()),
        "finished": len(run.finished),
    }


def against_fleet_sim(requests: int) -> dict[str, float | str]:
    """CPU seconds of ours over those of vllm-sr-sim for the same Poisson arrivals on one replica, or why there is no ratio.

    That simulator moves whole requests between events and has no engine step, no preemption and no drafts.
    """
    try:
        fleet_sim = importlib.import_module("fleet_sim.core.fleet")
        their_request = importlib.import_module("fleet_sim.core.request").Request
        profile = importlib.import_module("fleet_sim.gpu_profiles.profiles").A100_80GB
    except ImportError as why:
        return {"skipped": f"vllm-sr-sim is not installed ({why}); pip install vllm-sr-sim into an environment of its own to compare"}
    asked = poisson_arrivals(workload(requests), rate_per_s=10.0, rng=np.random.default_rng(1))
    pools = [fleet_sim.PoolConfig(pool_id="one", gpu=profile, n_gpus=1, max_ctx=2048)]
    fleet = fleet_sim.Fleet(fleet_sim.FleetConfig(pools=pools, router_type="LeastLoadedRouter"))
    sent = [
        (each.arrived_at_s, their_request(i, each.arrived_at_s, each.prompt_tokens, each.output_tokens))
        for i, each in enumerate(asked.requests)
    ]
    began = time.process_time()
    fleet.run(sent)
    theirs_s = time.process_time() - began
    _, ours = one_arm(asked, cost=PLAIN, drafting=None, load=Load(concurrency=None, rate_per_s=10.0))
    return {
        "requests": requests,
        "theirs_s": theirs_s,
        "ours_s": ours["run_s"],
        "theirs_over_ours": theirs_s / ours["run_s"],
        "our_request_steps": ours["request_steps"],
    }


def measured(requests: int, concurrency: int) -> dict[str, Any]:
    load = Load(concurrency=concurrency, rate_per_s=None)
    began = time.process_time()
    one_arm(workload(2), cost=DRAFTED, drafting=DRAFTING, load=load)
    first_call_s = time.process_time() - began
    asked = workload(requests)
    both = {
        name: one_arm(asked, cost=cost, drafting=drafting, load=load)
        for name, cost, drafting in [("baseline", PLAIN, None), ("speculative", DRAFTED, DRAFTING)]
    }
    return {
        "requests": requests,
        "concurrency": concurrency,
        "first_call_s": first_call_s,
        "peak_bytes_with_both_arms": peak_bytes(),
        "arms": {name: figures for name, (_, figures) in both.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measured(given.requests, given.concurrency)
    found["vllm_sr_sim"] = other = against_fleet_sim(min(given.requests, 20_000))
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(f"first call {found['first_call_s']:.1f} s (compilation, or numba's cache)")
    for name, arm in found["arms"].items():
        print(
            f"{name:12} {arm['request_steps_per_s'] / 1e6:5.1f} M request-steps/s stepping, "
            f"{arm['request_steps_per_s_with_records'] / 1e6:.1f} M with records; {arm['preempted_share']:.1%} of requests preempted"
        )
    print(f"peak {found['peak_bytes_with_both_arms'] / 1e6:.0f} MB for {given.requests:,} requests in both arms")
    if "skipped" in other:
        print(f"vllm-sr-sim: {other['skipped']}")
    else:
        print(f"vllm-sr-sim: {other['theirs_over_ours']:.2f} times our CPU seconds for {other['requests']:,} requests without drafts")


if __name__ == "__main__":
    main()
