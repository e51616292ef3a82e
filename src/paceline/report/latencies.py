"""Both arms' latencies side by side, from raw samples."""

from dataclasses import dataclass

from paceline.errors import NoEvidenceError
from paceline.latency import Distribution, distribution, samples
from paceline.run import Run

__all__ = ["LatencyRow", "NAMES", "latency_rows"]

NAMES = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "chunk_gap_s": "gap between chunks",
    "token_gap_s": "gap per token",
    "e2e_s": "end to end",
}


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One latency of both arms in seconds; None where an arm has no samples."""

    latency: str
    name: str
    baseline: Distribution | None
    speculative: Distribution | None

    @property
    def p99_ratio(self) -> float | None:
        """Speculative over baseline at the 99th percentile."""
        if self.baseline is None or self.speculative is None or self.baseline.p99 == 0:
            return None
        return self.speculative.p99 / self.baseline.p99


def latency_rows(baseline: Run, speculative: Run) -> tuple[LatencyRow, ...]:
    """A row for each latency that at least one arm measured request by request."""
    rows = (
        LatencyRow(latency=latency, name=name, baseline=_of(baseline, latency), speculative=_of(speculative, latency))
        for latency, name in NAMES.items()
    )
    return tuple(each for each in rows if each.baseline or each.speculative)


def _of(run: Run, latency: str) -> Distribution | None:
    try:
        return distribution(samples(latency, [each.timing for each in run.finished]))
    except NoEvidenceError:
        return None
