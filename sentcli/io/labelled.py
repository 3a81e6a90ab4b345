"""Tables of labelled text: pairs with a score, 0/1 or a class, anchors and positives, triplets, and texts with a class.

Training, evaluation and every command that takes ``--pair-fields`` read them here, from csv, tsv, jsonl, parquet and
spreadsheets. `table_layout` tells what a table holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.formats import decode_bytes, headless, is_null, kind_of, say_quoted
from sentcli.io.labelled_kinds import DATA_KINDS, Kind, Layout
from sentcli.io.labelled_records import columns_of, labelled_records
from sentcli.io.sources import Source, open_source
from sentcli.io.table_layout import infer_layout

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
    """The unit of the numbers in `lines`."""
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

        def some(column: Any) -> Any:
            if column is None:
                return None
            return [column[row] for row in rows]

        return replace(
            self,
            texts=tuple(map(some, self.texts)),
            values=some(self.values),
            lines=some(self.lines),
            groups=some(self.groups),
        )

    @property
    def reading(self) -> str:
        """What the table was taken for, with its first row: ``0/1 pairs: a, b, label; 149 of 400 are 1; line 2:``."""
        cells = [repr(texts[0][:60]) for texts in self.texts]
        if self.values is not None:
            value = self.values[0]
            if not isinstance(value, str):
                value = f"{value:g}"
            cells.append(value)
        words = DATA_KINDS[self.kind].words
        columns = ", ".join(map(str.strip, self.columns))
        first_row = f"{self.unit} {self.lines[0]}: {' | '.join(cells)}"
        return f"{words}: {columns}; {self._facts()}; {first_row}"

    def _facts(self) -> str:
        """Return how many rows there are, and what their values are."""
        count = f"{len(self):,}"
        values: list[Any] = list(self.values or [])
        match self.kind:
            case "binary":
                word = self.positive_word
                if "duplicate" in f"{self.columns[-1]} {word}".casefold():
                    word = "duplicates"
                return f"{values.count(1):,} of {count} are {word}"
            case "scored":
                scores = list(map(float, values))
                return f"{count} pairs, scores from {min(scores):g} to {max(scores):g}"
            case "labels":
                return f"{count} texts of {len(set(values)):,} classes"
            case "classed-pairs":
                return f"{count} pairs of {len(set(values)):,} classes"
            case _:
                return f"{count} rows"

    @property
    def skipped(self) -> int:
        """The number of rows with an empty cell that were left out."""
        return len(dict(self.empty))

    def contradictions(self) -> list[list[int]]:
        """Return the rows, from 0, of equal texts whose labels, scores, classes or positives differ."""
        if self.kind == "pairs":
            return []
        rows: dict[Hashable, list[int]] = defaultdict(list)
        values: dict[Hashable, set[Hashable]] = defaultdict(set)
        for row, texts in enumerate(zip(*self.texts, strict=True)):
            key = self._key(texts)
            rows[key].append(row)
            if self.values is None:
                values[key].add(texts[1])
            else:
                values[key].add(self.values[row])
        return [group for key, group in rows.items() if len(values[key]) > 1]

    def _key(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the texts of a row in the order that all rows of the same texts have."""
        if self.kind == "classed-pairs":  # one text may follow from the other, and not the other from it
            return texts
        if self.kind == "triplets":
            return (texts[0], *sorted(texts[1:]))
        return tuple(sorted(texts))

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
    layout = infer_layout(source, kind=kind, fields=fields)
    reader = _TableReader(source, layout, columns_of(source, fields), on_empty, group_by)
    for line, record in labelled_records(source, fields):
        try:
            reader.add(line, record)
        except ValueError as error:
            problem = source.error(str(error), line)
            if problems is None:
                raise problem from None
            problems.append(problem)
    return reader.table()


