"""What a table of labelled text holds: told from the names of its columns, and then from all values of one of them.

Nothing is guessed from a single cell. A table that fits two kinds or none is an error with its values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.digests import file_state
from sentcli.io.formats import headless, records
from sentcli.io.labelled_kinds import (
    DATA_KINDS,
    KNOWN_COLUMNS,
    VALUE_COLUMNS,
    Kind,
    Layout,
    column_name,
    distinct_kinds,
    is_negative,
    layouts,
    layouts_of,
)
from sentcli.io.labelled_records import columns_of, labelled_records
from sentcli.io.labelled_values import FEW_VALUES, label_words, repeating, value_kind
from sentcli.io.sources import Source


def infer_layout(source: Source, *, kind: Kind | None = None, fields: str | None = None) -> Layout:
    """Return the columns that a table is read from, and what they hold.

    Args:
        source: the table.
        kind: that the user named; None tells it.
        fields: the names of the columns that the user gave, as for `labelled.read_table`.

    Raises:
        InputError: if it has no columns, or `fields` does not fit the kind.
        DataError: if the table fits no kind or several, or its values are not of the kind.
    """
    if kind == "retrieval" and fields is None:
        raise InputError("a retrieval set is a folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/), no table")
    return _tell(source, kind, fields, file_state(source.path))


@lru_cache(maxsize=16)
def _tell(source: Source, kind: Kind | None, fields: str | None, _: tuple[int, int, int, int]) -> Layout:
    """Return what `infer_layout` does, once for a file in this state."""
    present = columns_of(source, fields)
    first_row = next(records(source), None)
    if first_row is None:
        raise DataError(source.name, "the table is empty: there is no row")
    line, record = first_row
    if source.format in ("csv", "tsv") and len(record) < len(present):
        problem = f"{len(record)} of {len(present)} columns; the header is {', '.join(present)}"
        raise DataError(source.name, problem, line=line)
    if fields is not None:
        return _layout_of_fields(source, kind, fields, present)
    fitting = layouts(present) if kind is None else layouts_of(kind, present)
    if len(fitting) != 1:
        raise _layout_error(source, present, fitting)
    return _by_values(source, fitting[0], None, unnamed=False)


def _layout_of_fields(source: Source, kind: Kind | None, fields: str, present: Sequence[str]) -> Layout:
    """Return the layout of a table whose columns the user named with ``--pair-fields``."""
    names = _names_in(fields, kind)
    columns: tuple[str, ...] = ()
    for name in names:
        columns += _columns_named(name, present)
    layout = Layout((kind,) if kind else _kinds_of_columns(columns), columns)
    if not set(columns) <= set(present):
        return layout  # reading names the column that is missing
    unnamed = kind is None and len(columns) == len(names) and not is_negative(columns[-1])
    return _by_values(source, layout, fields, unnamed=unnamed)


def _names_in(fields: str, kind: Kind | None) -> list[str]:
    """Return the names in ``--pair-fields``.

    Raises:
        InputError: if they are too few or too many for the kind, or not all different.
    """
    names = list(map(str.strip, fields.split(",")))
    if kind == "retrieval":
        fits = False
        expected = "no columns, since a retrieval set is a folder in BEIR layout"
    elif kind is None:
        fits = len(names) >= 2
        expected = "two names or more"
    else:
        expected = DATA_KINDS[kind].fields
        needed = len(DATA_KINDS[kind].columns)
        fits = len(names) == needed or (DATA_KINDS[kind].more_columns and len(names) > needed)
    if fits and all(names) and len(set(names)) == len(names):
        return names
    of_kind = ""
    if kind is not None:
        of_kind = f" with --kind {kind}"
    raise InputError(f"--pair-fields {fields}{of_kind}: expected {expected}, all different")


def _columns_named(name: str, present: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a given name stands for: of that name, of its numbers if it was a list, or the name."""
    if name in present:
        return (name,)
    if f"{name}_1" in present:
        return tuple(column for column in present if re.fullmatch(rf"{re.escape(name)}_\d+", column))
    for column in present:
        if column_name(column) == column_name(name):
            return (column,)
    return (name,)


