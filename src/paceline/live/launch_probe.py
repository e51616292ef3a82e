"""Whether a server that was just started drafts: what it says of itself, and what its counts do when it is asked something repetitive.

| engine | says of itself |
|---|---|
| llama-server | /slots: `speculative` of each slot (`-md` without `--spec-type` loads a draft and does not use it) |
| SGLang | /server_info: `speculative_algorithm` |
| vLLM | nothing but its counters |

The prompts repeat themselves, so that prompt lookup finds what it looks for as well as a draft model does. They go to the completions API:
a chat template's end would stand between the repetition and its continuation.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paceline.errors import BadInputError, NoEvidenceError, PacelineError, ServerFaultError, printable
from paceline.live.answer import read_answer
from paceline.live.http_client import Http
from paceline.live.http_connection import Timeouts
from paceline.live.openai import Ask, Server, authorization, body_of, headers_of, served_models, without_key
from paceline.run import Arm
from paceline.servers.scrape import read_scrape, window_of

__all__ = ["Probed", "probed"]

ROUNDS = 3
PROBE_TOKENS = 32
SAID = {"llamacpp": ("/slots",), "sglang": ("/server_info", "/get_server_info")}
VERSIONS = {"vllm": ("/version", "version"), "llamacpp": ("/props", "build_info"), "sglang": ("/get_server_info", "version")}
WORDS = (
    "one two three four five six seven eight nine ten ",
    "red green blue white black red green blue white black ",
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday ",
)
REPEATS = 8
OK = 200


@dataclass(frozen=True, slots=True)
class Probed:
    """What was found.

    Attributes:
        models: what it serves.
        says: whether the server says of itself that it drafts, None where it does not say.
        counted_tokens: tokens drafted for the probe by the answers' or the server's counts, None where neither counts.
        asked: how many prompts were sent.
        version: the server's version as it says itself, None where it does not.

    """

    models: tuple[str, ...]
    says: bool | None
    counted_tokens: int | None
    asked: int
    version: str | None

    def wrong_for(self, arm: Arm, model: str) -> str | None:
        """What is wrong with it for this arm and model, as a sentence's end; None where nothing is."""
        if model not in self.models:
            return f"serves {', '.join(map(printable, self.models)) or 'no model'}, not {printable(model)}"
        if arm is Arm.BASELINE:
            if self.counted_tokens or self.says:
                return "drafts, and a baseline must not: take the speculative options out of what both arms get"
            return None
        if self.says is False:
            return "answers, but says of itself that it does not speculate: the options that switch drafts on are missing or were ignored"
        if self.counted_tokens == 0:
            return (
                f"answers, but drafted nothing on {self.asked} prompts that repeat themselves: its speculation is off, or its draft could "
                "not be used"
            )
        if self.counted_tokens is None and self.says is None:
            return "answers, but neither its answers nor /metrics tell whether it drafts: switch its metrics on"
        return None


async def probed(http: Http, server: Server, *, timeout_s: float) -> Probed:
    """Ask the server; prompts are sent one by one until something was drafted, three at most.

    Raises:
        ServerFaultError: it does not answer as it should.

    """
    models = await served_models(http, server, timeout_s=timeout_s)
    if server.model not in models:
        return Probed(models=models, says=None, counted_tokens=None, asked=0, version=None)
    before = await _metrics(http, server, timeout_s)
    own: int | None = None
    counted: int | None = None
    for asked in range(1, ROUNDS + 1):
        drafted = await _drafted_for(http, replace(server, api="completions"), asked, timeout_s)
        own = drafted if own is None else own + (drafted or 0)
        counted = _counted(before, await _metrics(http, server, timeout_s))
        if own or counted:
            break
    known = [each for each in (own, counted) if each is not None]
    return Probed(
        models=models,
        says=await _says(http, server, timeout_s),
        counted_tokens=max(known) if known else None,
        asked=asked,
        version=await _version(http, server, timeout_s),
    )


async def _drafted_for(http: Http, server: Server, number: int, timeout_s: float) -> int | None:
    """Tokens drafted for one prompt by the answer's own word, None where it has none."""
    ask = Ask(
        id=f"probe-{number}",
        segment="probe",
        messages=None,
        prompt=WORDS[(number - 1) % len(WORDS)] * REPEATS,
        max_tokens=PROBE_TOKENS,
        temperature=0.0,
        seed=number,
        extra={},
    )
    timeouts = Timeouts(first_byte_s=timeout_s, gap_s=timeout_s, total_s=timeout_s)
    received = await http.post_stream(
        server.endpoint, body_of(ask, server, without=()), headers=headers_of(ask), timeouts=timeouts, started=None
    )
    answer = read_answer(received, ask, arrived_at_s=None, clock_origin_ns=received.sent_at_ns, count_tokens=None)
    if answer.error is not None:
        raise ServerFaultError(f"the server did not answer a probe: {printable(answer.error)}")
    return None if answer.record.acceptance is None else answer.record.acceptance.drafted_tokens


def _counted(before: str | None, after: str | None) -> int | None:
    """Tokens drafted between two scrapes by the server's counters, None where they do not tell."""
    if before is None or after is None:
        return None
    try:
        window = window_of([read_scrape(each, model=None) for each in (before, after)])
    except (BadInputError, NoEvidenceError):
        return None
    return window.drafted_tokens if window.drafted_tokens is not None else window.drafts


async def _metrics(http: Http, server: Server, timeout_s: float) -> str | None:
    return await _get(http, f"{server.root}/metrics", timeout_s)


async def _says(http: Http, server: Server, timeout_s: float) -> bool | None:
    """Whether the server says of itself that it drafts."""
    for path in SAID.get(server.dialect or "", ()):
        told = _parsed(await _get(http, f"{server.root}{path}", timeout_s))
        if isinstance(told, list):
            return any(isinstance(each, dict) and each.get("speculative") is True for each in told)
        if isinstance(told, Mapping) and "speculative_algorithm" in told:
            return told["speculative_algorithm"] not in (None, "", "NONE")
    return None


async def _version(http: Http, server: Server, timeout_s: float) -> str | None:
    """Its version as it says itself."""
    if server.dialect not in VERSIONS:
        return None
    path, key = VERSIONS[server.dialect]
    told = _parsed(await _get(http, f"{server.root}{path}", timeout_s))
    return str(told[key])[:80] if isinstance(told, Mapping) and isinstance(told.get(key), str) else None


async def _get(http: Http, url: str, timeout_s: float) -> str | None:
    """The answer's text, None where there is none."""
    try:
        reply = await http.get(url, headers=authorization(), timeout_s=timeout_s)
    except PacelineError:
        return None
    return without_key(reply.body.decode("utf-8", "replace")) if reply.status == OK else None


def _parsed(text: str | None) -> Any:
    """What JSON it is, None where it is none."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
