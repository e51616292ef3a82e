"""What a load-test with made-up acceptance showed, as a dictionary for `--json` and as text that says so first."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.decide.synthetic import BreakEven, SyntheticPoint
from paceline.report.figures import interval, plain
from paceline.report.json_view import estimate_dict
from paceline.report.text import columns

__all__ = ["synthetic_dict", "synthetic_text"]

HEAD = ("in flight", "told length", "tokens per step", "step time ratio", "speed-up")
LABEL = (
    "SYNTHETIC ACCEPTANCE: the server was told how many drafts to accept, so this is what drafting costs on this machine and no draft's "
    "acceptance; gate refuses these runs"
)


def synthetic_dict(points: Mapping[int, Sequence[SyntheticPoint]], ends: Mapping[int, BreakEven]) -> dict[str, Any]:
    """By concurrency: each length's figures, and the break-even."""
    return {
        "synthetic": True,
        "by_concurrency": [
            {
                "concurrency": concurrency,
                "break_even_tokens_per_step": _estimate(ends[concurrency].tokens_per_step),
                "break_even_alpha": _estimate(ends[concurrency].alpha),
                "pays_at_the_longest": ends[concurrency].pays,
                "lengths": [
                    {
                        "asked": each.asked,
                        "tokens_per_step": each.tokens_per_step,
                        "drafted_tokens_per_step": each.drafted_per_step,
                        "step_time_ratio": estimate_dict(each.step_time_ratio),
                        "speedup": estimate_dict(each.speedup),
                    }
                    for each in found
                ],
            }
            for concurrency, found in points.items()
        ],
    }


def _estimate(found: Any) -> dict[str, Any] | None:
    return None if found is None else estimate_dict(found)


def synthetic_text(points: Mapping[int, Sequence[SyntheticPoint]], ends: Mapping[int, BreakEven]) -> str:
    """The same as a table and one sentence for each concurrency."""
    rows = [
        (str(concurrency), plain(each.asked), plain(each.tokens_per_step), interval(each.step_time_ratio), interval(each.speedup))
        for concurrency, found in points.items()
        for each in found
    ]
    return "\n\n".join(
        [LABEL, columns(HEAD, rows), *(_sentence(concurrency, points[concurrency], each) for concurrency, each in ends.items())]
    )


def _sentence(concurrency: int, points: Sequence[SyntheticPoint], found: BreakEven) -> str:
    if found.tokens_per_step is not None:
        return (
            f"at {concurrency} in flight drafting pays from {interval(found.tokens_per_step)} tokens per step on, which is an acceptance "
            f"rate of {interval(found.alpha)}"
        )
    lengths = [each.tokens_per_step for each in points]
    if found.pays:
        return f"at {concurrency} in flight drafting pays at every length that was measured, from {plain(min(lengths))} tokens per step on"
    return f"at {concurrency} in flight drafting pays at no length that was measured, up to {plain(max(lengths))} tokens per step"
