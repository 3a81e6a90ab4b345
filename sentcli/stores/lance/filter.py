"""Conditions as LanceDB takes them: a filter of SQL that the same rows meet as in Arrow."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from sentcli.io.column_types import TEXT
from sentcli.search.conditions import All, Either, Test, Tree
from sentcli.stores.record import ID


def filter_of(tree: Tree, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return a condition as a filter of LanceDB.

    Args:
        tree: in which only tests are negated.
        columns: the field and the type of each column.
    """
    if isinstance(tree, Test):
        return _filter_of_test(tree, columns)
    if isinstance(tree, Either):
        return " or ".join(filter_of(part, columns) for part in tree.parts)
    parts = []
    for part in tree.parts:
        condition = filter_of(part, columns)
        if isinstance(part, Either):  # other parts need no brackets, of which LanceDB reads few levels
            condition = f"({condition})"
        parts.append(condition)
    return " and ".join(parts)


def brackets(tree: Tree) -> int:
    """Return how many brackets stand inside each other in the filter of a condition."""
    if isinstance(tree, Test):
        return 0
    deepest = 0
    for part in tree.parts:
        is_bracketed = isinstance(tree, All) and isinstance(part, Either)
        deepest = max(deepest, brackets(part) + is_bracketed)
    return deepest


def _filter_of_test(test: Test, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return the filter of one test; a missing value meets none but that of null, as in SQL."""
    name, _ = columns.get(test.column, (test.column, ""))
    field = f"`{name}`"
    match test.operator:
        case "null":
            return f"{field} is {test.negation}null"
        case "like":
            return f"{field} {test.negation}like {_literal(test.value, TEXT)}"
        case "in" if not test.value:
            return NONE_OF_NOTHING[test.negated].format(field)
        case "in" if test.negated:
            # LanceDB takes "not in (0) or not in (1)" for "not in ()", which it lets missing values meet
            return f"({field} is not null and {field} not in {_listed(test.value, test.kind)})"
        case "in":
            return f"{field} in {_listed(test.value, test.kind)}"
    return f"{field} {test.operator} {_literal(test.value, test.kind)}"


NONE_OF_NOTHING = {False: "false", True: "{} is not null"}
"""The test for one of no values, and for none of no values."""


def with_ids(ids: Sequence[str]) -> str:
    """Return a filter for the rows that have one of some ids."""
    return f"`{ID}` in {_listed(ids, TEXT)}"


def _listed(values: Sequence[Any], kind: str) -> str:
    """Return values as a list of literals."""
    literals = [_literal(value, kind) for value in values]
    return f"({', '.join(literals)})"


def _literal(value: Any, kind: str) -> str:
    """Return a value as a literal of SQL, in which no sign of a text but the quote is special."""
    match kind:
        case "int":
            return str(value)
        case "float":
            return repr(float(value) + 0.0)  # -0.0 is 0.0
        case "bool":
            return str(value).lower()
        case "date":
            return f"date '{value.isoformat()}'"
        case "timestamp":
            return f"timestamp '{value.isoformat(sep=' ', timespec='microseconds')}'"
        case "timestamp-utc":
            in_utc = value.astimezone(datetime.UTC)
            return f"timestamp '{in_utc.isoformat(timespec='microseconds')}'"
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'"
