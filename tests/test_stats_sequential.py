"""Looking at every moment: the interval holds at all of them, and the test stops early where the answer is clear."""

from math import inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as distributions

from paceline.errors import BadInputError, NoEvidenceError
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.paired import TwoArms
from paceline.stats.sequential import SequentialDesign, anytime_acceptance, anytime_reach, anytime_speedup, look
from paceline.verdict import Claim, Estimate, Holds

DESIGN = SequentialDesign(fixed_requests=100, confidence=0.95, power=0.9)
CLAIM = Claim(metric="speedup", at_most=None, at_least=1.05, segment=None)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def drafted(n: int, seed: int = 1) -> list[AcceptanceCounts]:
    """Requests of 10 to 100 drafts, K = 3, each with an acceptance of its own around .6."""
    generator = rng(seed)
    drafts = generator.integers(10, 101, size=n)
    accepted = generator.binomial(3 * drafts, generator.beta(6, 4, size=n))
    return [
        AcceptanceCounts(steps=None, drafts=int(d), drafted_tokens=int(3 * d), accepted_tokens=int(a), accepted_per_position=None)
        for d, a in zip(drafts, accepted, strict=True)
    ]


def pairs(n: int, *, speedup: float, seed: int = 1) -> TwoArms:
    base = rng(seed).lognormal(0, 0.2, size=n)
    return TwoArms(baseline=base, speculative=base * np.exp(0.2 * rng(seed + 1).normal(size=n)) / speedup, paired=True)


def test_the_interval_reaches_where_the_mixture_s_bet_has_won_40_to_1() -> None:
    """By numerical integration over λ ~ N(μ, (μ / 4)²): the walk at the boundary wins 1 / .025. Student's factor then widens it."""
    mu = (distributions.norm.ppf(0.975) + distributions.norm.ppf(0.9)) / 10
    assert DESIGN.effect == pytest.approx(mu)
    n = 80
    (critical,) = DESIGN.critical(np.array([float(n)]), degrees=np.array([n - 1.0]))
    walk = distributions.norm.isf(distributions.t.sf(critical, n - 1)) * sqrt(n)
    at = np.linspace(mu - 4 * mu, mu + 4 * mu, 20_001)
    won = np.exp(at * walk - at**2 * n / 2) * distributions.norm.pdf(at, mu, 0.25 * mu)
    assert np.trapezoid(won, at) == pytest.approx(40, rel=1e-3)
    assert critical > walk / sqrt(n)


@given(st.integers(8, 400), st.floats(-0.9, 0.9))
@settings(max_examples=20)
def test_one_look_is_the_last_of_all_looks(n: int, power: float) -> None:
    """A tool that looks once and one that plots every moment must agree, whatever the units."""
    arms = pairs(n, speedup=1.3, seed=n)
    scale = 10**power
    found = anytime_speedup(TwoArms(baseline=scale * arms.baseline, speculative=scale * arms.speculative, paired=True), design=DESIGN)
    values, below, _ = anytime_reach(np.stack([arms.baseline] * 2), np.stack([arms.speculative] * 2), design=DESIGN)
    assert values.shape == (2, n)
    assert found.value == pytest.approx(values[1, -1])
    assert found.low is None or log(found.low / found.value) == pytest.approx(-below[1, -1] / values[1, -1])


def test_the_interval_is_wider_than_one_that_is_looked_at_once_and_closes() -> None:
    """What may be looked at always costs half as much again; more requests must still tell more."""
    arms = pairs(3000, speedup=1.3)
    _, below, above = anytime_reach(arms.baseline, arms.speculative, design=DESIGN)
    errors = arms.baseline - arms.baseline.sum() / arms.speculative.sum() * arms.speculative
    once = 1.96 * errors.std() / arms.speculative.mean() / sqrt(3000)
    assert 1.3 < (below[-1] + above[-1]) / 2 / once < 2.5
    assert above[100] > above[1000] > above[2999]


def test_skew_lengthens_the_side_it_leans_to() -> None:
    """Rare slow requests are what a mean of few has not seen yet."""
    skewed = 1 + rng().exponential(size=60)
    _, below, above = anytime_reach(skewed, np.ones(60), design=DESIGN)
    assert above[-1] > 1.1 * below[-1]
    _, below, above = anytime_reach(10 - skewed, np.ones(60), design=DESIGN)
    assert below[-1] > 1.1 * above[-1]


