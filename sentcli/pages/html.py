"""A page as one HTML file: no network, light and dark, tables that sort, figures as SVG, maps that tell their texts."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from sentcli.pages.figures import inline
from sentcli.pages.page import RANKED, SECOND, Figure, Page, Style, table_notes
from sentcli.pages.page import environment as templates
from sentcli.printable import safe

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST = 300
"""Characters of a text that is shown beside its point."""
TOLD = 20_000
"""Points of a figure up to which a page holds their texts."""
LISTED = 3
"""Sections from which on a page has a list of them."""


def render(page: Page, style: Style) -> str:
    """Return the file. Everything that comes from results is escaped by the template."""
    from markupsafe import Markup

    environment = templates(autoescape=True, finalize=_shown)
    intervals = style.intervals is not False
    ranked = f"{RANKED}{SECOND}." if style.bold else ""
    parts: list[dict[str, Any]] = []
    points = {}
    for number, section in enumerate(page.sections):
        table, figure = section.table, section.figure
        notes = table_notes(table, ranked=ranked, intervals=intervals) if table is not None else []
        panels = inline(figure) if figure is not None else []
        told = figure is not None and figure.points is not None and len(figure.points) <= TOLD
        if told and figure is not None:
            points[number] = _points(figure, [places for _, places in panels])
        shown = {"notes": notes, "panels": [Markup(svg) for svg, _ in panels], "told": told}
        parts.append({"number": number, "section": section, **shown})
    css = _asset(environment, "page.css")
    script = _asset(environment, "sort.js") + (_asset(environment, "points.js") if points else "")
    return environment.get_template("page.html").render(
        page=page,
        parts=parts,
        least_listed=LISTED,
        points=_data(points) if points else None,
        css=css,
        script=script,
        css_hash=_digest(css),
        script_hash=_digest(script),
        bold=style.bold,
        intervals=intervals,
    )


def _points(figure: Figure, places: list[list[list[float]]]) -> dict[str, object]:
    """Return the texts and groups of a figure's points, and for each panel ``[x, y, text, group]`` of each point."""
    points = figure.points
    assert points is not None
    texts = {text: i for i, text in enumerate(dict.fromkeys(points["text"]))}
    groups = {group: i for i, group in enumerate(dict.fromkeys(points["group"]))}
    panels = []
    for number, each in enumerate(places):
        inside = points[points["panel"] == number]
        named = zip(each, inside["text"], inside["group"], strict=True)
        panels.append([[x, y, texts[text], groups[group]] for (x, y), text, group in named])
    shown = [text if len(text) <= LONGEST else f"{text[:LONGEST]}\N{HORIZONTAL ELLIPSIS}" for text in map(safe, texts)]
    return {"texts": shown, "groups": [safe(str(group)) for group in groups], "panels": panels}


def _data(value: object) -> str:
    """Return JSON that may stand within a script element: nothing in it ends the element or begins a comment."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _shown(value: Any) -> Any:
    """Make texts safe; markup and numbers stay as they are."""
    return safe(value) if type(value) is str else value


def _asset(environment: Environment, name: str) -> str:
    """Return style or script; they hold no values, so nothing in them is escaped."""
    from markupsafe import Markup

    return Markup(environment.loader.get_source(environment, name)[0]) if environment.loader else ""


def _digest(text: str) -> str:
    """Return what the page's own policy allows: this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
