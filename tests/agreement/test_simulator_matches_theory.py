"""Where theory has a closed form, the simulator gives it.

A fixed batch, independent steps, a constant step cost and no cost of prefill: E = 1 + coverage · Σ s_i and S = E / ρ. Statistical bounds
are 5.5 standard errors: less than one false alarm in ten million.
"""

from math import sqrt

import numpy as np
import pytest

from paceline.forecast.step_cost import StepCost
from paceline.run import Load, Run
from paceline.simulate.compare import speedup, step_time_ratio
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate_arms
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
from paceline.workload import Request, Workload

BATCH = 16
OUTPUT_TOKENS = 601
RHO = 1.4
SIGMAS = 5.5
LAST_STEP_BIAS = 0.004  # steps are whole, so 80 tokens take a little more than 80 / E
ROOMY = Replica(kv_blocks=2000, block_tokens=16, max_requests=BATCH, token_budget=BATCH * 9)
# Powers of two and their sums: clocks add up without rounding, so exact statements can be tested exactly.
STEP_S = 0.25
PLAIN = StepCost(
    token_s=np.concatenate(([0.0], np.full(ROOMY.token_budget, STEP_S))),
    kv_token_s=0.0,
    prefill_attention_s=0.0,
    draft_s=np.zeros(BATCH + 1),
)
DRAFTED = StepCost(
    token_s=PLAIN.token_s,
    kv_token_s=0.0,
    prefill_attention_s=0.0,
    draft_s=np.concatenate(([0.0], np.full(BATCH, (RHO - 1) * STEP_S))),
)
REQUESTS = tuple(Request(id=str(i), arrived_at_s=0.0, prompt_tokens=1, output_tokens=OUTPUT_TOKENS, segment="all") for i in range(BATCH))


def arms(acceptance: Acceptance, *, spread: float = 0.0, seed: int = 1, requests: tuple[Request, ...] = REQUESTS) -> tuple[Run, Run]:
    drafting = Drafting(
        speculation=Speculation(method=Method.EAGLE3, draft_tokens=acceptance.draft_tokens, tree=None),
        acceptance={"all": acceptance},
        spread=spread,
        rejection=Rejection.IN_PASS,
    )
    return simulate_arms(
        Workload(requests=requests, source="theory", seed=None),
        replica=ROOMY,
        baseline_cost=PLAIN,
        speculative_cost=DRAFTED,
        drafting=drafting,
        load=Load(concurrency=BATCH, rate_per_s=None),
        seed=seed,
    )


def tokens_sd(acceptance: Acceptance) -> float:
    """Standard deviation of the tokens of one step: E[accepted²] = Σ (2i − 1) s_i."""
    survival = [acceptance.coverage * each for each in acceptance.survival]
    mean = sum(survival)
    return sqrt(sum((2 * i - 1) * each for i, each in enumerate(survival, 1)) - mean**2)


CASES = [
    Acceptance.from_conditional(0.7, draft_tokens=3),
    Acceptance.from_conditional(0.5, draft_tokens=5),
    Acceptance(survival=(0.9, 0.6, 0.55, 0.2), coverage=1.0),
    Acceptance(survival=(0.8, 0.6, 0.5), coverage=0.3),
]


@pytest.mark.parametrize("acceptance", CASES)
def test_tokens_per_step_are_one_plus_the_sum_of_survival(acceptance: Acceptance) -> None:
    """E is what every forecast rests on; with coverage .3 it is 1 + .3·(τ − 1)."""
    _, speculative = arms(acceptance)
    counts = speculative.acceptance
    assert counts.steps is not None
    tolerance = SIGMAS * tokens_sd(acceptance) / sqrt(counts.steps)
    assert counts.tokens_per_step == pytest.approx(acceptance.tokens_per_step, abs=tolerance)
    for measured, stated in zip(counts.survival, acceptance.survival, strict=True):
        assert measured == pytest.approx(stated, abs=SIGMAS * sqrt(stated * (1 - stated) / counts.drafts))


@pytest.mark.parametrize("acceptance", CASES[:3])
def test_the_speed_up_is_tokens_per_step_over_the_step_time_ratio(acceptance: Acceptance) -> None:
    """S = E / ρ; the last step of a request is cut at its output length, which costs less than K tokens in 600."""
    baseline, speculative = arms(acceptance)
    counts = speculative.acceptance
    assert counts.steps is not None
    assert step_time_ratio(baseline, speculative) == pytest.approx(RHO, rel=1e-12)
    expected = acceptance.tokens_per_step / RHO
    noise = SIGMAS * tokens_sd(acceptance) / sqrt(counts.steps) / RHO
    cut = expected * acceptance.draft_tokens / (OUTPUT_TOKENS - 1)
    assert expected - noise - cut <= speedup(baseline, speculative) <= expected + noise


@pytest.mark.parametrize("seed", range(4))
def test_the_speed_up_never_exceeds_tokens_per_step(seed: int) -> None:
    """S ≤ E at equal batch, exactly: invariant 13, the data-quality check of the gate."""
    baseline, speculative = arms(CASES[0], seed=seed, spread=0.5 * seed)
    assert speedup(baseline, speculative) <= speculative.acceptance.tokens_per_step


def test_drafts_that_never_hold_give_the_plain_tokens_later_by_rho() -> None:
    """The worst draft costs ρ and nothing else: the same chunks, each gap ρ times as long."""
    baseline, speculative = arms(Acceptance(survival=(0.0, 0.0, 0.0), coverage=1.0))
    assert baseline.requests is not None
    assert speculative.requests is not None
    for ours, theirs in zip(baseline.requests, speculative.requests, strict=True):
        assert ours.timing.chunk_tokens.tolist() == theirs.timing.chunk_tokens.tolist()
        assert theirs.timing.chunk_gaps_s == pytest.approx(RHO * ours.timing.chunk_gaps_s, rel=1e-9)


def test_drafts_that_always_hold_divide_the_steps_by_k_plus_one() -> None:
    """600 tokens after the first in 150 steps of 4: exact."""
    baseline, speculative = arms(Acceptance(survival=(1.0, 1.0, 1.0), coverage=1.0))
    assert speculative.acceptance.steps == BATCH * (OUTPUT_TOKENS - 1) // 4
    assert speedup(baseline, speculative) == pytest.approx(4 / RHO, rel=1e-12)


def test_pooled_survival_stays_the_stated_one_when_requests_differ() -> None:
    """Spread must move the tails and not the mean: 600 requests, their step-weighted survival within 5.5 standard errors by request."""
    acceptance = Acceptance.from_conditional(0.7, draft_tokens=3)
    requests = tuple(Request(id=str(i), arrived_at_s=0.0, prompt_tokens=1, output_tokens=81, segment="all") for i in range(600))
    _, alike = arms(acceptance, requests=requests)
    _, spread = arms(acceptance, requests=requests, spread=1.0)
    counts = [each.acceptance for each in spread.finished if each.acceptance]
    drafts = np.array([each.drafts for each in counts])
    kept = np.array([each.accepted_per_position for each in counts])
    for position, stated in enumerate(acceptance.survival):
        error = sqrt(((kept[:, position] - stated * drafts) ** 2).sum()) / drafts.sum()
        assert kept[:, position].sum() / drafts.sum() == pytest.approx(stated, abs=SIGMAS * error + LAST_STEP_BIAS)
    assert _tpot_sd(spread) > 1.5 * _tpot_sd(alike)


def _tpot_sd(run: Run) -> float:
    return float(np.std([each.timing.tpot_s for each in run.finished]))
