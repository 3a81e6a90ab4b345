"""Tables of all types of columns, as other programs write them in every format, meet conditions as they do in DuckDB.

A type that is found here and is another, since CSV names none, may refuse the condition by the column's name; it may
not give other rows.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sentcli.errors import InputError
from sentcli.io.column_types import name_of
from sentcli.io.readers import ReadOptions
from sentcli.search.condition_reader import parse_condition
from sentcli.search.rows import counted, matching, read_documents_of, write_chosen
from tests.drawn_tables import DEEP, HERE_AS, WRITERS, written_tables
from tests.examples import examples

pytest.importorskip("sqlglot")


def ids_here(documents, condition):
    """Return the ids of the rows that meet a condition; None where it is refused by the name of its column."""
    column = condition.split('"')[1]
    try:
        mask = matching(documents, parse_condition(condition, documents.schema, "table"))
    except InputError as error:
        assert column in str(error), error
        return None
    return [documents.rows[number].id for number in mask.nonzero()[0]]


@pytest.mark.parametrize("writer", [pytest.param(name, marks=DEEP.get(name, ())) for name in WRITERS])
@examples(40)
@given(drawn=st.data())
def test_conditions_give_the_rows_that_duckdb_gives_on_the_same_file(writer, drawn):
    table = drawn.draw(written_tables(writer))
    with tempfile.TemporaryDirectory() as folder:
        path, ask = table.write(writer, folder)
        # an empty cell of CSV is a missing value to DuckDB and an empty text here, unless that is said
        documents = read_documents_of([str(path)], ReadOptions(nulls=("",) if path.suffix == ".csv" else ()))
        copies = {}
        for end in (".jsonl", ".csv", ".parquet"):
            copy = Path(folder) / f"copy{end}"
            write_chosen(documents, range(len(documents)), copy)
            copies[end] = read_documents_of([str(copy)], ReadOptions(nulls=("",)))
        for condition in table.conditions:
            expected = ask(f"SELECT id FROM {{source}} WHERE {condition} ORDER BY id")
            found = ids_here(documents, condition)
            assert found is None or found == [key for (key,) in expected], (condition, documents.schema)
            event("refused" if found is None else "equal")
            for end, copied in copies.items():
                again = ids_here(copied, condition)
                assert found is None or again is None or again == found, (end, condition, copied.schema)
        for name, kind in table.kinds.items():
            found_kind = name_of(documents.schema[name])
            is_right = found_kind == HERE_AS.get(kind, kind)
            if path.suffix in (".parquet", ".feather") and any(row[name] is not None for row in table.rows):
                is_float = kind == "int" and writer == "pandas.parquet"  # which makes floats where one is missing
                assert is_right or is_float
            if is_right and kind != "list":
                counts = ask(f'SELECT "{name}" IS NULL, count(*) FROM {{source}} GROUP BY "{name}"')
                here = [(value is None, count) for value, count in counted(documents, name, None)]
                assert sorted(here) == sorted(counts)
