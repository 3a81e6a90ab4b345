"""The page of the papers' tables: each item with its answer, its data, its results and its commands."""

from __future__ import annotations

from collections.abc import Sequence

from sentcli.evaluation.papers import ANSWERS, Item, Paper
from sentcli.pages.page import Page, Section
from sentcli.table import Table

ABOUT = (
    "yes: the commands repeat the item, given the data. partly: they repeat a part of it, or the paper leaves open what "
    "decides it. no: they do not. Numbers are never repeated here: --against sets the printed ones beside measured ones.",
    "Names of data such as wiki1m and senteval are those of sentcli data get; a command that trains on a GPU's worth of "
    "text says what the paper does, not what was run here. A result names the file that has it.",
)


def paper_page(papers: Sequence[Paper], title: str) -> Page:
    """Return the page of some papers, with the counts of their answers at its top."""
    counts = [{"paper": paper.title, **paper.counts(), "items": len(paper.item)} for paper in papers]
    if len(papers) > 1:
        total = {key: sum(paper.counts()[key] for paper in papers) for key in ANSWERS}
        counts.append({"paper": "all", **total, "items": sum(total.values())})
    sections = [Section("Counts", table=Table.of_rows("Counts", counts))]
    for paper in papers:
        table = Table.of_rows(f"{paper.title}: {paper.reference}", [_row(item) for item in paper.item], wide=WIDE)
        sections.append(Section(paper.title, table=table, code=commands(paper)))
    return Page(title, sections, ABOUT)


WIDE = ("shows", "data", "printed rows", "results", "what is missing, and why")


def _row(item: Item) -> dict[str, str]:
    cells = item.shows, item.answer, item.data, ", ".join(item.printed), ", ".join(item.results), item.missing
    return dict(zip(("item", "shows", "answer", *WIDE[1:]), (item.name, *cells), strict=True))


def commands(paper: Paper) -> list[str]:
    """Return the commands of a paper as lines of a script, each item's behind a comment with its name."""
    return [line for item in paper.item if item.commands for line in (f"# {item.name}", *item.commands)]
