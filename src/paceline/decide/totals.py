"""What a run without requests says of a figure: the value that its source printed, and how far off that may be.

a summary with its own ends (a histogram's buckets)     those, at confidences up to .99
a mean over n requests                                   `stats.aggregates.aggregate_mean`, spread fitted where median and P99 are told,
                                                         assumed for paces where they are not
a percentile over n requests beside the median           `stats.aggregates.fitted_quantile`
a share of tokens, n requests known                      `stats.aggregates.aggregate_share`
anything else, or n unknown                              a point, whose ends are unknown
"""

from paceline.run import Run, Summary
from paceline.stats.aggregates import ASSUMED_SPREAD, aggregate_mean, aggregate_share, fitted_quantile, fitted_spread
from paceline.stats.histogram import CONFIDENCE
from paceline.verdict import Caution, Estimate

__all__ = ["requests_counted", "share_estimate", "step_estimate", "summary_estimate", "summary_named", "totals_caution"]

PER_REQUEST = ("tpot_s", "ttft_s", "e2e_s")
PACES = ("tpot_s", "chunk_gap_s")  # times to first token and whole answers lie apart as prompts and lengths do: nothing is assumed of them
TAIL = "p99"
TAIL_QUANTILE = 0.99
COARSE = "histogram_percentiles"  # percentiles read off buckets are no order statistics, so nothing is fitted to them


def summary_named(run: Run, name: str, statistic: str | None) -> Summary | None:
    """The run's summary of that statistic: under its own name (`tpot_s`), or with the statistic in it (`tpot_p99_s`)."""
    for key in (name, f"{name.removesuffix('_s')}_{statistic}_s"):
        found = run.summaries.get(key)
        if found is not None and statistic in (None, found.statistic):
            return found
    return None


def requests_counted(run: Run) -> int | None:
    """Over how many requests the latencies of a source without requests are, None where it does not say."""
    told = [each.n for name in PER_REQUEST if (each := summary_named(run, name, "mean")) is not None and each.n is not None]
    return max(told, default=None)


def summary_estimate(run: Run, name: str, statistic: str | None, *, confidence: float) -> Estimate:
    """A summary that the run has, with its interval."""
    found = summary_named(run, name, statistic)
    assert found is not None
    n = requests_counted(run)
    if _has_edges(found) and confidence > CONFIDENCE:
        return Estimate(value=found.value, low=None, high=None, confidence=confidence, n=found.n or 0)
    if _has_edges(found) or n is None:
        return Estimate(value=found.value, low=found.low, high=found.high, confidence=confidence, n=found.n or 0)
    if statistic == "mean" or statistic is None:
        spread = _spread(run, name, n=n, confidence=confidence)
        if spread is None:
            return Estimate(value=found.value, low=None, high=None, confidence=confidence, n=n)
        return aggregate_mean(found.value, spread=spread, n=n, confidence=confidence)
    middle, quantile = summary_named(run, name, "p50"), int(statistic[1:]) / 100
    if middle is None or quantile <= 0.5 or _coarse(run):
        return Estimate(value=found.value, low=None, high=None, confidence=confidence, n=n)
    return fitted_quantile(middle.value, found.value, quantile, n=n, confidence=confidence)


def step_estimate(run: Run, *, confidence: float) -> Estimate | None:
    """The run's mean seconds per step with the interval that its requests leave, None where they were not measured."""
    if run.step_seconds is None:
        return None
    n = requests_counted(run)
    if n is None:
        return Estimate(value=run.step_seconds, low=None, high=None, confidence=confidence, n=0)
    spread = _spread(run, "chunk_gap_s", n=n, confidence=confidence) or ASSUMED_SPREAD
    return aggregate_mean(run.step_seconds, spread=spread, n=n, confidence=confidence)


def share_estimate(run: Run, share: float, *, whole: bool, confidence: float) -> Estimate:
    """A share of all drafted tokens (`whole`), or of one segment's, whose requests nobody counted."""
    n = requests_counted(run) if whole else None
    if n is None:
        return Estimate(value=share, low=None, high=None, confidence=confidence, n=0)
    return aggregate_share(share, n=n, confidence=confidence)


def _spread(run: Run, name: str, *, n: int, confidence: float) -> float | None:
    """How far single requests lie apart in that figure, None where nothing tells. Gaps lie further apart than requests' means of them."""
    fitted = _fitted(run, name, n=n, confidence=confidence)
    return ASSUMED_SPREAD if fitted is None and name in PACES else fitted


def _fitted(run: Run, name: str, *, n: int, confidence: float) -> float | None:
    middle, tail = (summary_named(run, name, each) for each in ("p50", TAIL))
    if middle is None or tail is None or _coarse(run) or _has_edges(middle) or _has_edges(tail):
        return None
    return fitted_spread(middle.value, tail.value, TAIL_QUANTILE, n=n, confidence=confidence)


def _has_edges(summary: Summary) -> bool:
    """Whether the summary's own ends are edges of a histogram's buckets."""
    return summary.low is not None or summary.high is not None


def _coarse(run: Run) -> bool:
    return any(each.code == COARSE for each in run.cautions)


def totals_caution(runs: tuple[Run, ...], *, confidence: float) -> Caution | None:
    """What the intervals of runs without requests rest on; None where all have requests, or nobody says how many there were."""
    told = []
    for run in runs:
        n = requests_counted(run) if run.requests is None else None
        if n is not None:
            fitted = _fitted(run, "tpot_s", n=n, confidence=confidence)
            how = f"assumed to spread by {ASSUMED_SPREAD:g}" if fitted is None else f"fitted to spread by up to {fitted:.2g}"
            told.append(f"{run.arm.value}: {n} requests, their paces {how} of the mean")
    if not told:
        return None
    return Caution(
        "intervals_from_totals",
        f"intervals rest on the number of requests behind the totals, not on the requests ({'; '.join(told)}); acceptance is taken as if "
        "each request were accepted or rejected whole, and tails as log-normal: measure request by request where it is close",
    )
