"""The few figures of an arm that a sweep asks for, from the simulator's own arrays: no record is made of any request.

A closed loop's first and last requests are left out by their place in the workload, as `steady` does.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError
from paceline.forecast.step_cost import StepCost
from paceline.run import Load
from paceline.simulate import state as columns
from paceline.simulate.replica import Drafting, Replica, need_room
from paceline.simulate.server import cost_of, rules_of, run_through, start
from paceline.simulate.state import State
from paceline.workload import Workload

__all__ = ["ArmTimes", "arm_times"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ArmTimes:
    """One arm's decoding, of the requests between the start and the end of a closed loop.

    Attributes:
        tpot_s: seconds per output token after the first, by request, shape [requests]; NaN where it was refused or had one token only.
        step_s: seconds per decode step, as requests see them.
        tokens_per_step: tokens per decode step before a stop truncates; 1 without drafts.

    """

    tpot_s: FloatArray  # [requests]
    step_s: float
    tokens_per_step: float


def arm_times(workload: Workload, *, replica: Replica, step_cost: StepCost, drafting: Drafting | None, load: Load, seed: int) -> ArmTimes:
    """The figures of one arm: the same simulation as `server.simulate`.

    Raises:
        BadInputError: as `simulate`; or the load is no closed loop, or too few requests leave none between its start and its end.
        NoEvidenceError: no request of those has a decode step.

    """
    rules = rules_of(replica, drafting=drafting, load=load)
    edge, count = rules.concurrency, len(workload.requests)
    if not 0 < edge <= (count - 1) // 2:
        raise BadInputError(f"{count} requests at concurrency {edge} leave none between the start and the end of the loop")
    need_room(replica, (step_cost,), rules.verified_tokens)
    before = start(workload, replica=replica, drafting=drafting, load=load, seed=seed)
    state = run_through(before, rules, cost_of((step_cost,), draft_tokens=rules.draft_tokens))
    kept = state.table[edge : count - edge]
    decoded = (kept[:, columns.CHUNKS] > 1) & (kept[:, columns.REFUSE] == 0)
    if not decoded.any():
        raise NoEvidenceError("no request has a decode step, so there is nothing to compare")
    spent_s = _first_to_last_chunk_s(state, kept[decoded])
    tpot_s = np.full(len(kept), np.nan)
    tpot_s[decoded] = spent_s / (kept[decoded, columns.OUTPUT] - 1)
    accepted = state.accepted[edge : count - edge]
    steps = int(kept[:, columns.STEPS].sum())
    return ArmTimes(
        tpot_s=tpot_s,
        step_s=float(spent_s.sum()) / steps,
        tokens_per_step=1 + float((accepted * np.arange(accepted.shape[1])).sum()) / steps,
    )


def _first_to_last_chunk_s(state: State, rows: IntArray) -> FloatArray:
    """Seconds between each request's first and last chunk: on the clock of step ends, or on its own where it paused."""
    first = rows[:, columns.INSTANTS_FROM]
    last = first + rows[:, columns.CHUNKS] - 1
    spent_s = np.empty(len(rows))
    for paused, at_s in enumerate((state.step_at_s, state.log_at_s)):
        own = rows[:, columns.PAUSED] == paused
        spent_s[own] = at_s[last[own]] - at_s[first[own]]
    return spent_s
