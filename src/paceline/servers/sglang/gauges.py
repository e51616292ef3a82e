"""What SGLang's speculation gauges say over one or several scrapes.

A gauge is the figure of the last 40 decode batches when it was set, per scheduler rank, and stays when the server is idle. So a value is
used only where it was set within the window: it changed between two scrapes. The median of those values is given with their range, and
never a mean over scrapes, which would count a held value once per scrape. One scrape alone gives its last value, and says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from paceline.run import Summary
from paceline.servers.counters import Counters
from paceline.servers.sglang.accept_rate import rate_meaning
from paceline.verdict import Caution

__all__ = ["GAUGES", "GaugeFigures", "LENGTH", "RATE", "draft_width", "gauge_doubts", "gauge_figures"]

LENGTH = "spec_accept_length"
RATE = "spec_accept_rate"
STEPS = "spec_num_steps"
WIDTH = "spec_num_draft_tokens"
GAUGES = frozenset({LENGTH, RATE, STEPS, WIDTH})
MOST_WIDTH = 4096


@dataclass(frozen=True, slots=True)
class GaugeFigures:
    """Whether speculation is active, the figures that the gauges give (by summary name), and what to be cautious about."""

    active: bool
    stated: Mapping[str, Summary]
    noted: tuple[Caution, ...]


def draft_width(scrapes: Sequence[Counters]) -> tuple[int | None, bool]:
    """Tokens verified per step with the root where all scrapes and ranks state the same, and whether the draft is a chain."""
    widths = {each[WIDTH] for scrape in scrapes for each in scrape.engines.values() if WIDTH in each}
    steps = {each[STEPS] for scrape in scrapes for each in scrape.engines.values() if STEPS in each}
    if len(widths) != 1:
        return None, False
    (width,) = widths
    if not (width == int(width) and 2 <= width <= MOST_WIDTH):
        return None, False
    return int(width), steps == {width - 1}


def gauge_figures(scrapes: Sequence[Counters]) -> GaugeFigures:
    """The acceptance length, and the acceptance rate where the rate's meaning can be told."""
    last = {engine: each[LENGTH] for engine, each in scrapes[-1].engines.items() if LENGTH in each}
    if not any(last.values()):
        return GaugeFigures(active=False, stated={}, noted=(_off(),) if last else ())
    set_in_window = _set_in_window(scrapes)
    if not set_in_window:
        return GaugeFigures(active=True, stated={}, noted=(_held(),))
    lengths = [length for length, _ in set_in_window]
    if any(length < 1 for length in lengths):
        return GaugeFigures(active=True, stated={}, noted=(_unlawful(min(lengths)),))
    statistic = "last" if len(scrapes) == 1 else "median of values set"
    alphas, width, noted = _alphas(set_in_window)
    stated = {"acceptance_length": _middle(lengths, statistic)}
    if alphas:
        stated["alpha"] = _middle(alphas, statistic)
    if width is not None:
        stated["draft_tokens"] = Summary(value=float(width - 1), statistic="configured", n=None, low=None, high=None)
    return GaugeFigures(active=True, stated=stated, noted=(_gauge_of_last_batches(), *noted))


def gauge_doubts(scrape: Counters, width: int | None) -> tuple[Caution, ...]:
    """That the gauges hold what no batch of this width gives; 0 is no batch yet, a width of None is not known."""
    lengths = [length for each in scrape.engines.values() if (length := each.get(LENGTH))]
    rates = [rate for each in scrape.engines.values() if (rate := each.get(RATE))]
    wrong = [each for each in lengths if width is not None and not 1 <= each <= width] + [each for each in rates if each > 1]
    if not wrong:
        return ()
    return (
        Caution("stated_rate_differs", f"the gauges of acceptance say {', '.join(f'{each:.4g}' for each in wrong)}, which no batch gives"),
    )


def _set_in_window(scrapes: Sequence[Counters]) -> list[tuple[float, float | None]]:
    """Acceptance length and rate each time that a rank set them: all of one scrape's, else those that differ from the scrape before."""

    def of(scrape: Counters) -> dict[str, tuple[float, float | None]]:
        return {engine: (each[LENGTH], each.get(RATE)) for engine, each in scrape.engines.items() if LENGTH in each}

    if len(scrapes) == 1:
        return list(of(scrapes[0]).values())
    return [now for before, after in pairwise(map(of, scrapes)) for engine, now in after.items() if before.get(engine) != now]


def _alphas(pairs: Sequence[tuple[float, float | None]]) -> tuple[list[float], int | None, tuple[Caution, ...]]:
    """The acceptance rates, the width where it is one, and a caution where the rates' meaning cannot be told or is an older one."""
    rated = [(length, rate) for length, rate in pairs if rate is not None]
    if not rated:
        return [], None, ()
    meaning = rate_meaning(rated)
    if meaning is None:
        return [], None, (_unclear(rated[-1]),)
    alphas = [meaning.alpha(length) for length, _ in rated]
    return alphas, meaning.width, () if meaning.rate_is_alpha else (_older(meaning.width),)


def _middle(values: Sequence[float], statistic: str) -> Summary:
    low, high = (None, None) if len(values) == 1 else (min(values), max(values))
    return Summary(value=median(values), statistic=statistic, n=len(values), low=low, high=high)


def _off() -> Caution:
    return Caution(
        "speculation_off",
        "the acceptance length reads 0, below the least possible of 1: speculation is not active, or has not run 40 decode batches yet; "
        "this is not an acceptance of 0",
    )


def _held() -> Caution:
    return Caution(
        "gauges_held",
        "SGLang's gauges did not change in the window: their values are from before it (they are set every 40 decode batches and stay when "
        "the server is idle), so they are left out; measure under load, or longer",
    )


def _unlawful(length: float) -> Caution:
    return Caution("gauge_unlawful", f"an acceptance length of {length:.3g} is below the least possible of 1; the gauges are left out")


def _gauge_of_last_batches() -> Caution:
    return Caution(
        "gauge_of_last_batches",
        "these are gauges of the last 40 decode batches, which hold their value when the server is idle: moments, no totals of the window; "
        "SGLang counts verify calls from 0.5.13 on",
    )


def _unclear(pair: tuple[float, float]) -> Caution:
    return Caution(
        "rate_meaning_unknown",
        f"an accept rate of {pair[1]:.4g} beside an acceptance length of {pair[0]:.4g} fits no one definition of SGLang's (it changed in "
        "0.5.6 and 0.5.11; a tree fits none): no acceptance rate is given",
    )


def _older(width: int) -> Caution:
    return Caution(
        "rate_was_length",
        f"this version's accept rate is the acceptance length / {width} (SGLang before 0.5.11), never below 1 / {width}; the acceptance "
        "rate given here is (length − 1) / (width − 1)",
    )
