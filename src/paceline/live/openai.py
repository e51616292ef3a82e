"""Asking a server that speaks the OpenAI API: what is sent, and the two questions that cost nothing (is it up, what does it serve).

Rules. Temperature and seed are always sent, because a server's own defaults differ. Fields beyond the API's own make the answer say more
(OPTIONAL_FIELDS); a server that refuses one (HTTP 400) is asked `without` it. The key comes from PACELINE_API_KEY when a request is
made and is kept in no record: whatever a server said goes through `without_key` before it is shown, cut or written.
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

from paceline.errors import BadInputError, ServerFaultError, UnknownNameError, is_count, printable
from paceline.live.http_client import Http
from paceline.live.http_message import address_of
from paceline.traffic.exchange import Message

__all__ = [
    "APIS",
    "Ask",
    "KEY_VARIABLE",
    "OPTIONAL_FIELDS",
    "Server",
    "authorization",
    "body_of",
    "headers_of",
    "is_healthy",
    "is_same_server",
    "optional_fields",
    "served_models",
    "without_key",
    "without_key_bytes",
]

APIS = ("chat", "completions")
KEY_VARIABLE = "PACELINE_API_KEY"
# What makes a server say more, and for whom; the first is the most useful, so it is the last to leave out.
OPTIONAL_FIELDS: Mapping[str, frozenset[str]] = {
    "continuous_usage_stats": frozenset({"vllm", "sglang", "tensorrt_llm"}),  # the tokens of each message
    "return_spec_tokens_details": frozenset({"sglang"}),  # the request's own acceptance
    "timings_per_token": frozenset({"llamacpp"}),  # tokens so far with each message
    "metadata": frozenset({"vllm", "sglang", "llamacpp"}),  # the request's segment, for whoever reads the server's log
}
SHORTEST_SECRET = 6  # shorter ones ("EMPTY", "none") are no secrets, and stand in many a text
ESCAPE = re.compile("%[0-9A-F]{2}")
DIALECTS = ("vllm", "sglang", "llamacpp", "tensorrt_llm", "lmdeploy")
RESERVED = frozenset(
    {"model", "messages", "prompt", "stream", "stream_options", "max_tokens", "temperature", "seed", "n", *OPTIONAL_FIELDS}
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server: its `url` (with or without /v1), by which `api` (chat or completions), which `model`, whose `dialect` (None: unknown)."""

    url: str
    api: str
    model: str
    dialect: str | None

    def __post_init__(self) -> None:
        """Reject what cannot be asked.

        Raises:
            BadInputError: no URL, or one with a query; a model's name that is no text.
            UnknownNameError: another API or dialect.

        """
        if not _is_text(self.model):
            raise BadInputError(f"the model's name {printable(self.model)} is no text that can be written down; name one with --model")
        if "?" in address_of(self.url).target or "#" in self.url:
            raise BadInputError(f"{printable(self.url)} is not a server's URL: it has a query; give what stands before it")
        if self.api not in APIS:
            raise UnknownNameError("API", self.api, APIS)
        if self.dialect is not None and self.dialect not in DIALECTS:
            raise UnknownNameError("dialect", self.dialect, DIALECTS)

    @property
    def root(self) -> str:
        """The URL before /v1, where /health and /metrics are."""
        return self.url.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def endpoint(self) -> str:
        """Where requests go."""
        return f"{self.root}/v1/{'chat/completions' if self.api == 'chat' else 'completions'}"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: either `messages` or a bare `prompt`, and how to answer it. `extra` is sent as it stands."""

    id: str
    segment: str
    messages: tuple[Message, ...] | None
    prompt: str | None
    max_tokens: int
    temperature: float
    seed: int
    extra: Mapping[str, object]

    def __post_init__(self) -> None:
        """Reject a request for nothing, and extra fields that would change what is measured.

        Raises:
            BadInputError: with the request's id.

        """
        if (self.messages is None) == (self.prompt is None):
            raise BadInputError(f"request {printable(self.id)}: give either messages or a prompt")
        if not is_count(self.max_tokens, least=1):
            raise BadInputError(f"request {printable(self.id)}: max_tokens = {printable(self.max_tokens)} is not a whole number from 1 on")
        if taken := sorted(RESERVED & set(self.extra)):
            raise BadInputError(f"request {printable(self.id)}: the field {taken[0]} is set by the measurement itself; leave it out")


def optional_fields(server: Server, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """The optional fields that this server is sent: all that it may know, `without` those it refused."""
    known = (name for name, dialects in OPTIONAL_FIELDS.items() if server.dialect is None or server.dialect in dialects)
    return tuple(name for name in known if name not in without)


def body_of(ask: Ask, server: Server, *, without: Collection[str]) -> bytes:
    """The request's body; `without` names optional fields to leave out.

    Raises:
        BadInputError: messages for an API that takes a bare prompt, or an extra field that JSON does not have.

    """
    if server.api == "completions" and ask.prompt is None:
        raise BadInputError(f"request {printable(ask.id)} has messages, but the completions API takes a bare prompt; use the chat API")
    sent = optional_fields(server, without=without)
    body: dict[str, object] = {"model": server.model}
    if server.api == "completions":
        body["prompt"] = ask.prompt
    else:
        messages = ask.messages if ask.messages is not None else (Message(role="user", content=ask.prompt or ""),)
        body["messages"] = [{"role": each.role, "content": each.content} for each in messages]
    body |= {"max_tokens": ask.max_tokens, "temperature": ask.temperature, "seed": ask.seed, "stream": True}
    body["stream_options"] = {"include_usage": True} | ({"continuous_usage_stats": True} if "continuous_usage_stats" in sent else {})
    body |= {name: True for name in ("return_spec_tokens_details", "timings_per_token") if name in sent}
    if "metadata" in sent:
        body["metadata"] = {"segment": ask.segment}
    try:
        return json.dumps(body | dict(ask.extra), allow_nan=False).encode("ascii")
    except (TypeError, ValueError) as error:
        raise BadInputError(f"request {printable(ask.id)} cannot be written as JSON: {error}") from error


def headers_of(ask: Ask) -> dict[str, str]:
    """The request's headers: its id, percent-encoded, and the key where the environment has one.

    Raises:
        BadInputError: the key has a character that no header may have.

    """
    return {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "X-Request-Id": quote(ask.id, safe="")[:200],
        **authorization(),
    }


def authorization() -> dict[str, str]:
    """The header that carries the key, nothing where there is none.

    Raises:
        BadInputError: the key has a character that no header may have; it is not quoted.

    """
    key = _key()
    if key and not (key.isascii() and key.isprintable()):
        raise BadInputError(f"{KEY_VARIABLE} holds a character that no header may have; set it again")
    return {"Authorization": f"Bearer {key}"} if key else {}


def without_key(text: str) -> str:
    """`text` with the key left out, as it stands or as JSON or a URL writes it. Done before a text is cut: half a key is one too."""
    for form in _forms():
        text = text.replace(form, "…")
    return text


def without_key_bytes(data: bytes) -> bytes:
    """The same of bytes, each of the key's replaced by `*`, so that no length changes."""
    for form in _forms():
        written = form.encode("utf-8")
        data = data.replace(written, b"*" * len(written))
    return data


