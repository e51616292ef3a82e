"""The training of a draft head as one self-contained HTML page, to be looked at while it goes on.

What training saw is its loss; what counts is acceptance on exchanges held out, each figure with its interval: those exchanges are
resampled, for tokens of one answer are not independent.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.errors import NoEvidenceError, ascii_controls
from paceline.report.figures import interval, plain
from paceline.report.rendering import rendered
from paceline.report.svg import Bar, Series, bar_chart, line_chart
from paceline.speculation.trained_head import Epoch, best_epoch
from paceline.stats.intervals import acceptance_estimates
from paceline.verdict import Estimate

__all__ = ["head_html"]

TEMPLATE = "head.html.j2"
COLUMNS = ("epoch", "updates", "loss", "α held out", "tokens per step", "learning rate", "tokens/s")
Judged = Sequence[tuple[Epoch, Mapping[str, Estimate]]]


def head_html(curves: Sequence[Epoch], *, title: str, planned: int, version: str, confidence: float, rng: np.random.Generator) -> str:
    """The page as text: loss, held-out α and tokens per step, learning rate by epoch, and the best epoch's acceptance by position.

    `planned` is how many epochs there will be; until then the page asks to be loaded again.

    Raises:
        NoEvidenceError: no epoch is done, or nothing was drafted on what is held out.

    """
    if not curves:
        raise NoEvidenceError("no epoch is done, so there is nothing to report")
    judged = [(each, acceptance_estimates(each.by_exchange, confidence=confidence, rng=rng)) for each in curves]
    if not all("alpha" in estimates for _, estimates in judged):
        raise NoEvidenceError("nothing was drafted on the exchanges held out; hold out more of them")
    best = best_epoch(curves)
    kept = next(estimates for each, estimates in judged if each is best)
    return rendered(
        TEMPLATE,
        title=ascii_controls(title),
        version=version,
        confidence=f"{confidence:.0%}",
        running=len(curves) < planned,
        done=len(curves),
        planned=planned,
        held_out=len(best.by_exchange),
        tiles=_tiles(best, kept, curves[-1]),
        charts=[*_charts(judged), ("Acceptance by position, best epoch", _position_chart(kept))],
        columns=COLUMNS,
        rows=[_row(each, estimates, is_best=each is best) for each, estimates in judged],
    )


def _tiles(best: Epoch, kept: Mapping[str, Estimate], last: Epoch) -> list[dict[str, str]]:
    told = (
        ("Best epoch", str(best.epoch), "its head is kept"),
        ("Acceptance rate", plain(kept["alpha"].value), _ends(kept["alpha"])),
        ("Tokens per step", plain(kept["tokens_per_step"].value), _ends(kept["tokens_per_step"])),
        ("Loss", plain(last.loss), f"epoch {last.epoch}"),
        ("Answer tokens per second", f"{last.answer_tokens / last.seconds:,.0f}", f"{last.seconds:,.0f} s per epoch"),
    )
    return [{"name": name, "value": value, "note": note} for name, value, note in told]


def _ends(estimate: Estimate) -> str:
    return "held out: " + interval(estimate)


def _charts(judged: Judged) -> list[tuple[str, str]]:
    curves = [each for each, _ in judged]
    return [
        ("Loss", _chart("Loss", "loss", [_exact(each.loss) for each in curves])),
        ("Acceptance on what is held out", _chart("α", "accepted / drafted tokens", [estimates["alpha"] for _, estimates in judged])),
        ("Tokens per step", _chart("tokens per step", "tokens per step", [estimates["tokens_per_step"] for _, estimates in judged])),
        ("Learning rate", _chart("learning rate", "at the epoch's end", [_exact(each.learning_rate) for each in curves])),
    ]


def _exact(value: float) -> Estimate:
    """A figure that is known and not estimated."""
    return Estimate(value=value, low=None, high=None, confidence=0.5, n=1)


def _chart(name: str, y_label: str, estimates: Sequence[Estimate]) -> str:
    points = tuple((float(epoch), each) for epoch, each in enumerate(estimates, 1))
    return line_chart(
        (Series(name, points),),
        title=f"{name} by epoch",
        description="; ".join(f"epoch {x:g}: {plain(each.value) if each.low is None else interval(each)}" for x, each in points),
        x_label="epoch",
        y_label=y_label,
        reference=None,
        doubling=False,
    )


def _position_chart(kept: Mapping[str, Estimate]) -> str:
    """How many of the steps accept the first draft, the first two, and so on."""
    reached = [each for name, each in kept.items() if name.startswith("survival_")]
    bars = tuple(Bar(name=f"draft {position}", estimate=each) for position, each in enumerate(reached, 1))
    return bar_chart(
        bars,
        title="Steps that accept every draft up to a position",
        description="; ".join(f"{each.name}: {interval(each.estimate)}" for each in bars),
        top=1.0,
        reference=None,
    )


def _row(each: Epoch, estimates: Mapping[str, Estimate], *, is_best: bool) -> tuple[str, ...]:
    return (
        f"{each.epoch} (best)" if is_best else f"{each.epoch}",
        f"{each.updates:,}",
        plain(each.loss),
        interval(estimates["alpha"]),
        interval(estimates["tokens_per_step"]),
        f"{each.learning_rate:.2g}",
        f"{each.answer_tokens / each.seconds:,.0f}",
    )
