"""Writing pages to files, in the format of the suffix: HTML, GitHub's Markdown, or LaTeX tables (booktabs).

An HTML file needs no network; it has a dark mode, sortable tables, and figures as SVG.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise, product, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.io.atomic import check_output, replacing
from sentcli.pages.figures import Point, inline, save_figure
from sentcli.pages.page import PLAIN, Page, Section, Style
from sentcli.printable import safe
from sentcli.table import Table

if TYPE_CHECKING:
    from jinja2 import Environment

_PAGE_SUFFIXES = (".html", ".md", ".tex")
LATEX_TAGS = {
    "block_start_string": "<%",
    "block_end_string": "%>",
    "comment_start_string": "<#",
    "comment_end_string": "#>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
}
"""The tags of Jinja in a template of LaTeX, to which braces belong."""
_RANKED_NOTE = "Best of each column in bold"
UNDERLINED = ", second best underlined"
LENGTHY = 24
"""A column with more characters in a cell than this needs a least width, so that it does not wrap to many lines."""
_MOST_POINTS = 20_000
"""A figure with more points than this does not show their texts."""
LONGEST_TEXT = 300
"""The greatest length of a text that is shown beside its point, in characters."""
MARKDOWN_SIGNS = re.compile(r"([\\`*_\[\]<>&|~#$!^])")
"""Signs that are markup anywhere in a line."""
MARKDOWN_LINE_SIGNS = re.compile(r"^(\s*)([-+=]|\d+[.)])")
"""Signs that make a list or a rule at the start of a line."""
LATEX_SIGNS: dict[str, str | int | None] = {
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
}
LATEX_SIGNS |= {sign: f"\\{sign}" for sign in "{}$&#%_"}
LIGATURES = re.compile(r"([-,'!?])(?=[-,'`!?])")
"""Signs that TeX would join, such as two hyphens to a dash."""
DIGEST = re.compile(r"([0-9a-f]{16})(?=[0-9a-f])")
"""A part of a digest, behind which a line of LaTeX may break; it has no blanks."""
LATEX_ROWS = 40
"""More rows than this do not fit on a page of LaTeX, so that a table goes on in another one."""


def check_suffix(target: Path) -> None:
    """Check the suffix of a file.

    Raises:
        InputError: if it is none of `_PAGE_SUFFIXES`.
    """
    if target.suffix.lower() not in _PAGE_SUFFIXES:
        raise InputError(f"{target}: a report is written as {', '.join(_PAGE_SUFFIXES)}; the suffix chooses")


def check_pages(files: Sequence[Path], *, overwrite: bool) -> None:
    """Check before the work that pages can be written.

    Raises:
        InputError: for a suffix of another format, or a file that exists or cannot be made.
    """
    for file in files:
        check_suffix(file)
        check_output(file, overwrite=overwrite)


def write_page(page: Page, target: Path, style: Style = PLAIN) -> None:
    """Write a page, atomically replacing a file that exists; Markdown and LaTeX have the figures in a folder beside it.

    Args:
        page: the page.
        target: a file with one of `_PAGE_SUFFIXES`.
        style: whether bold marks and intervals are shown.
    """
    from sentcli.io.atomic import check_output

    suffix = target.suffix.lower()
    beside = target.parent
    beside.mkdir(parents=True, exist_ok=True)
    figures = [section.figure for section in page.sections if section.figure is not None]
    folder = ""
    if figures and suffix != ".html":
        folder = f"{target.stem}-figures"
        place = beside / folder
        check_output(place, resume=True, folder=True)
        with replacing(place) as temporary:
            if place.is_dir():  # it may hold what others have put there
                shutil.copytree(place, temporary)
            temporary.mkdir(exist_ok=True)
            for figure in figures:
                save_figure(figure, temporary)
    text = render(page, suffix, style, folder)
    with replacing(target) as temporary:
        temporary.write_text(text, "utf-8", newline="\n")


def render(page: Page, suffix: str, style: Style = PLAIN, folder: str = "") -> str:
    """Return a page as text.

    Args:
        page: the page.
        suffix: one of `_PAGE_SUFFIXES`.
        style: whether bold marks and intervals are shown.
        folder: name of the folder beside the file that has the figures, of which Markdown shows the PNG and LaTeX
            includes the PDF; without a folder they leave them out. HTML holds the figures itself.

    Raises:
        InputError: if LaTeX cannot read from a folder of this name.
    """
    if suffix == ".html":
        return _html(page, style)
    latex = suffix == ".tex"
    if latex and not re.fullmatch(r"[\w ./+=,@-]*", folder):
        raise InputError(f"{folder}: LaTeX cannot take figures from a folder of this name; call the page otherwise")
    if latex:
        environment = templates(keep_trailing_newline=True, **LATEX_TAGS)
        environment.filters |= {"text": latex_text, "slug": _slug}
        ranked = f"{_RANKED_NOTE}{UNDERLINED}."
    else:
        environment = templates(keep_trailing_newline=True)
        environment.filters |= {"text": markdown_text, "line": _markdown_line, "fence": _fence}
        ranked = f"{_RANKED_NOTE}."
    environment.filters["plain"] = safe
    lead = list(page.text)
    if page.credit:
        lead.append(page.credit)
    return environment.get_template(f"page{suffix}").render(
        page=page,
        style=style,
        folder=folder,
        lead=lead,
        most_rows=LATEX_ROWS,
        notes=partial(_table_notes, ranked=ranked if style.bold else "", intervals=bool(style.intervals)),
        levels={1: "section", 2: "subsection", 3: "subsubsection"},
        marks={"": "%s", "best": r"\textbf{%s}", "second": r"\underline{%s}"},
    )


def _html(page: Page, style: Style) -> str:
    """Return an HTML file."""
    intervals = style.intervals is not False
    ranked = f"{_RANKED_NOTE}{UNDERLINED}." if style.bold else ""
    parts = []
    points = {}
    halves = _halves(page.sections)
    for number, section in enumerate(page.sections):
        notes = []
        kinds = []
        table = section.table
        if table is not None:
            notes = _table_notes(table, ranked=ranked, intervals=intervals)
            kinds = [column_kind(table, column) for column in range(len(table.columns))]
        drawings, texts = _drawn(section)
        if texts is not None:
            points[number] = texts
        part = {
            "number": number,
            "section": section,
            "half": number in halves,
            "notes": notes,
            "kinds": kinds,
            "panels": drawings,
            "has_texts": texts is not None,
        }
        parts.append(part)
    scripts = ["table.js"]
    if points:
        scripts.append("points.js")
    return html(
        "page.html",
        ["page.css"],
        scripts,
        page=page,
        parts=parts,
        least_listed=3,  # A page with so many sections has a table of contents
        points=script_data(points) if points else None,
        bold=style.bold,
        intervals=intervals,
    )


def html(template: str, sheets: Sequence[str], scripts: Sequence[str], **values: Any) -> str:
    """Return the HTML of a template, which escapes all texts.

    Args:
        template: its file.
        sheets: the files of its style.
        scripts: the files of its script; the policy of the page allows these and no others.
        values: what else it shows.
    """
    from markupsafe import Markup

    environment = templates(autoescape=True, finalize=_made_safe)
    assert environment.loader is not None
    for name, files in {"css": sheets, "script": scripts}.items():
        text = "".join(environment.loader.get_source(environment, file)[0] for file in files)
        sha256 = hashlib.sha256(text.encode()).digest()
        values[name] = Markup(text)
        values[f"{name}_hash"] = f"'sha256-{base64.b64encode(sha256).decode()}'"
    return environment.get_template(template).render(**values)


def _drawn(section: Section) -> tuple[Sequence[str], dict[str, object] | None]:
    """Return the panels of a section's figure as SVG, and the texts of its points; None for none or too many."""
    from markupsafe import Markup

    figure = section.figure
    if figure is None:
        return [], None
    drawings = []
    points = []
    for svg, of_panel in inline(figure):
        drawings.append(Markup(svg))
        points.append(of_panel)
    if 0 < sum(map(len, points)) <= _MOST_POINTS:
        return drawings, _points(points)
    return drawings, None


