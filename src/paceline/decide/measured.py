"""What two runs say about one metric, as an estimate, or why they say nothing.

Per-request records come first. Where a source has only aggregates, a ratio of its summaries is a point: its ends are unknown, unless both
summaries carry the edges of their histogram's buckets. Speed-up then falls back on E / ρ. A point decides nothing.
"""

from dataclasses import replace

import numpy as np

from paceline.decide.break_even import step_time_ratio, tokens_per_step
from paceline.decide.claims import Metric, metric_named
from paceline.errors import NoEvidenceError
from paceline.latency import samples
from paceline.run import RequestRecord, Run, Summary
from paceline.stats.goodput import goodput, promised
from paceline.stats.intervals import acceptance_estimates, clustered_quantile_interval, quantile_interval, ratio_of_sums, wilson
from paceline.stats.paired import combined_ratio, gap_quantile_ratio, mean_ratio, quantile_ratio, request_pairs, two_arms
from paceline.verdict import Estimate

__all__ = ["harmed_share", "metric_estimate", "needs_requests", "segments_of"]


def metric_estimate(
    name: str, baseline: Run, speculative: Run, *, segment: str | None, confidence: float, rng: np.random.Generator
) -> Estimate:
    """The metric with its interval, for all finished requests or those of one segment.

    Raises:
        NoEvidenceError: the runs do not measure it.
        UnknownNameError: no such metric.

    """
    metric = metric_named(name)
    match name:
        case "alpha" | "tokens_per_step":
            return _acceptance(name, speculative, segment=segment, confidence=confidence, rng=rng)
        case "speedup":
            return _speedup(baseline, speculative, segment=segment, confidence=confidence, rng=rng)
        case "harmed_share":
            return harmed_share(baseline, speculative, segment=segment, confidence=confidence, rng=rng)
        case "output_tokens_per_s.ratio":
            return _throughput(baseline, speculative, segment=segment, confidence=confidence, rng=rng)
        case "goodput.ratio":
            return _goodput_ratio(baseline, speculative, segment=segment, confidence=confidence)
        case _ if metric.is_ratio:
            return _latency_ratio(metric, baseline, speculative, segment=segment, confidence=confidence, rng=rng)
        case _:
            return _latency(metric, speculative, segment=segment, confidence=confidence)


def needs_requests(baseline: Run, speculative: Run) -> bool:
    """Whether a run lacks per-request records, so that a missing figure is the source's doing."""
    return baseline.requests is None or speculative.requests is None


def segments_of(run: Run) -> tuple[str, ...]:
    """The segments that finished requests or acceptance counts name, sorted."""
    named = {each.segment for each in run.finished} if run.requests is not None else set()
    return tuple(sorted(named | set(run.acceptance_by_segment or {})))


def _of(run: Run, segment: str | None) -> list[RequestRecord]:
    return [each for each in run.finished if segment is None or each.segment == segment]


def _acceptance(name: str, run: Run, *, segment: str | None, confidence: float, rng: np.random.Generator) -> Estimate:
    """From requests' own counts where the source has them, else from the totals, which leave both ends unknown."""
    counted = [each.acceptance for each in _of(run, segment) if each.acceptance is not None] if run.requests is not None else []
    estimates = acceptance_estimates(counted, confidence=confidence, rng=rng) if counted else {}
    if name in estimates:
        return estimates[name]
    by_segment = run.acceptance_by_segment or {}
    if segment is not None and segment not in by_segment:
        raise NoEvidenceError(f"acceptance of segment {segment!r} was not measured")
    counts = run.acceptance if segment is None else by_segment[segment]
    value = counts.alpha if name == "alpha" else tokens_per_step(run) if segment is None else counts.tokens_per_step
    return Estimate(value=value, low=None, high=None, confidence=confidence, n=0)


def _speedup(baseline: Run, speculative: Run, *, segment: str | None, confidence: float, rng: np.random.Generator) -> Estimate:
    if not needs_requests(baseline, speculative):
        arms = two_arms(baseline, speculative, latency="tpot_s", segment=segment)
        return mean_ratio(arms.baseline, arms.speculative, paired=arms.paired, confidence=confidence, rng=rng)
    if segment is not None:
        raise NoEvidenceError("a segment's speed-up needs per-request records in both arms")
    means = _summary(baseline, "tpot_s", "mean"), _summary(speculative, "tpot_s", "mean")
    if means[0] and means[1]:
        return _summary_ratio(means[0], means[1], confidence=confidence)
    ratio = step_time_ratio(baseline, speculative, confidence=confidence, rng=rng)
    if ratio.value == 0:
        raise NoEvidenceError("the speculative arm's steps took no time")
    return Estimate(value=tokens_per_step(speculative) / ratio.value, low=None, high=None, confidence=confidence, n=0)


def harmed_share(baseline: Run, speculative: Run, *, segment: str | None, confidence: float, rng: np.random.Generator) -> Estimate:
    """The share of requests that got slower, in [0, 1]: in pairs, those whose TPOT rose; else those whose tokens per step lie below ρ.

    Noise counts: of requests that drafts neither help nor hurt, half are "harmed".

    Raises:
        NoEvidenceError: neither pairs nor per-request acceptance with steps.

    """
    if not needs_requests(baseline, speculative) and request_pairs(baseline, speculative, segment=segment):
        arms = two_arms(baseline, speculative, latency="tpot_s", segment=segment)
        slower, n = int(np.count_nonzero(arms.speculative > arms.baseline)), arms.n
    else:
        counts = [each.acceptance for each in _of(speculative, segment) if each.acceptance and each.acceptance.steps]
        if not counts:
            raise NoEvidenceError("who was harmed needs the same requests in both arms, or each request's acceptance and steps")
        ratio = step_time_ratio(baseline, speculative, confidence=confidence, rng=rng).value
        slower, n = sum(each.tokens_per_step < ratio for each in counts), len(counts)
    return wilson(successes=slower, n=n, confidence=confidence)


