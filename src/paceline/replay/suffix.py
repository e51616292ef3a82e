"""Acceptance of suffix decoding on logged tokens: drafts from the request's own text and from earlier outputs, as long as they are likely.

Source: Oliaro et al., SuffixDecoding, arXiv 2411.04975, in the form that vLLM runs (method `suffix`, arctic-inference 0.1.1). Two corpora
are searched: the request's prompt with its output so far, and the outputs of the last `cached_requests` requests, the running one's
included.

Of a corpus, let #(x) be how often the tokens x occur in it, the end of the text counting like any other place. For each m from 1 on, while
the last m tokens of the context occur: starting from them, the likeliest next token t is appended again and again; its probability is the
product of #(xt) / #(x) along the way. It ends at min(K, ⌊factor · m⌋) tokens, below `least_probability`, where nothing follows, or where
pattern and draft reach `depth` tokens. A draft's score is the sum of its tokens' probabilities. The largest score wins, of equal ones the
longer match; the cache wins only over a smaller score. m stays below `depth`.

What differs from arctic-inference. Requests are replayed one after the other in the log's order, so a request sees all of the outputs
before its own, and none that a server would have been writing beside it. Of equally frequent tokens the smallest id is taken (there: the
order of a hash table). Probabilities are float64 (there: float32). Draft trees and the cut at the model's maximum length are left out.
Where the log does not show the end-of-sequence token, all outputs are taken to end in the same one, which can be drafted from the cache.

The walk goes by steps, and the end of the log is judged, as in `ngram`. Notation: K most tokens drafted per step, m length of a match.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, is_count, printable
from paceline.replay import suffix_kernel
from paceline.replay.ngram import RequestAcceptance, need_token_ids
from paceline.speculation.counts import AcceptanceCounts
from paceline.traffic.exchange import TokenStream

__all__ = ["SuffixRule", "propose_suffix", "replay_suffix"]

IndexArray = npt.NDArray[np.int32]
MOST_DEPTH = 256
FIRST_ROOM_TOKENS = 1 << 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixRule:
    """How suffix decoding drafts.

    Attributes:
        depth: most tokens of pattern and draft together, 2 to 256 (vLLM: suffix_decoding_max_tree_depth, 24).
        cached_requests: outputs that are kept, 0 for none (suffix_decoding_max_cached_requests, 10000).
        factor: tokens drafted per token matched (suffix_decoding_max_spec_factor, 1.0).
        least_probability: of a drafted token, 0 to 1 (suffix_decoding_min_token_prob, 0.1).
        draft_tokens: K, 1 to 256 (num_speculative_tokens, the depth where it is not given).

    """

    depth: int
    cached_requests: int
    factor: float
    least_probability: float
    draft_tokens: int

    def __post_init__(self) -> None:
        """Reject what cannot be looked up.

        Raises:
            BadInputError: with the value and its range.

        """
        for name, value, low in (("depth", self.depth, 2), ("draft length", self.draft_tokens, 1)):
            if not (is_count(value, least=low) and value <= MOST_DEPTH):
                raise BadInputError(f"{name} = {value!r} tokens is not between {low} and {MOST_DEPTH}")
        if not is_count(self.cached_requests, least=0):
            raise BadInputError(f"{self.cached_requests!r} cached requests is not a whole number from 0 on")
        if not (isfinite(self.factor) and self.factor >= 0):
            raise BadInputError(f"factor {self.factor!r} is not a number from 0 on")
        if not 0 <= self.least_probability <= 1:
            raise BadInputError(f"least probability {self.least_probability!r} is not between 0 and 1")


def replay_suffix(streams: Iterable[TokenStream], rule: SuffixRule) -> Iterator[RequestAcceptance]:
    """What `rule` would have drafted in each stream after the ones before it, and what of it the target would have kept, in order.

    Raises:
        BadInputError: an output is empty, or a token id is negative elsewhere than at a stopped output's end.

    """
    words, cache = _Words(), _Cache(rule.cached_requests)
    for stream in streams:
        _need_usable(stream)
        prompt, output = words.numbered(stream.prompt), words.numbered(stream.output)
        text = np.concatenate((prompt, output))
        counts = np.zeros(suffix_kernel.POSITIONS + rule.draft_tokens, dtype=np.int64)
        counted_end = text.size + rule.draft_tokens if stream.stopped else text.size
        cache.make_room(output.size + 1, words.count)
        own = suffix_kernel.Corpus(text, np.empty(text.size, dtype=np.int32), np.full(words.count + 1, -1, dtype=np.int32))
        cache.size = suffix_kernel.walk(
            own, prompt.size, counted_end, cache.corpus, cache.oldest, cache.size, words.ids(), _limits(rule), counts
        )
        steps, drafts, drafted, accepted, *positions = counts.tolist()
        yield RequestAcceptance(
            stream.id,
            stream.segment,
            AcceptanceCounts(
                steps=steps, drafts=drafts, drafted_tokens=drafted, accepted_tokens=accepted, accepted_per_position=tuple(positions)
            ),
        )


def propose_suffix(own: IndexArray, cached: Sequence[IndexArray], rule: SuffixRule) -> IndexArray:
    """The tokens drafted after `own` [tokens], a request's prompt with its output so far; empty where nothing is likely enough.

    `cached` has the outputs that are looked up too, oldest first, the request's own so far last. Everything is read anew: for one proposal.

    Raises:
        BadInputError: a token id is negative.

    """
    for tokens in (own, *cached):
        need_token_ids(tokens, "context")
    words = _Words()
    text = words.numbered(own)
    parts = [np.append(words.numbered(each), 0) for each in cached]
    kept = np.concatenate(parts)[:-1].astype(np.int32) if parts else text[:0]
    tally, drafts = np.zeros(words.count + 1, dtype=np.int32), np.empty((2, rule.draft_tokens), dtype=np.int32)
    best, best_score = text[:0], 0.0
    for corpus in (_linked(text, words.count), _linked(kept, words.count)):
        size = corpus.text.size
        length, score = suffix_kernel.speculate(corpus, 0, size, text[-rule.depth :], _limits(rule), words.ids(), tally, drafts)
        if score > best_score:
            best, best_score = drafts[0, :length].copy(), score
    return words.ids()[best].astype(np.int32)


def _linked(text: IndexArray, words: int) -> suffix_kernel.Corpus:
    corpus = suffix_kernel.Corpus(text, np.empty(text.size, dtype=np.int32), np.full(words + 1, -1, dtype=np.int32))
    suffix_kernel.link(corpus, 0, text.size)
    return corpus


def _limits(rule: SuffixRule) -> suffix_kernel.Limits:
    return suffix_kernel.Limits(
        rule.depth, rule.draft_tokens, float(rule.factor), float(rule.least_probability), int(rule.cached_requests > 0)
    )


def _need_usable(stream: TokenStream) -> None:
    if not stream.output.size:
        raise BadInputError(f"stream {printable(stream.id)} has no output tokens; leave exchanges without an answer out")
    judged = stream.output[:-1] if stream.stopped else stream.output
    for tokens in (stream.prompt, judged):
        if tokens.size and tokens.min() < 0:
            raise BadInputError(f"stream {printable(stream.id)} contains token id {int(tokens.min())}; ids are 0 or more")


class _Words:
    """Token ids numbered from 1 on as they appear, so that tables are as small as the vocabulary in use; 0 separates outputs."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._ids = np.zeros(FIRST_ROOM_TOKENS, dtype=np.int64)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def ids(self) -> npt.NDArray[np.int64]:
        """The token id behind each number."""
        return self._ids

    def numbered(self, tokens: IndexArray) -> IndexArray:
        distinct, places = np.unique(tokens, return_inverse=True)
        numbers = [self._numbers.setdefault(token, len(self._numbers) + 1) for token in distinct.tolist()]
        if self.count >= self._ids.size:
            self._ids = np.concatenate((self._ids, np.zeros(max(self._ids.size, self.count + 1), dtype=np.int64)))
        self._ids[numbers] = distinct
        return np.array(numbers, dtype=np.int32)[places]


