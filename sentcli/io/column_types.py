"""The types of a table's columns: CSV and TSV name none, so they are found in the values of the whole column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from sentcli.errors import DataError, InputError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

TEXT = "text"
BATCH_VALUES = 16_384
"""How many values of a column are looked at together."""
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
    values: list[str] = field(default_factory=list)
    """Values that are not looked at yet."""
    places: list[tuple[str, int]] = field(default_factory=list)
    """The input and the line of each."""

    def add(self, value: str, source: str, line: int) -> None:
        """Take a value at a place; an empty one is a missing value.

        Raises:
            DataError: if the given type does not hold it, or one of the values before.
        """
        if value:
            self.values.append(value)
            self.places.append((source, line))
            if len(self.values) == BATCH_VALUES:
                self._look()

    def kind(self) -> str:
        """Return the name of the type.

        Raises:
            DataError: if the given type does not hold all values.
        """
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
                wrong = next(i for i in range(len(array)) if not _holds(self.given, array[i : i + 1], as_given=True))
                source, line = self.places[wrong]
                raise DataError(source, f"{self.name!r} is {self.values[wrong]!r}, no {self.given}", line=line)
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


def check_held(column: str, given: str, value: object, source: str, line: int) -> None:
    """Refuse a value of JSON Lines or Parquet that a given type does not hold.

    Raises:
        DataError: which names the place.
    """
    if given != TEXT and not kinds_of(value) <= types()[given][2]:
        raise DataError(source, f"{column!r} is {value!r:.60}, no {given}", line=line)


def column_type(column: str, texts: Column | None, kinds: set[str], given: Mapping[str, str]) -> Any:
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
