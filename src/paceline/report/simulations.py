"""Two arms' latencies, throughput and acceptance, as a dictionary for `--json` and as text. Percentiles carry their intervals."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from paceline.decide.measured import metric_estimate
from paceline.errors import NoEvidenceError
from paceline.latency import samples
from paceline.report.figures import MISSING, percent, plain
from paceline.report.json_view import acceptance_dict, estimate_dict
from paceline.report.latencies import latency_rows
from paceline.report.text import columns, latency_table
from paceline.run import Outcome, Run
from paceline.stats.intervals import acceptance_estimates, clustered_quantile_interval, mean_interval, quantile_interval
from paceline.verdict import Estimate

__all__ = ["acceptance_of", "arms_dict", "arms_text", "harmed_requests"]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
PER_REQUEST = ("ttft_s", "tpot_s", "e2e_s")
PER_GAP = ("chunk_gap_s", "token_gap_s")


def acceptance_of(run: Run, *, confidence: float, rng: np.random.Generator) -> dict[str, Any] | None:
    """The run's acceptance, in all and by segment, with intervals by request; None where it was not measured."""
    if run.requests is None or not run.acceptance_by_segment:
        return None
    counted = [(each.segment, each.acceptance) for each in run.requests if each.acceptance is not None]

    def estimated(segment: str | None) -> dict[str, Estimate]:
        mine = [counts for name, counts in counted if segment in (None, name)]
        return acceptance_estimates(mine, confidence=confidence, rng=rng)

    segments = {name: (counts, estimated(name)) for name, counts in run.acceptance_by_segment.items()}
    return acceptance_dict(run.acceptance, estimated(None), confidence=confidence, segments=segments)


def arms_dict(baseline: Run, speculative: Run, *, confidence: float, rng: np.random.Generator) -> dict[str, Any]:
    """Both arms, the acceptance, the speed-up and the share of harmed requests; None where there is nothing to compare.

    Raises:
        NoEvidenceError: a run has no per-request records.

    """

    def compared(metric: str) -> dict[str, Any] | None:
        try:
            found = metric_estimate(metric, baseline, speculative, segment=None, confidence=confidence, rng=rng)
        except NoEvidenceError:
            return None
        return estimate_dict(found)

    return {
        "arms": {run.arm.value: _arm(run, confidence) for run in (baseline, speculative)},
        "acceptance": acceptance_of(speculative, confidence=confidence, rng=rng),
        "speedup": compared("speedup"),
        "harmed_share": compared("harmed_share"),
    }


def _arm(run: Run, confidence: float) -> dict[str, Any]:
    records = run.requests or ()
    failed = sum(each.outcome in (Outcome.REFUSED, Outcome.FAILED) for each in records)
    throughput = (
        None if not run.window_s else Estimate(value=run.output_tokens_per_s, low=None, high=None, confidence=confidence, n=len(records))
    )
    return {
        **{name: _quantiles(run, name, confidence) for name in (*PER_REQUEST, *PER_GAP)},
        "output_tokens_per_s": estimate_dict(throughput),
        "step_s": run.step_seconds,
        "requests": len(records),
        "failed": failed,
    }


def _quantiles(run: Run, name: str, confidence: float) -> dict[str, Any] | None:
    """Percentiles and mean; gaps within one request are not independent, so their intervals are by request."""
    timings = [each.timing for each in run.finished]
    if name in PER_REQUEST:
        values = samples(name, timings)
        if not values.size:
            return None
        found = {key: quantile_interval(values, q, confidence=confidence) for key, q in QUANTILES.items()}
        return {key: estimate_dict(each) for key, each in (found | {"mean": mean_interval(values, confidence=confidence)}).items()}
    clusters = [values for values in (samples(name, [each]) for each in timings) if values.size]
    if not clusters:
        return None
    found = {key: clustered_quantile_interval(clusters, q, confidence=confidence) for key, q in QUANTILES.items()}
    mean = Estimate(value=float(np.concatenate(clusters).mean()), low=None, high=None, confidence=confidence, n=len(clusters))
    return {key: estimate_dict(each) for key, each in (found | {"mean": mean}).items()}


def arms_text(baseline: Run, speculative: Run, body: Mapping[str, Any]) -> str:
    """Latencies side by side, throughput and failures, then speed-up, acceptance and harm: the figures of `body` (`arms_dict`)."""
    arms = [body["arms"][run.arm.value] for run in (baseline, speculative)]
    served = [
        ("output tokens per second", *(_ratio(each["output_tokens_per_s"]) for each in arms)),
        ("requests", *(f"{each['requests']:,}" for each in arms)),
        ("refused or failed", *(f"{each['failed']:,}" for each in arms)),
    ]
    acceptance = body["acceptance"] or {}
    rows = [
        ("speed-up", _ratio(body["speedup"])),
        ("harmed requests", _ratio(body["harmed_share"], percent)),
        ("tokens per step", _ratio(acceptance.get("tokens_per_step"))),
        ("acceptance rate α", _ratio(acceptance.get("alpha"))),
        ("acceptance length τ", _ratio(acceptance.get("acceptance_length"))),
    ]
    tables = (columns(("", "plain", "with drafts"), served), columns(("", "value"), rows))
    return "\n\n".join([latency_table(latency_rows(baseline, speculative)).rstrip("\n"), *tables])


def _ratio(estimate: Mapping[str, Any] | None, shown: Callable[[float | None], str] = plain) -> str:
    """A figure with its interval, where it has one."""
    if estimate is None:
        return MISSING
    if estimate["low"] is None and estimate["high"] is None:
        return shown(estimate["value"])
    low, high = ("?" if estimate[end] is None else shown(estimate[end]) for end in ("low", "high"))
    return f"{shown(estimate['value'])} ({low} to {high})"


def harmed_requests(baseline: Run, speculative: Run, *, most: int) -> list[dict[str, Any]]:
    """The requests that drafting slowed most, worst first: id, segment, and TPOT in both arms."""
    plain_tpots = {each.id: each.timing.tpot_s for each in baseline.finished if each.timing.output_tokens > 1}
    slowed = [
        (each.timing.tpot_s / plain_tpots[each.id], each)
        for each in speculative.finished
        if each.timing.output_tokens > 1 and each.timing.tpot_s > plain_tpots.get(each.id, float("inf")) > 0
    ]
    worst = sorted(slowed, key=lambda pair: (-pair[0], pair[1].id))[:most]
    return [
        {"id": each.id, "segment": each.segment, "tpot_ratio": ratio, "baseline_tpot_s": plain_tpots[each.id], "tpot_s": each.timing.tpot_s}
        for ratio, each in worst
    ]
