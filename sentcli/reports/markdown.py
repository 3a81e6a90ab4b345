"""A page as GitHub's Markdown."""

from __future__ import annotations

import re

from sentcli.figures.figure import Figure
from sentcli.printable import safe
from sentcli.reports.page import RANKED, Cell, Page, Section, Style, Table, between

ALIGNED = {"number": "---:", "word": "---", "text": "---"}
SIGNS = re.compile(r"([\\`*_\[\]<>&|~#$!^])")
"""What Markdown would read as markup within a line."""
LINE_SIGNS = re.compile(r"^(\s*)([-+=]|\d+[.)])")
"""What it would read as a list or a rule at the start of one."""


def render(page: Page, style: Style) -> str:
    """Return the file."""
    parts = [f"# {escape(page.title)}", *map(_paragraph, page.text)]
    for section in page.sections:
        parts += _section(section, style)
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return SIGNS.sub(r"\\\1", safe(text))


def _paragraph(text: str) -> str:
    """Return a line of its own."""
    return LINE_SIGNS.sub(lambda found: f"{found[1]}{found[2][:-1]}\\{found[2][-1]}", escape(text))


def _section(section: Section, style: Style) -> list[str]:
    parts = [f"{'#' * section.level} {escape(section.title)}", *map(_paragraph, section.text)]
    if section.table is not None:
        parts += _table(section.table, section.caption, style)
    if isinstance(section.figure, Figure) and style.figures:
        note = f"{section.figure.title}. {section.figure.note}".rstrip()
        parts += [f"![{escape(section.figure.alt)}](<{style.figures}/{section.figure.name}.png>)", escape(note)]
    if section.code:
        code = "\n".join(map(safe, section.code))
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
        parts.append(f"{fence}bash\n{code}\n{fence}")
    return parts


def _table(table: Table, caption: str, style: Style) -> list[str]:
    heads = [escape(column.title) for column in table.columns]
    lines = [heads, [ALIGNED[column.kind] for column in table.columns]]
    lines += [[_cell(cell, style) for cell in row.cells] for row in table.rows]
    notes = [f"{RANKED}."] if style.bold and table.ranked else []
    notes += [table.interval_note] if style.intervals and table.interval_note else []
    under = [_paragraph(note) for note in [*notes, *table.notes]]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return [f"**{escape(caption)}**", drawn, *(["  \n".join(under)] if under else [])]


def _cell(cell: Cell, style: Style) -> str:
    shown = escape(cell.text)
    if style.bold and cell.rank == "best":
        shown = f"**{shown}**"
    return f"{shown} ({between(cell.interval)})" if style.intervals and cell.interval else shown
