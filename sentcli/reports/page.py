"""What a page of results is made of, whatever it is written as: a list of sections with text, a table, a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sentcli import table
from sentcli.pages.page import Figure, Style

__all__ = ["Style"]

Rank = Literal["", "best", "second"]
MISSING = "\N{EN DASH}"
"""What stands where a number is not known."""
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    value: float | None = None
    """What the entry is sorted by; None for words and for what is missing."""
    interval: tuple[float, float] | None = None
    rank: Rank = ""
    """Among the entries of its column."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    cells: tuple[Cell, ...]
    printed: bool = False
    """Taken from a paper, not measured: such a row takes no part in the ranks."""


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    title: str
    kind: Literal["number", "word", "text"] = "number"
    """Numbers are aligned to the right; text may need several lines."""


@dataclass(frozen=True)
class Table:
    """Rows under a head, and what has to be known to read them."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    interval_note: str = ""
    """A note for readers that are shown the intervals."""

    @property
    def ranked(self) -> bool:
        """Whether some entry is marked as the best."""
        return any(cell.rank for row in self.rows for cell in row.cells)


@dataclass(frozen=True)
class Point:
    """A score in a figure."""

    series: int
    """Which of `DotPlot.series`."""
    value: float
    text: str
    """The value as the table has it."""
    range: tuple[float, float] | None = None
    """Ends of the whisker."""
    seeds: tuple[float, ...] = ()
    """The single values that `value` is the mean of."""


@dataclass(frozen=True)
class Series:
    """What has one colour and one shape in a figure."""

    name: str
    printed: bool = False


@dataclass(frozen=True)
class DotPlot:
    """Scores with whiskers on one axis, in a band for each task."""

    title: str
    axis: str
    """What the axis shows, with its unit."""
    whiskers: str
    """What they mean; empty where there are none."""
    series: tuple[Series, ...]
    bands: tuple[tuple[str, tuple[Point, ...]], ...]
    """Name and points of each."""


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    text: tuple[str, ...] = ()
    """Paragraphs."""
    table: Table | table.Table | None = None
    figure: DotPlot | Figure | None = None
    file: str = ""
    """Name of the table's CSV, where one is written."""
    code: tuple[str, ...] = ()
    """Lines of a shell."""
    level: int = 2
    """Of the heading; the page's title has 1."""
    folded: bool = False
    """Details: HTML shows them when they are asked for."""


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str
    sections: tuple[Section, ...]
    text: tuple[str, ...] = ()


def number(value: float | None, pattern: str = "{:.2f}") -> Cell:
    """Return the entry of a number, rounded to two decimals as papers print it."""
    return Cell(MISSING) if value is None else Cell(pattern.format(value).replace("-", MINUS), value)


def word(text: object) -> Cell:
    """Return an entry of words."""
    return Cell(str(text))


def between(ends: tuple[float, float]) -> str:
    """Return an interval in words."""
    return "{:.2f} to {:.2f}".format(*ends).replace("-", MINUS)
