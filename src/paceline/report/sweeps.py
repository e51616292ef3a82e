"""A sweep as tables, as a dictionary, as CSV, and as one page of heat maps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from math import log
from typing import Any

from paceline.decide.surface import Point, best_draft_lengths
from paceline.errors import ascii_controls
from paceline.report.figures import plain, times
from paceline.report.text import columns
from paceline.servers.batch_ranges import not_looked_at
from paceline.servers.sglang.adaptive import adaptive_config, start_steps
from paceline.servers.tensorrt_llm.schedule import draft_len_schedule
from paceline.servers.vllm.config import batch_size_table, batch_size_table_cautions
from paceline.verdict import Caution

__all__ = ["server_options", "sweep_csv", "sweep_dict", "sweep_html", "sweep_text"]

FIGURES = (
    "tokens_per_step",
    "step_time_ratio",
    "step_time_low",
    "step_time_high",
    "break_even_alpha",
    "break_even_low",
    "break_even_high",
    "speedup",
    "simulated_speedup",
    "simulated_step_time_ratio",
    "simulated_tpot_p99_ratio",
    "simulated_break_even_alpha",
)
CELL, LEFT, TOP = 56, 70, 46


def server_options(points: Sequence[Point], *, most_requests: int) -> list[dict[str, Any]]:
    """By context: SGLang's adaptive configuration over all α, and by α vLLM's and TensorRT-LLM's tables with what is known against them."""
    best = best_draft_lengths(points)
    made = []
    for context in sorted({context for context, _ in best}):
        here = {alpha: row for (each, alpha), row in best.items() if each == context}
        adaptive = adaptive_config(list(here.values()), most_requests=most_requests)
        made.append(
            {
                "context_tokens": context,
                "sglang": {"speculative_adaptive_config": adaptive, "speculative_num_steps": start_steps(adaptive)},
                "by_alpha": [_for_alpha(alpha, row, most_requests) for alpha, row in here.items()],
            }
        )
    return made


def _for_alpha(alpha: float, best: Mapping[int, int], most_requests: int) -> dict[str, Any]:
    table = batch_size_table(best, most_requests=most_requests)
    schedule = draft_len_schedule(best, most_requests=most_requests)
    return {
        "alpha": alpha,
        "best_draft_tokens": {str(size): length for size, length in best.items()},
        "vllm": {"num_speculative_tokens": max(best.values()), "num_speculative_tokens_per_batch_size": table}
        if any(best.values())
        else None,
        "tensorrt_llm": None
        if schedule is None
        else {"max_draft_len": schedule[min(schedule)], "draft_len_schedule": {str(last): length for last, length in schedule.items()}},
        "warnings": [asdict(each) for each in (*batch_size_table_cautions(table), *_unknown(best, most_requests))]
        if any(best.values())
        else [],
    }


def _unknown(best: Mapping[int, int], most_requests: int) -> tuple[Caution, ...]:
    first = not_looked_at(best, most_requests=most_requests)
    if first is None:
        return ()
    return (
        Caution(
            "batches_not_looked_at",
            f"batches of {first} to {most_requests} were not looked at: the K of {first - 1} in flight goes on there, unproven; add "
            f"{most_requests} to --concurrencies, or lower --max-requests to what the servers run",
        ),
    )


def _row(point: Point) -> dict[str, Any]:
    where = point.setting
    at = {
        "context_tokens": where.corner.context_tokens,
        "concurrency": where.corner.concurrency,
        "draft_tokens": where.draft_tokens,
        "alpha": where.alpha,
    }
    return at | {name: getattr(point, name) for name in FIGURES}


def sweep_dict(points: Sequence[Point], *, most_requests: int) -> dict[str, Any]:
    """Every point, and what to tell each server."""
    return {"points": [_row(each) for each in points], "servers": server_options(points, most_requests=most_requests)}