class _Cache:
    """The outputs that are kept, one behind the other, and where the oldest one starts."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._starts: deque[int] = deque()
        self.size = 0
        room = np.zeros(FIRST_ROOM_TOKENS, dtype=np.int32)
        self.corpus = suffix_kernel.Corpus(room, np.zeros_like(room), np.full(FIRST_ROOM_TOKENS, -1, dtype=np.int32))

    @property
    def oldest(self) -> int:
        return self._starts[0] if self._starts else 0

    def make_room(self, tokens: int, words: int) -> None:
        """Begin an output of so many tokens, its separator included: forget the oldest where there are enough, grow where needed."""
        if not self._requests:
            return
        if len(self._starts) == self._requests:
            self._starts.popleft()
        text, _, heads = self.corpus
        if words >= heads.size or self.size + tokens > text.size:
            kept = text[self.oldest : self.size] if self._starts else text[:0]
            shift = self.size - kept.size
            self._starts = deque(each - shift for each in self._starts)
            room = np.zeros(max(FIRST_ROOM_TOKENS, 2 * (kept.size + tokens)), dtype=np.int32)
            room[: kept.size] = kept
            self.size = kept.size
            self.corpus = suffix_kernel.Corpus(room, np.zeros_like(room), np.full(max(heads.size, 2 * (words + 1)), -1, dtype=np.int32))
            suffix_kernel.link(self.corpus, 0, self.size)
        self._starts.append(self.size)
