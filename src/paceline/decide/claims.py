"""The metrics that a claim may bound, and how a policy file writes a claim.

speedup                                  plain seconds per output token / speculative
{ttft,tpot,e2e}_{mean,p50,…,p99}.ratio   speculative / baseline, one sample per request
chunk_gap_{p50,…,p99}.ratio              the same of visible gaps, one sample per gap
{ttft,tpot,e2e,chunk_gap}_p99_s          seconds of the speculative arm alone
goodput.ratio                            share of requests within the promised latencies that the runs state, speculative / baseline
output_tokens_per_s.ratio, harmed_share, alpha, tokens_per_step
alpha_above_break_even                   α − the α at which drafting pays at this load; written `alpha >= break_even + 0.05`

A claim is `metric <= number` or `metric >= number`; behind it may stand one segment in brackets: `tpot_p99.ratio <= 1.05 [chat]`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paceline.errors import BadInputError, UnknownNameError, printable
from paceline.verdict import ABOVE_BREAK_EVEN, Claim

__all__ = ["METRICS", "Metric", "metric_named", "parse_claim"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's parts: `latency` ("tpot_s") and `statistic` ("mean", "p99"), None where it is no latency; whether it compares the arms."""

    name: str
    latency: str | None
    statistic: str | None
    is_ratio: bool

    @property
    def quantile(self) -> float | None:
        """The quantile that the statistic is, None for a mean or for what is no latency."""
        return int(self.statistic[1:]) / 100 if self.statistic and self.statistic != "mean" else None


def _latencies() -> list[Metric]:
    quantiles = ("p50", "p90", "p95", "p99")
    found = []
    for latency in ("ttft", "tpot", "e2e", "chunk_gap"):
        statistics = quantiles if latency == "chunk_gap" else ("mean", *quantiles)
        found += [Metric(name=f"{latency}_{each}.ratio", latency=f"{latency}_s", statistic=each, is_ratio=True) for each in statistics]
        found += [Metric(name=f"{latency}_{each}_s", latency=f"{latency}_s", statistic=each, is_ratio=False) for each in quantiles]
    return found


def _others() -> list[Metric]:
    ratios = ("speedup", "output_tokens_per_s.ratio", "goodput.ratio", "harmed_share")
    return [
        Metric(name=name, latency=None, statistic=None, is_ratio=name in ratios)
        for name in (*ratios, "alpha", "tokens_per_step", ABOVE_BREAK_EVEN)
    ]


METRICS: Mapping[str, Metric] = MappingProxyType({each.name: each for each in _latencies() + _others()})

CLAIM = re.compile(
    r"\s*(?P<metric>[\w.]+)\s*(?P<relation><=|>=)\s*(?P<even>break_even\s*)?(?P<bound>[-+]?\s*[-+.\deE]+)?\s*(?:\[(?P<segment>[^\]]+)\])?\s*"
)


def metric_named(name: str) -> Metric:
    """The metric called `name`.

    Raises:
        UnknownNameError: there is none; the message lists the nearest.

    """
    if name not in METRICS:
        raise UnknownNameError("metric", name, METRICS)
    return METRICS[name]


def parse_claim(text: str) -> Claim:
    """The claim that `text` states: `speedup >= 1.05`, `tpot_p99.ratio <= 1.05 [chat]`, `alpha >= break_even + 0.05`; the inverse of
    `str(claim)`.

    Raises:
        BadInputError: another form, or a bound that is no number.
        UnknownNameError: no such metric.

    """
    found = CLAIM.fullmatch(text)
    if found is None or (found["bound"] is None and found["even"] is None):
        raise BadInputError(
            f"claim {printable(text)} is not of the form 'metric <= number' or 'metric >= number', '[segment]' behind it for one"
        )
    metric = metric_named(found["metric"])
    if found["even"] is not None and metric.name != "alpha":
        raise BadInputError(f"claim {printable(text)}: only alpha is held against break_even")
    try:
        bound = float("".join((found["bound"] or "0").split()))
    except ValueError:
        raise BadInputError(f"claim {printable(text)}: {printable(found['bound'])} is not a number") from None
    name = metric.name if found["even"] is None else ABOVE_BREAK_EVEN
    at_most = found["relation"] == "<="
    return Claim(metric=name, at_most=bound if at_most else None, at_least=None if at_most else bound, segment=found["segment"])
