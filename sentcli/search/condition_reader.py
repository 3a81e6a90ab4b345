"""Reading conditions, ``--where "rating >= 4 and lang = 'en'"``: a small part of SQL, which sqlglot parses."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sentcli.bounds import whole_number
from sentcli.errors import InputError, library_errors, nearest, required
from sentcli.io.column_types import TEXT, name_of
from sentcli.search.conditions import All, Condition, Either, Operator, Test, Tree, tests

MIRRORED: dict[str, Operator] = {"=": "=", "!=": "!=", "<": ">", ">=": "<=", ">": "<", "<=": ">="}
ALLOWED = "=, <>, <, <=, >, >=, AND, OR, NOT, IN (...), BETWEEN, LIKE and IS NULL on columns and literals"
NOT_ALLOWED = f"is not allowed here, but {ALLOWED}"
PARTS = {"this", "expression", "expressions", "low", "high", "negate"}
"""The parts that a node of sqlglot may have; it parses more than is allowed here."""
MOST_LEVELS = 200
MOST_TESTS = 20_000
"""The most levels and the most tests of a condition; longer lists of values stand in ``IN (...)``."""


def _unreadable(why: str) -> InputError:
    return InputError(f"--where: it cannot be read ({why}); it takes {ALLOWED}")


def parse_condition(text: str, schema: Mapping[str, Any], corpus: str) -> Condition:
    """Read a condition.

    Args:
        text: in the part of SQL that `ALLOWED` describes. Names that are no plain words stand in double quotes.
        schema: the Arrow types of the corpus's columns by name.
        corpus: the name of the corpus, for errors.

    Raises:
        InputError: with the place, for anything else, an unknown column, or a literal of another type than its column.
        MissingExtraError: if sqlglot is not installed.
    """
    sqlglot = required("sqlglot", "sqlglot", "cpu", "--where")
    try:
        text.encode()
        with library_errors(_unreadable, sqlglot.errors.SqlglotError, RecursionError):
            parsed = sqlglot.parse(text)
        if len(parsed) != 1 or parsed[0] is None:
            raise InputError(f"--where {text!r}: give one condition, of {ALLOWED}")
        reader = _Reader(text, sqlglot.exp, schema, corpus)
        tree = reader.tree(parsed[0])
    except UnicodeEncodeError as error:
        raise InputError(f"--where: its character {error.start + 1} is a byte that is no UTF-8") from error
    except sqlglot.errors.SqlglotError as error:
        problem = f"{_place(error)}{_unquoted(text, schema)}"
        raise InputError(f"--where {text!r}: {problem}; it takes {ALLOWED}") from error
    except RecursionError as error:
        raise InputError("--where: the condition is nested too deeply") from error
    if _depth(tree) > MOST_LEVELS:
        raise InputError("--where: the condition is nested too deeply")
    count = len(tests(tree))
    if count > MOST_TESTS:
        raise InputError(
            f"--where: {count:,} tests, of {MOST_TESTS:,} at most: give the values of a column in IN (...)"
        )
    return Condition(tree)


def _depth(tree: Tree) -> int:
    """Return the number of levels of a tree; a test alone has none."""
    if isinstance(tree, Test):
        return 0
    return 1 + max(map(_depth, tree.parts), default=0)


def check_column(name: str, schema: Mapping[str, Any], corpus: str, option: str) -> None:
    """Refuse a column that a corpus does not have, which stands in an option.

    Raises:
        InputError: which lists those that it has, with their types.
    """
    if name not in schema:
        there = ", ".join(f"{column} ({name_of(kind)})" for column, kind in schema.items())
        raise InputError(f"{option}: {corpus} has no column {name!r}{nearest(name, list(schema))}; it has {there}")


def _unquoted(text: str, schema: Mapping[str, Any]) -> str:
    """Return the hint for columns whose names are words of SQL, such as ``when``, and stand without quotes."""
    from sqlglot.tokens import Tokenizer

    quoted = []
    for name in schema:
        pattern = rf'(?<!["\w]){re.escape(name)}(?!["\w])'
        if name.upper() in Tokenizer.KEYWORDS and re.search(pattern, text):
            quoted.append(f'"{name}"')
    if not quoted:
        return ""
    return f"; SQL has such a word itself, so the column stands in double quotes: {', '.join(quoted)}"


def _place(error: Exception) -> str:
    """Return what sqlglot could not read, and where."""
    errors = getattr(error, "errors", ())
    if not errors:
        return "cannot be read"
    first = errors[0]
    return f"cannot be read at character {first['col']}, {first['highlight']!r}"


@dataclass(frozen=True)
class _Reader:
    """Turns the tree of sqlglot into a `Tree`, and refuses what is not allowed."""

    text: str
    exp: Any
    schema: Mapping[str, Any]
    corpus: str

    def kind(self, column: str) -> str:
        """Return the type of a column, by the names of ``--types``."""
        return name_of(self.schema[column])

    def tree(self, node: Any, *, negated: bool = False) -> Tree:
        """Return the tree of a node; `negated` moves a NOT down to the tests."""
        exp = self.exp
        kind = type(node)
        parts_of_node = node.args
        if {part for part, value in parts_of_node.items() if value} - PARTS:
            self.refuse(node, NOT_ALLOWED)
        negated = negated != bool(parts_of_node.get("negate"))  # NOT LIKE
        below = node.this
        if kind is exp.Paren:
            return self.tree(below, negated=negated)
        if kind is exp.Not:
            return self.tree(below, negated=not negated)
        if kind in (exp.And, exp.Or):
            parts = tuple(self.tree(part, negated=negated) for part in node.flatten())
            if (kind is exp.And) == negated:  # NOT (a AND b) is NOT a OR NOT b
                return Either(parts)
            return All(parts)
        if kind is exp.Between:
            low = self.comparison(node, below, ">=", parts_of_node["low"])
            high = self.comparison(node, below, "<=", parts_of_node["high"])
            if negated:
                return Either((low.inverted(), high.inverted()))
            return All((low, high))
        test = self.test(node)
        if negated:
            return test.inverted()
        return test

    def test(self, node: Any) -> Test:
        """Return the test of one column."""
        exp = self.exp
        kind = type(node)
        comparisons: dict[Any, Operator] = {
            exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
        }  # fmt: skip
        if kind in comparisons:
            return self.comparison(node, node.this, comparisons[kind], node.expression)
        if kind is exp.Like:
            return self.like(node)
        if kind is exp.In and node.expressions:
            name = self.column(node.this)
            values = self.literals(node.expressions, name)
            return Test(name, "in", values, kind=self.kind(name))
        if kind is exp.Is and type(node.expression) is exp.Null:
            name = self.column(node.this)
            return Test(name, "null", kind=self.kind(name))
        if kind is exp.Column:
            name = self.column(node)
            if self.kind(name) == "bool":
                return Test(name, "=", True, kind="bool")
        self.refuse(node, NOT_ALLOWED)

    def literals(self, nodes: Sequence[Any], column: str) -> tuple[Any, ...]:
        """Return the values in a list, without fractions for a column of whole numbers: none equals 3.5."""
        values = []
        for node in nodes:
            value = self.literal(node, column)
            if self.kind(column) != "int" or isinstance(value, int):
                values.append(value)
        return tuple(values)

    def comparison(self, node: Any, left: Any, operator: Operator, right: Any) -> Test:
        """Return a comparison of a column and a literal, or of a literal and a column."""
        exp = self.exp
        column = exp.Column
        if type(left) is not column and type(right) is column:
            left, right = right, left
            operator = MIRRORED[operator]
        if type(right) is column:
            self.refuse(node, "compares two columns; a text stands in single quotes")
        if type(right) is exp.Null:
            self.refuse(node, "is never met: write IS NULL or IS NOT NULL")
        name = self.column(left)
        value = self.literal(right, name)
        kind = self.kind(name)
        if kind == "bool" and operator not in ("=", "!="):
            self.refuse(node, f"orders {name}, which is true or false")
        if kind == "int" and not isinstance(value, int):  # between two whole numbers
            if operator in ("=", "!="):
                return Test(name, "in", (), negated=operator == "!=", kind=kind)
            value = math.ceil(value) if operator in (">=", "<") else math.floor(value)
        return Test(name, operator, value, kind=kind)

    def like(self, node: Any) -> Test:
        """Return a test of a text's pattern."""
        name = self.column(node.this)
        kind = self.kind(name)
        if kind != TEXT:
            self.refuse(node, f"is for text, and {name} is {kind}")
        pattern = self.literal(node.expression, name)
        if "\\" in pattern:
            self.refuse(node, "has a backslash: % and _ cannot be escaped")
        return Test(name, "like", pattern)

    def column(self, node: Any) -> str:
        """Return the name of a column that is there."""
        exp = self.exp
        is_name = type(node) is exp.Column and type(node.this) is exp.Identifier
        if not is_name or node.args.get("table"):
            self.refuse(node, f"is no column of the corpus: it takes {ALLOWED}")
        name: str = node.this.this
        check_column(name, self.schema, self.corpus, "--where")
        return name

    def literal(self, node: Any, column: str) -> Any:
        """Return the value of a literal, as the type of its column."""
        exp = self.exp
        kind = self.kind(column)
        sign = 1
        if type(node) is exp.Neg:
            sign = -1
            node = node.this
        is_literal = type(node) is exp.Literal
        is_number = is_literal and not node.is_string
        is_text = is_literal and node.is_string and sign == 1
        is_bool = type(node) is exp.Boolean and sign == 1
        if not (is_text or is_number or is_bool):
            self.refuse(node, f"is no number, text in single quotes, true or false: it takes {ALLOWED}")
        fits = {"int": is_number, "float": is_number, "bool": is_bool}
        if not fits.get(kind, is_text):
            literals = {"int": "a number", "float": "a number", "bool": "true or false", TEXT: "a text"}
            self.refuse(node, f"does not compare with {column}, which is {kind}: write {literals.get(kind, 'a date')}")
        if is_bool:
            return bool(node.this)
        if is_text and kind == TEXT:
            return node.this
        if is_text:
            return self.time(node, column, kind)
        number = self.number(node)
        if kind == "float":
            number = float(number)  # before its sign, so that -0 is -0.0
        return sign * number

    def number(self, node: Any) -> int | float:
        """Return a number; whole ones stay whole, so that none of their digits is lost."""
        try:
            whole = whole_number(node.this)
            value = float(node.this) if whole is None else whole
        except ValueError:
            self.refuse(node, "is not a number")
        if not math.isfinite(value) or abs(value) >= 2**63:  # int64 has no such whole number
            self.refuse(node, "is too large")
        if value == int(value):
            return int(value)
        return value

    def time(self, node: Any, column: str, kind: str) -> datetime.date:
        """Return a date, or a point in time; without an offset it is taken for UTC where the column is of UTC."""
        try:
            if kind == "date":
                return datetime.date.fromisoformat(node.this)
            value = datetime.datetime.fromisoformat(node.this)
            if kind == "timestamp-utc":
                if value.tzinfo is None:
                    return value.replace(tzinfo=datetime.UTC)
                return value.astimezone(datetime.UTC)
        except (ValueError, OverflowError):
            example = "'2024-01-31'" if kind == "date" else "'2024-01-31' or '2024-01-31 18:30:00'"
            self.refuse(node, f"is no {kind}, as {column} is: write {example}")
        if value.tzinfo is not None:
            self.refuse(node, f"has an offset from UTC, and the times of {column} have none")
        return value

    def refuse(self, node: Any, why: str) -> NoReturn:
        """Raise an error with the part of the text that a node stands for, and its place."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        place = f" at character {min(starts) + 1}" if starts else ""
        raise InputError(f"--where {self.text!r}: {node.sql()}{place} {why}")
