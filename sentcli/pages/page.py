"""The parts of a page, in any format: sections with text, a table, a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Figure:
    """Panels that belong together, each drawn by a function on matplotlib's axes.

    A file has the panels beside each other; a page puts them where there is room.
    """

    name: str
    """The name of its files, without a suffix."""
    title: str
    panels: Mapping[str, Callable[[Axes], object]]
    """Each draws on axes of its own, in the style of `pages.style`; its labelled parts make the legend."""
    data: pd.DataFrame
    """The data of the drawing, written as CSV beside the picture.

    A page shows what has columns panel, series, x and y under the pointer, by its label or else by its numbers.
    """
    about: Sequence[str]
    """What it shows in words, in parts, for readers who cannot see it."""
    note: str = ""
    """An explanation below the figure."""
    columns: int = 2
    """Panels beside each other in the files."""
    size: tuple[float, float] = (4.6, 3.5)
    """Width and height of a panel in inches; with a width of 4.6, letters are readable on a phone."""

    @property
    def alt(self) -> str:
        """The description as one text."""
        return "; ".join(self.about)

    @property
    def large(self) -> bool:
        """Whether a page gives its only panel the whole width."""
        return len(self.panels) == 1 and self.size[0] > 5.5


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    text: Sequence[str] = ()
    """Paragraphs."""
    table: Table | None = None
    figure: Figure | None = None
    file: str = ""
    """The name of the table's CSV without a suffix; empty if none is written."""
    rows: pd.DataFrame | None = None
    """All rows of the CSV, where the table shows the first ones alone."""
    code: Sequence[str] = ()
    """Lines of a shell script."""
    level: int = 2
    """The level of the heading; the page's title has 1."""
    folded: bool = False
    """Whether HTML hides the section until the reader unfolds it."""

    @classmethod
    def of(cls, table: Table, **more: Any) -> Section:
        """Return the section of a table, which has its title; `more` are other fields."""
        return cls(table.title, table=table, **more)

    @property
    def caption(self) -> str:
        """The title of the table without the title of the section, which stands above it."""
        if self.table is None:
            return ""
        caption = self.table.title.removeprefix(f"{self.title}: ")
        if caption[1:2].islower():  # not NDCG
            return caption[:1].upper() + caption[1:]
        return caption

    @property
    def narrow(self) -> bool:
        """Whether two such sections fit beside each other on a wide screen."""
        if self.folded or self.code or self.level > 2:
            return False
        if self.figure is not None:
            return self.table is None and len(self.figure.panels) == 1 and not self.figure.large
        return self.table is not None and len(self.table.columns) <= 5 and not self.table.wide


@dataclass(frozen=True)
class Page:
    """A title, a summary, and sections."""

    title: str
    sections: Sequence[Section]
    text: Sequence[str] = ()
    """Paragraphs of the summary."""
    credit: str = ""
    """The line that says how the page was made."""
    tables_only: bool = False
    """Whether Markdown and LaTeX have the tables alone, without titles, so that another document can take them in."""


@dataclass(frozen=True)
class Style:
    """Which marks and intervals the tables and figures of a page show."""

    bold: bool = True
    """Mark the best entry of each column."""
    intervals: bool | None = None
    """Show the 95 % intervals in tables and figures; None: in HTML only, where there is room."""


PLAIN = Style()
