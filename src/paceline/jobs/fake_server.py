"""From a scenario to the fake server that stands for it: the same costs, limits and drafts that `simulate` takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.jobs.scenario import Scenario
from paceline.jobs.simulation import SimulationPlan, cost_of, costs_of_lengths, replica_of
from paceline.live.fake_server import FakeServer
from paceline.live.fake_server_faults import Faults
from paceline.simulate.replica import Drafting
from paceline.speculation.acceptance import Acceptance

__all__ = ["Rehearsal", "fake_server"]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How the fake server is driven; see `FakeServer`."""

    first_seed: int
    speed: float
    grace_s: float
    default_output_tokens: int
    faults: Faults
    record: Path | None


def fake_server(
    scenario: Scenario, acceptance: Mapping[str, Acceptance] | None, plan: SimulationPlan, rehearsal: Rehearsal, *, model: str
) -> FakeServer:
    """The server of one arm: with `acceptance` None the plain one, which keeps the memory that a draft would take.

    Raises:
        BadInputError: target and draft do not fit.

    """
    room = scenario.memory(context_tokens=1)
    drafting = None
    if acceptance is not None:
        drafting = Drafting(
            speculation=scenario.speculation,
            acceptance=acceptance,
            spread=plan.spread,
            rejection=plan.rejection,
            persistence=plan.persistence,
            lengths=plan.lengths,
        )
    return FakeServer(
        model=model,
        replica=replica_of(room.plain_kv_tokens if drafting is None else room.speculative_kv_tokens, plan),
        step_cost=cost_of(scenario, plan, draft_tokens=0) if drafting is None else costs_of_lengths(scenario, plan),
        drafting=drafting,
        seed=plan.seed,
        first_seed=rehearsal.first_seed,
        speed=rehearsal.speed,
        grace_s=rehearsal.grace_s,
        default_output_tokens=rehearsal.default_output_tokens,
        faults=rehearsal.faults,
        record=rehearsal.record,
    )