def _throughput(baseline: Run, speculative: Run, *, segment: str | None, confidence: float, rng: np.random.Generator) -> Estimate:
    """Tokens per second of both windows; in a closed loop with the relative interval of tokens / Σ end-to-end seconds by request."""
    if segment is not None:
        raise NoEvidenceError("throughput is of all traffic, not of one segment")
    if needs_requests(baseline, speculative):
        ours, theirs = (_summary(each, "output_tokens_per_s", None) for each in (baseline, speculative))
        if ours is None or theirs is None:
            raise NoEvidenceError("throughput was not measured in both arms")
        return _summary_ratio(theirs, ours, confidence=confidence)
    below = baseline.output_tokens_per_s
    if below == 0:
        raise NoEvidenceError("the baseline finished no token")
    value = speculative.output_tokens_per_s / below
    if baseline.load.concurrency is None or speculative.load.concurrency is None or value == 0:
        return Estimate(value=value, low=None, high=None, confidence=confidence, n=min(len(baseline.finished), len(speculative.finished)))
    up, down = (_token_rate(each, confidence=confidence, rng=rng) for each in (speculative, baseline))
    slots = combined_ratio(up, down)
    low, high = (None if each is None else each / slots.value * value for each in (slots.low, slots.high))
    return Estimate(value=value, low=low, high=high, confidence=confidence, n=slots.n)


def _goodput_ratio(baseline: Run, speculative: Run, *, segment: str | None, confidence: float) -> Estimate:
    """Of the arms' shares of good requests, as if they were independent, which is wider than pairs would be."""
    slo = promised(baseline)
    if promised(speculative) != slo:
        raise NoEvidenceError("the two runs state different promised latencies, so their goodput does not compare")
    shares = []
    for run in (speculative, baseline):
        mine = [each for each in run.requests or () if segment in (None, each.segment)]
        shares.append(goodput(replace(run, requests=None if run.requests is None else tuple(mine)), slo, confidence=confidence).share)
    return combined_ratio(*shares)


def _token_rate(run: Run, *, confidence: float, rng: np.random.Generator) -> Estimate:
    done = [each for each in run.finished if each.timing.chunk_at_s.size]
    tokens = np.array([each.output_tokens for each in done], dtype=np.float64)
    return ratio_of_sums(tokens, np.array([each.timing.e2e_s for each in done]), largest=None, confidence=confidence, rng=rng)


def _latency_ratio(
    metric: Metric, baseline: Run, speculative: Run, *, segment: str | None, confidence: float, rng: np.random.Generator
) -> Estimate:
    assert metric.latency is not None
    if needs_requests(baseline, speculative):
        ours, theirs = (_summary(each, metric.latency, metric.statistic) if segment is None else None for each in (baseline, speculative))
        if ours is None or theirs is None:
            raise NoEvidenceError(f"{metric.name} needs per-request records, or the same summary of both arms")
        return _summary_ratio(theirs, ours, confidence=confidence)
    if metric.latency == "chunk_gap_s":
        assert metric.quantile is not None
        return gap_quantile_ratio(baseline, speculative, metric.quantile, segment=segment, confidence=confidence)
    arms = two_arms(baseline, speculative, latency=metric.latency, segment=segment)
    if metric.quantile is None:
        return mean_ratio(arms.speculative, arms.baseline, paired=arms.paired, confidence=confidence, rng=rng)
    return quantile_ratio(arms.speculative, arms.baseline, metric.quantile, paired=arms.paired, confidence=confidence)


def _latency(metric: Metric, run: Run, *, segment: str | None, confidence: float) -> Estimate:
    assert metric.latency is not None
    assert metric.quantile is not None
    if run.requests is None:
        known = _summary(run, metric.latency, metric.statistic) if segment is None else None
        if known is None:
            raise NoEvidenceError(f"{metric.name} needs per-request records, or a summary of it")
        return Estimate(value=known.value, low=known.low, high=known.high, confidence=confidence, n=known.n or 0)
    timings = [each.timing for each in _of(run, segment)]
    if metric.latency == "chunk_gap_s":
        return clustered_quantile_interval([each.chunk_gaps_s for each in timings], metric.quantile, confidence=confidence)
    return quantile_interval(samples(metric.latency, timings), metric.quantile, confidence=confidence)


def _summary(run: Run, name: str, statistic: str | None) -> Summary | None:
    """The run's summary of that statistic: under its own name (`tpot_s`), or with the statistic in it (`tpot_p99_s`)."""
    for key in (name, f"{name.removesuffix('_s')}_{statistic}_s"):
        found = run.summaries.get(key)
        if found is not None and statistic in (None, found.statistic):
            return found
    return None


def _summary_ratio(above: Summary, below: Summary, *, confidence: float) -> Estimate:
    """One summary over another; the buckets' edges, where both have them, are the ends."""
    if below.value <= 0:
        raise NoEvidenceError("an arm's summary is 0, so there is no ratio")
    low = above.low / below.high if above.low is not None and below.high else None
    high = above.high / below.low if above.high is not None and below.low else None
    n = min(above.n or 0, below.n or 0)
    return Estimate(value=above.value / below.value, low=low, high=high, confidence=confidence, n=n)
