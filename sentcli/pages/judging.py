"""The page on which people judge what models found for queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.pages.write import html, script_data

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
    rows = [[[entry.query.id, entry.query.text], entry.documents] for entry in pool]
    page = html(
        "judge.html",
        ["page.css", "judge.css"],
        ["judge.js"],
        title=title,
        pool=pool,
        grades=GRADE_NAMES,
        command=command,
        rows=script_data(rows),
    )
    target.write_text(page, "utf-8", newline="\n")
