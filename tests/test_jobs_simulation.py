"""Both arms of a scenario through the simulator: the same requests, the steady part, and arrivals as asked."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import BadInputError
from paceline.jobs.scenario import scenario
from paceline.jobs.simulation import SimulationPlan, simulated_arms
from paceline.run import Arm, Evidence, Load, Outcome, Run
from paceline.simulate.compare import speedup
from paceline.simulate.replica import Rejection
from paceline.speculation.acceptance import Acceptance
from paceline.workload import Request, Workload
from tests.test_jobs_scenario import ASKED

SCENARIO = scenario(replace(ASKED, target="llama-3.1-8b", gpus=1))
PLAN = SimulationPlan(requests=20, max_requests=8, token_budget=512, spread=0.5, rejection=Rejection.IN_PASS, seed=1)
WORKLOAD = Workload(
    requests=tuple(
        Request(id=f"w{i}", arrived_at_s=float(i), prompt_tokens=50 + i, output_tokens=20 + i, segment="chat" if i % 2 else "code")
        for i in range(6)
    ),
    source="by hand",
    seed=None,
)
ACCEPTANCE = {"chat": Acceptance.from_alpha(0.8, draft_tokens=3), "code": Acceptance.from_alpha(0.4, draft_tokens=3)}
CLOSED = Load(concurrency=4, rate_per_s=None)


def arms(load: Load = CLOSED, plan: SimulationPlan = PLAN, *, own: bool = False) -> tuple[Run, Run]:
    """Both arms of the workload by hand."""
    return simulated_arms(SCENARIO, WORKLOAD, ACCEPTANCE, load, plan, own_arrivals=own)


def ids(run: Run) -> list[str]:
    """The requests' ids in order."""
    assert run.requests is not None
    return [each.id for each in run.requests]


def test_a_closed_loop_measures_as_many_requests_as_asked_without_its_edges() -> None:
    """20 asked, 4 in flight: 28 are run, and the first and last 4 are left out of both arms."""
    baseline, speculative = arms()
    assert len(ids(baseline)) == 20
    assert ids(baseline) == ids(speculative)
    assert ids(baseline)[0].endswith("#5")
    assert ids(baseline)[-1].endswith("#24")
    assert (baseline.arm, speculative.arm) == (Arm.BASELINE, Arm.SPECULATIVE)
    assert {each.provenance.evidence for each in (baseline, speculative)} == {Evidence.SIMULATED}


def test_both_arms_serve_the_same_lengths_and_drafts_pay_where_they_are_accepted() -> None:
    """An arm with shorter answers would win by them."""
    baseline, speculative = arms()
    lengths = [[(each.prompt_tokens, each.output_tokens) for each in run.requests or ()] for run in (baseline, speculative)]
    assert lengths[0] == lengths[1]
    assert speedup(baseline, speculative) > 1.2
    assert set(speculative.acceptance_by_segment or {}) == {"chat", "code"}
    assert baseline.acceptance_by_segment is None


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    """A figure that changes from run to run cannot be reviewed."""
    first, again, other = arms()[1], arms()[1], arms(plan=replace(PLAN, seed=2))[1]
    assert first.acceptance_by_segment == again.acceptance_by_segment
    assert ids(first) == ids(again) != ids(other)


def test_a_rate_gives_poisson_arrivals_and_keeps_every_request() -> None:
    """An open loop has no batch at its ends to leave out; at 5 per second 20 requests take some 4 seconds."""
    baseline, speculative = arms(Load(concurrency=None, rate_per_s=5.0))
    arrivals = [np.array([each.timing.arrived_at_s for each in run.requests or ()]) for run in (baseline, speculative)]
    assert len(arrivals[0]) == 20
    np.testing.assert_array_equal(arrivals[0], arrivals[1])
    assert 1.0 < arrivals[0][-1] < 12.0


def test_the_workloads_own_arrivals_are_taken_as_they_are() -> None:
    """A trace that is resampled is no longer the trace."""
    for run in arms(Load(concurrency=None, rate_per_s=None), own=True):
        assert ids(run) == [f"w{i}" for i in range(6)]
        assert [each.timing.arrived_at_s for each in run.requests or ()] == [float(i) for i in range(6)]


def test_more_in_flight_than_the_replica_runs_is_refused() -> None:
    """The loop would wait on itself, and its TTFT would be the queue's."""
    with pytest.raises(BadInputError, match=r"concurrency 9 is above the 8 requests the replica runs; raise --max-requests"):
        arms(Load(concurrency=9, rate_per_s=None))


def test_a_request_that_never_fits_is_refused_and_keeps_its_place() -> None:
    """A prompt longer than the whole KV cache ends in a refusal, not in an endless simulation."""
    giant = replace(WORKLOAD.requests[0], prompt_tokens=5_000_000)
    workload = Workload(requests=(giant, *WORKLOAD.requests[1:]), source="by hand", seed=None)
    load = Load(concurrency=None, rate_per_s=None)
    for run in simulated_arms(SCENARIO, workload, ACCEPTANCE, load, PLAN, own_arrivals=True):
        assert run.requests is not None
        assert [each.outcome is Outcome.REFUSED for each in run.requests] == [True, False, False, False, False, False]
