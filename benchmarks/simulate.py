"""Request-steps per second and memory of the simulator, with chunked prefill, paged KV and preemption all at work.

    python benchmarks/simulate.py [--requests 100000] [--concurrency 64] [--json]

A request-step is one decode step of one request. The first call's compilation (or load from numba's cache) is timed apart. The KV pool is
sized so that at least 1 % of the requests are preempted. `run` includes making the records; memory is the process's peak so far.
"""

import argparse
import json
import resource
import sys
import time

import numpy as np

from paceline.forecast.step_cost import StepCost
from paceline.run import Load
from paceline.simulate import kernel
from paceline.simulate import state as columns
from paceline.simulate.records import record
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import cost_of, rules_of, start
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
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


def one_arm(asked: Workload, *, cost: StepCost, drafting: Drafting | None, concurrency: int) -> dict[str, float]:
    """One arm, timed: the compiled steps, and the whole run with its records."""
    load = Load(concurrency=concurrency, rate_per_s=None)
    began = time.process_time()
    state = start(asked, replica=REPLICA, drafting=drafting, load=load, seed=1)
    stepping = time.process_time()
    rules = rules_of(REPLICA, drafting=drafting, load=load)
    kernel.advance(state, rules, cost_of((cost,), draft_tokens=rules.draft_tokens), 2**62)
    stepped = time.process_time()
    run = record(state, asked, replica=REPLICA, drafting=drafting, load=load, seed=1)
    ended = time.process_time()
    request_steps = int(state.counts[columns.DECODES])
    return {
        "request_steps": request_steps,
        "kernel_request_steps_per_s": request_steps / (stepped - stepping),
        "run_request_steps_per_s": request_steps / (ended - began),
        "preempted_share": float((state.table[:, columns.TIMES_PREEMPTED] > 0).mean()),
        "finished": len(run.finished),
        "peak_bytes": peak_bytes(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.process_time()
    one_arm(workload(2), cost=DRAFTED, drafting=DRAFTING, concurrency=given.concurrency)
    first_call_s = time.process_time() - began
    asked = workload(given.requests)
    arms = {
        name: one_arm(asked, cost=cost, drafting=drafting, concurrency=given.concurrency)
        for name, cost, drafting in [("baseline", PLAIN, None), ("speculative", DRAFTED, DRAFTING)]
    }
    if given.json:
        print(json.dumps({"requests": given.requests, "first_call_s": first_call_s, "arms": arms}, indent=2))
        return
    print(f"first call {first_call_s:.1f} s (compilation, or numba's cache)")
    for name, arm in arms.items():
        print(
            f"{name:12} {arm['kernel_request_steps_per_s'] / 1e6:5.1f} M request-steps/s stepping, "
            f"{arm['run_request_steps_per_s'] / 1e6:.1f} M with records; "
            f"{arm['preempted_share']:.1%} preempted; peak {arm['peak_bytes'] / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