def _key() -> str:
    return os.environ.get(KEY_VARIABLE, "").strip()


def _forms() -> list[str]:
    """How the key may be written, the longest first; none where there is no secret."""
    key = _key()
    if len(key) < SHORTEST_SECRET or not key.isascii():
        return []
    escaped, quoted = json.dumps(key)[1:-1], [quote(key, safe=""), quote(key), quote_plus(key)]
    lower = [ESCAPE.sub(lambda found: found[0].lower(), each) for each in quoted]
    return sorted({key, escaped, escaped.replace("/", "\\/"), *quoted, *lower}, key=len, reverse=True)


def _is_text(name: str) -> bool:
    """Whether a name has no half of a surrogate pair, which no file holds."""
    return not any("\ud800" <= each <= "\udfff" for each in name)


async def served_models(http: Http, server: Server, *, timeout_s: float) -> tuple[str, ...]:
    """The names under which a server's models are asked for.

    Raises:
        ServerFaultError: it did not answer, or not with such a list.

    """
    url = f"{server.root}/v1/models"
    reply = await http.get(url, headers=authorization(), timeout_s=timeout_s)
    if reply.status != 200:
        raise ServerFaultError(
            f"GET {printable(url)}: HTTP {reply.status}; is this an OpenAI-compatible server, and is {KEY_VARIABLE} right?"
        )
    try:
        return tuple(without_key(str(each["id"])) for each in json.loads(reply.body)["data"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ServerFaultError(
            f"GET {printable(url)}: the answer is not a list of models, but {printable(without_key_bytes(reply.body)[:60])}"
        ) from error


async def is_healthy(http: Http, server: Server, *, timeout_s: float) -> bool:
    """Whether /health answers with 200; a server that does not answer is not healthy."""
    try:
        return (await http.get(f"{server.root}/health", headers={}, timeout_s=timeout_s)).status == 200
    except ServerFaultError:
        return False


def is_same_server(one: str, other: str) -> bool:
    """Whether two URLs lead to one server: with or without /v1 and the last slash, by whichever name of this machine.

    Raises:
        BadInputError: not a URL.

    """
    return _place(one) == _place(other)


def _place(url: str) -> tuple[bool, str, int, str]:
    """Where a URL leads, the same for every way to write one server of this machine."""
    address = address_of(url)
    host = "127.0.0.1" if address.host in ("localhost", "::1", "0.0.0.0") else address.host.removesuffix(".")  # noqa: S104 - compared, not bound
    return address.tls, host, address.port, address.target.rstrip("/").removesuffix("/v1").rstrip("/")
