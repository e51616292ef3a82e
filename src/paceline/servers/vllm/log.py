"""The lines of a vLLM server's log that say something of speculation, of all five generations.

    V0 (to 0.9.2)      Speculative metrics: … Number of speculative tokens: K, … Number of emitted tokens: E.   running totals
    0.8.0 to 0.8.4     Speculative metrics: or SpecDecoding metrics: rate, accepted, drafted                    an interval, no drafts
    0.8.5 to 0.10.1    SpecDecoding metrics: Draft acceptance rate: …, Mean acceptance length: …, …             an interval
    0.10.2 on          SpecDecoding metrics: Mean acceptance length: …, Accepted throughput: …, …               an interval
    dynamic drafts     the same with Current speculative depth: K

The length leaves the target's own token out in 0.8.5 and has it from 0.9.0 on; the rates by position, which add up to the length without
it, tell which. An interval ends with the line; one in which nothing was drafted prints none, so that the next one's rates per second
include the idle time, its counts do not.

A line counts where vLLM's own prefix for that source file opens it: `(process) LEVEL MM-DD hh:mm:ss [file.py:line]`. Requests are echoed
behind the prefix of another file, on every line of theirs. Lines without any prefix are kept apart.
Source: vLLM 0.32.0, v1/spec_decode/metrics.py line 107 and v1/metrics/loggers.py line 276; vLLM issues 7301, 15902, 16665.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["EngineStart", "Interval", "Spoken", "Throughput", "V0Totals", "has_prefix", "is_vllm_line", "read_line"]

PREFIX = re.compile(
    r"(?:\((?P<process>[A-Za-z][\w ]{0,40})(?:[ _]pid=(?P<pid>\d{1,9}))?\) )?"
    r"(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \[?(?P<file>[\w./-]{1,80}\.py):\d{1,5}\] "
)
SERVER_FILES = (
    "api_server.py",
    "async_llm.py",
    "async_llm_engine.py",
    "core.py",
    "launcher.py",
    "llm_engine.py",
    "loggers.py",
    "metrics.py",
)
SPECULATIVE = re.compile(r"Spec(?:ulative|Decoding) metrics: ")
FIGURES = {
    "accepted": re.compile(r"(?:Number of accepted tokens: |Accepted: )(\d{1,15})\b"),
    "drafted": re.compile(r"(?:Number of draft tokens: |Drafted: )(\d{1,15})\b"),
    "emitted": re.compile(r"Number of emitted tokens: (\d{1,15})\b"),
    "longest": re.compile(r"Number of speculative tokens: (\d{1,4})\b"),
    "depth": re.compile(r"Current speculative depth: (\d{1,4})\b"),
    "rate": re.compile(r"Draft acceptance rate: (\d(?:\.\d{1,6})?)(?![\d.])"),
    "length": re.compile(r"Mean acceptance length: (\d{1,4}(?:\.\d{1,6})?)"),
    "drafted_per_s": re.compile(r"Drafted throughput: (\d{1,12}(?:\.\d{1,6})?) ?tokens/s"),
    "efficiency": re.compile(r"System efficiency: (\d(?:\.\d{1,6})?)"),
}
RATES = re.compile(r"Per-position acceptance rate: (\d(?:\.\d{1,6})?(?:, ?\d(?:\.\d{1,6})?){0,255})(?:,|$| )")
THROUGHPUT = re.compile(
    r"(?:Engine (?P<engine>\d{1,5}): |\d{1,5} Engines Aggregated: )?Avg prompt throughput: [\d.]{1,15} tokens/s, "
    r"Avg generation throughput: (?P<rate>\d{1,12}(?:\.\d{1,6})?) tokens/s, Running: (?P<running>\d{1,9}) reqs"
)
START = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v?(?P<version>[\w.+-]{1,60})\) with config: ")
MODEL = re.compile(r"\bmodel='([^']{1,300})'")
CONFIGURED = re.compile(r"\bspeculative_config=(?:None|SpeculativeConfig\((?P<config>[^()]{0,2000})\))")
METHOD = re.compile(r"\bmethod='([\w-]{1,40})'")
LONGEST = re.compile(r"\bnum_spec(?:ulative)?_tokens=(\d{1,4})\b")


@dataclass(frozen=True, slots=True)
class Interval:
    """What was drafted and accepted since the line before: exact counts, and ratios as rounded as they are printed.

    Attributes:
        accepted_tokens: drafted tokens accepted.
        drafted_tokens: tokens drafted.
        length: acceptance length as printed, with the target's own token or without; None where not printed.
        rates: survival by position, None where not printed.
        depth: K as it stands at the end of the interval, where drafts are dynamic.
        seconds: how long it lasted, idle time before it included; None where no rate per second is printed.

    """

    accepted_tokens: int
    drafted_tokens: int
    length: float | None
    rates: tuple[float, ...] | None
    depth: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class V0Totals:
    """The V0 engine's running totals: accepted counts matches after a rejection too, emitted is what the drafted steps gave."""

    accepted_tokens: int
    drafted_tokens: int
    emitted_tokens: int
    draft_tokens: int
    efficiency: float | None
    rate: float | None


