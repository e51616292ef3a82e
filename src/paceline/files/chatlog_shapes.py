"""The shapes a chat log's line may have, told apart by its keys, and the turns in it.

    request, response            an OpenAI call as logged: one answer per choice; earlier answers in the request are context only
    messages                     OpenAI chat: each assistant message is an answer; with `response` and the like that is the last one
    conversations                ShareGPT: the same with from/value
    turns                        Spec-Bench and MT-bench questions: the first is a prompt, later ones build on answers that are not there
    prompt, completion           a pair; the answer may be called completion, response, output or answer
    prompt                       a prompt: vLLM's custom data set, HumanEval
    question                     a prompt: GSM8K

Rules:

- A reference answer (GSM8K's `answer`, HumanEval's `canonical_solution`, `reference`) was not written by the target, so it is no answer;
  a note counts it.
- `finish_reason` and token ids stand beside the messages, or in the response's choice, and belong to the last answer.
- Keys that no rule here names are left alone; the segment rule may read them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from paceline.errors import printable
from paceline.files.chatlog_messages import (
    EMPTY_ANSWER,
    TOOL_CALL,
    WRONG_TYPE,
    Spoken,
    Turn,
    content_text,
    json_type,
    reasoned,
    spoken,
    turns_of_conversation,
)
from paceline.files.read_report import Unusable
from paceline.traffic.exchange import Message

__all__ = ["SHAPES_WANTED", "Shaped", "shaped"]

Row = Mapping[str, object]
Turns = Iterable[Turn | Unusable]

ANSWER_KEYS = ("completion", "response", "output", "answer")
REFERENCE_KEYS = ("answer", "canonical_solution", "reference")
STOPPED = ("stop", "eos", "eos_token", "end_turn", "stop_sequence")
CUT_OFF = ("length", "max_tokens", "abort")
CALLED = ("tool_calls", "function_call")
MAX_CHOICES = 128  # the most that OpenAI's API gives
MAX_TOKEN_ID = 2**31 - 1

NO_SHAPE = "none of the shapes we read"
EMPTY_PROMPT = "an empty prompt"
TOO_MANY_CHOICES = f"more than {MAX_CHOICES} choices"
NO_CHOICES = "a response without choices"
EARLIER_ANSWER_ABSENT = "a later turn, whose earlier answer is not there"
UNKNOWN_FINISH = "a finish reason that is not known"
BAD_TOKENS = "token ids that are none"

REFERENCE_NOTE = "a reference answer that the target did not write: taken as a prompt without an answer"
REASONING_NOTE = "reasoning beside an answer's text: its tokens are replayed only where the log has token ids"
OUTPUT_TOKENS_NOTE = "a stated output_tokens: not read, as it is no measurement"

SHAPES_WANTED = (
    "give one JSON object per line with messages, request and response, conversations, prompt and completion, prompt, turns or question"
)


@dataclass(frozen=True, slots=True)
class Shaped:
    """The turns in a line, in order, and what is worth knowing about it."""

    turns: Turns
    notes: tuple[str, ...]


def shaped(row: Row) -> Shaped:
    """The line's turns by the first shape whose keys it has.

    Raises:
        Unusable: it has none of the shapes, or a value of the wrong type.

    """
    for fits, read in SHAPES:
        if fits(row):
            turns = [_answered(each) for each in read(row)]
            return Shaped(
                turns=turns, notes=tuple(_notes(row, answered=any(isinstance(each, Turn) and each.answer is not None for each in turns)))
            )
    raise Unusable(NO_SHAPE, f"keys: {printable(', '.join(row))}")


def _answered(turn: Turn | Unusable) -> Turn | Unusable:
    if isinstance(turn, Turn) and turn.answer == "" and not turn.output_token_ids:
        return Unusable(EMPTY_ANSWER, "")
    return turn


def _notes(row: Row, *, answered: bool) -> Iterator[str]:
    if not answered and any(row.get(key) is not None for key in REFERENCE_KEYS):
        yield REFERENCE_NOTE
    if not answered and "output_tokens" in row:
        yield OUTPUT_TOKENS_NOTE
    messages = row.get("messages")
    if _is_call(row):
        messages = [each.get("message") for each in _choices(_body("response", row["response"]))]
    if isinstance(messages, list) and reasoned(messages):
        yield REASONING_NOTE


def _conversation(row: Row) -> Turns:
    said = spoken(next(row[key] for key in ("messages", "conversations", "conversation") if key in row))
    answer = _answer_beside(row)
    if answer is not None and said[-1].role != "assistant":
        said.append(answer)
    return _with_last(list(turns_of_conversation(said)), row)


def _with_last(turns: list[Turn | Unusable], row: Row) -> list[Turn | Unusable]:
    """The turns, the last of which carries the line's finish reason and token ids."""
    last = turns[-1]
    if isinstance(last, Unusable):
        return turns
    prompt_ids = _token_ids("prompt_token_ids", row.get("prompt_token_ids"))
    if last.answer is None:
        return [*turns[:-1], replace(last, prompt_token_ids=prompt_ids)]
    finish = _finish_reason(row.get("finish_reason"))
    if isinstance(finish, Unusable):
        return [*turns[:-1], finish]
    output_ids = _token_ids("token_ids", row.get("token_ids"))
    return [*turns[:-1], replace(last, finish_reason=finish, prompt_token_ids=prompt_ids, output_token_ids=output_ids)]


def _answer_beside(row: Row) -> Spoken | None:
    for key in ANSWER_KEYS:
        if row.get(key) is not None:
            return _said("assistant", key, row[key])
    return None


