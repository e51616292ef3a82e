"""The lines that llama-server writes when a request ends.

    [ts I ]slot print_timing: id S | task T | prompt eval time = … / N tokens …
    [ts I ]slot print_timing: id S | task T |        eval time = t ms / N tokens (…)         N generated, the first one from the prompt
    [ts I ]slot print_timing: id S | task T | draft acceptance = r (A accepted / D generated)[, mean len = τ]
    [ts I ]…: statistics TYPE: #calls(b,g,a) = b g a, #gen drafts = …                        running totals of that slot's drafter

Older builds write `slot print_timing: id S | task T |` with nothing behind it, and the figures on bare lines below; such lines count only
there. A request's text is echoed behind another function's name, or on lines without one, and is never counted. Where a build echoes it
with its line breaks (verbose logs), a text that imitates these lines from their start cannot be told apart.
Source: llama.cpp b4000 to b11434, the server's print_timings and common_speculative_print_stats; llama.cpp pull request 24536.
"""

import re
from dataclasses import dataclass

__all__ = ["Statistics", "Timing", "is_llamacpp_line", "read_figures", "read_header", "read_statistics", "server_started"]

STAMP = r"(?:\[\d{1,9}\] )?(?:\d{1,6}\.\d\d\.\d{3}\.\d{3} [A-Z] )?"
HEADER = re.compile(STAMP + r"slot +print_timing: id +(?P<slot>\d{1,6}) \| task +(?P<task>-?\d{1,12}) \|(?P<rest>.{0,2000})$")
OWN = re.compile(STAMP + r"(?:srv|slot|main|que|res) {1,12}[\w()~:]{1,40}: |" + STAMP + r"main: |llama server |build: \d")
STARTED = re.compile(STAMP + r"(?:main: model loaded|srv {1,12}llama_server: model loaded)")
EVAL = re.compile(r"\r? *eval time = *(?P<ms>\d{1,12}\.\d{1,4}) ms / *(?P<tokens>\d{1,9}) (?:tokens|runs)")
DRAFT = re.compile(
    r"\r? *draft acceptance(?: rate)? = *\d\.\d{1,8} \( *(?P<accepted>\d{1,9}) accepted / *(?P<drafted>\d{1,9}) generated\)"
    r"(?:, mean (?:acceptance length|len) = *(?P<length>\d{1,4}\.\d{1,4}))?"
    r"(?:, acceptance rate per position = \((?P<rates>\d\.\d{3}(?:, \d\.\d{3}){0,255})\))?"
)
PER_POSITION = re.compile(r" *acc per pos = \((?P<rates>\d\.\d{3}(?:, \d\.\d{3}){0,255})\)")
OTHER = re.compile(r"\r? *(?:prompt eval time|total time|graphs reused) = ")
STATISTICS = re.compile(
    STAMP + r"(?:spec {1,12}\w{1,40}: )?statistics +(?P<name>[\w-]{1,40}): #calls\(b,g,a\) = *\d{1,12} +\d{1,12} +(?P<calls>\d{1,12}), "
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Figures of one request, as far as one line says them; what it does not say is None.

    Attributes:
        generated_tokens: tokens generated, the one from the prompt included.
        decode_s: seconds spent generating.
        accepted_tokens: drafted tokens accepted.
        drafted_tokens: tokens drafted and verified.
        length: acceptance length with the target's own token, two digits.
        rates: survival by position, three digits.

    """

    generated_tokens: int | None
    decode_s: float | None
    accepted_tokens: int | None
    drafted_tokens: int | None
    length: float | None
    rates: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """A drafter's running total of drafts that were verified, since its slot was made."""

    drafter: str
    drafts: int


def is_llamacpp_line(line: str) -> bool:
    """Whether llama-server's own prefix opens the line."""
    return OWN.match(line) is not None


def server_started(line: str) -> bool:
    """Whether the line says that a model was loaded: once per life of a server."""
    return STARTED.match(line) is not None


def read_header(line: str) -> tuple[tuple[int, int], str] | None:
    """The slot and the task whose timings the line is about, and what follows; None for any other line."""
    found = HEADER.match(line)
    return None if found is None else ((int(found["slot"]), int(found["task"])), found["rest"].removeprefix(" "))


def read_figures(text: str) -> Timing | None:
    """The figures behind a header or on a bare line below one; all None for a timing that is not needed, None where it is no timing."""
    timed, drafted, positions = EVAL.match(text), DRAFT.match(text), PER_POSITION.match(text)
    rates = (drafted and drafted["rates"]) or (positions and positions["rates"])
    if not (timed or drafted or positions or OTHER.match(text)):
        return None
    return Timing(
        generated_tokens=int(timed["tokens"]) if timed else None,
        decode_s=float(timed["ms"]) / 1000 if timed else None,
        accepted_tokens=int(drafted["accepted"]) if drafted else None,
        drafted_tokens=int(drafted["drafted"]) if drafted else None,
        length=float(drafted["length"]) if drafted and drafted["length"] else None,
        rates=tuple(float(each) for each in rates.split(", ")) if rates else None,
    )


def read_statistics(line: str) -> Statistics | None:
    """A drafter's running total, None for any other line."""
    found = STATISTICS.match(line)
    return None if found is None else Statistics(drafter=found["name"], drafts=int(found["calls"]))
