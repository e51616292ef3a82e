"""A window on a running server's metrics: scraped at its start, at its end, and in between for the gauges and for restarts.

1. A scrape that fails is tried once more. One that fails twice is left out and told; the first may not fail.
2. What was counted between two good scrapes is counted, whatever happened to the ones in between, a restart's gap excepted.
3. Ctrl-C ends the window early: one last scrape, and what there is so far is the answer.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.errors import BadInputError, PacelineError, ServerFaultError, printable
from paceline.files.dump import malformed_lines
from paceline.files.histograms import with_percentiles
from paceline.live.fetch import fetch, metrics_url
from paceline.run import Run
from paceline.servers.measured_run import to_run
from paceline.servers.scrape import Scrape, read_scrape, window_of
from paceline.verdict import Caution

__all__ = ["Watch", "measure_server"]

TRIES = 2
TICK_S = 0.1
BETWEEN_TRIES_S = 0.2
MOST_SCRAPES = 5000

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to watch, and how: the server's address, which model, seconds in all, between scrapes, and until an answer is late."""

    url: str
    model: str | None
    window_s: float
    every_s: float
    timeout_s: float

    def __post_init__(self) -> None:
        """Reject a window of no length.

        Raises:
            BadInputError: with the value.

        """
        for name in ("window_s", "every_s", "timeout_s"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise BadInputError(f"{name} = {value!r} is not a time above 0")


@dataclass(slots=True)
class _Scrapes:
    """The good scrapes so far with the instants of their answers, and what went wrong."""

    read: list[Scrape] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False


def measure_server(watch: Watch, *, progress: Progress) -> Run:
    """What the server did in the window. `progress` is called with the seconds that passed.

    Raises:
        ServerFaultError: the server does not answer at the start, or never again.
        BadInputError: it answers something that we do not read, or has several models.
        NoEvidenceError: it generated no token in the window.

    """
    url = metrics_url(watch.url)
    scrapes = _Scrapes()
    _take(scrapes, url, watch)
    try:
        _watch(scrapes, url, watch, progress)
    except KeyboardInterrupt:
        scrapes.interrupted = True
        _try(scrapes, url, watch)
    if len(scrapes.read) < 2:
        raise ServerFaultError(f"the server answered at the window's start only; the last fault: {scrapes.failed[-1]}")
    window_s = scrapes.at_s[-1] - scrapes.at_s[0]
    window = window_of(scrapes.read).with_cautions(tuple(_noted(scrapes, watch, window_s)))
    inputs = {"scrape first": scrapes.digests[0], "scrape last": scrapes.digests[-1]}
    return with_percentiles(to_run(window, arm=None, inputs=inputs, window_s=window_s), window)


def _watch(scrapes: _Scrapes, url: str, watch: Watch, progress: Progress) -> None:
    """Scrape until the window's end, each time `every_s` after the time before."""
    told = due = scrapes.at_s[0]
    end = due + watch.window_s
    every_s = max(watch.every_s, watch.window_s / MOST_SCRAPES)
    while due < end:
        due = min(max(due + every_s, time.monotonic()), end)
        while (now := time.monotonic()) < due:
            progress(now - told)
            told = now
            time.sleep(min(TICK_S, due - now))
        _try(scrapes, url, watch)


def _try(scrapes: _Scrapes, url: str, watch: Watch) -> None:
    """Take a scrape; a fault is kept to be told."""
    try:
        _take(scrapes, url, watch)
    except PacelineError as fault:
        scrapes.failed.append(str(fault))


def _take(scrapes: _Scrapes, url: str, watch: Watch) -> None:
    """Take a scrape, twice if need be.

    Raises:
        ServerFaultError: no whole answer.
        BadInputError: an answer that we do not read, or that does not belong to the scrape before.

    """
    for attempt in range(1, TRIES + 1):
        try:
            body = fetch(url, watch.timeout_s)
            at_s = time.monotonic()
            scrape = _read(body, url, watch.model)
            if scrapes.read:
                window_of((scrapes.read[-1], scrape))  # half a scrape shows only beside another
        except PacelineError:
            if attempt == TRIES:
                raise
            time.sleep(BETWEEN_TRIES_S)
        else:
            break
    scrapes.read.append(scrape)
    scrapes.at_s.append(at_s)
    scrapes.digests.append(hashlib.sha256(body).hexdigest())


def _read(body: bytes, url: str, model: str | None) -> Scrape:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ServerFaultError(f"{printable(url)} answers no text: byte {error.start} is no UTF-8") from None
    if not text.endswith(("\n", "]")):
        raise ServerFaultError(f"{printable(url)} answers a text that ends in the middle of a line: half a scrape")
    return read_scrape(text, model=model)


def _noted(scrapes: _Scrapes, watch: Watch, window_s: float) -> list[Caution]:
    noted = malformed_lines("the first scrape", scrapes.read[0].malformed) + malformed_lines("the last scrape", scrapes.read[-1].malformed)
    if scrapes.interrupted:
        noted.append(
            Caution("interrupted", f"interrupted after {window_s:.1f} s of {watch.window_s:g} s: figures are of the window so far")
        )
    if scrapes.failed:
        noted.append(
            Caution("scrapes_failed", f"{len(scrapes.failed)} scrapes failed and are left out, the last because: {scrapes.failed[-1]}")
        )
    return noted
