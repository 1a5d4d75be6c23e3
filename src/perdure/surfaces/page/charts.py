"""From numbers over time to what is drawn: bars and lines in a box of their own units, and the same numbers in words.

Pure. The box is stretched to the width of its page, so nothing in it is text: names and scale stand beside it, and
every number in a table below it, for who cannot see it or wants it exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

HEIGHT = 40.0  # of the box
STEP = 10.0  # of the box, for each point
_GAP = 1.0  # on both sides of a bar
_INSET = 2.0  # more of it for the second of two: a part is told from its whole without colours
_NOTHING = 1e-9  # less is drawn as nothing
_LEAST = 0.5  # height of a bar that is not nothing
_STEPS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)  # tops of a scale, times a power of ten

Said = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Series:
    """One row of numbers."""

    label: str
    values: tuple[float | None, ...]  # None where there is none


@dataclass(frozen=True, slots=True)
class Chart:
    """What is to be drawn."""

    title: str
    names: tuple[str, ...]  # of the points, in their order
    series: tuple[Series, ...]  # the second of two bars is a part of the first
    said: Said  # a number in words
    kind: Literal["bars", "lines"] = "bars"
    top: float | None = None  # of the scale, where it is known


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    of: int  # which series


@dataclass(frozen=True, slots=True)
class Line:
    """A path."""

    d: str
    of: int


@dataclass(frozen=True, slots=True)
class Point:
    """The column of one name: where a pointer asks for its numbers."""

    x: float
    said: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart, ready for a template."""

    chart: Chart
    width: float
    scale: tuple[str, str]  # the top of the box and half of it, in words; "" where words cannot tell it
    bars: tuple[Bar, ...]
    lines: tuple[Line, ...]
    points: tuple[Point, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # of the table: name, numbers in words
    summary: str  # what the picture shows, in one sentence


def drawn(chart: Chart) -> Drawn:
    """The geometry and the words of a chart."""
    known = [value for series in chart.series for value in series.values if value is not None]
    top = chart.top or ceiling(max(known, default=0.0))
    rows = tuple((name, tuple(_words(chart, value) for value in _at(chart, n))) for n, name in enumerate(chart.names))
    labels = [series.label for series in chart.series]
    points = tuple(Point(STEP * n, _point(name, labels, said)) for n, (name, said) in enumerate(rows))
    bars = tuple(_bars(chart, top)) if chart.kind == "bars" else ()
    lines = tuple(_lines(chart, top)) if chart.kind == "lines" else ()
    half = chart.said(top / 2)
    scale = chart.said(top), half if half not in (chart.said(0), chart.said(top)) else ""
    return Drawn(chart, STEP * len(chart.names), scale, bars, lines, points, rows, _summary(chart, rows))


def ceiling(most: float) -> float:
    """The least round number that is not below; 1.0 where there is nothing.

    >>> ceiling(7), ceiling(130), ceiling(0.03), ceiling(0)
    (8.0, 200.0, 0.04, 1.0)
    """
    if most < _NOTHING:
        return 1.0
    power = 1.0
    while power > most:
        power /= 10
    while power * 10 < most:
        power *= 10
    return next(round(step * power, 12) for step in _STEPS if round(step * power, 12) >= most)


def _at(chart: Chart, n: int) -> tuple[float | None, ...]:
    return tuple(series.values[n] for series in chart.series)


def _words(chart: Chart, value: float | None) -> str:
    return "–" if value is None else chart.said(value)


def _point(name: str, labels: Sequence[str], said: Sequence[str]) -> str:
    return f"{name}: " + ", ".join(f"{number} {label}" for label, number in zip(labels, said, strict=True))


def _bars(chart: Chart, top: float) -> Iterator[Bar]:
    for of, series in enumerate(chart.series):
        gap = _GAP + of * _INSET
        for n, value in enumerate(series.values):
            if value:
                height = max(_LEAST, HEIGHT * value / top)
                yield Bar(STEP * n + gap, round(HEIGHT - height, 2), STEP - 2 * gap, round(height, 2), of)


def _lines(chart: Chart, top: float) -> Iterator[Line]:
    """A path for each series, which is broken where there is no number."""
    for of, series in enumerate(chart.series):
        pieces, was = [], None
        for n, value in enumerate(series.values):
            if value is not None:
                x, y = STEP * n + STEP / 2, round(HEIGHT - HEIGHT * min(value, top) / top, 2)
                pieces.append(f"{'M' if was is None else 'L'}{x:g} {y:g}" + ("h0" if was is None else ""))
            was = value
        if pieces:
            yield Line("".join(pieces), of)


def _summary(chart: Chart, rows: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """What a person is told who does not see it.

    It names the first, the last and how many there are; the table has the rest.
    """
    if not rows:
        return f"{chart.title}: nothing yet"
    (first, _), (last, numbers) = rows[0], rows[-1]
    latest = _point(last, [series.label for series in chart.series], numbers)
    return f"{chart.title}, {first} to {last}. The latest, {latest}."
