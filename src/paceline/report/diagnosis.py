"""A diagnosis and what the answers say of losslessness, as dictionaries for `--json` and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from paceline.decide.diagnose import Diagnosis
from paceline.decide.diagnosis.case import Measured
from paceline.decide.diagnosis.cause import CODES, Cause, Figure
from paceline.decide.losslessness import Divergence, Losslessness
from paceline.errors import ascii_controls
from paceline.report.figures import break_even, interval, percent, plain
from paceline.report.json_view import estimate_dict
from paceline.report.text import columns

__all__ = ["diagnosis_dict", "diagnosis_text", "losslessness_dict", "losslessness_text"]

FIRST_POSITIONS = 20
NAMES = {
    "speedup": "speed-up",
    "throughput_ratio": "throughput",
    "e2e_ratio": "end to end",
    "tpot_p99_ratio": "P99 time per token",
    "ttft_ratio": "time to first token",
    "step_time_ratio": "step time",
    "tokens_per_step": "tokens per step",
    "alpha": "acceptance rate α",
    "break_even_alpha": "break-even α",
}


def diagnosis_dict(diagnoses: Sequence[Diagnosis]) -> dict[str, Any]:
    """The diagnosis of the largest load, the last one; where several were run, `by_concurrency` holds all of them."""
    several = [{"concurrency": each.concurrency, **_one(each)} for each in diagnoses] if len(diagnoses) > 1 else []
    return {"concurrency": diagnoses[-1].concurrency, **_one(diagnoses[-1]), "by_concurrency": several}


def _one(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "causes": [_cause_dict(each, rank) for rank, each in enumerate(diagnosis.causes, 1)],
        "not_checked": [{"code": each.code, "needs": each.needs} for each in diagnosis.unchecked],
        "figures": {each.name: estimate_dict(getattr(diagnosis.figures, each.name)) for each in fields(Measured)},
        "losslessness": losslessness_dict(diagnosis.losslessness),
        "warnings": [{"code": each.code, "message": each.message} for each in diagnosis.warnings],
    }


def _cause_dict(cause: Cause, rank: int) -> dict[str, Any]:
    return {
        "code": cause.code,
        "rank": rank,
        "message": cause.message,
        "figures": {name: _figure(each) for name, each in cause.figures.items()},
        "remedy": cause.remedy,
        "confidence": cause.surely.value,
    }


def _figure(figure: Figure) -> object:
    return dict(figure) if isinstance(figure, Mapping) else figure


def losslessness_dict(found: Losslessness | None) -> dict[str, Any] | None:
    """What the answers say; None where there were none to compare."""
    if found is None:
        return None
    parts = found.structured
    return {
        "lossless": found.lossless.value,
        "why": found.why,
        "divergence": _divergence(found.divergence),
        "noise_floor": _divergence(found.floor),
        "excess": estimate_dict(found.excess),
        "length_ratio": estimate_dict(found.length_ratio),
        "structured": None if parts is None else {each.name: getattr(parts, each.name) for each in fields(parts)},
    }


def _divergence(found: Divergence | None) -> dict[str, Any] | None:
    if found is None:
        return None
    tokens = None if found.first_token is None else list(found.first_token[:FIRST_POSITIONS])
    return {"share": estimate_dict(found.share), "first_character": list(found.first_character[:FIRST_POSITIONS]), "first_token": tokens}


def diagnosis_text(diagnoses: Sequence[Diagnosis]) -> str:
    """Each load: its figures, the causes by rank with remedy, what could not be checked, and the warnings."""
    return "\n\n".join(_text(each, headed=len(diagnoses) > 1) for each in diagnoses)


def _text(diagnosis: Diagnosis, *, headed: bool) -> str:
    parts = [f"{diagnosis.concurrency} in flight:" if diagnosis.concurrency else "another load:"] if headed else []
    known = {name: each for name in NAMES if (each := getattr(diagnosis.figures, name)) is not None}
    rows = [(NAMES[name], break_even(each) if name == "break_even_alpha" else interval(each)) for name, each in known.items()]
    parts += [columns(("", "value"), rows)] if rows else []
    parts += [_cause_text(each, rank) for rank, each in enumerate(diagnosis.causes, 1)]
    if not diagnosis.causes:
        parts.append("No cause was found in what could be checked.")
    parts += [losslessness_text(diagnosis.losslessness)] if diagnosis.losslessness is not None else []
    if diagnosis.unchecked:
        parts.append("\n".join(["not checked:", *(f"  {each.code}: needs {each.needs}" for each in diagnosis.unchecked)]))
    parts += [f"warning [{each.code}]: {each.message}" for each in diagnosis.warnings]
    return "\n\n".join(ascii_lines(each) for each in parts)


def ascii_lines(text: str) -> str:
    """The text with nothing in it that steers a terminal; line breaks stay."""
    return "\n".join(ascii_controls(each) for each in text.split("\n"))


def _cause_text(cause: Cause, rank: int) -> str:
    return f"{rank}. {CODES[cause.code][1]} [{cause.code}, {cause.surely.value}]\n   {cause.message}\n   remedy: {cause.remedy}"


def losslessness_text(found: Losslessness) -> str:
    """One line for the verdict, one for lengths, one for JSON where there is any."""
    lines = [f"lossless: {found.lossless.value.replace('_', ' ')}; {found.why}"]
    if found.divergence is not None and found.divergence.first_character:
        middle = found.divergence.first_character[len(found.divergence.first_character) // 2]
        lines.append(f"  answers that differ do so first after {middle} characters (median)")
    lines.append(f"  length with drafts over without: {interval(found.length_ratio)}")
    if found.structured is not None:
        parts = found.structured
        share = percent(parts.broken / parts.answers) if parts.answers else plain(None)
        lines.append(
            f"  valid JSON without drafts: {parts.answers} answers; broken with them: {parts.broken} ({share}), mended: {parts.mended}"
        )
    return "\n".join(lines)
