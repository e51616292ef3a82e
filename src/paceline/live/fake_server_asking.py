"""What a body asks of the fake server: an OpenAI chat or completions request, read with bounds and without guessing.

Prompt tokens are counted by one rule that a client can rely on: a prompt of token ids has as many tokens as ids; a text has one token for
each run of characters without white space, at least one in all; a chat has those of all its messages' texts and nothing for a template.
`metadata.prompt_tokens` overrides the rule. Output has `max_tokens` (or `max_completion_tokens`) tokens, unless `metadata.output_tokens` is
smaller: then the text ends there with "stop", except under `ignore_eos` and never before `min_tokens`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from paceline.errors import BadInputError, printable

__all__ = ["Api", "Asking", "read_asking"]

MOST_TOKENS = 262_144
MOST_NAME = 200
ANY_SEGMENT = "all"
Api = str  # "chat" or "completions"


@dataclass(frozen=True, slots=True)
class Asking:
    """One request, as read from its body.

    Attributes:
        api: "chat" or "completions".
        prompt_tokens: by the rule above.
        output_tokens: how many it will get.
        finish_reason: "length", or "stop" where the text ends by itself.
        segment: of the traffic, "all" where the body names none.
        seed: the body's seed, None where it has none.
        text_seed: from which the words are drawn: equal prompts have equal answers, at temperature 0 whatever the seed.
        stream, include_usage, continuous_usage: as OpenAI and vLLM name them.
        logprobs, token_ids: whether chunks carry them.

    """

    api: Api
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    segment: str
    seed: int | None
    text_seed: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    logprobs: bool
    token_ids: bool


def read_asking(content: bytes, *, api: Api, model: str, default_output_tokens: int) -> Asking:
    """The request in a body.

    Raises:
        BadInputError: it is no JSON object, or a field is not what it must be; the message names the field.

    """
    body = _object(content)
    asked_model = body.get("model")
    if asked_model is not None and asked_model != model:
        raise BadInputError(f"model {printable(asked_model)} is not served here; this server has {printable(model)}")
    if body.get("n", 1) not in (1, None):
        raise BadInputError(f"n = {printable(body['n'])}: this server gives one choice per request")
    metadata = _mapping(body, "metadata")
    stream_options = _mapping(body, "stream_options")
    texts, ids = _prompt(body, api)
    counted = ids if ids is not None else max(1, sum(len(each.split()) for each in texts))
    output_tokens, finish_reason = _output(body, metadata, default_output_tokens)
    seed = _whole(body, "seed", least=-(2**63), most=2**64)
    temperature = _number(body, "temperature")
    prompt_hash = crc32("\x00".join(texts).encode("utf-8", "replace"))
    return Asking(
        api=api,
        prompt_tokens=_whole(metadata, "prompt_tokens", least=1, most=MOST_TOKENS) or counted,
        output_tokens=output_tokens,
        finish_reason=finish_reason,
        segment=_segment(metadata),
        seed=seed,
        text_seed=prompt_hash if not temperature or seed is None else prompt_hash ^ (seed & 0xFFFFFFFF),
        stream=_flag(body, "stream"),
        include_usage=_flag(stream_options, "include_usage"),
        continuous_usage=_flag(stream_options, "continuous_usage_stats"),
        logprobs=body.get("logprobs") is not None and body["logprobs"] is not False,  # 0 asks for the chosen tokens' alone
        token_ids=_flag(body, "return_token_ids"),
    )


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise BadInputError(f"the body is no JSON: {printable(str(fault))}") from None
    if not isinstance(body, dict):
        raise BadInputError(f"the body must be a JSON object, not {type(body).__name__}")
    return body


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadInputError(f"{name} must be an object, not {printable(found)}")
    return found


def _flag(body: Mapping[str, Any], name: str) -> bool:
    found = body.get(name)
    if found not in (None, True, False):
        raise BadInputError(f"{name} must be true or false, not {printable(found)}")
    return bool(found)


def _number(body: Mapping[str, Any], name: str) -> float | None:
    found = body.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 100:
        raise BadInputError(f"{name} must be a number from 0 on, not {printable(found)}")
    return float(found)


def _whole(body: Mapping[str, Any], name: str, *, least: int, most: int) -> int | None:
    """A whole number; metadata may hold it as text, as OpenAI's values are."""
    found = body.get(name)
    if found is None:
        return None
    if isinstance(found, str) and len(found) <= 20 and found.isascii() and found.isdigit():
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise BadInputError(f"{name} must be a whole number from {least} to {most}, not {printable(found)}")
    return found


def _segment(metadata: Mapping[str, Any]) -> str:
    found = metadata.get("segment", ANY_SEGMENT)
    if not isinstance(found, str) or not 0 < len(found) <= MOST_NAME:
        raise BadInputError(f"metadata.segment must be a name of at most {MOST_NAME} characters, not {printable(found)}")
    return found


def _output(body: Mapping[str, Any], metadata: Mapping[str, Any], default_output_tokens: int) -> tuple[int, str]:
    """How many tokens come, and why the text ends there."""
    limit = _whole(body, "max_completion_tokens", least=1, most=MOST_TOKENS) or _whole(body, "max_tokens", least=1, most=MOST_TOKENS)
    least = _whole(body, "min_tokens", least=0, most=MOST_TOKENS) or 0
    own = None if _flag(body, "ignore_eos") else _whole(metadata, "output_tokens", least=1, most=MOST_TOKENS)
    most = default_output_tokens if limit is None and own is None else limit
    if most is not None and least > most:
        raise BadInputError(f"min_tokens = {least} is above max_tokens = {most}")
    if own is not None and (most is None or own < most):
        return max(own, least), "stop"
    assert most is not None
    return most, "length"


def _prompt(body: Mapping[str, Any], api: Api) -> tuple[list[str], int | None]:
    """The prompt's texts, and its number of token ids where it is made of those."""
    if api == "chat":
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadInputError("messages must be a list of at least one message")
        return [text for each in messages for text in _message_texts(each)], None
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return [prompt], None
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        return [" ".join(map(str, prompt[:1000]))], len(prompt)
    raise BadInputError("prompt must be one text or one list of token ids")


def _message_texts(message: object) -> list[str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadInputError(f"a message must be an object with a role and content, not {printable(message)}")
    content = message.get("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise BadInputError(f"a message's content must be a text or a list of parts, not {printable(content)}")
    return [each["text"] for each in content if isinstance(each.get("text"), str)]
