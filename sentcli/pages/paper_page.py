"""The page of the papers' tables: the items with their answers, and a script with what repeats each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from sentcli.evaluation.papers import ANSWERS, Item, Paper
from sentcli.pages.page import Page, Section
from sentcli.table import Table

WIDTH = 110
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
    counts = [{"paper": paper.title, **paper.counts(), "items": len(paper.item)} for paper in papers]
    if len(papers) > 1:
        total = {"paper": "all"}
        for key in (*ANSWERS, "items"):
            total[key] = sum(of_paper[key] for of_paper in counts)
        counts.append(total)
    sections = [Section("Counts", table=Table.of_rows("Items by answer", counts))]
    for paper in papers:
        columns = ("item", "what it shows", "answer", "what is missing, and why")
        rows = [[item.name, item.shows, item.answer, item.missing] for item in paper.item]
        table = Table(paper.reference, columns, rows, wide=(columns[1], columns[3]))
        sections.append(Section(paper.title, table=table, code=script(paper)))
    return Page(title, sections, ABOUT)


def script(paper: Paper) -> list[str]:
    """Return the commands of a paper, each item's behind comments with its name, its data and where scores are."""
    lines = []
    for item in paper.item:
        if item.commands or item.printed:
            lines += [*_comments(item), *item.commands]
    return lines


def _comments(item: Item) -> list[str]:
    """Return the lines above the commands of an item."""
    about = {"data": item.data, "printed rows": ", ".join(item.printed), "results": ", ".join(item.results)}
    lines = [f"# {item.name}"]
    for key, text in about.items():
        if text:
            lines += textwrap.wrap(
                f"{key}: {text}", WIDTH, initial_indent="#   ", subsequent_indent="#     ", break_on_hyphens=False
            )
    return lines
