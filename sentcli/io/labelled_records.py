"""The files, columns and rows of tables of labelled text; lists of positives and negatives become rows and columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.digests import file_state
from sentcli.io.formats import header, records
from sentcli.io.labelled_kinds import POSITIVE_LISTS, column_name, is_negative
from sentcli.io.packed import unpacked_name
from sentcli.io.sources import FORMATS, Source, say_once
from sentcli.printable import as_text

UNUSED = ("pos_scores", "neg_scores", "prompt")
"""Columns beside lists of positives that change what FlagEmbedding trains, and are not used here."""


def columns_of(source: Source, fields: str | None = None) -> list[str]:
    """Return the names of the columns: of the header line, or of the first 100 rows; an empty list if there is none.

    Args:
        source: the table.
        fields: what ``--pair-fields`` names.

    Raises:
        InputError: for plain text, which has no columns.
    """
    if source.format == "txt":
        problem = f"{source.name}: plain text has no columns"
        if fields:
            problem += f" for --pair-fields {fields}"
        raise InputError(f"{problem}; a table is a .csv, .tsv, .jsonl, .parquet, .xlsx or .ods file")
    names = header(source)
    if names:
        return names
    return list(_names_in_rows(source, fields, file_state(source.path)))


_FIRST_ROWS = 100
"""The rows whose names of columns a table without a header has; one with lists or negatives has those of all rows."""


@lru_cache(maxsize=16)
def _names_in_rows(source: Source, fields: str | None, state: tuple[int, int, int, int]) -> tuple[str, ...]:
    """Return the names in the first rows, or in all of them where rows may differ, once for a file in this state."""
    differ = any(_may_differ(record) for _, record in islice(records(source), _FIRST_ROWS))
    rows = labelled_records(source, fields)
    if not differ:
        rows = islice(rows, _FIRST_ROWS)
    names: dict[str, None] = {}
    for _, record in rows:
        names.update(dict.fromkeys(record))
    return tuple(names)


def _may_differ(record: dict[str, Any]) -> bool:
    """Tell whether other rows may have other numbers of negatives: there are some, or texts stand in lists."""
    return any(isinstance(value, list) or is_negative(name) for name, value in record.items())


def labelled_records(source: Source, fields: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a table in which no text stands in a list.

    A list of negatives becomes the columns ``negative_1``, ``negative_2`` and so on, as many as the row has. A record
    with a list of positives becomes a row for each of them, with the same negatives. Passages with a title have it in
    front of their text.

    Raises:
        DataError: if a negative in a list is null, or a row has no positive.
    """
    lists: _Lists | None = None
    for line, record in records(source):
        if lists is None:
            lists = _Lists.of(record, source, fields)
        lists.expand_negatives(record, source, line)
        if lists.positives is None:
            yield line, record
            continue
        positives = record.get(lists.positives)
        if not isinstance(positives, list) or not positives:
            problem = f"{lists.positives} is {positives!r:.60}, and the first row has a list of texts"
            raise source.error(problem, line)
        for text in positives:
            yield line, {**record, lists.positives: _passage(text)}


@dataclass(frozen=True)
class _Lists:
    """The columns of a table that hold lists of texts, by its first row."""

    positives: str | None
    user_names: frozenset[str]
    """The names that the user gave for columns of negatives."""

    @classmethod
    def of(cls, record: dict[str, Any], source: Source, fields: str | None) -> _Lists:
        """Tell the columns from the first row, and say which others are not used."""
        names = [name for name, value in record.items() if isinstance(value, list)]
        positives = None
        for name in names:
            if column_name(name) in POSITIVE_LISTS:
                positives = name
                break
        user_names: list[str] = []
        if fields is not None:
            user_names = list(map(str.strip, fields.split(",")[2:]))
            if not any(name in names for name in user_names):  # the third one is a score or a label
                user_names = []
        if positives is not None:
            unused = ", ".join(name for name in UNUSED if record.get(name))
            if unused:
                say_once(f"{source.name}: {unused} of each query are not used")
        return cls(positives, frozenset(user_names))

    def expand_negatives(self, record: dict[str, Any], source: Source, line: int) -> None:
        """Put a column for each negative into a row in the place of the lists; null stands for no negative."""
        for name, texts in list(record.items()):
            is_used = name in self.user_names or is_negative(name)
            if not is_used or not (texts is None or isinstance(texts, list)):
                continue
            del record[name]
            for number, text in enumerate(texts or [], 1):
                if text is None:
                    raise source.error(f"{name}_{number} is null", line)
                record[f"{name}_{number}"] = _passage(text)


def _passage(value: Any) -> Any:
    """Return the text of a passage, behind its title if it has one; anything but a passage as it is."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return value
    return f"{value.get('title') or ''} {value['text']}".strip()


def pair_files(name: str) -> list[str]:
    """Return the tables in a folder of pairs in the order of their names, or the name itself if it is a file.

    Raises:
        InputError: if the folder holds no table.
    """
    folder = Path(name)
    if not folder.is_dir():
        return [name]
    suffixes = tuple(suffix for suffix, kind in FORMATS.items() if kind != "txt")
    tables = []
    for path in sorted(folder.iterdir()):
        if unpacked_name(path.name).endswith(suffixes):
            tables.append(str(path))
    if not tables:
        raise InputError(f"{folder} holds no table of pairs ({', '.join(suffixes)})")
    return tables


def task_name(name: str) -> str:
    """Return the name of a table's task, which is its file name without suffixes."""
    name = as_text(unpacked_name(Path(name).name))
    for suffix in FORMATS:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
