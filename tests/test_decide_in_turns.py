"""Blocks in the gate: order effects, drifts and blocks that disagree, on runs whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.decide.gate import DEFAULT_POLICY, gate
from paceline.decide.in_turns import block_cautions, block_speedup
from paceline.decide.measured import metric_estimate
from paceline.errors import BadInputError
from paceline.latency import Detail, Ended, RequestTiming
from paceline.run import Arm, Run
from paceline.verdict import Estimate
from tests.strategies_runs import pair

TRUTH, PAIRS, EACH = 1.3, 4, 40
ORDERS = (True, False, True, False)  # whether the speculative block comes second


def arms(
    *, carried: float = 1.0, drift: float = 1.0, odd: float = 1.0, orders: tuple[bool, ...] = ORDERS, seed: int = 1
) -> tuple[Run, Run]:
    """Requests whose pace is 10 ms without drafts and a factor TRUTH less with them. Being second multiplies it by `carried`, each pair by
    `drift`, and the speculative block of the first pair by `odd`.
    """
    rng, n = np.random.default_rng(seed), EACH * len(orders)
    shared, own = np.exp(0.2 * rng.normal(size=n)), np.exp(0.1 * rng.normal(size=(2, n)))
    place = np.repeat(np.arange(len(orders)), EACH)
    second = np.repeat(orders, EACH)
    plain_s = 0.010 * shared * own[0] * drift**place * np.where(second, 1.0, carried)
    drafted_s = 0.010 / TRUTH * shared * own[1] * drift**place * np.where(second, carried, 1.0) * np.where(place == 0, odd, 1.0)
    made = pair(n=n, step_s=0.012, alphas={"a": 0.7, "b": 0.7})
    numbers = {
        Arm.BASELINE: [2 * i + (not late) for i, late in enumerate(orders)],
        Arm.SPECULATIVE: [2 * i + late for i, late in enumerate(orders)],
    }
    return tuple(_paced(run, pace_s, numbers[run.arm]) for run, pace_s in zip(made, (plain_s, drafted_s), strict=True))  # type: ignore[return-value]  # two of them


def _paced(run: Run, pace_s: np.ndarray, numbers: list[int]) -> Run:
    records = []
    for each, tpot_s in zip(run.requests or (), pace_s, strict=True):
        ends_s = np.array([0.2, 0.2 + tpot_s * (each.output_tokens - 1)])
        timing = RequestTiming.of_total(
            arrived_at_s=0.0, sent_at_s=0.0, chunk_at_s=ends_s, output_tokens=each.output_tokens, ended=Ended.STOP, detail=Detail.ENDS
        )
        records.append(replace(each, timing=timing))
    told = {**run.provenance.arguments, "blocks": ",".join(f"{number}:{EACH}" for number in numbers)}
    return replace(run, requests=tuple(records), provenance=replace(run.provenance, arguments=told))


def from_blocks(made: tuple[Run, Run], segment: str | None = None) -> Estimate | None:
    return block_speedup(*made, segment=segment, confidence=0.95)


def codes(made: tuple[Run, Run]) -> list[str]:
    return [each.code for each in block_cautions(*made, confidence=0.95)]


def speedup(made: tuple[Run, Run], segment: str | None = None) -> Estimate:
    return metric_estimate("speedup", *made, segment=segment, confidence=0.95, rng=np.random.default_rng(1))


def test_quiet_blocks_change_nothing() -> None:
    """A caution that is always there is read by nobody; the pairs of requests have the narrower interval."""
    made = arms()
    assert codes(made) == []
    assert from_blocks(made) is None
    found = speedup(made)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= TRUTH <= found.high


def test_orders_that_do_not_balance_bias_pairs_of_requests_and_not_blocks() -> None:
    """Three pairs with drafts second, one first, and 20 % of what a first block leaves behind: requests in pairs say 1.19, not 1.3."""
    made = arms(carried=1.2, orders=(True, True, True, False))
    plain, drafted = (np.array([each.timing.tpot_s for each in run.finished]).sum() for run in made)
    assert plain / drafted == pytest.approx(TRUTH / 1.2**0.5, rel=0.03)
    found = speedup(made)
    assert found == from_blocks(made)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= TRUTH <= found.high
    assert codes(made) == ["order_effect"]
    (told,) = block_cautions(*made, confidence=0.95)
    assert "took 1.19 times [1.17, 1.22] as long" in told.message
    of_one = speedup(made, "a")
    assert of_one == from_blocks(made, "a")
    assert of_one.n < found.n


def test_a_drift_is_told_and_does_not_change_the_speed_up() -> None:
    """A GPU that got 10 % slower from pair to pair: both arms alike, so the speed-up holds, and percentiles are of several machines."""
    made = arms(drift=1.1)
    assert codes(made) == ["drift"]
    assert from_blocks(made) is None
    assert "drift" in [each.code for each in gate(*made, policy=DEFAULT_POLICY, rng=np.random.default_rng(1)).warnings]


def test_where_one_block_was_disturbed_the_blocks_are_what_is_independent() -> None:
    """Somebody's job on the machine during one block of eight: by request the interval would be sure of a wrong number."""
    made = arms(odd=1.6)
    assert "blocks_disagree" in codes(made)
    found = speedup(made)
    assert found.n == PAIRS
    assert found.low is None or found.low < TRUTH
    assert found.high is None or found.high > TRUTH


def test_an_order_effect_that_is_a_small_share_of_the_effect_is_not_told() -> None:
    """2 % beside a speed-up of 30 % changes no decision; it is taken out all the same once it is sure."""
    found = [codes(arms(carried=1.02, seed=seed)) for seed in range(3)]
    assert found == [[], [], []]


def test_arms_one_after_the_other_and_runs_without_blocks_say_nothing() -> None:
    """With one block each, order and speed-up are one; silence is no proof of balance."""
    baseline, speculative = arms()
    for text in ("0:160", "0:80,1:80"):
        apart = [replace(each, provenance=replace(each.provenance, arguments={"blocks": text})) for each in (baseline, speculative)]
        assert codes((apart[0], apart[1])) == []
        assert from_blocks((apart[0], apart[1])) is None
    assert codes(pair(n=40)) == []
    few = arms(orders=(True,))
    assert from_blocks(few) is None


def test_blocks_that_cannot_be_read_are_refused() -> None:
    """A run edited by hand shifts requests into other blocks."""
    baseline, speculative = arms()
    edited = replace(baseline, provenance=replace(baseline.provenance, arguments={"blocks": "1:2"}))
    with pytest.raises(BadInputError, match="blocks"):
        gate(edited, speculative, policy=DEFAULT_POLICY, rng=np.random.default_rng(1))
