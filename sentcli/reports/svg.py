"""Where things stand in a dot-and-whisker plot; across in per cents, so that text keeps its size on any screen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sentcli.reports.page import DotPlot, Point

LEFT, RIGHT, RIGHT_OF_SEEDS = 3.0, 81.0, 73.0
"""Per cents of the width between which the axis lies; the values stand to the right of it, and need more room if they
have a deviation."""
ROW, HEAD, GAP, AXIS = 19, 24, 8, 44
"""Pixels: a line of a model, the name above a band, between bands, and the axis with its label."""
TICKS = 6
"""At most."""
COLOURS, SHAPES = 6, 5
"""They have no common factor, so thirty models differ in one of the two at least."""


@dataclass(frozen=True)
class Mark:
    """A point as it is drawn."""

    x: float
    y: float
    whisker: tuple[float, float] | None
    seeds: tuple[float, ...]
    colour: int
    shape: int
    printed: bool
    text: str
    about: str
    """What a pointer that rests on it shows."""


@dataclass(frozen=True)
class Band:
    """The marks of one task."""

    name: str
    top: float
    height: float
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Drawing:
    """A plot with its positions."""

    plot: DotPlot
    height: float
    bands: tuple[Band, ...]
    ticks: tuple[tuple[float, str], ...]
    """Position and label."""
    middle: float
    """Of the axis."""
    values: float
    """Where the numbers begin."""
    legend: tuple[tuple[str, int, int, bool], ...]
    """Name, colour, shape, and whether it is from print."""
    about: str
    """The whole in words."""


def draw(plot: DotPlot, intervals: bool = True) -> Drawing:
    """Lay out a plot.

    Args:
        plot: what is shown.
        intervals: draw the whiskers.
    """
    step, ends = _scale(*_extent(plot, intervals))
    right = RIGHT_OF_SEEDS if any(point.seeds for _, points in plot.bands for point in points) else RIGHT

    def across(value: float) -> float:
        return round(LEFT + (right - LEFT) * (value - ends[0]) / (ends[1] - ends[0]), 3)

    bands, top = [], 0.0
    for name, points in plot.bands:
        marks = []
        for i, point in enumerate(points):
            shown = point.range if intervals else None
            colour, shape = point.series % COLOURS, point.series % SHAPES
            marks.append(
                Mark(
                    x=across(point.value),
                    y=top + HEAD + ROW * (i + 0.5),
                    whisker=(across(shown[0]), across(shown[1])) if shown else None,
                    seeds=tuple(map(across, point.seeds)),
                    colour=colour,
                    shape=shape,
                    printed=plot.series[point.series].printed,
                    text=point.text,
                    about=_about(plot, name, point, intervals),
                )
            )
        height = HEAD + ROW * len(points)
        bands.append(Band(name, top, height, tuple(marks)))
        top += height + GAP
    decimals = max(0, -math.floor(math.log10(step)))
    count = round((ends[1] - ends[0]) / step)
    values = [ends[0] + i * step for i in range(count + 1)]
    legend = [(one.name, i % COLOURS, i % SHAPES, one.printed) for i, one in enumerate(plot.series)]
    about = "; ".join(_about(plot, name, point, intervals) for name, points in plot.bands for point in points)
    ticks = tuple((across(value), f"{value:.{decimals}f}") for value in values)
    return Drawing(plot, top - GAP + AXIS, tuple(bands), ticks, (LEFT + right) / 2, right + 3, tuple(legend), about)


def _about(plot: DotPlot, band: str, point: Point, intervals: bool) -> str:
    whisker = " ({:.2f} to {:.2f})".format(*point.range) if point.range and intervals else ""
    return f"{band}, {plot.series[point.series].name}: {point.text}{whisker}"


def _extent(plot: DotPlot, intervals: bool) -> tuple[float, float]:
    values = list(_values(plot, intervals))
    return min(values), max(values)


def _values(plot: DotPlot, intervals: bool) -> Iterator[float]:
    for _, points in plot.bands:
        for point in points:
            yield from (point.value, *point.seeds, *((point.range or ()) if intervals else ()))


def _scale(low: float, high: float) -> tuple[float, tuple[float, float]]:
    """Return the step of the ticks, 1, 2 or 5 times a power of ten, and the ends of the axis, which are ticks."""
    if high - low < 0.01:
        low, high = low - 0.5, high + 0.5
    least = (high - low) / (TICKS - 1)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least)
    return step, (math.floor(low / step) * step, math.ceil(high / step) * step)
