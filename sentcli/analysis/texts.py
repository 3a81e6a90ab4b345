"""The texts that are analysed: the distinct ones of a file, or a sample of them, with their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.sources import title_of

if TYPE_CHECKING:
    from sentcli.io.readers import Row
    from sentcli.io.sampling import TextSample

LEAST_ITEMS = 10
"""The least number of distinct texts, vectors or pairs of an analysis."""


@dataclass(frozen=True)
class FirstRow:
    """The first row of a file that has a certain text."""

    line: int
    """Number of the row, from 1."""
    position: int
    """Number of the row among those that have a text, from 0: its row in the vectors of ``encode --on-null skip``."""
    columns: dict[str, Any]
    """Values of the columns other than the text."""
    id: str
    """The value of the column of ids, else the number of the row from 0, as `encode` writes it."""


@dataclass(frozen=True)
class TextRows:
    """The distinct texts of a file that are not blank, or a sample of them."""

    first: dict[str, FirstRow]
    """The first row of each text, in the order of the file."""
    total: int
    """The number of rows with a text."""
    sample: TextSample

    @property
    def texts(self) -> list[str]:
        """``[n]``."""
        return list(self.first)

    def drawn(self, limit: int, seed: int) -> TextRows:
        """Return the rows of a sample of the texts."""
        from sentcli.io.sampling import DistinctTexts

        distinct = DistinctTexts[FirstRow](limit, seed)
        for text, row in self.first.items():
            distinct.add(text, row)
        return TextRows(distinct.texts, self.total, distinct.sample)


def every_row(file: str, text_field: str, id_field: str | None) -> Iterator[tuple[str, Row | None]]:
    """Yield the id of every row of a file of texts, by default its number, and the row, or None if it has no text."""
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.text_inputs import text_sources

    options = ReadOptions(text_field=text_field, id_field=id_field, on_null="skip", with_null=True)
    of_sources = (rows(source, options) for source in text_sources([file]))
    for number, row in enumerate(chain.from_iterable(of_sources)):
        assert row is not None
        row_id = str(number) if row.id is None else row.id
        if row.is_null:
            yield row_id, None
        else:
            yield row_id, row


def read_distinct_texts(
    file: str, text_field: str = "text", limit: int | None = None, *, seed: int = 0, id_field: str | None = None
) -> TextRows:
    """Read the distinct texts of a file that are not blank, in the order of the file.

    Args:
        file: texts, one a line or a row of a table.
        text_field: the column of a table.
        limit: the greatest number of distinct texts; of more a sample is drawn, which is said.
        seed: of the sample.
        id_field: the column of the ids; None takes ``id``, else ``_id``, else the number of the row.

    Raises:
        DataError: for a file that cannot be read.
        InputError: if there are fewer texts than `LEAST_ITEMS`.
    """
    from sentcli.io.sampling import DistinctTexts

    distinct = DistinctTexts[FirstRow](limit, seed)
    total = 0
    for line, (row_id, row) in enumerate(every_row(file, text_field, id_field), 1):
        if row is None:  # a null, of which encode --on-null skip makes no vector
            continue
        if row.text.strip():
            distinct.add(row.text, FirstRow(line, total, row.extras, row_id))
        total += 1
    check_sample(distinct.sample, file, total)
    return TextRows(distinct.texts, total, distinct.sample)


def check_sample(sample: TextSample, source: str, total: int) -> None:
    """Check that there are enough distinct texts, and say if not all of them are taken.

    Args:
        sample: how many distinct texts there are.
        source: the file, for the message.
        total: the number of texts in it, with repetitions.

    Raises:
        InputError: if there are fewer than `LEAST_ITEMS`.
    """
    source = title_of(source)
    if sample.of == 1 and total > 1:
        raise InputError(f"{source}: all {total} texts are the same; an analysis compares different ones")
    if sample.of < LEAST_ITEMS:
        raise InputError(f"{source}: {sample.of} distinct texts; an analysis needs at least {LEAST_ITEMS}")
    if sample.texts < sample.of:
        console.note(f"{source}: {sample.words} are taken (--limit)")


def short_text(text: str, longest: int = 120) -> str:  # characters of a text in a table
    """Return the beginning of a text, cut at a word where there is one."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    if " " in head:
        head = head.rsplit(" ", 1)[0]
    return f"{head}\N{HORIZONTAL ELLIPSIS}"
