"""The compiled half of n-gram replay: where each n-gram first ended, and the walk over it.

What a context contains does not depend on how it was decoded. So one pass per n-gram length n says for every output token whether the
n-gram that ends there ended earlier in the stream, and where first; the walk by steps then only reads this. A token costs the same in a
long context as in a short one.

A pass keeps a chained hash table: a slot holds a position at which an n-gram of its hash ended, and a link leads from there to the next.
Hashes only say where to look, tokens are compared. The prompt is entered from its end backwards, each position to the front of its chain,
so that an n-gram's earliest end comes before its later ones; this takes no comparison. Each output token's n-gram is then looked up, and
entered if it is new.

Arrays are filled in place and reused from stream to stream. Hashes stay below 2³¹ and products below 2⁶², so that int64 never overflows,
compiled or interpreted. Numba takes no keyword-only arguments.

Notation: K draft length, n length of an n-gram.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["POSITIONS", "find_earlier_ends", "longest_match", "walk", "walk_streams"]

TokenArray = npt.NDArray[np.int32]
CountArray = npt.NDArray[np.int64]

HASH_BITS = 31
HASH_MASK = 0x7FFF_FFFF
BASE = 0x2C1B_3C6D  # odd, so that no token is lost modulo 2³¹
SPREAD = 0x4F1B_BCDD  # about 2³¹ / golden ratio, odd: the high bits of the product are the slot

STEPS, DRAFTS, DRAFTED, ACCEPTED, POSITIONS = range(5)  # columns of the counts; from POSITIONS on, acceptance by position


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
def _hash_stream(tokens: TokenArray, hashes: CountArray) -> None:
    """Fill `hashes` [tokens + 1] with the polynomial hash of the stream up to each token."""
    hashes[0] = 0
    for at in range(len(tokens)):
        hashes[at + 1] = (hashes[at] * BASE + tokens[at]) & HASH_MASK


@njit(cache=True)
def _power(n: int) -> int:
    """BASE to the n, modulo 2³¹."""
    power = 1
    for _ in range(n):
        power = (power * BASE) & HASH_MASK
    return power


@njit(cache=True)
def _slot_bits(tokens: int) -> int:
    """Bits of a slot's number such that there are at least as many slots as tokens."""
    bits = 1
    while 1 << bits < tokens:
        bits += 1
    return bits


@njit(cache=True)
def _slot(before: int, after: int, power: int, bits: int) -> int:
    """Slot of an n-gram, from the stream's hash before and after it and BASE to the n."""
    return (((after - before * power & HASH_MASK) * SPREAD) & HASH_MASK) >> (HASH_BITS - bits)


@njit(cache=True)
def _same(tokens: TokenArray, one: int, other: int, n: int) -> bool:
    """Whether the n-grams that end at `one` and at `other` are the same tokens."""
    same = 0
    while same < n and tokens[one - same] == tokens[other - same]:
        same += 1
    return same == n


@njit(cache=True)
def _find_ends_of(
    n: int,
    tokens: TokenArray,
    first: int,
    hashes: CountArray,
    heads: npt.NDArray[np.int32],
    links: npt.NDArray[np.int32],
    ends: npt.NDArray[np.int32],
) -> None:
    """Write to `ends` where the n-gram that ends at each output token first ended before; leave it where that n-gram is new.

    `heads` [a power of two, at least as many as tokens] and `links` [tokens] are room for the table.
    """
    power, bits = _power(n), _slot_bits(len(heads))
    heads[:] = -1
    for at in range(first - 1, n - 2, -1):
        slot = _slot(hashes[at + 1 - n], hashes[at + 1], power, bits)
        links[at] = heads[slot]
        heads[slot] = at
    for at in range(max(first, n - 1), len(tokens)):
        slot = _slot(hashes[at + 1 - n], hashes[at + 1], power, bits)
        known = heads[slot]
        while known >= 0 and not _same(tokens, known, at, n):
            known = links[known]
        if known >= 0:
            ends[at] = known
        else:
            links[at] = heads[slot]
            heads[slot] = at


@njit(cache=True)
def find_earlier_ends(
    tokens: TokenArray,
    first: int,
    min_tokens: int,
    max_tokens: int,
    ends: npt.NDArray[np.int32],
    room: npt.NDArray[np.int32],
    hashes: CountArray,
) -> None:
    """Write to `ends` [tokens] where the longest n-gram that ends at each token from `first` on first ended before; −1 where none did.

    `room` [at least 3 × tokens + 2] and `hashes` [at least tokens + 1] are overwritten.
    """
    slots = 1 << _slot_bits(len(tokens))
    _hash_stream(tokens, hashes)
    ends[first:] = -1
    for n in range(min_tokens, max_tokens + 1):
        _find_ends_of(n, tokens, first, hashes, room[:slots], room[slots:], ends)


@njit(cache=True)
def _accept(tokens: TokenArray, draft_at: int, truth_at: int, judged: int) -> int:
    """How many of the `judged` tokens drafted from `draft_at` on the target's output from `truth_at` on confirms, up to the first miss."""
    accepted = 0
    while accepted < judged and tokens[draft_at + accepted] == tokens[truth_at + accepted]:
        accepted += 1
    return accepted


@njit(cache=True)
def walk(tokens: TokenArray, first: int, counted_end: int, ends: npt.NDArray[np.int32], counts: CountArray) -> None:
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
    longest = np.max(edges[:, 2] - edges[:, 0])
    ends = np.empty(longest, dtype=np.int32)
    room = np.empty(3 * longest + 2, dtype=np.int32)
    hashes = np.empty(longest + 1, dtype=np.int64)
    for i in range(len(edges)):
        start, first, end, counted_end = edges[i]
        stream = tokens[start:end]
        find_earlier_ends(stream, first - start, min_tokens, max_tokens, ends[: end - start], room, hashes)
        walk(stream, first - start, counted_end - start, ends, counts[i])
