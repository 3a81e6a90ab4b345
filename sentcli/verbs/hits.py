"""The hits of searching a corpus: as tables, as JSON, and the counts of ``--count-by``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from sentcli.console import safe
from sentcli.model.options import LoadOptions
from sentcli.table import Table

if TYPE_CHECKING:
    from rich.table import Table as Grid
    from rich.text import Text as RichText

    from sentcli.search.corpus import Hit
    from sentcli.search.options import SearchOptions
    from sentcli.verbs.options import CorpusOptions

SHOWN = 20
"""Queries whose hits are printed as tables."""
TOP_K = 10
"""Hits of each query unless another number is given."""
COUNTED = 20
"""Values of a column that are printed with their counts."""
SNIPPET = 300
"""Characters of a hit's text that a table shows."""
LEAST_LETTERS = 4
"""A word of the query is marked in the hits if it has so many letters."""


@dataclass(frozen=True)
class CorpusSearch:
    """A search of a corpus: which one, with which queries, and how."""

    models: Sequence[str]
    """The model to search with; none for BM25, or for the model that made stored vectors."""
    corpus: CorpusOptions
    """The corpus and the queries."""
    search: SearchOptions
    """How queries and documents are compared."""
    load: LoadOptions
    """How the model is loaded."""

    @property
    def counts_only(self) -> bool:
        """Whether rows are counted and no query is searched."""
        return self.corpus.count_by is not None and not self.has_queries

    @property
    def has_queries(self) -> bool:
        """Whether the command line names what to search for."""
        return bool(self.corpus.query or self.corpus.like) or self.corpus.queries is not None


def count_table(column: str, values: Sequence[tuple[Any, int]]) -> Table:
    """Return how many rows have each value of a column, the first ones."""
    rows = [["(none)" if value is None else str(value), count] for value, count in values]
    more = len(rows) - COUNTED
    notes = [f"{more:,} more values are in the JSON (--json)."] if more > 0 else []
    return Table(f"rows by {column}", [column, "rows"], rows[:COUNTED], formats={"rows": ",d"}, notes=notes)


def hits_grid(query: str, hits_by_way: Mapping[str, Sequence[Hit]]) -> Grid:
    """Return the hits of a query for the console, several ways side by side.

    A hit has its rank, id, score, and the beginning of its title and text with the words of the query marked.
    """
    from rich.table import Table as Grid
    from rich.text import Text

    table = Grid(title=Text(safe(_short(query))), title_justify="left")
    table.add_column("rank", justify="right")
    several = len(hits_by_way) > 1
    for way in hits_by_way:
        table.add_column(f"{way}: id" if several else "id", overflow="fold")
        table.add_column("score", justify="right")
        table.add_column("text", overflow="fold", ratio=1)
    words = _word_pattern(query)
    for hits in zip_longest(*hits_by_way.values()):
        cells: list[str | Text] = []
        for hit in hits:
            if hit is None:
                cells += ["", "", ""]
                continue
            text = _shown_text(hit.row.text, {} if several else hit.row.columns, hit.row.columns.get("title"))
            if words is not None:
                text.highlight_regex(words, "bold yellow")
            cells += [Text(safe(hit.row.id)), f"{hit.score:.4f}", text]
        table.add_row(str(next(hit.rank for hit in hits if hit is not None)), *cells)
    return table


def _shown_text(text: str, columns: Mapping[str, Any], title: Any) -> RichText:
    """Return the title, the text and the other columns of a hit, each as its beginning."""
    from rich.text import Text

    shown = Text(f"{safe(_short(str(title)))}\n" if title else "", "bold")
    shown.append(safe(_short(text)), "not bold")
    for name, value in columns.items():
        if value is not None and value != "" and name != "title":
            shown.append(f"\n{safe(name)}: {safe(_short(str(value)))}", "dim not bold")
    return shown


def _short(text: str) -> str:
    return text if len(text) <= SNIPPET else f"{text[:SNIPPET].rstrip()} [...]"


def _word_pattern(query: str) -> re.Pattern[str] | None:
    """Return a pattern of the longer words of a query, also with other endings; None if there are no such words."""
    words = {word for word in re.findall(r"\w+", query.casefold()) if len(word) >= LEAST_LETTERS}
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\w*", re.IGNORECASE) if words else None
