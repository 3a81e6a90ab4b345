"""The types of a table's columns: CSV and TSV name none, so they are found in the values of the whole column."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from sentcli.errors import DataError, InputError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

TEXT = "text"
NAMED_VALUES = 10
"""How many values that a given type does not hold are named of a column."""
FEW_NULLS = 3
"""At most so many different values that a given type does not hold may all stand for missing ones."""
BATCH_VALUES = 16_384
"""How many values of a column are looked at together."""
PLAIN = {str, bool, int, float, NoneType}
"""The types of values whose kind is their type, unless a whole number is large."""
PATTERNS = {
    "number": r"^-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?$",
    "bool": r"^(?i:true|false)$",
    "time": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$",
}
"""How values look that may have a type; a number has no leading zero or plus, as numbers of articles or phones may."""
_TYPED = "|".join(f"({look})" for look in PATTERNS.values())
_LONG = r"^-?[0-9]{16,}$"
"""Whole numbers of which a float64 would lose digits."""
LARGEST_EXACT = 2**53
"""A float64 holds all whole numbers up to this one."""


class ColumnType(NamedTuple):
    """A type that a column may have."""

    arrow: pa.DataType
    look: str
    """How its texts look, a key of PATTERNS; empty for text."""
    kinds: frozenset[str]
    """The names of the types of Python that it holds, as for `kinds_of`."""


@cache
def types() -> dict[str, ColumnType]:
    """Return the types by the names of ``--types``, of those with one look the narrowest first."""
    import pyarrow as pa

    return {
        "int": ColumnType(pa.int64(), "number", frozenset({"int", "long"})),
        "float": ColumnType(pa.float64(), "number", frozenset({"int", "float"})),
        "bool": ColumnType(pa.bool_(), "bool", frozenset({"bool"})),
        "date": ColumnType(pa.date32(), "time", frozenset({"date"})),
        "timestamp": ColumnType(pa.timestamp("us"), "time", frozenset({"datetime"})),
        "timestamp-utc": ColumnType(pa.timestamp("us", "UTC"), "time", frozenset({"datetime-utc"})),
        TEXT: ColumnType(pa.string(), "", frozenset()),
    }


def name_of(kind: Any) -> str:
    """Return the name of an Arrow type, or of its text in a manifest; `TEXT` for one without a name."""
    for name, named in types().items():
        if str(named.arrow) == str(kind):
            return name
    return TEXT


def arrow_type(kinds: set[str]) -> Any:
    """Return the narrowest Arrow type that holds values of these `kinds_of`; text holds any value, as JSON."""
    if kinds:
        for named in types().values():
            if kinds <= named.kinds:
                return named.arrow
    return types()[TEXT].arrow


def kinds_of(value: object) -> set[str]:
    """Return the name of a value's type, ``long`` for an integer beyond float64's precision, nothing for None."""
    if value is None:
        return set()
    if type(value) is int and abs(value) > LARGEST_EXACT:  # a float64 holds smaller integers, too
        return {"long" if -(2**63) <= value < 2**63 else "other"}
    name = type(value).__name__
    if name == "datetime" and getattr(value, "tzinfo", None) is not None:
        name = "datetime-utc"
    return {name}


def parse_types(items: Sequence[str]) -> dict[str, str]:
    """Read the values of ``--types``: ``COLUMN=TYPE``, also several with commas between.

    Raises:
        InputError: for anything else.
    """
    chosen: dict[str, str] = {}
    for text in items:
        for item in text.split(","):
            column, equals, name = map(str.strip, item.rpartition("="))
            if not column or name not in types():
                hint = nearest(name, list(types())) if equals else ""
                raise InputError(f"--types {item}: expected COLUMN=TYPE with one of {', '.join(types())}{hint}")
            chosen[column] = name
    return chosen


@dataclass
class Offenders:
    """Values that a type does not hold, counted, with the first places."""

    counts: Counter[str] = field(default_factory=Counter)
    """How often each value occurs."""
    places: list[str] = field(default_factory=list)
    """The first `NAMED_VALUES` of them in words."""
    first: tuple[str, int] = ("", 0)
    """The input and the line of the first."""

    def add(self, value: object, source: str, line: int) -> None:
        """Count a value at a place."""
        shown = f"{value!r:.60}"
        if not self.counts:
            self.first = (source, line)
        self.counts[shown] += 1
        if len(self.places) < NAMED_VALUES:
            self.places.append(f"{shown} (line {line})")


@dataclass
class Column:
    """The texts in a column, read once from the first to the last, and the types that hold all of them."""

    name: str
    given_type: str | None = None
    """The type that the user gave, or the output has; None finds it."""
    candidates: list[str] | None = None
    """The names of the types that hold all values so far, the narrowest first; None before the first value."""
    filled: int = 0
    """The number of values that are not empty."""
    typed: int = 0
    """The number of values that look like a number, a date, true or false."""
    odd: str = ""
    """The first value that no type holds with those before it, and its place."""
    wrong: Offenders = field(default_factory=Offenders)
    """The values that the given type does not hold."""
    values: list[str] = field(default_factory=list)
    """Values that are not looked at yet."""
    places: list[tuple[str, int]] = field(default_factory=list)
    """The input and the line of each."""

    def add(self, value: str, source: str, line: int) -> None:
        """Take a value at a place; an empty one is a missing value."""
        if value:
            self.values.append(value)
            self.places.append((source, line))
            if len(self.values) == BATCH_VALUES:
                self._look()

    def kind(self) -> str:
        """Return the name of the type."""
        self._look()
        if self.given_type is not None:
            return self.given_type
        if not self.candidates:
            return TEXT
        return self.candidates[0]

    @property
    def mixed(self) -> str:
        """Where the column mixes values of a type with others, so that it stays text: the first other value."""
        if self.given_type is None and not self.candidates and 2 * self.typed > self.filled:
            return self.odd
        return ""

    def _look(self) -> None:
        """Look at the values that were added since the last time."""
        import pyarrow as pa

        if self.values and self.given_type != TEXT:
            array = pa.array(self.values, pa.string())
            if self.given_type is not None:
                self._check_given(self.given_type, array)
            elif self.candidates != [] or self.typed:
                self._narrow(array)
            self.filled += len(array)
        self.values = []
        self.places = []

    def _check_given(self, given: str, array: Any) -> None:
        """Note the values of an array that the given type does not hold."""
        if _converts(given, array):
            return
        for number, place in enumerate(self.places):
            if not _converts(given, array[number : number + 1]):
                self.wrong.add(self.values[number], *place)

    def _narrow(self, array: Any) -> None:
        """Leave the candidates that hold all values of an array, and count those that look like one of a type."""
        import pyarrow.compute as pc

        before = self.candidates
        if before is None:
            before = [name for name in types() if name != TEXT and _holds(name, array[:1])]
        self.candidates = [name for name in before if _holds(name, array)]
        if not self.candidates and not self.odd:
            number = 0
            while before and number < len(array) - 1 and _holds(before[-1], array[number : number + 1]):
                number += 1
            source, line = self.places[number]
            self.odd = f"{self.values[number]!r} ({source}, line {line})"
        self.typed += pc.sum(pc.match_substring_regex(array, _TYPED)).as_py() or 0


def _holds(name: str, array: Any) -> bool:
    """Tell whether a type holds all texts of an array, and whether they look like it."""
    import pyarrow.compute as pc

    if not pc.all(pc.match_substring_regex(array, PATTERNS[types()[name].look])).as_py():
        return False
    if name == "float" and pc.any(pc.match_substring_regex(array, _LONG)).as_py():
        return False
    return _converts(name, array)


def _converts(name: str, array: Any) -> bool:
    """Tell whether all texts of an array can be converted to a type."""
    import pyarrow as pa

    try:
        array.cast(types()[name].arrow)
    except pa.ArrowInvalid:
        return False
    return True


def cast(values: list[Any], kind: Any) -> list[Any]:
    """Return the values of a column with its texts as values of an Arrow type; an empty text is None."""
    import pyarrow as pa

    texts = [value for value in values if isinstance(value, str) and value]
    converted = iter(pa.array(texts, pa.string()).cast(kind).to_pylist())
    result: list[Any] = []
    for value in values:
        if not isinstance(value, str):
            result.append(value)
        else:
            result.append(next(converted) if value else None)
    return result


@dataclass
class Columns:
    """The columns of tables that are read once, from the first row to the last, and their types."""

    given_types: Mapping[str, str] = field(default_factory=dict)
    """The types that the user gave, or the output has, by the names of columns."""
    texts: dict[str, Column] = field(default_factory=dict)
    """The columns that have texts to be converted."""
    kinds: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The kinds of all other values of each column."""
    wrong: defaultdict[str, Offenders] = field(default_factory=lambda: defaultdict(Offenders))
    """The values of JSON Lines or Parquet that the given type of their column does not hold."""

    def extend(self, name: str, values: Sequence[Any], source: str, lines: Sequence[int], *, untyped: bool) -> None:
        """Take values at their lines; `untyped`: texts of their format may stand for values of other types."""
        given = self.given_types.get(name)
        kinds = self.kinds[name]
        are_texts_typed = untyped or given is not None
        if not are_texts_typed:
            value_types = set(map(type, values))
            if value_types <= PLAIN and not _are_long(values, value_types):
                kinds |= {kind.__name__ for kind in value_types if kind is not NoneType}
                return
        for value, line in zip(values, lines, strict=True):
            if are_texts_typed and isinstance(value, str):
                self._column(name).add(value, source, line)
                continue
            value_kinds = kinds_of(value)
            if given not in (None, TEXT) and not value_kinds <= types()[given].kinds:
                self.wrong[name].add(value, source, line)
            kinds |= value_kinds

    def _column(self, name: str) -> Column:
        """Return the texts of a column, which are none at first."""
        if name not in self.texts:
            self.texts[name] = Column(name, self.given_types.get(name))
        return self.texts[name]

    def types(self) -> dict[str, Any]:
        """Return the Arrow type of each column.

        Raises:
            DataError: for values that given types do not hold, of all columns.
        """
        arrow_types = {name: self._type(name) for name in self.kinds}
        of_texts = {name: column.wrong for name, column in self.texts.items()}
        problems = []
        for name, offenders in (*self.wrong.items(), *of_texts.items()):
            if offenders.counts:
                problems.append((name, offenders))
        if problems:
            raise self._refused(problems)
        return arrow_types

    def _refused(self, problems: Sequence[tuple[str, Offenders]]) -> DataError:
        """Return the error that names every column with values that its given type does not hold."""
        listed: list[str] = []
        options: dict[str, None] = {}
        are_texts = True
        for name, offenders in problems:
            for value in offenders.counts:
                options[f"--null {value}"] = None
                are_texts = are_texts and value.startswith("'")
            places = ", ".join(offenders.places)
            more = offenders.counts.total() - NAMED_VALUES
            if more > 0:
                places += f", and {more:,} more"
            listed.append(f"{name!r} is {places}, no {self.given_types[name]}")
        problem = "; ".join(listed)
        if len(options) <= FEW_NULLS and are_texts:
            problem += f"; {' '.join(options)} makes these missing values"
        source, line = problems[0][1].first
        return DataError(source, problem, line=line)

    def _type(self, name: str) -> Any:
        """Return the Arrow type of a column, from its texts in CSV files and from the kinds of its other values."""
        texts = self.texts.get(name)
        kinds = self.kinds[name]
        kind = TEXT
        if texts is not None:
            kind = texts.kind()  # which looks at the last values
        if name in self.given_types:
            return types()[self.given_types[name]].arrow
        if texts is None or not texts.filled:
            return arrow_type(kinds)
        if kind == TEXT:
            return types()[TEXT].arrow
        if kind != "int":
            return arrow_type(kinds | (types()[kind].kinds - {"int"}))
        if texts.candidates and "float" in texts.candidates:
            return arrow_type(kinds | {"int"})
        return arrow_type(kinds | {"long"})


def _are_long(values: Sequence[Any], value_types: set[type]) -> bool:
    """Tell whether one of some values is a whole number that a float64 may not hold."""
    if int not in value_types:
        return False
    numbers = [value for value in values if type(value) is int]
    return min(numbers) < -LARGEST_EXACT or max(numbers) > LARGEST_EXACT