def _said(role: str, name: str, value: object) -> Spoken:
    """A text that stands under a key of its own; a list of one message counts as its text."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and "content" in value[0]:
        return spoken(value)[0]
    text = content_text(name, value)
    return Spoken(role=role, text="", unusable=text) if isinstance(text, Unusable) else Spoken(role=role, text=text, unusable=None)


def _prompt(row: Row, key: str) -> list[Spoken]:
    """The prompt under `key`: a text, or a list of messages.

    Raises:
        Unusable: it is empty or of the wrong type.

    """
    value = row[key]
    if isinstance(value, list) and value and isinstance(value[0], dict) and ("role" in value[0] or "from" in value[0]):
        return spoken(value)
    prompt = _said("user", key, value)
    if prompt.unusable is None and not prompt.text:
        raise Unusable(EMPTY_PROMPT, "")
    return [prompt]


def _asked(said: list[Spoken]) -> tuple[Message, ...] | Unusable:
    spoiled = next((each.unusable for each in said if each.unusable), None)
    return spoiled or tuple(Message(role=each.role, content=each.text) for each in said)


def _pair(row: Row) -> Turns:
    answer = _answer_beside(row)
    return _with_last([_one_turn(1, _asked(_prompt(row, "prompt")), answer)], row)


def _one_turn(number: int, asked: tuple[Message, ...] | Unusable, answer: Spoken | None) -> Turn | Unusable:
    """One answer (or none) to everything asked; answers in there are context."""
    if isinstance(asked, Unusable):
        return asked
    if answer is not None and answer.unusable is not None:
        return answer.unusable
    text = None if answer is None else answer.text
    return Turn(number=number, messages=asked, answer=text, finish_reason=None, prompt_token_ids=None, output_token_ids=None)


def _bare_prompt(key: str) -> Callable[[Row], Turns]:
    return lambda row: [_one_turn(1, _asked(_prompt(row, key)), None)]


def _questions(row: Row) -> Turns:
    turns = row["turns"]
    if not isinstance(turns, list) or not turns:
        raise Unusable(WRONG_TYPE, f"turns is {json_type(turns)}, not an array with a question in it")
    later = [Unusable(EARLIER_ANSWER_ABSENT, "")] * (len(turns) - 1)
    return [_one_turn(1, _asked(_prompt({"turns": turns[0]}, "turns")), None), *later]


def _call(row: Row) -> Turns:
    request = _body("request", row.get("request", row))
    response = _body("response", row["response"])
    said = spoken(request["messages"]) if "messages" in request else _prompt(request, "prompt") if "prompt" in request else None
    if said is None:
        raise Unusable(NO_SHAPE, f"a request with the keys {printable(', '.join(request))}")
    asked = _asked(said)  # once: the choices share it
    return [turn for number, each in enumerate(_choices(response), 1) for turn in _choice(number, asked, response, each)]


def _body(name: str, value: object) -> Row:
    """The call's own JSON: batch files wrap it in `body`."""
    inner = value.get("body", value) if isinstance(value, dict) else value
    if not isinstance(inner, dict):
        raise Unusable(WRONG_TYPE, f"{name} is {json_type(inner)}, not an object")
    return inner


def _choices(response: Row) -> list[dict[str, object]]:
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices:
        raise Unusable(NO_CHOICES, f"choices is {json_type(choices)}, not an array with one in it")
    if len(choices) > MAX_CHOICES:
        raise Unusable(TOO_MANY_CHOICES, f"{len(choices)}")
    for each in choices:
        if not isinstance(each, dict):
            raise Unusable(WRONG_TYPE, f"a choice is {json_type(each)}, not an object")
    return choices


def _choice(number: int, asked: tuple[Message, ...] | Unusable, response: Row, choice: Row) -> list[Turn | Unusable]:
    answer = spoken([choice["message"]])[0] if "message" in choice else _said("assistant", "a choice's text", choice.get("text"))
    turn = _one_turn(number, asked, answer)
    prompt_ids = choice.get("prompt_token_ids", response.get("prompt_token_ids"))
    return _with_last([turn], {**choice, "prompt_token_ids": prompt_ids})


def _finish_reason(value: object) -> str | Unusable | None:
    """The word "stop" where the target ended the answer, "length" where something else cut it, None where the log does not say."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Unusable(WRONG_TYPE, f"finish_reason is {json_type(value)}, not a string")
    if value in CALLED:
        return Unusable(TOOL_CALL, "")
    if value not in STOPPED + CUT_OFF:
        return Unusable(UNKNOWN_FINISH, printable(value))
    return "stop" if value in STOPPED else "length"


def _token_ids(name: str, value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        raise Unusable(BAD_TOKENS, f"{name} is {json_type(value)}, not an array with a token in it")
    for each in value:
        if type(each) is not int or not 0 <= each <= MAX_TOKEN_ID:  # bool is an int to isinstance
            raise Unusable(BAD_TOKENS, f"{name} holds {printable(each)}")
    return tuple(value)


def _is_call(row: Row) -> bool:
    return isinstance(row.get("response"), dict) and ("request" in row or "messages" in row or "prompt" in row)


# The first that fits is taken: a call's `response` is an object, a pair's is a text.
SHAPES: tuple[tuple[Callable[[Row], bool], Callable[[Row], Turns]], ...] = (
    (_is_call, _call),
    (lambda row: any(key in row for key in ("messages", "conversations", "conversation")), _conversation),
    (lambda row: "turns" in row, _questions),
    (lambda row: "prompt" in row and any(row.get(key) is not None for key in ANSWER_KEYS), _pair),
    (lambda row: "prompt" in row, _bare_prompt("prompt")),
    (lambda row: "question" in row, _bare_prompt("question")),
)
