"""Blocks in turns: order and drift are told apart from what drafting does."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import BadInputError, NoEvidenceError
from paceline.run import Outcome, Run
from paceline.stats.blocks import BlockPair, block_effects, block_pairs, blocks_stated
from tests.strategies_runs import pair

CONFIDENCE = 0.95


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def block_pair(
    generator: np.random.Generator,
    *,
    second: bool,
    n: int = 60,
    speedup: float = 1.5,
    carried: float = 1.0,
    levels: tuple[float, float] = (1.0, 1.0),
) -> BlockPair:
    """Requests that differ, times that scatter by a tenth; the block that comes second takes `carried` times as long."""
    length = generator.lognormal(0, 0.3, size=n)
    noise = np.exp(0.1 * generator.normal(size=(2, n)))
    factors = (levels[0] * (1.0 if second else carried), levels[1] * (carried if second else 1.0) / speedup)
    return BlockPair(baseline=length * noise[0] * factors[0], speculative=length * noise[1] * factors[1], speculative_second=second)


def stating(run: Run, text: str) -> Run:
    return replace(run, provenance=replace(run.provenance, arguments={**run.provenance.arguments, "blocks": text}))


def test_what_the_first_block_leaves_behind_is_no_speed_up() -> None:
    """Blocks that come second take 1.2 times as long: a baseline that always came first would hide a sixth of the gain."""
    pairs = [block_pair(rng(i), second=i % 2 == 0, carried=1.2) for i in range(4)]
    found = block_effects(pairs, confidence=CONFIDENCE)
    assert found.order is not None
    assert found.speedup.value == pytest.approx(1.5, rel=0.03)
    assert found.order.value == pytest.approx(1.2, rel=0.03)
    assert (found.order.low or 0) > 1.1
    one_sided = block_effects([each for each in pairs if each.speculative_second], confidence=CONFIDENCE)
    assert one_sided.order is None
    assert (one_sided.speedup.high or 0) < 1.4


def test_a_worked_crossover() -> None:
    """Ratios of 1.2 second and 1.8 first, without noise: speed-up √(1.2 · 1.8), order √(1.8 / 1.2)."""
    pairs = [
        BlockPair(baseline=np.full(8, 1.2), speculative=np.ones(8), speculative_second=True),
        BlockPair(baseline=np.full(8, 1.8), speculative=np.ones(8), speculative_second=False),
    ]
    found = block_effects(pairs, confidence=CONFIDENCE)
    assert found.order is not None
    assert (found.speedup.value, found.order.value) == pytest.approx((np.sqrt(1.2 * 1.8), np.sqrt(1.8 / 1.2)))
    assert (found.disagreement, found.blocks_disagree, found.speedup.n) == (None, False, 16)


def test_a_machine_that_slows_down_evenly_is_told_and_is_no_speed_up() -> None:
    """Eight blocks, each 3 % slower than the one before."""
    pairs = []
    for i in range(4):
        early, late = 1.03 ** (2 * i), 1.03 ** (2 * i + 1)
        second = i % 2 == 0
        pairs.append(block_pair(rng(i), second=second, n=200, levels=(early, late) if second else (late, early)))
    found = block_effects(pairs, confidence=CONFIDENCE)
    assert found.drift is not None
    assert found.drift.value == pytest.approx(1.03**6, rel=0.06)
    assert (found.drift.low or 0) > 1
    assert found.speedup.value == pytest.approx(1.5, rel=0.02)
    assert block_effects(pairs[:1], confidence=CONFIDENCE).drift is None


def test_blocks_that_disagree_count_as_blocks_and_not_as_requests() -> None:
    """Another tenant in one block of four makes 240 requests look like certainty."""
    pairs = [block_pair(rng(i), second=i % 2 == 0, levels=(1.0, 1.5 if i == 3 else 1.0)) for i in range(4)]
    found = block_effects(pairs, confidence=CONFIDENCE)
    assert found.blocks_disagree
    assert found.speedup.n == 4
    assert (found.speedup.low or 9) < 1.0
    even = block_effects(pairs[:3], confidence=CONFIDENCE)
    assert not even.blocks_disagree
    assert even.speedup.n == 180


def test_two_pairs_of_opposite_blocks_far_apart_bound_nothing() -> None:
    """Student's factor of one degree of freedom on a huge scatter is no interval."""
    pairs = [block_pair(rng(i), second=True, levels=(1.0, 50.0**i)) for i in range(2)]
    found = block_effects(pairs, confidence=CONFIDENCE)
    assert found.blocks_disagree
    assert (found.speedup.low, found.speedup.high) == (None, None)