def _halves(sections: Sequence[Section]) -> set[int]:
    """Return the numbers of the narrow sections that have another one beside them; alone, one has the whole width."""
    halves = set()
    for number, (section, after) in enumerate(pairwise(sections)):
        if number not in halves and section.narrow and after.narrow:
            halves |= {number, number + 1}
    return halves


def column_kind(table: Table, j: int) -> str:
    """Return the classes of a column: number, word or text, and lengthy or headed where texts or the head need room."""
    name = table.columns[j]
    kind = "text" if name in table.wide else "word"
    if table.numeric(j):
        kind = "number"
    if any(len(table.shown(i, j)) > LENGTHY for i in range(len(table.rows))):
        return f"{kind} lengthy"
    if len(name) > 10:
        return f"{kind} headed"
    return kind


def _points(panels: Sequence[Sequence[Point]]) -> dict[str, object]:
    """Return the texts and groups of a figure's points, and each panel's points ``[x, y, text, group]`` by number."""
    text_numbers: dict[str, int] = {}
    group_numbers: dict[str, int] = {}
    places = []
    for of_panel in panels:
        points = []
        for x, y, text, group in of_panel:
            text_number = text_numbers.setdefault(text, len(text_numbers))
            group_number = group_numbers.setdefault(group, len(group_numbers))
            points.append([x, y, text_number, group_number])
        places.append(points)
    texts = []
    for text in map(safe, text_numbers):
        if len(text) > LONGEST_TEXT:
            text = f"{text[:LONGEST_TEXT]}\N{HORIZONTAL ELLIPSIS}"
        texts.append(text)
    return {"texts": texts, "groups": list(map(safe, group_numbers)), "panels": places}


