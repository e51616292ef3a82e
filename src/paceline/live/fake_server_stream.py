"""One request on its way through the fake server: what it is owed, what it was sent and when, and the faults that strike it.

`due_ns` is the simulator's instant of a chunk, `written_ns` the instant just before it was written; both are `perf_counter_ns`, which all
processes of a machine share on Linux.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from paceline.live.fake_server_answer import Answer, error_body
from paceline.live.fake_server_asking import Asking
from paceline.live.fake_server_faults import Fault
from paceline.live.fake_server_http import Connection
from paceline.simulate.online import Left

__all__ = ["Stream", "Who"]

Later = Callable[[float, Callable[[], None]], object]


@dataclass(frozen=True, slots=True)
class Who:
    """Which request it is: its id, the index of its draws and faults, and when its last byte was received."""

    id: str
    index: int
    arrived_ns: int


@dataclass(slots=True, eq=False)
class Stream:
    """A request that was let in; the module says what the instants mean. `later` calls a function after so many seconds; `ticket` is the
    engine's, None once it has let the request go; `over` is called when all was sent of an answer that was held back.
    """

    who: Who
    asking: Asking
    answer: Answer
    connection: Connection
    faults: tuple[Fault, ...]
    later: Later
    ticket: int | None = None
    over: Callable[["Stream"], None] | None = None
    due_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    written_ns: list[int | None] = field(default_factory=list)
    drafted_steps: list[tuple[int, int]] = field(default_factory=list)
    left: Left | None = None
    ended: str | None = None
    held: list[tuple[int | None, bytes]] | None = None

    def begin(self) -> None:
        """Send the head of a stream, or hold it back."""
        slow = [each.seconds for each in self.faults if each.kind == "slow_first_byte"]
        if slow:
            self._hold(max(slow))
        if self.asking.stream:
            self._send(None, self.connection.stream_head(self.who.id))

    def prepared(self, tokens: int, *, last: bool, metrics: dict[str, Any] | None) -> bytes:
        """The bytes of the next chunk, made before they are due; nothing for who waits for the whole answer."""
        if not self.asking.stream or not self.connection.open:
            return b""
        connection, answer = self.connection, self.answer
        begun = answer.first() if not answer.given_tokens else b""
        data = (connection.framed(begun) if begun else b"") + connection.framed(answer.chunk(tokens, last=last))
        return data + connection.framed(answer.end(metrics)) + connection.stream_end if last else data

    def give(self, data: bytes, *, due_ns: int, tokens: int) -> int | None:
        """Send a chunk; how late it was, in ns, None where it was not sent now."""
        number = len(self.due_ns)
        self.due_ns.append(due_ns)
        self.tokens.append(tokens)
        if self.asking.stream:
            self.written_ns.append(None)
        if not self.connection.open:
            return None
        if data:
            self._send(number, data)
        at_ns = self.written_ns[number] if self.asking.stream else None
        self._strike(number + 1)
        return None if at_ns is None else at_ns - due_ns

    def _strike(self, chunks: int) -> None:
        """Make the faults that come after so many chunks."""
        for each in self.faults:
            if each.after_chunks != chunks:
                continue
            if each.kind == "stall":
                self._hold(each.seconds)
            elif each.kind == "cut":
                self.ended = "cut"
                self.connection.cut()
            elif each.kind == "error":
                self._fail(each.status)

    def _fail(self, status: int) -> None:
        """End the answer with an error: an event in a stream, a status elsewhere."""
        self.ended = "error"
        body = error_body(status, "the engine failed (a fault that was asked for)")
        if not self.asking.stream:
            self.connection.answer(status, body)
            return
        self._send(None, self.connection.framed(b"data: " + body + b"\n\ndata: [DONE]\n\n") + self.connection.stream_end)
        if self.held is None:
            self.connection.end_stream()

    def finish(self, metrics: dict[str, Any] | None) -> None:
        """All tokens are there: end the answer, once nothing of it is held back any more."""
        if self.ended is not None or not self.connection.open:
            return
        self.ended = self.asking.finish_reason
        if not self.asking.stream:
            self._send(0, self.answer.whole(metrics))
        elif self.held is None:
            self.connection.end_stream()

    def _hold(self, seconds: float) -> None:
        if self.held is None:
            self.held = []
            self.later(seconds, self._release)

    def _release(self) -> None:
        """Send what was held back."""
        held, self.held = self.held or (), None
        for number, data in held if self.connection.open else ():
            self._send(number, data)
        if self.ended is not None and self.asking.stream and self.connection.open:
            self.connection.end_stream()
        if self.over is not None:
            self.over(self)

    def _send(self, number: int | None, data: bytes) -> None:
        if self.held is not None:
            self.held.append((number, data))
            return
        if not self.asking.stream:
            self.written_ns.append(perf_counter_ns())
            self.connection.answer(200, data, headers={"x-request-id": self.who.id})
            return
        if number is not None:
            self.written_ns[number] = perf_counter_ns()
        self.connection.write(data)

    def recorded(self) -> dict[str, Any]:
        """The line of the record."""
        counts = None if self.left is None else self.left.acceptance
        return {
            "id": self.who.id,
            "index": self.who.index,
            "api": self.asking.api,
            "stream": self.asking.stream,
            "segment": self.asking.segment,
            "prompt_tokens": self.asking.prompt_tokens,
            "asked_output_tokens": self.asking.output_tokens,
            "arrived_ns": self.who.arrived_ns,
            "due_ns": self.due_ns,
            "tokens": self.tokens,
            "written_ns": self.written_ns,
            "steps": None if self.left is None else self.left.steps,
            "times_preempted": None if self.left is None else self.left.times_preempted,
            "acceptance": None if counts is None else counted(counts),
            "end": self.ended or "cancelled",
            "faults": sorted({each.kind for each in self.faults}),
        }


def counted(counts: Any) -> dict[str, Any]:
    """Acceptance counts as JSON."""
    names: Iterable[str] = ("steps", "drafts", "drafted_tokens", "accepted_tokens", "accepted_per_position")
    return {name: getattr(counts, name) for name in names}
