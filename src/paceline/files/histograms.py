"""The percentiles that a server's histograms give: a bucket as the interval, widened to the buckets that chance may reach."""

from collections.abc import Iterator
from dataclasses import replace

from paceline.run import Run, Summary
from paceline.servers.window import Observed, Window
from paceline.stats.histogram import CONFIDENCE, bucket_quantile

__all__ = ["with_percentiles"]

PERCENTILES = (50, 90, 95, 99)


def with_percentiles(run: Run, window: Window) -> Run:
    """The run of a window, with P50 to P99 of every latency whose buckets the server counts."""
    return replace(run, summaries={**run.summaries, **dict(_percentiles(window))})


def _percentiles(window: Window) -> Iterator[tuple[str, Summary]]:
    latencies = {"ttft": window.first_token, "tpot": window.tpot, "e2e": window.e2e, "chunk_gap": window.step_gap}
    requests = min((each.count for each in (window.first_token, window.e2e) if each is not None), default=0)
    for name, each in latencies.items():
        if each is None or each.buckets is None or not each.count:
            continue
        independent = min(each.count, requests) if name == "chunk_gap" else each.count
        for percent in PERCENTILES if independent else ():
            yield f"{name}_p{percent}_s", _summary(each, percent, independent)


def _summary(observed: Observed, percent: int, independent: int) -> Summary:
    assert observed.buckets is not None
    found = bucket_quantile(observed.buckets, percent / 100, independent=independent, confidence=CONFIDENCE)
    return Summary(value=found.value, statistic=f"p{percent}", n=observed.count, low=found.low, high=found.high)
