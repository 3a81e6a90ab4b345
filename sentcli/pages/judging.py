"""The page on which people judge what models found for queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.pages.write import asset, digest, made_safe, script_data, templates

if TYPE_CHECKING:
    from sentcli.testset.judging import PooledQuery

GRADE_NAMES = ("not relevant", "partly", "answers it")
"""The names of the grades 0, 1 and 2."""


def write_judging_page(target: Path, title: str, pool: Sequence[PooledQuery], command: str) -> None:
    """Write an HTML file with a choice of grades for each document, which gives the judgements as a file.

    It needs no network, keeps what was judged in the browser, and names no model.

    Args:
        target: the file.
        title: of the page.
        pool: queries with their documents.
        command: what the user types when all is judged.
    """
    environment = templates(autoescape=True, finalize=made_safe)
    css = asset(environment, "page.css") + asset(environment, "judge.css")
    script = asset(environment, "judge.js")
    rows = [[[entry.query.id, entry.query.text], entry.documents] for entry in pool]
    html = environment.get_template("judge.html").render(
        title=title,
        pool=pool,
        grades=GRADE_NAMES,
        command=command,
        rows=script_data(rows),
        css=css,
        script=script,
        css_hash=digest(css),
        script_hash=digest(script),
    )
    target.write_text(html, "utf-8", newline="\n")
