"""The engine of the fake server in real time: a step is planned when it begins and its chunks are written when it ends.

One step is in flight at a time. Its bytes are made beforehand, so that at its end only writes remain. A client that goes away is cancelled
when the step in flight ends, as an engine does. A timer of the event loop may come 1 ms late, so it is set that much early and the rest is
slept away.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns, sleep, time
from typing import Any

from paceline.live.fake_server_answer import speculative_metrics
from paceline.live.fake_server_metrics import Counters
from paceline.live.fake_server_record import Lateness, Record
from paceline.live.fake_server_stream import Stream
from paceline.simulate.online import Chunk, Gauges, OnlineReplica, Step
from paceline.workload import Request

__all__ = ["Pace"]

EARLY_S = 0.0012
SLACK_NS = 1_500_000
NS = 1e9


class Pace:
    """Streams paced by an online replica, what they add up to in `counters`, and their record."""

    def __init__(self, replica: OnlineReplica, *, draft_tokens: int, grace_s: float, record: Record, lateness: Lateness) -> None:
        self.replica = replica
        self._draft_tokens = draft_tokens
        self._grace_s = grace_s
        self._record = record
        self._lateness = lateness
        self._origin_ns = perf_counter_ns()
        self.started_s = time()
        self._streams: dict[int, Stream] = {}
        self._pending: tuple[Step, list[tuple[Chunk, Stream, bytes]]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: list[Stream] = []
        self._held: set[Stream] = set()  # the engine is done with them, their clients are not
        self._loop = asyncio.get_running_loop()
        self.reset_counters()

    def reset_counters(self) -> None:
        """Count from 0 on."""
        self.counters = Counters(draft_tokens=self._draft_tokens, created_s=time(), preemptions_before=self.replica.gauges.preemptions)

    def let_in(self, stream: Stream) -> None:
        """Let a request into the engine.

        Raises:
            BadInputError: it does not fit, or its segment has no acceptance.

        """
        request = Request(
            id=stream.who.id,
            arrived_at_s=(stream.who.arrived_ns - self._origin_ns) / NS,
            prompt_tokens=stream.asking.prompt_tokens,
            output_tokens=stream.asking.output_tokens,
            segment=stream.asking.segment,
        )
        stream.ticket = self.replica.arrive(request, index=stream.who.index)
        self._streams[stream.ticket] = stream
        stream.begin()
        if self._pending is None and self._timer is None:
            self._plan_in_time()

    def gone(self, stream: Stream) -> None:
        """A client went away."""
        if stream in self._held:
            self._settle(stream)
        elif self._pending is not None:
            self._leaving.append(stream)
        else:
            self._cancel(stream)

    def stop(self, why: str) -> None:
        """Drop everybody and keep what was recorded of them."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._pending = None
        for stream in tuple(self._streams.values()):
            stream.ended = why
            stream.connection.cut()
            self._cancel(stream)
        for stream in tuple(self._held):
            stream.ended = why
            self._settle(stream)

    @property
    def gauges(self) -> Gauges:
        """Where the engine stands: who leaves with the step in flight still runs."""
        after = self.replica.gauges
        running = after.running + (len(self._pending[0].left) if self._pending is not None else 0)
        return replace(after, running=running, waiting=len(self._streams) - running)

    def _at(self, at_ns: int, call: Callable[[], None]) -> None:
        self._timer = self._loop.call_later((at_ns - perf_counter_ns()) / NS - EARLY_S, call)

    def _instant_ns(self, at_s: float) -> int:
        return self._origin_ns + round(at_s * NS)

    def _plan_in_time(self) -> None:
        """Plan the next step as soon as it is known who is in it."""
        begins_at_s = self.replica.next_step_at_s
        if begins_at_s is None:
            return
        plan_ns = self._instant_ns(begins_at_s + self._grace_s)
        if perf_counter_ns() >= plan_ns:
            self._plan()
        else:
            self._at(plan_ns, self._plan_on_time)

    def _plan_on_time(self) -> None:
        """The timer came early: who comes within the grace must be known before the step is planned."""
        begins_at_s = self.replica.next_step_at_s
        self._timer = None
        if begins_at_s is not None:
            wait_s = (self._instant_ns(begins_at_s + self._grace_s) - perf_counter_ns()) / NS
            if wait_s > 0:
                self._timer = self._loop.call_later(wait_s, self._plan_on_time)
            else:
                self._plan()

    def _plan(self) -> None:
        """Take the step, and make the bytes that are due at its end."""
        step = self.replica.step(grace_s=self._grace_s)
        prepared = [(chunk, self._streams[chunk.ticket]) for chunk in step.chunks]
        ready = [(chunk, stream, self._prepared(step, chunk, stream)) for chunk, stream in prepared]
        self._pending = (step, ready)
        self._at(self._instant_ns(step.ends_at_s), self._fire)
        self._record.write_while(self._instant_ns(step.ends_at_s) - SLACK_NS)

    def _prepared(self, step: Step, chunk: Chunk, stream: Stream) -> bytes:
        if chunk.drafted_tokens:
            stream.drafted_steps.append((chunk.drafted_tokens, chunk.accepted_tokens))
        if chunk.last:
            stream.left = step.left[chunk.ticket]
        return stream.prepared(chunk.tokens, last=chunk.last, metrics=self._metrics(stream) if chunk.last else None)

    def _metrics(self, stream: Stream) -> dict[str, Any] | None:
        assert stream.left is not None
        found = speculative_metrics(stream.left, stream.drafted_steps, draft_tokens=self._draft_tokens)
        return None if found is None else {"speculative_decoding": found}

    def _fire(self) -> None:
        """Write what is due, count it, and go on."""
        assert self._pending is not None
        step, ready = self._pending
        due_ns = self._instant_ns(step.ends_at_s)
        rest_s = (due_ns - perf_counter_ns()) / NS
        if rest_s > 0:
            sleep(rest_s)
        for chunk, stream, data in ready:
            late_ns = stream.give(data, due_ns=due_ns, tokens=chunk.tokens)
            if late_ns is not None:
                self._lateness.add(late_ns)
        self._pending = self._timer = None
        self.counters.step(step.chunks)
        for chunk, stream, _ in ready:
            self._count(chunk, stream, due_ns)
        for stream in self._leaving:
            self._cancel(stream)
        self._leaving.clear()
        self._plan_in_time()
        if self._pending is None:
            self._record.write_while(None)

    def _count(self, chunk: Chunk, stream: Stream, due_ns: int) -> None:
        first_ns, chunks = stream.due_ns[0], len(stream.due_ns)
        prompt_tokens = stream.asking.prompt_tokens
        if chunks == 1:
            self.counters.first_token(waited_s=(due_ns - stream.who.arrived_ns) / NS, prompt_tokens=prompt_tokens)
        else:
            self.counters.gap((due_ns - stream.due_ns[-2]) / NS)
        if chunk.last:
            self.counters.finished(
                reason=stream.asking.finish_reason,
                prompt_tokens=prompt_tokens,
                tokens=stream.asking.output_tokens,
                e2e_s=(due_ns - stream.who.arrived_ns) / NS,
                decode_s=(due_ns - first_ns) / NS,
            )
            stream.finish(self._metrics(stream))
            del self._streams[chunk.ticket]
            stream.ticket = None
            self._held.add(stream)
            stream.over = self._settle
            if stream.held is None or not stream.connection.open:
                self._settle(stream)
        elif stream.ended is not None:
            self._leaving.append(stream)

    def _settle(self, stream: Stream) -> None:
        """Put a request that got all it will get on record."""
        if stream in self._held:
            self._held.remove(stream)
            self._record.keep(stream)

    def _cancel(self, stream: Stream) -> None:
        """Let a request go before its end, unless it is gone already."""
        if stream.ticket is None:
            return
        del self._streams[stream.ticket]
        stream.left = self.replica.cancel(stream.ticket) or stream.left
        stream.ticket = None
        self.counters.aborted()
        self._record.keep(stream)
