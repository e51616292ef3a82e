"""How far forecasts of step-time ratio lie from published measurements.

    python benchmarks/accuracy.py --fit CSV --score CSV [--json] [--verbose] [--write-docs FILE] [--write-triples FILE]

The implied ratio of a row is ρ = E / S, tokens per step over speed-up. A triple (overhead, draft scale, efficiency) is fitted per engine
family (column `engine`), with all rows together as its prior. Where both files are the same, each source is forecast from the others and
never from itself; else everything in --fit forecasts --score. Nothing is fitted per row.

    rho_median_error           median of |predicted − measured| / measured
    constant_rho_median_error  the same for the best constant ρ of the rows that were fitted, under the same protocol
    constant_in_sample_rho_median_error  and for the best constant chosen with all answers known, which no forecast could
    balanced_sign_accuracy     mean over rows with S > 1 and rows with S < 1 of the share whose predicted S lies on the same side
    range_coverage             share of rows whose measured ρ lies in the stated range

The range is an 80 % one: its half-width is the 90th percentile of the errors that the fitted rows show when each of their sources is
forecast from the others, wider where a row leaves its context, its shape or its placement open.
"""

import argparse
import csv
import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # the script may be run from anywhere

from benchmarks.published_rows import UNSTATED, ExcludedError, Row, price_row

from paceline.forecast.calibrate import Observation, Prior, calibrate, predicted_ratio, step_times
from paceline.forecast.engine_cost import EngineCost

SPREAD = 0.1  # of ln ρ between rows that a triple should explain
# The intercept of EAGLE in vllm-project/vllm#20780, .62 ms, less the .3 ms by which verifying takes longer there: the kernels price that.
STATED_OVERHEAD_S = 0.0003
START = Prior(
    EngineCost(STATED_OVERHEAD_S, draft_scale=1.0, efficiency=1.0, arithmetic=1.0), overhead_sd=1.0, draft_sd=0.5, efficiency_sd=0.1
)
FAMILY_SD = 0.6  # of the prior's, for a family around all rows together
LITTLE_SAID = 0.25
PRIOR_PREFILL_SLOWDOWN = 0.1
WIDER_PER_GUESS = {"shape": 1.25, "placement": 1.1, "context": 1.0}
QUANTILE = 0.9
LEAST_HALF_WIDTH = 0.08


@dataclass(frozen=True, slots=True)
class Fit:
    """What was learnt from some rows: a triple for all, one per family, and how much longer prefill takes."""

    pooled: EngineCost
    families: Mapping[str, EngineCost]
    prefill_slowdown: float

    def ratio(self, row: Row, *, terms: Any = None) -> float:
        """ρ of a row."""
        engine = self.families.get(row.engine, self.pooled)
        return predicted_ratio(terms or row.terms, engine, tokens_per_step=row.tokens_per_step, prefill_slowdown=self.prefill_slowdown)


@dataclass(frozen=True, slots=True)
class Scored:
    """One row with what was predicted for it."""

    row: Row
    predicted: float
    low: float
    high: float
    constant: float

    @property
    def error(self) -> float:
        """|predicted − measured| / measured."""
        return abs(self.predicted / self.row.ratio - 1)


def read(path: Path, *, trees: bool) -> tuple[list[Row], list[tuple[str, str]]]:
    """Rows that can be scored (with `trees`, rows of trees, which are not), and source with reason of those that cannot."""
    rows, excluded = [], []
    with path.open(encoding="utf-8", newline="") as file:
        for each in csv.DictReader(file):
            clean = {column: (value or "") for column, value in each.items() if column is not None}
            try:
                rows.append(price_row(clean, trees=trees))
            except ExcludedError as why:
                excluded.append((f"{clean['source']}: {clean['target']} {clean['method']} {clean['K_or_tree']}", str(why)))
    return rows, excluded


