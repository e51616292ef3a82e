"""The gate on a test that was looked at while it ran: every interval holds at all looks together."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.gate import DEFAULT_POLICY, gate
from paceline.decide.looked import looked_estimate
from paceline.decide.measured import metric_estimate
from paceline.run import Run
from paceline.stats.looks import Looks, with_looks
from paceline.stats.paired import two_arms
from paceline.stats.sequential import anytime_acceptance, anytime_speedup
from paceline.verdict import Claim, Decision, Estimate, Holds
from tests.strategies_runs import pair, summaries_only

LOOKS = Looks(taken=2, planned=7, most_requests=400, decision=Decision.CANNOT_TELL)
SPEEDUP = Claim(metric="speedup", at_most=None, at_least=1.05, segment=None)


def looked(name: str, arms: tuple[Run, Run], *, segment: str | None = None) -> Estimate:
    return looked_estimate(name, *arms, looks=LOOKS, segment=segment, confidence=0.95, rng=np.random.default_rng(1))


def fixed(name: str, arms: tuple[Run, Run], confidence: float) -> Estimate:
    return metric_estimate(name, *arms, segment=None, confidence=confidence, rng=np.random.default_rng(1))


def test_speed_up_and_acceptance_have_their_confidence_sequences() -> None:
    """An ordinary interval that is looked at seven times is wrong far more often than it says."""
    arms, design = pair(n=120, step_s=0.012), LOOKS.design(confidence=0.95, power=0.9)
    assert looked("speedup", arms) == anytime_speedup(two_arms(*arms, latency="tpot_s", segment=None), design=design)
    counted = [each.acceptance for each in arms[1].finished if each.acceptance is not None]
    assert looked("alpha", arms) == anytime_acceptance(counted, design=design)
    of_code = [each.acceptance for each in arms[1].finished if each.acceptance is not None and each.segment == "code"]
    assert looked("alpha", arms, segment="code") == anytime_acceptance(of_code, design=design)


@pytest.mark.parametrize("name", ["tpot_p50.ratio", "tokens_per_step", "alpha_above_break_even"])
def test_other_figures_have_one_look_s_share_of_the_error(name: str) -> None:
    """Seven looks, each at 1 − .05 / 7."""
    arms = pair(n=120, step_s=0.012)
    assert looked(name, arms) == replace(fixed(name, arms, 1 - 0.05 / 7), confidence=0.95)


def test_arms_without_pairs_or_requests_share_the_error_too() -> None:
    """Strangers have no sequence, and a dump has no requests."""
    baseline, speculative = pair(n=60, step_s=0.012)
    strangers = replace(speculative, requests=tuple(replace(each, id=f"x{each.id}") for each in speculative.requests or ()))
    assert looked("speedup", (baseline, strangers)).low == fixed("speedup", (baseline, strangers), 1 - 0.05 / 7).low
    totals = (
        summaries_only(baseline.arm, step_s=0.01, counts=None),
        summaries_only(speculative.arm, step_s=0.012, counts=speculative.acceptance),
    )
    assert looked("alpha", totals).low is None
    undrafted = replace(speculative, requests=tuple(replace(each, acceptance=None) for each in speculative.requests or ()))
    assert looked("alpha", (baseline, undrafted)).low is None


def test_the_gate_says_that_it_was_looked_at_and_is_slower_to_ship() -> None:
    """What a fixed test may ship, one that was looked at seven times may not yet."""
    arms = pair(n=24, step_s=0.0195)
    value = fixed("speedup", arms, 0.95)
    assert value.low is not None
    bound = (value.low + (looked("speedup", arms).low or 0)) / 2
    policy = replace(DEFAULT_POLICY, claims=(replace(SPEEDUP, at_least=bound),))
    once = gate(*arms, policy=policy, rng=np.random.default_rng(1))
    seven = gate(*(with_looks(each, LOOKS) for each in arms), policy=policy, rng=np.random.default_rng(1))
    assert once.findings[0].holds is Holds.YES
    assert seven.findings[0].holds is Holds.CANNOT_TELL
    told = next(each for each in seven.warnings if each.code == "looked_at_early")
    assert "2 of 7 times, 400 requests per arm at most" in told.message
    assert seven.alpha == looked("alpha", arms)
    assert not any(each.code == "looked_at_early" for each in once.warnings)


def test_a_p99_that_was_looked_at_needs_more_requests_and_the_gate_says_how_many() -> None:
    """At 1 − .05 / 7 a P99 is bounded from 561 requests on, not from 368."""
    tail = Claim(metric="ttft_p99_s", at_most=0.5, at_least=None, segment=None)
    policy = replace(DEFAULT_POLICY, claims=(tail,))
    found = gate(*(with_looks(each, LOOKS) for each in pair(n=60)), policy=policy, rng=np.random.default_rng(1))
    assert "(561 in all)" in found.findings[0].why
