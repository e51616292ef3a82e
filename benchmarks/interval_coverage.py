"""How often intervals hold a truth that is known, how often the gate ships what it must not, and how soon a sequential test stops.

    python benchmarks/interval_coverage.py [--repetitions N] [--seed N] [--json] [--write-docs FILE]

Requests are drawn; their truth is a formula. `row`, `n` (requests), `covered`, and beside it the share of intervals that lie above and
below the truth.

    acceptance  drafts of a request are accepted with a chance of its own, Beta(6, 4); lengths are log-normal (sigma .9); K = 3.
                α = E[b + b² + b³] / 3 over that Beta. "binomial" treats drafted tokens as independent, for comparison.
    TPOT        baseline e^N(log .02, .25²); speculative = baseline · e^N(−σ²/2, σ²) / S with σ = .3, so that Σ / Σ has the truth S.
    gaps        a request's own factor e^N(0, .2²) times e^N(0, .3²) per gap, 30 gaps each.
    P99         order statistics; "bootstrap" are percentiles of the resampled P99, for comparison.

The gate is asked with its default policy at the margin of one claim or of all: a ship there is one too many. Asked with six claims that are
all true and exactly on their bounds, a keep is one too many; "each by itself" is what would keep were the error not shared. A speed-up on
its bound is looked at after each of eight blocks but the first: an answer at any look is one too many; "as if at one look" is the same test
judged by intervals of a fixed size. The sequential test is looked at after every request, with designs for a speed-up 8 and 15 % above its
bound of 1.05 and for an α .05 above its bound.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri

from paceline.decide.gate import DEFAULT_POLICY, gate
from paceline.decide.looked import looked_estimate
from paceline.decide.measured import metric_estimate
from paceline.latency import Detail, Ended, RequestTiming
from paceline.run import Arm, Evidence, Load, Outcome, Provenance, RequestRecord, Run
from paceline.stats.blocks import BlockPair, block_effects
from paceline.stats.intervals import clustered_quantile_interval, quantile_interval, ratio_of_sums, wilson
from paceline.stats.looks import Looks
from paceline.stats.paired import TwoArms, mean_ratio, quantile_ratio, requests_needed, speedup_spread
from paceline.stats.sequential import SequentialDesign, anytime_reach
from paceline.verdict import Claim, Decision, Estimate

FloatArray = npt.NDArray[np.float64]
Rng = np.random.Generator

CONFIDENCE, POWER, K = 0.95, 0.9, 3
TRUE_S, MARGIN, PAIR_SPREAD, BASE_SPREAD, BASE_S = 1.4, 1.05, 0.3, 0.25, 0.02
P99 = 0.99
BETA = (6.0, 4.0)
ALPHA = (0.6 + 0.6 * 7 / 11 + 0.6 * 7 / 11 * 8 / 12) / 3  # E[b], E[b²], E[b³] of Beta(6, 4)
BLOCK_NOISE = 0.02  # of a block's times, where blocks differ
PILOT = 100_000
CHUNK = 200  # repetitions of the sequential test held in memory at once


def drafted(shape: tuple[int, ...], rng: Rng) -> tuple[FloatArray, FloatArray]:
    """Accepted and drafted tokens of each request."""
    drafts = np.maximum(1, rng.lognormal(log(60), 0.9, size=shape)).astype(np.int64)
    chance = rng.beta(*BETA, size=shape)
    left, accepted = drafts, np.zeros(shape)
    for _ in range(K):
        left = rng.binomial(left, chance)
        accepted += left
    return accepted, (K * drafts).astype(np.float64)


def tpots(shape: tuple[int, ...], rng: Rng, *, speedup: float = TRUE_S, spread: float = PAIR_SPREAD) -> tuple[FloatArray, FloatArray]:
    """Seconds per token of the same requests without drafts and with them."""
    plain = BASE_S * np.exp(BASE_SPREAD * rng.normal(size=shape))
    return plain, plain * np.exp(spread * rng.normal(size=shape) - spread**2 / 2) / speedup


def _quantile_of_speculative(q: float, *, speedup: float = TRUE_S, spread: float = PAIR_SPREAD) -> float:
    """The q-quantile of the speculative arm's times over the baseline's."""
    return exp(-(spread**2) / 2 + float(ndtri(q)) * (sqrt(BASE_SPREAD**2 + spread**2) - BASE_SPREAD)) / speedup


def _bootstrap(values: FloatArray, q: float, rng: Rng) -> Estimate:
    draws = np.sort(np.quantile(values[rng.integers(0, values.size, size=(400, values.size))], q, axis=1))
    value = float(np.quantile(values, q))
    return Estimate(value=value, low=min(value, draws[9]), high=max(value, draws[-10]), confidence=CONFIDENCE, n=values.size)


def _acceptance(n: int, rng: Rng) -> Estimate:
    return ratio_of_sums(*drafted((n,), rng), largest=1.0, confidence=CONFIDENCE, rng=rng)


def _binomial(n: int, rng: Rng) -> Estimate:
    accepted, tried = (each.sum() for each in drafted((n,), rng))
    return wilson(successes=float(accepted), n=int(tried), confidence=CONFIDENCE)


def _speedup(n: int, rng: Rng, *, paired: bool) -> Estimate:
    plain, speculative = tpots((n,), rng)
    if not paired:
        plain = tpots((n,), rng)[0]
    return mean_ratio(plain, speculative, paired=paired, confidence=CONFIDENCE, rng=rng)


def _quantile(n: int, rng: Rng, q: float) -> Estimate:
    return quantile_interval(tpots((n,), rng)[0], q, confidence=CONFIDENCE)


def _quantile_ratio(n: int, rng: Rng, q: float) -> Estimate:
    plain, speculative = tpots((n,), rng)
    return quantile_ratio(speculative, plain, q, paired=True, confidence=CONFIDENCE)


def _gaps(n: int, rng: Rng, q: float) -> Estimate:
    gaps = np.exp(0.2 * rng.normal(size=(n, 1)) + 0.3 * rng.normal(size=(n, 30)))
    return clustered_quantile_interval(list(gaps), q, confidence=CONFIDENCE)


def _blocks(n: int, rng: Rng, noise: float) -> Estimate:
    """Four pairs of blocks with an order effect of 5 %, a drift of 2 % a pair, and `noise` of each block's own."""
    pairs = []
    for i in range(4):
        second = i % 2 == 0
        plain, speculative = (each * 1.02**i * exp(noise * rng.normal()) for each in tpots((n // 4,), rng))
        late = 1.05
        pairs.append(BlockPair(plain * (1 if second else late), speculative * (late if second else 1), speculative_second=second))
    return block_effects(pairs, confidence=CONFIDENCE).speedup


def _rows() -> list[tuple[str, int, float, Callable[[int, Rng], Estimate]]]:
    """What is tried: name, requests, truth, and how an estimate is drawn."""
    p50, p99, gap99 = BASE_S, BASE_S * exp(BASE_SPREAD * ndtri(P99)), exp(sqrt(0.2**2 + 0.3**2) * ndtri(P99))
    return [
        *(("alpha", n, ALPHA, _acceptance) for n in (30, 100, 400, 1000)),
        ("alpha, binomial", 400, ALPHA, _binomial),
        *(("speedup, pairs", n, TRUE_S, lambda n, rng: _speedup(n, rng, paired=True)) for n in (30, 100, 400, 1000)),
        ("speedup, groups", 400, TRUE_S, lambda n, rng: _speedup(n, rng, paired=False)),
        ("speedup, blocks", 400, TRUE_S, lambda n, rng: _blocks(n, rng, 0.0)),
        ("speedup, noisy blocks", 400, TRUE_S, lambda n, rng: _blocks(n, rng, BLOCK_NOISE)),
        *(("tpot P50", n, p50, lambda n, rng: _quantile(n, rng, 0.5)) for n in (100, 400, 1000)),
        *(("tpot P99", n, p99, lambda n, rng: _quantile(n, rng, P99)) for n in (300, 400, 700, 1000, 3000)),
        ("tpot P99, bootstrap", 400, p99, lambda n, rng: _bootstrap(tpots((n,), rng)[0], P99, rng)),
        *(("tpot P50 ratio", n, _quantile_of_speculative(0.5), lambda n, rng: _quantile_ratio(n, rng, 0.5)) for n in (100, 400)),
        *(("tpot P99 ratio", n, _quantile_of_speculative(P99), lambda n, rng: _quantile_ratio(n, rng, P99)) for n in (400, 1000, 3000)),
        ("chunk gap P99", 400, gap99, lambda n, rng: _gaps(n, rng, P99)),
    ]


def coverage(name: str, n: int, truth: float, draw: Callable[[int, Rng], Estimate], *, repetitions: int, seed: int) -> dict[str, Any]:
    """How often the interval holds the truth; an unknown end holds whatever lies on its side."""
    rng = np.random.default_rng([seed, n, *name.encode()])
    found = [draw(n, rng) for _ in range(repetitions)]
    above = sum(each.low is not None and each.low > truth for each in found)
    below = sum(each.high is not None and each.high < truth for each in found)
    return {
        "row": name,
        "n": n,
        "covered": 1 - (above + below) / repetitions,
        "above": above / repetitions,
        "below": below / repetitions,
        "upper_end_unknown": sum(each.high is None for each in found) / repetitions,
    }


def trial(name: str, n: int, *, repetitions: int, seed: int) -> dict[str, Any]:
    """One row, tried alone with as many requests."""
    return next(coverage(name, n, truth, draw, repetitions=repetitions, seed=seed) for row, _, truth, draw in _rows() if row == name)


def _run(arm: Arm, tpot_s: FloatArray, *, segments: int = 1) -> Run:
    """A run whose requests have these seconds per token, 101 tokens each, and the same time to first token in both arms; the requests are
    of the segments in turn.
    """
    timings = (
        RequestTiming.of_total(
            arrived_at_s=0.0,
            sent_at_s=0.0,
            chunk_at_s=np.array([0.2, 0.2 + 100 * each]),
            output_tokens=101,
            ended=Ended.LENGTH,
            detail=Detail.ENDS,
        )
        for each in tpot_s
    )
    requests = tuple(
        RequestRecord(f"r{i}", f"s{i % segments}", 100, 101, timing, acceptance=None, outcome=Outcome.FINISHED)
        for i, timing in enumerate(timings)
    )
    return Run(
        arm=arm,
        speculation=None,
        load=Load(concurrency=8, rate_per_s=None),
        requests=requests,
        acceptance_by_segment=None,
        step_seconds=None,
        summaries={},
        window_s=None,
        provenance=Provenance(made_by="coverage", version="0", evidence=Evidence.MEASURED, arguments={}, inputs={}, seed=None),
        cautions=(),
    )


def _spread_with_tail_at(bound: float, *, speedup: float) -> float:
    """How much pairs must scatter for the P99 of the faster arm to lie at the bound."""
    return float(brentq(lambda spread: _quantile_of_speculative(P99, speedup=speedup, spread=spread) - bound, 0.01, 2.0))


def false_ships(*, repetitions: int, seed: int, n: int = 400) -> list[dict[str, Any]]:
    """How often the gate ships at the margin of the speed-up, of the tail, and of both."""
    cases = {
        "speed-up at 1 + margin": (MARGIN, 0.1),
        "P99 ratio at its bound": (TRUE_S, _spread_with_tail_at(1.05, speedup=TRUE_S)),
        "both at theirs": (MARGIN, _spread_with_tail_at(1.05, speedup=MARGIN)),
        "clearly better": (1.6, 0.1),
    }
    found = []
    for name, (speedup, spread) in cases.items():
        rng, ships = np.random.default_rng([seed, *name.encode()]), 0
        for _ in range(repetitions):
            plain, speculative = tpots((n,), rng, speedup=speedup, spread=spread)
            verdict = gate(_run(Arm.BASELINE, plain), _run(Arm.SPECULATIVE, speculative), policy=DEFAULT_POLICY, rng=rng)
            ships += verdict.decision is Decision.SHIP
        found.append({"case": name, "n": n, "ships": ships / repetitions})
    return found


def false_keeps(*, repetitions: int, seed: int, n: int = 360, claims: int = 6) -> list[dict[str, Any]]:
    """How often the gate keeps back what should ship: a speed-up exactly on its bound, claimed of each of several segments."""
    asked = tuple(Claim(metric="speedup", at_most=None, at_least=MARGIN, segment=f"s{i}") for i in range(claims))
    policy, rng = replace(DEFAULT_POLICY, claims=asked), np.random.default_rng([seed, claims])
    shared, alone = 0, 0
    for _ in range(repetitions):
        plain, speculative = tpots((n,), rng, speedup=MARGIN)
        arms = _run(Arm.BASELINE, plain, segments=claims), _run(Arm.SPECULATIVE, speculative, segments=claims)
        shared += gate(*arms, policy=policy, rng=rng).decision is Decision.KEEP
        each = (
            mean_ratio(plain[i::claims], speculative[i::claims], paired=True, confidence=CONFIDENCE, rng=rng).high for i in range(claims)
        )
        alone += any(high is not None and high < MARGIN for high in each)
    name = f"{claims} claims on their bounds, kept"
    return [
        {"case": name, "n": n, "tests": repetitions, "wrong": shared / repetitions},
        {"case": f"{name}, each by itself", "n": n, "tests": repetitions, "wrong": alone / repetitions},
    ]


def false_stops(*, repetitions: int, seed: int, n: int = 400, pairs: int = 8) -> list[dict[str, Any]]:
    """How often a speed-up exactly on its bound is called one way or the other, at some look of a test that is looked at while it runs."""
    looks = Looks(taken=1, planned=pairs - 1, most_requests=n, decision=Decision.CANNOT_TELL)
    rng, wrong = np.random.default_rng([seed, pairs]), {True: 0, False: 0}
    for _ in range(repetitions):
        plain, speculative = tpots((n,), rng, speedup=MARGIN)
        runs = [
            (_run(Arm.BASELINE, plain[:end]), _run(Arm.SPECULATIVE, speculative[:end])) for end in range(n // pairs * 2, n + 1, n // pairs)
        ]
        for together in wrong:
            wrong[together] += any(_decides(*each, looks=looks if together else None, rng=rng) for each in runs)
    name = f"a speed-up on its bound, {pairs - 1} looks"
    return [
        {"case": name, "n": n, "tests": repetitions, "wrong": wrong[True] / repetitions},
        {"case": f"{name}, as if at one look", "n": n, "tests": repetitions, "wrong": wrong[False] / repetitions},
    ]


def _decides(baseline: Run, speculative: Run, *, looks: Looks | None, rng: Rng) -> bool:
    """Whether the speed-up's interval lies on one side of the bound."""
    asked: dict[str, Any] = {"segment": None, "confidence": CONFIDENCE, "rng": rng}
    measured = metric_estimate if looks is None else partial(looked_estimate, looks=looks)
    found = measured("speedup", baseline, speculative, **asked)
    return (found.low is not None and found.low > MARGIN) or (found.high is not None and found.high < MARGIN)


def sequential(what: str, effect_times: float, *, effect: float, repetitions: int, seed: int) -> dict[str, Any]:
    """A sequential test whose truth lies so many design effects above its bound, looked at after every request.

    "speedup": of the speed-up, effects on the log scale. "alpha": of acceptance, effects in α; its bound moves instead of the truth.
    """
    fixed = requests_needed(effect=effect, spread=_pilot_spread(what, seed), confidence=CONFIDENCE, power=POWER)
    design = SequentialDesign(fixed_requests=fixed, confidence=CONFIDENCE, power=POWER)
    rng = np.random.default_rng([seed, round(100 * effect), round(10 * effect_times + 100)])
    of_speedup = what == "speedup"
    bound, truth = (MARGIN, MARGIN * exp(effect_times * effect)) if of_speedup else (ALPHA - effect_times * effect, ALPHA)
    stops, ships, keeps, misses = [], 0, 0, 0
    for start in range(0, repetitions, CHUNK):
        rows = min(CHUNK, repetitions - start)
        shape = (rows, design.most_requests)
        drawn = tpots(shape, rng, speedup=truth) if of_speedup else drafted(shape, rng)
        values, below, above = anytime_reach(*drawn, design=design)
        low, high = values - below, values + above
        if of_speedup:
            low, high = (values * np.exp(sign * np.minimum(reach / values, 50.0)) for sign, reach in ((-1, below), (1, above)))
        is_ship, is_keep = low >= bound, high < bound
        over = is_ship | is_keep
        first = np.where(over.any(axis=1), over.argmax(axis=1), design.most_requests - 1)
        stops += (first + 1).tolist()
        at = (np.arange(rows), first)
        ships, keeps = ships + int(is_ship[at].sum()), keeps + int(is_keep[at].sum())
        misses += int(((low > truth) | (high < truth)).any(axis=1).sum())
    return {
        "what": what,
        "true_effect": effect_times,
        "fixed_requests": fixed,
        "mean_requests_of_fixed": float(np.mean(stops)) / fixed,
        "most_requests_of_fixed": max(stops) / fixed,
        "above": ships / repetitions,
        "below": keeps / repetitions,
        "cannot_tell": 1 - (ships + keeps) / repetitions,
        "ever_missed": misses / repetitions,
    }


def _pilot_spread(what: str, seed: int) -> float:
    """What a pilot of very many requests says of the spread, so that the fixed design is the right one."""
    rng = np.random.default_rng(seed)
    if what == "speedup":
        return speedup_spread(TwoArms(*tpots((PILOT,), rng), paired=True))
    accepted, tried = drafted((PILOT,), rng)
    return float((accepted - ALPHA * tried).std() / tried.mean())


def _sequential(repetitions: int, seed: int) -> list[dict[str, Any]]:
    return [
        sequential(what, times, effect=effect, repetitions=repetitions, seed=seed)
        for what, effect in (("speedup", 0.08), ("speedup", 0.15), ("alpha", 0.05))
        for times in (1.5, 1.0, 0.0, -1.0, -1.5)
    ]


def figures(*, repetitions: int, seed: int) -> dict[str, Any]:
    """All of it."""
    return {
        "repetitions": repetitions,
        "seed": seed,
        "alpha": ALPHA,
        "coverage": [coverage(*each, repetitions=repetitions, seed=seed) for each in _rows()],
        "gate": false_ships(repetitions=max(1, repetitions // 2), seed=seed),
        "together": [
            *false_keeps(repetitions=max(1, repetitions // 5), seed=seed),
            *false_stops(repetitions=max(1, repetitions // 10), seed=seed),
        ],
        "sequential": _sequential(repetitions, seed),
    }


BEGIN, END = "<!-- generated: benchmarks/interval_coverage.py --write-docs -->", "<!-- end of the generated part -->"


def table(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = ["", f"{found['repetitions']} repetitions, seed {found['seed']}, 95 % intervals:", ""]
    lines += ["| interval | requests | holds the truth | lies above | lies below | upper end unknown |", "|---|---|---|---|---|---|"]
    for each in found["coverage"]:
        shares = " | ".join(f"{each[key]:.1%}" for key in ("covered", "above", "below", "upper_end_unknown"))
        lines.append(f"| {each['row']} | {each['n']} | {shares} |")
    lines += ["", "| the gate's default policy | requests | ships |", "|---|---|---|"]
    lines += [f"| {each['case']} | {each['n']} | {each['ships']:.1%} |" for each in found["gate"]]
    lines += ["", "| several claims, several looks | requests | tests | wrong |", "|---|---|---|---|"]
    lines += [f"| {each['case']} | {each['n']} | {each['tests']} | {each['wrong']:.1%} |" for each in found["together"]]
    lines += [
        "",
        "| sequential | true effect / design effect | fixed design | mean stop | above | below | cannot tell | interval ever wrong |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for each in found["sequential"]:
        shares = " | ".join(f"{each[key]:.1%}" for key in ("mean_requests_of_fixed", "above", "below", "cannot_tell", "ever_missed"))
        lines.append(f"| {each['what']} | {each['true_effect']:+g} | {each['fixed_requests']} | {shares} |")
    return "\n".join([*lines, "", ""])


def documented(document: str, found: dict[str, Any]) -> str:
    """The document with its generated part replaced."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n{table(found)}{END}{rest.split(END)[1]}"


def main(arguments: list[str] | None = None) -> int:
    """Print the figures, and write them into a document where one is named."""
    parser = argparse.ArgumentParser(description="how often intervals hold the truth")
    parser.add_argument("--repetitions", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write-docs", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    found = figures(repetitions=options.repetitions, seed=options.seed)
    print(json.dumps(found, indent=2) if options.json else table(found))
    if options.write_docs is not None:
        options.write_docs.write_text(documented(options.write_docs.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
