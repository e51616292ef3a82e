"""Quantiles of which only buckets are known."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import NoEvidenceError
from paceline.stats.histogram import bucket_quantile
from paceline.verdict import Estimate

EDGES = (0.01, 0.025, 0.05, 0.1, inf)


def told(counts: tuple[int, ...], q: float, *, independent: int | None = None, confidence: float = 0.95) -> Estimate:
    buckets = list(zip(EDGES, counts, strict=True))
    return bucket_quantile(buckets, q, independent=counts[-1] if independent is None else independent, confidence=confidence)


def test_a_quantile_far_from_the_edges_has_its_bucket_as_the_interval() -> None:
    """Of 1,000 values 100 are at most 25 ms and 900 at most 50: the median lies half way, and chance does not reach an edge."""
    found = told((0, 100, 900, 1000, 1000), 0.5)
    assert found.value == pytest.approx(0.0375)
    assert (found.low, found.high, found.n) == (0.025, 0.05, 1000)


def test_chance_may_reach_the_next_bucket() -> None:
    """460 of 1,000 lie below 25 ms: the true median may, too (order statistics 469 to 532 hold it), where 475 may not."""
    assert told((0, 460, 900, 1000, 1000), 0.5).low == 0.025
    assert told((0, 475, 900, 1000, 1000), 0.5).low == 0.01
    assert told((0, 100, 520, 1000, 1000), 0.5).high == 0.1


def test_what_lies_above_the_last_edge_is_unknown_and_below_the_first_from_0_on() -> None:
    """A P99 in the last bucket may be a minute."""
    found = told((0, 100, 900, 980, 1000), 0.99)
    assert (found.value, found.low, found.high) == (0.1, 0.1, None)
    assert told((900, 1000, 1000, 1000, 1000), 0.5).low == 0.0


def test_a_p99_has_an_upper_end_from_368_requests_on() -> None:
    """No histogram knows more than its requests: 300 of them do not bound a P99, however fine the buckets."""
    assert told((0, 0, 300, 300, 300), 0.99).high is None
    assert told((0, 0, 400, 400, 400), 0.99).high == 0.05


def test_many_values_of_few_requests_are_worth_the_requests() -> None:
    """10,000 steps of 50 requests are no 10,000 trials: 4,600 below 25 ms leave it open whether the median is."""
    counts = (0, 4600, 9000, 10000, 10000)
    assert told(counts, 0.5).low == 0.025
    assert told(counts, 0.5, independent=50).low == 0.01


def test_nothing_counted_has_no_quantile() -> None:
    """A server that served nobody has no latency of 0."""
    with pytest.raises(NoEvidenceError):
        told((0, 0, 0, 0, 0), 0.5)
    with pytest.raises(NoEvidenceError):
        bucket_quantile([], 0.5, independent=1, confidence=0.95)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=5, max_size=5).filter(any), st.sampled_from([0.5, 0.9, 0.99]))
def test_ends_are_edges_around_the_value(each: list[int], q: float) -> None:
    """An interval that misses its value is refused where it is made, and the verb ends in a traceback."""
    found = told(tuple(int(count) for count in np.cumsum(each)), q)
    assert found.low in (0.0, *EDGES)
    assert found.high is None or (found.high in EDGES and found.high >= found.value)


def test_it_holds_the_truth_at_least_as_often_as_it_says() -> None:
    """Log-normal paces around an edge, 400 repetitions, fixed seed: order statistics cover 95 %, whole buckets more."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(400):
        values = np.exp(np.log(0.025) + 0.02 + 0.3 * rng.normal(size=200))
        found = told(tuple(int((values <= edge).sum()) for edge in EDGES), 0.5)
        held += (found.low or 0) <= 0.025 * np.exp(0.02) <= (found.high or inf)
    assert held >= 380
