"""The compiled half of n-gram replay: where each n-gram first ended, and the walk over it.

What a context contains does not depend on how it was decoded. So it is found once per stream, for every output token, whether the n-gram
that ends there ended earlier in the stream, and where first; the walk by steps then only reads this. A token costs the same in a long
context as in a short one.

Only n-grams of the output are ever looked up, and most of a prompt holds none of them. So the n-grams of the output stand in a small
table, one entry each, and the prompt is read past it: a filter of one byte per slot lets those tokens through (the candidates) at which
such an n-gram may end. What passes for n is all that can pass for n + 1. The table loses an entry once a candidate turned out to be its
n-gram, so that frequent n-grams are compared once and not at each occurrence.

Hashes only say where to look; tokens are compared. Arrays are filled in place and reused from stream to stream. Factors stay below 2³¹, so
that a sum of two products never overflows int64, compiled or interpreted. Numba takes no keyword-only arguments.

Notation: K draft length, n length of an n-gram.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["POSITIONS", "Room", "find_earlier_ends", "longest_match", "room_for", "walk", "walk_streams"]

TokenArray = npt.NDArray[np.int32]
CountArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.int32]

HASH_BITS = 31
HASH_MASK = 0x7FFF_FFFF
FACTOR = 0x2C1B_3C6D  # odd, so that no token is lost modulo 2³¹
SPREAD = 0x4F1B_BCDD  # about 2³¹ / golden ratio, odd: the high bits of the product are the slot
SLOTS_PER_TOKEN = 8  # of the output; about one prompt token in eight passes the filter by chance
NONE = -1

STEPS, DRAFTS, DRAFTED, ACCEPTED, POSITIONS = range(5)  # columns of the counts; from POSITIONS on, acceptance by position


class Room(NamedTuple):
    """Room for the search in one stream; whatever an earlier stream left in it is overwritten.

    An n-gram of the output goes by its first place: the output token, counted from 0, at which it ends there for the first time.
    """

    passes: npt.NDArray[np.uint8]  # [slots], 1 where an n-gram of the output falls
    heads: IndexArray  # [slots], first place of an n-gram that was not met yet, or NONE
    links: IndexArray  # [output tokens], by first place: the next one of the same slot, or NONE
    earliest: IndexArray  # [output tokens], by first place: where the n-gram ended in the prompt, or NONE
    first_place: IndexArray  # [output tokens], of the n-gram that ends there, or NONE where the stream is shorter than n
    own_hash: IndexArray  # [output tokens], of the n-gram that ends there
    found_at: IndexArray  # [prompt tokens + 1], candidates in order
    found_hash: IndexArray  # [prompt tokens + 1], of the n-gram that ends there


@njit(cache=True)
def longest_match(context: TokenArray, min_tokens: int, max_tokens: int) -> int:
    """Position after the earliest occurrence of the longest suffix of `context` that occurs earlier in it; −1 for none.

    One pass over the context [tokens], without an index: for a single proposal.
    """
    last = len(context) - 1
    longest, after = min_tokens - 1, -1
    for end in range(last):
        same = 0
        while same < max_tokens and same <= end and context[end - same] == context[last - same]:
            same += 1
        if same > longest:
            longest, after = same, end + 1
        if same == max_tokens:
            break
    return after


@njit(cache=True)
def _slot_bits(output_tokens: int) -> int:
    """Bits of a slot's number, for so many output tokens."""
    bits = 1
    while 1 << bits < SLOTS_PER_TOKEN * output_tokens:
        bits += 1
    return min(bits, HASH_BITS - 1)


@njit(cache=True)
def room_for(prompt_tokens: int, output_tokens: int) -> Room:
    """Room for every stream of at most as many tokens."""
    slots = 1 << _slot_bits(output_tokens)
    return Room(
        np.empty(slots, dtype=np.uint8),
        np.empty(slots, dtype=np.int32),
        np.empty(output_tokens, dtype=np.int32),
        np.empty(output_tokens, dtype=np.int32),
        np.empty(output_tokens, dtype=np.int32),
        np.empty(output_tokens, dtype=np.int32),
        np.empty(prompt_tokens + 1, dtype=np.int32),
        np.empty(prompt_tokens + 1, dtype=np.int32),
    )


