"""The run that a finished simulation amounts to: one record per request, and the counts by segment."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paceline import __version__
from paceline.latency import Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run
from paceline.simulate import state as columns
from paceline.simulate.replica import Drafting, Replica
from paceline.simulate.state import SizeArray, State
from paceline.speculation.counts import AcceptanceCounts
from paceline.workload import Request, Workload

__all__ = ["counts_from", "record"]

IntArray = npt.NDArray[np.int64]


def record(state: State, workload: Workload, *, replica: Replica, drafting: Drafting | None, load: Load, seed: int) -> Run:
    """The run that this state, in which everybody has left, is the end of."""
    decodes = int(state.counts[columns.DECODES])
    return Run(
        arm=Arm.BASELINE if drafting is None else Arm.SPECULATIVE,
        speculation=None if drafting is None else drafting.speculation,
        load=load,
        requests=tuple(_records(state, workload.requests, drafts=drafting is not None)),
        acceptance_by_segment=None if drafting is None else _by_segment(state, workload),
        step_seconds=float(state.seconds[columns.DECODE_SECONDS]) / decodes if decodes else None,
        summaries={},
        window_s=float(state.seconds[columns.CLOCK] - state.arrived_at_s[0]),
        provenance=_provenance(workload, replica=replica, drafting=drafting, load=load, seed=seed),
        cautions=(),
    )


def _records(state: State, requests: tuple[Request, ...], *, drafts: bool) -> Iterator[RequestRecord]:
    """One record per request; the chunk arrays are views."""
    sizes = _Sizes(state)
    arrays = (state.step_at_s, state.log_at_s)
    counts: Iterator[AcceptanceCounts] | list[None] = _by_request(state) if drafts else [None] * len(requests)
    named = (columns.REFUSE, columns.PAUSED, columns.INSTANTS_FROM, columns.SIZES_FROM, columns.CHUNKS)
    rows = zip(requests, state.arrived_at_s.tolist(), state.table[:, named], counts, strict=True)
    for request, arrived_at_s, row, acceptance in rows:
        was_refused, paused, first, first_size, chunks = row.tolist()
        timing = RequestTiming(
            arrived_at_s=arrived_at_s,
            sent_at_s=arrived_at_s,
            chunk_at_s=arrays[paused][first : first + chunks],
            chunk_tokens=sizes.of(first_size, chunks),
            ended=Ended.ERROR if was_refused else Ended.LENGTH,
        )
        yield RequestRecord(
            id=request.id,
            segment=request.segment,
            prompt_tokens=request.prompt_tokens,
            output_tokens=0 if was_refused else request.output_tokens,
            timing=timing,
            acceptance=acceptance,
            outcome=Outcome.REFUSED if was_refused else Outcome.FINISHED,
        )


class _Sizes:
    """Tokens by chunk. Without drafts every chunk has one, and all requests of one length share an array."""

    def __init__(self, state: State) -> None:
        self._log = state.log_tokens
        self._ones = np.ones(state.buffer_at_s.shape[1], dtype=np.int16)
        self._shared: dict[int, SizeArray] = {}

    def of(self, first: int, chunks: int) -> SizeArray:
        if len(self._log):
            return self._log[first : first + chunks]
        found = self._shared.get(chunks)
        if found is None:
            found = self._shared[chunks] = self._ones[:chunks]
        return found


def counts_from(steps: int, drafted_tokens: int, at_least: list[int]) -> AcceptanceCounts:
    """Counts from drafted steps that accepted at least 0, 1, … K drafts."""
    positions = tuple(at_least[1:])
    return AcceptanceCounts(
        steps=steps,
        drafts=at_least[0],
        drafted_tokens=drafted_tokens,
        accepted_tokens=sum(positions),
        accepted_per_position=positions,
    )


def _by_request(state: State) -> Iterator[AcceptanceCounts]:
    """Each request's counts."""
    steps, drafted = state.table[:, columns.STEPS].tolist(), state.table[:, columns.DRAFTED].tolist()
    return map(counts_from, steps, drafted, _at_least(state).tolist())


def _by_segment(state: State, workload: Workload) -> dict[str, AcceptanceCounts]:
    """Each segment's counts, added up before they become records: adding 100,000 records takes longer than simulating them."""
    of_request = np.array([each.segment for each in workload.requests])
    steps, drafted, at_least = state.table[:, columns.STEPS], state.table[:, columns.DRAFTED], _at_least(state)
    return {
        segment: counts_from(int(steps[mine].sum()), int(drafted[mine].sum()), at_least[mine].sum(axis=0).tolist())
        for segment in workload.segments
        for mine in [of_request == segment]
    }


def _at_least(state: State) -> IntArray:
    """Drafted steps that accepted at least 0, 1, … K drafts, by request; `accepted` is the histogram."""
    summed: IntArray = np.cumsum(state.accepted[:, ::-1], axis=1)[:, ::-1]
    return summed


def _provenance(workload: Workload, *, replica: Replica, drafting: Drafting | None, load: Load, seed: int) -> Provenance:
    limits = (
        f"{replica.kv_blocks} blocks of {replica.block_tokens}, {replica.max_requests} requests, {replica.token_budget} tokens per step"
    )
    sent = "the workload's instants" if load.concurrency is None else f"concurrency {load.concurrency}"
    arguments = {"workload": workload.source, "replica": limits, "load": sent}
    if drafting is not None:
        how = drafting.speculation
        arguments["drafting"] = f"{how.method}, {how.draft_tokens} tokens, spread {drafting.spread:g}, {drafting.rejection}"
        if drafting.persistence:
            arguments["persistence"] = f"{drafting.persistence:g}"
        if drafting.lengths is not None:
            arguments["draft_lengths"] = str(drafting.lengths)
    return Provenance(
        made_by="paceline simulate", version=__version__, evidence=Evidence.SIMULATED, arguments=arguments, inputs={}, seed=seed
    )
