"""The few figures of an arm that a sweep asks for, from the simulator's own arrays: no record is made of any request.

A closed loop's first and last requests are left out by their place in the workload, as `steady` does.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError
from paceline.forecast.step_cost import StepCost
from paceline.run import Load
from paceline.simulate import kernel
from paceline.simulate.replica import Drafting, Replica, need_room
from paceline.simulate.server import ALL_STEPS, cost_of, rules_of, start
from paceline.workload import Workload

__all__ = ["ArmTimes", "arm_times"]

FloatArray = npt.NDArray[np.float64]


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
    need_room(replica, step_cost, rules.verified_tokens)
    state = start(workload, replica=replica, drafting=drafting, load=load, seed=seed)
    kernel.advance(state, rules, cost_of(step_cost), ALL_STEPS)
    kept = state.table[edge : count - edge]
    decoded = (kept[:, kernel.CHUNKS] > 1) & (kept[:, kernel.REFUSE] == 0)
    if not decoded.any():
        raise NoEvidenceError("no request has a decode step, so there is nothing to compare")
    first = kept[decoded, kernel.CHUNKS_FROM]
    spent_s = state.log_at_s[first + kept[decoded, kernel.CHUNKS] - 1] - state.log_at_s[first]
    tpot_s = np.full(len(kept), np.nan)
    tpot_s[decoded] = spent_s / (kept[decoded, kernel.OUTPUT] - 1)
    accepted = state.accepted[edge : count - edge]
    steps = int(kept[:, kernel.STEPS].sum())
    return ArmTimes(
        tpot_s=tpot_s,
        step_s=float(spent_s.sum()) / steps,
        tokens_per_step=1 + float((accepted * np.arange(accepted.shape[1])).sum()) / steps,
    )
