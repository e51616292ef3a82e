"""The simulated replica as a server lives it: requests that nobody knew of arrive, one engine step is taken at a time, clients go away.

The rules of a step are those of `kernel`, and so are costs, limits and draws: the same requests at the same instants give what `simulate`
gives, chunk for chunk. Instants are seconds on the caller's clock, which this module never reads.

    next_step_at_s    when the next step begins: when the last one ended, or, where nobody was left, when somebody arrives
    step(grace_s)     take that step; requests that arrive up to `grace_s` after its beginning are in time for it
    cancel            between two steps: blocks are free at once; what a step emitted before is emitted

Request i has the draws of row i of a workload simulated with the same seed, whenever it arrives; beyond the first 2^20 they come from a
generator of their own. Prefixes are not cached here. Memory is that of the requests present: those that left are forgotten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline.errors import BadInputError
from paceline.forecast.step_cost import StepCost
from paceline.run import Load
from paceline.simulate import kernel
from paceline.simulate import state as columns
from paceline.simulate.acceptance_draws import KEY_VALUES, Chance, chance
from paceline.simulate.records import counts_from
from paceline.simulate.replica import Drafting, Replica
from paceline.simulate.server import costs_of, idle, rows_of, rules_of
from paceline.simulate.state import State
from paceline.speculation.counts import AcceptanceCounts
from paceline.workload import Request

__all__ = ["Chunk", "Draws", "Gauges", "Left", "OnlineReplica", "Step"]

FIRST_ROOM = 256
ROWS_OF_A_WORKLOAD = 2**20
OPEN_LOOP = Load(concurrency=None, rate_per_s=None)


class Chunk(NamedTuple):
    """What a step gave one request: `tokens`, at least 1; drafts of that step, 0 where it had none; whether these are its `last`."""

    ticket: int
    tokens: int
    drafted_tokens: int
    accepted_tokens: int
    last: bool


@dataclass(frozen=True, slots=True)
class Left:
    """What a request that left had used: decode steps, acceptance (None without drafts), and how often it was preempted."""

    steps: int
    acceptance: AcceptanceCounts | None
    times_preempted: int


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step: what it emitted at `ends_at_s`, in order of arrival, and who left with it, by ticket."""

    began_at_s: float
    ends_at_s: float
    chunks: tuple[Chunk, ...]
    left: Mapping[int, Left]


@dataclass(frozen=True, slots=True)
class Gauges:
    """Where the replica stands after its last step: requests running and waiting (preempted ones wait), share of KV blocks in use, and
    preemptions so far.
    """

    running: int
    waiting: int
    kv_usage: float
    preemptions: int