def _kinds_of_columns(columns: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds that given columns may make, before their values are looked at."""
    if len(columns) == 2:
        return ("pairs",)
    if len(columns) != 3 or is_negative(columns[2]):
        return ("triplets",)
    return VALUE_COLUMNS.get(column_name(columns[2]), ("scored", "binary", "triplets"))


def _layout_error(source: Source, present: Sequence[str], options: Sequence[Layout]) -> DataError:
    """Return the error of columns that fit no kind or several; it says what to type."""
    if headless(present):
        line = f"line 1 seems to be a row and no header: {', '.join(map(repr, present))}"
        return DataError(source.name, f"{line:.300}; put the names of the columns above it, such as text,label")
    columns = f"the columns {', '.join(present)}"
    kinds = distinct_kinds(options)
    if len(kinds) > 1:
        return DataError(source.name, f"{columns} fit {' and '.join(kinds)}; --kind {'|'.join(kinds)} chooses")
    if kinds:
        fit = " and ".join(f"{kinds[0]} ({', '.join(layout.columns)})" for layout in options)
        return DataError(source.name, f"{columns} fit {fit}; --pair-fields A,B[,C] chooses")
    known = "; ".join(f"{kind}: {', '.join(data.columns)}" for kind, data in DATA_KINDS.items())
    problem = f"{columns} fit no kind ({known})"
    misspelt = []
    for name in present:
        hint = nearest(column_name(name), KNOWN_COLUMNS)
        if hint and column_name(name) not in KNOWN_COLUMNS:
            misspelt.append(name + hint)
    if misspelt:
        problem += f"; {', '.join(misspelt)}"
    return DataError(
        source.name, f"{problem}; --kind {'|'.join(DATA_KINDS)} chooses, --pair-fields A,B[,C] names columns"
    )


def _by_values(source: Source, layout: Layout, fields: str | None, *, unnamed: bool) -> Layout:
    """Return the layout with the one kind that all values of its last columns fit.

    Args:
        source: the table.
        layout: told by names.
        fields: ``--pair-fields``.
        unnamed: whether names that say nothing were given for the columns, so that values decide alone.

    Raises:
        DataError: if they fit none.
    """
    if layout.kinds in (("pairs",), ("triplets",)):
        _check_texts(source, layout, fields, unnamed=unnamed)
        return layout
    if len(layout.kinds) == 1 and layout.kind != "binary":  # a score that is no number is named with its line
        return layout
    values = _values(source, layout.columns[-1], fields)
    kind = _kind_by_values(layout.kinds, values)
    if kind is None:
        raise _value_error(source, layout, layout.columns[-1], values)
    words = label_words(values) if kind == "binary" else None
    return Layout((kind,), layout.columns, words or {})


def _kind_by_values(kinds: tuple[Kind, ...], values: Counter[str]) -> Kind | None:
    """Return which of some kinds all values of a column fit, or None if they fit none."""
    if not values:
        return kinds[0]  # reading names the first cell of a column without values
    looks = value_kind(values)
    if looks is None:
        if "classed-pairs" in kinds and len(values) > 2 and repeating(values):
            return "classed-pairs"
        return None
    if looks in kinds:
        return looks
    if looks == "triplets":
        return None
    return kinds[0]


def _check_texts(source: Source, layout: Layout, fields: str | None, *, unnamed: bool) -> None:
    """Refuse a table of texts alone of which a column after the first holds labels, scores or classes."""
    columns = layout.columns
    for position, column in enumerate(columns[1:], 2):
        values = _values(source, column, fields)
        looks = value_kind(values)
        refused = looks == "binary" and values.total() > 1
        if unnamed and position > 2:
            refused = refused or looks != "triplets"
        elif unnamed and len(columns) == 2 and values.total() >= FEW_VALUES:
            refused = refused or (repeating(values) and 2 * len(values) <= values.total())
        if refused:
            raise _value_error(source, layout, column, values)


def _values(source: Source, column: str, fields: str | None) -> Counter[str]:
    """Return how often each value of a column occurs; empty ones and lists are left out."""
    counts: Counter[str] = Counter()
    for _, record in labelled_records(source, fields):
        cell = record.get(column)
        if cell is not None and not isinstance(cell, list | dict):
            counts[str(cell).strip()] += 1
    del counts[""]
    return counts


def _value_error(source: Source, layout: Layout, column: str, values: Counter[str]) -> DataError:
    """Return the error of a column whose values are neither labels nor texts for sure, with the command to type."""
    shown = ", ".join(f"{value[:40]!r} ({count:,})" for value, count in values.most_common(5)) or "nothing"
    if len(values) > 5:
        shown += ", ..."
    holds = f"{column!r} holds {len(values):,} different values in {values.total():,} rows: {shown}"
    return DataError(source.name, f"{holds}. {_advice(layout, values)}")


def _advice(layout: Layout, values: Counter[str]) -> str:
    """Return what to type for a table of which a column holds such values."""
    names = f"--pair-fields {','.join(layout.columns)}"
    looks = value_kind(values)
    if layout.kinds in (("pairs",), ("triplets",)) and looks in ("binary", "scored"):
        kind = looks if len(layout.columns) > 2 else "labels"
        return f"These are no texts: --kind {kind} {names}"
    if layout.kinds == ("pairs",):
        return f"If they are classes: --kind labels {names}; if they are texts: --kind pairs {names}"
    advice = "These are no sure words for yes and no: write labels as 1 and 0, scores as numbers"
    if len(layout.columns) == 3:
        advice += f"; if they are classes: --kind classed-pairs {names}"
    if "triplets" in layout.kinds:
        return f"{advice}; if they are texts: --kind triplets {names}"
    pair = ",".join(layout.columns[:2])
    return f"{advice}; without them the texts are pairs: --kind pairs --pair-fields {pair}"