def test_few_requests_have_a_value_and_no_interval() -> None:
    """Seven requests must not stop a test."""
    assert anytime_speedup(pairs(7, speedup=1.3), design=DESIGN).low is None
    assert anytime_acceptance(drafted(7), design=DESIGN).high is None
    values, below, _ = anytime_reach(np.r_[0.0, np.ones(8)], np.r_[0.0, np.ones(8)], design=DESIGN)
    assert (values[0], below[0], below[6], below[-1]) == (0, inf, inf, 0)


def test_an_end_too_far_off_is_unknown() -> None:
    """e^400 times is not a speed-up."""
    one_slow = TwoArms(baseline=np.r_[np.full(7, 1e-6), 1.0], speculative=np.ones(8), paired=True)
    found = anytime_speedup(one_slow, design=DESIGN)
    assert found.low is not None
    assert found.high is None
    patient = SequentialDesign(fixed_requests=100_000, confidence=0.95, power=0.9)
    found = anytime_speedup(pairs(8, speedup=1.3), design=patient)
    assert (found.low, found.high) == (None, None)


def test_one_long_request_among_short_ones_is_not_eight() -> None:
    """α of a long document and of nine greetings is α of the document."""
    one = AcceptanceCounts(steps=None, drafts=1000, drafted_tokens=3000, accepted_tokens=1500, accepted_per_position=None)
    assert anytime_acceptance([*drafted(9), one], design=DESIGN).low is None
    assert anytime_acceptance(drafted(20), design=DESIGN).low is not None


def test_acceptance_stays_within_0_and_1_and_without_spread_has_no_ends() -> None:
    """A draft that never fits gives α = 0 in every request: there is nothing to judge the rest by."""
    found = anytime_acceptance(drafted(300), design=DESIGN)
    assert found.low is not None
    assert found.high is not None
    assert 0.5 < found.low < found.value < found.high < 0.7
    never = AcceptanceCounts(steps=None, drafts=9, drafted_tokens=27, accepted_tokens=0, accepted_per_position=None)
    same = anytime_acceptance([never] * 30, design=DESIGN)
    assert (same.value, same.low, same.high) == (0, None, None)
    with pytest.raises(NoEvidenceError):
        anytime_acceptance([], design=DESIGN)


def test_pairs_that_all_halve_are_decided_at_once() -> None:
    """No spread, no doubt."""
    base = rng().lognormal(0, 0.2, size=12)
    found = anytime_speedup(TwoArms(baseline=base, speculative=base / 2, paired=True), design=DESIGN)
    assert (found.low, found.value, found.high) == pytest.approx((2, 2, 2))


def test_strangers_and_timeless_arms_have_no_sequence() -> None:
    """Unpaired arms drift apart by their requests' lengths."""
    with pytest.raises(NoEvidenceError, match="pairs"):
        anytime_speedup(TwoArms(baseline=np.ones(9), speculative=np.ones(9), paired=False), design=DESIGN)
    with pytest.raises(NoEvidenceError, match="no time"):
        anytime_speedup(TwoArms(baseline=np.zeros(9), speculative=np.ones(9), paired=True), design=DESIGN)
    with pytest.raises(NoEvidenceError, match="denominator"):
        anytime_speedup(TwoArms(baseline=np.ones(9), speculative=np.zeros(9), paired=True), design=DESIGN)


def test_a_look_stops_when_decided_and_hard_at_twice_the_fixed_design() -> None:
    """A test that never ends is no test, and one that ends undecided says so."""
    assert DESIGN.most_requests == 200
    for low, high, n, holds, over in (
        (1.06, 1.3, 20, Holds.YES, True),
        (0.8, 1.04, 20, Holds.NO, True),
        (1.0, 1.3, 199, Holds.CANNOT_TELL, False),
        (1.0, 1.3, 200, Holds.CANNOT_TELL, True),
    ):
        found = look(CLAIM, Estimate(value=(low + high) / 2, low=low, high=high, confidence=0.95, n=n), design=DESIGN)
        assert (found.finding.holds, found.is_over) == (holds, over)


def test_a_design_follows_from_the_effect() -> None:
    """A plan for 5 % at a spread of .2: the fixed test's own size."""
    found = SequentialDesign.of_effect(effect=0.05, spread=0.2, confidence=0.95, power=0.8)
    assert (found.fixed_requests, found.most_requests) == (128, 256)
    for fixed, confidence, power in ((1, 0.95, 0.9), (100, 1.0, 0.9), (100, 0.95, 0.0)):
        with pytest.raises(BadInputError):
            SequentialDesign(fixed_requests=fixed, confidence=confidence, power=power)
