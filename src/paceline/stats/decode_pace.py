"""How long a decode step takes in a run, told apart from steps that also carry somebody's prefill.

A chunk gap of a request is one step. Prefills in it, of whichever request, make it longer and say nothing of decoding. A request prefills
at some time between when it left and its first chunk, so a gap that no such stretch touches is a step of decoding alone. Only gaps until
the last request arrived count: later ones may carry the prefill of requests that the run no longer holds, and a batch that runs empty.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.run import Run

__all__ = ["DecodePace", "decode_pace"]

FloatArray = npt.NDArray[np.float64]
LEAST_STEPS = 50
STALLED = 3.0  # times the median; a preempted request's wait is no step


@dataclass(frozen=True, slots=True)
class DecodePace:
    """How a run decodes.

    Attributes:
        step_s: mean seconds of a step that holds no prefill; None where too few are known to be such.
        context_tokens: mean context of a decode step.
        prompt_tokens: mean prompt of a request.
        steps: mean decode steps of a request.

    """

    step_s: float | None
    context_tokens: int
    prompt_tokens: int
    steps: float


def decode_pace(run: Run) -> DecodePace | None:
    """The pace of a run's decoding; None where it has no requests with two chunks."""
    requests = [each for each in run.requests or () if each.timing.chunk_at_s.size > 1]
    if not requests:
        return None
    starts_s = np.concatenate([each.timing.chunk_at_s[:-1] for each in requests])
    ends_s = np.concatenate([each.timing.chunk_at_s[1:] for each in requests])
    left_s = np.sort([each.timing.sent_at_s for each in requests])
    first_s = np.sort([each.timing.chunk_at_s[0] for each in requests])
    prefilling = np.searchsorted(left_s, ends_s, side="left") > np.searchsorted(first_s, starts_s, side="right")
    alone_s = (ends_s - starts_s)[~prefilling & (ends_s <= left_s[-1])]
    outputs = np.array([each.output_tokens for each in requests], dtype=np.float64)
    prompts = np.array([each.prompt_tokens for each in requests], dtype=np.float64)
    return DecodePace(
        step_s=_mean_of_steps(alone_s),
        context_tokens=max(1, round(float(outputs @ (prompts + outputs / 2) / outputs.sum()))),
        prompt_tokens=max(1, round(float(prompts.mean()))),
        steps=len(starts_s) / len(requests),
    )


def _mean_of_steps(gaps_s: FloatArray) -> float | None:
    if len(gaps_s) < LEAST_STEPS:
        return None
    steps_s = gaps_s[gaps_s <= STALLED * np.median(gaps_s)]
    return float(steps_s.mean()) or None
