"""The messages of a chat log's line: from parsed JSON to who said what, and which answers of them can be used.

Rules:

- A value of the wrong type spoils the line (`Unusable` is raised): whoever wrote it meant something else.
- A message that is well formed but no plain text (an image, a tool call) spoils its turn and every later one: their prompt is unknown.
- Each assistant message is an answer; what stands before it is what the target saw. A question behind the last answer is an exchange
  without one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.errors import printable
from paceline.files.read_report import Unusable
from paceline.traffic.exchange import Message

__all__ = ["MAX_MESSAGES", "Spoken", "Turn", "content_text", "json_type", "need_text", "reasoned", "spoken", "turns_of_conversation"]

MAX_MESSAGES = 2_000  # each answer carries what stood before it, so a line's memory grows with the square
ASSISTANT = "assistant"
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": ASSISTANT,
    "chatgpt": ASSISTANT,
    "bot": ASSISTANT,
    "model": ASSISTANT,
    "assistant": ASSISTANT,
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
TEXT_PARTS = ("text", "input_text", "output_text")

NO_MESSAGES = "no messages"
TOO_MANY = f"more than {MAX_MESSAGES} messages"
WRONG_TYPE = "a value of the wrong type"
NOT_TEXT = "a surrogate without its partner, which is no text"
UNKNOWN_ROLE = "a role that is not known"
OTHER_PART = "a part of a message is not text"
TOOL_CALL = "a tool call, which is not text"
NO_TEXT = "an assistant message without text"
EMPTY_ANSWER = "an empty answer"
NOTHING_ASKED = "an answer with nothing before it"
NO_QUESTION = "neither a question nor an answer"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message, or why its text is not known: exactly one of the two is set."""

    role: str
    text: str
    unusable: Unusable | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What the target saw and what it said; `answer` is None where nobody recorded one. `number` counts the line's turns from 1 on."""

    number: int
    messages: tuple[Message, ...]
    answer: str | None
    finish_reason: str | None
    prompt_token_ids: tuple[int, ...] | None
    output_token_ids: tuple[int, ...] | None


def json_type(value: object) -> str:
    """What JSON calls a value of this type."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def need_text(name: str, value: object) -> str:
    """The value as text.

    Raises:
        Unusable: it is no string, or holds half a surrogate pair, which no encoding can write.

    """
    if not isinstance(value, str):
        raise Unusable(WRONG_TYPE, f"{name} is {json_type(value)}, not a string")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as fault:
            raise Unusable(NOT_TEXT, f"{name}, character {fault.start + 1}") from None
    return value


def content_text(name: str, value: object) -> str | Unusable:
    """The text of a message's content: a string as it is, a list of text parts joined; Unusable (returned) where a part is something else.

    Raises:
        Unusable: it is neither a string nor a list of parts.

    """
    if not isinstance(value, list):
        return need_text(name, value)
    texts = []
    for part in value:
        if not isinstance(part, dict):
            raise Unusable(WRONG_TYPE, f"a part of {name} is {json_type(part)}, not an object")
        kind = need_text(f"a part's type in {name}", part.get("type"))
        if kind not in TEXT_PARTS:
            return Unusable(OTHER_PART, printable(kind))
        texts.append(need_text(f"a part's text in {name}", part.get("text")))
    return "".join(texts)


def spoken(messages: object) -> list[Spoken]:
    """The messages of an OpenAI (`role`, `content`) or ShareGPT (`from`, `value`) list.

    Raises:
        Unusable: it is no list of messages, or an empty or a monstrous one.

    """
    if not isinstance(messages, list):
        raise Unusable(WRONG_TYPE, f"the messages are {json_type(messages)}, not an array")
    if not messages:
        raise Unusable(NO_MESSAGES, "the array is empty")
    if len(messages) > MAX_MESSAGES:
        raise Unusable(TOO_MANY, f"{len(messages)}")
    return [_spoken(each) for each in messages]


def _spoken(message: object) -> Spoken:
    if not isinstance(message, dict):
        raise Unusable(WRONG_TYPE, f"a message is {json_type(message)}, not an object")
    name = need_text("a message's role", message.get("role", message.get("from")))
    role = ROLES.get(name.casefold())
    if role is None:
        raise Unusable(UNKNOWN_ROLE, printable(name))
    content = message.get("content", message.get("value"))
    if role == ASSISTANT and (message.get("tool_calls") or message.get("function_call")):
        return Spoken(role=role, text="", unusable=Unusable(TOOL_CALL, ""))
    if role == ASSISTANT and content is None:
        return Spoken(role=role, text="", unusable=Unusable(NO_TEXT, ""))
    text = content_text(f"the {role} message's content", content)
    if isinstance(text, Unusable):
        return Spoken(role=role, text="", unusable=text)
    return Spoken(role=role, text=text, unusable=None)


def turns_of_conversation(said: Sequence[Spoken]) -> Iterator[Turn | Unusable]:
    """Each assistant message with what stood before it, and a last question without an answer; Unusable for one to be left out.

    Token ids and the finish reason belong to a line and are not set here.
    """
    before: list[Message] = []
    spoiled: Unusable | None = None
    number = 0
    for each in said:
        spoiled = spoiled or each.unusable
        if each.role == ASSISTANT:
            number += 1
            yield spoiled or _turn(number, before, each.text)
        before.append(Message(role=each.role, content=each.text))
    if said[-1].role != ASSISTANT:
        yield spoiled or _turn(number + 1, before, None)


def _turn(number: int, before: Sequence[Message], answer: str | None) -> Turn | Unusable:
    if not before:
        return Unusable(NOTHING_ASKED, "")
    if answer is None and all(each.role == "system" for each in before):
        return Unusable(NO_QUESTION, "")
    return Turn(number=number, messages=tuple(before), answer=answer, finish_reason=None, prompt_token_ids=None, output_token_ids=None)


def reasoned(messages: Sequence[object]) -> bool:
    """Whether an assistant message carries reasoning beside its text: tokens that the target wrote and the text lacks."""
    return any(isinstance(each, dict) and bool(each.get("reasoning_content") or each.get("reasoning")) for each in messages)
