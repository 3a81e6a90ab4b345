"""The hits of queries on the console, several ways of searching side by side, and in a file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sentcli.io.atomic import replacing
from sentcli.printable import escaped, safe, without_secrets
from sentcli.search.corpus import PLACE_COLUMNS, has_passages

if TYPE_CHECKING:
    from rich.table import Table as Grid
    from rich.text import Text

    from sentcli.search.corpus import Hit

Shown = dict[tuple[Any, str], int]
"""The rank at which a title and a text were shown first."""


LEAST_WIDTH = 50
"""Characters of the screen for each way of searching, below which they stand one below the other."""


@dataclass(frozen=True)
class HitsGrid:
    """The hits of a query for the console, which chooses by its width how several modes of searching are shown."""

    query: str
    hits_by_mode: Mapping[str, Sequence[Hit]]

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Grid]:
        """Yield one table, or one for each mode."""
        if len(self.hits_by_mode) == 1 or options.max_width >= LEAST_WIDTH * len(self.hits_by_mode):
            yield hits_grid(self.query, self.hits_by_mode)
            return
        from rich.text import Text

        for mode, hits in self.hits_by_mode.items():
            grid = hits_grid(self.query, {mode: hits})
            grid.title = Text(f"{mode}: {_beginning(self.query)}")
            yield grid


def hits_grid(query: str, hits_by_mode: Mapping[str, Sequence[Hit]]) -> Grid:
    """Return the hits of a query for the console, several modes of searching side by side.

    A hit has its rank, id, score, the probability that it is right where one is kept, and the beginning of its title
    and text with the words of the query marked, also with other endings. A text that several hits share is shown with
    the first of them.
    """
    from rich.table import Table as Grid
    from rich.text import Text

    several = len(hits_by_mode) > 1
    table = Grid(title=Text(_beginning(query)), title_justify="left")
    table.add_column("rank", justify="right")
    for mode in hits_by_mode:
        table.add_column(f"{mode}: id" if several else "id", overflow="fold")
        table.add_column("score", justify="right")
        table.add_column("text", overflow="fold", ratio=1)
    if not any(hits_by_mode.values()):
        return table
    words = _marked_words(query)
    shown_of_modes: list[Shown] = [{} for _ in hits_by_mode]
    for hits in zip_longest(*hits_by_mode.values()):
        cells: list[str | Text] = []
        rank = 0
        for hit, shown in zip(hits, shown_of_modes, strict=True):
            if hit is None:
                cells += ["", "", ""]
                continue
            rank = hit.rank
            text = _text_of(hit, shown)
            if not several:
                _add_columns(text, hit)
            if words is not None:
                text.highlight_regex(words, "bold yellow")
            score = hit.score if hit.rerank_score is None else hit.rerank_score
            number = f"{score:.4f}"
            if hit.probability is not None:
                number += f"\n{100 * hit.probability:.0f} %"
            cells += [Text(safe(hit.row.id)), number, text]
        table.add_row(str(rank), *cells)
    return table


def _marked_words(query: str) -> re.Pattern[str] | None:
    """Return what finds the longer words of a query, also with other endings; None if it has none."""
    words = sorted(set(re.findall(r"\w{4,}", query.casefold())))
    if not words:
        return None
    words.sort(key=len, reverse=True)
    either = "|".join(map(re.escape, words))
    return re.compile(rf"\b(?:{either})\w*", re.IGNORECASE)


def _text_of(hit: Hit, shown: Shown) -> Text:
    """Return title and text of a hit, or where the same stands already."""
    from rich.text import Text

    row = hit.row
    title = row.columns.get("title")
    first = shown.setdefault((title, row.text), hit.rank)
    if first < hit.rank:
        return Text(f"the same text as rank {first}", "dim not bold")
    text = Text(style="bold")
    if title:
        text.append(f"{_beginning(str(title))}\n")
    text.append(_beginning(row.text), "not bold")
    return text


def _add_columns(text: Text, hit: Hit) -> None:
    """Add the other columns of a hit that hold something."""
    columns = dict(hit.row.columns)
    if has_passages(columns):
        document, _, start, end = (columns.pop(name) for name in PLACE_COLUMNS)
        place = safe(str(document))
        text.append(f"\n{place}, characters {start:,} to {end:,}", "dim not bold")
    columns.pop("title", None)
    for name, value in columns.items():
        if value is not None and value != "":
            beginning = _beginning(str(value))
            text.append(f"\n{safe(name)}: {beginning}", "dim not bold")


def _beginning(text: str) -> str:
    text = without_secrets(text)
    if len(text) > 300:
        text = f"{text[:300].rstrip()} [...]"
    return safe(text)


def hits_json(query: tuple[str | None, str], mode: str | None, hits: Sequence[Hit]) -> dict[str, Any]:
    """Return the entry of the JSON of a query, with the mode of searching where there are several."""
    key, text = query
    line: dict[str, Any] = {}
    if key is not None:
        line["id"] = key
    line["query"] = text
    if mode is not None:
        line["search"] = mode
    line["hits"] = [hit.to_dict() for hit in hits]
    return line


def write_lines(file: TextIO, lines: Iterable[dict[str, Any]], *, escape: bool) -> None:
    """Write entries as JSON Lines; for a terminal, characters that would act on it are escaped."""
    for line in lines:
        text = json.dumps(line, ensure_ascii=False, default=str) + "\n"
        file.write(escaped(text) if escape else text)


@contextmanager
def hits_file(target: str | None) -> Iterator[TextIO | None]:
    """Open the file of ``--hits``, if there is one; it appears when it is complete."""
    if target is None:
        yield None
    elif target == "-":
        yield sys.stdout
        sys.stdout.flush()
    else:
        with replacing(Path(target)) as temporary, temporary.open("w", encoding="utf-8") as handle:
            yield handle
