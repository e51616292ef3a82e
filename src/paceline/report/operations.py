"""What the acting verbs print: the rollout's verdicts, and how speculation is switched on in a version."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.decide.gate import production_verdict
from paceline.decide.lesson_gate import LessonVerdict
from paceline.decide.losslessness import Losslessness
from paceline.errors import ascii_controls
from paceline.report.diagnosis import losslessness_dict, losslessness_text
from paceline.report.figures import MISSING, break_even, decision_words, interval, milliseconds, plain
from paceline.report.page import Comparison
from paceline.report.text import columns, verdict_text
from paceline.run import Run
from paceline.servers.vllm.versions import Compatibility
from paceline.simulate.compare import speedup
from paceline.verdict import Verdict

__all__ = ["answers_dict", "compatibility_dict", "config_text", "lesson_verdict_text", "rollout_text"]

LATE = "client_lag_s"
WORDS = {True: "passes", False: "fails", None: "cannot be told"}


def lesson_verdict_text(lesson: LessonVerdict) -> str:
    """The textbook's answer and where it misleads here."""
    lines = [
        f"the textbook's gate {WORDS[lesson.passes]}: α floor {WORDS[lesson.alpha_clears_floor]}, "
        f"P99 chunk gap no worse {WORDS[lesson.chunk_gap_not_worse]}"
    ]
    return "\n".join([*lines, *(f"  {ascii_controls(each)}" for each in lesson.disagreements)])


def answers_dict(losslessness: Mapping[int, Losslessness], *, deciding: Verdict) -> dict[str, Any]:
    """What the answers say at the deciding concurrency, None where nothing was measured, and at each."""
    return {
        "losslessness": losslessness_dict(losslessness.get(deciding.concurrency or 0)),
        "losslessness_by_concurrency": [{"concurrency": name, **(losslessness_dict(each) or {})} for name, each in losslessness.items()],
    }


def rollout_text(
    comparisons: Sequence[Comparison],
    losslessness: Mapping[int, Losslessness],
    *,
    label: str,
    notes: Sequence[str],
    out: str,
    skill: str,
) -> str:
    """A line per concurrency, the deciding verdict in full, the textbook's beside it, what the answers say, and where the files are."""
    rows = [
        (
            MISSING if each.verdict.concurrency is None else str(each.verdict.concurrency),
            decision_words(each.verdict.decision),
            *(_estimate(each, "speedup"), _estimate(each, "tpot_p99.ratio"), _estimate(each, "ttft_p99.ratio")),
            interval(each.verdict.alpha),
            break_even(each.verdict.break_even_alpha),
        )
        for each in comparisons
    ]
    head = ("in flight", "verdict", "speed-up", "P99 TPOT ratio", "P99 TTFT ratio", "α", "break-even α")
    production = production_verdict(tuple(each.verdict for each in comparisons))
    decisive = next(each for each in comparisons if each.verdict is production)
    parts = [f"acceptance {ascii_controls(label)}", columns(head, rows), verdict_text(production).rstrip()]
    if decisive.lesson is not None:
        parts.append(lesson_verdict_text(decisive.lesson))
    parts += [f"{in_flight} in flight: {losslessness_text(each)}" for in_flight, each in losslessness.items()]
    parts += [f"note: {ascii_controls(each)}" for each in notes]
    parts.append(f"written to {ascii_controls(out)}: report.html, plan.md, verdict.json, runs/, manifests/, {skill}")
    return "\n\n".join(parts)


def rehearsal_text(baseline: Run, speculative: Run) -> str:
    """What the load-tester saw of two fake servers, in one line."""
    alpha = speculative.acceptance.alpha if speculative.acceptance_by_segment else None
    late = max(run.summaries[LATE].value for run in (baseline, speculative) if LATE in run.summaries)
    return (
        f"rehearsed over HTTP on two fake servers at {baseline.load.concurrency} in flight: speed-up {speedup(baseline, speculative):.2f}, "
        f"α {plain(alpha)}; the client read up to {milliseconds(late)} late (P99); its files are in rehearsal/"
    )


def _estimate(comparison: Comparison, metric: str) -> str:
    found = next((each for each in comparison.verdict.findings if each.claim.metric == metric and each.claim.segment is None), None)
    return interval(found.estimate if found else None)


def compatibility_dict(rows: Sequence[Compatibility]) -> list[dict[str, Any]]:
    """What the method combines with, one object per feature."""
    return [{"feature": each.feature, "status": each.status.value, "note": each.note, "source": each.source} for each in rows]


def config_text(commands: Mapping[str, str], rows: Sequence[Compatibility], *, files: Mapping[str, str], notes: Sequence[str]) -> str:
    """Both launch commands and the files they read, then what the method combines with in that version, where that is known."""
    parts = [f"# {name}\n{ascii_controls(command)}" for name, command in commands.items()]
    parts += [f"# {name}\n" + "\n".join(ascii_controls(line) for line in text.splitlines()) for name, text in files.items()]
    wide, status = (max((len(text) for text in texts), default=0) for texts in _columns(rows))
    table = [f"{each.feature:{wide}}  {each.status.value:{status}}  {ascii_controls(each.note)}" for each in rows]
    return "\n\n".join([*parts, *(["\n".join(table)] if table else []), *(f"note: {ascii_controls(each)}" for each in notes)])


def _columns(rows: Sequence[Compatibility]) -> tuple[list[str], list[str]]:
    return [each.feature for each in rows], [each.status.value for each in rows]
