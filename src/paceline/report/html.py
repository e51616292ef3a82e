"""One self-contained HTML page of a comparison: no script, no external resource, and everything that came from outside escaped.

The verdict of the largest concurrency stands on top. What the figures rest on stands beside it, for a simulated page must not pass for a
measured one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.decide.gate import Policy
from paceline.errors import NoEvidenceError, ascii_controls
from paceline.plan import Plan
from paceline.report.figures import decision_reason, decision_words, holds_words, interval, milliseconds, percent, plain, times
from paceline.report.latencies import LatencyRow, latency_rows
from paceline.report.page import ACCEPTANCE_RESTS_ON, RESTS_ON, Comparison, Point, break_even_chart, gather, segment_chart, speedup_chart
from paceline.report.rendering import rendered
from paceline.run import Evidence, Run
from paceline.verdict import Estimate, Finding

__all__ = ["report_html"]

TEMPLATE = "report.html.j2"


def report_html(
    comparisons: Sequence[Comparison], *, title: str, policy: Policy, plan: Plan | None, version: str, rng: np.random.Generator
) -> str:
    """The page as text: verdict, speed-up and break-even by concurrency, acceptance by segment, both arms' latencies, warnings, provenance.

    Raises:
        NoEvidenceError: there is no comparison.

    """
    if not comparisons:
        raise NoEvidenceError("no comparison was made, so there is nothing to report")
    ordered = sorted(comparisons, key=lambda each: each.verdict.concurrency or 0)
    decisive = ordered[-1]
    points = [gather(each, confidence=policy.confidence, rng=rng) for each in ordered]
    return rendered(
        TEMPLATE,
        title=ascii_controls(title),
        version=version,
        confidence=f"{policy.confidence:.0%}",
        decision=decisive.verdict.decision.value,
        headline=decision_words(decisive.verdict.decision),
        reason=ascii_controls(decision_reason(decisive.verdict)),
        rests_on=_rests_on(ordered),
        tiles=_tiles(points[-1], decisive),
        findings=[_finding(each) for each in decisive.verdict.findings],
        points=[each.cells for each in points],
        speedup_chart=speedup_chart(points, margin=policy.margin),
        break_even_chart=break_even_chart(points),
        segment_chart=segment_chart(decisive, confidence=policy.confidence, rng=rng),
        latencies=[_latency(each) for each in latency_rows(decisive.baseline, decisive.speculative)],
        lesson=_lesson(decisive, policy),
        warnings=_warnings(ordered),
        provenance=[_provenance(run) for each in ordered for run in (each.baseline, each.speculative)],
        plan=None if plan is None else _plan(plan),
    )


def _rests_on(comparisons: Sequence[Comparison]) -> list[dict[str, str]]:
    """What the figures rest on, the weakest kind first, for it bounds what the page may be used for."""
    runs = [run for each in comparisons for run in (each.baseline, each.speculative)]
    arms = {run.provenance.evidence for run in runs}
    given = {run.provenance.arguments.get("acceptance_evidence") for run in runs}
    told = [{"kind": each.value, "words": ACCEPTANCE_RESTS_ON[each]} for each in reversed(Evidence) if each.value in given]
    return told + [{"kind": each.value, "words": RESTS_ON[each]} for each in reversed(Evidence) if each in arms]


def _tiles(point: Point, comparison: Comparison) -> list[dict[str, str]]:
    rows = {each.latency: each for each in latency_rows(comparison.baseline, comparison.speculative)}
    pace = rows["tpot_s"].p99_ratio if "tpot_s" in rows else None
    runs = (comparison.baseline, comparison.speculative)
    counted = [str(len(each.finished)) if each.requests is not None else "–" for each in runs]
    return [
        _tile("Speed-up", times(point.speedup.value if point.speedup else None), _ends(point.speedup)),
        _tile("P99 pace against plain", times(pace), "time per output token; below 1 is better"),
        _tile(
            "Acceptance rate",
            plain(point.alpha.value if point.alpha else None),
            f"break-even {plain(point.break_even_alpha.value if point.break_even_alpha else None)}",
        ),
        _tile("Requests that got slower", percent(point.harmed_share.value if point.harmed_share else None), "noise included"),
        _tile("Requests finished", " + ".join(counted), "plain + with drafts"),
    ]


def _tile(name: str, value: str, note: str) -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def _ends(estimate: Estimate | None) -> str:
    if estimate is None or estimate.low is None or estimate.high is None:
        return "interval unknown"
    return f"{plain(estimate.low)} to {plain(estimate.high)} at {estimate.confidence:.0%}"


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "claim": ascii_controls(str(finding.claim)),
        "measured": interval(finding.estimate),
        "answer": holds_words(finding.holds),
        "holds": finding.holds.value,
        "why": ascii_controls(finding.why),
    }


def _latency(row: LatencyRow) -> dict[str, Any]:
    arms = [
        [milliseconds(getattr(each, name) if each else None) for name in ("p50", "p90", "p99", "mean")]
        for each in (row.baseline, row.speculative)
    ]
    note = "rises with the step time even where every request is faster" if row.latency == "chunk_gap_s" else ""
    return {"name": row.name, "note": note, "cells": [*arms[0], *arms[1]], "ratio": times(row.p99_ratio)}


def _lesson(comparison: Comparison, policy: Policy) -> dict[str, Any] | None:
    if comparison.lesson is None:
        return None
    words = {True: "passes", False: "fails", None: "cannot be told"}
    answers = [
        (f"acceptance at or above {policy.alpha_floor:g}", words[comparison.lesson.alpha_clears_floor]),
        ("99th-percentile chunk gap no worse", words[comparison.lesson.chunk_gap_not_worse]),
    ]
    return {"answer": words[comparison.lesson.passes], "answers": answers, "disagreements": comparison.lesson.disagreements}


def _warnings(comparisons: Sequence[Comparison]) -> list[dict[str, str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for each in comparisons:
        where = "unknown load" if each.verdict.concurrency is None else f"{each.verdict.concurrency} in flight"
        for caution in each.verdict.warnings:
            found.setdefault((caution.code, caution.message), []).append(where)
    return [{"code": code, "message": ascii_controls(text), "where": ", ".join(places)} for (code, text), places in found.items()]


def _provenance(run: Run) -> dict[str, Any]:
    source = run.provenance
    how = run.speculation
    return {
        "arm": run.arm.value,
        "load": "unknown" if run.load.concurrency is None else f"{run.load.concurrency} in flight",
        "speculation": "none stated" if how is None else f"{how.method.value}, K = {how.draft_tokens}",
        "made_by": ascii_controls(f"{source.made_by} (paceline {source.version})"),
        "evidence": source.evidence.value,
        "seed": "none" if source.seed is None else str(source.seed),
        "details": [ascii_controls(f"{key} = {value}") for key, value in source.arguments.items()]
        + [ascii_controls(f"{key}: sha256 {value}") for key, value in source.inputs.items()],
    }


def _plan(plan: Plan) -> dict[str, Any]:
    stages = [
        {
            "name": ascii_controls(each.name),
            "purpose": ascii_controls(each.purpose),
            "share": percent(each.traffic_share),
            "requests": str(each.min_requests or "–"),
            "passes_when": [ascii_controls(line) for line in each.passes_when],
        }
        for each in plan.stages
    ]
    return {"title": ascii_controls(plan.title), "opt_in": ascii_controls(plan.opt_in), "stages": stages}
