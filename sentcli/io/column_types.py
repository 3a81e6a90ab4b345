"""The types of a table's columns: CSV and TSV name none, so they are found in the values of the whole column."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any

from sentcli.errors import DataError, InputError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

TEXT = "text"
NAMED_VALUES = 10
"""How many values that a given type does not hold are named of a column."""
FEW_NULLS = 3
"""So many different values that a given type does not hold may all stand for missing ones."""
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


@cache
def types() -> dict[str, tuple[pa.DataType, str, frozenset[str]]]:
    """Return the types by the names of ``--types``: the type of Arrow, the look, and the Python types that it holds."""
    import pyarrow as pa

    return {
        "int": (pa.int64(), "number", frozenset({"int", "long"})),
        "float": (pa.float64(), "number", frozenset({"int", "float"})),
        "bool": (pa.bool_(), "bool", frozenset({"bool"})),
        "date": (pa.date32(), "time", frozenset({"date"})),
        "timestamp": (pa.timestamp("us"), "time", frozenset({"datetime"})),
        "timestamp-utc": (pa.timestamp("us", "UTC"), "time", frozenset({"datetime-utc"})),
        TEXT: (pa.string(), "", frozenset()),
    }


def name_of(kind: Any) -> str:
    """Return the name of an Arrow type, or of its text in a manifest; `TEXT` for one without a name."""
    return next((name for name, (known, _, _) in types().items() if str(known) == str(kind)), TEXT)


def arrow_type(kinds: set[str]) -> Any:
    """Return the narrowest Arrow type that holds values of these `kinds_of`; text holds any value, as JSON."""
    found = (kind for kind, _, held in types().values() if kinds and kinds <= held)
    return next(found, types()[TEXT][0])


def kinds_of(value: object) -> set[str]:
    """Return the name of a value's type, ``long`` for an integer beyond float64's precision, nothing for None."""
    if value is None:
        return set()
    if type(value) is int and abs(value) > 2**53:  # a float64 holds smaller integers, too
        return {"long" if -(2**63) <= value < 2**63 else "other"}
    name = type(value).__name__
    return {f"{name}-utc" if name == "datetime" and getattr(value, "tzinfo", None) is not None else name}


def parse_types(items: Sequence[str]) -> dict[str, str]:
    """Read the values of ``--types``: ``COLUMN=TYPE``, also several with commas between.

    Raises:
        InputError: for anything else.
    """
    chosen: dict[str, str] = {}
    for item in (part for text in items for part in text.split(",")):
        column, equals, name = (part.strip() for part in item.rpartition("="))
        if not equals or not column or name not in types():
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
    given: str | None = None
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
        return self.given or (self.candidates or [TEXT])[0]

    @property
    def mixed(self) -> str:
        """Where the column mixes values of a type with others, so that it stays text: the first other value."""
        return self.odd if self.given is None and not self.candidates and 2 * self.typed > self.filled else ""

    def _look(self) -> None:
        """Look at the values that were added since the last time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.values or self.given == TEXT:
            self.values, self.places = [], []
            return
        array = pa.array(self.values, pa.string())
        if self.given is not None:
            if not _holds(self.given, array, as_given=True):
                for place, value, one in zip(self.places, self.values, range(len(array)), strict=True):
                    if not _holds(self.given, array[one : one + 1], as_given=True):
                        self.wrong.add(value, *place)
        elif self.candidates != [] or self.typed:
            before = self.candidates
            if before is None:
                before = [name for name in types() if name != TEXT and _holds(name, array[:1])]
            self.candidates = [name for name in before if _holds(name, array)]
            if not self.candidates and not self.odd:
                odd = (i for i in range(len(array)) if not before or not _holds(before[-1], array[i : i + 1]))
                wrong = next(odd, 0)
                self.odd = "{!r} ({}, line {})".format(self.values[wrong], *self.places[wrong])
            looks = "|".join(f"({look})" for look in PATTERNS.values())
            self.typed += pc.sum(pc.match_substring_regex(array, looks)).as_py() or 0
        self.filled += len(array)
        self.values, self.places = [], []


