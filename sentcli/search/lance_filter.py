"""Conditions as LanceDB takes them: a filter of SQL that the same rows meet as in Arrow."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from sentcli.io.column_types import TEXT
from sentcli.search.conditions import All, Test, Tree


def filter_of(tree: Tree, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return a condition as a filter of LanceDB.

    Args:
        tree: in which only tests are negated.
        columns: the field and the type of each column.
    """
    if isinstance(tree, Test):
        return _filter_of_test(tree, columns)
    is_all = isinstance(tree, All)
    parts = []
    for part in tree.parts:
        condition = filter_of(part, columns)
        if is_all and not isinstance(part, (Test, All)):  # AND binds closer, and LanceDB reads 50 levels of brackets
            condition = f"({condition})"
        parts.append(condition)
    word = " and " if is_all else " or "
    return word.join(parts)


def _filter_of_test(test: Test, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return the filter of one test; a test on a missing value is never met but that of null, as in SQL."""
    name = test.column
    if name in columns:
        name = columns[name][0]
    field = f"`{name}`"
    negation = "not " if test.negated else ""
    match test.operator:
        case "null":
            return f"{field} is {negation}null"
        case "in":
            return _within(field, test)
        case "like":
            return f"{field} {negation}like {_literal(test.value, TEXT)}"
    return f"{field} {test.operator} {_literal(test.value, test.kind)}"


def _within(field: str, test: Test) -> str:
    """Return the filter of a list of values, which may be empty."""
    if not test.value:
        return f"{field} is not null" if test.negated else "false"
    literals = [_literal(value, test.kind) for value in test.value]
    negation = "not " if test.negated else ""
    return f"{field} {negation}in ({', '.join(literals)})"


def with_values(field: str, values: Sequence[str] | Sequence[int]) -> str:
    """Return a filter for the rows that have one of some texts or whole numbers in a field."""
    literals = [_literal(value, TEXT if isinstance(value, str) else "int") for value in values]
    return f"`{field}` in ({', '.join(literals)})"


def _literal(value: Any, kind: str) -> str:
    """Return a value as a literal of SQL, in which no sign of a text but the quote is special."""
    match kind:
        case "int":
            return str(value)
        case "float":
            return repr(float(value) + 0.0)  # -0.0 is 0.0
        case "bool":
            return "true" if value else "false"
        case "date":
            return f"date '{value.isoformat()}'"
        case "timestamp":
            return f"timestamp '{value.isoformat(sep=' ', timespec='microseconds')}'"
        case "timestamp-utc":
            in_utc = value.astimezone(datetime.UTC)
            return f"timestamp '{in_utc.isoformat(timespec='microseconds')}'"
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'"
