"""The lesson, the forecast and the memory answer, as dictionaries for `--json` and as text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from paceline.errors import ascii_controls
from paceline.forecast.activations import ActivationAnswer
from paceline.forecast.draft_memory import MemoryAnswer
from paceline.forecast.lesson import FLOOR_ALPHA, Answer, Deviation, Lesson
from paceline.forecast.speedup import ForecastRow
from paceline.forecast.when_not import Condition
from paceline.hardware import DraftShape
from paceline.report.figures import MISSING, break_even, interval, milliseconds, percent, plain, times
from paceline.report.json_view import estimate_dict
from paceline.report.text import columns
from paceline.speculation.acceptance import Acceptance

__all__ = [
    "activations_dict",
    "blend_dict",
    "blend_text",
    "forecast_dict",
    "forecast_text",
    "lesson_dict",
    "lesson_text",
    "memory_dict",
    "memory_text",
]

OUT_OF_REACH = "out of reach"


def _answer_dict(answer: Answer) -> dict[str, Any]:
    return asdict(answer) | {"alpha_for": dict(answer.alpha_for)}


def lesson_dict(answer: Lesson) -> dict[str, Any]:
    """The textbook's figures, Leviathan's under `iid`, and the deviations."""
    return {
        **_answer_dict(answer.textbook),
        "clears_floor": answer.clears_floor,
        "floor_alpha": FLOOR_ALPHA,
        "iid": _answer_dict(answer.iid),
        "deviations": [asdict(each) for each in answer.deviations],
    }


def lesson_text(answer: Lesson) -> str:
    """Both models side by side, then where they part with reality."""
    ours, theirs = answer.textbook, answer.iid
    rows = [
        ("tokens per step", plain(ours.expected_tokens), plain(theirs.expected_tokens)),
        ("speed-up", times(ours.speedup), times(theirs.speedup)),
        ("break-even acceptance", _reach(ours.break_even_alpha), _reach(theirs.break_even_alpha)),
        *(
            (f"acceptance for {wanted}×", _reach(ours.alpha_for[wanted]), _reach(theirs.alpha_for[wanted]))
            for wanted in sorted(ours.alpha_for)
        ),
    ]
    table = columns(("", "textbook (1 + K·α)", "Leviathan (i.i.d. β)"), rows)
    floor = f"textbook floor α ≥ {FLOOR_ALPHA}: {'cleared' if answer.clears_floor else 'not cleared'}"
    told = [_told(each) for each in answer.deviations]
    return "\n\n".join([table, floor, "where the textbook and reality part (! applies to these numbers):", *told])


def _told(condition: Condition | Deviation) -> str:
    """A line of a list: an exclamation mark where it applies. Sentences may quote a model's name, which comes from a folder's."""
    return f"{'!' if condition.applies else '·'} {condition.code}: {ascii_controls(condition.message)}"


def _reach(value: float | None) -> str:
    return OUT_OF_REACH if value is None else f"{value:.3f}"


def blend_dict(blended: Acceptance, segments: Mapping[str, Acceptance], shares: Mapping[str, float], *, ratio: float) -> dict[str, Any]:
    """Mixed traffic: its acceptance, the common mistake beside it, and whether each segment pays at step-time ratio ρ."""
    return {
        "alpha": blended.alpha,
        "tokens_per_step": blended.tokens_per_step,
        "speedup": blended.tokens_per_step / ratio,
        "alpha_weighted_by_generated_tokens": _token_weighted(segments, shares),
        "segments": {
            name: {
                "share_of_generated_tokens": shares[name],
                "alpha": each.alpha,
                "tokens_per_step": each.tokens_per_step,
                "speedup": each.tokens_per_step / ratio,
                "pays": each.tokens_per_step > ratio,
            }
            for name, each in segments.items()
        },
    }


def _token_weighted(segments: Mapping[str, Acceptance], shares: Mapping[str, float]) -> float:
    return sum(shares[name] * each.alpha for name, each in segments.items()) / sum(shares.values())


def blend_text(blended: Acceptance, segments: Mapping[str, Acceptance], shares: Mapping[str, float], *, ratio: float) -> str:
    """The same as text."""
    rows = [
        (
            name,
            percent(shares[name]),
            plain(each.alpha),
            plain(each.tokens_per_step),
            times(each.tokens_per_step / ratio),
            _pays(each, ratio),
        )
        for name, each in segments.items()
    ]
    whole = (
        "all traffic",
        percent(sum(shares.values())),
        plain(blended.alpha),
        plain(blended.tokens_per_step),
        times(blended.tokens_per_step / ratio),
        _pays(blended, ratio),
    )
    table = columns(("segment", "generated", "α", "tokens per step", "speed-up", "pays"), [*rows, whole])
    mistake = plain(_token_weighted(segments, shares))
    pooled = (
        f"α pools by drafted tokens, so low-α segments weigh more: {plain(blended.alpha)}, not {mistake} (α averaged by generated tokens)"
    )
    return f"{table}\n\n{pooled}"


def _pays(acceptance: Acceptance, ratio: float) -> str:
    return "yes" if acceptance.tokens_per_step > ratio else "no"


def forecast_dict(rows: Sequence[ForecastRow], conditions: Sequence[Condition]) -> dict[str, Any]:
    """One object per concurrency; what was predicted has a range, what was given is a number."""
    return {
        "rows": [
            {
                "concurrency": row.concurrency,
                "context_tokens": row.context_tokens,
                "step_time_ratio": estimate_dict(row.step_time_ratio),
                "tokens_per_step": row.tokens_per_step,
                "speedup": estimate_dict(row.speedup),
                "break_even_alpha": estimate_dict(row.break_even_alpha),
                "best_draft_tokens": row.best_draft_tokens,
                "best_speedup": row.best_speedup,
                "bound": row.bound.value,
                "prefill_share": row.prefill_share,
                "end_to_end_speedup": estimate_dict(row.end_to_end_speedup),
                "requests_that_fit": row.requests_that_fit,
                "plain_step_s": row.plain_step_s,
                "speculative_step_s": row.speculative_step_s,
                "warnings": list(row.warnings),
            }
            for row in rows
        ],
        "when_not": [asdict(each) for each in conditions],
    }


def forecast_text(rows: Sequence[ForecastRow], conditions: Sequence[Condition]) -> str:
    """A line per concurrency, then the textbook's list of when not to draft, held against these numbers."""
    head = ("in flight", "plain step", "step-time ratio ρ", "tokens/step", "speed-up", "break-even α", "best K", "end to end", "bound")
    cells = [
        (
            str(row.concurrency) + ("" if row.requests_that_fit >= row.concurrency else f" (only {row.requests_that_fit} fit)"),
            milliseconds(row.plain_step_s),
            interval(row.step_time_ratio),
            plain(row.tokens_per_step),
            interval(row.speedup),
            break_even(row.break_even_alpha),
            MISSING if row.best_draft_tokens is None else str(row.best_draft_tokens),
            times(row.end_to_end_speedup.value),
            row.bound.value,
        )
        for row in rows
    ]
    told = [_told(each) for each in conditions]
    warned = [f"! at {row.concurrency} in flight: {'; '.join(row.warnings)}" for row in rows if row.warnings]
    return "\n\n".join(
        [
            columns(head, cells),
            *(["\n".join(warned)] if warned else []),
            "when not to draft, held against these numbers (! applies):",
            *told,
        ]
    )


