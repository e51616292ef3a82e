"""A sweep's figures are those of the records."""

import numpy as np
import pytest

from paceline.errors import BadInputError, NoEvidenceError
from paceline.forecast.step_cost import StepCost
from paceline.run import Load
from paceline.simulate.compare import speedup, step_time_ratio
from paceline.simulate.figures import arm_times
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate
from paceline.simulate.steady import steady
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
from paceline.workload import Request, Workload

REPLICA = Replica(kv_blocks=400, block_tokens=16, max_requests=8, token_budget=256)
TOKEN_S = np.concatenate(([0.0], 0.01 + 1e-4 * np.arange(1, 257)))
PLAIN = StepCost(token_s=TOKEN_S, kv_token_s=1e-8, prefill_attention_s=0.0, draft_s=np.zeros(9))
COST = StepCost(token_s=TOKEN_S, kv_token_s=1e-8, prefill_attention_s=0.0, draft_s=np.concatenate(([0.0], np.full(8, 0.002))))
DRAFTING = Drafting(
    speculation=Speculation(method=Method.EAGLE3, draft_tokens=2, tree=None),
    acceptance={"all": Acceptance(survival=(0.7, 0.4), coverage=1.0)},
    spread=0.5,
    rejection=Rejection.IN_PASS,
)
LOAD = Load(concurrency=4, rate_per_s=None)


def workload(lengths: list[int]) -> Workload:
    """Requests of these outputs."""
    return Workload(
        requests=tuple(
            Request(id=str(i), arrived_at_s=0.0, prompt_tokens=20 + i, output_tokens=n, segment="all") for i, n in enumerate(lengths)
        ),
        source="test",
        seed=None,
    )


def test_both_ways_to_the_figures_agree() -> None:
    """A sweep that says other than `simulate` on the same load leaves its reader with two truths."""
    asked = workload([1 + (7 * i) % 40 for i in range(60)])
    runs = [
        steady(simulate(asked, replica=REPLICA, step_cost=cost, drafting=how, load=LOAD, seed=5), skip_first=4, skip_last=4)
        for cost, how in ((PLAIN, None), (COST, DRAFTING))
    ]
    plain, ours = (
        arm_times(asked, replica=REPLICA, step_cost=cost, drafting=how, load=LOAD, seed=5)
        for cost, how in ((PLAIN, None), (COST, DRAFTING))
    )
    both = np.isfinite(plain.tpot_s) & np.isfinite(ours.tpot_s)
    assert both.sum() == 51, "of 52 requests one has a single token and no time per token"
    assert plain.tpot_s[both].mean() / ours.tpot_s[both].mean() == pytest.approx(speedup(*runs), rel=1e-12)
    assert ours.step_s / plain.step_s == pytest.approx(step_time_ratio(*runs), rel=1e-12)
    counts = runs[1].acceptance
    assert ours.tokens_per_step == pytest.approx(counts.tokens_per_step, rel=1e-12)
    assert plain.tokens_per_step == 1


def test_a_load_without_a_middle_or_without_a_step_is_refused() -> None:
    """Figures of a start and an end, or of nothing, would look like any other."""
    with pytest.raises(BadInputError, match="8 requests at concurrency 4 leave none"):
        arm_times(workload([5] * 8), replica=REPLICA, step_cost=PLAIN, drafting=None, load=LOAD, seed=1)
    with pytest.raises(BadInputError, match="at concurrency 0 leave none"):
        arm_times(workload([5] * 8), replica=REPLICA, step_cost=PLAIN, drafting=None, load=Load(concurrency=None, rate_per_s=1.0), seed=1)
    with pytest.raises(NoEvidenceError, match="no request has a decode step"):
        arm_times(workload([1] * 9), replica=REPLICA, step_cost=PLAIN, drafting=None, load=LOAD, seed=1)
