"""What two runs say about one metric, as an estimate, or why they say nothing.

Per-request records come first. Where a source has only aggregates, an interval rests on how many requests it counted and on a spread that
is fitted or assumed (`decide.totals`), or on the edges of a histogram's buckets where both summaries carry them; where it does not say how
many requests, a ratio is a point, and a point decides nothing. Speed-up then falls back on E / ρ.
"""

from dataclasses import replace

import numpy as np

from paceline.decide.break_even import break_even_alpha, step_time_ratio, tokens_per_step
from paceline.decide.claims import Metric, metric_named
from paceline.decide.in_turns import block_speedup
from paceline.decide.totals import share_estimate, summary_estimate, summary_named
from paceline.errors import NoEvidenceError
from paceline.latency import samples
from paceline.run import RequestRecord, Run
from paceline.stats.goodput import goodput, promised
from paceline.stats.intervals import acceptance_estimates, clustered_quantile_interval, quantile_interval, ratio_of_sums, wilson
from paceline.stats.paired import combined_ratio, gap_quantile_ratio, mean_ratio, quantile_ratio, request_pairs, two_arms
from paceline.verdict import ABOVE_BREAK_EVEN, Estimate

__all__ = ["difference", "harmed_share", "metric_estimate", "needs_requests", "rests_on_buckets", "segments_of"]


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
        case _ if name == ABOVE_BREAK_EVEN:
            return _above_break_even(baseline, speculative, segment=segment, confidence=confidence, rng=rng)
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


def rests_on_buckets(name: str, baseline: Run, speculative: Run) -> bool:
    """Whether the metric's interval is one of a histogram's buckets, which more requests do not narrow."""
    metric = metric_named(name)
    if metric.latency is None or not needs_requests(baseline, speculative):
        return False
    return any(_edges(each, metric.latency, metric.statistic) for each in ((baseline, speculative) if metric.is_ratio else (speculative,)))


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
    alpha = share_estimate(run, counts.alpha, whole=segment is None, confidence=confidence)
    if name == "alpha":
        return alpha
    value = tokens_per_step(run) if segment is None else counts.tokens_per_step
    gained = (value - 1) / alpha.value if alpha.value else 0.0
    low, high = (None if end is None or not gained else 1 + gained * end for end in (alpha.low, alpha.high))
    return Estimate(value=value, low=low, high=None if high is None else max(value, high), confidence=confidence, n=alpha.n)


def _above_break_even(baseline: Run, speculative: Run, *, segment: str | None, confidence: float, rng: np.random.Generator) -> Estimate:
    """Of all traffic's step times and drafts, also where α is one segment's: segments share their steps."""
    alpha = _acceptance("alpha", speculative, segment=segment, confidence=confidence, rng=rng)
    return difference(alpha, break_even_alpha(baseline, speculative, confidence=confidence, rng=rng))


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Of two independent estimates, first − second; the distances to the ends add in squares, an end that needs an unknown end is None.

    (The method of variance estimates recovery: Zou and Donner 2008, Statistics in Medicine 27.)
    """
    value, n = first.value - second.value, min(first.n, second.n)
    down, up = _reach(first, first.low, second, second.high), _reach(first, first.high, second, second.low)
    low, high = None if down is None else value - down, None if up is None else value + up
    return Estimate(value=value, low=low, high=high, confidence=first.confidence, n=n)


def _reach(first: Estimate, first_end: float | None, second: Estimate, second_end: float | None) -> float | None:
    if first_end is None or second_end is None:
        return None
    return float(np.hypot(first_end - first.value, second_end - second.value))


def _speedup(baseline: Run, speculative: Run, *, segment: str | None, confidence: float, rng: np.random.Generator) -> Estimate:
    if not needs_requests(baseline, speculative):
        from_blocks = block_speedup(baseline, speculative, segment=segment, confidence=confidence)
        if from_blocks is not None:
            return from_blocks
        arms = two_arms(baseline, speculative, latency="tpot_s", segment=segment)
        return mean_ratio(arms.baseline, arms.speculative, paired=arms.paired, confidence=confidence, rng=rng)
    if segment is not None:
        raise NoEvidenceError("a segment's speed-up needs per-request records in both arms")
    if all(summary_named(each, "tpot_s", "mean") for each in (baseline, speculative)):
        return _summary_ratio(baseline, speculative, "tpot_s", "mean", confidence=confidence)
    ratio = step_time_ratio(baseline, speculative, confidence=confidence, rng=rng)
    if ratio.value == 0:
        raise NoEvidenceError("the speculative arm's steps took no time")
    tokens = _acceptance("tokens_per_step", speculative, segment=None, confidence=confidence, rng=rng)
    return combined_ratio(tokens, ratio)


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
        if any(summary_named(each, "output_tokens_per_s", None) is None for each in (baseline, speculative)):
            raise NoEvidenceError("throughput was not measured in both arms")
        return _summary_ratio(speculative, baseline, "output_tokens_per_s", None, confidence=confidence)
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
        arms_told = (summary_named(each, metric.latency, metric.statistic) for each in (baseline, speculative))
        if segment is not None or not all(arms_told):
            raise NoEvidenceError(f"{metric.name} needs per-request records, or the same summary of both arms")
        return _summary_ratio(speculative, baseline, metric.latency, metric.statistic, confidence=confidence)
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
        if segment is not None or summary_named(run, metric.latency, metric.statistic) is None:
            raise NoEvidenceError(f"{metric.name} needs per-request records, or a summary of it")
        return summary_estimate(run, metric.latency, metric.statistic, confidence=confidence)
    timings = [each.timing for each in _of(run, segment)]
    if metric.latency == "chunk_gap_s":
        return clustered_quantile_interval([each.chunk_gaps_s for each in timings], metric.quantile, confidence=confidence)
    return quantile_interval(samples(metric.latency, timings), metric.quantile, confidence=confidence)


def _summary_ratio(above: Run, below: Run, name: str, statistic: str | None, *, confidence: float) -> Estimate:
    """One run's summary over the other's."""
    up, down = (summary_estimate(each, name, statistic, confidence=confidence) for each in (above, below))
    if up.value <= 0 or down.value <= 0:
        raise NoEvidenceError("an arm's summary is 0, so there is no ratio")
    if any(_edges(each, name, statistic) for each in (above, below)):
        low = up.low / down.high if up.low is not None and down.high else None
        high = up.high / down.low if up.high is not None and down.low else None
        return Estimate(value=up.value / down.value, low=low, high=high, confidence=confidence, n=min(up.n, down.n))
    return combined_ratio(up, down)


def _edges(run: Run, name: str, statistic: str | None) -> bool:
    """Whether the summary's own ends are edges of a bucket, which are errors of no chance and do not add in squares."""
    found = summary_named(run, name, statistic)
    return found is not None and (found.low is not None or found.high is not None)