def test_intervals_of_blocks_hold_the_truth_as_often_as_they_say() -> None:
    """With order and drift in the data. 200 repetitions, fixed seed; true coverage is about .95."""
    generator, held = rng(7), np.zeros(2)
    for _ in range(200):
        pairs = [block_pair(generator, second=i % 2 == 0, n=40, carried=1.1, levels=(1.02**i, 1.02**i)) for i in range(4)]
        found = block_effects(pairs, confidence=CONFIDENCE)
        assert found.order is not None
        for place, (each, truth) in enumerate(((found.speedup, 1.5), (found.order, 1.1))):
            held[place] += (each.low or 0) <= truth <= (each.high or np.inf)
    assert (held / 200 > 0.9).all()
    assert (held / 200 < 1).all()


def test_too_little_of_a_block_is_no_block() -> None:
    """Seven requests have no spread to judge by."""
    with pytest.raises(NoEvidenceError, match="8 requests"):
        block_effects([block_pair(rng(), second=True, n=7)], confidence=CONFIDENCE)
    with pytest.raises(NoEvidenceError, match="8 requests"):
        block_effects([], confidence=CONFIDENCE)
    with pytest.raises(NoEvidenceError, match="no time"):
        block_effects([BlockPair(baseline=np.zeros(8), speculative=np.ones(8), speculative_second=True)], confidence=CONFIDENCE)


def test_a_run_says_which_block_its_requests_came_from() -> None:
    """Order can only be taken out where it is known."""
    baseline, speculative = (stating(each, text) for each, text in zip(pair(n=20), ("0:10,3:10", "1:10,2:4,2:6"), strict=True))
    assert blocks_stated(speculative) == ((1, 10), (2, 4), (2, 6))
    assert speculative.requests is not None
    failed = (replace(speculative.requests[0], outcome=Outcome.FAILED), *speculative.requests[1:])
    first, second = block_pairs(baseline, replace(speculative, requests=failed), latency="tpot_s", segment=None)
    assert (first.baseline.size, first.speculative_second) == (9, True)
    assert (second.speculative.size, second.speculative_second) == (10, False)
    found = block_effects((first, second), confidence=CONFIDENCE)
    assert found.order is not None


def test_requests_of_one_token_have_no_pace_and_are_left_out() -> None:
    """A pair without a latency on one side is no pair."""
    baseline, speculative = (stating(each, "0:20") for each in pair(n=20))
    assert baseline.requests is not None
    one = baseline.requests[0]
    short = replace(
        one, output_tokens=1, timing=replace(one.timing, chunk_at_s=one.timing.chunk_at_s[:1], chunk_tokens=one.timing.chunk_tokens[:1])
    )
    (only,) = block_pairs(replace(baseline, requests=(short, *baseline.requests[1:])), speculative, latency="tpot_s", segment=None)
    assert only.baseline.size == 19


@pytest.mark.parametrize("text", ["0:10", "0-20", "a:20", "0:10,:10", "0:²0", ""])
def test_blocks_that_do_not_fit_the_requests_are_refused(text: str) -> None:
    """A wrong count shifts every request into its neighbour's block."""
    with pytest.raises(BadInputError, match="blocks"):
        blocks_stated(stating(pair(n=20)[0], text))


def test_runs_without_blocks_or_twins_have_no_block_effects() -> None:
    """Silence is not balance."""
    baseline, speculative = pair(n=20)
    with pytest.raises(NoEvidenceError, match="which block"):
        blocks_stated(baseline)
    strangers = replace(speculative, requests=tuple(replace(each, id=f"x{each.id}") for each in speculative.requests or ()))
    with pytest.raises(NoEvidenceError, match="same requests"):
        block_pairs(stating(baseline, "0:20"), stating(strangers, "1:20"), latency="tpot_s", segment=None)