def fit(rows: Sequence[Row]) -> Fit:
    """The triples that explain `rows` best; every source weighs the same."""
    slowdown = _prefill_slowdown(rows)
    counted = Counter(row.source for row in rows)

    def learnt(some: Sequence[Row], prior: Prior) -> EngineCost:
        seen = [Observation(row.terms, row.ratio, row.tokens_per_step, None, None, _weight(row) / counted[row.source]) for row in some]
        return calibrate(seen, prior=prior, spread=SPREAD, prefill_slowdown=slowdown).engine

    pooled = learnt(rows, START)
    near = Prior(pooled, FAMILY_SD * START.overhead_sd, FAMILY_SD * START.draft_sd, FAMILY_SD * START.efficiency_sd)
    ordered = sorted(
        (row for row in rows if row.engine != UNSTATED), key=lambda row: row.engine
    )  # no name, no family: those take the prior
    families = {engine: learnt(list(some), near) for engine, some in groupby(ordered, key=lambda row: row.engine)}
    return Fit(pooled, families, slowdown)


def _weight(row: Row) -> float:
    """Less for rows that say little about a step: whole requests, and targets whose shape was guessed."""
    return LITTLE_SAID if row.terms.output_tokens or "shape" in row.guessed else 1.0


def _prefill_slowdown(rows: Sequence[Row]) -> float:
    """One φ for all engines: mean over sources, the prior as one more, of the median φ (0 to 1) that would explain a whole-request row."""
    found: dict[str, list[float]] = {"prior": [PRIOR_PREFILL_SLOWDOWN]}
    for row in rows:
        terms, n = row.terms, row.terms.output_tokens
        if n == 0:
            continue
        plain_s, speculative_s = step_times(terms, START.engine)
        whole = row.ratio * (terms.prefill_s + n * plain_s)
        own = (whole - n * speculative_s) / (row.tokens_per_step * terms.prefill_s) - 1
        found.setdefault(row.source, []).append(min(1.0, max(0.0, own)))
    return statistics.fmean(statistics.median(each) for each in found.values())


def half_width(rows: Sequence[Row]) -> float:
    """Of ln ρ: a quantile of the errors of each source forecast from the others."""
    errors = []
    for source in {row.source for row in rows}:
        others = [row for row in rows if row.source != source]
        if others:
            learnt = fit(others)
            errors += [abs(log(learnt.ratio(row) / row.ratio)) for row in rows if row.source == source]
    return max(LEAST_HALF_WIDTH, float(np.quantile(errors, QUANTILE))) if errors else 0.3


def score(rows: Sequence[Row], fitted: Sequence[Row]) -> list[Scored]:
    """Each of `rows` forecast from `fitted`."""
    learnt, width = fit(fitted), half_width(fitted)
    constant = best_constant([row.ratio for row in fitted])
    found = []
    for row in rows:
        predicted = learnt.ratio(row)
        all_predicted = [predicted, *(learnt.ratio(row, terms=each) for each in row.elsewhere)]
        own = width
        for guess in row.guessed:
            own *= WIDER_PER_GUESS[guess]
        found.append(Scored(row, predicted, max(1.0, min(all_predicted) * exp(-own)), max(all_predicted) * exp(own), constant))
    return found


def best_constant(ratios: Sequence[float]) -> float:
    """The constant with the smallest median relative error; candidates are the measured ratios themselves."""
    return min(ratios, key=lambda constant: statistics.median(abs(constant / each - 1) for each in ratios))


def leave_one_source_out(rows: Sequence[Row]) -> list[Scored]:
    """Each source forecast from all others."""
    found = []
    for source in dict.fromkeys(row.source for row in rows):
        own = [row for row in rows if row.source == source]
        others = [row for row in rows if row.source != source]
        if others:
            found += score(own, others)
    return found


def summary(scored: Sequence[Scored], excluded: Sequence[tuple[str, str]], learnt: Fit) -> dict[str, Any]:
    """All figures."""
    ratios = [each.row.ratio for each in scored]
    overall = best_constant(ratios)
    return {
        "rows": len(scored),
        "rho_median_error": statistics.median(each.error for each in scored),
        "constant_rho_median_error": statistics.median(abs(each.constant / each.row.ratio - 1) for each in scored),
        "constant_in_sample_rho_median_error": statistics.median(abs(overall / each - 1) for each in ratios),
        "constant_in_sample_rho": overall,
        "balanced_sign_accuracy": _balanced(scored),
        "always_faster_accuracy": statistics.fmean(each.row.speedup > 1 for each in scored),
        "range_coverage": statistics.fmean(each.low <= each.row.ratio <= each.high for each in scored),
        "range_median_width": statistics.median(each.high / each.low for each in scored),
        "by_source": {source: _of_source(list(some)) for source, some in _by_source(scored)},
        "excluded": dict(Counter(reason for _, reason in excluded).most_common()),
        "fit": {
            "prefill_slowdown": learnt.prefill_slowdown,
            **{engine: _triple(each, engine, scored) for engine, each in {"all": learnt.pooled, **learnt.families}.items()},
        },
    }


