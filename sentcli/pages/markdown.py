"""A page as GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sentcli.console import safe
from sentcli.pages.page import RANKED, Page, Style, render_template

SIGNS = re.compile(r"([\\`*_\[\]<>&|~#$!^])")
"""Signs that are markup anywhere in a line."""
LINE_SIGNS = re.compile(r"^(\s*)([-+=]|\d+[.)])")
"""Signs that make a list or a rule at the start of a line."""


def render(page: Page, style: Style, folder: str = "") -> str:
    """Return the file.

    Args:
        page: the page.
        style: whether bold marks and intervals are shown.
        folder: name of the folder beside the file that has the figures as PNG; without one, figures are left out.
    """
    filters = {"text": escape, "line": _line, "fence": _fence}
    return render_template("page.md", page, style, folder, f"{RANKED}.", filters)


def escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return SIGNS.sub(r"\\\1", safe(text))


def _line(text: str) -> str:
    """Return an escaped text that stands on a line of its own."""
    return LINE_SIGNS.sub(lambda sign: f"{sign[1]}{sign[2][:-1]}\\{sign[2][-1]}", escape(text))


def _fence(code: Sequence[str]) -> str:
    """Return the fence of a block of code, which is longer than any run of backticks in it."""
    return "`" * max(3, 1 + max((len(run) for line in code for run in re.findall("`+", line)), default=0))
