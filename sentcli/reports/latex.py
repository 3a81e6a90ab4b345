"""A page as LaTeX tables (booktabs), to be read into a document."""

from __future__ import annotations

import re

from sentcli.figures.figure import Figure
from sentcli.printable import safe
from sentcli.reports.page import RANKED, SECOND, Cell, Page, Section, Style, Table, between

HEAD = r"""% {title}
% Needs \usepackage{{booktabs}} and \usepackage{{graphicx}} in the preamble; then \input this file.
"""
ALIGNED = {"number": "r", "word": "l", "text": r"p{{{width:.2f}\linewidth}}"}
SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\texttt{\char34}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # at the start of a row it would be an option of the line break
    "]": "{]}",
    "*": "{*}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
    "\N{REPLACEMENT CHARACTER}": "?",
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
}
LIGATURES = re.compile(r"([-,'!?])(?=[-,'`!?])")
"""Signs that TeX makes one of, such as two hyphens, which become a dash."""
LEVELS = {1: "section", 2: "subsection", 3: "subsubsection"}
FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""A table that is too wide is made smaller, others keep their size."""


def render(page: Page, style: Style) -> str:
    """Return the file."""
    parts = [HEAD.format(title=safe(page.title)), rf"\section*{{{escape(page.title)}}}", *map(escape, page.text)]
    for number, section in enumerate(page.sections, 1):
        parts += _section(section, style, number)
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    apart = LIGATURES.sub("\\1\0", safe(text))
    return "".join(SIGNS.get(sign, sign) for sign in apart).replace("\0", "{}")


def _section(section: Section, style: Style, number: int) -> list[str]:
    parts = [rf"\{LEVELS[section.level]}*{{{escape(section.title)}}}", *map(escape, section.text)]
    if section.table is not None:
        parts.append(_table(section.table, style, f"tab:{_slug(section.title)}-{number}"))
    if isinstance(section.figure, Figure) and style.figures:
        parts.append(_figure(section.figure, style.figures))
    parts += [rf"\noindent{{\footnotesize\ttfamily\raggedright {escape(line)}\par}}" for line in section.code]
    return parts


def _figure(figure: Figure, folder: str) -> str:
    lines = [
        r"\begin{figure}[htbp]",
        r"\centering",
        rf"\includegraphics[width=\linewidth]{{\detokenize{{{folder}/{figure.name}.png}}}}",
        rf"\caption{{{escape(f'{figure.title}. {figure.note}'.rstrip())}}}",
        rf"\label{{fig:{_slug(figure.name)}}}",
        r"\end{figure}",
    ]
    return "\n".join(lines)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _table(table: Table, style: Style, label: str) -> str:
    long = sum(column.kind == "text" for column in table.columns)
    width = 0.7 / long if long else 0.0
    columns = "".join(ALIGNED[column.kind].format(width=width) for column in table.columns)
    heads = " & ".join(escape(column.title) for column in table.columns)
    measured = [_row(row.cells, style) for row in table.rows if not row.printed]
    printed = [_row(row.cells, style) for row in table.rows if row.printed]
    rows = [*measured, *([r"\midrule", *printed] if printed else [])]
    notes = [f"{RANKED}{SECOND}."] if style.bold and table.ranked else []
    notes += [table.interval_note] if style.intervals and table.interval_note else []
    under = [rf"{escape(note)}\par" for note in [*notes, *table.notes]]
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{escape(table.caption)}}}",
        rf"\label{{{label}}}",
        r"\small",
        FITTED,
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        rf"{heads} \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
        *([r"\par\smallskip\raggedright\footnotesize", *under] if under else []),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _row(cells: tuple[Cell, ...], style: Style) -> str:
    return rf"{' & '.join(_cell(cell, style) for cell in cells)} \\"


def _cell(cell: Cell, style: Style) -> str:
    shown = escape(cell.text)
    if style.bold and cell.rank:
        command = "textbf" if cell.rank == "best" else "underline"
        shown = rf"\{command}{{{shown}}}"
    interval = rf" {{\scriptsize ({escape(between(cell.interval))})}}" if style.intervals and cell.interval else ""
    return shown + interval
