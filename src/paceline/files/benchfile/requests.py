"""Requests of a result file: their timing as far as it was observed, their acceptance, and the figures that follow.

Where as many messages came as tokens, each carried one. Where fewer came, their sizes are not known: only the sum is, so pace (TPOT) and
gaps between messages are known and gaps per token are not. Where more came, some were empty, and only the first and last are trusted. What
holds for one request of a run is then said of all: a figure over the others alone would be of those with no accepted draft.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from paceline.errors import BadInputError, NoEvidenceError, printable
from paceline.latency import METRICS, Detail, Ended, RequestTiming, distribution, samples
from paceline.run import Outcome, RequestRecord, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Caution

__all__ = ["FloatArray", "Seen", "detail_cautions", "detail_of", "instants_after", "latency_summaries", "record_of", "summary_name"]

FloatArray = npt.NDArray[np.float64]

STATISTICS = ("mean", "p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A request as a file shows it: instants on one clock, tokens, what came of it; `chunk_tokens` where the file tells sizes."""

    id: str
    segment: str
    prompt_tokens: int
    output_tokens: int
    arrived_at_s: float
    sent_at_s: float
    chunk_at_s: FloatArray  # [chunks]
    chunk_tokens: tuple[int, ...] | None
    sees_all_chunks: bool
    acceptance: AcceptanceCounts | None
    outcome: Outcome

    @property
    def is_finished(self) -> bool:
        """Whether it counts."""
        return self.outcome is Outcome.FINISHED


def detail_of(seen: Iterable[Seen]) -> Detail:
    """What the finished requests' chunks show, all of them together."""
    done = [each for each in seen if each.is_finished]
    shapes = [(len(each.chunk_at_s), each.output_tokens) for each in done]
    if not all(each.sees_all_chunks for each in done):
        return Detail.ENDS
    if all(each.chunk_tokens is not None or len(each.chunk_at_s) == each.output_tokens for each in done):
        return Detail.CHUNKS
    return Detail.INSTANTS if all(chunks <= tokens for chunks, tokens in shapes) else Detail.ENDS


def instants_after(first_s: float, gaps_s: Sequence[float]) -> FloatArray:
    """The instants of messages, the first and each after its gap, shape [1 + gaps]."""
    return np.cumsum([first_s, *gaps_s])


def record_of(seen: Seen, detail: Detail) -> RequestRecord:
    """The request as a record.

    Raises:
        BadInputError: its instants or counts are unlawful, with its id.

    """
    at_s = seen.chunk_at_s if seen.is_finished and seen.output_tokens else np.empty(0)
    if detail is Detail.ENDS and at_s.size > 1:
        at_s = at_s[[0, -1]] if seen.output_tokens > 1 else at_s[:1]
    tokens = seen.output_tokens if seen.is_finished else 0
    try:
        timing = RequestTiming.of_total(
            arrived_at_s=seen.arrived_at_s,
            sent_at_s=seen.sent_at_s,
            chunk_at_s=at_s,
            output_tokens=tokens,
            ended=Ended.STOP if seen.is_finished else Ended.ERROR,
            detail=detail,
        )
        if detail is Detail.CHUNKS and seen.chunk_tokens is not None and at_s.size:
            timing = replace(timing, chunk_tokens=np.array(seen.chunk_tokens, dtype=np.int64))
        return RequestRecord(
            id=seen.id,
            segment=seen.segment,
            prompt_tokens=seen.prompt_tokens,
            output_tokens=tokens,
            timing=timing,
            acceptance=seen.acceptance,
            outcome=seen.outcome,
        )
    except BadInputError as error:
        raise BadInputError(f"request {printable(seen.id)}: {error}") from error


def detail_cautions(detail: Detail) -> list[Caution]:
    """What a reader must know where chunks were not seen in full."""
    if detail is Detail.INSTANTS:
        return [
            Caution("chunk_sizes_unknown", "messages carry several tokens and the file does not say how many: token gaps are not known")
        ]
    if detail is Detail.ENDS:
        return [Caution("chunks_unknown", "only each request's first and last instant are known: neither chunk gaps nor token gaps are")]
    return []


def summary_name(metric: str, statistic: str) -> str:
    """`tpot_s` for the mean, `tpot_p99_s` for a percentile."""
    return metric if statistic == "mean" else f"{metric.removesuffix('_s')}_{statistic}_s"


def latency_summaries(records: Sequence[RequestRecord]) -> dict[str, Summary]:
    """Mean and percentiles of every latency that the finished records have, by our definitions."""
    timings = [each.timing for each in records if each.outcome is Outcome.FINISHED]
    found = {}
    for metric in METRICS:
        try:
            known = distribution(samples(metric, timings))
        except NoEvidenceError:
            continue
        for statistic in STATISTICS:
            value = getattr(known, statistic)
            found[summary_name(metric, statistic)] = Summary(value=value, statistic=statistic, n=known.n, low=None, high=None)
    return found
