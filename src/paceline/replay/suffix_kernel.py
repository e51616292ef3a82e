"""The compiled half of suffix replay: occurrences of the context's end, the likeliest continuation, and the walk.

A corpus is a text in which each place links to the one before it that holds the same word. The places at which the last m words of the
context end are found among those for m − 1, and a draft follows them forwards, so that a step costs about as much as its last word is
frequent. Words are numbers from 1 on; 0 separates outputs and is never followed. Numba takes no keyword-only arguments.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["Corpus", "Limits", "POSITIONS", "link", "speculate", "walk"]

IndexArray = npt.NDArray[np.int32]
CountArray = npt.NDArray[np.int64]

ALMOST = 1e-6  # so that .5 · 2 words is one word
STEPS, DRAFTS, DRAFTED, ACCEPTED, POSITIONS = range(5)


class Corpus(NamedTuple):
    """A text, each place's link to the last one before it with the same word, and each word's last place; −1 for none."""

    text: IndexArray  # [room]
    links: IndexArray  # [room]
    heads: IndexArray  # [words + 1]


class Limits(NamedTuple):
    """A `SuffixRule` as the kernel takes it."""

    depth: int
    draft_tokens: int
    factor: float
    least_probability: float
    cached: int


@njit(cache=True)
def link(corpus: Corpus, start: int, end: int) -> None:
    """Link the places from `start` to `end`, those before them being linked."""
    text, links, heads = corpus.text, corpus.links, corpus.heads
    for at in range(start, end):
        links[at] = heads[text[at]]
        heads[text[at]] = at


@njit(cache=True)
def _likeliest(text: IndexArray, end: int, places: IndexArray, count: int, ids: CountArray, tally: IndexArray) -> int:
    """The word that follows most of the places, of equals the one with the smallest id; 0 where nothing follows. `tally` stays zero."""
    best = 0
    for i in range(count):
        if places[i] + 1 < end:
            tally[text[places[i] + 1]] += 1
    tally[0] = 0
    for i in range(count):
        word = text[places[i] + 1] if places[i] + 1 < end else 0
        if word and (tally[word] > tally[best] or (tally[word] == tally[best] and ids[word] < ids[best])):
            best = word
    often = tally[best]
    for i in range(count):
        if places[i] + 1 < end:
            tally[text[places[i] + 1]] = 0
    tally[0] = often
    return best


@njit(cache=True)
def _follow(
    text: IndexArray,
    end: int,
    places: IndexArray,
    count: int,
    most: int,
    least_probability: float,
    ids: CountArray,
    tally: IndexArray,
    draft: IndexArray,
) -> tuple[int, float]:
    """Write the likeliest continuation of the `places` (which are overwritten) to `draft`; its length and its score."""
    length, score, probability = 0, 0.0, 1.0
    while length < most:
        word = _likeliest(text, end, places, count, ids, tally)
        often = tally[0]
        tally[0] = 0
        if word == 0:
            break
        probability *= often / count
        if probability < least_probability:
            break
        kept = 0
        for i in range(count):
            at = places[i] + 1
            if at < end and text[at] == word:
                places[kept] = at
                kept += 1
        count = kept
        draft[length] = word
        length += 1
        score += probability
    return length, score


@njit(cache=True)
def speculate(
    corpus: Corpus,
    oldest: int,
    end: int,
    context: IndexArray,
    limits: Limits,
    ids: CountArray,
    tally: IndexArray,
    drafts: IndexArray,
) -> tuple[int, float]:
    """Write the best draft after `context` to the first row of `drafts` [2, K]; its length and score, 0 and 0.0 where there is none.

    Of the corpus the places from `oldest` to `end` count.
    """
    text, links, heads = corpus.text, corpus.links, corpus.heads
    best_length, best_score = 0, 0.0
    if len(context) == 0:
        return best_length, best_score
    count, at = 0, heads[context[-1]]
    while at >= oldest:
        count, at = count + 1, links[at]
    places, moving = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    at = heads[context[-1]]
    for i in range(count):
        places[i], at = at, links[at]
    for m in range(1, min(len(context), limits.depth)):
        if count == 0:
            break
        most = min(limits.draft_tokens, limits.depth - m, int(limits.factor * m + ALMOST))
        moving[:count] = places[:count]
        length, score = _follow(text, end, moving, count, most, limits.least_probability, ids, tally, drafts[1])
        if score >= best_score:
            best_length, best_score = length, score
            drafts[0, :length] = drafts[1, :length]
        kept = 0
        for i in range(count):
            if places[i] - m >= oldest and text[places[i] - m] == context[len(context) - 1 - m]:
                places[kept] = places[i]
                kept += 1
        count = kept
    return best_length, best_score


@njit(cache=True)
def walk(
    own: Corpus, first: int, counted_end: int, cache: Corpus, oldest: int, cached: int, ids: CountArray, limits: Limits, counts: CountArray
) -> int:
    """Decode one stream step by step, add to its `counts` [4 + K], and append its output to the cache; where that ends now.

    The output starts at `first` in `own.text`, with the token that prefill gives. `cached` is where the cache ends.
    """
    text, size = own.text, len(own.text)
    tally, drafts = np.zeros(len(own.heads), dtype=np.int32), np.empty((2, limits.draft_tokens), dtype=np.int32)
    known, end = 0, cached
    last = first
    while True:
        link(own, known, last + 1)
        if limits.cached:
            for at in range(max(first, known), last + 1):
                cache.text[end] = text[at]
                end += 1
            link(cache, end - (last + 1 - max(first, known)), end)
        known = last + 1
        if known == size:
            break
        context = text[max(0, known - limits.depth) : known]
        length, score = speculate(own, 0, known, context, limits, ids, tally, drafts)
        if limits.cached:
            ours = drafts[0, :length].copy()
            longer, higher = speculate(cache, oldest, end, context, limits, ids, tally, drafts)
            if higher > score:
                length = longer
            else:
                drafts[0, :length] = ours
        accepted, judged = 0, min(length, counted_end - known)
        while accepted < min(judged, size - known) and drafts[0, accepted] == text[known + accepted]:
            counts[POSITIONS + accepted] += 1
            accepted += 1
        counts[STEPS] += 1
        counts[DRAFTS] += 1 if judged > 0 else 0
        counts[DRAFTED] += judged
        counts[ACCEPTED] += accepted
        last += min(accepted + 1, size - known)
    if limits.cached:
        cache.text[end] = 0
        end += 1
    return end
