"""What a replay or a server's counters say of acceptance, as a dictionary for `--json` and as text."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.errors import NoEvidenceError, ascii_controls
from paceline.report.figures import MISSING, milliseconds, plain
from paceline.report.json_view import acceptance_dict
from paceline.report.text import columns
from paceline.run import Run, Summary
from paceline.speculation.counts import AcceptanceCounts
from paceline.stats.intervals import acceptance_estimates

__all__ = ["measured_dict", "measured_text", "replayed_dict", "replayed_text"]

HEAD = ("segment", "steps", "coverage", "α", "τ (drafted steps)", "tokens per step", "survival")
SHOWN_POSITIONS = 8
NO_INTERVAL = "totals cannot tell requests apart, so ratios have no interval (low and high are null); bench measures by request"
SUMMARY_WORDS = {
    "ttft_s": "time to first token",
    "chunk_gap_s": "gap between chunks",
    "token_gap_s": "gap per token",
    "tpot_s": "time per output token",
    "e2e_s": "end to end",
    "tokens_per_step_emitted": "tokens per step, emitted",
    "decode_tokens_per_s": "one request's tokens per second",
    "alpha": "acceptance rate α",
    "acceptance_length": "acceptance length τ",
    "generation_tokens": "tokens generated",
    "prompt_tokens": "prompt tokens",
    "preemptions": "preemptions",
    "requests_running": "requests running",
    "output_tokens_per_s": "the server's tokens per second",
    "draft_tokens": "draft length K",
    "alpha_as_v0_counts": "accepted / drafted as V0 counts them",
    "drafts": "drafts",
    "drafted_tokens": "drafted tokens",
    "accepted_tokens": "accepted tokens",
}


def replayed_dict(groups: Mapping[str, Sequence[AcceptanceCounts]], *, confidence: float, rng: np.random.Generator) -> dict[str, Any]:
    """Acceptance in all and by segment, with intervals by request."""
    every = [each for counts in groups.values() for each in counts]
    segments = {
        name: (AcceptanceCounts.pooled(counts), acceptance_estimates(counts, confidence=confidence, rng=rng))
        for name, counts in groups.items()
    }
    return acceptance_dict(
        AcceptanceCounts.pooled(every),
        acceptance_estimates(every, confidence=confidence, rng=rng),
        confidence=confidence,
        segments=segments,
    )


def replayed_text(body: Mapping[str, Any], *, drafts: str, exchanges: int, notes: Sequence[str]) -> str:
    """A line per segment and one for all, then what a reader must know; `drafts` says what was replayed."""
    rows = [_row(name, each) for name, each in body["segments"].items()]
    table = columns(HEAD, [*rows, _row("all traffic", body)] if len(rows) > 1 else rows)
    told = [f"note: {ascii_controls(each)}" for each in notes]
    return "\n".join([f"{drafts} acceptance on {exchanges:,} answers", "", table, "", *told])


def _row(name: str, each: Mapping[str, Any]) -> tuple[str, ...]:
    known = each["survival"] or ()
    shown = [plain(s["value"]) for s in known[:SHOWN_POSITIONS]]
    survival = ", ".join([*shown, f"… ({len(known)} positions)"] if len(known) > SHOWN_POSITIONS else shown) or MISSING
    ratios = (_shown(each[key]) for key in ("coverage", "alpha", "acceptance_length", "tokens_per_step"))
    return (name, f"{each['steps']:,}" if each["steps"] is not None else MISSING, *ratios, survival)


def _shown(estimate: Mapping[str, Any] | None) -> str:
    if estimate is None:
        return MISSING
    if estimate["low"] is None and estimate["high"] is None:
        return plain(estimate["value"])
    low, high = ("?" if estimate[end] is None else plain(estimate[end]) for end in ("low", "high"))
    return f"{plain(estimate['value'])} ({low} to {high})"


def measured_dict(run: Run, *, confidence: float) -> dict[str, Any]:
    """What the source measured; acceptance is None where it was not counted, `no_interval` the reason where ratios have no interval."""
    counts = _counts(run)
    acceptance = None if counts is None else acceptance_dict(counts, {}, confidence=confidence, segments=None)
    return {
        "arm": run.arm.value,
        "source": run.provenance.made_by,
        "acceptance": acceptance,
        "no_interval": NO_INTERVAL if run.requests is None else None,
        "step_s": run.step_seconds,
        "summaries": {
            name: {"value": each.value, "statistic": each.statistic, "n": each.n, "low": each.low, "high": each.high}
            for name, each in run.summaries.items()
        },
        "warnings": _warnings(run),
    }


def _counts(run: Run) -> AcceptanceCounts | None:
    try:
        return run.acceptance
    except NoEvidenceError:
        return None


def _warnings(run: Run) -> list[dict[str, str]]:
    return [{"code": each.code, "message": each.message} for each in run.cautions]


def measured_text(run: Run) -> str:
    """The acceptance under its names, the step time and the aggregates, then what to be cautious about."""
    counts = _counts(run)
    acceptance = None if counts is None else _row("all", acceptance_dict(counts, {}, confidence=0.95, segments=None))
    table = columns(HEAD, [acceptance]) if acceptance else "acceptance was not counted by this source"
    rows = [("time per decode step", milliseconds(run.step_seconds))]
    rows += [(f"{_words(name)} ({each.statistic})", _figure(name, each)) for name, each in run.summaries.items()]
    head = [run.provenance.made_by, f"{run.arm.value} arm", *_model(run)]
    warned = [ascii_controls(f"warning [{each.code}]: {each.message}") for each in run.cautions]
    noted = [f"note: {NO_INTERVAL}"] if run.requests is None and acceptance else []
    return "\n\n".join([ascii_controls(", ".join(head)), table, columns(("", "value"), rows), *noted, *warned])


def _words(name: str) -> str:
    """What a summary is called; its statistic stands beside it, so `tpot_p99_s` is called as `tpot_s`."""
    base = re.sub(r"_p\d+(?=_s$)", "", name)
    return SUMMARY_WORDS.get(base, base)


def _model(run: Run) -> list[str]:
    return [f"model {run.provenance.arguments['model']}"] if "model" in run.provenance.arguments else []


def _edges(summary: Summary) -> str:
    """The bucket that a histogram's percentile lies in."""
    if summary.low is None and summary.high is None:
        return ""
    return f" ({milliseconds(summary.low or 0)} to {'?' if summary.high is None else milliseconds(summary.high)})"


def _figure(name: str, summary: Summary) -> str:
    """Seconds as milliseconds, totals and gauges as whole numbers, ratios and rates with three digits."""
    if name.endswith("_s") and not name.endswith("_per_s"):
        return f"{milliseconds(summary.value)}{_edges(summary)}"
    whole = summary.statistic == "total" or (summary.statistic == "last" and summary.value == int(summary.value))
    shown = f"{summary.value:,.0f}" if whole else plain(summary.value)
    if summary.low is None and summary.high is None:
        return shown
    low, high = ("?" if end is None else plain(end) for end in (summary.low, summary.high))
    return f"{shown} ({low} to {high})"