def _holds(name: str, array: Any, *, as_given: bool = False) -> bool:
    """Tell whether a type holds all texts of an array, and, unless it was given, whether they look like it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, look, _ = types()[name]
    if not as_given:
        if not pc.all(pc.match_substring_regex(array, PATTERNS[look])).as_py():
            return False
        # Whole numbers of which a float64 would lose digits
        if name == "float" and pc.any(pc.match_substring_regex(array, r"^-?[0-9]{16,}$")).as_py():
            return False
    try:
        array.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def cast(values: list[Any], kind: Any) -> list[Any]:
    """Return the values of a column with its texts as values of an Arrow type; an empty text is None."""
    import pyarrow as pa

    texts = [(i, value) for i, value in enumerate(values) if isinstance(value, str) and value]
    converted = pa.array([text for _, text in texts], pa.string()).cast(kind).to_pylist()
    result = [None if isinstance(value, str) else value for value in values]
    for (i, _), value in zip(texts, converted, strict=True):
        result[i] = value
    return result


@dataclass
class Columns:
    """The columns of tables that are read once, from the first row to the last, and their types."""

    given: Mapping[str, str] = field(default_factory=dict)
    """The types that the user gave, or the output has, by the names of columns."""
    texts: dict[str, Column] = field(default_factory=dict)
    """The columns that have texts to be converted."""
    kinds: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The kinds of all other values of each column."""
    wrong: defaultdict[str, Offenders] = field(default_factory=lambda: defaultdict(Offenders))
    """The values of JSON Lines or Parquet that the given type of their column does not hold."""

    def extend(self, name: str, values: Sequence[Any], source: str, lines: Sequence[int], *, untyped: bool) -> None:
        """Take values at their lines; `untyped`: texts of their format may stand for values of other types."""
        found = set(map(type, values))
        is_plain = not untyped and name not in self.given and found <= PLAIN
        if is_plain and int in found:
            numbers = [value for value in values if type(value) is int]
            is_plain = min(numbers) >= -(2**53) and max(numbers) <= 2**53
        if is_plain:
            self.kinds[name] |= {kind.__name__ for kind in found if kind is not NoneType}
            return
        for value, line in zip(values, lines, strict=True):
            self.add(name, value, source, line, untyped=untyped)

    def add(self, name: str, value: Any, source: str, line: int, *, untyped: bool) -> None:
        """Take a value at a place; see `extend`."""
        given, kinds = self.given.get(name), self.kinds[name]
        if isinstance(value, str) and (untyped or given is not None):
            self.texts.setdefault(name, Column(name, given)).add(value, source, line)
            return
        if given not in (None, TEXT) and not kinds_of(value) <= types()[given][2]:
            self.wrong[name].add(value, source, line)
        kinds |= kinds_of(value)

    def types(self) -> dict[str, Any]:
        """Return the Arrow type of each column.

        Raises:
            DataError: for values that given types do not hold, of all columns.
        """
        texts = self.texts
        found = {name: _column_type(name, texts.get(name), kinds, self.given) for name, kinds in self.kinds.items()}
        wrong = [*self.wrong.items(), *((name, column.wrong) for name, column in self.texts.items())]
        problems = [(name, offenders) for name, offenders in wrong if offenders.counts]
        if problems:
            raise self._refused(problems)
        return found

    def _refused(self, problems: Sequence[tuple[str, Offenders]]) -> DataError:
        """Return the error that names every column with values that its given type does not hold."""
        listed = []
        for name, offenders in problems:
            count = offenders.counts.total()
            more = f", and {count - NAMED_VALUES:,} more" if count > NAMED_VALUES else ""
            listed.append(f"{name!r} is {', '.join(offenders.places)}{more}, no {self.given[name]}")
        values = list(dict.fromkeys(value for _, offenders in problems for value in offenders.counts))
        few = len(values) <= FEW_NULLS and all(value.startswith("'") for value in values)
        advice = f"; {' '.join(f'--null {value}' for value in values)} makes these missing values" if few else ""
        source, line = problems[0][1].first
        return DataError(source, "; ".join(listed) + advice, line=line)


def _column_type(column: str, texts: Column | None, kinds: set[str], given: Mapping[str, str]) -> Any:
    """Return the Arrow type of a column, from its texts in CSV files and from the kinds of its other values."""
    if column in given:
        if texts is not None:
            texts.kind()
        return types()[given[column]][0]
    if texts is None:
        return arrow_type(kinds)
    name = texts.kind()
    if not texts.filled:
        return arrow_type(kinds)
    if name == TEXT:
        return types()[TEXT][0]
    if name == "int":
        return arrow_type(kinds | {"int" if "float" in (texts.candidates or []) else "long"})
    return arrow_type(kinds | (types()[name][2] - {"int"}))
