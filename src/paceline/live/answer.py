"""What came back on one request, read into a record: the second half of a measurement, done when nothing is being timed any more.

Rules. Parsing is pure and costs several microseconds per event, so the caller does it after the streams that are being timed have ended.
Stops, cancellations, HTTP errors, cut streams and time-outs are outcomes. An answer is finished only if the server said so: a finish
reason, or the end-of-stream mark. What a server says of itself is used only where it is lawful; anything doubtful is a caution.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from paceline.errors import ascii_controls
from paceline.latency import Detail, Ended, RequestTiming
from paceline.live.chunk_tokens import ChunkTokens, TokensFrom, chunk_tokens
from paceline.live.http_connection import Received, StreamEnd
from paceline.live.openai import Ask, without_key
from paceline.live.sse import read_events
from paceline.live.stream_reading import Reading, read_messages
from paceline.run import Outcome, RequestRecord
from paceline.servers.per_request import OwnDrafts, own_drafts
from paceline.verdict import Caution

__all__ = ["AcceptanceFrom", "Answer", "read_answer"]

EXCERPT_CHARACTERS = 300
GIVEN_UP = ("abort", "error")  # finish reasons of an answer that is not whole
NOT_TAKEN = frozenset({408, 413, 425, 429, 503, 529})  # the server would not take it now; other 4xx are our fault, other 5xx its own


class AcceptanceFrom(StrEnum):
    """How a request's acceptance is known.

    per_request: the server's own counts; ratio: its tokens per step, no counts; chunks: mean tokens per chunk after the first, which is
    tokens per step only where each step makes one chunk; none: not at all.
    """

    PER_REQUEST = "per_request"
    RATIO = "ratio"
    CHUNKS = "chunks"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's record and how it is known.

    Attributes:
        record: lengths, timing, acceptance and outcome.
        text: everything shown, reasoning and tool calls included.
        finish_reason: as the server gave it, None where it did not.
        tokens_from: how tokens per chunk are known.
        acceptance_from: how acceptance is known.
        tokens_per_step: where the acceptance is no counts: the server's ratio or the mean tokens per chunk, as `acceptance_from` says.
        dialect: whose way of reporting acceptance it was, None where there was none.
        status: HTTP status, None where no reply came.
        error: what went wrong, printable and without the key; None where nothing did.
        cautions: what is doubtful.

    """

    record: RequestRecord
    text: str
    finish_reason: str | None
    tokens_from: TokensFrom
    acceptance_from: AcceptanceFrom
    tokens_per_step: float | None
    dialect: str | None
    status: int | None
    error: str | None
    cautions: tuple[Caution, ...]


def read_answer(
    received: Received, ask: Ask, *, arrived_at_s: float | None, clock_origin_ns: int, count_tokens: Callable[[str], int] | None
) -> Answer:
    """The record of one answer.

    `arrived_at_s` is when the request should have left, in seconds after `clock_origin_ns` (perf_counter_ns); None: when it was sent.
    `count_tokens` is the model's tokenizer, used where the server does not count.
    """
    events = read_events(received.body_pieces(), ended=received.ended is StreamEnd.COMPLETE).events if _is_stream(received) else ()
    reading = read_messages(events)
    counted = chunk_tokens(reading, max_tokens=ask.max_tokens, count_tokens=count_tokens)
    own = own_drafts(reading.said, output_tokens=counted.output_tokens, messages=reading.messages)
    ended, error = _ending(received, reading)
    timing = _timing(received, counted, ended, arrived_at_s=arrived_at_s, clock_origin_ns=clock_origin_ns)
    acceptance_from, tokens_per_step = _acceptance(own, counted)
    return Answer(
        record=RequestRecord(
            id=ask.id,
            segment=ask.segment,
            prompt_tokens=_prompt_tokens(reading, ask, count_tokens),
            output_tokens=counted.output_tokens,
            timing=timing,
            acceptance=own.counts,
            outcome=_outcome(received, ended),
        ),
        text=without_key("".join(each.text for each in reading.chunks)),
        finish_reason=None if reading.finish_reason is None else without_key(reading.finish_reason),
        tokens_from=counted.tokens_from,
        acceptance_from=acceptance_from,
        tokens_per_step=tokens_per_step,
        dialect=own.dialect,
        status=received.status,
        error=None if error is None else _excerpt(error),
        cautions=tuple(
            Caution(each.code, without_key(each.message))
            for each in (*counted.cautions, *own.cautions, *_cautions(received, reading, ended))
        ),
    )


def _is_stream(received: Received) -> bool:
    """Whether the body is events; a server that ignores `stream` answers with one JSON object."""
    return (
        received.status == 200
        and _encoding(received) is None
        and received.headers.get("content-type", "text/event-stream").lower().startswith("text/event-stream")
    )


def _encoding(received: Received) -> str | None:
    """What the body was packed with, None where it was not."""
    encoding = received.headers.get("content-encoding", "identity").strip().lower()
    return encoding if encoding not in ("identity", "") else None


