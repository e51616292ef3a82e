"""The steady part of a closed-loop run, without its start and its end.

A closed loop starts with everybody's prefill at once and ends with a batch that runs empty. Neither is what production sees, so the first
and the last requests are left out of both arms alike: by their place in the workload, never by what happened to them.
"""

from dataclasses import replace

from paceline.errors import BadInputError, printable
from paceline.latency import gap_samples
from paceline.run import Outcome, RequestRecord, Run
from paceline.speculation.counts import AcceptanceCounts

__all__ = ["steady"]


def steady(run: Run, *, skip_first: int, skip_last: int) -> Run:
    """The run of the requests between the first and the last ones.

    Acceptance is pooled from the kept requests; seconds per step are the mean of their chunk gaps (stalls by preemption included). The
    window is Σ E2E / concurrency, the time in which that many in flight serve just these requests (Little's law).

    Raises:
        BadInputError: nothing would be left, a number to skip is negative, the run has no per-request records, or it was no closed loop.

    """
    if run.requests is None or run.load.concurrency is None:
        raise BadInputError(
            f"a run of {printable(run.provenance.made_by)} without a closed loop's requests has no start and end to leave out"
        )
    end = len(run.requests) - skip_last
    if skip_first < 0 or skip_last < 0 or end <= skip_first:
        raise BadInputError(f"{len(run.requests)} requests leave none between the first {skip_first} and the last {skip_last}")
    kept = run.requests[skip_first:end]
    finished = [each for each in kept if each.outcome is Outcome.FINISHED]
    gaps, _ = gap_samples("chunk_gap_s", (each.timing for each in finished))
    return replace(
        run,
        requests=kept,
        acceptance_by_segment=None if run.acceptance_by_segment is None else _pooled(kept),
        step_seconds=float(gaps.mean()) if gaps.size else None,
        window_s=sum(each.timing.e2e_s for each in finished) / run.load.concurrency,
    )


def _pooled(requests: tuple[RequestRecord, ...]) -> dict[str, AcceptanceCounts]:
    return AcceptanceCounts.by_segment((each.segment, each.acceptance) for each in requests if each.acceptance is not None)
