"""Tables of all types of columns as other programs write them in every format, and conditions on their columns.

A table is drawn, and written by pandas, pyarrow, DuckDB, openpyxl or json. DuckDB is told the types that were drawn and
asks the same file, or the table itself where it does not read the format.
"""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

duckdb = pytest.importorskip("duckdb")
openpyxl = pytest.importorskip("openpyxl")
NAMES = ["n", "a b", "0", "Größe", "when", "x.y", "1e5", "N_1"]
"""Names of columns, among them words of SQL and what looks like numbers."""
TEXTS = ["a", "b b", "NO", "007", "12:30", "1.10", "x,y;z|", "ü", "2024-01-05", "true", "7", "-", "it's", 'a "b"']
TEXTS += ["nan", "null", "+7", "1e5", "0x1f", "1_000", "[1]", "e\u0301", "2024-01-05 soon", "12345678901234567890"]
DAYS = [datetime.date(1600, 2, 29), datetime.date(2024, 1, 5), datetime.date(9999, 12, 31)]
TIMES = [
    datetime.datetime(2023, 12, 31, 23, 59, 59),
    datetime.datetime(2024, 1, 5),
    datetime.datetime(2024, 1, 5, 10, 30, 0, 250_000),
]
HERE, THERE = datetime.timezone(datetime.timedelta(hours=2)), datetime.timezone(datetime.timedelta(hours=-5))
MOMENTS = [time.replace(tzinfo=zone) for time, zone in zip(TIMES, (datetime.UTC, HERE, THERE), strict=True)]
KINDS = {
    "int": (pa.int64(), [0, 7, -3, 2**40, 2**53 + 1, -(2**62)]),
    "float": (pa.float64(), [0.5, -2.25, 1e9, 7.0, 0.1, 1e300, -0.0]),
    "bool": (pa.bool_(), [True, False]),
    "date": (pa.date32(), DAYS),
    "timestamp": (pa.timestamp("us"), TIMES),
    "timestamp-utc": (pa.timestamp("us", "UTC"), MOMENTS),
    "decimal": (pa.decimal128(9, 2), [Decimal("2.50"), Decimal("-10.00"), Decimal("0.10"), Decimal("7.00")]),
    "time": (pa.time64("us"), [datetime.time(10, 30), datetime.time(0), datetime.time(23, 59, 59)]),
    "list": (pa.list_(pa.int64()), [[1, 2], [3]]),
    "text": (pa.string(), TEXTS),
}
"""For each type that of Arrow, and the values that are drawn."""
SQL = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp-utc": "TIMESTAMPTZ",
    "decimal": "DECIMAL(9, 2)",
    "time": "TIME",
    "list": "BIGINT[]",
    "text": "VARCHAR",
}
HERE_AS = {"decimal": "float", "time": "text", "list": "text"}
"""The types that have another name here."""
OPERATORS = ["=", "!=", "<", "<=", ">", ">="]


