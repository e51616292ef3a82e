"""Two arms' latencies, throughput and acceptance, as a dictionary for `--json` and as text. Percentiles carry their intervals."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import inf
from typing import Any

import numpy as np

from paceline.decide.measured import metric_estimate
from paceline.errors import NoEvidenceError, ascii_controls
from paceline.latency import gap_samples, has_sample, samples
from paceline.report.figures import MISSING, milliseconds, percent, plain, times
from paceline.report.json_view import acceptance_dict, estimate_dict
from paceline.report.latencies import NAMES
from paceline.report.text import columns
from paceline.run import Outcome, Run
from paceline.simulate.saturation import Saturation
from paceline.stats.goodput import Slo, goodput
from paceline.stats.intervals import acceptance_estimates, clustered_quantile_intervals, mean_interval, quantile_interval
from paceline.stats.paired import two_arms
from paceline.stats.planning import measurement_plan
from paceline.verdict import Estimate

__all__ = [
    "acceptance_of",
    "arm_dict",
    "arms_dict",
    "arms_text",
    "goodput_dict",
    "harmed_requests",
    "paired_dict",
    "plan_figures",
    "plan_line",
    "saturation_text",
]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
PER_REQUEST = ("ttft_s", "tpot_s", "e2e_s")
SHOWN = ("p50", "p90", "p99")
LATENCY_HEAD = ("latency", *(f"{arm} {each}" for arm in ("plain", "drafts") for each in SHOWN), "p99 ratio")
LEAST_HARM = 1.005  # what is less is shown as 1.00 times, which is no harm
HARMED_HEAD = ("harmed most", "segment", "plain TPOT", "with drafts", "ratio")
MOST_HARMED = 10
MOSTLY = 0.5  # of step time
PER_GAP = ("chunk_gap_s", "token_gap_s")


def acceptance_of(run: Run, *, confidence: float, rng: np.random.Generator) -> dict[str, Any] | None:
    """The run's acceptance, in all and by segment, with intervals by request; None where it was not measured."""
    if run.requests is None or not run.acceptance_by_segment:
        return None
    counted = [(each.segment, each.acceptance) for each in run.requests if each.acceptance is not None]

    def estimated(segment: str | None) -> dict[str, Estimate]:
        mine = [counts for name, counts in counted if segment in (None, name)]
        return acceptance_estimates(mine, confidence=confidence, rng=rng)

    several = len({name for name, _ in counted}) > 1  # the only segment is the whole: no second resampling
    of_segment = {name: estimated(name) for name in run.acceptance_by_segment} if several else {}
    whole = estimated(None)
    segments = {name: (counts, of_segment.get(name, whole)) for name, counts in run.acceptance_by_segment.items()}
    return acceptance_dict(run.acceptance, whole, confidence=confidence, segments=segments)


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
        "arms": {run.arm.value: arm_dict(run, confidence=confidence) for run in (baseline, speculative)},
        "acceptance": acceptance_of(speculative, confidence=confidence, rng=rng),
        "speedup": compared("speedup"),
        "harmed_share": compared("harmed_share"),
    }


def arm_dict(run: Run, *, confidence: float) -> dict[str, Any]:
    """One arm's latencies, throughput and counts.

    Raises:
        NoEvidenceError: the run has no per-request records.

    """
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
    pooled, sizes = gap_samples(name, timings)
    if not pooled.size:
        return None
    found = dict(zip(QUANTILES, clustered_quantile_intervals(pooled, sizes, tuple(QUANTILES.values()), confidence=confidence), strict=True))
    mean = Estimate(value=float(pooled.mean()), low=None, high=None, confidence=confidence, n=int(np.count_nonzero(sizes)))
    return {key: estimate_dict(each) for key, each in (found | {"mean": mean}).items()}


