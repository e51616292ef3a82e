"""How many tokens each chunk of an answer brought, and how that is known.

From the surest to the weakest, the first that holds for every chunk:

    usage      the server's running total with each message (continuous_usage_stats, timings_per_token)
    token_ids  the ids with each message
    logprobs   one entry per token with each message
    chunks     as many chunks as tokens in all, so one each
    tokenizer  our own count of each chunk's text
    spread     the total at the end, spread over the chunks by their length; sums are exact, single chunks are not
    assumed    one token per chunk, because nothing else is known

`spread` and `assumed` carry a caution: under speculation a chunk holds several tokens, and one assumed per chunk gives the TPOT of plain
decoding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from paceline.live.stream_reading import Chunk, Reading
from paceline.verdict import Caution

__all__ = ["ChunkTokens", "TokensFrom", "chunk_tokens"]

OVERSHOOT_TOKENS = 16  # a draft accepted beyond the limit; more than that is a server that counts something else


class TokensFrom(StrEnum):
    """How the tokens of each chunk are known, from the surest to the weakest."""

    USAGE = "usage"
    TOKEN_IDS = "token_ids"  # noqa: S105 - tokens of text, no secret
    LOGPROBS = "logprobs"
    CHUNKS = "chunks"
    TOKENIZER = "tokenizer"
    SPREAD = "spread"
    ASSUMED = "assumed"

    @property
    def is_exact(self) -> bool:
        """Whether each chunk's tokens are known, not estimated."""
        return self in (TokensFrom.USAGE, TokensFrom.TOKEN_IDS, TokensFrom.LOGPROBS, TokensFrom.CHUNKS)


@dataclass(frozen=True, slots=True)
class ChunkTokens:
    """Instants (perf_counter_ns) and tokens (at least 1) of the chunks that count, the output tokens in all, and what is doubtful.

    `output_tokens` may be more than the sum: an end-of-sequence token shows no text, so no chunk brings it.
    """

    at_ns: tuple[int, ...]
    tokens: tuple[int, ...]
    output_tokens: int
    tokens_from: TokensFrom
    cautions: tuple[Caution, ...]


def chunk_tokens(reading: Reading, *, max_tokens: int, count_tokens: Callable[[str], int] | None) -> ChunkTokens:
    """The tokens of each chunk. A chunk that brought no token (text held back by the server before) is none, and a caution counts them."""
    chunks, total, cautions = reading.chunks, reading.tokens_so_far, list[Caution]()
    if reading.falling:
        cautions.append(
            Caution("unlawful_usage", f"{reading.falling} token counts from the server were no counts or fell; they are left out")
        )
    if total is not None and total > max_tokens + OVERSHOOT_TOKENS:
        cautions.append(Caution("unlawful_usage", f"the server says {total} output tokens where {max_tokens} were asked for; left out"))
        total = None
    most = max_tokens + OVERSHOOT_TOKENS
    tokens, tokens_from = _from_server(reading, total, most)
    if tokens is None:
        tokens, tokens_from = _estimated(chunks, total, count_tokens, cautions)
    counting = [place for place, each in enumerate(tokens) if each > 0]
    if len(counting) < len(chunks):
        message = f"{len(chunks) - len(counting)} of {len(chunks)} messages showed text but brought no token; they do not count as chunks"
        cautions.append(Caution("chunks_without_tokens", message))
    seen = sum(tokens)
    output_tokens = seen if total is None else max(total, seen)
    _compare(seen, total, tokens_from, cautions)
    if output_tokens > max_tokens:
        cautions.append(
            Caution(
                "more_tokens_than_asked", f"{output_tokens} output tokens came by {tokens_from.value} where {max_tokens} were asked for"
            )
        )
    return ChunkTokens(
        at_ns=tuple(chunks[place].at_ns for place in counting),
        tokens=tuple(tokens[place] for place in counting),
        output_tokens=output_tokens,
        tokens_from=tokens_from,
        cautions=tuple(cautions),
    )


def _from_server(reading: Reading, total: int | None, most: int) -> tuple[list[int] | None, TokensFrom]:
    """Exact tokens per chunk, None where the server does not say them for every chunk."""
    chunks = reading.chunks
    if total is not None and not reading.falling:
        so_far = [each.tokens_so_far for each in chunks]
        if None not in so_far:
            known = [each for each in so_far if each is not None]
            tokens = [after - before for before, after in zip([0, *known], known, strict=False)]
            if _mostly(tokens):
                return tokens, TokensFrom.USAGE
    for tokens_from, counts in (
        (TokensFrom.TOKEN_IDS, [each.ids for each in chunks]),
        (TokensFrom.LOGPROBS, [each.logprobs for each in chunks]),
    ):
        known = [each for each in counts if each is not None]
        if len(known) == len(chunks) and _mostly(known) and sum(known) <= most:
            return known, tokens_from
    if total is not None and total == len(chunks):
        return [1] * len(chunks), TokensFrom.CHUNKS
    return None, TokensFrom.ASSUMED


def _mostly(tokens: Sequence[int]) -> bool:
    """Whether most chunks brought a token: a total that stands still and jumps at the end is no running total."""
    return 2 * sum(each > 0 for each in tokens) >= len(tokens)


def _estimated(
    chunks: Sequence[Chunk], total: int | None, count_tokens: Callable[[str], int] | None, cautions: list[Caution]
) -> tuple[list[int], TokensFrom]:
    if count_tokens is not None:
        return [max(1, count_tokens(each.text)) for each in chunks], TokensFrom.TOKENIZER
    if total is not None and total > len(chunks) > 0:
        message = (
            f"{total} tokens came in {len(chunks)} chunks, and the server does not say how many in each: they are spread by length of "
            "text, so token gaps are estimates; give a tokenizer, or a server with continuous_usage_stats"
        )
        cautions.append(Caution("tokens_spread", message))
        return _spread(chunks, total), TokensFrom.SPREAD
    if chunks:
        said = (
            "neither the server nor a tokenizer says" if total is None else f"the server says {total} tokens of {len(chunks)} chunks, not"
        )
        message = (
            f"{said} how many tokens a chunk has, so one each is assumed: under speculation that is too "
            "few, and TPOT too long. Give a tokenizer, or a server with continuous_usage_stats"
        )
        cautions.append(Caution("tokens_assumed", message))
    return [1] * len(chunks), TokensFrom.ASSUMED


def _spread(chunks: Sequence[Chunk], total: int) -> list[int]:
    """One token each, and the rest by length of text, so that the sum is `total`."""
    extra, characters = total - len(chunks), list(accumulate(len(each.text) for each in chunks))
    shares = [extra * each // characters[-1] for each in characters]
    return [1 + after - before for before, after in zip([0, *shares], shares, strict=False)]


def _compare(seen: int, total: int | None, tokens_from: TokensFrom, cautions: list[Caution]) -> None:
    """A caution where the chunks and the server's total disagree by more than an end-of-sequence token."""
    if total is None or seen in (total, total - 1) or tokens_from is TokensFrom.ASSUMED:
        return
    if seen < total and tokens_from is not TokensFrom.TOKENIZER:
        message = f"{total - seen} of {total} tokens came without text (special tokens?), after the last chunk; no gap includes them"
        cautions.append(Caution("unseen_tokens", message))
        return
    message = f"the chunks have {seen} tokens by {tokens_from.value}, the server says {total}"
    cautions.append(
        Caution("token_counts_disagree", message + ("; is it the model's own tokenizer?" if tokens_from is TokensFrom.TOKENIZER else ""))
    )