@njit(cache=True)
def _grown(behind: int, token: int) -> int:
    """The hash of an n-gram, from that of the n − 1 tokens behind its first one (0 for none) and this; below 2³¹."""
    return ((behind ^ (behind >> 15)) * SPREAD + token * FACTOR) & HASH_MASK


@njit(cache=True)
def _same(tokens: TokenArray, one: int, other: int, n: int) -> bool:
    """Whether the n-grams that end at `one` and at `other` are the same tokens."""
    same = 0
    while same < n and tokens[one - same] == tokens[other - same]:
        same += 1
    return same == n


@njit(cache=True)
def _hash_behind(tokens: TokenArray, first: int, reach: int, own_hash: IndexArray) -> None:
    """Write the hash of the reach − 1 tokens (0 or 1) that end at each output token."""
    for j in range(len(tokens) - first):
        own_hash[j] = 0 if reach == 1 else _grown(0, int(tokens[first + j]))


@njit(cache=True)
def _tabulate(n: int, tokens: TokenArray, first: int, room: Room) -> None:
    """Grow the output's hashes to n tokens and make the table of its n-grams anew."""
    passes, heads, links, earliest = room.passes, room.heads, room.links, room.earliest
    first_place, own_hash = room.first_place, room.own_hash
    bits = _slot_bits(len(tokens) - first)
    passes[: 1 << bits] = 0
    heads[: 1 << bits] = NONE
    for j in range(len(tokens) - first):
        at = first + j
        if at + 1 < n:
            first_place[j] = NONE
            continue
        own_hash[j] = _grown(int(own_hash[j]), int(tokens[at + 1 - n]))
        slot = own_hash[j] >> (HASH_BITS - bits)
        known = heads[slot]
        while known != NONE and not (own_hash[known] == own_hash[j] and _same(tokens, first + known, at, n)):
            known = links[known]
        if known == NONE:
            passes[slot], links[j], heads[slot], earliest[j] = 1, heads[slot], j, NONE
            known = j
        first_place[j] = known


@njit(cache=True)
def _narrow(n: int, tokens: TokenArray, candidates: int, bits: int, room: Room) -> int:
    """Grow the candidates' hashes to n tokens and keep what passes the filter; how many. All n-grams of the output that occur are kept."""
    passes, found_at, found_hash = room.passes, room.found_at, room.found_hash
    kept = 0
    for i in range(candidates):
        at = found_at[i]
        if at + 1 < n:
            continue
        grown = _grown(int(found_hash[i]), int(tokens[at + 1 - n]))
        found_at[kept], found_hash[kept] = at, grown
        kept += passes[grown >> (HASH_BITS - bits)]
    return kept


@njit(cache=True)
def _read_prompt(tokens: TokenArray, first: int, reach: int, bits: int, room: Room) -> int:
    """As `_narrow`, of the whole prompt and an n of 1 or 2."""
    passes, found_at, found_hash, back = room.passes, room.found_at, room.found_hash, reach - 1
    kept = 0
    for at in range(back, first):
        grown = 0 if back == 0 else _grown(0, int(tokens[at]))
        grown = _grown(grown, int(tokens[at - back]))
        found_at[kept], found_hash[kept] = at, grown
        kept += passes[grown >> (HASH_BITS - bits)]
    return kept


@njit(cache=True)
def _meet(n: int, tokens: TokenArray, first: int, candidates: int, bits: int, room: Room) -> None:
    """Note where each n-gram of the output first ended in the prompt, and take it out of the table."""
    heads, links, earliest = room.heads, room.links, room.earliest
    found_at, found_hash, own_hash = room.found_at, room.found_hash, room.own_hash
    for i in range(candidates):
        slot = found_hash[i] >> (HASH_BITS - bits)
        before, place = NONE, heads[slot]
        while place != NONE and not (own_hash[place] == found_hash[i] and _same(tokens, first + place, found_at[i], n)):
            before, place = place, links[place]
        if place != NONE:
            earliest[place] = found_at[i]
            if before == NONE:
                heads[slot] = links[place]
            else:
                links[before] = links[place]


