"""A figure as data: panels with axes and marks. Nothing here knows how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[Any]
NO_VALUES: tuple[float, ...] = ()
COLUMNS = ("panel", "series", "x", "y", "low", "high", "value", "label")
"""Of the CSV behind a figure."""


@dataclass(frozen=True)
class Axis:
    """What one direction of a panel shows."""

    label: str
    """With its unit."""
    log: bool = False
    limits: tuple[float, float] | None = None
    names: tuple[str, ...] = ()
    """Of categories, which stand at 0, 1, ..."""


@dataclass(frozen=True)
class Line:
    """Points in order, with a band around them if there is one."""

    name: str
    x: Values
    y: Values
    low: Values = NO_VALUES
    high: Values = NO_VALUES
    series: int = 0
    """Chooses colour, marker and dashes; the same in all panels of a figure."""
    markers: bool = True

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the points, by names of `COLUMNS`."""
        for i, (x, y) in enumerate(zip(self.x, self.y, strict=True)):
            band = {"low": self.low[i], "high": self.high[i]} if len(self.low) else {}
            yield {"series": self.name, "x": x, "y": y, **band}


@dataclass(frozen=True)
class Dots:
    """Points without an order."""

    name: str
    x: Values
    y: Values
    series: int = 0
    values: Values = NO_VALUES
    """Coloured by these, on the panel's scale, instead of by series."""
    labels: Sequence[str] = ()
    """What each is."""
    shown: bool = False
    """Write the labels beside the points."""
    large: bool = False

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the points."""
        for i, (x, y) in enumerate(zip(self.x, self.y, strict=True)):
            more = {"value": self.values[i]} if len(self.values) else {}
            yield {"series": self.name, "x": x, "y": y, **more, **({"label": self.labels[i]} if self.labels else {})}


@dataclass(frozen=True)
class Area:
    """A density that stands on a base line: several of them make a ridge."""

    name: str
    x: Values
    y: Values
    """Heights above the base."""
    base: float = 0.0
    series: int = 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the outline; ``low`` is the base."""
        for x, y in zip(self.x, self.y, strict=True):
            yield {"series": self.name, "x": x, "y": y, "low": self.base}


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, one for each name of the y axis, first on top; several series of them stand side by side."""

    name: str
    values: Values
    low: Values = NO_VALUES
    high: Values = NO_VALUES
    series: int = 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the bars; ``y`` is the number of the name."""
        for i, value in enumerate(self.values):
            band = {"low": self.low[i], "high": self.high[i]} if len(self.low) else {}
            yield {"series": self.name, "y": i, "x": value, **band}


@dataclass(frozen=True)
class Grid:
    """A value for each cell of a table, as colours on the panel's scale."""

    name: str
    values: npt.NDArray[Any]
    """``[rows, columns]``; NaN stays empty."""
    x: Values = NO_VALUES
    """Edges of the columns ``[columns + 1]``; none: cells at 0, 1, ..."""
    y: Values = NO_VALUES
    """Edges of the rows, the first row at the bottom; none: cells at 0, 1, ..., the first row on top."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the cells that have a value; x and y are centres, or numbers of cells."""
        across, down = (
            _centres(edges, count) for edges, count in zip((self.x, self.y), self.values.shape[::-1], strict=True)
        )
        for i, j in np.argwhere(np.isfinite(self.values)):
            yield {"series": self.name, "x": across[j], "y": down[i], "value": self.values[i, j]}


def _centres(edges: Values, count: int) -> npt.NDArray[Any]:
    return (np.asarray(edges[:-1]) + np.asarray(edges[1:])) / 2 if len(edges) else np.arange(count)


@dataclass(frozen=True)
class Names:
    """Words that stand in a panel, such as the names of groups of dots."""

    name: str
    """What the words are."""
    x: Values
    y: Values
    labels: Sequence[str]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the words and their places."""
        for x, y, label in zip(self.x, self.y, self.labels, strict=True):
            yield {"series": self.name, "x": x, "y": y, "label": label}


Mark = Line | Dots | Area | Bars | Grid | Names


@dataclass(frozen=True)
class Panel:
    """One pair of axes with what stands in it."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    scale: str = ""
    """What colours mean where they stand for values, with its unit."""
    scale_limits: tuple[float, float] | None = None
    scale_log: bool = False
    legend: bool = True
    square: bool = False
    """As high as wide, with the same unit in both directions."""
    bare: bool = False
    """Neither ticks nor grid: positions on the axes have no meaning of their own."""


@dataclass(frozen=True)
class Figure:
    """One or several panels that belong together."""

    name: str
    """Of its files."""
    title: str
    alt: str
    """What it shows, for those who cannot see it."""
    panels: tuple[Panel, ...]
    note: str = ""
    """What has to be known to read it."""
    columns: int = 2
    """Panels beside each other in the files; a page has as many as fit."""
    height: float = 1.0
    """Of a panel, relative to others: a long legend needs more."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield everything that is drawn, by names of `COLUMNS`."""
        for panel in self.panels:
            for mark in panel.marks:
                for row in mark.rows():
                    yield {"panel": panel.title, **row}
