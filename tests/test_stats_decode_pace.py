"""Steps of decoding alone, told apart from steps that carry a prefill."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.latency import Ended, RequestTiming
from paceline.run import Arm, Outcome, RequestRecord, Run
from paceline.stats.decode_pace import decode_pace
from tests.strategies_runs import run, summaries_only


def request(id_: str, sent_at_s: float, chunk_at_s: list[float], prompt_tokens: int = 100) -> RequestRecord:
    """One token in each chunk."""
    at_s = np.array(chunk_at_s)
    timing = RequestTiming(sent_at_s, sent_at_s, at_s, np.ones(len(at_s), dtype=np.int64), Ended.LENGTH)
    return RequestRecord(id_, "all", prompt_tokens, len(at_s), timing, None, Outcome.FINISHED)


def made_of(*requests: RequestRecord) -> Run:
    """A run of just these."""
    return replace(run(Arm.BASELINE, n=1, step_s=1.0, alphas={"all": 0.5}), requests=requests)


def test_a_step_in_which_another_request_prefills_does_not_count() -> None:
    """Steps of 1 s, but 5 s in the one in which b prefills; c arrives last, and nothing after that counts."""
    steps = [*range(1, 61), *(65 + i for i in range(60)), 140]
    a = request("a", 0.0, [float(each) for each in steps])
    b = request("b", 60.0, [65.0 + i for i in range(60)], prompt_tokens=300)
    c = request("c", 124.5, [140.0, 141.0])
    found = decode_pace(made_of(a, b, c))
    assert found is not None
    assert found.step_s == pytest.approx(1.0)
    assert found.prompt_tokens == 167
    assert found.steps == pytest.approx((120 + 59 + 1) / 3)
    assert found.context_tokens == round((121 * (100 + 60.5) + 60 * 330 + 2 * 101) / 183)


def test_a_preempted_request_does_not_slow_the_step() -> None:
    """A wait of a minute among steps of a second would double the mean."""
    stalled = [float(each) for each in [*range(1, 61), *range(120, 181)]]
    found = decode_pace(made_of(request("a", 0.0, stalled), request("b", 180.0, [181.0, 182.0])))
    assert found is not None
    assert found.step_s == pytest.approx(1.0)


def test_too_few_steps_of_decoding_alone_are_no_pace() -> None:
    """At 256 in flight somebody always prefills."""
    found = decode_pace(made_of(request("a", 0.0, [1.0, 2.0, 3.0])))
    assert found is not None
    assert found.step_s is None


def test_a_run_without_steps_has_no_pace() -> None:
    """Aggregates, or answers of one token."""
    assert decode_pace(summaries_only(Arm.BASELINE, step_s=0.1, counts=None)) is None
    assert decode_pace(made_of(request("a", 0.0, [1.0]))) is None