@njit(cache=True)
def _write_ends(first: int, ends: IndexArray, room: Room) -> None:
    """Write to `ends` where the n-gram that ends at each output token ended before; leave it where it is new."""
    earliest, first_place = room.earliest, room.first_place
    for j in range(len(ends) - first):
        place = first_place[j]
        if place == NONE:
            continue
        if earliest[place] != NONE:
            ends[first + j] = earliest[place]
        elif place != j:
            ends[first + j] = first + place


@njit(cache=True)
def find_earlier_ends(tokens: TokenArray, first: int, min_tokens: int, max_tokens: int, ends: IndexArray, room: Room) -> None:
    """Write to `ends` [tokens] where the longest n-gram that ends at each token from `first` on first ended before; −1 where none did.

    `room` is room for at least this stream, and overwritten.
    """
    reach, bits = min(min_tokens, 2), _slot_bits(len(tokens) - first)
    ends[first:] = NONE
    candidates = 0
    _hash_behind(tokens, first, reach, room.own_hash)
    for n in range(reach, max_tokens + 1):
        _tabulate(n, tokens, first, room)
        candidates = _read_prompt(tokens, first, reach, bits, room) if n == reach else _narrow(n, tokens, candidates, bits, room)
        if n >= min_tokens:
            _meet(n, tokens, first, candidates, bits, room)
            _write_ends(first, ends, room)


@njit(cache=True)
def _accept(tokens: TokenArray, draft_at: int, truth_at: int, judged: int) -> int:
    """How many of the `judged` tokens drafted from `draft_at` on the target's output from `truth_at` on confirms, up to the first miss."""
    accepted = 0
    while accepted < judged and tokens[draft_at + accepted] == tokens[truth_at + accepted]:
        accepted += 1
    return accepted


@njit(cache=True)
def walk(tokens: TokenArray, first: int, counted_end: int, ends: IndexArray, counts: CountArray) -> None:
    """Decode one stream step by step and add to its `counts` [4 + K] what was drafted and accepted.

    The output starts at `first`, with the token that prefill gives. Drafts are counted up to `counted_end`: they are cut there, and what
    lies between the end of the stream and there is drafted and not accepted. `ends` as from `find_earlier_ends`.
    """
    draft_tokens = len(counts) - POSITIONS
    last = first
    while last + 1 < len(tokens):
        remaining = len(tokens) - last - 1
        accepted = 0
        if ends[last] >= 0:
            length = min(draft_tokens, last - ends[last], counted_end - last - 1)
            accepted = _accept(tokens, ends[last] + 1, last + 1, min(length, remaining))
            counts[DRAFTS] += 1
            counts[DRAFTED] += length
            counts[ACCEPTED] += accepted
            for i in range(accepted):
                counts[POSITIONS + i] += 1
        counts[STEPS] += 1
        last += min(accepted + 1, remaining)


@njit(cache=True)
def walk_streams(tokens: TokenArray, edges: CountArray, min_tokens: int, max_tokens: int, counts: CountArray) -> None:
    """Decode streams that lie behind one another in `tokens` and add to `counts` [streams, 4 + K] what was drafted and accepted.

    `edges` [streams, 4]: where a stream starts, where its output starts, where it ends, and up to where drafts are counted, as in `walk`.
    """
    ends = np.empty(np.max(edges[:, 2] - edges[:, 0]), dtype=np.int32)
    room = room_for(np.max(edges[:, 1] - edges[:, 0]), np.max(edges[:, 2] - edges[:, 1]))
    for i in range(len(edges)):
        start, first, end, counted_end = edges[i]
        stream = tokens[start:end]
        find_earlier_ends(stream, first - start, min_tokens, max_tokens, ends[: end - start], room)
        walk(stream, first - start, counted_end - start, ends, counts[i])
