"""Break-even from acceptance that the server made up, and how it is told."""

import numpy as np
import pytest

from paceline.decide.synthetic import SyntheticPoint, break_even, synthetic_point
from paceline.report.synthetic import synthetic_dict, synthetic_text
from paceline.verdict import Estimate
from tests.strategies_runs import pair


def estimate(value: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.95, n=40)


def point(tokens: float, ratio: float, *, low: float | None = None, high: float | None = None) -> SyntheticPoint:
    """A length with K = 4, its ρ and ρ's ends."""
    return SyntheticPoint(
        asked=round(tokens, 1),
        tokens_per_step=tokens,
        drafted_per_step=4.0,
        step_time_ratio=estimate(ratio, low, high),
        speedup=estimate(tokens / ratio, None, None),
    )


def test_break_even_lies_where_tokens_per_step_equal_the_step_time_ratio() -> None:
    """E − ρ is −0.5 at 1 and +0.5 at 2, so 0 at 1.5; α = 0.5 / 4. ρ's ends are 0.1 lower and higher: 1.4 and 1.6."""
    found = break_even([point(2, 1.5, low=1.4, high=1.6), point(1, 1.5, low=1.4, high=1.6)])
    assert found.tokens_per_step is not None
    assert (found.tokens_per_step.value, found.tokens_per_step.low, found.tokens_per_step.high) == pytest.approx((1.5, 1.4, 1.6))
    assert found.alpha is not None
    assert (found.alpha.value, found.alpha.low, found.alpha.high) == pytest.approx((0.125, 0.1, 0.15))
    assert found.tokens_per_step.n == 40
    assert found.pays


def test_a_ratio_that_moves_is_followed_on_the_line() -> None:
    """Gains −0.2 at 1 and +0.6 at 2: a quarter of the way."""
    found = break_even([point(1, 1.2), point(2, 1.4)])
    assert found.tokens_per_step is not None
    assert found.tokens_per_step.value == pytest.approx(1.25)
    assert found.tokens_per_step.low is None, "nobody knows the ratio's ends"


@pytest.mark.parametrize(("ratio", "pays"), [(0.9, True), (5.5, False)])
def test_no_break_even_is_made_up_beyond_what_was_measured(ratio: float, pays: bool) -> None:
    """A figure that no measurement surrounds is a guess with three digits."""
    found = break_even([point(1, ratio), point(3, ratio)])
    assert (found.tokens_per_step, found.alpha, found.pays) == (None, None, pays)


def test_what_was_measured_is_taken_from_the_runs() -> None:
    """The told length is a wish; the counted one is what users got."""
    baseline, speculative = pair(n=40, step_s=0.012)
    found = synthetic_point(2.0, baseline, speculative, confidence=0.95, rng=np.random.default_rng(1))
    assert found.asked == 2.0
    assert found.tokens_per_step == pytest.approx(speculative.acceptance.tokens_per_step)
    assert found.drafted_per_step == pytest.approx(speculative.acceptance.drafted_tokens / (speculative.acceptance.steps or 0))
    assert found.speedup.value > 0


def test_the_text_says_first_that_it_is_synthetic_and_then_from_where_on_it_pays() -> None:
    """A table of speed-ups is pasted into a slide; its first line must go with it."""
    points = {1: [point(1, 0.9)], 8: [point(1, 1.5, low=1.4, high=1.6), point(2, 1.5, low=1.4, high=1.6)], 64: [point(3, 5.0)]}
    ends = {concurrency: break_even(each) for concurrency, each in points.items()}
    text = synthetic_text(points, ends)
    assert text.startswith("SYNTHETIC ACCEPTANCE")
    assert "at 1 in flight drafting pays at every length that was measured, from 1.00 tokens per step on" in text
    assert (
        "at 8 in flight drafting pays from 1.50 (1.40 to 1.60) tokens per step on, which is an acceptance rate of 0.125 (0.100 to 0.150)"
        in text
    )
    assert "at 64 in flight drafting pays at no length that was measured, up to 3.00 tokens per step" in text
    body = synthetic_dict(points, ends)
    assert body["synthetic"] is True
    assert [each["concurrency"] for each in body["by_concurrency"]] == [1, 8, 64]
    assert body["by_concurrency"][0]["break_even_tokens_per_step"] is None
    assert body["by_concurrency"][1]["break_even_alpha"]["value"] == pytest.approx(0.125)
    assert body["by_concurrency"][1]["lengths"][0]["step_time_ratio"]["low"] == 1.4
