"""Both arms of a scenario through the simulator, at one load, with the start and the end of a closed loop left out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from paceline.errors import BadInputError
from paceline.forecast.engine_cost import EngineCost
from paceline.forecast.step_cost import StepCost, step_cost
from paceline.jobs.scenario import Scenario
from paceline.run import Load, Run
from paceline.simulate.draft_lengths import Ladder, LengthTable
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate
from paceline.simulate.steady import steady
from paceline.speculation.acceptance import Acceptance
from paceline.traffic.synthetic import bursty_arrivals, repeat_to, rescaled_arrivals
from paceline.workload import Workload

__all__ = ["BLOCK_TOKENS", "SimulationPlan", "cost_of", "costs_of_lengths", "limits_of", "need_seats", "replica_of", "simulated_arms"]

BLOCK_TOKENS = 16
MOST_REQUESTS = 1_000_000
MOST_SEATS = 16_384
MOST_TOKEN_BUDGET = 1_048_576


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """How a scenario is simulated.

    Attributes:
        requests: requests measured in each arm.
        max_requests: requests a replica runs at once (vLLM: max_num_seqs).
        token_budget: tokens per step (vLLM: max_num_batched_tokens).
        spread: between-request spread of acceptance, in logits.
        rejection: where the token after a rejection comes from.
        seed: of all chance.
        burstiness: shape of the gaps between arrivals at a rate; 1 is a Poisson process.
        time_scale: how much faster than recorded a trace's own arrivals come.
        persistence: correlation of acceptance between neighbouring steps of a request.
        lengths: draft length by batch, None where every step drafts the same.
        engine: what a calibration found the engine to cost, None for the packaged coefficients.

    """

    requests: int
    max_requests: int
    token_budget: int
    spread: float
    rejection: Rejection
    seed: int
    burstiness: float = 1.0
    time_scale: float = 1.0
    persistence: float = 0.0
    lengths: LengthTable | Ladder | None = None
    engine: EngineCost | None = None

    def __post_init__(self) -> None:
        """Reject sizes that no server has, before memory is asked for them.

        Raises:
            BadInputError: with the value and its limit.

        """
        limits = {"requests": MOST_REQUESTS, "max_requests": MOST_SEATS, "token_budget": MOST_TOKEN_BUDGET}
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise BadInputError(f"{name} = {getattr(self, name)!r} is not between 1 and {most}")


def simulated_arms(
    scenario: Scenario, workload: Workload, acceptance: Mapping[str, Acceptance], load: Load, plan: SimulationPlan, *, own_arrivals: bool
) -> tuple[Run, Run]:
    """Baseline and speculative run of the same requests.

    A closed loop draws requests from the workload and leaves out one batch at the start and one at the end. An open loop takes the
    workload's own arrivals, or with a rate draws requests and Poisson arrivals.

    Raises:
        BadInputError: target and draft do not fit, or the loop has more in flight than the replica runs.

    """
    if load.concurrency is not None:
        need_seats(load.concurrency, plan)
    edge = load.concurrency or 0
    requests = _requests(workload, load, plan, edge=edge, own_arrivals=own_arrivals)
    room = scenario.memory(context_tokens=1)
    drafting = Drafting(
        speculation=scenario.speculation,
        acceptance=acceptance,
        spread=plan.spread,
        rejection=plan.rejection,
        persistence=plan.persistence,
        lengths=plan.lengths,
    )
    baseline = simulate(
        requests,
        replica=replica_of(room.plain_kv_tokens, plan),
        step_cost=cost_of(scenario, plan, draft_tokens=0),
        drafting=None,
        load=load,
        seed=plan.seed,
    )
    speculative = simulate(
        requests,
        replica=replica_of(room.speculative_kv_tokens, plan),
        step_cost=costs_of_lengths(scenario, plan),
        drafting=drafting,
        load=load,
        seed=plan.seed,
    )
    if not edge:
        return baseline, speculative
    return steady(baseline, skip_first=edge, skip_last=edge), steady(speculative, skip_first=edge, skip_last=edge)


def limits_of(max_requests: int, token_budget: int) -> dict[str, int]:  # named as vLLM's options are
    """The replica's limits by vLLM's option."""
    return {"--max-num-seqs": max_requests, "--max-num-batched-tokens": token_budget}


def need_seats(concurrency: int, plan: SimulationPlan) -> None:
    """Nothing, where the replica runs that many requests at once.

    Raises:
        BadInputError: it does not.

    """
    if concurrency > plan.max_requests:
        raise BadInputError(f"concurrency {concurrency} is above the {plan.max_requests} requests the replica runs; raise --max-requests")


def _requests(workload: Workload, load: Load, plan: SimulationPlan, *, edge: int, own_arrivals: bool) -> Workload:
    if own_arrivals:
        return rescaled_arrivals(workload, time_scale=plan.time_scale)
    drawn = repeat_to(workload, requests=plan.requests + 2 * edge, seed=plan.seed)
    if load.rate_per_s is None:
        return drawn
    return bursty_arrivals(drawn, rate_per_s=load.rate_per_s, burstiness=plan.burstiness, rng=np.random.default_rng(plan.seed))


def replica_of(kv_tokens: int, plan: SimulationPlan) -> Replica:
    """The replica with room for so many KV tokens."""
    return Replica(
        kv_blocks=max(1, kv_tokens // BLOCK_TOKENS),
        block_tokens=BLOCK_TOKENS,
        max_requests=plan.max_requests,
        token_budget=plan.token_budget,
    )


def costs_of_lengths(scenario: Scenario, plan: SimulationPlan) -> StepCost | tuple[StepCost, ...]:
    """The cost of the draft length, or of each from 0 on where it changes by batch."""
    longest = scenario.speculation.draft_tokens
    if plan.lengths is None:
        return cost_of(scenario, plan, draft_tokens=longest)
    return tuple(cost_of(scenario, plan, draft_tokens=each) for each in range(longest + 1))


def cost_of(scenario: Scenario, plan: SimulationPlan, *, draft_tokens: int) -> StepCost:
    """What a step costs with drafts of that length, 0 without, as long as the plan's limits ask."""
    where, asked = scenario.where, scenario.speculation
    speculation = None if draft_tokens == 0 else asked if draft_tokens == asked.draft_tokens else replace(asked, draft_tokens=draft_tokens)
    return step_cost(
        target=scenario.target,
        gpu=where.gpu,
        gpus=where.gpus,
        dtype=where.dtype,
        speculation=speculation,
        draft=None if speculation is None else scenario.draft,
        max_tokens=plan.token_budget,
        max_requests=plan.max_requests,
        engine=plan.engine,
    )
