"""What the order of blocks says about a comparison whose runs carry their blocks: `stats.blocks`, asked for the gate.

1. Arms that were measured in turns say how much coming second, and a drift of the machine, did to times.
2. The speed-up of requests in pairs rests on requests as independent units and on orders that balance. Where pairs of blocks surely differ
   by more than their requests do, or coming second surely changes times, the estimate from blocks is the better one: order is taken out
   of it, and its interval counts blocks where those are the independent units.
3. What is a visible share of the effect is told, whichever estimate is taken.
"""

from collections.abc import Iterator
from math import log

from paceline.decide.own_share import SMALLEST_EFFECT, VISIBLE_SHARE
from paceline.errors import NoEvidenceError
from paceline.run import Run
from paceline.stats.blocks import BlockEffects, block_effects, block_pairs, blocks_stated
from paceline.verdict import Caution, Estimate

__all__ = ["block_cautions", "block_speedup"]

PACE = "tpot_s"


def block_speedup(baseline: Run, speculative: Run, *, segment: str | None, confidence: float) -> Estimate | None:
    """The speed-up from blocks, where it is better than that of requests in pairs; None where it is not, or blocks say nothing.

    Raises:
        BadInputError: a run states blocks that cannot be read.

    """
    found = _effects(baseline, speculative, segment=segment, confidence=confidence)
    return found.speedup if found is not None and (found.blocks_disagree or _surely_not_1(found.order)) else None


def block_cautions(baseline: Run, speculative: Run, *, confidence: float) -> Iterator[Caution]:
    """That coming second, a drift, or blocks that disagree are a visible share of what the arms differ by.

    Raises:
        BadInputError: a run states blocks that cannot be read.

    """
    found = _effects(baseline, speculative, segment=None, confidence=confidence)
    if found is None:
        return
    if _is_visible(found.order, found):
        yield Caution(
            "order_effect",
            f"a block that came second in its pair took {_times(found.order)} as long: what the first one leaves behind (caches, heat, a "
            "queue) is a visible share of the effect; it is taken out of the speed-up, and percentiles still hold it",
        )
    if _is_visible(found.drift, found):
        yield Caution(
            "drift",
            f"times of both arms changed {_times(found.drift)} from the first pair of blocks to the last: the speed-up does not hold it, "
            "and percentiles are of servers in several states; measure once the machine has settled",
        )
    if found.blocks_disagree:
        yield Caution(
            "blocks_disagree",
            f"pairs of blocks differ by more than their requests do (chance {found.disagreement:.2g}): something else was at work in some, "
            f"so the speed-up rests on {found.speedup.n} pairs and not on requests; more pairs of blocks tell more",
        )


def _effects(baseline: Run, speculative: Run, *, segment: str | None, confidence: float) -> BlockEffects | None:
    """None unless both arms took turns, in two pairs of blocks or more with enough requests each."""
    try:
        numbers = [{number for number, _ in blocks_stated(each)} for each in (baseline, speculative)]
        pairs = block_pairs(baseline, speculative, latency=PACE, segment=segment)
        if numbers[0] & numbers[1] or len(pairs) < 2:  # one arm after the other: order and speed-up are one
            return None
        return block_effects(pairs, confidence=confidence)
    except NoEvidenceError:
        return None


def _surely_not_1(factor: Estimate | None) -> bool:
    return factor is not None and factor.low is not None and factor.high is not None and not factor.low <= 1 <= factor.high


def _is_visible(factor: Estimate | None, found: BlockEffects) -> bool:
    """Whether a factor on times surely is one, and a visible share of the speed-up or of the smallest effect that matters."""
    effect = max(abs(log(found.speedup.value)), SMALLEST_EFFECT)
    return factor is not None and _surely_not_1(factor) and abs(log(factor.value)) > VISIBLE_SHARE * effect


def _times(factor: Estimate | None) -> str:
    assert factor is not None
    return f"{factor.value:.3g} times [{factor.low:.3g}, {factor.high:.3g}]"
