"""Compiled prefix cache: which blocks of a prompt are still in the KV cache from earlier requests.

Prompts are known by ids of their blocks of `prefix_tokens`; equal ids mean that everything up to there is equal. Rules:

- A request's blocks can be found once it has prefilled its prompt. Those of running requests are pinned; the others stay, least recently
  used first out, while KV blocks that nobody holds have room for them.
- A request skips the prefill of the leading blocks that are found: whole KV blocks, at least one token short of the prompt. Heads that
  read the target's hidden states give up the last matched KV block (vLLM's rule for EAGLE and MTP).
- It is an approximation: requests that share a prefix save its prefill and each still holds KV blocks for all its tokens.
"""

from paceline.simulate import state as s
from paceline.simulate.compiled import compiled
from paceline.simulate.state import EVICTABLE, FREE_BLOCKS, NEWEST, OLDEST, PINNED, PROMPT, Rules, State

__all__ = ["cached_tokens", "evict", "pin", "unpin"]


@compiled(s)
def cached_tokens(state: State, rules: Rules, r: int) -> int:
    """Tokens of request r's prompt that need no prefill now."""
    found = 0
    for place in range(state.prefix_from[r], state.prefix_from[r + 1]):
        if state.pins[state.prefix_ids[place]] < 0:
            break
        found += 1
    whole_tokens = (state.table[r, PROMPT] - 1) // rules.block_tokens * rules.block_tokens
    matched = found * rules.prefix_tokens // rules.block_tokens * rules.block_tokens
    return int(max(0, min(matched, whole_tokens) - rules.dropped_tokens))


@compiled(s)
def _unlink(state: State, block: int) -> None:
    """Take a block out of the list of evictable ones."""
    counts, older, newer = state.counts, state.older[block], state.newer[block]
    if older >= 0:
        state.newer[older] = newer
    else:
        counts[OLDEST] = newer
    if newer >= 0:
        state.older[newer] = older
    else:
        counts[NEWEST] = older
    counts[EVICTABLE] -= 1


@compiled(s)
def pin(state: State, r: int) -> None:
    """Let request r, whose prompt is prefilled, hold its prefix in the cache."""
    for place in range(state.prefix_from[r], state.prefix_from[r + 1]):
        block = state.prefix_ids[place]
        if state.pins[block] == 0:
            _unlink(state, block)
        state.pins[block] = max(state.pins[block], 0) + 1
    state.table[r, PINNED] = 1


@compiled(s)
def unpin(state: State, r: int) -> None:
    """Let go of request r's prefix; its last block becomes the oldest of them, as later blocks are of no use without earlier ones."""
    counts = state.counts
    if not state.table[r, PINNED]:
        return
    state.table[r, PINNED] = 0
    for back in range(state.prefix_from[r + 1] - state.prefix_from[r]):
        block = state.prefix_ids[state.prefix_from[r + 1] - 1 - back]
        state.pins[block] -= 1
        if state.pins[block] == 0:
            state.older[block], state.newer[block] = counts[NEWEST], -1
            if counts[NEWEST] >= 0:
                state.newer[counts[NEWEST]] = block
            else:
                counts[OLDEST] = block
            counts[NEWEST] = block
            counts[EVICTABLE] += 1


@compiled(s)
def evict(state: State, rules: Rules) -> None:
    """Forget the least recently used blocks for which the free KV blocks have no room."""
    room = state.counts[FREE_BLOCKS] * rules.block_tokens // rules.prefix_tokens
    while state.counts[EVICTABLE] > room:
        block = state.counts[OLDEST]
        _unlink(state, block)
        state.pins[block] = -1
