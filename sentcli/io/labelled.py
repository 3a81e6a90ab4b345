"""Tables of labelled text: scored pairs, 0/1 pairs, pairs of anchor and positive, triplets, and texts with a class.

Training, evaluation and every command that takes ``--pair-fields`` read them here, from csv, tsv, jsonl and parquet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.sources import Source, is_id, kind_of, open_source, records

Kind = Literal["scored", "binary", "pairs", "triplets", "retrieval", "labels"]
KINDS: tuple[Kind, ...] = get_args(Kind)
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "scored": ("sentence1", "sentence2", "score"),
    "binary": ("sentence1", "sentence2", "label"),
    "pairs": ("anchor", "positive"),
    "triplets": ("anchor", "positive", "negative"),
    "labels": ("text", "label"),
}
"""The columns by which each kind of table is known; ``retrieval`` is a folder in BEIR layout and no table."""
AFS_COLUMNS = ("sentence_1", "sentence_2", "regression_label")
"""The columns of scored pairs in the Argument Facet Similarity corpus (Misra, Ecker and Walker, SIGDIAL 2016)."""
NEGATIVE = re.compile(r"negative(?:_(\d+))?")
"""The name of a column of negatives: ``negative``, ``negative_1``, ``negative_2`` and so on."""
STSB_RANGE = (0.0, 5.0)
"""The scores of STS-B, from unrelated to equal."""
RANGES = ((0.0, 1.0), STSB_RANGE, (0.0, 10.0), (0.0, 100.0), (-1.0, 1.0))
"""The usual ranges of scores; the first one that holds all scores of a table is taken."""


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

    def __len__(self) -> int:
        return len(self.lines)

    def error(self, row: int, problem: str) -> DataError:
        """Return the error that names the file and the line of a row, which is given by its position from 0."""
        return DataError(self.name, problem, line=self.lines[row], unit=self.unit)


def columns_of(source: Source) -> list[str]:
    """Return the names of the columns, which are those of the first row; an empty list if there is no row.

    Raises:
        InputError: for plain text, which has no columns.
    """
    if source.format == "txt":
        raise InputError(
            f"{source.name}: plain text has no columns; a table is a .csv, .tsv, .jsonl or .parquet file, also gzipped"
        )
    return next((list(record) for _, record in records(source)), [])


def kinds_of(columns: Sequence[str]) -> list[Kind]:
    """Return the kinds of table that these columns fit; a table with negatives holds triplets and no mere pairs."""
    kinds: list[Kind] = [kind for kind, names in COLUMNS.items() if kind != "triplets" and set(names) <= set(columns)]
    if "pairs" in kinds and any(map(NEGATIVE.fullmatch, columns)):
        kinds[kinds.index("pairs")] = "triplets"
    if set(AFS_COLUMNS) <= set(columns) and "scored" not in kinds:
        kinds.append("scored")
    return kinds


def read_table(file: str | Source, *, kind: Kind | None = None, fields: str | None = None) -> LabelledTable:
    """Read a table of labelled text.

    Args:
        file: csv, tsv, jsonl or parquet, also gzipped; a path, or what `open_source` returned.
        kind: of the table; None tells it from the columns.
        fields: other names of the columns, separated by commas: both sentences and the value for ``scored`` and
            ``binary``, anchor and positive for ``pairs``, anchor, positive and at least one negative for ``triplets``,
            text and class for ``labels``. Without a kind, two columns are pairs; three are triplets if the third holds
            texts, 0/1 pairs if it holds zeros and ones, and scored pairs if it holds other numbers.

    Raises:
        InputError: if there is no such file, it has no columns, or `fields` does not fit the kind.
        DataError: if the columns fit no kind or several, a column is missing, or a value is null or of another type.
    """
    source = open_source(file) if isinstance(file, str) else file
    present = columns_of(source)
    if not present:
        raise DataError(source.name, "the table is empty: there is no row")
    names = _given(fields, kind) if fields is not None else None
    if kind is None:
        kind = _told(source, present) if names is None else _told_of(names, source)
    if names is None:
        names = _usual(kind, present)
    texts: list[list[str]] = [[] for _ in range(_text_columns(kind, names))]
    values: list[Any] | None = [] if len(texts) < len(names) else None
    lines: list[int] = []
    unit: Literal["line", "row"] = "row" if source.format == "parquet" else "line"
    for line, record in records(source):
        try:
            row = [_value(record, name, names) for name in names]
            for column, name, text in zip(texts, names, row, strict=False):
                column.append(_text(text, name))
            if values is not None:
                values.append(_label(row[-1], names[-1], kind))
        except ValueError as error:
            raise DataError(source.name, str(error), line=line, unit=unit) from None
        lines.append(line)
    return LabelledTable(source.name, kind, tuple(names), tuple(texts), values, lines, unit)


def range_of(scores: Sequence[float]) -> tuple[float, float]:
    """Return the range that scores are taken to be in: the first usual one, or from the lowest to the highest.

    Raises:
        InputError: if the lowest and the highest are equal and lie outside of the usual ranges.
    """
    lowest, highest = min(scores), max(scores)
    usual = next(((low, high) for low, high in RANGES if low <= lowest and highest <= high), (lowest, highest))
    if usual[0] == usual[1]:
        raise InputError(f"all scores are {lowest:g}: there is nothing to learn from them")
    return usual


def _given(fields: str, kind: Kind | None) -> list[str]:
    """Return the names in ``--pair-fields``, whose number has to fit the kind."""
    names = [name.strip() for name in fields.split(",")]
    expected = {
        None: ("two names or more", 2, math.inf),
        "pairs": ("the names of two columns, ANCHOR,POSITIVE (with negatives: --kind triplets)", 2, 2),
        "triplets": ("the names of at least three columns, ANCHOR,POSITIVE,NEGATIVE[,NEGATIVE2...]", 3, math.inf),
        "labels": ("the names of two columns, TEXT,LABEL", 2, 2),
        "scored": ("the names of three columns, A,B,SCORE", 3, 3),
        "binary": ("the names of three columns, A,B,LABEL", 3, 3),
        "retrieval": ("no columns, since a retrieval set is a folder in BEIR layout", 0, 0),
    }
    words, least, most = expected[kind]
    if not least <= len(names) <= most or not all(names) or len(set(names)) < len(names):
        of_kind = f" with --kind {kind}" if kind else ""
        raise InputError(f"--pair-fields {fields}{of_kind}: expected {words}, all different")
    return names


def _told(source: Source, present: Sequence[str]) -> Kind:
    """Return the kind that the columns fit."""
    kinds = kinds_of(present)
    if len(kinds) == 1:
        return kinds[0]
    known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in COLUMNS.items())
    fit = f"fit {' and '.join(kinds)}" if kinds else f"fit no kind ({known})"
    hint = f"--kind {'|'.join(kinds or COLUMNS)} chooses" + ("" if kinds else ", --pair-fields A,B[,C] names columns")
    raise DataError(source.name, f"the columns {', '.join(present)} {fit}; {hint}")


def _told_of(names: Sequence[str], source: Source) -> Kind:
    """Return the kind of a table whose columns are named but whose kind is not, by what the third column holds."""
    if len(names) != 3:
        return "pairs" if len(names) == 2 else "triplets"
    numbers = [_number(record.get(names[2])) for _, record in records(source)]
    if numbers[0] is None:
        return "triplets"
    return "binary" if set(numbers) <= {0, 1} else "scored"


def _usual(kind: Kind, present: Sequence[str]) -> list[str]:
    """Return the columns that a kind is read from; a triplet has as many negatives as there are such columns."""
    if kind == "retrieval":
        raise InputError("a retrieval set is a folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/), no table")
    if kind == "scored" and set(AFS_COLUMNS) <= set(present):
        return list(AFS_COLUMNS)
    if kind == "triplets" and (negatives := [name for name in present if NEGATIVE.fullmatch(name)]):
        return [*COLUMNS["pairs"], *sorted(negatives, key=lambda name: int(name.partition("_")[2] or 0))]
    return list(COLUMNS[kind])


def _text_columns(kind: Kind, names: Sequence[str]) -> int:
    return len(names) if kind in ("pairs", "triplets") else len(names) - 1


def _value(record: dict[str, Any], name: str, names: Sequence[str]) -> Any:
    if name not in record:
        has = f"this row has {', '.join(record) or 'none'}"
        needed = f"the columns {', '.join(names)} are read; --pair-fields names others"
        raise ValueError(f"no column {name!r}{nearest(name, list(record))}; {has}; {needed}")
    if record[name] is None:
        raise ValueError(f"{name} is null")
    return record[name]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, expected a text")
    return value


def _label(value: Any, name: str, kind: Kind) -> float | str:
    """Return a score, a label 0 or 1, or the name of a class."""
    if kind == "labels":
        if not is_id(value) and not isinstance(value, bool):
            raise ValueError(f"{name} is {kind_of(value)}, not the name of a class")
        return str(value)
    number = _number(value)
    if number is None:
        raise ValueError(f"the {'label' if kind == 'binary' else 'score'} {value!r} is not a number")
    if kind == "binary" and number not in (0, 1):
        raise ValueError(f"the label {value!r} is neither 0 nor 1; --kind scored takes any numbers")
    return number


def _number(value: Any) -> float | None:
    """Return a finite number, which may be written as text, or None."""
    with suppress(TypeError, ValueError, OverflowError):
        if math.isfinite(number := float(value)):
            return number
    return None
