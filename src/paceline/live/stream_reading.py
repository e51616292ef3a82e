"""The messages of one streamed answer, read into what they carry, before anything is concluded from it.

Rules. A message with text is a chunk; a role-only first message, an empty delta and a trailing usage message are none, but the tokens they
report are not lost: they count for the next chunk. Reasoning and tool calls are text. Whatever cannot be read is counted, not guessed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

import orjson

from paceline.live.sse import Event

__all__ = ["Chunk", "Reading", "read_messages"]

DONE = b"[DONE]"
SAID_AT_THE_END = frozenset({"metrics", "sglext", "timings"})

MOST_PROMPT_TOKENS = 10_000_000


class Chunk(NamedTuple):  # as many as events, so no frozen dataclass
    """One message with text.

    Attributes:
        at_ns: when its last byte came.
        text: what it shows.
        tokens_so_far: output tokens up to here by the server's running total, None where it has none.
        ids: token ids since the chunk before, None where it has none.
        logprobs: log-probability entries since the chunk before, None where it has none.

    """

    at_ns: int
    text: str
    tokens_so_far: int | None
    ids: int | None
    logprobs: int | None


@dataclass(slots=True)
class Reading:
    """What was read so far.

    Attributes:
        chunks: messages with text, in order.
        tokens_so_far: the last running total, whatever message it stood in.
        messages: messages that raised the running total.
        prompt_tokens: as stated; None where it is more than any prompt has.
        finish_reason: as stated.
        fault: an error that the server reported in mid-stream.
        done: whether the stream said that it was over.
        unreadable: messages that are no JSON object of the expected form.
        other_choices: messages of another answer than the first.
        falling: times that the running total fell or was no count.
        said: the last of each thing said about the whole request.

    """

    chunks: list[Chunk] = field(default_factory=list)
    tokens_so_far: int | None = None
    messages: int = 0
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    fault: str | None = None
    done: bool = False
    unreadable: int = 0
    other_choices: int = 0
    falling: int = 0
    said: dict[str, object] = field(default_factory=dict)
    _ids: int | None = None
    _logprobs: int | None = None

    def add(self, event: Event) -> None:
        """Read one event. Nothing counts after the stream said that it was over."""
        at_ns, data, kind = event
        if data == DONE or self.done:
            self.done = True
            return
        fields = _json_object(data)
        if fields is None:
            self.unreadable += 1
            return
        if kind == "error" or fields.get("error") or fields.get("object") == "error":
            self.fault = self.fault or data.decode("utf-8", "replace")
            return
        if not SAID_AT_THE_END.isdisjoint(fields):
            self.said |= {name: fields[name] for name in SAID_AT_THE_END & fields.keys() if fields[name]}
        usage = fields.get("usage")
        if usage:
            self._add_usage(usage)
        elif "timings" in fields:
            self._add_timings(fields["timings"])
        choices = fields.get("choices")
        if choices:
            self._add_choices(at_ns, choices, counted=bool(usage) or "timings" in fields)

    def _add_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            self.unreadable += 1
            return
        self._add_total(usage.get("completion_tokens"))
        prompt = usage.get("prompt_tokens")
        if _is_count(prompt) and prompt <= MOST_PROMPT_TOKENS:
            self.prompt_tokens = prompt

    def _add_timings(self, timings: object) -> None:
        """llama.cpp's own: tokens predicted so far, and the prompt's, those found in its cache included."""
        if not isinstance(timings, dict):
            self.unreadable += 1
            return
        self._add_total(timings.get("predicted_n"))
        prompt, cached = timings.get("prompt_n"), timings.get("cache_n", 0)
        if _is_count(prompt) and _is_count(cached) and prompt + cached <= MOST_PROMPT_TOKENS:
            self.prompt_tokens = prompt + cached

    def _add_total(self, total: object) -> None:
        before = self.tokens_so_far or 0
        if not _is_count(total) or total < before:
            self.falling += 1
            return
        self.messages += total > before
        self.tokens_so_far = total

    def _add_choices(self, at_ns: int, choices: object, *, counted: bool) -> None:
        if not isinstance(choices, list):
            self.unreadable += 1
            return
        for choice in choices:
            if not isinstance(choice, dict):
                self.unreadable += 1
            elif choice.get("index", 0) != 0:
                self.other_choices += 1
            else:
                self._add_choice(at_ns, choice, counted=counted)

    def _add_choice(self, at_ns: int, choice: Mapping[str, object], *, counted: bool) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        if (ratio := choice.get("avg_decoded_tokens_per_iter")) is not None:
            self.said["avg_decoded_tokens_per_iter"] = ratio
        ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
        if isinstance(ids, list):
            self._ids = (self._ids or 0) + len(ids)
        if isinstance(logprobs, dict):
            self._logprobs = (self._logprobs or 0) + _entries(logprobs)
        text = _text(choice)
        if text:
            self.chunks.append(Chunk(at_ns, text, self.tokens_so_far if counted else None, self._ids, self._logprobs))
            self._ids = self._logprobs = None


def read_messages(events: Iterable[Event]) -> Reading:
    """Everything that the events carry."""
    reading = Reading()
    for event in events:
        reading.add(event)
    return reading


def _json_object(data: bytes) -> dict[str, object] | None:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _is_count(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number from 0 on, and one that an array of integers holds."""
    return type(value) is int and 0 <= value < 2**40


def _text(choice: Mapping[str, object]) -> str:
    """What a message shows: the answer, its reasoning, its tool calls. Of two names for one reasoning the first."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        text = choice.get("text")
        return text if isinstance(text, str) else ""
    content = delta.get("content")
    text = content if isinstance(content, str) else ""
    if len(delta) == 1 and text:  # nearly always
        return text
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    calls = delta.get("tool_calls")
    if isinstance(reasoning, str):
        text = reasoning + text
    return text + _called(calls) if calls else text


def _called(calls: object) -> str:
    functions = [each.get("function") for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []
    parts = [each.get(name) for each in functions if isinstance(each, dict) for name in ("name", "arguments")]
    return "".join(part for part in parts if isinstance(part, str))


def _entries(logprobs: Mapping[str, object]) -> int:
    """Tokens with a log-probability: `content` in a chat, `tokens` in a completion."""
    for name in ("content", "tokens"):
        entries = logprobs.get(name)
        if isinstance(entries, list):
            return len(entries)
    return 0
