"""When tokens reached the user, and every latency derived from that, defined once.

What is observed is *chunks*: with speculation one server-sent event carries several tokens. Two families of gaps come from the same
record and move in opposite directions under speculation, so they never share a name:

    TTFT       first chunk − when the request should have left (`arrived_at_s`)
    TPOT       (last chunk − first chunk) / (output tokens − 1), per request; undefined for a single token
    chunk gap  time between two consecutive chunks (what vLLM's benchmark calls ITL)
    token gap  a chunk's gap divided by its tokens, once for each of them (what SGLang's benchmark calls ITL)
    E2E        last chunk − when the request should have left

In an open loop a request may leave late, and its user waits for that too; in a closed loop it leaves when it should.
Quantiles are numpy's default rule (linear interpolation between order statistics, Hyndman and Fan type 7), from raw samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError

__all__ = ["Distribution", "Ended", "RequestTiming", "distribution", "samples"]

METRICS = ("ttft_s", "tpot_s", "e2e_s", "chunk_gap_s", "token_gap_s")

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Ended(StrEnum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, eq=False)
class RequestTiming:
    """One request's instants, in seconds on one clock.

    Attributes:
        arrived_at_s: when it should have left.
        sent_at_s: when it left.
        chunk_at_s: when each chunk arrived, shape [chunks].
        chunk_tokens: the tokens in each chunk (at least 1), shape [chunks].
        ended: how it ended.

    """

    arrived_at_s: float
    sent_at_s: float
    chunk_at_s: FloatArray  # [chunks]
    chunk_tokens: IntArray  # [chunks]
    ended: Ended

    def __post_init__(self) -> None:
        """Reject what no clock shows: arrived ≤ sent ≤ first chunk ≤ … ≤ last chunk, and no empty chunk.

        Raises:
            BadInputError: with the offending values.

        """
        if self.chunk_at_s.shape != self.chunk_tokens.shape or self.chunk_at_s.ndim != 1:
            raise BadInputError(f"{self.chunk_at_s.shape} chunk instants but {self.chunk_tokens.shape} chunk sizes")
        if not np.issubdtype(self.chunk_tokens.dtype, np.integer):
            raise BadInputError(f"chunk sizes are counts of tokens, so an array of integers, not of {self.chunk_tokens.dtype}")
        instants = np.concatenate(([self.arrived_at_s, self.sent_at_s], self.chunk_at_s))
        if not np.isfinite(instants).all():
            raise BadInputError("an instant is not a finite number of seconds")
        if (np.diff(instants) < 0).any():
            worst = int(np.argmin(np.diff(instants)))
            raise BadInputError(f"the clock goes back from {instants[worst]!r} s to {instants[worst + 1]!r} s")
        if self.chunk_tokens.size and self.chunk_tokens.min() < 1:
            raise BadInputError(f"a chunk carries {int(self.chunk_tokens.min())} tokens; role-only chunks do not count as chunks")

    def __eq__(self, other: object) -> bool:
        """Equal instants, sizes and ending."""
        if not isinstance(other, RequestTiming):
            return NotImplemented
        return (
            (self.arrived_at_s, self.sent_at_s, self.ended) == (other.arrived_at_s, other.sent_at_s, other.ended)
            and np.array_equal(self.chunk_at_s, other.chunk_at_s)
            and np.array_equal(self.chunk_tokens, other.chunk_tokens)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays do not hash, and equality is by value

    @property
    def output_tokens(self) -> int:
        """Tokens received."""
        return int(self.chunk_tokens.sum())

    @property
    def ttft_s(self) -> float:
        """Seconds from when the request should have left to its first chunk.

        Raises:
            NoEvidenceError: no chunk arrived.

        """
        self._need_a_chunk()
        return float(self.chunk_at_s[0]) - self.arrived_at_s

    @property
    def e2e_s(self) -> float:
        """Seconds from when the request should have left to its last chunk.

        Raises:
            NoEvidenceError: no chunk arrived.

        """
        self._need_a_chunk()
        return float(self.chunk_at_s[-1]) - self.arrived_at_s

    @property
    def tpot_s(self) -> float:
        """Seconds per output token after the first *chunk's* instant: (E2E − TTFT) / (output tokens − 1).

        Raises:
            NoEvidenceError: fewer than two tokens.

        """
        if self.output_tokens < 2:
            raise NoEvidenceError(f"{self.output_tokens} output tokens: time per output token needs at least 2")
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)

    @property
    def chunk_gaps_s(self) -> FloatArray:
        """Seconds between consecutive chunks, shape [chunks − 1]."""
        return np.diff(self.chunk_at_s)

    @property
    def token_gaps_s(self) -> FloatArray:
        """Each later chunk's gap spread over its tokens, one entry per token, shape [output tokens − first chunk's tokens]."""
        later = self.chunk_tokens[1:]
        return np.repeat(self.chunk_gaps_s / later, later)

    def _need_a_chunk(self) -> None:
        if not self.chunk_at_s.size:
            raise NoEvidenceError("no chunk arrived, so this request has no latency")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles and mean of `n` raw samples, in the samples' own unit."""

    p50: float
    p90: float
    p95: float
    p99: float
    mean: float
    n: int


def distribution(values: Sequence[float] | FloatArray) -> Distribution:
    """Percentiles (type 7) and arithmetic mean of raw samples.

    Raises:
        NoEvidenceError: there are none.
        BadInputError: one is NaN or infinite.

    """
    sample: npt.NDArray[Any] = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise NoEvidenceError("no samples, so no percentiles")
    if not np.isfinite(sample).all():
        raise BadInputError("a sample is not a finite number; leave out what was not measured")
    p50, p90, p95, p99 = (float(each) for each in np.quantile(sample, [0.5, 0.9, 0.95, 0.99]))
    return Distribution(p50=p50, p90=p90, p95=p95, p99=p99, mean=float(sample.mean()), n=int(sample.size))


def samples(metric: str, timings: Iterable[RequestTiming]) -> FloatArray:
    """All samples of one metric: per request for ttft_s, tpot_s and e2e_s, per gap for chunk_gap_s and token_gap_s. Shape [samples].

    Requests without a chunk, and for tpot_s those with a single token, have no sample.

    Raises:
        UnknownNameError: no such metric.

    """
    kept = [each for each in timings if each.chunk_at_s.size]
    match metric:
        case "ttft_s":
            return np.array([each.ttft_s for each in kept])
        case "e2e_s":
            return np.array([each.e2e_s for each in kept])
        case "tpot_s":
            return np.array([each.tpot_s for each in kept if each.output_tokens > 1])
        case "chunk_gap_s":
            return np.concatenate([np.empty(0), *(each.chunk_gaps_s for each in kept)])
        case "token_gap_s":
            return np.concatenate([np.empty(0), *(each.token_gaps_s for each in kept)])
        case _:
            raise UnknownNameError("latency", metric, METRICS)
