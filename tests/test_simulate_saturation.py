"""An overrun server is told from one that keeps up."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.forecast.step_cost import StepCost
from paceline.latency import Ended, RequestTiming
from paceline.report.simulations import saturation_text
from paceline.run import Arm, Load, Outcome, RequestRecord, Run
from paceline.simulate.saturation import Saturation, saturation
from tests.strategies_runs import run

COST = StepCost(token_s=np.full(9, 0.1), kv_token_s=0.001, prefill_attention_s=0.0, draft_s=np.zeros(9))


def open_loop(waits_s: list[float], *, chunks: int = 2, step_s: float = 0.6) -> Run:
    """A request each second that waits as given for its first token; one token per chunk."""
    requests = []
    for i, wait_s in enumerate(waits_s):
        at_s = i + wait_s + step_s * np.arange(chunks, dtype=np.float64)
        timing = RequestTiming(float(i), float(i), at_s, np.ones(chunks, dtype=np.int64), Ended.LENGTH)
        requests.append(RequestRecord(str(i), "all", 100, chunks, timing, None, Outcome.FINISHED))
    return replace(
        run(Arm.BASELINE, n=1, step_s=0.1, alphas={"all": 0.5}), requests=tuple(requests), load=Load(concurrency=None, rate_per_s=1.0)
    )


GROWING = [0.5 * i for i in range(1, 41)]


def test_a_wait_that_grows_as_long_as_requests_arrive_is_an_overrun_server() -> None:
    """Medians of the waits 0.5 … 5 s and 15.5 … 20 s."""
    found = saturation(open_loop(GROWING), COST)
    assert found is not None
    assert (found.early_ttft_s, found.late_ttft_s) == pytest.approx((2.75, 17.75))


def test_the_share_of_prefill_by_hand() -> None:
    """A request each 1.5 s with a second token .6 s after its first: steps of .6 s, of which .1 + .101 s decode, and of .9 s of prefill."""
    found = saturation(open_loop(GROWING), COST)
    assert found is not None
    assert found.prefill_share == pytest.approx((40 * (0.6 - 0.201) + 39 * (0.9 - 0.1)) / (40 * 0.6 + 39 * 0.9))


def test_a_server_that_only_prefills_spends_all_its_time_on_it() -> None:
    """Answers of one token have no decode step."""
    found = saturation(open_loop(GROWING, chunks=1), COST)
    assert found is not None
    assert found.prefill_share == 1.0


@pytest.mark.parametrize(
    "calm",
    [
        open_loop([0.2] * 40),
        open_loop([0.01 * i for i in range(40)]),
        open_loop(GROWING[:20]),
        open_loop([*GROWING[:-6], 1.5, 1.2, 0.9, 0.6, 0.3, 0.1]),
        replace(open_loop(GROWING), load=Load(concurrency=4, rate_per_s=None)),
        replace(open_loop(GROWING), requests=None),
    ],
)
def test_a_server_that_keeps_up_is_left_alone(calm: Run) -> None:
    """Few requests, short waits, a queue that drained before the end, or a closed loop."""
    assert saturation(calm, COST) is None


def test_what_is_said_depends_on_what_the_time_goes_into() -> None:
    """Drafts shorten decoding, and nothing else."""
    assert "Prefill takes 87% of step time, drafts cannot help with that" in saturation_text(Saturation(1.0, 20.0, 0.87))
    assert "drafts shorten only the rest" in saturation_text(Saturation(1.0, 20.0, 0.3))
