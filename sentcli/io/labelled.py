"""Tables of labelled text: pairs with a score, 0/1 or a class, anchors and positives, triplets, and texts with a class.

Training, evaluation and every command that takes ``--pair-fields`` read them here, from csv, tsv, jsonl, parquet and
spreadsheets. `labelled_kinds` tells what a table holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.formats import as_text, headless, is_null, kind_of, say_quoted
from sentcli.io.labelled_kinds import (
    COLUMNS,
    IN_WORDS,
    Kind,
    Layout,
    columns_of,
    kinds_of,
    labelled_records,
    tell,
    text_columns,
)
from sentcli.io.labelled_values import number_of, sure_label
from sentcli.io.sources import Source, open_source

__all__ = ["COLUMNS", "Kind", "LabelledTable", "columns_of", "kinds_of", "read_table", "tell"]

OnEmpty = Literal["keep", "error", "skip"]
SCORE_RANGES = ((0.0, 1.0), (0.0, 5.0), (0.0, 10.0), (0.0, 100.0), (-1.0, 1.0))
"""The usual ranges of scores; the first one that holds all scores of a table is taken."""
NAMED_ROWS = 10
"""How many rows with empty cells or contradictions are named."""


@dataclass(frozen=True)
class LabelledTable:
    """The rows of one table."""

    name: str
    """The file, as the user named it."""
    kind: Kind
    columns: tuple[str, ...]
    """The names of the columns of text, and of the column of values if there is one."""
    texts: tuple[list[str], ...]
    """A list for each column of text: both sentences; anchors, positives and each of the negatives; or texts alone."""
    values: list[float] | list[str] | None
    """The score, the label 0 or 1, or the class of each row; None for pairs and triplets."""
    lines: list[int]
    """The number of each row in the file, from 1."""
    unit: Literal["line", "row"] = "line"
    """What `lines` counts."""
    positive_word: str = "1"
    """The text that stands for 1 in the column of labels of 0/1 pairs."""
    empty: tuple[tuple[int, str], ...] = ()
    """The line and the column of each empty cell, if their rows were left out."""
    groups: list[str] | None = None
    """The value of each row in the column `group_by`; rows of one value belong together."""
    group_by: str = ""

    def __len__(self) -> int:
        return len(self.lines)

    def of_rows(self, rows: Sequence[int]) -> LabelledTable:
        """Return the table with some of its rows, given by their positions from 0."""
        texts = tuple([column[row] for row in rows] for column in self.texts)
        values: Any = None if self.values is None else [self.values[row] for row in rows]
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        return replace(self, texts=texts, values=values, lines=[self.lines[row] for row in rows], groups=groups)

    @property
    def taken(self) -> str:
        """What the table was taken for, with its first row: ``0/1 pairs: a, b, label; 149 of 400 are 1; line 2:``."""
        facts, values = f"{len(self):,} rows", self.values or []
        if self.kind == "binary":
            duplicates = "duplicate" in f"{self.columns[-1]} {self.positive_word}".casefold()
            count = sum(value == 1 for value in values)
            facts = f"{count:,} of {len(self):,} are {'duplicates' if duplicates else self.positive_word}"
        elif self.kind == "scored":
            facts = f"{len(self):,} pairs, scores from {min(map(float, values)):g} to {max(map(float, values)):g}"
        elif self.kind in ("labels", "classed-pairs"):
            what = "texts" if self.kind == "labels" else "pairs"
            facts = f"{len(self):,} {what} of {len(set(values)):,} classes"
        first = [repr(texts[0][:60]) for texts in self.texts]
        first += [value if isinstance(value, str) else f"{value:g}" for value in values[:1]]
        example = f"{self.unit} {self.lines[0]}: {' | '.join(first)}"
        return f"{IN_WORDS[self.kind]}: {', '.join(name.strip() for name in self.columns)}; {facts}; {example}"

    @property
    def skipped(self) -> int:
        """The number of rows with an empty cell that were left out."""
        return len(dict(self.empty))

    def contradictions(self) -> list[list[int]]:
        """Return the rows, from 0, of equal texts whose labels, scores, classes or positives differ."""
        by_texts: dict[Any, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
        for row, texts in enumerate(zip(*self.texts, strict=True)):
            key = (texts[0], *sorted(texts[1:])) if self.kind == "triplets" else tuple(sorted(texts))
            if self.kind == "classed-pairs":  # one text may follow from the other, and not the other from it
                key = texts
            value = texts[1] if self.values is None else self.values[row]
            by_texts[key][value].append(row)
        groups = by_texts.values() if self.kind != "pairs" else ()
        return [sorted(row for rows in group.values() for row in rows) for group in groups if len(group) > 1]

    def error(self, row: int, problem: str) -> DataError:
        """Return the error that names the file and the line of a row, which is given by its position from 0."""
        return DataError(self.name, problem, line=self.lines[row], unit=self.unit)


def read_table(
    file: str | Source,
    *,
    kind: Kind | None = None,
    fields: str | None = None,
    on_empty: OnEmpty = "keep",
    group_by: str | None = None,
    problems: list[InputError] | None = None,
) -> LabelledTable:
    """Read a table of labelled text.

    Args:
        file: csv, tsv, jsonl, parquet, arrow, xlsx or ods, also compressed; a path, or what `open_source` returned.
        kind: of the table; None tells it from the names of the columns, and then from all values.
        fields: other names of the columns, separated by commas: both sentences and the value for ``scored``,
            ``binary`` and ``classed-pairs``, anchor and positive for ``pairs``, anchor, positive and at least one
            negative for ``triplets``, text and class for ``labels``. Without a kind, two columns are pairs; of three,
            all values of the third decide between 0/1 pairs, scored pairs and triplets.
        on_empty: what becomes of rows with an empty cell in one of the columns: texts are kept, all are an error, or
            the rows are left out and counted.
        group_by: a column whose equal values name the rows that belong together.
        problems: receives the errors of rows, which are left out; None raises the first one.

    Raises:
        InputError: if there is no such file, it has no columns, or `fields` does not fit the kind.
        DataError: if the columns fit no kind or several, a column is missing, or a value is null or of another type.
    """
    source = open_source(file) if isinstance(file, str) else file
    layout = tell(source, kind=kind, fields=fields)
    kind, names, present = layout.kind, layout.columns, columns_of(source, fields)
    texts: list[list[str]] = [[] for _ in range(text_columns(kind, names))]
    values: list[Any] | None = [] if len(texts) < len(names) else None
    lines: list[int] = []
    groups: list[str] = []
    empty: list[tuple[int, str]] = []
    for line, record in labelled_records(source, fields):
        try:
            row = _row(record, names, present, source)
            if on_empty != "keep" and (lacking := [n for n, cell in zip(names, row, strict=True) if is_empty(cell)]):
                empty += [(line, name) for name in lacking]
                continue
            cells = [_text(cell, name, source) for name, cell in zip(names, row[: len(texts)], strict=False)]
            label = None if values is None else _label(row[-1], names[-1], layout)
            group = _group(record, group_by)
        except ValueError as error:
            problem = DataError(source.name, str(error), line=line, unit=source.unit)
            if problems is None:
                raise problem from None
            problems.append(problem)
            continue
        for column, cell in zip(texts, cells, strict=True):
            column.append(cell)
        if values is not None:
            values.append(label)
        if group is not None:
            groups.append(group)
        lines.append(line)
    if not lines and not empty:
        raise DataError(source.name, "no row can be read")
    if not lines or (empty and on_empty == "error"):
        raise empty_cells(source, empty)
    word = next((word for word, value in layout.words.items() if value == 1), "1")
    of_rows = (tuple(texts), values, lines, source.unit)
    table = LabelledTable(source.name, kind, names, *of_rows, positive_word=word, empty=tuple(empty))
    return table if group_by is None else replace(table, groups=groups, group_by=group_by)


def _text(cell: Any, name: str, source: Source) -> str:
    """Return a cell that has to be a text."""
    if not isinstance(cell, str):
        raise ValueError(f"{name} is {_shown(cell)}, expected a text")
    say_quoted(source, cell)
    return cell


def _row(record: dict[str, Any], names: Sequence[str], present: Sequence[str], source: Source) -> list[Any]:
    """Return the cells of a row; an empty one of a spreadsheet is an empty text, as in csv."""
    row = [_value(record, name, names, present) for name in names]
    return ["" if cell is None else cell for cell in row] if source.format == "sheet" else row


def _group(record: dict[str, Any], name: str | None) -> str | None:
    """Return the value of the column of groups as text, if there is one."""
    if name is None:
        return None
    if name not in record:
        raise ValueError(f"no column {name!r} of groups{nearest(name, list(record))}; it has {', '.join(record)}")
    if is_null(record[name]):
        raise ValueError(f"{name} is {kind_of(record[name])}, and names the group of the row")
    return str(as_text(record[name]))


def is_empty(value: Any) -> bool:
    """Tell whether a cell holds nothing: null, NaN, or nothing but white space."""
    return is_null(value) or (isinstance(value, str) and not value.strip())


def empty_cells(source: Source, empty: list[tuple[int, str]]) -> DataError:
    """Return the error of empty cells, given their lines and columns; it names the first ten."""
    (first, column), *others = empty
    places = ", ".join(f"{source.unit} {line} ({name})" for line, name in others[: NAMED_ROWS - 1])
    more = f", and {len(others):,} more cells: {places}{', ...' if len(others) >= NAMED_ROWS else ''}" if others else ""
    problem = f"{column} is empty{more}; evaluate --skip-empty leaves such rows out"
    return DataError(source.name, problem, line=first, unit=source.unit)


def range_of(scores: Sequence[float]) -> tuple[float, float]:
    """Return the range that scores are taken to be in: the first usual one, or from the lowest to the highest.

    Raises:
        InputError: if the lowest and the highest are equal and lie outside of the usual ranges.
    """
    lowest, highest = min(scores), max(scores)
    usual = next(((low, high) for low, high in SCORE_RANGES if low <= lowest and highest <= high), (lowest, highest))
    if usual[0] == usual[1]:
        raise InputError(f"all scores are {lowest:g}: there is nothing to learn from them")
    return usual


def _value(record: dict[str, Any], name: str, names: Sequence[str], present: Sequence[str]) -> Any:
    if name not in record:
        if name in present and list(record) == list(present[: len(record)]):
            raise ValueError(f"no column {name!r}: this row has {len(record)} of {len(present)} columns")
        has = f"this row has {', '.join(record) or 'none'}"
        needed = f"the columns {', '.join(names)} are read; --pair-fields names others"
        no_header = "; the table seems to have no header line" if headless(list(record)) else ""
        raise ValueError(f"no column {name!r}{nearest(name, list(record))}; {has}; {needed}{no_header}")
    return record[name]


def _shown(cell: Any) -> str:
    """Return a cell that is no text in words: its value and its kind."""
    return kind_of(cell) if is_null(cell) or isinstance(cell, bytes) else f"{cell!r:.60}, {kind_of(cell)}"


def _label(value: Any, name: str, layout: Layout) -> float | str:
    """Return a score, a label 0 or 1, or the name of a class."""
    if is_null(value):
        raise ValueError(f"{name} is {kind_of(value)}")
    if layout.kind in ("labels", "classed-pairs"):
        if isinstance(value, list | dict):
            raise ValueError(f"{name} is {kind_of(value)}, not the name of a class")
        try:
            return str(as_text(value))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    number = number_of(value)
    if layout.kind == "scored":
        if number is None:
            hint = "; --kind binary takes labels" if sure_label(value) is not None else ""
            raise ValueError(f"the score {value!r} is not a number{hint}")
        return number
    known = layout.words.get(str(value).strip())
    label = sure_label(value) if known is None else known
    if label is None:
        scored = (
            "; --kind scored takes any numbers, --kind classed-pairs classes"
            if number is not None
            else f"; correct or remove this {name}"
        )
        raise ValueError(f"the label {value!r} is neither 0 nor 1{scored}")
    return label