def _triple(engine: EngineCost, name: str, scored: Sequence[Scored]) -> dict[str, Any]:
    """A family's triple with the errors of its rows, each forecast from other sources, and the ground they cover."""
    own = [each for each in scored if name in ("all", each.row.engine)]
    requests, lengths = [each.row.terms.requests for each in own], [each.row.terms.draft_tokens for each in own]
    return {
        "overhead_s": engine.overhead_s,
        "draft_scale": engine.draft_scale,
        "efficiency": engine.efficiency,
        "error": statistics.fmean(log(each.predicted / each.row.ratio) ** 2 for each in own) ** 0.5 if own else None,
        "n": len(own),
        "requests": [min(requests, default=1), max(requests, default=1)],
        "draft_tokens": [min(lengths, default=1), max(lengths, default=1)],
    }


def _balanced(scored: Sequence[Scored]) -> float | None:
    """None where only one side was measured."""
    sides = []
    for faster in (True, False):
        side = [each for each in scored if (each.row.speedup > 1) is faster and each.row.speedup != 1]
        if side:
            sides.append(statistics.fmean((each.row.tokens_per_step > each.predicted) is faster for each in side))
    return statistics.fmean(sides) if len(sides) == 2 else None


def _by_source(scored: Sequence[Scored]) -> Any:
    return groupby(sorted(scored, key=lambda each: each.row.source), key=lambda each: each.row.source)


