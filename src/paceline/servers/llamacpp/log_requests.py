"""The requests of a llama-server log, one record for each, from the lines that belong together.

A request's lines follow one another within its slot; its record ends where the slot's next one begins. The drafters' running totals are
written right after it, so that their rise since the slot's request before is the request's drafts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from paceline.errors import BadInputError
from paceline.servers.llamacpp.log import Timing, read_figures, read_header, read_statistics, server_started

__all__ = ["LoggedRequest", "RequestLog", "logged_requests"]

MOST_SLOTS = 4096
NOTHING = Timing(generated_tokens=None, decode_s=None, accepted_tokens=None, drafted_tokens=None, length=None, rates=None)


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request: its figures, the drafts that the drafters' totals rose by (None where not logged), and whether its lines were bare."""

    timing: Timing
    drafts: int | None
    bare: bool


@dataclass(frozen=True, slots=True)
class RequestLog:
    """All requests in the order in which they ended, the drafters that are named, and how often a model was loaded."""

    requests: tuple[LoggedRequest, ...]
    drafters: frozenset[str]
    starts: int


@dataclass(frozen=True, slots=True)
class _Open:
    """A request whose lines are still coming."""

    key: tuple[int, int]
    request: LoggedRequest


class _Reader:
    """Puts lines together: the open request of each slot, the slot that was written last, the drafters' totals by slot."""

    def __init__(self) -> None:
        self.open: dict[int, _Open] = {}
        self.last: int | None = None
        self.expects_bare = False
        self.totals: dict[tuple[int, str], int] = {}
        self.drafters: set[str] = set()
        self.starts = 0

    def read(self, line: str) -> Iterator[LoggedRequest]:
        """Take one line; a request that it ends is given out."""
        header = read_header(line)
        if header is not None:
            yield from self._header(*header)
        elif server_started(line):
            self.starts += 1
            self.totals.clear()
            yield from self.rest()
        elif self.last is not None:
            self._below(line, self.last)

    def rest(self) -> Iterator[LoggedRequest]:
        """The requests that are still open, at the end of the log or of a server's life."""
        yield from (each.request for each in self.open.values())
        self.open.clear()
        self.last, self.expects_bare = None, False

    def _header(self, key: tuple[int, int], text: str) -> Iterator[LoggedRequest]:
        slot, figures = key[0], read_figures(text)
        self.expects_bare = not text.strip()
        if figures is None and not self.expects_bare:
            return
        if slot not in self.open or self.open[slot].key != key:
            yield from (self.open.pop(slot).request,) if slot in self.open else ()
            if len(self.open) >= MOST_SLOTS:
                raise BadInputError(f"the log has requests in more than {MOST_SLOTS} slots; this is no llama-server's")
            self.open[slot] = _Open(key=key, request=LoggedRequest(timing=NOTHING, drafts=None, bare=False))
        self.last = slot
        self._take(slot, figures or NOTHING, bare=False)

    def _below(self, line: str, slot: int) -> None:
        """A line below a header: bare figures in the older form, or a drafter's total."""
        total = read_statistics(line)
        if total is not None:
            self.drafters |= {total.drafter} if len(self.drafters) < MOST_SLOTS else set()
            self._rise(slot, total.drafter, total.drafts)
            return
        figures = read_figures(line) if self.expects_bare else None
        if figures is None:
            self.expects_bare = False
            return
        self._take(slot, figures, bare=True)

    def _rise(self, slot: int, drafter: str, total: int) -> None:
        before = self.totals.get((slot, drafter), 0)
        if len(self.totals) < MOST_SLOTS:
            self.totals[slot, drafter] = total
        opened = self.open[slot]
        rise = total - before if total >= before else total
        self.open[slot] = replace(opened, request=replace(opened.request, drafts=(opened.request.drafts or 0) + rise))

    def _take(self, slot: int, figures: Timing, *, bare: bool) -> None:
        opened = self.open[slot]
        told = {each.name: value for each in fields(Timing) if (value := getattr(figures, each.name)) is not None}
        timing = replace(opened.request.timing, **told)
        self.open[slot] = replace(opened, request=replace(opened.request, timing=timing, bare=opened.request.bare or bare))


def logged_requests(lines: Iterable[str], *, most: int) -> RequestLog:
    """The requests that the log's timings are about, at most so many.

    Raises:
        BadInputError: more requests or slots than are read.

    """
    reader = _Reader()
    found: list[LoggedRequest] = []
    for line in lines:
        found += reader.read(line)
        if len(found) > most:
            raise BadInputError(f"the log has more than {most} requests; cut it to the window you ask about")
    found += reader.rest()
    return RequestLog(requests=tuple(found), drafters=frozenset(reader.drafters), starts=reader.starts)
