"""A page as one HTML file: no network, light and dark, tables that sort, figures as SVG."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from sentcli.figures.figure import Figure
from sentcli.figures.write import inline
from sentcli.printable import safe
from sentcli.reports.page import RANKED, SECOND, DotPlot, Page, Section, Style, between
from sentcli.reports.svg import draw

if TYPE_CHECKING:
    from jinja2 import Environment


def render(page: Page, style: Style) -> str:
    """Return the file. Everything that comes from results is escaped by the template."""
    environment = _environment()
    css, script = (_asset(environment, name) for name in ("page.css", "sort.js"))
    intervals = style.intervals is not False
    return environment.get_template("page.html").render(
        page=page,
        parts=_parts(page),
        css=css,
        script=script,
        css_hash=_digest(css),
        script_hash=_digest(script),
        bold=style.bold,
        intervals=intervals,
        ranked=f"{RANKED}{SECOND}.",
        drawings={
            i: draw(one.figure, intervals) for i, one in enumerate(page.sections) if isinstance(one.figure, DotPlot)
        },
        charts={i: _chart(one.figure) for i, one in enumerate(page.sections) if isinstance(one.figure, Figure)},
    )


def _chart(figure: Figure) -> list[str]:
    """Return the panels of a figure; what they hold of results is escaped by what draws them."""
    from markupsafe import Markup

    return [Markup(panel) for panel in inline(figure)]


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("sentcli.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: safe(value) if type(value) is str else value,  # Markup and numbers stay as they are
    )
    made.filters["between"] = between
    return made


def _asset(environment: Environment, name: str) -> str:
    """Return style or script; they hold no values, so nothing in them is escaped."""
    from markupsafe import Markup

    return Markup(environment.loader.get_source(environment, name)[0]) if environment.loader else ""


def _digest(text: str) -> str:
    """Return what the page's own policy allows: this text and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _parts(page: Page) -> list[tuple[int, Section]]:
    return list(enumerate(page.sections))
