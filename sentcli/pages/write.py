"""Writing pages to files, in the format of the suffix."""

from __future__ import annotations

import shutil
from pathlib import Path

from sentcli.errors import InputError
from sentcli.pages.page import PLAIN, Page, Style

SUFFIXES = (".html", ".md", ".tex")


def check_suffix(target: Path) -> None:
    """Check the suffix of a file.

    Raises:
        InputError: if it is none of `SUFFIXES`.
    """
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"{target}: a report is written as {', '.join(SUFFIXES)}; the suffix chooses")


def render(page: Page, suffix: str, style: Style = PLAIN, folder: str = "") -> str:
    """Return a page as text.

    Args:
        page: the page.
        suffix: one of `SUFFIXES`.
        style: whether bold marks and intervals are shown.
        folder: name of the folder beside the file that has the figures as PNG; HTML holds them itself.
    """
    from sentcli.pages import html, latex, markdown

    if suffix == ".html":
        return html.render(page, style)
    return {".md": markdown.render, ".tex": latex.render}[suffix](page, style, folder)


def write_page(page: Page, target: Path, style: Style = PLAIN) -> None:
    """Write a page, atomically replacing a file that exists; Markdown and LaTeX have the figures in a folder beside it.

    Args:
        page: the page.
        target: a file with one of `SUFFIXES`.
        style: whether bold marks and intervals are shown.
    """
    from sentcli.io.atomic import check_output, replacing
    from sentcli.pages.figures import save_figure

    target.parent.mkdir(parents=True, exist_ok=True)
    figures = [section.figure for section in page.sections if section.figure is not None]
    folder = f"{target.stem}-figures" if figures and target.suffix.lower() != ".html" else ""
    if folder:
        check_output(target.parent / folder, resume=True, folder=True)
        with replacing(target.parent / folder) as temporary:
            if (target.parent / folder).is_dir():  # it may hold what others have put there
                shutil.copytree(target.parent / folder, temporary)
            temporary.mkdir(exist_ok=True)
            for figure in figures:
                save_figure(figure, temporary)
    text = render(page, target.suffix.lower(), style, folder)
    with replacing(target) as temporary:
        temporary.write_text(text, "utf-8", newline="\n")