def _of_source(some: Sequence[Scored]) -> dict[str, Any]:
    return {
        "rows": len(some),
        "median_error": statistics.median(each.error for each in some),
        "bias": statistics.median(each.predicted / each.row.ratio - 1 for each in some),
        "worst": max(each.error for each in some),
        "covered": statistics.fmean(each.low <= each.row.ratio <= each.high for each in some),
        "wrong_signs": sum((each.row.tokens_per_step > each.predicted) != (each.row.speedup > 1) for each in some),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", type=Path, required=True)
    parser.add_argument("--score", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="list every row, scored and excluded")
    parser.add_argument("--write-docs", type=Path, default=None, metavar="FILE", help="replace the generated part of this document")
    parser.add_argument("--write-triples", type=Path, default=None, metavar="FILE", help="write the fitted triples as a table (TOML)")
    options = parser.parse_args(arguments)
    fitted, _ = read(options.fit, trees=False)
    rows, excluded = read(options.score, trees=False)
    scored = leave_one_source_out(rows) if options.fit.read_bytes() == options.score.read_bytes() else score(rows, fitted)
    if not scored:
        print("no row can be scored; --verbose lists the reasons", file=sys.stderr)
        return 4
    figures = summary(scored, excluded, fit(fitted))
    if options.write_docs is not None:
        options.write_docs.write_text(documented(options.write_docs.read_text(encoding="utf-8"), figures), encoding="utf-8")
    if options.write_triples is not None:
        options.write_triples.write_text(
            triples(figures["fit"] | of_trees(read(options.fit, trees=True)[0], figures["fit"])), encoding="utf-8"
        )
    if options.verbose:
        figures["each"] = [
            {
                "source": one.row.source,
                "row": one.row.label,
                "measured": one.row.ratio,
                "predicted": one.predicted,
                "low": one.low,
                "high": one.high,
            }
            for one in scored
        ]
        figures["excluded_rows"] = [{"row": row, "reason": reason} for row, reason in excluded]
    print(json.dumps(figures, indent=None if options.json else 2, ensure_ascii=False))
    return 0


def of_trees(rows: Sequence[Row], found: Mapping[str, Any]) -> dict[str, Any]:
    """Triples of families that published trees only, on one GPU: fitted to those, the triple of all chain rows as their prior.

    Their error is that of the fit itself: one source each, there is nothing to leave out.
    """
    start = EngineCost(**{name: found["all"][name] for name in ("overhead_s", "draft_scale", "efficiency")}, arithmetic=1.0)
    learnt = {}
    for engine in sorted({row.engine for row in rows} - {UNSTATED, *found}):
        own = [row for row in rows if row.engine == engine and row.gpus == 1]
        seen = [Observation(row.terms, row.ratio, row.tokens_per_step, None, None, 1 / len(own)) for row in own]
        fitted = calibrate(seen, prior=Prior(start, 1.0, 0.5, 0.2), spread=SPREAD, prefill_slowdown=0.0)
        triple = {"overhead_s": fitted.engine.overhead_s, "draft_scale": fitted.engine.draft_scale, "efficiency": fitted.engine.efficiency}
        reach = {"requests": list(fitted.requests), "draft_tokens": list(fitted.draft_tokens)}
        learnt[engine] = triple | {"error": fitted.error, "n": fitted.n, "rows": "tree rows on one GPU; error of the fit itself"} | reach
    return learnt


FEW = 10  # rows; an error of fewer is luck
FAMILIES = ("vllm", "sglang", "hf", "llama.cpp")


def triples(found: Mapping[str, Any]) -> str:
    """The fitted triples as data/calibrations.toml holds them; a family without a usable row takes the triple of all rows."""
    lines = ["# What engines add to the kernels, one triple per engine family. Written by benchmarks/accuracy.py --write-triples."]
    for name in FAMILIES:
        of = found[name] if name in found else found["all"]
        error = of["error"] if of["n"] >= FEW else max(of["error"], found["all"]["error"])
        kind = of.get("rows", "chain rows; error: each source forecast from the others")
        rows = f"{of['n']} {kind}" if name in found else f"no usable row of its own; all {of['n']} {kind}"
        lines += [
            "",
            "[[family]]",
            f'engine = "{name}"',
            f"overhead_s = {of['overhead_s']:.3g}",
            f"draft_scale = {of['draft_scale']:.3g}",
            f"efficiency = {of['efficiency']:.3g}",
            f"error = {error:.3g}",
            f"n = {of['n']}",
            f"requests = {of['requests']}",
            f"draft_tokens = {of['draft_tokens']}",
            f'source = "benchmarks/accuracy.py --fit tests/data/published_points.csv, {rows}"',
        ]
    return "\n".join([*lines, ""])


BEGIN, END = "<!-- generated: benchmarks/accuracy.py --write-docs -->", "<!-- end of the generated part -->"


def documented(document: str, figures: Mapping[str, Any]) -> str:
    """The document with its generated part replaced."""
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n{table(figures)}{END}{rest.split(END)[1]}"


def table(figures: Mapping[str, Any]) -> str:
    """The figures and the misses by source, as Markdown."""
    sign = figures["balanced_sign_accuracy"]
    lines = [
        "",
        f"{figures['rows']} rows, each source forecast from the others:",
        "",
        "| figure | value |",
        "|---|---|",
        f"| median error of ρ | {figures['rho_median_error']:.1%} |",
        f"| the same for the best constant ρ | {figures['constant_rho_median_error']:.1%} |",
        f"| and for the best constant chosen with all answers known | {figures['constant_in_sample_rho_median_error']:.1%} |",
        f"| balanced sign accuracy | {'one side only' if sign is None else format(sign, '.1%')} |",
        f"| always saying faster is right in | {figures['always_faster_accuracy']:.1%} |",
        f"| measured ρ inside the stated range | {figures['range_coverage']:.1%} |",
        f"| median range, high over low | {figures['range_median_width']:.2f} |",
        "",
        "| source | rows | median error | bias | worst | in range | wrong side of 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for source, of in figures["by_source"].items():
        shares = f"{of['median_error']:.0%} | {of['bias']:+.0%} | {of['worst']:.0%} | {of['covered']:.0%}"
        lines.append(f"| {source} | {of['rows']} | {shares} | {of['wrong_signs']} |")
    lines += ["", "Rows left out:", "", "| reason | rows |", "|---|---|"]
    lines += [f"| {reason} | {count} |" for reason, count in figures["excluded"].items()]
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    sys.exit(main())
