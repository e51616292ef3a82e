"""Compiled draft length: how many tokens a step drafts, by its batch.

A table gives the length by the number of running requests. A ladder (SGLang's adaptive speculation) keeps, for each range of batch sizes,
a moving mean of accepted drafts per request and climbs between candidate lengths:

    mean ← (1 − w) · mean + w · (accepted drafts / decoding requests)     after each batch that drafted
    down while mean ≤ next shorter − ½ + down (½ + down where that is 0); else up while mean > current − ½ + up

decided after `warm_up` batches and then every `interval`. From length 0 it probes the next candidate.
"""

from paceline.simulate import state as s
from paceline.simulate.compiled import compiled
from paceline.simulate.state import DRAFT_NOW, RUNNING, SLOT_NOW, VERIFY_NOW, Lengths, Rules, State

__all__ = ["choose_length", "learn"]


@compiled(s)
def choose_length(state: State, rules: Rules) -> None:
    """Set the draft length of the step that comes; a fixed one verifies what the method does, a tree's nodes included."""
    counts, lengths = state.counts, rules.lengths
    found = lengths.by_batch[min(counts[RUNNING], len(lengths.by_batch) - 1)]
    if len(lengths.rungs):
        counts[SLOT_NOW] = found
        found = lengths.candidates[found, state.rung[found]]
    counts[DRAFT_NOW] = found
    counts[VERIFY_NOW] = rules.verified_tokens if found == rules.draft_tokens else 1 + found


@compiled(s)
def learn(state: State, rules: Rules, decoding: int, accepted: int) -> None:
    """Take note of a batch's accepted drafts, and climb where it is time to decide."""
    if decoding == 0 or len(rules.lengths.rungs) == 0:
        return
    slot, lengths = state.counts[SLOT_NOW], rules.lengths
    if state.counts[DRAFT_NOW] > 0:
        state.ema[slot] = (1 - lengths.weight) * state.ema[slot] + lengths.weight * accepted / decoding
    state.batches[slot] += 1
    late = state.batches[slot] - lengths.warm_up
    if late > 0 and late % lengths.interval == 0:
        _climb(state, lengths, slot)


@compiled(s)
def _climb(state: State, lengths: Lengths, slot: int) -> None:
    """Move the slot's place on the ladder."""
    candidates, before, top = lengths.candidates[slot], state.rung[slot], lengths.rungs[slot] - 1
    if candidates[before] == 0:
        state.rung[slot] = min(before + 1, top)
        return
    mean, rung = state.ema[slot], before
    while rung > 0 and mean <= max(candidates[rung - 1] - 0.5, 0.5 - candidates[rung - 1]) + lengths.down[slot]:
        rung -= 1
    while rung == before and before < top and mean > candidates[before] - 0.5 + lengths.up[slot]:
        before += 1
        rung = before
    state.rung[slot] = rung