def script_data(value: object) -> str:
    """Return JSON for a script element: its texts cannot end the element or begin a comment."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _table_notes(table: Table, *, ranked: str, intervals: bool) -> list[str]:
    """Return the notes below a table.

    Args:
        table: the table.
        ranked: the note that explains the marks of the best entries; empty if they are not shown.
        intervals: whether the intervals are shown.
    """
    notes = []
    entries = product(range(len(table.rows)), range(len(table.columns)))
    if ranked and any(starmap(table.rank, entries)):
        notes.append(ranked)
    return notes + table.notes_below(intervals=intervals)


@cache  # templates are compiled once
def templates(**options: Any) -> Environment:
    """Return the Jinja environment of the templates of pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("sentcli.pages", "templates")
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)


def _made_safe(value: Any) -> Any:
    """Return what a template shows of a value: markup and numbers stay as they are."""
    if type(value) is str:
        return safe(value)
    return value


def _slug(title: str) -> str:
    """Return a title as a label of LaTeX."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def latex_text(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    separated = LIGATURES.sub("\\1\0", safe(text))
    escaped = separated.translate(str.maketrans(LATEX_SIGNS)).replace("\0", "{}")
    return DIGEST.sub(r"\1\\allowbreak{}", escaped)


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return MARKDOWN_SIGNS.sub(r"\\\1", safe(text))


def _markdown_line(text: str) -> str:
    """Return an escaped text that stands on a line of its own."""
    return MARKDOWN_LINE_SIGNS.sub(lambda sign: f"{sign[1]}{sign[2][:-1]}\\{sign[2][-1]}", markdown_text(text))


def _fence(code: Sequence[str]) -> str:
    """Return the fence of a block of code, which is longer than any run of backticks in it."""
    runs = re.findall("`+", "\n".join(code))
    longest = max(map(len, runs), default=0)
    return "`" * max(3, 1 + longest)
