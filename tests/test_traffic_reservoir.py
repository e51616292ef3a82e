"""A uniform sample and pooled groups of a stream that is too long to keep."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.speculation.counts import AcceptanceCounts
from paceline.traffic.reservoir import Groups, Reservoir


def counts(steps: int) -> AcceptanceCounts:
    """A request without drafts: only its steps count."""
    return AcceptanceCounts(steps=steps, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=())


def test_what_fits_is_kept_in_order() -> None:
    """A short log that is shuffled would lose its conversation order."""
    kept: Reservoir[int] = Reservoir(3, rng=np.random.default_rng(1))
    for i in range(3):
        kept.offer(i)
    assert kept.kept == (0, 1, 2)
    assert not kept.is_sample
    kept.offer(3)
    assert len(kept.kept) == 3
    assert kept.is_sample


def test_every_item_has_the_same_chance() -> None:
    """A sample of the log's beginning is a sample of last month. 4,000 draws of 5 of 20: each item is kept 1,000 times give or take 27;
    six of those are missed once in a hundred million.
    """
    rng = np.random.default_rng(7)
    times = np.zeros(20)
    for _ in range(4000):
        kept: Reservoir[int] = Reservoir(5, rng=rng)
        for i in range(20):
            kept.offer(i)
        assert len(set(kept.kept)) == 5
        times[list(kept.kept)] += 1
    assert np.abs(times - 1000).max() < 6 * np.sqrt(4000 * 0.25 * 0.75)


def test_one_seed_gives_one_sample() -> None:
    """Two readers of one log must simulate the same requests."""

    def drawn() -> tuple[int, ...]:
        kept: Reservoir[int] = Reservoir(4, rng=np.random.default_rng(3))
        for i in range(100):
            kept.offer(i)
        return kept.kept

    assert drawn() == drawn()


@settings(max_examples=50)
@given(steps=st.lists(st.integers(1, 9), max_size=40), most=st.integers(1, 7))
def test_groups_lose_nothing_and_stay_even(steps: list[int], most: int) -> None:
    """A group of thousands beside groups of one would be most of an interval by itself."""
    groups, ones = Groups(most), Groups(most)
    for each in steps:
        groups.add(counts(each))
        ones.add(counts(1))
    assert sum(each.steps or 0 for each in groups.pooled) == sum(steps)
    sizes = [each.steps or 0 for each in ones.pooled]
    assert len(sizes) == min(most, len(steps))
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_few_requests_stay_by_themselves() -> None:
    """Pooling what need not be pooled throws independent units away."""
    groups = Groups(3)
    for i in (5, 6, 7):
        groups.add(counts(i))
    assert groups.pooled == (counts(5), counts(6), counts(7))
    groups.add(counts(1))
    assert groups.pooled == (counts(6), counts(6), counts(7))
