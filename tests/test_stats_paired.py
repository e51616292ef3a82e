"""Two arms compared: worked ratios, pairing, and how many requests it takes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as distributions

from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Arm, Outcome
from paceline.stats.intervals import quantile_interval
from paceline.stats.paired import (
    TwoArms,
    combined_ratio,
    gap_quantile_ratio,
    mean_ratio,
    minimum_detectable_effect,
    quantile_ratio,
    request_pairs,
    requests_needed,
    requests_to_bound_quantile,
    requests_to_settle,
    same_requests,
    speedup_spread,
    two_arms,
)
from paceline.verdict import Estimate
from tests.strategies_runs import pair, run


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def estimate(value: float, low: float | None, high: float | None, n: int = 100) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.95, n=n)


def test_the_same_requests_are_compared_in_pairs() -> None:
    """Unpaired, the spread of lengths would hide a gain that every single request shows."""
    baseline, speculative = pair(n=40)
    arms = two_arms(baseline, speculative, latency="tpot_s", segment=None)
    assert arms.paired
    assert arms.n == 40
    assert same_requests(baseline, speculative)
    assert {each.segment for each, _ in request_pairs(baseline, speculative, segment="chat")} == {"chat"}


def test_other_requests_are_compared_as_groups() -> None:
    """Request 5 of one log is not request 5 of another; ids that agree by chance must differ in their prompts."""
    baseline = run(Arm.BASELINE, n=40, step_s=0.01, alphas={"all": 0.5})
    other_ids = run(Arm.SPECULATIVE, n=40, step_s=0.01, alphas={"all": 0.5}, prefix="x")
    other_prompts = run(Arm.SPECULATIVE, n=40, step_s=0.01, alphas={"all": 0.5})
    assert other_prompts.requests is not None
    moved = replace(other_prompts, requests=tuple(replace(each, prompt_tokens=7) for each in other_prompts.requests))
    for each in (other_ids, moved):
        assert not same_requests(baseline, each)
        assert not two_arms(baseline, each, latency="tpot_s", segment=None).paired


def test_doubled_ids_name_nobody() -> None:
    """A client that numbers from 0 in every block would pair strangers."""
    baseline, speculative = pair(n=20)
    assert speculative.requests is not None
    doubled = replace(speculative, requests=speculative.requests[:19] + speculative.requests[:1])
    assert request_pairs(baseline, doubled, segment=None) == ()


def test_an_empty_arm_has_no_comparison() -> None:
    """A crashed server finishes nothing, and nothing is not a tie."""
    baseline, speculative = pair(n=10)
    assert speculative.requests is not None
    failed = replace(speculative, requests=tuple(replace(each, outcome=Outcome.FAILED) for each in speculative.requests))
    with pytest.raises(NoEvidenceError, match="no finished request"):
        two_arms(baseline, failed, latency="tpot_s", segment=None)


def test_twice_as_fast_in_every_pair_is_exactly_2() -> None:
    """Paired requests that all halve leave no doubt, whatever their lengths."""
    base = rng().lognormal(size=50)
    found = mean_ratio(base, base / 2, paired=True, confidence=0.95, rng=rng())
    assert found.value == pytest.approx(2)
    assert (found.low, found.high) == (found.value, found.value)


def test_unpaired_means_agree_with_the_delta_method() -> None:
    """Independent arms must not borrow the certainty of pairs."""
    a, b = rng(2).gamma(9, size=200), rng(3).gamma(9, size=300)
    found = mean_ratio(a, b, paired=False, confidence=0.95, rng=rng())
    width = 1.96 * np.hypot(a.std() / a.mean() / np.sqrt(200), b.std() / b.mean() / np.sqrt(300))
    assert found.n == 200
    assert found.low == pytest.approx(found.value * np.exp(-width), rel=0.02)
    assert found.high == pytest.approx(found.value * np.exp(width), rel=0.02)


def test_unpaired_means_without_spread_size_or_time() -> None:
    """Constant arms are known exactly, tiny ones not at all, timeless ones have no ratio."""
    assert mean_ratio(np.full(9, 4.0), np.full(9, 2.0), paired=False, confidence=0.95, rng=rng()) == estimate(2.0, 2.0, 2.0, n=9)
    assert mean_ratio(np.arange(1.0, 8), np.arange(1.0, 8), paired=False, confidence=0.95, rng=rng()).low is None
    for bad in (np.zeros(9), np.empty(0)):
        with pytest.raises(NoEvidenceError):
            mean_ratio(bad, np.ones(9), paired=False, confidence=0.95, rng=rng())


def test_an_unpaired_outlier_may_leave_the_end_unknown() -> None:
    """Draws that miss the one slow request have no spread: they must widen the interval, not narrow it."""
    found = mean_ratio(np.r_[np.ones(8), 50.0], np.ones(9), paired=False, confidence=0.95, rng=rng())
    assert found.high is None
    assert found.low is not None


@pytest.mark.parametrize("paired", [True, False])
def test_percentile_ratios_hold_the_truth_at_least_as_often_as_they_say(paired: bool) -> None:
    """A gate on P99 that is wrong one time in five is no gate. 300 repetitions, fixed seed; true coverage is about 0.98."""
    generator, held, z = rng(4), 0, distributions.norm.ppf(0.99)
    for _ in range(300):
        shared = generator.normal(size=400)
        base = np.exp(0.3 * shared)
        other = shared if paired else generator.normal(size=400)
        spec = 0.5 * np.exp(0.2 * other + 0.2 * generator.normal(size=400))
        found = quantile_ratio(spec, base, 0.99, paired=paired, confidence=0.95)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.5 * np.exp(z * (np.sqrt(0.08) - 0.3)) <= found.high
    assert held >= 0.94 * 300


def test_pairs_that_rise_together_have_a_shorter_interval() -> None:
    """What slows both arms alike must not hide what drafting does; arms that have nothing in common gain nothing from being paired."""
    shared, apart = rng(1).normal(size=1000), rng(2).normal(size=1000)
    base = np.exp(0.3 * shared)
    ends = []
    for other, paired in ((shared, True), (shared, False), (apart, True), (-shared, True), (apart, False)):
        found = quantile_ratio(np.exp(0.3 * other + 0.02 * rng(3).normal(size=1000)), base, 0.5, paired=paired, confidence=0.95)
        assert found.low is not None
        assert found.high is not None
        ends.append(found.high / found.low)
    assert ends[0] < 1.02 < 1.05 < ends[1]
    assert ends[2] == pytest.approx(ends[4], rel=0.01)
    assert ends[3] > 1.05


def test_identical_pairs_have_the_percentile_ratio_1_without_doubt() -> None:
    """Pairs must be compared whole: apart, equal arms would seem uncertain."""
    base = rng().exponential(size=400)
    same = quantile_ratio(base, base, 0.99, paired=True, confidence=0.95)
    apart = quantile_ratio(base, base, 0.99, paired=False, confidence=0.95)
    assert (same.low, same.value, same.high) == (1, 1, 1)
    assert apart.low is not None
    assert apart.low < 0.95


def test_too_few_requests_bound_no_percentile() -> None:
    """A P99 of 367 requests may lie beyond their maximum with more than a fortieth."""
    values, others = rng().exponential(size=368), rng(2).exponential(size=368)
    assert quantile_ratio(values, others, 0.99, paired=True, confidence=0.95).high is not None
    few = quantile_ratio(values[:367], others[:367], 0.99, paired=True, confidence=0.95)
    assert (few.low, few.high) == (None, None)
    with pytest.raises(NoEvidenceError, match="quantile is 0"):
        quantile_ratio(np.ones(20), np.r_[np.zeros(19), 1.0], 0.5, paired=True, confidence=0.95)


def test_a_baseline_that_is_mostly_zero_leaves_the_upper_end_unknown() -> None:
    """Dividing by an end of zero bounds nothing; equal values say nothing of what pairs share."""
    mostly = np.r_[np.zeros(7), np.full(8, 1e-300)]
    assert quantile_ratio(np.full(15, 1.0), mostly, 0.5, paired=False, confidence=0.9).high is None
    assert quantile_ratio(np.full(15, 1.0), mostly, 0.5, paired=True, confidence=0.9).high is None


def test_visible_gaps_grow_with_the_step_even_when_pace_improves() -> None:
    """Peers' clients gave opposite answers to this one question."""
    baseline, speculative = pair(n=60, step_s=0.012)
    found = gap_quantile_ratio(baseline, speculative, 0.99, segment=None, confidence=0.95)
    assert found.value == pytest.approx(1.2, rel=0.01)
    assert found.low is not None
    assert found.low > 1.15


