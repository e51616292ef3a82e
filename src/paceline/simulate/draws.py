"""Compiled chance: hashed draws, and how many drafts they accept.

A draw is a hash of (request's keys, step, position): it depends neither on the schedule nor on the load, so arms share it. It is made of
32-bit words inside int64, which overflow neither compiled nor interpreted.

With persistence φ a step decides, with probability φ, by the draws of the step before. Each step by itself then has the very same chance
as without, and steps k apart correlate by φ^k (Jacobs and Lewis 1978, Journal of the Royal Statistical Society B 40: the discrete
autoregressive process DAR(1)).
"""

from paceline.simulate import state as s
from paceline.simulate.compiled import compiled
from paceline.simulate.state import KEY_A, KEY_B, SOURCE, STEPS, FloatArray, IntArray

__all__ = ["accepted_drafts", "drafts_now", "next_source", "uniform"]

WORD = 0xFFFFFFFF
WORD_VALUES = 4294967296.0
COVERAGE_POSITION = 0
PERSISTENCE_POSITION = -1


@compiled()
def _mixed(word: int) -> int:
    """A 32-bit word scrambled one to one (constants from C. Wellons's hash prospector; below 2^31, so that int64 holds the products)."""
    word ^= word >> 16
    word = (word * 0x21F0AAAD) & WORD
    word ^= word >> 15
    word = (word * 0x735A2D97) & WORD
    return word ^ (word >> 15)


@compiled()
def uniform(key_a: int, key_b: int, step: int, position: int) -> float:
    """A number in (0, 1), uniform and independent over (keys, step, position); position 0 decides on drafting, i on the i-th draft."""
    at_step = _mixed((key_a + step * 0x1E3779B1) & WORD)
    return (_mixed(at_step ^ ((key_b + position * 0x5BD1E995) & WORD)) + 0.5) / WORD_VALUES


@compiled(s)
def drafts_now(table: IntArray, r: int, coverage: float) -> bool:
    """Whether request r has a draft in this step."""
    if coverage <= 0.0 or coverage >= 1.0:
        return bool(coverage > 0.0)
    return bool(uniform(table[r, KEY_A], table[r, KEY_B], table[r, SOURCE], COVERAGE_POSITION) < coverage)


@compiled(s)
def accepted_drafts(table: IntArray, r: int, conditional: FloatArray, draft_tokens: int) -> int:
    """How many of `draft_tokens` drafts of request r are accepted in this step: the first rejection ends it."""
    for position in range(draft_tokens):
        if uniform(table[r, KEY_A], table[r, KEY_B], table[r, SOURCE], position + 1) >= conditional[r, position]:
            return position
    return draft_tokens


@compiled(s)
def next_source(table: IntArray, r: int, persistence: float) -> None:
    """Go on to the draws of the step that comes, or stay with those of the last one."""
    stay = uniform(table[r, KEY_A], table[r, KEY_B], table[r, STEPS], PERSISTENCE_POSITION) < persistence
    if not stay:
        table[r, SOURCE] = table[r, STEPS]
