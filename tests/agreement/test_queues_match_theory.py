"""Where queueing theory has a closed form, an open-loop run gives it. Statistical bounds raise a false alarm less than once in a million.

    Little's law     L = λ · W, of requests in the system over a whole busy stretch: exact
    M/D/1            one seat, service s, Poisson arrivals at λ, ρ = λ·s: mean wait ρ·s / (2 (1 − ρ))   (Pollaczek–Khinchine)

Waits follow each other closely, so the bound of the M/D/1 test rests on independent runs: their mean differs from the formula by less than
t · sd / √runs, with Student's t of one in two million on either side.
"""

from math import sqrt

import numpy as np
import pytest
from scipy import stats as distributions

from paceline.forecast.step_cost import StepCost
from paceline.run import Load, Run
from paceline.simulate.replica import Drafting, Rejection, Replica
from paceline.simulate.server import simulate
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.method import Method, Speculation
from paceline.traffic.synthetic import bursty_arrivals
from paceline.workload import Request, Workload

OPEN = Load(concurrency=None, rate_per_s=None)
STEP_S = 0.25
STEADY_STEP = StepCost(
    token_s=np.concatenate(([0.0], np.full(4096, STEP_S))), kv_token_s=0.0, prefill_attention_s=0.0, draft_s=np.zeros(65)
)


def arriving(requests: int, *, rate_per_s: float, burstiness: float, output_tokens: int, seed: int) -> Workload:
    """Requests of one prompt token, at random instants."""
    made = tuple(Request(id=str(i), arrived_at_s=0.0, prompt_tokens=1, output_tokens=output_tokens, segment="all") for i in range(requests))
    whole = Workload(requests=made, source="theory", seed=None)
    return bursty_arrivals(whole, rate_per_s=rate_per_s, burstiness=burstiness, rng=np.random.default_rng(seed))


def served(workload: Workload, *, seats: int, drafting: Drafting | None = None) -> Run:
    replica = Replica(kv_blocks=40_000, block_tokens=16, max_requests=seats, token_budget=1024)
    return simulate(workload, replica=replica, step_cost=STEADY_STEP, drafting=drafting, load=OPEN, seed=1)


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("alpha", [None, 0.6])
def test_littles_law_holds_from_the_first_arrival_to_the_last_token(burstiness: float, alpha: float | None) -> None:
    """L = λ·W: requests in the system, counted at 20,000 random instants, against arrivals per second times mean time in the system.

    An instant is uniform over the window, so the count's standard error is its deviation / √20,000; 5.5 of them are allowed.
    """
    drafting = None
    if alpha is not None:
        drafting = Drafting(
            speculation=Speculation(method=Method.EAGLE3, draft_tokens=3, tree=None),
            acceptance={"all": Acceptance.from_alpha(alpha, draft_tokens=3)},
            spread=0.5,
            rejection=Rejection.IN_PASS,
        )
    made = served(arriving(800, rate_per_s=1.0, burstiness=burstiness, output_tokens=30, seed=2), seats=16, drafting=drafting)
    arrived_at_s = np.array([each.timing.arrived_at_s for each in made.finished])
    left_at_s = np.sort([each.timing.arrived_at_s + each.timing.e2e_s for each in made.finished])
    assert made.window_s is not None
    at_s = arrived_at_s[0] + made.window_s * np.random.default_rng(3).random(20_000)
    inside = np.searchsorted(arrived_at_s, at_s, side="right") - np.searchsorted(left_at_s, at_s, side="right")
    rate_per_s = len(made.finished) / made.window_s
    mean_s = float(np.mean([each.timing.e2e_s for each in made.finished]))
    assert inside.mean() == pytest.approx(rate_per_s * mean_s, abs=5.5 * inside.std() / sqrt(len(at_s)))


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_seat_with_equal_services_waits_as_an_m_d_1_queue(load: float) -> None:
    """Mean wait ρ·s / (2 (1 − ρ)): a simulator whose queue is wrong has a wrong TTFT at every load.

    24 runs of 2,000 requests; the first 500 of each, which still feel the empty start, are left out.
    """
    service_s, runs = STEP_S * 4, 24
    means = []
    for seed in range(runs):
        made = served(arriving(2000, rate_per_s=load / service_s, burstiness=1.0, output_tokens=4, seed=seed), seats=1)
        waits_s = [each.timing.ttft_s - STEP_S for each in made.finished[500:]]
        means.append(float(np.mean(waits_s)))
    factor = float(distributions.t.ppf(1 - 5e-7, runs - 1))
    expected_s = load * service_s / (2 * (1 - load))
    assert np.mean(means) == pytest.approx(expected_s, abs=factor * float(np.std(means, ddof=1)) / sqrt(runs))


def test_bursts_wait_longer_and_even_arrivals_shorter_than_poisson() -> None:
    """The same rate in bursts is another load: Kingman's wait grows with the variance of the gaps."""
    waits_s = []
    for burstiness in (0.25, 1.0, 8.0):
        made = served(arriving(4000, rate_per_s=0.7, burstiness=burstiness, output_tokens=4, seed=5), seats=1)
        waits_s.append(float(np.mean([each.timing.ttft_s for each in made.finished])))
    assert waits_s[0] > 1.5 * waits_s[1]
    assert waits_s[1] > 1.2 * waits_s[2]