def test_independent_estimates_divide_with_their_distances_in_squares() -> None:
    """2 in [1, 4] over 1 in [½, 2]: both ends lie a factor 2 off, so the ratio's lie exp(√2 · ln 2) off."""
    found = combined_ratio(estimate(2, 1, 4, n=50), estimate(1, 0.5, 2))
    factor = np.exp(np.sqrt(2) * np.log(2))
    assert (found.value, found.low, found.high, found.n) == pytest.approx((2, 2 / factor, 2 * factor, 50))


def test_an_unknown_or_zero_end_stays_unknown() -> None:
    """A made-up end would decide claims."""
    found = combined_ratio(estimate(2, 0, None), estimate(1, 0.5, 2))
    assert (found.low, found.high) == (None, None)
    with pytest.raises(NoEvidenceError):
        combined_ratio(estimate(2, 1, 4), estimate(0, 0, 1))


def test_368_requests_bound_the_99th_percentile() -> None:
    """1 − 0.99^368 = 0.97524 leaves less than a fortieth above the largest, one fewer does not."""
    assert requests_to_bound_quantile(0.99, confidence=0.95) == 368
    assert requests_to_bound_quantile(0.5, confidence=0.5) == 2
    assert requests_to_bound_quantile(0.5, confidence=0.1) == 2
    assert requests_to_bound_quantile(0.2, confidence=0.1) == 1
    with pytest.raises(BadInputError):
        requests_to_bound_quantile(1.0, confidence=0.95)
    for n in (367, 368):
        assert (quantile_interval(rng().normal(size=n), 0.99, confidence=0.95).high is not None) == (n == 368)


