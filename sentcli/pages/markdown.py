"""A page as GitHub's Markdown."""

from __future__ import annotations

import re

from sentcli.pages.page import RANKED, Figure, Page, Section, Style, table_notes
from sentcli.printable import safe
from sentcli.table import Table

SIGNS = re.compile(r"([\\`*_\[\]<>&|~#$!^])")
"""What Markdown would read as markup within a line."""
LINE_SIGNS = re.compile(r"^(\s*)([-+=]|\d+[.)])")
"""What it would read as a list or a rule at the start of one."""


def render(page: Page, style: Style, folder: str = "") -> str:
    """Return the file.

    Args:
        page: what is shown.
        style: bold, intervals.
        folder: beside the file, with its figures as PNG; without one, figures are left out.
    """
    parts = [f"# {escape(page.title)}", *map(_paragraph, page.text), *([_paragraph(page.made)] if page.made else [])]
    for section in page.sections:
        parts += _section(section, style, folder)
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return SIGNS.sub(r"\\\1", safe(text))


def _paragraph(text: str) -> str:
    """Return a line of its own."""
    return LINE_SIGNS.sub(lambda sign: f"{sign[1]}{sign[2][:-1]}\\{sign[2][-1]}", escape(text))


def _section(section: Section, style: Style, folder: str) -> list[str]:
    parts = [f"{'#' * section.level} {escape(section.title)}", *map(_paragraph, section.text)]
    if section.table is not None:
        parts += _table(section.table, section.caption, style)
    if section.figure is not None and folder:
        parts += _figure(section.figure, folder)
    if section.code:
        code = "\n".join(map(safe, section.code))
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
        parts.append(f"{fence}bash\n{code}\n{fence}")
    return parts


def _figure(figure: Figure, folder: str) -> list[str]:
    note = f"{figure.title}. {figure.note}".rstrip()
    return [f"![{escape(figure.alt)}](<{folder}/{figure.name}.png>)", escape(note)]


def _table(table: Table, caption: str, style: Style) -> list[str]:
    places = range(len(table.columns))
    lines = [[escape(column) for column in table.columns], ["---:" if table.numeric(j) else "---" for j in places]]
    lines += [[_entry(table, i, j, style) for j in places] for i in range(len(table.rows))]
    notes = table_notes(table, ranked=f"{RANKED}." if style.bold else "", intervals=bool(style.intervals))
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return [f"**{escape(caption)}**", drawn, *(["  \n".join(map(_paragraph, notes))] if notes else [])]


def _entry(table: Table, row: int, column: int, style: Style) -> str:
    shown = escape(table.shown(row, column))
    if style.bold and table.rank(row, column) == "best":
        shown = f"**{shown}**"
    ends = table.interval_text(row, column) if style.intervals else ""
    return f"{shown} ({ends})" if ends else shown
