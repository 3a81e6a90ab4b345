"""Pages to files: the suffix says how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentcli.errors import InputError
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
    """Write a page to files, each atomically; what is there is replaced.

    Args:
        page: what is shown.
        targets: files with one of `SUFFIXES`.
        style: bold, intervals.
    """
    from sentcli.io.atomic import replacing

    for target in targets:
        text = render(page, target.suffix.lower(), style)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            temporary.write_text(text, "utf-8", newline="\n")
