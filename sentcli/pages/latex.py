"""A page as LaTeX tables (booktabs), to be read into a document."""

from __future__ import annotations

import re

from sentcli.pages.page import RANKED, SECOND, Figure, Page, Section, Style, table_notes
from sentcli.printable import safe
from sentcli.table import Table

HEAD = r"""% {title}
% Needs \usepackage{{booktabs}} and \usepackage{{graphicx}} in the preamble; then \input this file.
"""
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


def render(page: Page, style: Style, folder: str = "") -> str:
    """Return the file.

    Args:
        page: what is shown.
        style: bold, intervals.
        folder: beside the file, with its figures as PNG; without one, figures are left out.
    """
    parts = [HEAD.format(title=safe(page.title)), rf"\section*{{{escape(page.title)}}}"]
    parts += map(escape, [*page.text, *([page.made] if page.made else [])])
    for number, section in enumerate(page.sections, 1):
        parts += _section(section, style, folder, number)
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    apart = LIGATURES.sub("\\1\0", safe(text))
    return "".join(SIGNS.get(sign, sign) for sign in apart).replace("\0", "{}")


def _section(section: Section, style: Style, folder: str, number: int) -> list[str]:
    parts = [rf"\{LEVELS[section.level]}*{{{escape(section.title)}}}", *map(escape, section.text)]
    if section.table is not None:
        parts.append(_table(section.table, style, f"tab:{_slug(section.title)}-{number}"))
    if section.figure is not None and folder:
        parts.append(_figure(section.figure, folder))
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
    long = [column in table.wide for column in table.columns]
    wide = rf"p{{{0.7 / max(1, sum(long)):.2f}\linewidth}}"
    places = range(len(table.columns))
    columns = "".join(wide if long[j] else "r" if table.numeric(j) else "l" for j in places)
    rows = [rf"{' & '.join(_entry(table, i, j, style) for j in places)} \\" for i in range(len(table.rows))]
    if table.published:
        rows.insert(len(rows) - table.published, r"\midrule")
    notes = table_notes(table, ranked=f"{RANKED}{SECOND}." if style.bold else "", intervals=bool(style.intervals))
    under = [rf"{escape(note)}\par" for note in notes]
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{escape(table.title)}}}",
        rf"\label{{{label}}}",
        r"\small",
        FITTED,
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        rf"{' & '.join(map(escape, table.columns))} \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
        *([r"\par\smallskip\raggedright\footnotesize", *under] if under else []),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _entry(table: Table, row: int, column: int, style: Style) -> str:
    shown = escape(table.shown(row, column))
    if style.bold and (rank := table.rank(row, column)):
        shown = rf"\{'textbf' if rank == 'best' else 'underline'}{{{shown}}}"
    ends = table.interval_text(row, column) if style.intervals else ""
    return rf"{shown} {{\scriptsize ({escape(ends)})}}" if ends else shown