class Draws:
    """The draws of request i of a workload that is simulated with `seed`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._first = chance(seed, requests=FIRST_ROOM)

    def of(self, index: int) -> Chance:
        """Keys and ease of one request, shapes [1, 2] and [1]; `index` is any whole number from 0 on."""
        if index >= ROWS_OF_A_WORKLOAD:
            rng = np.random.default_rng((self._seed, index))
            return Chance(keys=rng.integers(0, KEY_VALUES, size=(1, 2), dtype=np.int64), ease=rng.standard_normal(1))
        if index >= len(self._first.ease):
            self._first = chance(self._seed, requests=1 << index.bit_length())
        return Chance(keys=self._first.keys[index : index + 1], ease=self._first.ease[index : index + 1])


class OnlineReplica:
    """One replica that serves whoever arrives; see the module."""

    def __init__(self, replica: Replica, *, step_cost: StepCost | Sequence[StepCost], drafting: Drafting | None, seed: int) -> None:
        self._replica = replica
        self._drafting = drafting
        self._rules = rules_of(replica, drafting=drafting, load=OPEN_LOOP)
        self._cost = costs_of(replica, step_cost, drafting=drafting, rules=self._rules)
        self._state = idle(replica, drafting=drafting, room=FIRST_ROOM)
        self._draws = Draws(seed)
        self._rows = 0  # rows in use, of requests that left too
        self._row_of: dict[int, int] = {}  # by ticket, of requests that are here
        self._tickets = np.zeros(FIRST_ROOM, dtype=np.int64)  # by row
        self._issued = 0
        self._latest_at_s = -np.inf

    def arrive(self, request: Request, *, index: int) -> int:
        """The ticket of a request that arrives at `request.arrived_at_s` and has the draws of row `index`.

        Raises:
            BadInputError: it arrives before one that is known, or could never fit into the KV cache.
            UnknownNameError: its segment has no acceptance.

        """
        if request.arrived_at_s < self._latest_at_s:
            raise BadInputError(f"a request arrives at {request.arrived_at_s!r} s, before one that came at {self._latest_at_s!r} s")
        new = rows_of((request,), replica=self._replica, drafting=self._drafting, drawn=self._draws.of(index))
        if new.table[0, columns.REFUSE]:
            most = self._replica.kv_blocks * self._replica.block_tokens
            raise BadInputError(
                f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens do not fit into the KV cache of {most} tokens; "
                "ask for fewer"
            )
        if self._rows == len(self._state.table):
            self._make_room()
        row, state = self._rows, self._state
        state.table[row], state.coverage[row], state.conditional[row] = new.table[0], new.coverage[0], new.conditional[0]
        state.arrived_at_s[row] = self._latest_at_s = request.arrived_at_s
        ticket = self._issued
        self._tickets[row], self._row_of[ticket] = ticket, row
        self._rows, self._issued = row + 1, ticket + 1
        return ticket

    @property
    def next_step_at_s(self) -> float | None:
        """When the next step begins, None while nobody is here."""
        if not self._row_of:
            return None
        first = next(iter(self._row_of.values()))  # tickets are issued in order of arrival
        return max(float(self._state.seconds[columns.CLOCK]), float(self._state.arrived_at_s[first]))

    def step(self, *, grace_s: float) -> Step:
        """Take the next step; who arrives up to `grace_s` after it began is in time for it. Somebody must be here."""
        began_at_s = self.next_step_at_s
        assert began_at_s is not None, "nobody is here, so there is no next step"
        state = self._state
        state.seconds[columns.CLOCK] = began_at_s
        late = state.arrived_at_s[: self._rows]
        late[(late > began_at_s) & (late <= began_at_s + grace_s)] = began_at_s
        drafted_before = state.table[: self._rows, columns.DRAFTED].copy()
        kernel.advance(state, self._rules, self._cost, 1)
        rows = np.flatnonzero(state.table[: self._rows, columns.CHUNKS])
        taken = self._chunks(rows, drafted_before)
        # Nothing of a chunk is kept, so that neither buffers nor the step's instants ever fill up.
        state.table[rows, columns.CHUNKS] = 0
        state.counts[columns.TAKEN_STEPS] = 0
        left = {each.ticket: self._leave(each.ticket) for each in taken if each.last}
        return Step(began_at_s=began_at_s, ends_at_s=float(state.seconds[columns.CLOCK]), chunks=taken, left=left)

    def _chunks(self, rows: np.ndarray, drafted_before: np.ndarray) -> tuple[Chunk, ...]:
        """What the step gave to these rows."""
        state, table = self._state, self._state.table[rows]
        drafted = table[:, columns.DRAFTED] - drafted_before[rows]
        accepted = np.where(drafted > 0, table[:, columns.ACCEPTED], 0)
        tokens = state.buffer_tokens[table[:, columns.BUFFER], 0]
        last = table[:, columns.EMITTED] == table[:, columns.OUTPUT]
        of_row = zip(self._tickets[rows].tolist(), tokens.tolist(), drafted.tolist(), accepted.tolist(), last.tolist(), strict=True)
        return tuple(map(Chunk._make, of_row))

    def cancel(self, ticket: int) -> Left | None:
        """Let a request go before its end; None where it is not here (any more)."""
        if ticket not in self._row_of:
            return None
        kernel.abort(self._state, self._row_of[ticket])
        return self._leave(ticket)

    def _leave(self, ticket: int) -> Left:
        row = self._row_of.pop(ticket)
        table, acceptance = self._state.table[row], None
        if self._drafting is not None:
            at_least = np.cumsum(self._state.accepted[row, ::-1])[::-1].tolist()
            acceptance = counts_from(int(table[columns.STEPS]), int(table[columns.DRAFTED]), at_least)
        return Left(steps=int(table[columns.STEPS]), acceptance=acceptance, times_preempted=int(table[columns.TIMES_PREEMPTED]))

    @property
    def gauges(self) -> Gauges:
        """Where the replica stands."""
        counts, running = self._state.counts, int(self._state.counts[columns.RUNNING])
        return Gauges(
            running=running,
            waiting=len(self._row_of) - running,
            kv_usage=1 - int(counts[columns.FREE_BLOCKS]) / self._replica.kv_blocks,
            preemptions=int(counts[columns.PREEMPTIONS]),
        )

    def _make_room(self) -> None:
        """Forget the rows of requests that left, and double what room there is where that frees less than half of it."""
        state = self._state
        kept = np.array(list(self._row_of.values()), dtype=np.int64)
        room = len(state.table) if 2 * len(kept) <= len(state.table) else 2 * len(state.table)
        empty = idle(self._replica, drafting=self._drafting, room=room)
        for name in ("table", "arrived_at_s", "coverage", "conditional", "accepted"):
            getattr(empty, name)[: len(kept)] = getattr(state, name)[kept]
        new_row = np.zeros(self._rows, dtype=np.int64)
        new_row[kept] = np.arange(len(kept))
        counts = state.counts
        for members in (state.running, state.preempted):
            members[:] = new_row[members]
        for counter in (columns.ARRIVED, columns.NEXT):
            counts[counter] = np.searchsorted(kept, counts[counter])
        counts[[columns.FINISHED, columns.REFUSED]] = 0
        self._state = _with_rows(state, empty)
        tickets = np.zeros(room, dtype=np.int64)
        tickets[: len(kept)] = self._tickets[kept]
        self._tickets, self._rows = tickets, len(kept)
        self._row_of = dict(zip(tickets[: len(kept)].tolist(), range(len(kept)), strict=True))


def _with_rows(state: State, rows: State) -> State:
    """The state with the requests of another one: what stands in rows, and nothing else."""
    return state._replace(
        table=rows.table,
        arrived_at_s=rows.arrived_at_s,
        coverage=rows.coverage,
        conditional=rows.conditional,
        accepted=rows.accepted,
        prefix_from=rows.prefix_from,
    )
