"""`live/openai`: what is asked, and that the key stays where it is."""

import asyncio
import json
from urllib.parse import quote, quote_plus

import pytest

from paceline.errors import BadInputError, ServerFaultError, UnknownNameError
from paceline.live.fetch import metrics_url
from paceline.live.http_client import Http
from paceline.live.openai import (
    OPTIONAL_FIELDS,
    Ask,
    Server,
    body_of,
    headers_of,
    is_healthy,
    optional_fields,
    served_models,
    without_key,
    without_key_bytes,
)
from paceline.traffic.exchange import Message
from tests.wire.scripted_server import Exchange, scripted

KEY = "sk-of-nobody-5d41"


def ask(**changes: object) -> Ask:
    """A small request."""
    usual: dict[str, object] = {
        "id": "7",
        "segment": "code",
        "messages": None,
        "prompt": "hi",
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": 3,
    }
    return Ask(**(usual | {"extra": {}} | changes))  # type: ignore[arg-type]  # each test gives the types its field has


def server(**changes: object) -> Server:
    """A server of unknown dialect."""
    usual: dict[str, object] = {"url": "http://127.0.0.1:8000", "api": "chat", "model": "m", "dialect": None}
    return Server(**(usual | changes))  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_a_url_is_taken_with_and_without_v1(url: str) -> None:
    """Half of all users get a 404."""
    assert server(url=url).endpoint == "http://h:1/v1/chat/completions"
    assert server(url=url, api="completions").endpoint == "http://h:1/v1/completions"
    assert server(url="http://h:1/proxy/v1").root == "http://h:1/proxy"


def test_temperature_and_seed_are_always_sent() -> None:
    """The two arms sample differently because their defaults differ."""
    body = json.loads(body_of(ask(), server(), without=()))
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": 3,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_spec_tokens_details": True,
        "timings_per_token": True,
        "metadata": {"segment": "code"},
    }


def test_a_server_is_asked_only_for_what_its_dialect_knows() -> None:
    """A strict server refuses every request for a field it does not know."""
    assert optional_fields(server(dialect="tensorrt_llm")) == ("continuous_usage_stats",)
    assert optional_fields(server(dialect="lmdeploy")) == ()
    assert optional_fields(server()) == tuple(OPTIONAL_FIELDS)
    body = json.loads(body_of(ask(extra={"ignore_eos": True}), server(api="completions"), without=tuple(OPTIONAL_FIELDS)))
    assert body["stream_options"] == {"include_usage": True}
    assert set(body) == {"model", "prompt", "max_tokens", "temperature", "seed", "stream", "stream_options", "ignore_eos"}


