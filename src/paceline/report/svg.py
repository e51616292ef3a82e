"""Charts as inline SVG: no script, no external resource, readable in light and dark, with a title and a description for screen readers.

Colours come from the page's custom properties (`--series-1` …, `--ink`, `--rule`), with fallbacks for a chart that stands alone. The
x axis is logarithmic to base 2 where concurrencies double, else even; the y axis starts at 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2, log10

from paceline.errors import BadInputError, ascii_controls
from paceline.verdict import Estimate

__all__ = ["Bar", "Series", "bar_chart", "line_chart"]

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 20, 38, 44
ROW, NAMES = 34, 130
MOST_NAMES = 12
FALLBACKS = ("#2563a8", "#c05b12", "#4b7d2a", "#8a4b9c")


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a name and its points (x above 0, estimate)."""

    name: str
    points: tuple[tuple[float, Estimate], ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a name and its estimate."""

    name: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where values lie on the drawing."""

    x_low: float
    x_high: float
    y_high: float
    doubling: bool

    def x(self, value: float) -> float:
        span, along = self.x_high - self.x_low, value - self.x_low
        if self.doubling:
            span, along = log2(self.x_high / self.x_low), log2(value / self.x_low)
        share = 0.5 if span == 0 else along / span
        return round(LEFT + 14 + share * (WIDTH - LEFT - RIGHT - 28), 1)

    def y(self, value: float) -> float:
        share = min(1.0, max(0.0, value / self.y_high))
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def line_chart(
    series: tuple[Series, ...],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    reference: tuple[float, str] | None,
    doubling: bool,
) -> str:
    """Lines, each with a band between the ends of its intervals; `reference` draws a dashed level with a name.

    The x axis is logarithmic to base 2 with every point's x named where `doubling`, else even and with about ten names.

    Raises:
        BadInputError: no point at all, or an x that is not above 0.

    """
    points = [each for line in series for each in line.points]
    if not points or min(x for x, _ in points) <= 0:
        raise BadInputError("a line chart needs at least one point, and every x above 0")
    tops = [_top(each) for _, each in points] + ([reference[0]] if reference else [])
    step = _tick_step(max(tops))
    places = sorted({x for x, _ in points})
    frame = _Frame(x_low=places[0], x_high=places[-1], y_high=max(step, ceil(max(tops) / step) * step), doubling=doubling)
    named = places if doubling else places[:: ceil(len(places) / MOST_NAMES)]
    parts = [
        *_grid(frame, step, named, x_label=x_label, y_label=y_label),
        *(_reference(frame, reference) if reference else ()),
        *(part for i, line in enumerate(series) for part in _line(frame, line, _colour(i))),
        *_legend(series),
    ]
    return _svg(parts, height=HEIGHT, title=title, description=description)


def _svg(parts: list[str], *, height: int, title: str, description: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg" font-family="inherit" font-size="12">'
    return "\n".join([head, f"<title>{_shown(title)}</title>", f"<desc>{_shown(description)}</desc>", *parts, "</svg>"])


def _shown(text: str) -> str:
    """Text as an element may hold it: no markup, nothing invisible."""
    return escape(ascii_controls(text))


def _colour(i: int) -> str:
    return f"var(--series-{i % len(FALLBACKS) + 1}, {FALLBACKS[i % len(FALLBACKS)]})"


def _top(estimate: Estimate) -> float:
    """The value or its upper end, an end far off not squeezing the rest."""
    high = estimate.value if estimate.high is None else estimate.high
    return max(estimate.value, min(high, 2 * abs(estimate.value)))


def _tick_step(top: float) -> float:
    """The distance of about five ticks: 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return 1.0
    rough = top / 5
    power: float = 10.0 ** floor(log10(rough))
    return next(multiple * power for multiple in (1, 2, 5, 10) if multiple * power >= rough * (1 - 1e-9))


def _text(x: float, y: float, text: str, *, anchor: str, extra: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="var(--ink-2, #555)"{extra}>{_shown(text)}</text>'


def _grid(frame: _Frame, step: float, ticks: list[float], *, x_label: str, y_label: str) -> Iterator[str]:
    for i in range(round(frame.y_high / step) + 1):
        y = frame.y(i * step)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="var(--rule, #ddd)"/>'
        yield _text(LEFT - 8, y + 4, f"{i * step:.3g}", anchor="end")
    for x in ticks:
        yield f'<line x1="{frame.x(x)}" x2="{frame.x(x)}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" stroke="var(--ink-2, #555)"/>'
        yield _text(frame.x(x), HEIGHT - BOTTOM + 18, f"{x:g}", anchor="middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, anchor="middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield _text(14, middle, y_label, anchor="middle", extra=f' transform="rotate(-90 14 {middle})"')


def _reference(frame: _Frame, reference: tuple[float, str]) -> Iterator[str]:
    y = frame.y(reference[0])
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="var(--ink-2, #555)" stroke-dasharray="5 4"/>'
    yield _text(WIDTH - RIGHT, y - 5, reference[1], anchor="end")


def _line(frame: _Frame, line: Series, colour: str) -> Iterator[str]:
    points = sorted(line.points, key=lambda each: each[0])
    known = [(x, each.low, each.high) for x, each in points if each.low is not None and each.high is not None]
    if len(known) > 1:
        edge = [(x, high) for x, _, high in known] + [(x, low) for x, low, _ in reversed(known)]
        corners = " ".join(f"{frame.x(x)},{frame.y(y)}" for x, y in edge)
        yield f'<polygon points="{corners}" fill="{colour}" opacity="0.16"/>'
    for x, low, high in known:
        yield f'<line x1="{frame.x(x)}" x2="{frame.x(x)}" y1="{frame.y(low)}" y2="{frame.y(high)}" stroke="{colour}" stroke-width="1.5"/>'
    path = " ".join(f"{frame.x(x)},{frame.y(each.value)}" for x, each in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"/>'
    for x, each in points:
        yield f'<circle cx="{frame.x(x)}" cy="{frame.y(each.value)}" r="4" fill="{colour}"/>'


def _legend(series: tuple[Series, ...]) -> Iterator[str]:
    x = float(LEFT)
    for i, line in enumerate(series):
        yield f'<rect x="{x}" y="10" width="14" height="4" rx="2" fill="{_colour(i)}"/>'
        yield _text(x + 20, 16, line.name, anchor="start")
        x += 20 + 7 * len(line.name) + 26


def bar_chart(bars: tuple[Bar, ...], *, title: str, description: str, top: float, reference: tuple[float, str] | None) -> str:
    """Horizontal bars from 0 to `top` with a whisker for each interval; `reference` draws a dashed level with a name.

    Raises:
        BadInputError: no bar, or a top that is not above 0.

    """
    if not bars or not top > 0:
        raise BadInputError("a bar chart needs at least one bar and a top above 0")
    height = TOP + ROW * len(bars) + 30
    parts = [part for i in range(5) for part in _level(top * i / 4, top, height)]
    if reference is not None and reference[0] <= top:
        x = _along(reference[0], top)
        parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP - 10}" y2="{height - 26}" stroke="var(--ink-2, #555)" stroke-dasharray="5 4"/>')
        parts.append(_text(x, TOP - 16, reference[1], anchor="middle"))
    parts += [part for i, bar in enumerate(bars) for part in _bar(bar, TOP + ROW * i, top)]
    return _svg(parts, height=height, title=title, description=description)


def _along(value: float, top: float) -> float:
    return round(NAMES + min(1.0, max(0.0, value / top)) * (WIDTH - NAMES - 70), 1)


def _level(value: float, top: float, height: int) -> Iterator[str]:
    x = _along(value, top)
    yield f'<line x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{height - 26}" stroke="var(--rule, #ddd)"/>'
    yield _text(x, height - 10, f"{value:.3g}", anchor="middle")


def _bar(bar: Bar, y: float, top: float) -> Iterator[str]:
    estimate, end, middle = bar.estimate, _along(bar.estimate.value, top), y + ROW / 2 - 3
    name = bar.name if len(bar.name) <= 18 else bar.name[:17] + "…"
    yield _text(NAMES - 10, middle + 4, name, anchor="end")
    yield f'<rect x="{NAMES}" y="{y + 4}" width="{round(end - NAMES, 1)}" height="{ROW - 14}" rx="3" fill="{_colour(0)}" opacity="0.75"/>'
    tip = end
    if estimate.low is not None and estimate.high is not None:
        low, tip = _along(estimate.low, top), _along(estimate.high, top)
        yield f'<line x1="{low}" x2="{tip}" y1="{middle}" y2="{middle}" stroke="var(--ink, #111)" stroke-width="1.5"/>'
    halo = ' stroke="var(--card, #fff)" stroke-width="4" paint-order="stroke"'
    yield _text(tip + 8, middle + 4, f"{estimate.value:.3g}", anchor="start", extra=halo)
