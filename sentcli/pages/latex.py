"""A page as LaTeX tables (booktabs), to be read into a document."""

from __future__ import annotations

import re

from sentcli.console import safe
from sentcli.errors import InputError
from sentcli.pages.page import RANKED, SECOND, Page, Style, render_template

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
"""Signs that TeX would join, such as two hyphens to a dash."""
LEVELS = {1: "section", 2: "subsection", 3: "subsubsection"}
MARKS = {"": "%s", "best": r"\textbf{%s}", "second": r"\underline{%s}"}


def render(page: Page, style: Style, folder: str = "") -> str:
    """Return the file.

    Args:
        page: the page.
        style: whether bold marks and intervals are shown.
        folder: name of the folder beside the file that has the figures as PNG; without one, figures are left out.
    """
    filters = {"text": escape, "slug": _slug}
    if not re.fullmatch(r"[\w ./+=,@-]*", folder):
        raise InputError(f"{folder}: LaTeX cannot take figures from a folder of this name; call the page otherwise")
    return render_template("page.tex", page, style, folder, f"{RANKED}{SECOND}.", filters, levels=LEVELS, marks=MARKS)


def escape(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    separated = LIGATURES.sub("\\1\0", safe(text))
    return "".join(SIGNS.get(sign, sign) for sign in separated).replace("\0", "{}")


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