def sweep_csv(points: Sequence[Point]) -> str:
    """The surface, one row per point; an empty field was not simulated."""
    rows = [_row(each) for each in points]
    lines = [",".join(rows[0])] + [",".join("" if value is None else f"{value:.6g}" for value in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


def sweep_text(points: Sequence[Point], *, reference_draft_tokens: int, most_requests: int) -> str:
    """By context: break-even α by concurrency and K, the best K by α, and what to tell each server."""
    parts = []
    for options in server_options(points, most_requests=most_requests):
        context = options["context_tokens"]
        here = [each for each in points if each.setting.corner.context_tokens == context]
        lengths = sorted({each.setting.draft_tokens for each in here})
        sizes = sorted({each.setting.corner.concurrency for each in here})
        simulated = all(each.simulated_speedup is not None for each in here)
        even = _break_evens(here)
        best = best_draft_lengths(here)
        gains = {(each.setting.alpha, each.setting.corner.concurrency, each.setting.draft_tokens): each.best_known_speedup for each in here}
        how = "simulated" if simulated else "closed form"
        parts.append(f"context {context} tokens: break-even α ({how}; accepted / drafted at that K), by requests in flight and K")
        parts.append(columns(("in flight", *(f"K = {K}" for K in lengths)), [_cells(size, lengths, even) for size in sizes]))
        parts.append(f"best K and its speed-up, by α at K = {reference_draft_tokens} (off: no K pays)")
        rows = [
            (f"α = {alpha:g}", *(_best(row[size], gains.get((alpha, size, row[size]))) for size in sizes))
            for (_, alpha), row in best.items()
        ]
        parts.append(columns(("", *(f"{size} in flight" for size in sizes)), rows))
        parts.append("\n".join(_server_lines(options)))
    return ascii_controls_by_line("\n\n".join(parts))


def _break_evens(points: Sequence[Point]) -> dict[tuple[int, int], float]:
    """By requests in flight and K: the simulated one of the α whose speed-up is nearest to 1, else the forecast's."""
    nearest: dict[tuple[int, int], Point] = {}
    for each in points:
        at = (each.setting.corner.concurrency, each.setting.draft_tokens)
        if at not in nearest or abs(log(each.best_known_speedup)) < abs(log(nearest[at].best_known_speedup)):
            nearest[at] = each
    simulated = {at: each.simulated_break_even_alpha for at, each in nearest.items()}
    return {at: nearest[at].break_even_alpha if even is None else even for at, even in simulated.items()}


def ascii_controls_by_line(text: str) -> str:
    """The text without anything that steers a terminal; line breaks stay."""
    return "\n".join(ascii_controls(line) for line in text.split("\n"))


def _cells(size: int, lengths: Sequence[int], even: Mapping[tuple[int, int], float]) -> tuple[str, ...]:
    return str(size), *("never pays" if even[size, K] > 1 else plain(even[size, K]) for K in lengths)


def _best(length: int, speedup: float | None) -> str:
    return "off" if length == 0 else f"{length} ({times(speedup)})"


def _server_lines(options: Mapping[str, Any]) -> list[str]:
    lines = []
    for each in options["by_alpha"]:
        table, schedule = each["vllm"], each["tensorrt_llm"]
        told = "none: no draft length pays" if table is None else json.dumps(table["num_speculative_tokens_per_batch_size"])
        lines.append(f"α = {each['alpha']:g}  vLLM num_speculative_tokens_per_batch_size {told}")
        told = "none: no draft length pays at the smallest batch" if schedule is None else json.dumps(schedule["draft_len_schedule"])
        lines.append(f"       TensorRT-LLM draft_len_schedule {told}")
    adaptive = options["sglang"]
    lines.append(f"SGLang --speculative-num-steps {adaptive['speculative_num_steps']}, --speculative-adaptive-config a file with")
    lines.append(f"       {json.dumps(adaptive['speculative_adaptive_config'])}")
    said = {warning["code"]: warning["message"] for each in options["by_alpha"] for warning in each["warnings"]}
    return lines + [f"warning [{code}]: {message}" for code, message in said.items()]


def sweep_html(points: Sequence[Point], *, title: str) -> str:
    """One self-contained page: speed-up as a heat map over concurrency and K, for each context and α."""
    maps: dict[tuple[int, float], list[Point]] = {}
    for each in points:
        maps.setdefault((each.setting.corner.context_tokens, each.setting.alpha), []).append(each)
    figures = "\n".join(_heat_map(context, alpha, each) for (context, alpha), each in sorted(maps.items()))
    style = "body{font:15px/1.5 system-ui;margin:2rem;max-width:70rem}svg{max-width:100%;height:auto}:root{color-scheme:light dark}"
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>\n'
        f"<h1>{escape(title)}</h1>\n<p>Speed-up over plain decoding; blue pays, orange costs, the deeper the more.</p>\n"
        f"{figures}\n</html>\n"
    )


def _heat_map(context: int, alpha: float, points: Sequence[Point]) -> str:
    lengths = sorted({each.setting.draft_tokens for each in points})
    sizes = sorted({each.setting.corner.concurrency for each in points})
    wide, high = LEFT + CELL * len(sizes), TOP + 30 * len(lengths) + 24
    name = f"context {context}, α = {alpha:g}"
    parts = [f'<svg viewBox="0 0 {wide} {high}" width="{wide}" role="img" font-size="12"><title>{name}</title>']
    parts.append(f'<text x="4" y="16" fill="currentColor">{name}: K by requests in flight</text>')
    parts += [
        f'<text x="{LEFT + CELL * (i + 0.5)}" y="38" text-anchor="middle" fill="currentColor">{size}</text>' for i, size in enumerate(sizes)
    ]
    parts += [
        f'<text x="{LEFT - 10}" y="{TOP + 30 * i + 20}" text-anchor="end" fill="currentColor">K = {K}</text>' for i, K in enumerate(lengths)
    ]
    for each in points:
        x = LEFT + CELL * sizes.index(each.setting.corner.concurrency)
        y = TOP + 30 * lengths.index(each.setting.draft_tokens)
        gain = each.best_known_speedup
        colour, depth = ("#2563a8", min(0.75, (gain - 1) / 2)) if gain > 1 else ("#c05b12", min(0.75, (1 - gain) * 1.5))
        parts.append(f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="28" fill="{colour}" fill-opacity="{depth:.2f}"/>')
        parts.append(f'<text x="{x + CELL / 2 - 1}" y="{y + 19}" text-anchor="middle" fill="currentColor">{gain:.2f}</text>')
    return "".join(parts) + "</svg>"
