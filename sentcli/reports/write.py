"""Pages to files: the suffix says how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sentcli.errors import InputError
from sentcli.figures.figure import Figure
from sentcli.figures.write import save
from sentcli.reports.page import Page, Style

SUFFIXES = (".html", ".md", ".tex")


def check_suffix(target: Path) -> None:
    """Refuse a file whose suffix says no format.

    Raises:
        InputError: if it is none of `SUFFIXES`.
    """
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"{target}: a report is written as {', '.join(SUFFIXES)}; the suffix chooses")


def render(page: Page, suffix: str, style: Style | None = None) -> str:
    """Return a page as text.

    Args:
        page: what is shown.
        suffix: one of `SUFFIXES`.
        style: bold, intervals.
    """
    from sentcli.reports import html, latex, markdown

    renderer = {".html": html.render, ".md": markdown.render, ".tex": latex.render}[suffix]
    return renderer(page, style or Style())


def write_page(page: Page, targets: Sequence[Path], style: Style | None = None) -> None:
    """Write a page to files, each atomically; what is there is replaced. Markdown and LaTeX have figures beside them.

    Args:
        page: what is shown.
        targets: files with one of `SUFFIXES`.
        style: bold, intervals.
    """
    from sentcli.io.atomic import replacing

    figures = [section.figure for section in page.sections if isinstance(section.figure, Figure)]
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = f"{target.stem}-figures" if figures and target.suffix.lower() != ".html" else ""
        for figure in figures if beside else ():
            (target.parent / beside).mkdir(exist_ok=True)
            save(figure, target.parent / beside)
        text = render(page, target.suffix.lower(), replace(style or Style(), figures=beside))
        with replacing(target) as temporary:
            temporary.write_text(text, "utf-8", newline="\n")
