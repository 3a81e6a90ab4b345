"""Conditions on the columns of a corpus, and which rows of a table of Arrow meet them.

A condition is a tree of `Test`, `All` and `Either` in which only tests are negated, so that a test on a missing value
is never met, as in SQL, whoever computes it. `condition_reader` reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sentcli.arrays import BoolArray
from sentcli.io.column_types import TEXT, types

if TYPE_CHECKING:
    import pyarrow as pa

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "like", "null"]
INVERSE: dict[str, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
COMPUTE = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
"""The functions of Arrow that compare."""


@dataclass(frozen=True)
class Test:
    """A test of one column; a row whose value is missing (null or NaN) meets none but ``null``."""

    column: str
    operator: Operator
    value: Any = None
    """A literal; of ``in`` a tuple of literals, of ``like`` a pattern with % and _, of ``null`` nothing."""
    negated: bool = False
    """Whether ``in``, ``like`` or ``null`` is negated."""
    kind: str = TEXT
    """The type of the column, by the names of ``--types``."""

    @property
    def negation(self) -> str:
        """The word of SQL in front of what is negated, with a blank behind it; empty if nothing is."""
        if self.negated:
            return "not "
        return ""

    def inverted(self) -> Test:
        """Return the test that is met by the values that do not meet this one."""
        if self.operator in INVERSE:
            return replace(self, operator=INVERSE[self.operator])
        return replace(self, negated=not self.negated)


@dataclass(frozen=True)
class All:
    """Several conditions that all have to be met."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Either:
    """Several conditions of which one has to be met."""

    parts: tuple[Tree, ...]


Tree = Test | All | Either


@dataclass(frozen=True)
class Condition:
    """A condition that was read and checked against the columns of a corpus."""

    tree: Tree

    @property
    def columns(self) -> list[str]:
        """The names of its columns, each once."""
        return sorted({test.column for test in tests(self.tree)})

    def matches(self, table: pa.Table) -> BoolArray:
        """Tell which rows of a table that has its columns meet the condition ``[rows]``."""
        return _met(self.tree, table)


def tests(tree: Tree) -> list[Test]:
    """Return all tests of a tree, from left to right."""
    if isinstance(tree, Test):
        return [tree]
    below = []
    for part in tree.parts:
        below += tests(part)
    return below


def _met(tree: Tree, table: pa.Table) -> BoolArray:
    """Tell which rows of a table meet a tree ``[rows]``; since only tests are negated, null is never met."""
    if isinstance(tree, Test):
        met = _test(tree, table[tree.column])
        filled: BoolArray = met.fill_null(False).to_numpy(zero_copy_only=False)
        return filled
    join = np.logical_and if isinstance(tree, All) else np.logical_or
    first, *others = tree.parts
    met = _met(first, table)
    for other in others:
        met = join(met, _met(other, table))
    return met


def _test(test: Test, column: Any) -> Any:
    """Return which values of a column meet a test, null where they are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = types()[test.kind][0]
    is_float = test.kind == "float"
    negated = test.negated
    if is_float:  # NaN is a missing value, too
        missing = pa.scalar(None, column.type)
        column = pc.if_else(pc.is_nan(column), missing, column)
    match test.operator:
        case "null":
            if negated:
                return column.is_valid()
            return column.is_null()
        case "in":
            values = list(test.value)
            if is_float and 0 in values:
                values += [0.0, -0.0]  # Arrow looks for the same bits
            within = pc.is_in(column.cast(kind), value_set=pa.array(values, kind))
            if negated:
                return pc.and_(column.is_valid(), pc.invert(within))
            return within
        case "like":
            signs = {"%": ".*", "_": "."}  # `match_like` of Arrow does not find an empty text by %
            letters = [signs.get(letter) or re.escape(letter) for letter in test.value]
            pattern = "".join(letters)
            like = pc.match_substring_regex(column, rf"\A(?s:{pattern})\z")
            if negated:
                return pc.invert(like)
            return like
    literal = pa.scalar(test.value, kind)
    return pc.call_function(COMPUTE[test.operator], [column, literal])