def test_messages_are_sent_as_they_stand() -> None:
    """Another prompt is measured than the user's."""
    messages = (Message("system", "s"), Message("user", "Größe\n"))
    assert json.loads(body_of(ask(messages=messages, prompt=None), server(), without=()))["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "Größe\n"},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ask(messages=(Message("user", "a"),)),
        lambda: ask(prompt=None),
        lambda: ask(max_tokens=0),
        lambda: ask(extra={"n": 2}),
        lambda: ask(extra={"metadata": {}}),
        lambda: body_of(ask(extra={"a": {1}}), server(), without=()),
        lambda: body_of(ask(extra={"a": float("nan")}), server(), without=()),
        lambda: body_of(ask(messages=(Message("user", "a"),), prompt=None), server(api="completions"), without=()),
        lambda: server(url="http://h/?key=1"),
        lambda: server(api="responses"),
        lambda: server(dialect="tgi"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is_sent(wrong: object) -> None:
    """A thousand requests come back with HTTP 400."""
    with pytest.raises((BadInputError, UnknownNameError)):
        wrong()  # type: ignore[operator]  # a function of no arguments


def test_the_key_comes_from_the_environment_and_stays_out_of_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is published with a benchmark's result."""
    monkeypatch.setenv("PACELINE_API_KEY", KEY)
    assert headers_of(ask())["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr((ask(), server())) + body_of(ask(), server(), without=()).decode()
    monkeypatch.setenv("PACELINE_API_KEY", "a\nb")
    with pytest.raises(BadInputError) as refused:
        headers_of(ask())
    assert "a\nb" not in str(refused.value)
    monkeypatch.delenv("PACELINE_API_KEY")
    assert "Authorization" not in headers_of(ask())


def test_an_id_of_any_characters_is_one_header() -> None:
    """A chat log's id writes headers of its own."""
    assert headers_of(ask(id="a\r\nX: é"))["X-Request-Id"] == "a%0D%0AX%3A%20%C3%A9"


def over_a_socket(replies: dict[bytes, bytes]) -> tuple[object, bool]:
    """What a server says of its models (or the fault), and whether it is healthy."""

    async def answer(exchange: Exchange) -> None:
        body = replies.get(exchange.head.split(b" ")[1])
        await exchange.send(
            b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (404 if body is None else 200, len(body or b""), body or b"")
        )

    async def main() -> tuple[object, bool]:
        async with scripted(answer) as listening:
            http = Http()
            asked = server(url=f"{listening.url}/v1")
            try:
                models: object = await served_models(http, asked, timeout_s=9)
            except ServerFaultError as fault:
                models = str(fault)
            healthy = await is_healthy(http, asked, timeout_s=9)
            http.close()
            return models, healthy

    return asyncio.run(main())


def test_a_server_says_what_it_serves_and_whether_it_is_up() -> None:
    """The first request of a run finds out."""
    assert over_a_socket({b"/v1/models": b'{"data": [{"id": "a"}, {"id": "b"}]}', b"/health": b""}) == (("a", "b"), True)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data": [3]}', b"<html>", b"[" * 100_000])
def test_what_is_no_list_of_models_is_a_server_fault(body: bytes) -> None:
    """A wrong port ends in a traceback."""
    fault, healthy = over_a_socket({b"/v1/models": body})
    assert "list of models" in str(fault)
    assert not healthy


def test_a_server_without_models_is_a_server_fault() -> None:
    """A wrong key ends in a traceback."""
    assert "HTTP 404" in str(over_a_socket({})[0])


def test_a_server_that_is_not_there_is_not_healthy() -> None:
    """A restart ends the watch."""

    async def main() -> bool:
        async with scripted(lambda exchange: exchange.cut()) as listening:
            url = listening.url
        return await is_healthy(Http(), server(url=url), timeout_s=1)

    assert not asyncio.run(main())


@pytest.mark.parametrize("key", [KEY, 'sk-"of/no+body'])
def test_the_key_is_left_out_of_what_a_server_said_however_it_is_written(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that echoes the key gets it published."""
    monkeypatch.setenv("PACELINE_API_KEY", f"{key}\n")
    forms = [
        key,
        json.dumps(key)[1:-1],
        quote(key, safe=""),
        quote_plus(key),
        quote(key).lower(),
        json.dumps(key)[1:-1].replace("/", "\\/"),
    ]
    for form in forms:
        assert without_key(f"<{form}>") == "<…>"
        assert without_key_bytes(f"<{form}>".encode()) == b"<" + b"*" * len(form) + b">"
    monkeypatch.setenv("PACELINE_API_KEY", "EMPTY")
    assert without_key("EMPTY") == "EMPTY"
    monkeypatch.delenv("PACELINE_API_KEY")
    assert without_key(key) == key


def test_a_model_s_name_that_no_file_holds_is_refused() -> None:
    """Half a surrogate pair ends in a traceback when it is written."""
    with pytest.raises(BadInputError, match=r"'a\\ud800' is no text"):
        server(model="a\ud800")


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_host_that_cannot_be_looked_up_is_refused(host: str) -> None:
    """The look-up itself raises something that is no network error."""
    with pytest.raises(BadInputError, match="63 characters"):
        server(url=f"http://{host}:1")
    with pytest.raises(BadInputError, match="no address"):
        metrics_url(f"http://{host}:1")
