"""Acceptance of n-gram (prompt lookup) drafting on logged tokens: no model, no server.

The draft: of the suffixes of the context that are `min_tokens` to `max_tokens` long and occur earlier in it, take the longest; of its
earlier occurrences (they may overlap the suffix, and end before the last token) take the earliest; draft the up to K tokens that follow
it. No such suffix, no draft. This is the rule of vLLM's n-gram proposer (vllm/v1/spec_decode/ngram_proposer.py), without its cut at the
model's maximum length.

The walk goes by steps, as an engine does, and not by token positions. Prefill gives the first output token and is no step. At each step
the context is the prompt and the output so far; accepted is the common beginning of the draft and the remaining output, emitted =
min(accepted + 1, remaining), and the next step starts there: output tokens = 1 + Σ emitted. Sampling is not replayed: a draft is judged
against what was logged.

The end of the log. Where the target stopped by itself, the last output token is the end of the sequence, a real id or END_OF_SEQUENCE,
which no draft matches. What was drafted beyond it counts as drafted and not accepted; a draft that hit the real id counts as accepted up
to it. Where the output was cut at a length limit, the logged end says nothing about the tokens beyond it: the last step's draft is
censored there, and counts as min(draft, remaining) drafted tokens.

Notation: K draft length, n length of an n-gram.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, printable
from paceline.replay import ngram_kernel
from paceline.speculation.counts import AcceptanceCounts
from paceline.traffic.exchange import TokenStream

__all__ = ["NgramRule", "RequestAcceptance", "need_token_ids", "pool_by_segment", "propose", "replay", "replay_streams"]

TokenArray = npt.NDArray[np.int32]

MOST_NGRAM_TOKENS = 64  # each length takes a pass over the stream
MOST_DRAFT_TOKENS = 256  # acceptance is kept per position and request
CHUNK_TOKENS = 1 << 22
CHUNK_STREAMS = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramRule:
    """How n-gram drafting looks the context up.

    Attributes:
        min_tokens: shortest n-gram looked up, at least 1.
        max_tokens: longest n-gram looked up, tried first, at most 64.
        draft_tokens: K, most tokens drafted per step, 1 to 256.

    """

    min_tokens: int
    max_tokens: int
    draft_tokens: int

    def __post_init__(self) -> None:
        """Reject lengths that cannot be looked up.

        Raises:
            BadInputError: with the length and its range.

        """
        _need_between("shortest n-gram", self.min_tokens, 1, MOST_NGRAM_TOKENS)
        _need_between("longest n-gram", self.max_tokens, self.min_tokens, MOST_NGRAM_TOKENS)
        _need_between("draft length", self.draft_tokens, 1, MOST_DRAFT_TOKENS)


@dataclass(frozen=True, slots=True)
class RequestAcceptance:
    """What was drafted and accepted in one request of a log."""

    id: str
    segment: str
    counts: AcceptanceCounts


def propose(context: TokenArray, rule: NgramRule) -> TokenArray:
    """The tokens drafted after `context` [tokens], up to K of them; empty where no suffix occurs earlier.

    Raises:
        BadInputError: the context contains a negative token id, an end of sequence for one.

    """
    need_token_ids(context, "context")
    after = ngram_kernel.longest_match(np.ascontiguousarray(context, dtype=np.int32), rule.min_tokens, rule.max_tokens)
    return context[after : after + rule.draft_tokens].copy() if after >= 0 else np.empty(0, dtype=np.int32)


def replay(stream: TokenStream, rule: NgramRule) -> AcceptanceCounts:
    """What `rule` would have drafted in `stream`, and what of it the target would have kept.

    `accepted_per_position` is K long. A stream with one output token has no step and gives zeros. Prefer `replay_streams` for many streams.

    Raises:
        BadInputError: the output is empty, or a token id is negative elsewhere than at a stopped output's end.

    """
    _need_output(stream)
    return _replay_chunk([stream], rule)[0]


def replay_streams(streams: Iterable[TokenStream], rule: NgramRule) -> Iterator[RequestAcceptance]:
    """`replay` of each stream, in order.

    Streams are taken in chunks of about four million tokens, so a log of any size passes through in bounded memory. A stream that cannot be
    replayed ends the iteration before the others of its chunk are given.

    Raises:
        BadInputError: as `replay`, naming the stream.

    """
    for chunk in _chunks(streams):
        for stream, counts in zip(chunk, _replay_chunk(chunk, rule), strict=True):
            yield RequestAcceptance(stream.id, stream.segment, counts)


def pool_by_segment(requests: Iterable[RequestAcceptance]) -> dict[str, AcceptanceCounts]:
    """Counts added up by segment, so that every ratio of them is weighted by drafted tokens or steps; segments in order of appearance."""
    return AcceptanceCounts.by_segment((each.segment, each.counts) for each in requests)


def need_token_ids(tokens: TokenArray, what: str) -> None:
    """Reject token ids that no vocabulary has.

    Raises:
        BadInputError: `tokens` contains a negative id.

    """
    if tokens.size and tokens.min() < 0:
        raise BadInputError(f"{what} contains {_bad_id(int(tokens.min()))}")


def _need_between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadInputError(f"{name} = {value!r} tokens is not between {low} and {high}")


def _need_output(stream: TokenStream) -> None:
    if not stream.output.size:
        raise BadInputError(f"stream {printable(stream.id)} has no output tokens; leave exchanges without an answer out")


def _chunks(streams: Iterable[TokenStream]) -> Iterator[list[TokenStream]]:
    chunk: list[TokenStream] = []
    tokens = 0
    for stream in streams:
        _need_output(stream)
        chunk.append(stream)
        tokens += stream.prompt.size + stream.output.size
        if tokens >= CHUNK_TOKENS or len(chunk) >= CHUNK_STREAMS:
            yield chunk
            chunk, tokens = [], 0
    if chunk:
        yield chunk


def _replay_chunk(chunk: list[TokenStream], rule: NgramRule) -> list[AcceptanceCounts]:
    parts = [part for stream in chunk for part in (stream.prompt, stream.output)]
    tokens = np.concatenate(parts).astype(np.int32, copy=False)
    cuts = np.array([0, *accumulate(part.size for part in parts)], dtype=np.int64)
    starts, firsts, ends = cuts[:-1:2], cuts[1::2], cuts[2::2]
    stopped = np.array([stream.stopped for stream in chunk], dtype=np.bool_)
    _need_streams_of_token_ids(chunk, tokens, ends, stopped)
    edges = np.stack((starts, firsts, ends, ends + stopped * rule.draft_tokens), axis=1)
    counts = np.zeros((len(chunk), ngram_kernel.POSITIONS + rule.draft_tokens), dtype=np.int64)
    ngram_kernel.walk_streams(tokens, edges, rule.min_tokens, rule.max_tokens, counts)
    return [_acceptance(row) for row in counts.tolist()]


def _need_streams_of_token_ids(
    chunk: list[TokenStream], tokens: TokenArray, ends: npt.NDArray[np.int64], stopped: npt.NDArray[np.bool_]
) -> None:
    """Reject negative ids, but for one that ends a stopped output."""
    if tokens.min() >= 0:
        return
    wrong = np.setdiff1d(np.flatnonzero(tokens < 0), ends[stopped] - 1)
    if wrong.size:
        stream = chunk[int(np.searchsorted(ends, wrong[0], side="right"))]
        raise BadInputError(f"stream {printable(stream.id)} contains {_bad_id(int(tokens[wrong[0]]))}")


def _bad_id(token: int) -> str:
    return f"token id {token}; ids are 0 or more, and only a stopped output may end in a negative one"


def _acceptance(row: list[int]) -> AcceptanceCounts:
    steps, drafts, drafted_tokens, accepted_tokens, *positions = row
    return AcceptanceCounts(
        steps=steps,
        drafts=drafts,
        drafted_tokens=drafted_tokens,
        accepted_tokens=accepted_tokens,
        accepted_per_position=tuple(positions),
    )
