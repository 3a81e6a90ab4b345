"""What a column of each type of Arrow becomes, as docs/format.md says."""

import datetime
import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli.errors import DataError
from sentcli.io.blocks import blocks, survey
from sentcli.io.column_types import name_of
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import open_source
from sentcli.io.writers import arrow_column

DAY, TIME = datetime.date(2024, 1, 5), datetime.datetime(2024, 1, 5, 10)
UTC = TIME.replace(tzinfo=datetime.UTC)
CLOCK, SPAN = datetime.time(10, 30), datetime.timedelta(seconds=90)
NUMBERS = pa.array([1, None])
PAIRS = pa.array([[1, 2], None], pa.list_(pa.int64(), 2))
FIRST = pa.array([0, 0], pa.int8())
STORED = pa.array([b"\0" * 15 + b"\5", None], pa.binary(16))
SAMPLES = {
    "null": (pa.nulls(2), "text", None),
    "bool": (pa.array([True, None]), "bool", True),
    "bool8": (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())), "bool", True),
    **{f"{sign}int{bits}": (pa.array([1, None], getattr(pa, f"{sign}int{bits}")()), "int", 1)
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "uint64 beyond int64": (pa.array([2**63, None], pa.uint64()), "text", str(2**63)),
    **{f"float{bits}": (pa.array([1.5, None], getattr(pa, f"float{bits}")()), "float", 1.5) for bits in (16, 32, 64)},
    **{f"decimal{bits}": (pa.array([Decimal("2.50"), None], getattr(pa, f"decimal{bits}")(5, 2)), "float", 2.5)
       for bits in (32, 64, 128, 256)},
    "decimal without places": (pa.array([Decimal(3), None], pa.decimal128(38, 0)), "int", 3),
    "date32": (pa.array([DAY, None], pa.date32()), "date", DAY),
    "date64": (pa.array([DAY, None], pa.date64()), "date", DAY),
    **{f"timestamp {unit}": (pa.array([TIME, None], pa.timestamp(unit)), "timestamp", TIME)
       for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp {unit} with zone": (pa.array([UTC, None], pa.timestamp(unit, "Asia/Tokyo")), "timestamp-utc", UTC)
       for unit in ("s", "ms", "us", "ns")},
    "timestamp of nanoseconds": (pa.array([1, None], pa.timestamp("ns")), "text", "1970-01-01 00:00:00.000000001"),
    **{f"time32 {unit}": (pa.array([CLOCK, None], pa.time32(unit)), "text", "10:30:00") for unit in ("s", "ms")},
    **{f"time64 {unit}": (pa.array([CLOCK, None], pa.time64(unit)), "text", "10:30:00") for unit in ("us", "ns")},
    **{f"duration {unit}": (pa.array([SPAN, None], pa.duration(unit)), "text", "0:01:30")
       for unit in ("s", "ms", "us", "ns")},
    "interval": (pa.array([pa.MonthDayNano([1, 2, 3]), None]), "text", "MonthDayNano(months=1, days=2, nanoseconds=3)"),
    **{kind.__name__: (pa.array(["7", None], kind()), "text", "7")
       for kind in (pa.string, pa.large_string, pa.string_view)},
    **{kind.__name__: (pa.array([b"7", None], kind()), "text", "7")
       for kind in (pa.binary, pa.large_binary, pa.binary_view)},
    "fixed_size_binary": (pa.array([b"ab", None], pa.binary(2)), "text", "ab"),
    **{kind.__name__: (pa.array([[1, 2], None], kind(pa.int64())), "text", "[1, 2]")
       for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)},
    "fixed_size_list": (PAIRS, "text", "[1, 2]"),
    "list of times": (pa.array([[TIME], None], pa.list_(pa.timestamp("ns"))), "text", '["2024-01-05 10:00:00"]'),
    "struct": (pa.array([{"a": Decimal("1.50")}, None]), "text", '{"a": "1.50"}'),
    "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), "text", '[["k", 1]]'),
    "dictionary": (pa.array(["a", None]).dictionary_encode(), "text", "a"),
    "dictionary of decimals": (pa.array([Decimal("1.50"), None]).dictionary_encode(), "float", 1.5),
    "run_end_encoded": (pa.RunEndEncodedArray.from_arrays([1, 2], NUMBERS), "int", 1),
    "run_end_encoded times": (
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([TIME, None], pa.timestamp("ns"))), "timestamp", TIME),
    "dense_union": (pa.UnionArray.from_dense(FIRST, pa.array([0, 1], pa.int32()), [NUMBERS]), "int", 1),
    "sparse_union": (pa.UnionArray.from_sparse(FIRST, [NUMBERS]), "int", 1),
    "uuid": (pa.ExtensionArray.from_storage(pa.uuid(), STORED), "text", str(uuid.UUID(int=5))),
    "json": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[1]", None])), "text", "[1]"),
    "opaque": (pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "a", "b"), pa.array(["a", None])), "text", "a"),
    "fixed_shape_tensor": (
        pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int64(), (2,)), PAIRS), "text", "[1, 2]"),
}  # fmt: skip
"""For each type a column whose second value is null, the type that it becomes, and its first value then."""
NOT_IN_PARQUET = {"interval", "run_end_encoded", "run_end_encoded times", "dense_union", "sparse_union"}


def written(table, path):
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as handle, pa.ipc.new_file(handle, table.schema) as writer:
            writer.write_table(table)
    return open_source(str(path))


@pytest.mark.parametrize("end", ["arrow", "parquet"])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_column_of_each_type_becomes_what_the_documentation_says(tmp_path, name, end):
    array, kind, value = SAMPLES[name]
    if end == "parquet" and name in NOT_IN_PARQUET:
        pytest.skip("Parquet has no such type")
    source = written(pa.table({"text": ["a", "b"], "c": array}), tmp_path / f"t.{end}")
    found = survey([source], ReadOptions())
    assert (name_of(found.column_types["c"]), found.mixed) == (kind, {})
    (block,) = blocks([source], ReadOptions(), columns=["c"], casts=found.casts)
    column = arrow_column(block.columns["c"], found.column_types["c"])
    assert column.to_pylist() == [value, None]
    json.dumps(column.to_pylist(), default=str)


def test_every_type_that_arrow_has_is_tried():
    of_arrow = {name: getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}
    tried = set()
    for array, _, _ in SAMPLES.values():
        tried.add(array.type.id)
    lacking = {name for name, number in of_arrow.items() if number not in tried}
    assert lacking <= {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}  # which Python cannot make


def test_bytes_that_are_no_text_and_unions_of_several_types_are_said(tmp_path):
    source = written(pa.table({"text": ["a", "b"], "c": [None, b"\xff"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet, row 2: 'c'"):
        survey([source], ReadOptions())
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [NUMBERS, pa.array(["x", "y"])])
    source = written(pa.table({"text": ["a", "b"], "c": union}), tmp_path / "a.arrow")
    found = survey([source], ReadOptions())
    assert name_of(found.column_types["c"]) == "text" and "'y'" in found.mixed["c"]
