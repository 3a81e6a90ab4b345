"""The table that console, notebooks and pages show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

MISSING = "\N{EN DASH}"
"""Shown in the place of a number that is not known."""
FORMULA = "=+-@\t\r"
"""With these signs a formula of a spreadsheet begins."""
MINUS = "\N{MINUS SIGN}"


def format_apart(values: Iterable[float | None], digits: int) -> str:
    """Return the format of scores, with more digits than `digits`, up to four, if these show different ones alike."""
    known = [value for value in values if value is not None]
    fewest = digits
    different = 0
    for more in range(digits, max(digits, 4) + 1):  # 4: the most digits by which scores are told apart
        shown = len({f"{value:.{more}f}" for value in known})
        if shown > different:
            fewest = more
            different = shown
    return f".{fewest}f"


def inert(value: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would run as a formula; `as_it_was` takes it away."""
    formula = isinstance(value, str) and len(value) > 1 and value.lstrip("'")[:1] in set(FORMULA)
    if formula:
        return f"'{value}"
    return value


def as_it_was(value: Any) -> Any:
    """Return a text without the apostrophe that `inert` has put before it."""
    marked = isinstance(value, str) and value.startswith("'") and value.lstrip("'")[:1] in set(FORMULA)
    if marked:
        return value[1:]
    return value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


@dataclass(frozen=True)
class Table:
    """Rows of raw values, and how they are shown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """Numbers and texts; None is a number that is not known."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Format specifications of columns, such as ``+.2f``; else `number`, and ``,d`` for whole numbers."""
    ranked: Sequence[str] = ()
    """Columns whose best and second best entries are marked; higher numbers are better."""
    intervals: Mapping[tuple[int, str], tuple[float, float]] = field(default_factory=dict)
    """95 % intervals of entries, by row and column."""
    deviations: Mapping[tuple[int, str], float] = field(default_factory=dict)
    """Standard deviations of entries that are means over seeds, by row and column."""
    published: int = 0
    """Number of rows, the last ones, that are taken from papers; they are set apart and not ranked."""
    notes: Sequence[str] = ()
    """Sentences that are shown below the table, wherever it is shown."""
    interval_note: str = ""
    """A note that is shown where the intervals are."""
    wide: Sequence[str] = ()
    """Columns of long text, which may need several lines."""
    texts: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Texts that replace single entries, such as ``< 0.001``, by numbers of row and column."""
    number: str = ".2f"
    """The format of numbers that are not whole."""

    @classmethod
    def of_rows(
        cls,
        title: str,
        rows: Sequence[Mapping[str, Any]],
        *,
        optional: Sequence[str] = (),
        texts: Mapping[tuple[int, str], str] = MappingProxyType({}),
        **more: Any,
    ) -> Table:
        """Return the table of rows that all have the same keys, which are the columns.

        Args:
            title: of the table.
            rows: values by column.
            optional: columns that are left out where no row has a value.
            texts: texts that replace single entries, by number of row and name of column.
            more: other fields.
        """
        columns = []
        for column in rows[0]:
            values = list(map(itemgetter(column), rows))
            if column not in optional or values.count(None) < len(values):
                columns.append(column)
        shown = {}
        for (number, column), text in texts.items():
            if column in columns:
                shown[number, columns.index(column)] = text
        cells = [list(map(row.__getitem__, columns)) for row in rows]
        return cls(title, columns, cells, texts=shown, **more)

    @classmethod
    def of_frame(cls, title: str, frame: pd.DataFrame, **more: Any) -> Table:
        """Return the table of a data frame without its index; ``NaN`` is a number that is not known."""
        rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
        return cls(title, [str(column) for column in frame.columns], rows, **more)

    def to_frame(self) -> pd.DataFrame:
        """Return the raw values as a data frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.columns))

    def numeric(self, column: str | int) -> bool:
        """Tell whether a column holds numbers, which are aligned to the right.

        Here and below, a column is given by its name or its number, since two columns may have the same name.
        """
        i = self._number(column)
        holds_numbers = False
        for row in self.rows:
            value = row[i]
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                return False
            holds_numbers = holds_numbers or value is not None
        return holds_numbers

    def shown(self, row: int, column: str | int) -> str:
        """Return an entry as people read it, without its interval."""
        i = self._number(column)
        name, value = self.columns[i], self.rows[row][i]
        if (row, i) in self.texts:
            return self.texts[row, i]
        if value is None:
            return MISSING
        if not isinstance(value, int | float) or isinstance(value, bool):
            return str(value)
        if math.isinf(value):
            sign = "" if value > 0 else MINUS
            return f"{sign}\N{INFINITY}"
        usual = ",d" if isinstance(value, int) else self.number
        pattern = self.formats.get(name, usual)
        text = format(value, pattern)
        deviation = self.deviations.get((row, name))
        if deviation is not None:
            text += f" \N{PLUS-MINUS SIGN} {format(deviation, pattern)}"
        return text.replace("-", MINUS)

    def rank(self, row: int, column: str | int) -> Literal["", "best", "second"]:
        """Tell whether an entry is the best or second best of its column, by the rounded numbers."""
        i = self._number(column)
        measured = len(self.rows) - self.published
        if self.columns[i] not in self.ranked or row >= measured or self.rows[row][i] is None:
            return ""
        pattern = self.formats.get(self.columns[i], self.number)
        rounded = set()
        for entries in self.rows[:measured]:
            if entries[i] is not None:
                rounded.add(float(format(entries[i], pattern)))
        best = sorted(rounded, reverse=True)
        if len(best) < 2:  # a single value, or all are equal: nobody has won
            return ""
        value = float(format(self.rows[row][i], pattern))
        if value == best[0]:
            return "best"
        if value == best[1]:
            return "second"
        return ""

    def interval(self, row: int, column: str | int) -> tuple[float, float] | None:
        """Return the 95 % interval of an entry, if it has one."""
        return self.intervals.get((row, self.columns[self._number(column)]))

    def interval_text(self, row: int, column: str | int) -> str:
        """Return the 95 % interval of an entry in the entry's format; an empty text if it has none."""
        interval = self.interval(row, column)
        if interval is None:
            return ""
        pattern = self.formats.get(self.columns[self._number(column)], self.number)
        return " to ".join(format(end, pattern) for end in interval).replace("-", MINUS)

    def notes_below(self, *, intervals: bool) -> list[str]:
        """Return the notes that stand below the table, where the intervals are shown or not."""
        if intervals and self.interval_note:
            return [self.interval_note, *self.notes]
        return list(self.notes)

    def _number(self, column: str | int) -> int:
        if isinstance(column, int):
            return column
        return self.columns.index(column)

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        from html import escape

        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        body = ""
        for row in range(len(self.rows)):
            cells = [self._cell(row, column) for column in range(len(self.columns))]
            body += f"<tr>{''.join(cells)}</tr>"
        caption = f"<caption>{escape(self.title)}</caption>"
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes_below(intervals=bool(self.intervals)))
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _cell(self, row: int, column: int) -> str:
        """Return an entry with its interval as an element of HTML."""
        from html import escape

        text = self.shown(row, column)
        interval = self.interval_text(row, column)
        if interval:
            text += f" ({interval})"
        return f"<td>{escape(text)}</td>"