@given(st.floats(0.5, 0.999), st.floats(0.5, 0.999))
def test_the_fewest_requests_are_the_fewest(q: float, confidence: float) -> None:
    """One request more than needed is paid for on every point of every plan."""
    n = requests_to_bound_quantile(q, confidence=confidence)
    assert q**n <= (1 - confidence) / 2
    assert n == 1 or q ** (n - 1) > (1 - confidence) / 2


def test_a_paired_effect_of_5_percent_at_a_spread_of_a_fifth_needs_128_requests() -> None:
    """((1.96 + 0.84) · 0.2 / 0.05)² = 125.6; Student's t asks for two more."""
    assert requests_needed(effect=0.05, spread=0.2, confidence=0.95, power=0.8) == 128
    assert requests_needed(effect=0.05, spread=0.0, confidence=0.95, power=0.8) == 2
    assert requests_needed(effect=1e-9, spread=1.0, confidence=0.95, power=0.8) == 10_000_000
    with pytest.raises(BadInputError):
        requests_needed(effect=0.0, spread=0.2, confidence=0.95, power=0.8)


@given(st.floats(0.01, 0.5), st.floats(0.05, 1))
def test_the_needed_requests_detect_the_effect_they_were_computed_for(effect: float, spread: float) -> None:
    """Sample size and detectable effect must be each other's inverse."""
    n = requests_needed(effect=effect, spread=spread, confidence=0.95, power=0.8)
    assert minimum_detectable_effect(n=n, spread=spread, confidence=0.95, power=0.8) <= effect * (1 + 1e-9)
    with pytest.raises(BadInputError):
        minimum_detectable_effect(n=1, spread=spread, confidence=0.95, power=0.8)


def test_a_pilot_gives_the_spread_of_its_pairs() -> None:
    """Times of e^0.1 and e^−0.1 in turn lie tanh 0.1 off their mean (times √(n/(n−1)))."""
    base = np.ones(100)
    spec = np.exp(np.tile([0.1, -0.1], 50))
    assert speedup_spread(TwoArms(baseline=base, speculative=spec, paired=True)) == pytest.approx(np.tanh(0.1) * np.sqrt(100 / 99))
    assert speedup_spread(TwoArms(baseline=5 * base, speculative=base, paired=True)) == 0
    for paired, n in ((False, 100), (True, 7)):
        with pytest.raises(NoEvidenceError, match="at least 8"):
            speedup_spread(TwoArms(baseline=base[:n], speculative=spec[:n], paired=paired))


def test_the_spread_of_a_pilot_foretells_the_interval() -> None:
    """A plan that counts on narrower intervals than come out ends without an answer. Half-width 1.96 · spread / √n."""
    base = np.exp(0.4 * rng(1).normal(size=900))
    spec = base * np.exp(0.3 * rng(2).normal(size=900))
    found = mean_ratio(base, spec, paired=True, confidence=0.95, rng=rng())
    assert found.high is not None
    half = 1.96 * speedup_spread(TwoArms(baseline=base, speculative=spec, paired=True)) / 30
    assert np.log(found.high / found.value) == pytest.approx(half, rel=0.1)


def test_requests_to_settle_grow_with_the_square_of_the_distance() -> None:
    """1.10 in [1.00, 1.20] against 1.05 at half power needs (0.1 / 0.05)² = 4 times the requests."""
    assert requests_to_settle(estimate(1.10, 1.00, 1.20), 1.05, power=0.5) == 400
    assert requests_to_settle(estimate(1.00, 0.9, 1.20), 1.10, power=0.5) == 400
    assert (requests_to_settle(estimate(1.10, 1.00, 1.20), 1.05, power=0.8) or 0) > 800


def test_what_no_number_of_requests_settles_has_no_number() -> None:
    """Asking for ten billion requests is no advice."""
    assert requests_to_settle(estimate(1.05, 1.00, 1.20), 1.05, power=0.8) is None
    assert requests_to_settle(estimate(1.1, None, 1.20), 1.05, power=0.8) is None
    assert requests_to_settle(estimate(1.0500001, 1.00, 1.20), 1.05, power=0.8) is None
    assert requests_to_settle(estimate(1.1, 1.0, 1.2, n=0), 1.05, power=0.8) is None