def arms_text(baseline: Run, speculative: Run, body: Mapping[str, Any]) -> str:
    """Latencies side by side, throughput and failures, then speed-up, acceptance and harm: the figures of `body` (`arms_dict`)."""
    arms = [body["arms"][run.arm.value] for run in (baseline, speculative)]
    served = [
        ("output tokens per second", *(_ratio(each["output_tokens_per_s"]) for each in arms)),
        ("requests", *(f"{each['requests']:,}" for each in arms)),
        ("refused or failed", *(f"{each['failed']:,}" for each in arms)),
        *_goodput_row(arms),
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
    shown = [each for each in body.get("harmed", ())[:MOST_HARMED] if each["tpot_ratio"] >= LEAST_HARM]
    harmed = [columns(HARMED_HEAD, [_harmed_cells(each) for each in shown])] if shown else []
    return "\n\n".join([_latencies(*arms), *tables, *harmed])


def _latencies(*arms: Mapping[str, Any]) -> str:
    """A line per latency with both arms' middle and tail, from the figures that the JSON holds."""

    def value(arm: Mapping[str, Any], latency: str, quantile: str) -> float | None:
        found: float | None = None if arm[latency] is None else arm[latency][quantile]["value"]
        return found

    cells = []
    for latency, name in NAMES.items():
        plain_p99, drafted_p99 = (value(arm, latency, "p99") for arm in arms)
        if plain_p99 is None and drafted_p99 is None:
            continue
        shown = [milliseconds(value(arm, latency, quantile)) for arm in arms for quantile in SHOWN]
        cells.append((name, *shown, times(drafted_p99 / plain_p99 if drafted_p99 is not None and plain_p99 else None)))
    return columns(LATENCY_HEAD, cells)


def _goodput_row(arms: list[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Goodput, where objectives were stated."""
    if not all(each.get("goodput") for each in arms):
        return []
    return [
        ("within the objectives", *(_ratio(each["goodput"]["share"], percent) for each in arms)),
        ("good requests per second", *(plain(each["goodput"]["requests_per_s"]) for each in arms)),
    ]


def _harmed_cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    id_, segment = ascii_controls(each["id"]), ascii_controls(each["segment"])
    return id_, segment, milliseconds(each["baseline_tpot_s"]), milliseconds(each["tpot_s"]), times(each["tpot_ratio"])


def goodput_dict(run: Run, slo: Slo, *, confidence: float) -> dict[str, Any]:
    """One arm's goodput: the share with its interval, and the rates."""
    found = goodput(run, slo, confidence=confidence)
    return {
        "share": estimate_dict(found.share),
        "requests_per_s": found.requests_per_s,
        "output_tokens_per_s": found.output_tokens_per_s,
    }


def paired_dict(baseline: Run, speculative: Run, *, confidence: float) -> dict[str, Any]:
    """Each latency's difference by request, speculative − baseline, in seconds: percentiles with intervals; None where none is paired."""

    def differences(latency: str) -> dict[str, Any] | None:
        try:
            arms = two_arms(baseline, speculative, latency=latency, segment=None)
        except NoEvidenceError:
            return None
        if not arms.paired:
            return None
        values = arms.speculative - arms.baseline
        return {key: estimate_dict(quantile_interval(values, QUANTILES[key], confidence=confidence)) for key in SHOWN}

    return {latency: differences(latency) for latency in PER_REQUEST}


def plan_figures(baseline: Run, speculative: Run, *, bound: float, confidence: float, power: float) -> dict[str, Any] | None:
    """How many requests a measurement of these arms needs per arm (`MeasurementPlan`); None where no requests are paired."""
    try:
        pilot = two_arms(baseline, speculative, latency="tpot_s", segment=None)
        return asdict(measurement_plan(pilot, bound=bound, confidence=confidence, power=power))
    except NoEvidenceError:
        return None


def plan_line(plan: Mapping[str, Any]) -> str:
    """The same as a sentence."""
    needed = "no feasible number of requests" if plan["requests"] is None else f"{plan['requests']:,} requests per arm"
    return (
        f"to measure this: {needed} to tell the speed-up from {plan['bound']:g} ({percent(plan['power'])} power, pairs spread by "
        f"{percent(plan['spread'])}), {plan['tail_requests']:,} to bound a P99; {plan['pairs']:,} show {percent(plan['detectable'])}"
    )


def saturation_text(found: Saturation) -> str:
    """What an overrun server means for the figures, in a sentence or two."""
    wait = f"the last quarter of requests waits {found.late_ttft_s:,.1f} s for a first token, the first quarter {found.early_ttft_s:,.1f} s"
    remedy = "latencies grow with the length of the trace; read throughput, send less (--rate, --time-scale below 1) or add replicas"
    helps = "drafts cannot help with that" if found.prefill_share > MOSTLY else "drafts shorten only the rest"
    return f"the server cannot keep up with arrivals: {wait}. Prefill takes {found.prefill_share:.0%} of step time, {helps}; {remedy}"


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
    plain_tpots = _tpots_s(baseline)
    drafted = _tpots_s(speculative)
    slowed = [(tpot_s / plain_tpots[id_], id_) for id_, tpot_s in drafted.items() if tpot_s > plain_tpots.get(id_, inf) > 0]
    worst = sorted(slowed, key=lambda pair: (-pair[0], pair[1]))[:most]
    segments = {each.id: each.segment for each in speculative.finished}
    return [
        {"id": id_, "segment": segments[id_], "tpot_ratio": ratio, "baseline_tpot_s": plain_tpots[id_], "tpot_s": drafted[id_]}
        for ratio, id_ in worst
    ]


def _tpots_s(run: Run) -> dict[str, float]:
    """Time per output token by request, of those with two tokens."""
    kept = [each for each in run.finished if has_sample("tpot_s", each.timing)]
    return dict(zip((each.id for each in kept), samples("tpot_s", [each.timing for each in kept]).tolist(), strict=True))