@st.composite
def tables(draw):
    """Draw the kinds of columns by name, and rows; each column may have nulls, or nothing else."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique_by=str.lower))
    kinds = {name: draw(st.sampled_from(list(KINDS))) for name in names}
    count = draw(st.integers(1, 6))
    rows = [{"id": f"r{number}", "text": f"text {number}"} for number in range(count)]
    for name, kind in kinds.items():
        values = st.sampled_from(KINDS[kind][1])
        for row in rows:
            row[name] = draw(st.none() | values if draw(st.booleans()) else values)
    return kinds, rows


def literal(kind, value):
    """Return a value as SQL writes it."""
    if kind in ("int", "float", "decimal"):
        return str(value)
    if kind == "bool":
        return str(value).lower()
    text = str(value).replace("'", "''")
    return f"'{text}'"


@st.composite
def conditions(draw, kinds):
    """Draw a condition on one of some columns."""
    name = draw(st.sampled_from(list(kinds)))
    kind = kinds[name]
    form = "null" if kind == "list" else draw(st.sampled_from(["compare", "compare", "in", "null"]))
    values = st.sampled_from(KINDS[kind][1])
    if form == "null":
        return f'"{name}" IS {draw(st.sampled_from(["NULL", "NOT NULL"]))}'
    if form == "in":
        listed = ", ".join(literal(kind, value) for value in draw(st.lists(values, min_size=1, max_size=3)))
        return f'"{name}" {draw(st.sampled_from(["IN", "NOT IN"]))} ({listed})'
    operator = draw(st.sampled_from(OPERATORS[:2] if kind == "bool" else OPERATORS))
    return f'"{name}" {operator} {literal(kind, draw(values))}'


def in_arrow(kinds, rows):
    columns = {"id": [row["id"] for row in rows], "text": [row["text"] for row in rows]}
    for name, kind in kinds.items():
        columns[name] = pa.array([row[name] for row in rows], KINDS[kind][0])
    return pa.table(columns)


def quoted(names):
    return ", ".join(f'"{name}"' for name in names)


def by_json(path, table, rows):
    lines = [json.dumps(row, default=lambda value: float(value) if isinstance(value, Decimal) else value.isoformat())
             for row in rows]  # fmt: skip
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def by_openpyxl(path, table, rows):
    book = openpyxl.Workbook()
    book.active.append(table.column_names)
    for row in rows:
        cells = []
        for value in map(row.get, table.column_names):
            if isinstance(value, datetime.datetime) and value.tzinfo is not None:
                value = value.isoformat()  # Excel has no zones
            cells.append(str(value) if isinstance(value, list) else value)
        book.active.append(cells)
    book.save(path)


def by_duckdb(path, table, rows):
    form = {".csv": "csv, header true", ".jsonl": "json", ".parquet": "parquet"}[path.suffix]
    connection = connected()
    connection.register("drawn", table)
    connection.execute(f"COPY drawn TO '{path}' (FORMAT {form})")


def by_pandas_csv(path, table, rows):
    pd.DataFrame(rows, columns=table.column_names, dtype=object).to_csv(path, index=False)


WRITERS = {
    "pandas.csv": by_pandas_csv,
    "pandas.parquet": lambda path, table, rows: table.to_pandas().to_parquet(path, index=False),
    "duckdb.csv": by_duckdb,
    "duckdb.jsonl": by_duckdb,
    "duckdb.parquet": by_duckdb,
    "json.jsonl": by_json,
    "pyarrow.parquet": lambda path, table, rows: pq.write_table(table, path),
    "pyarrow.feather": lambda path, table, rows: feather.write_feather(table, str(path)),
    "openpyxl.xlsx": by_openpyxl,
}
DEEP = {"openpyxl.xlsx": pytest.mark.deep}  # each example of a workbook is read by a process of its own


def connected():
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    return connection


def relation(path, kinds, table, connection):
    """Return what DuckDB asks: the file with the types that were drawn, or the table."""
    columns = {"id": "VARCHAR", "text": "VARCHAR", **{name: SQL[kind] for name, kind in kinds.items()}}
    if path.suffix == ".csv":
        return f"read_csv('{path}', header = true, delim = ',', columns = {columns!r})"
    if path.suffix == ".jsonl":
        return f"read_json('{path}', format = 'newline_delimited', columns = {columns!r})"
    if path.suffix == ".parquet":
        return f"read_parquet('{path}')"
    connection.register("drawn", table)
    return "drawn"


def without_early_days(rows):
    """Return rows without days before 1900: a spreadsheet has none, and openpyxl makes negative numbers of them."""
    kept = []
    for row in rows:
        is_early = {name: isinstance(value, datetime.date) and value.year < 1900 for name, value in row.items()}
        kept.append({name: None if is_early[name] else value for name, value in row.items()})
    return kept


class Drawn(NamedTuple):
    """A table that was drawn, and conditions on its columns."""

    kinds: dict[str, str]
    """Of the columns by name, without those of ids and texts."""
    rows: list[dict[str, object]]
    conditions: list[str]

    def write(self, writer, folder):
        """Write the table by one of `WRITERS`; returns the file, and a function that asks DuckDB about it."""
        path = Path(folder) / f"t.{writer.partition('.')[2]}"
        table = in_arrow(self.kinds, self.rows)
        WRITERS[writer](path, table, self.rows)
        connection = connected()
        source = relation(path, self.kinds, table, connection)
        return path, lambda sql: connection.execute(sql.format(source=source)).fetchall()


@st.composite
def written_tables(draw, writer):
    """Draw a table that a writer can write, and three conditions."""
    kinds, rows = draw(tables())
    if writer == "openpyxl.xlsx":
        rows = without_early_days(rows)
    return Drawn(kinds, rows, [draw(conditions(kinds)) for _ in range(3)])
