"""Why a server did not start, in one line of its log: whatever engine, in the order in which a reader would believe it.

1. What the command line's parser refused.
2. A port that is taken; memory that is not there.
3. The last error that is not only the echo of another: vLLM's front-end says "See root cause above", and llama-server says "exiting due
   to model loading error" after the line that tells which.

A line's prefix (time, level, process, file) is left out; a validation error goes on in the next line, which holds the reason.
"""

import re
from collections.abc import Sequence

__all__ = ["is_about_port", "telling_line"]

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PREFIXES = (
    re.compile(r"^\([\w =.-]+\)\s*"),  # vLLM: (EngineCore_DP0 pid=123)
    re.compile(r"^(?:ERROR|CRITICAL|WARNING|INFO)\s+[\d:. -]+\s*\[[^\]]*\]\s*"),  # vLLM: ERROR 11-29 22:10:08 [core.py:843]
    re.compile(r"^\[[\d:. T-]+[^\]]*\]\s*"),  # SGLang: [2026-11-29 22:10:08 TP0]
    re.compile(r"^[\d.]+ [EWID]\s+(?:\w+\s+)?[\w:() ]+?: (?=\S)"),  # llama-server: 0.04.402.212 E srv    load_model: …
)
REFUSED = re.compile(
    r"unrecognized arguments?:|invalid argument:|error while handling argument|the argument has been removed|argument -{1,2}\S+: ",
    re.IGNORECASE,
)
PORT = re.compile(r"address already in use|couldn't bind|port \d+ is (?:already )?in use|EADDRINUSE", re.IGNORECASE)
MEMORY = re.compile(
    r"out of memory|OutOfMemory|Cannot allocate memory|failed to allocate|No available memory for the cache|MemoryError|"
    r"Free memory on device|larger than the available KV cache|Not enough (?:GPU )?memory",
    re.IGNORECASE,
)
RAISED = re.compile(r"^(?:[\w]+\.)*\w*(?:Error|Exception|Interrupt|Fault)\b(?:: .*)?$")
SAID = re.compile(r"^(?:error|fatal)\b[: ]|\b(?:failed to|cannot start|could not|unable to)\b|\bSegmentation fault\b", re.IGNORECASE)
ECHO = re.compile(
    r"see root cause above|see above for|Engine core initialization failed|exiting due to|cleaning up before exit", re.IGNORECASE
)
GOES_ON = re.compile(r"validation errors? for |Error:\s*$")
ENOUGH = 300


def telling_line(lines: Sequence[str]) -> str | None:
    """The line of a server's log that tells why it did not start, without its prefix; None where none does."""
    plain = [_plain(each) for each in lines]
    for pattern in (REFUSED, PORT, MEMORY):
        found = next((each for each in reversed(plain) if pattern.search(each)), None)
        if found is not None:
            return found[:ENOUGH]
    for pattern in (RAISED, SAID):
        numbers = [number for number, each in enumerate(plain) if pattern.search(each) and not ECHO.search(each)]
        if numbers:
            return _with_reason(plain, _first_of_its_kind(plain, numbers))[:ENOUGH]
    return None


def is_about_port(line: str) -> bool:
    """Whether a line says that somebody else listens on the port."""
    return PORT.search(line) is not None


def _plain(line: str) -> str:
    """Without colour and prefix."""
    text = ANSI.sub("", line).strip()
    for pattern in PREFIXES:
        text = pattern.sub("", text, count=1)
    return text.strip()


def _first_of_its_kind(plain: Sequence[str], numbers: Sequence[int]) -> int:
    """The last error; of several that say one thing in a row, as each caller hands it on, the first, which says most."""
    last = numbers[-1]
    for number in reversed(numbers[:-1]):
        if last - number > 1 or RAISED.search(plain[last]):
            break
        last = number
    return last


def _with_reason(plain: Sequence[str], number: int) -> str:
    after = next((each for each in plain[number + 1 : number + 4] if each), "")
    return f"{plain[number]} {after}".strip() if GOES_ON.search(plain[number]) and after else plain[number]
