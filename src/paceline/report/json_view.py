"""Records as plain dictionaries for `--json`: the keys that scripts rely on. A missing measurement is None, a ratio always an object."""

from collections.abc import Mapping
from typing import Any

from paceline.decide.lesson_gate import LessonVerdict
from paceline.errors import NoEvidenceError
from paceline.plan import Plan
from paceline.speculation.counts import AcceptanceCounts
from paceline.verdict import Estimate, Finding, Routing, Verdict

__all__ = ["acceptance_dict", "estimate_dict", "plan_dict", "verdict_dict"]

RATIOS = ("alpha", "acceptance_length", "tokens_per_step", "coverage")
COUNTS = ("steps", "drafts", "drafted_tokens", "accepted_tokens")


def estimate_dict(estimate: Estimate | None) -> dict[str, Any] | None:
    """`{value, low, high, confidence, n}`, or None."""
    if estimate is None:
        return None
    return {key: getattr(estimate, key) for key in ("value", "low", "high", "confidence", "n")}


def acceptance_dict(
    counts: AcceptanceCounts,
    estimates: Mapping[str, Estimate],
    *,
    confidence: float,
    segments: Mapping[str, tuple[AcceptanceCounts, Mapping[str, Estimate]]] | None,
) -> dict[str, Any]:
    """The counts as numbers and every ratio as an object, from `estimates` where they have it (`stats.intervals.acceptance_estimates`).

    A ratio that only the counts give is a point: its ends are None and its n is 0. One that they do not give is None. `segments` holds the
    same for each segment; None leaves the key out (a segment has no segments).
    """
    view: dict[str, Any] = {name: estimate_dict(estimates.get(name) or _point(counts, name, confidence)) for name in RATIOS}
    survival = _vector(counts, "survival")
    view["survival"] = [
        estimate_dict(estimates.get(f"survival_{i}") or _bare(value, confidence)) for i, value in enumerate(survival or (), 1)
    ]
    view["conditional"] = [estimate_dict(_bare(value, confidence)) for value in _vector(counts, "conditional") or ()]
    if survival is None:
        view["survival"] = view["conditional"] = None
    view |= {name: getattr(counts, name) for name in COUNTS}
    if segments is not None:
        view["segments"] = {
            name: acceptance_dict(own, estimated, confidence=confidence, segments=None) for name, (own, estimated) in segments.items()
        }
    return view


def _vector(counts: AcceptanceCounts, name: str) -> tuple[float, ...] | None:
    try:
        values: tuple[float, ...] = getattr(counts, name)
    except NoEvidenceError:
        return None
    return values


def _point(counts: AcceptanceCounts, name: str, confidence: float) -> Estimate | None:
    try:
        return _bare(getattr(counts, name), confidence)
    except NoEvidenceError:
        return None


def _bare(value: float, confidence: float) -> Estimate:
    return Estimate(value=value, low=None, high=None, confidence=confidence, n=0)


def verdict_dict(verdict: Verdict, *, lesson: LessonVerdict | None, by_concurrency: tuple[Verdict, ...]) -> dict[str, Any]:
    """The gate's answer. `by_concurrency` holds the verdicts of every point where several were run, else it is empty."""
    return {
        "verdict": verdict.decision.value,
        "concurrency": verdict.concurrency,
        "segments_to_ship": list(verdict.segments_to_ship),
        "findings": [_finding_dict(each) for each in verdict.findings],
        "alpha": estimate_dict(verdict.alpha),
        "break_even_alpha": estimate_dict(verdict.break_even_alpha),
        "tokens_per_step": estimate_dict(verdict.tokens_per_step),
        "break_even_tokens_per_step": estimate_dict(verdict.break_even_tokens_per_step),
        "requests_needed": verdict.requests_needed,
        "routing": _routing_dict(verdict.routing),
        "lesson_verdict": None if lesson is None else _lesson_dict(lesson),
        "by_concurrency": [
            {
                "concurrency": each.concurrency,
                "verdict": each.decision.value,
                "findings": [_finding_dict(finding) for finding in each.findings],
                "alpha": estimate_dict(each.alpha),
                "break_even_alpha": estimate_dict(each.break_even_alpha),
                "requests_needed": each.requests_needed,
            }
            for each in by_concurrency
        ],
        "warnings": [{"code": each.code, "message": each.message} for each in verdict.warnings],
    }


def _routing_dict(routing: Routing | None) -> dict[str, Any] | None:
    if routing is None:
        return None
    return {
        "segments": [
            {
                "segment": each.name,
                "share": each.share,
                "speedup": estimate_dict(each.speedup),
                "harmed_share": estimate_dict(each.slower),
                "pays": each.pays,
            }
            for each in routing.segments
        ],
        "routed_segments": list(routing.routed),
        "speedup": {"all_off": 1.0, "all_on": estimate_dict(routing.all_on), "routed": estimate_dict(routing.with_routing)},
        "harmed_share": {"all_off": 0.0, "all_on": estimate_dict(routing.harmed_all_on), "routed": estimate_dict(routing.harmed_routed)},
    }


def _finding_dict(finding: Finding) -> dict[str, Any]:
    return {
        "claim": str(finding.claim),
        "metric": finding.claim.metric,
        "segment": finding.claim.segment,
        "estimate": estimate_dict(finding.estimate),
        "holds": finding.holds.value,
        "why": finding.why,
    }


def _lesson_dict(lesson: LessonVerdict) -> dict[str, Any]:
    return {
        "passes": lesson.passes,
        "alpha_clears_floor": lesson.alpha_clears_floor,
        "chunk_gap_not_worse": lesson.chunk_gap_not_worse,
        "disagreements": list(lesson.disagreements),
    }


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The plan: its stages in order, its guards, and the way back."""
    stage_keys = ("name", "purpose", "traffic_share", "min_duration_s", "min_requests")
    return {
        "title": plan.title,
        "opt_in": plan.opt_in,
        "measurement": dict(plan.measurement),
        "stages": [
            {key: getattr(each, key) for key in stage_keys} | {"do": list(each.do), "passes_when": list(each.passes_when)}
            for each in plan.stages
        ],
        "guards": [
            {key: getattr(each, key) for key in ("metric", "at_most", "at_least", "breach_after_s", "felt_s")} for each in plan.guards
        ],
        "on_breach": list(plan.on_breach),
    }
