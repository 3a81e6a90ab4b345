"""A page as one HTML file that needs no network, with a dark mode, sortable tables, and figures as SVG."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sentcli.console import safe
from sentcli.pages.figures import Point, inline
from sentcli.pages.page import RANKED, SECOND, Page, Style, table_notes
from sentcli.pages.page import environment as templates

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST = 300
"""The greatest length of a text that is shown beside its point, in characters."""
MOST_POINTS = 20_000
"""A figure with more points than this does not show their texts."""
LEAST_LISTED = 3
"""A page with so many sections has a table of contents."""


def render(page: Page, style: Style) -> str:
    """Return the file; the template escapes all texts."""
    from markupsafe import Markup

    # markup and numbers stay as they are
    environment = templates(autoescape=True, finalize=lambda value: safe(value) if type(value) is str else value)
    intervals = style.intervals is not False
    ranked = f"{RANKED}{SECOND}." if style.bold else ""
    parts: list[dict[str, Any]] = []
    points = {}
    for number, section in enumerate(page.sections):
        table, figure = section.table, section.figure
        notes = table_notes(table, ranked=ranked, intervals=intervals) if table is not None else []
        panels = inline(figure) if figure is not None else []
        has_texts = 0 < sum(len(own) for _, own in panels) <= MOST_POINTS
        if has_texts:
            points[number] = _points([own for _, own in panels])
        drawings = [Markup(svg) for svg, _ in panels]
        parts.append({"number": number, "section": section, "notes": notes, "panels": drawings, "has_texts": has_texts})
    css = _asset(environment, "page.css")
    script = _asset(environment, "sort.js") + (_asset(environment, "points.js") if points else "")
    return environment.get_template("page.html").render(
        page=page,
        parts=parts,
        least_listed=LEAST_LISTED,
        points=_data(points) if points else None,
        css=css,
        script=script,
        css_hash=_digest(css),
        script_hash=_digest(script),
        bold=style.bold,
        intervals=intervals,
    )


def _points(panels: Sequence[Sequence[Point]]) -> dict[str, object]:
    """Return the texts and groups of a figure's points, and each panel's points ``[x, y, text, group]`` by number."""
    texts: dict[str, int] = {}
    groups: dict[str, int] = {}
    places = [
        [[x, y, texts.setdefault(text, len(texts)), groups.setdefault(group, len(groups))] for x, y, text, group in own]
        for own in panels
    ]
    shown = [text if len(text) <= LONGEST else f"{text[:LONGEST]}\N{HORIZONTAL ELLIPSIS}" for text in map(safe, texts)]
    return {"texts": shown, "groups": [*map(safe, groups)], "panels": places}


def _data(value: object) -> str:
    """Return JSON for a script element: its texts cannot end the element or begin a comment."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _asset(environment: Environment, name: str) -> str:
    """Return a style sheet or script, which holds no values that would have to be escaped."""
    from markupsafe import Markup

    return Markup(environment.loader.get_source(environment, name)[0]) if environment.loader else ""


def _digest(text: str) -> str:
    """Return the entry of the page's policy that allows this script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
