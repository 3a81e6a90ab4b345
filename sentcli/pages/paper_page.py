"""The page of the papers' tables: the items with their answers, and a script with what repeats each."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sentcli.evaluation.papers import Paper
from sentcli.pages.page import Page, Section
from sentcli.table import Table

_COMMENT_WIDTH = 110
"""The width of comments of a script."""
ABOUT = (
    "yes: the commands repeat the item, given the data. partly: they repeat a part of it, or the paper leaves open "
    "what decides it. no: nothing repeats it.",
    "The commands train as the papers do, on their models and their text. What came of it here, mostly on smaller "
    "ones, is in the files under results. --against sets the printed rows that are named beside measured scores. Data "
    "such as wiki1m and senteval are those of sentcli data get; names in capitals stand for files of your own, and "
    "models such as infocse for folders of trainings.",
)


def paper_page(papers: Sequence[Paper], title: str) -> Page:
    """Return the page of some papers, with the counts of their answers at its top."""
    counts = []
    total: Counter[str] = Counter()
    sections = []
    columns = ("item", "what it shows", "answer", "what is missing, and why")
    for paper in papers:
        of_paper: dict[Any, int] = dict(paper.counts())
        of_paper["items"] = len(paper.item)
        counts.append({"paper": paper.title, **of_paper})
        total.update(of_paper)
        rows = [[item.name, item.shows, item.answer, item.missing] for item in paper.item]
        table = Table(paper.reference, columns, rows, wide=(columns[1], columns[3]))
        sections.append(Section(paper.title, table=table, code=script(paper)))
    if len(papers) > 1:
        counts.append({"paper": "all", **total})
    first = Section("Counts", table=Table.of_rows("Items by answer", counts))
    return Page(title, [first, *sections], ABOUT)


def script(paper: Paper) -> list[str]:
    """Return the commands of a paper, each item's behind comments with its name, its data and where scores are."""
    wrapper = textwrap.TextWrapper(
        _COMMENT_WIDTH, initial_indent="#   ", subsequent_indent="#     ", break_on_hyphens=False
    )
    lines = []
    for item in paper.item:
        if not (item.commands or item.printed):
            continue
        lines.append(f"# {item.name}")
        about = {"data": item.data, "printed rows": ", ".join(item.printed), "results": ", ".join(item.results)}
        for key, text in about.items():
            if text:
                lines += wrapper.wrap(f"{key}: {text}")
        lines += item.commands
    return lines
