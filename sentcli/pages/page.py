"""What a page is made of, whatever it is written as: a list of sections with text, a table, a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentcli.printable import safe
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment
    from matplotlib.axes import Axes

RANKED = "Best of each column in bold"
SECOND = ", second best underlined"


@dataclass(frozen=True)
class Figure:
    """Panels that belong together, each drawn by a function in matplotlib's own words.

    A file has the panels beside each other; a page sets each where there is room for it.
    """

    name: str
    """The name of its files, without a suffix."""
    title: str
    panels: Sequence[Callable[[Axes], object]]
    """Each draws on axes of its own, in the style of `pages.style`; what has a label there comes into a legend."""
    data: pd.DataFrame
    """What is drawn: the CSV beside the picture."""
    alt: str
    """What the figure shows, for those who cannot see it."""
    note: str = ""
    """What has to be known to read it."""
    points: pd.DataFrame | None = None
    """Points that tell their text where a pointer rests on them: panel (its number), x, y, group, text."""
    columns: int = 2
    """Panels beside each other in the files."""
    size: tuple[float, float] = (4.6, 3.5)
    """Inches of a panel: a page shows 4.6 on a phone, and letters keep a readable size."""


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    text: Sequence[str] = ()
    """Paragraphs."""
    table: Table | None = None
    figure: Figure | None = None
    file: str = ""
    """The name of the table's CSV, without a suffix, where one is written."""
    code: Sequence[str] = ()
    """Lines of a shell."""
    level: int = 2
    """The level of the heading; the page's title has 1."""
    folded: bool = False
    """Details: HTML shows them when they are asked for."""

    @property
    def caption(self) -> str:
        """What stands above the table, where the section's title stands above that."""
        caption = self.table.title if self.table is not None else ""
        rest = caption.removeprefix(f"{self.title}: ")
        return rest[:1].upper() + rest[1:] if rest[1:2].islower() else rest  # not NDCG

    @property
    def narrow(self) -> bool:
        """Whether two such sections fit beside each other on a wide screen."""
        if self.folded or self.code or self.level > 2:
            return False
        if self.figure is not None:
            return self.table is None and len(self.figure.panels) == 1
        return self.table is not None and len(self.table.columns) <= 5 and not self.table.wide


@dataclass(frozen=True)
class Page:
    """A title, what the page says in short, and its sections."""

    title: str
    sections: Sequence[Section]
    text: Sequence[str] = ()
    """A short summary, in paragraphs."""
    made: str = ""
    """What made the page."""


@dataclass(frozen=True)
class Style:
    """How a page is written."""

    bold: bool = True
    """Mark the best of each column."""
    intervals: bool | None = None
    """Show the 95 % intervals in tables and figures; None: in HTML only, where there is room."""


PLAIN = Style()


def table_notes(table: Table, *, ranked: str, intervals: bool) -> list[str]:
    """Return what stands below a table.

    Args:
        table: whose notes they are.
        ranked: what the marks of the best entries are; empty where they are not shown.
        intervals: whether the intervals are shown.
    """
    marked = any(table.rank(i, j) for i in range(len(table.rows)) for j in range(len(table.columns)))
    notes = [ranked] if ranked and marked else []
    notes += [table.interval_note] if intervals and table.interval_note else []
    return [*notes, *table.notes]


def environment(**settings: Any) -> Environment:
    """Return what renders the templates of pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("sentcli.pages", "templates")
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **settings)


def render_template(
    name: str, page: Page, style: Style, folder: str, ranked: str, filters: dict[str, Callable[..., str]], **more: Any
) -> str:
    """Return a page as a text that is no HTML.

    Args:
        name: of the template.
        page: what is shown.
        style: bold, intervals.
        folder: beside the file, with its figures.
        ranked: what the marks of the best entries are.
        filters: of the template; `plain` makes text safe, and that only.
        more: what else the template takes.
    """
    signs: dict[str, Any] = {}
    if name.endswith(".tex"):  # braces are LaTeX's
        signs = {"block_start_string": "<%", "block_end_string": "%>", "comment_start_string": "<#"}
        signs |= {"variable_start_string": "<<", "variable_end_string": ">>", "comment_end_string": "#>"}
    templates = environment(keep_trailing_newline=True, **signs)
    templates.filters |= {"plain": safe, **filters}

    def notes(table: Table) -> list[str]:
        return table_notes(table, ranked=ranked if style.bold else "", intervals=bool(style.intervals))

    lead = [*page.text, *([page.made] if page.made else [])]
    return templates.get_template(name).render(page=page, style=style, folder=folder, lead=lead, notes=notes, **more)
