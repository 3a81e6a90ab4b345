"""Pages to files: the suffix says how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentcli.errors import InputError
from sentcli.pages.page import PLAIN, Page, Style

SUFFIXES = (".html", ".md", ".tex")


def check_suffix(target: Path) -> None:
    """Refuse a file whose suffix says no format.

    Raises:
        InputError: if it is none of `SUFFIXES`.
    """
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"{target}: a report is written as {', '.join(SUFFIXES)}; the suffix chooses")


def render(page: Page, suffix: str, style: Style = PLAIN, folder: str = "") -> str:
    """Return a page as text.

    Args:
        page: what is shown.
        suffix: one of `SUFFIXES`.
        style: bold, intervals.
        folder: beside the file, with its figures as PNG; HTML holds them itself.
    """
    from sentcli.pages import html, latex, markdown

    if suffix == ".html":
        return html.render(page, style)
    return {".md": markdown.render, ".tex": latex.render}[suffix](page, style, folder)


def write_page(page: Page, targets: Sequence[Path], style: Style = PLAIN) -> None:
    """Write a page to files, each atomically; what is there is replaced. Markdown and LaTeX have figures beside them.

    Args:
        page: what is shown.
        targets: files with one of `SUFFIXES`.
        style: bold, intervals.
    """
    from sentcli.io.atomic import replacing
    from sentcli.pages.figures import save_figure

    figures = [section.figure for section in page.sections if section.figure is not None]
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = f"{target.stem}-figures" if figures and target.suffix.lower() != ".html" else ""
        for figure in figures if beside else ():
            (target.parent / beside).mkdir(exist_ok=True)
            save_figure(figure, target.parent / beside)
        text = render(page, target.suffix.lower(), style, beside)
        with replacing(target) as temporary:
            temporary.write_text(text, "utf-8", newline="\n")
