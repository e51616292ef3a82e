"""When tokens reached the user, and every latency derived from that, defined once.

What is observed is *chunks*: with speculation one server-sent event carries several tokens. Two families of gaps come from the same
record and move in opposite directions under speculation, so they never share a name:

    TTFT       first chunk − when the request should have left (`arrived_at_s`)
    TPOT       (last chunk − first chunk) / (output tokens − 1), per request; undefined for a single token
    chunk gap  time between two consecutive chunks (what vLLM's benchmark calls ITL)
    token gap  a chunk's gap divided by its tokens, once for each of them (what SGLang's benchmark calls ITL)
    E2E        last chunk − when the request should have left

In an open loop a request may leave late, and its user waits for that too; in a closed loop it leaves when it should.
A source that did not see every chunk, or not its size, says so (`Detail`): such a request has no sample of the gaps it cannot know.
Quantiles are numpy's default rule (linear interpolation between order statistics, Hyndman and Fan type 7), from raw samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError

__all__ = ["Detail", "Distribution", "Ended", "RequestTiming", "distribution", "gap_samples", "has_sample", "samples"]

METRICS = ("ttft_s", "tpot_s", "e2e_s", "chunk_gap_s", "token_gap_s")

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.integer[Any]]

_and, _least, _sum = np.logical_and.reduce, np.minimum.reduce, np.add.reduce  # the methods of an array take three times as long


class Ended(StrEnum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"
    TIMEOUT = "timeout"


class Detail(StrEnum):
    """What was observed of a request's chunks: all of it, their instants but not their sizes, or the first and the last one's instants."""

    CHUNKS = "chunks"
    INSTANTS = "instants"
    ENDS = "ends"


@dataclass(frozen=True, slots=True, eq=False)
class RequestTiming:
    """One request's instants, in seconds on one clock.

    Attributes:
        arrived_at_s: when it should have left.
        sent_at_s: when it left.
        chunk_at_s: when each chunk arrived, shape [chunks].
        chunk_tokens: the tokens in each chunk (at least 1), shape [chunks].
        ended: how it ended.
        detail: what was observed of the chunks; below CHUNKS only the sum of `chunk_tokens` means something (`of_total`).

    """

    arrived_at_s: float
    sent_at_s: float
    chunk_at_s: FloatArray  # [chunks]
    chunk_tokens: IntArray  # [chunks]
    ended: Ended
    detail: Detail = Detail.CHUNKS

    def __post_init__(self) -> None:
        """Reject what no clock shows: arrived ≤ sent ≤ first chunk ≤ … ≤ last chunk, and no empty chunk.

        Raises:
            BadInputError: with the offending values.

        """
        if not self._is_lawful():
            self._refuse()

    def _is_lawful(self) -> bool:
        """Whether the record holds its law, by the fewest array operations: a hundred thousand records ask. NaN fails every comparison."""
        at_s, tokens = self.chunk_at_s, self.chunk_tokens
        if at_s.ndim != 1 or at_s.shape != tokens.shape or tokens.dtype.kind not in "iu":
            return False
        if not at_s.size:
            return self.arrived_at_s <= self.sent_at_s < inf and self.arrived_at_s > -inf
        in_order = -inf < self.arrived_at_s <= self.sent_at_s <= at_s.item(0) and at_s.item(-1) < inf
        return bool(in_order and _and(at_s[1:] >= at_s[:-1]) and _least(tokens) >= 1)

    def _refuse(self) -> None:
        """Say what is wrong with an unlawful record."""
        if self.chunk_at_s.shape != self.chunk_tokens.shape or self.chunk_at_s.ndim != 1:
            raise BadInputError(f"{self.chunk_at_s.shape} chunk instants but {self.chunk_tokens.shape} chunk sizes")
        if self.chunk_tokens.dtype.kind not in "iu":
            raise BadInputError(f"chunk sizes are counts of tokens, so an array of integers, not of {self.chunk_tokens.dtype}")
        instants = np.concatenate(([self.arrived_at_s, self.sent_at_s], self.chunk_at_s))
        if not np.isfinite(instants).all():
            raise BadInputError("an instant is not a finite number of seconds")
        if (np.diff(instants) < 0).any():
            worst = int(np.argmin(np.diff(instants)))
            raise BadInputError(f"the clock goes back from {instants[worst]!r} s to {instants[worst + 1]!r} s")
        raise BadInputError(f"a chunk carries {int(self.chunk_tokens.min())} tokens; role-only chunks do not count as chunks")

    def __eq__(self, other: object) -> bool:
        """Equal instants, sizes and ending."""
        if not isinstance(other, RequestTiming):
            return NotImplemented
        return (
            (self.arrived_at_s, self.sent_at_s, self.ended, self.detail) == (other.arrived_at_s, other.sent_at_s, other.ended, other.detail)
            and np.array_equal(self.chunk_at_s, other.chunk_at_s)
            and np.array_equal(self.chunk_tokens, other.chunk_tokens)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays do not hash, and equality is by value

    def later(self, by_s: float) -> "RequestTiming":
        """The same request on a clock that started `by_s` seconds earlier."""
        return replace(self, arrived_at_s=self.arrived_at_s + by_s, sent_at_s=self.sent_at_s + by_s, chunk_at_s=self.chunk_at_s + by_s)

    @classmethod
    def of_total(
        cls, *, arrived_at_s: float, sent_at_s: float, chunk_at_s: FloatArray, output_tokens: int, ended: Ended, detail: Detail
    ) -> "RequestTiming":
        """A request of which the chunks' sizes are not known, only how many tokens they held together.

        Raises:
            BadInputError: more chunks than tokens, tokens without a chunk, or as the constructor.

        """
        chunks = chunk_at_s.size
        if output_tokens < chunks or (output_tokens > 0) != (chunks > 0):
            raise BadInputError(f"{output_tokens} output tokens cannot have come in {chunks} chunks")
        stand_in = np.ones(chunks, dtype=np.int64)
        stand_in[-1:] += output_tokens - chunks
        return cls(arrived_at_s, sent_at_s, chunk_at_s, stand_in, ended, detail)

    @property
    def output_tokens(self) -> int:
        """Tokens received."""
        return int(_sum(self.chunk_tokens))

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
        tokens = self.output_tokens
        if tokens < 2:
            raise NoEvidenceError(f"{tokens} output tokens: time per output token needs at least 2")
        return (self.e2e_s - self.ttft_s) / (tokens - 1)

    @property
    def chunk_gaps_s(self) -> FloatArray:
        """Seconds between consecutive chunks, shape [chunks − 1]; none where not every chunk was seen."""
        return np.diff(self.chunk_at_s[: _gaps(self) + 1])

    @property
    def token_gaps_s(self) -> FloatArray:
        """Each later chunk's gap spread over its tokens, one entry per token, shape [output tokens − first chunk's tokens].

        None where the chunks' sizes are not known.
        """
        if self.detail is not Detail.CHUNKS:
            return np.empty(0)
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
            return np.array([each.chunk_at_s.item(0) - each.arrived_at_s for each in kept])
        case "e2e_s":
            return np.array([each.chunk_at_s.item(-1) - each.arrived_at_s for each in kept])
        case "tpot_s":
            return _tpots_s(kept)
        case "chunk_gap_s" | "token_gap_s":
            return gap_samples(metric, kept)[0]
        case _:
            raise UnknownNameError("latency", metric, METRICS)


def has_sample(metric: str, timing: RequestTiming) -> bool:
    """Whether the request has a sample of ttft_s, tpot_s or e2e_s: it got a chunk, and for tpot_s two tokens."""
    chunks = timing.chunk_at_s.size
    return chunks > 0 and (metric != "tpot_s" or chunks > 1 or timing.output_tokens > 1)  # no chunk is empty, so two need no sum


def _tpots_s(timings: Sequence[RequestTiming]) -> FloatArray:
    """`tpot_s` of those with two tokens, in few array operations."""
    tokens = np.array([_sum(each.chunk_tokens) for each in timings], dtype=np.float64)
    arrived_at_s = np.array([each.arrived_at_s for each in timings])
    first_s, last_s = (np.array([each.chunk_at_s.item(place) for each in timings]) - arrived_at_s for place in (0, -1))
    several = tokens > 1
    return np.asarray((last_s - first_s)[several] / (tokens[several] - 1))


def gap_samples(metric: str, timings: Iterable[RequestTiming]) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """All samples of chunk_gap_s or token_gap_s, one request after another, and how many each request has.

    Raises:
        UnknownNameError: no such metric.

    """
    if metric not in ("chunk_gap_s", "token_gap_s"):
        raise UnknownNameError("gap", metric, ("chunk_gap_s", "token_gap_s"))
    kept = list(timings)
    by_token = metric == "token_gap_s"
    sizes = np.array([_later_tokens(each) if by_token else _gaps(each) for each in kept], dtype=np.int64)
    gaps_s, first = np.empty(int(sizes.sum())), 0  # filled in place: several copies of twenty million gaps would be felt
    for each, size in zip(kept, sizes.tolist(), strict=True):
        if size:
            end = first + size
            gaps_s[first:end] = each.token_gaps_s if by_token else each.chunk_at_s[1:] - each.chunk_at_s[:-1]
            first = end
    return gaps_s, sizes


def _gaps(timing: RequestTiming) -> int:
    """How many gaps between chunks were seen."""
    return max(timing.chunk_at_s.size - 1, 0) if timing.detail is not Detail.ENDS else 0


def _later_tokens(timing: RequestTiming) -> int:
    """Tokens after the first chunk, whose gap is known."""
    return timing.output_tokens - int(timing.chunk_tokens[0]) if timing.chunk_at_s.size and timing.detail is Detail.CHUNKS else 0
