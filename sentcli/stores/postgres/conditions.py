"""Conditions as PostgreSQL takes them: the same rows meet them as in Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sentcli.errors import InputError
from sentcli.io.column_types import TEXT
from sentcli.search.conditions import Either, Test, Tree
from sentcli.stores.postgres.client import SQL, Composable, Composed, Literal


def sql_of(tree: Tree, expression: Callable[[str], Composable]) -> Composed:
    """Return a condition as SQL, of which psycopg quotes names and values.

    Args:
        tree: in which only tests are negated.
        expression: returns the value of a column.

    Raises:
        InputError: for a text that PostgreSQL cannot hold.
    """
    if isinstance(tree, Test):
        return SQL("({})").format(_test(tree, expression(tree.column)))
    parts = [sql_of(part, expression) for part in tree.parts]
    joined = " or " if isinstance(tree, Either) else " and "
    return SQL("({})").format(SQL(joined).join(parts))


def _test(test: Test, value: Composable) -> Composed:
    """Return one test of a value; a missing one meets none but that of null, as in SQL."""
    negation = SQL(test.negation)
    if test.kind == "float":  # NaN is a missing value, too
        value = SQL("nullif({}, 'NaN')").format(value)
    match test.operator:
        case "null":
            return SQL("{} is {}null").format(value, negation)
        case "like":
            pattern = Literal(_storable(test.value))
            return SQL("{} {}like {} escape ''").format(value, negation, pattern)
        case "in" if not test.value:
            return SQL("{} and {} is not null").format(Literal(test.negated), value)
        case "in":
            values = SQL(", ").join([Literal(_storable(one)) for one in test.value])
            return SQL("{} {}in ({})").format(value, negation, values)
    if test.kind == TEXT:  # as Arrow orders texts, whatever the language of the database
        value = SQL('{} collate "C"').format(value)
    return SQL("{} {} {}").format(value, SQL(SIGNS[test.operator]), Literal(_storable(test.value)))


SIGNS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
"""The operators that compare, as they stand in SQL."""


def _storable(value: Any) -> Any:
    """Return a value that PostgreSQL can hold.

    Raises:
        InputError: for a text with a NUL character.
    """
    if isinstance(value, str) and "\0" in value:
        raise InputError("--where: a text of PostgreSQL has no NUL character, so no row has this one")
    return value
