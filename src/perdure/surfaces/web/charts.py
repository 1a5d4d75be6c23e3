"""Turn numbers over time into a drawing: bars and lines in a box with its own units, and a table of texts.

Pure. The box is stretched to the width of its page, so it contains no text: names and scale stand
beside it, and every number is in a table below it, for people who cannot see the drawing or want exact
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

HEIGHT = 40.0  # of the box
STEP = 10.0  # width of one point, in units of the box
_GAP = 1.0  # on both sides of a bar
_INSET = 2.0  # a wider gap for the second series: part and whole differ even without colours
_EPSILON = 1e-9  # smaller values count as zero
_MIN_HEIGHT = 0.5  # height of the smallest bar
_SCALE_STEPS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)  # tops of a scale, times a power of ten

NumberFormat = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One row of numbers."""

    label: str
    values: tuple[float | None, ...]  # None: no value at this point


@dataclass(frozen=True, slots=True)
class Chart:
    """The input of a drawing."""

    title: str
    names: tuple[str, ...]  # of the points, in their order
    series: tuple[ChartSeries, ...]  # the second of two bars is a part of the first
    to_text: NumberFormat  # formats a number
    kind: Literal["bars", "lines"] = "bars"
    top: float | None = None  # of the scale, if it is fixed


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    of: int  # index of the series


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line, as an SVG path."""

    d: str
    of: int


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """The column of one name, where the pointer shows its numbers."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class ChartDrawing:
    """A chart, ready for a template."""

    chart: Chart
    width: float
    scale: tuple[str, str]  # the top of the box and half of it, as texts; "" if both texts would be the same
    bars: tuple[ChartBar, ...]
    lines: tuple[ChartLine, ...]
    points: tuple[ChartPoint, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # of the table: name, formatted numbers
    summary: str  # describes the chart in one sentence


def draw_chart(chart: Chart) -> ChartDrawing:
    """Compute the geometry and the texts of a chart."""
    numbers = [value for series in chart.series for value in series.values if value is not None]
    top = chart.top or round_up(max(numbers, default=0.0))
    rows = tuple(
        (name, tuple(_format_value(chart, series.values[n]) for series in chart.series))
        for n, name in enumerate(chart.names)
    )
    labels = [series.label for series in chart.series]
    points = tuple(ChartPoint(STEP * n, _describe_point(name, labels, texts)) for n, (name, texts) in enumerate(rows))
    bars = tuple(_draw_bars(chart, top)) if chart.kind == "bars" else ()
    lines = tuple(_draw_lines(chart, top)) if chart.kind == "lines" else ()
    half = chart.to_text(top / 2)
    scale = chart.to_text(top), half if half not in (chart.to_text(0), chart.to_text(top)) else ""
    return ChartDrawing(chart, STEP * len(chart.names), scale, bars, lines, points, rows, _summarise(chart, rows))


def round_up(value: float) -> float:
    """Return the least round number that is not below the value; 1.0 for zero.

    >>> round_up(7), round_up(130), round_up(0.03), round_up(0)
    (8.0, 200.0, 0.04, 1.0)
    """
    if value < _EPSILON:
        return 1.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 < value:
        power *= 10
    return next(round(step * power, 12) for step in _SCALE_STEPS if round(step * power, 12) >= value)


def _format_value(chart: Chart, value: float | None) -> str:
    return "–" if value is None else chart.to_text(value)


def _describe_point(name: str, labels: Sequence[str], texts: Sequence[str]) -> str:
    return f"{name}: " + ", ".join(f"{text} {label}" for label, text in zip(labels, texts, strict=True))


def _draw_bars(chart: Chart, top: float) -> Iterator[ChartBar]:
    for series_index, series in enumerate(chart.series):
        gap = _GAP + series_index * _INSET
        for n, value in enumerate(series.values):
            if value:
                height = max(_MIN_HEIGHT, HEIGHT * value / top)
                yield ChartBar(
                    STEP * n + gap, round(HEIGHT - height, 2), STEP - 2 * gap, round(height, 2), series_index
                )


def _draw_lines(chart: Chart, top: float) -> Iterator[ChartLine]:
    """Yield one path per series, broken where there is no number."""
    for series_index, series in enumerate(chart.series):
        pieces, previous = [], None
        for n, value in enumerate(series.values):
            if value is not None:
                x, y = STEP * n + STEP / 2, round(HEIGHT - HEIGHT * min(value, top) / top, 2)
                pieces.append(f"{'M' if previous is None else 'L'}{x:g} {y:g}" + ("h0" if previous is None else ""))
            previous = value
        if pieces:
            yield ChartLine("".join(pieces), series_index)


def _summarise(chart: Chart, rows: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """Describe the chart to a person who does not see it.

    The text names the first and the last point and the latest numbers; the table has the rest.
    """
    if not rows:
        return f"{chart.title}: nothing yet"
    (first, _), (last, numbers) = rows[0], rows[-1]
    latest = _describe_point(last, [series.label for series in chart.series], numbers)
    return f"{chart.title}, {first} to {last}. The latest, {latest}."