class _TableReader:
    """Takes the rows of a table one by one."""

    def __init__(
        self, source: Source, layout: Layout, present: Sequence[str], on_empty: OnEmpty, group_by: str | None
    ) -> None:
        """Begin a table, `present` being the names of all its columns."""
        self.source = source
        self.layout = layout
        self.present = present
        self.on_empty = on_empty
        self.group_by = group_by
        kind = DATA_KINDS[layout.kind]
        self.read_value = kind.read_value
        text_count = kind.text_columns(layout.columns)
        self.texts: list[list[str]] = [[] for _ in range(text_count)]
        self.values: list[Any] = []
        self.lines: list[int] = []
        self.groups: list[str] = []
        self.empty: list[tuple[int, str]] = []

    def add(self, line: int, record: dict[str, Any]) -> None:
        """Take a row.

        Raises:
            ValueError: if a column is missing, or a cell holds something else.
        """
        cells = self._cells(record)
        columns = self.layout.columns
        if self.on_empty != "keep":
            before = len(self.empty)
            for name, cell in zip(columns, cells, strict=True):
                if is_empty(cell):
                    self.empty.append((line, name))
            if len(self.empty) > before:
                return
        texts = cells[: len(self.texts)]
        for name, cell in zip(columns, texts, strict=False):
            self._check_text(name, cell)
        value = self._value(columns[-1], cells[-1])
        if self.group_by is not None:
            self.groups.append(_group(record, self.group_by))
        for column, text in zip(self.texts, texts, strict=True):
            column.append(text)
        self.values.append(value)
        self.lines.append(line)

    def _cells(self, record: dict[str, Any]) -> list[Any]:
        """Return the cells of a row; an empty one of a spreadsheet is an empty text, as in csv."""
        if self.layout.kind == "triplets" and self.source.format not in ("csv", "tsv"):
            negatives = self.layout.columns[2:]
            record = {**dict.fromkeys(negatives, ""), **record}  # of which a row may have fewer than others
        try:
            cells = [record[name] for name in self.layout.columns]
        except KeyError as error:
            raise ValueError(self._lacks(error.args[0], record)) from None
        if self.source.format == "sheet":
            return ["" if cell is None else cell for cell in cells]
        return cells

    def _lacks(self, name: str, record: dict[str, Any]) -> str:
        """Return what is wrong with a row that lacks a column."""
        names = list(record)
        present = list(self.present)
        if name in present and names == present[: len(names)]:
            return f"no column {name!r}: this row has {len(names)} of {len(present)} columns"
        has = ", ".join(names) or "none"
        columns = ", ".join(self.layout.columns)
        problem = (
            f"no column {name!r}{nearest(name, names)}; this row has {has}; the columns {columns} are read; "
            "--pair-fields names others"
        )
        if headless(names):
            problem += "; the table seems to have no header line"
        return problem

    def _check_text(self, name: str, cell: Any) -> None:
        if not isinstance(cell, str):
            shown = kind_of(cell)
            if not is_null(cell) and not isinstance(cell, bytes):
                shown = f"{cell!r:.60}, {shown}"
            raise ValueError(f"{name} is {shown}, expected a text")
        say_quoted(self.source, cell)

    def _value(self, name: str, cell: Any) -> float | str | None:
        """Return the score, the label or the class of a row; None if it has texts alone."""
        if self.read_value is None:
            return None
        if is_null(cell):
            raise ValueError(f"{name} is {kind_of(cell)}")
        return self.read_value(cell, name, self.layout.words)

    def table(self) -> LabelledTable:
        """Return the rows that were taken.

        Raises:
            DataError: if there are none, or a cell is empty where that is an error.
        """
        if not self.lines and not self.empty:
            raise DataError(self.source.name, "no row can be read")
        if not self.lines or (self.empty and self.on_empty == "error"):
            raise empty_cells(self.source, self.empty)
        positive_word = "1"
        for word, value in self.layout.words.items():
            if value == 1:
                positive_word = word
                break
        return LabelledTable(
            self.source.name,
            self.layout.kind,
            self.layout.columns,
            tuple(self.texts),
            None if self.read_value is None else self.values,
            self.lines,
            self.source.unit,
            positive_word=positive_word,
            empty=tuple(self.empty),
            groups=None if self.group_by is None else self.groups,
            group_by=self.group_by or "",
        )


def _group(record: dict[str, Any], name: str) -> str:
    """Return the value of the column of groups as text."""
    if name not in record:
        raise ValueError(f"no column {name!r} of groups{nearest(name, list(record))}; it has {', '.join(record)}")
    if is_null(record[name]):
        raise ValueError(f"{name} is {kind_of(record[name])}, and names the group of the row")
    return str(decode_bytes(record[name]))


def is_empty(value: Any) -> bool:
    """Tell whether a cell holds nothing: null, NaN, or nothing but white space."""
    return is_null(value) or (isinstance(value, str) and not value.strip())


def empty_cells(source: Source, empty: list[tuple[int, str]]) -> DataError:
    """Return the error of empty cells, given their lines and columns; it names the first ten."""
    (first, column), *others = empty
    problem = f"{column} is empty"
    if others:
        places = []
        for line, name in others[: NAMED_ROWS - 1]:
            places.append(f"{source.unit} {line} ({name})")
        if len(others) >= NAMED_ROWS:
            places.append("...")
        problem += f", and {len(others):,} more cells: {', '.join(places)}"
    return source.error(f"{problem}; evaluate --skip-empty leaves such rows out", first)


def range_of(scores: Sequence[float]) -> tuple[float, float]:
    """Return the range that scores are taken to be in: the first usual one, or from the lowest to the highest.

    Raises:
        InputError: if the lowest and the highest are equal and lie outside of the usual ranges.
    """
    lowest = min(scores)
    highest = max(scores)
    for low, high in SCORE_RANGES:
        if low <= lowest and highest <= high:
            return low, high
    if lowest == highest:
        raise InputError(f"all scores are {lowest:g}: there is nothing to learn from them")
    return lowest, highest
