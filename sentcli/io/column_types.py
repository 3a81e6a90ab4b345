"""The types of a table's columns, found in all values of each, whatever the format of the file.

A format says what its values are, and what its texts may stand for besides: those of CSV and of front matter for
numbers, true and false, dates and times, those of JSON and of spreadsheets for dates and times, those of Parquet for
nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.sources import ANY_LOOK, Look

if TYPE_CHECKING:
    import pyarrow as pa

TEXT = "text"
NAMED_VALUES = 10
"""How many values that a given type does not hold are named of a column."""
FEW_NULLS = 3
"""At most so many different values that a given type does not hold may all stand for missing ones."""
BATCH_VALUES = 16_384
"""How many texts of a column are looked at together."""
_TYPE_NAMES = {str: "str", bool: "bool", float: "float", list: "list", dict: "dict", NoneType: ""}
"""The types of values of which all are of one kind, with its name."""
CONVERTED = frozenset({Decimal, date})
"""The types of values that become others in a column of numbers, or of times: a spreadsheet has midnight as a date."""
_LOOK_PATTERNS: dict[Look, str] = {
    "number": r"^-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?$",
    "shortest number": r"^-?(0|[1-9][0-9]*)?(\.[0-9]*[1-9])?([eE][-+]?[0-9]+)?$",
    "bool": r"^(?i:true|false)$",
    "time": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.,+Z-]*)?$",
}
"""How values look that may have a type; a number has no leading zero or plus, as numbers of articles or phones may,
and the shortest no zero at its end, as versions may."""
_LONG = r"^-?[0-9]{16,}$"
"""Whole numbers of which a float64 would lose digits."""
LARGEST_EXACT = 2**53
"""A float64 holds all whole numbers up to this one."""


class ColumnType(NamedTuple):
    """A type that a column may have."""

    arrow: pa.DataType
    looks: frozenset[Look]
    """How its texts may look."""
    kinds: frozenset[str]
    """The names of the types of Python that it holds, as for `type_of`."""


@cache
def types() -> dict[str, ColumnType]:
    """Return the types by the names of ``--types``, of those with one look the narrowest first."""
    import pyarrow as pa

    number: frozenset[Look] = frozenset({"number", "shortest number"})
    time: frozenset[Look] = frozenset({"time"})
    return {
        "int": ColumnType(pa.int64(), number, frozenset({"int", "long"})),
        "float": ColumnType(pa.float64(), number, frozenset({"int", "float"})),
        "bool": ColumnType(pa.bool_(), frozenset({"bool"}), frozenset({"bool"})),
        "date": ColumnType(pa.date32(), time, frozenset({"date"})),
        "timestamp": ColumnType(pa.timestamp("us"), time, frozenset({"datetime", "date"})),
        "timestamp-utc": ColumnType(pa.timestamp("us", "UTC"), time, frozenset({"datetime-utc"})),
        TEXT: ColumnType(pa.string(), frozenset(), frozenset()),
    }


def name_of(kind: Any) -> str:
    """Return the name of an Arrow type, or of its text in a manifest; `TEXT` for one without a name."""
    for name, named in types().items():
        if str(named.arrow) == str(kind):
            return name
    return TEXT


def _narrowest(kinds: set[str]) -> str:
    """Return the name of the narrowest type that holds values of these kinds; text holds any value, as JSON."""
    if kinds:
        for name, named in types().items():
            if kinds <= named.kinds:
                return name
    return TEXT


def type_of(value: object) -> str:
    """Return the name of a value's type: ``long`` for a whole number that a float64 may not hold, nothing for None.

    A decimal is a whole number if it has no places behind the point, else a float.
    """
    name = _TYPE_NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int) or exponent < 0:
            return "float"
        value = int(value)
    if type(value) is int and abs(value) > LARGEST_EXACT:
        return "long" if -(2**63) <= value < 2**63 else "other"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return "datetime-utc"
    return type(value).__name__


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
    """The values of a column, read once from the first to the last, and the types that hold all of them."""

    name: str
    given_type: str | None = None
    """The type that the user gave, or the output has; None finds it."""
    counts: Counter[str] = field(default_factory=Counter)
    """How many values are of each `type_of`, besides texts that may stand for something else."""
    firsts: dict[str, str] = field(default_factory=dict)
    """The first value of each kind with its place, in the order in which they came."""
    candidates: list[str] | None = None
    """The names of the types that hold all texts so far, the narrowest first; None before the first one."""
    filled: int = 0
    """The number of texts that may stand for something else."""
    typed: int = 0
    """The number of those that look like it."""
    odd: str = ""
    """The first text that no type holds with those before it, else the first one, and its place."""
    wrong: Offenders = field(default_factory=Offenders)
    """The values that the given type does not hold."""
    is_converted: bool = False
    """Whether it has values that become others when they get the type of the column."""
    is_made: bool = False
    """Whether it is no column of the input, but one that passages have."""
    texts: list[str] = field(default_factory=list)
    """Texts that are not looked at yet."""
    places: list[tuple[str, int]] = field(default_factory=list)
    """The input and the line of each."""
    looks: frozenset[Look] = frozenset()
    """What they may stand for."""

    def extend(self, values: Sequence[Any], source: str, lines: Sequence[int], looks: frozenset[Look]) -> None:
        """Take values at their lines.

        Args:
            values: of the column, None where one is missing.
            source: the name of the input.
            lines: the line of each.
            looks: what texts may stand for; if for anything, an empty one is a missing value.
        """
        if self.given_type is not None:
            looks = ANY_LOOK
        elif self.candidates == [] and not self.typed:  # its texts are texts
            looks = frozenset()
        if looks:
            values, lines = self._without_texts(values, source, lines, looks)
        kinds = list(map(type_of, values))
        for kind in dict.fromkeys(kinds):
            if kind and kind not in self.firsts:
                number = kinds.index(kind)
                self.firsts[kind] = _placed(values[number], source, lines[number])
        self.counts.update(filter(None, kinds))
        self.is_converted = self.is_converted or not CONVERTED.isdisjoint(map(type, values))
        if self.given_type not in (None, TEXT):
            given_kinds = types()[self.given_type].kinds
            for number, kind in enumerate(kinds):
                if kind and kind not in given_kinds:
                    self.wrong.add(values[number], source, lines[number])

    def _without_texts(
        self, values: Sequence[Any], source: str, lines: Sequence[int], looks: frozenset[Look]
    ) -> tuple[list[Any], list[int]]:
        """Keep the texts among some values to look at them, and return the other values with their lines."""
        if looks != self.looks:
            self._look()
            self.looks = looks
        others: list[Any] = []
        lines_of_others: list[int] = []
        for value, line in zip(values, lines, strict=True):
            if value and isinstance(value, str):
                self.texts.append(value)
                self.places.append((source, line))
            elif value == "" and looks == ANY_LOOK:
                self.is_converted = True
            else:
                others.append(value)
                lines_of_others.append(line)
        if len(self.texts) >= BATCH_VALUES:
            self._look()
        return others, lines_of_others

    def kind(self) -> str:
        """Return the name of the type."""
        self._look()
        if self.given_type is not None:
            return self.given_type
        kinds = set(self.counts)
        if self.filled:
            kinds |= self._kinds_of_texts()
        return _narrowest(kinds)

    def _kinds_of_texts(self) -> set[str]:
        """Return the kinds of the values that the texts stand for."""
        if not self.candidates:
            return {"str"}
        narrowest = self.candidates[0]
        if narrowest != "int":
            return set(types()[narrowest].kinds - {"int"})
        if "float" in self.candidates:
            return {"int"}
        return {"long"}

    @property
    def mixed(self) -> str:
        """Where values of a type are mixed with others, so that the column is text: the first other value."""
        if self.given_type is not None or self.kind() != TEXT:
            return ""
        typed = self.typed
        for kind, count in self.counts.items():
            if _narrowest({kind}) != TEXT:
                typed += count
        if not typed or 2 * typed < self.filled + self.counts.total():
            return ""
        together: set[str] = set()
        for kind, first in self.firsts.items():
            together.add(kind)
            if _narrowest(together) == TEXT:
                return first
        return self.odd

    def _look(self) -> None:
        """Look at the texts that were added since the last time."""
        import pyarrow as pa

        if self.texts:
            self.is_converted = True
            if self.given_type != TEXT:
                array = pa.array(self.texts, pa.string())
                if self.given_type is not None:
                    self._check_given(self.given_type, array)
                else:
                    self._narrow(array)
                self.filled += len(array)
        self.texts = []
        self.places = []

    def _check_given(self, given: str, array: Any) -> None:
        """Note the texts of an array that the given type does not hold."""
        if _converts(given, array):
            return
        for number, place in enumerate(self.places):
            if not _converts(given, array[number : number + 1]):
                self.wrong.add(self.texts[number], *place)

    def _narrow(self, array: Any) -> None:
        """Leave the candidates that hold all texts of an array, and count those that look like one of a type."""
        import pyarrow.compute as pc

        before = self.candidates
        if before is None:
            before = [name for name in types() if self._holds(name, array[:1])]
        self.candidates = [name for name in before if self._holds(name, array)]
        if self.filled == 0:
            self.odd = _placed(self.texts[0], *self.places[0])
        if before and not self.candidates:
            number = 0
            while number < len(array) - 1 and self._holds(before[-1], array[number : number + 1]):
                number += 1
            self.odd = _placed(self.texts[number], *self.places[number])
        for look in self.looks:
            self.typed += pc.sum(pc.match_substring_regex(array, _LOOK_PATTERNS[look])).as_py()

    def _holds(self, name: str, array: Any) -> bool:
        """Tell whether a type holds all texts of an array, and whether they look like it."""
        import pyarrow.compute as pc

        looks = types()[name].looks & self.looks
        if not looks:
            return False
        for look in looks:
            if not pc.all(pc.match_substring_regex(array, _LOOK_PATTERNS[look])).as_py():
                return False
        if name == "float" and pc.any(pc.match_substring_regex(array, _LONG)).as_py():
            return False
        return _converts(name, array)


def _placed(value: object, source: str, line: int) -> str:
    """Return a value with its place."""
    return f"{value!r:.60} ({source}, line {line})"


def _converts(name: str, array: Any) -> bool:
    """Tell whether all texts of an array can be converted to a type."""
    import pyarrow as pa

    try:
        array.cast(types()[name].arrow)
    except pa.ArrowInvalid:
        return False
    return True


def cast(values: list[Any], kind: Any) -> list[Any]:
    """Return the values of a column with texts, decimals and dates as those of an Arrow type; an empty text is None."""
    import pyarrow as pa

    texts = [value for value in values if isinstance(value, str) and value]
    converted = iter(pa.array(texts, pa.string()).cast(kind).to_pylist())
    of_decimal: type[float] = float if pa.types.is_floating(kind) else int
    has_times = pa.types.is_timestamp(kind)
    result: list[Any] = []
    for value in values:
        if isinstance(value, Decimal):
            result.append(of_decimal(value))
        elif has_times and type(value) is date:
            result.append(datetime(value.year, value.month, value.day))
        elif not isinstance(value, str):
            result.append(value)
        else:
            result.append(next(converted) if value else None)
    return result


@dataclass
class Columns:
    """The columns of tables that are read once, from the first row to the last, and their types."""

    given_types: Mapping[str, str] = field(default_factory=dict)
    """The types that the user gave, or the output has, by the names of columns."""
    by_name: dict[str, Column] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Column:
        """Return a column, which is empty at first."""
        if name not in self.by_name:
            self.by_name[name] = Column(name, self.given_types.get(name))
        return self.by_name[name]

    def types(self) -> dict[str, str]:
        """Return the name of the type of each column.

        Raises:
            DataError: for values that given types do not hold, of all columns.
        """
        kinds = {name: column.kind() for name, column in self.by_name.items()}
        problems = [column for column in self.by_name.values() if column.wrong.counts]
        if problems:
            raise _refused(problems)
        return kinds


def _refused(problems: Sequence[Column]) -> DataError:
    """Return the error that names every column with values that its given type does not hold."""
    listed: list[str] = []
    options: dict[str, None] = {}
    are_texts = True
    for column in problems:
        offenders = column.wrong
        for value in offenders.counts:
            options[f"--null {value}"] = None
            are_texts = are_texts and value.startswith("'")
        places = ", ".join(offenders.places)
        more = offenders.counts.total() - NAMED_VALUES
        if more > 0:
            places += f", and {more:,} more"
        listed.append(f"{column.name!r} is {places}, no {column.given_type}")
    problem = "; ".join(listed)
    if len(options) <= FEW_NULLS and are_texts:
        problem += f"; {' '.join(options)} makes these missing values"
    source, line = problems[0].wrong.first
    return DataError(source, problem, line=line)