@dataclass(frozen=True, slots=True)
class EngineStart:
    """An engine began: its version, model and speculation (`speculates` None where the line does not say)."""

    version: str
    model: str | None
    speculates: bool | None
    method: str | None
    draft_tokens: int | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens generated per second since the engine's last such line, and the requests running at its end."""

    engine: str
    generated_per_s: float
    running: int


Said: TypeAlias = Interval | V0Totals | EngineStart | Throughput


@dataclass(frozen=True, slots=True)
class Spoken:
    """One line of note: who said it (the process, its pid apart), and whether vLLM's prefix opened it."""

    process: str
    prefixed: bool
    said: Said


def has_prefix(line: str) -> bool:
    """Whether vLLM's own prefix opens the line."""
    return PREFIX.match(line) is not None


def is_vllm_line(line: str) -> bool:
    """Whether a vLLM server wrote the line: with a process or a server's source file in the prefix, or statistics without one.

    vLLM's own benchmark client opens its lines with the same prefix, but names no process and comes from other files.
    """
    found = PREFIX.match(line)
    if found is None:
        return SPECULATIVE.match(line) is not None
    return found["process"] is not None or found["file"].rpartition("/")[2] in SERVER_FILES


def read_line(line: str) -> Spoken | None:
    """What a line without colours says, None where it says nothing of note."""
    found = PREFIX.match(line)
    if found is None:
        said = _speculation(line) if SPECULATIVE.match(line) else None
        return None if said is None else Spoken(process="", prefixed=False, said=said)
    text, file = line[found.end() :], found["file"].rpartition("/")[2]
    heard = next((each for each in _readings(text, file) if each is not None), None)
    return None if heard is None else Spoken(process=found["process"] or "", prefixed=True, said=heard)


def _readings(text: str, file: str) -> Iterator[Said | None]:
    if file == "metrics.py":
        yield _speculation(text) if SPECULATIVE.match(text) else None
    if file in ("loggers.py", "metrics.py"):
        yield _throughput(text)
    if file in ("core.py", "llm_engine.py", "async_llm.py"):
        yield _start(text)


def _speculation(text: str) -> Interval | V0Totals | None:
    figures = {name: found[1] for name, pattern in FIGURES.items() if (found := pattern.search(text))}
    if "accepted" not in figures or "drafted" not in figures:
        return None
    accepted, drafted = int(figures["accepted"]), int(figures["drafted"])
    if "emitted" in figures and int(figures.get("longest", 0)):
        return V0Totals(
            accepted_tokens=accepted,
            drafted_tokens=drafted,
            emitted_tokens=int(figures["emitted"]),
            draft_tokens=int(figures["longest"]),
            efficiency=float(figures["efficiency"]) if "efficiency" in figures else None,
            rate=float(figures["rate"]) if "rate" in figures else None,
        )
    rates, per_s = RATES.search(text), float(figures.get("drafted_per_s", 0))
    return Interval(
        accepted_tokens=accepted,
        drafted_tokens=drafted,
        length=float(figures["length"]) if "length" in figures else None,
        rates=tuple(float(each) for each in rates[1].split(",")) if rates else None,
        depth=int(figures["depth"]) if "depth" in figures else None,
        seconds=drafted / per_s if per_s else None,
    )


def _throughput(text: str) -> Throughput | None:
    found = THROUGHPUT.match(text)
    if found is None:
        return None
    return Throughput(engine=found["engine"] or "", generated_per_s=float(found["rate"]), running=int(found["running"]))


def _start(text: str) -> EngineStart | None:
    found = START.match(text)
    if found is None:
        return None
    model, configured = MODEL.search(text), CONFIGURED.search(text)
    config = (configured["config"] or "") if configured else ""
    method, longest = METHOD.search(config), LONGEST.search(config)
    return EngineStart(
        version=found["version"],
        model=model[1] if model else None,
        speculates=None if configured is None else configured["config"] is not None,
        method=method[1] if method else None,
        draft_tokens=int(longest[1]) if longest else None,
    )