def _ending(received: Received, reading: Reading) -> tuple[Ended, str | None]:
    """How the request ended, and what went wrong."""
    if _is_stream(received) and reading.fault is None and reading.finish_reason not in (None, *GIVEN_UP):
        return Ended.LENGTH if reading.finish_reason == "length" else Ended.STOP, None
    if received.ended is StreamEnd.CANCELLED:
        return Ended.CANCELLED, received.error or "cancelled"
    if received.ended is StreamEnd.TIMEOUT:
        return Ended.TIMEOUT, received.error or "timed out"
    if received.status is None:
        return Ended.ERROR, received.error or "no reply"
    if received.status != 200:
        return Ended.ERROR, f"HTTP {received.status}: {_said(received)}"
    if (encoding := _encoding(received)) is not None:
        return Ended.ERROR, f"answered in {encoding}, which was not asked for; switch compression off, at the server or a proxy before it"
    if not _is_stream(received):
        return Ended.ERROR, f"answered with {received.headers.get('content-type')}, not with an event stream: {_said(received)}"
    if reading.fault is not None:
        return Ended.ERROR, f"the server reported an error in mid-stream: {reading.fault}"
    if reading.finish_reason is not None:
        return Ended.ERROR, f"the server ended the answer with finish reason {reading.finish_reason}"
    if reading.done:
        return Ended.STOP, None
    return Ended.ERROR, received.error or "the stream ended without a finish reason or an end mark"


def _said(received: Received) -> str:
    """The beginning of an error's body, and where a redirect leads."""
    location = received.headers.get("location")
    led = f"leads to {location}, and redirects are not followed; " if location is not None else ""
    if (encoding := _encoding(received)) is not None:
        return f"{led}a body in {encoding}, which was not asked for"
    return led + without_key(received.body.decode("utf-8", "replace"))[:EXCERPT_CHARACTERS]


def _excerpt(text: str) -> str:
    """`text` as it may be shown and kept: without the key, without control characters, not long."""
    shown = ascii_controls(without_key(text))
    return shown if len(shown) <= EXCERPT_CHARACTERS else f"{shown[:EXCERPT_CHARACTERS]}…"


def _outcome(received: Received, ended: Ended) -> Outcome:
    if ended in (Ended.STOP, Ended.LENGTH):
        return Outcome.FINISHED
    refused = received.ended is StreamEnd.REFUSED or received.status in NOT_TAKEN
    return Outcome.REFUSED if refused else Outcome.FAILED


def _timing(received: Received, counted: ChunkTokens, ended: Ended, *, arrived_at_s: float | None, clock_origin_ns: int) -> RequestTiming:
    sent_at_s = (received.sent_at_ns - clock_origin_ns) / 1e9
    return RequestTiming(
        arrived_at_s=sent_at_s if arrived_at_s is None else min(arrived_at_s, sent_at_s),
        sent_at_s=sent_at_s,
        chunk_at_s=(np.array(counted.at_ns, dtype=np.int64) - clock_origin_ns) / 1e9,
        chunk_tokens=np.array(counted.tokens, dtype=np.int64),
        ended=ended,
        detail=Detail.CHUNKS if counted.tokens_from.is_exact or counted.tokens_from is TokensFrom.TOKENIZER else Detail.INSTANTS,
    )


def _acceptance(own: OwnDrafts, counted: ChunkTokens) -> tuple[AcceptanceFrom, float | None]:
    if own.counts is not None:
        return AcceptanceFrom.PER_REQUEST, None
    if own.tokens_per_step is not None:
        return AcceptanceFrom.RATIO, own.tokens_per_step
    if counted.tokens_from.is_exact and len(counted.tokens) > 1:
        return AcceptanceFrom.CHUNKS, sum(counted.tokens[1:]) / (len(counted.tokens) - 1)
    return AcceptanceFrom.NONE, None


def _prompt_tokens(reading: Reading, ask: Ask, count_tokens: Callable[[str], int] | None) -> int:
    """As the server says; else the prompt's text counted (a chat template's own tokens left out); else 0, with a caution."""
    if reading.prompt_tokens is not None:
        return reading.prompt_tokens
    if count_tokens is None:
        return 0
    return sum(count_tokens(each.content) for each in ask.messages) if ask.messages is not None else count_tokens(ask.prompt or "")


def _cautions(received: Received, reading: Reading, ended: Ended) -> list[Caution]:
    """What is doubtful about the stream as a whole."""
    found = []
    if reading.unreadable:
        found.append(Caution("unreadable_messages", f"{reading.unreadable} messages of the answer could not be read and count for nothing"))
    if reading.other_choices:
        found.append(Caution("several_answers", "the server gave several answers to one request; only the first is measured"))
    if received.sent_twice:
        found.append(
            Caution(
                "sent_twice", "the server closed the idle connection as the request left, so it was sent once more; timing is the second's"
            )
        )
    if ended in (Ended.STOP, Ended.LENGTH):
        if not reading.chunks:
            found.append(
                Caution("empty_answers", "the answer ended without any text, so it has no time to first token and is in no latency")
            )
        if reading.finish_reason is None:
            found.append(Caution("no_finish_reason", "the server did not say why the answer ended; it is taken for a stop"))
        if reading.prompt_tokens is None:
            found.append(
                Caution(
                    "prompt_tokens_not_reported", "the server did not count the prompt's tokens; what stands there is our own count, or 0"
                )
            )
        if received.ended is not StreamEnd.COMPLETE and not reading.done:
            found.append(
                Caution("cut_after_the_answer", "the stream broke off after the finish reason; what the server says last is missing")
            )
    return found