def memory_dict(answer: MemoryAnswer, draft: DraftShape | None) -> dict[str, Any]:
    """Bytes per GPU, tokens and requests per replica."""
    return {
        "draft": None if draft is None else draft.name,
        "draft_parameters": 0 if draft is None else draft.parameters,
        "draft_bytes": 0 if draft is None else _draft_bytes(draft),
        **asdict(answer),
        "requests_lost": answer.requests_lost,
    }


def _draft_bytes(draft: DraftShape) -> int:
    """The draft's weights in bf16, its integer tables included."""
    return 2 * draft.parameters + draft.integer_bytes


def activations_dict(answer: ActivationAnswer) -> dict[str, Any]:
    """Bytes per GPU in the largest step, and the requests that fit where they come out of the KV pool."""
    arms = {
        name: asdict(each) | {"peak_bytes": each.peak_bytes}
        for name, each in (("plain", answer.plain), ("speculative", answer.speculative))
    }
    return arms | {
        "plain_requests": answer.plain_requests,
        "speculative_requests": answer.speculative_requests,
        "above_bytes": answer.above_bytes,
        "fits_above": answer.fits_above,
    }


def memory_text(answer: MemoryAnswer, draft: DraftShape | None, activations: ActivationAnswer, *, context_tokens: int, stored: bool) -> str:
    """What the draft takes and what that costs; `stored` says that its own tensors were counted."""
    source = "as its files have it" if stored else "in bf16"
    own = (
        "nothing on the GPU"
        if draft is None
        else f"{ascii_controls(draft.name)}: {draft.parameters / 1e9:.3f} B parameters, {_gigabytes(_draft_bytes(draft))} {source}"
    )
    plain, speculative = activations.plain, activations.speculative
    rows = [
        ("target weights per GPU", _gigabytes(answer.target_weight_bytes), _gigabytes(answer.target_weight_bytes)),
        ("draft weights per GPU", MISSING, _gigabytes(answer.draft_weight_bytes)),
        (
            "KV cache per token and GPU",
            f"{answer.target_kv_bytes_per_token:,.0f} B",
            f"{answer.target_kv_bytes_per_token + answer.draft_kv_bytes_per_token:,.0f} B",
        ),
        ("KV pool per GPU", _gigabytes(answer.plain_pool_bytes), _gigabytes(answer.speculative_pool_bytes)),
        ("tokens of context that fit", f"{answer.plain_kv_tokens:,}", f"{answer.speculative_kv_tokens:,}"),
        (f"requests at {context_tokens:,} tokens", f"{answer.plain_requests:,}", f"{answer.speculative_requests:,}"),
        ("logits per GPU", _gigabytes(plain.logits_bytes), _gigabytes(speculative.logits_bytes + speculative.draft_logits_bytes)),
        ("states kept for the draft", MISSING, _gigabytes(speculative.kept_state_bytes)),
        ("activations per GPU, at most", _gigabytes(plain.peak_bytes), _gigabytes(speculative.peak_bytes)),
        ("requests, activations taken out", f"{activations.plain_requests:,}", f"{activations.speculative_requests:,}"),
    ]
    slots = f"{answer.lookahead_tokens} look-ahead slots each included"
    lost = f"the draft costs {answer.requests_lost} of {answer.plain_requests} requests, {slots}"
    room = f"the {_gigabytes(activations.above_bytes)} per GPU above the engine's share"
    above = (
        f"vLLM takes activations out of the KV pool, SGLang leaves them {room}: "
        f"{'they fit' if activations.fits_above else 'they do not fit with drafts; lower --memory-utilisation'}"
    )
    return "\n\n".join([own, columns(("", "plain", "with drafts"), rows), above, lost])


def _gigabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.2f} GB"
