"""Values have the same number if and only if they are the same, whatever the type of their column."""

import datetime
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.io.column_hashes import row_hashes, value_hashes
from tests.examples import examples

VALUES = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False) | st.just(math.nan),
    pa.float32(): st.floats(width=32, allow_nan=False) | st.just(math.nan),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.list_(pa.string()): st.lists(st.sampled_from(["", "a", "b"]), max_size=2),
    pa.struct({"x": pa.int64()}): st.fixed_dictionaries({"x": st.none() | st.integers(0, 2)}),
}


def bits_of(value):
    """A value by which equal ones are equal: a float is also told by its sign and whether it is a number."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    return repr(value)


@pytest.mark.parametrize("kind", VALUES, ids=str)
@examples(50)
@given(data=st.data())
def test_equal_values_alone_have_the_same_number(kind, data):
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=8))
    array = pa.array(values, kind)
    numbers = value_hashes(array).tolist()
    of_numbers = dict(zip(numbers, map(bits_of, array.to_pylist()), strict=True))
    for number, value in zip(numbers, array.to_pylist(), strict=True):
        assert of_numbers[number] == bits_of(value)
    assert len(set(numbers)) == len(set(map(bits_of, array.to_pylist())))
    assert value_hashes(pa.concat_arrays([array, array])[len(array) :]).tolist() == numbers


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.null(), pa.int8(), pa.uint64(), pa.float16(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.duration("s"), pa.month_day_nano_interval(), pa.decimal128(5, 2), pa.decimal256(40, 2)),
        *(pa.binary(), pa.binary(4), pa.large_string(), pa.map_(pa.string(), pa.int8())),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_columns_of_all_types_have_numbers(kind):
    """Those of which no values are drawn above: a missing value has one number, whatever the type."""
    assert set(value_hashes(pa.nulls(3, kind)).tolist()) == set(value_hashes(pa.nulls(1, pa.string())).tolist())


def test_a_row_is_told_by_names_types_and_places_of_its_values():
    one, two = pa.array(["a"]), pa.array(["b"])
    rows = [
        {"x": one, "y": two},
        {"x": two, "y": one},
        {"x": one},
        {"y": one},
        {"x": one, "z": two},
        {"x": one, "y": pa.array([None], pa.string())},
        {"x": pa.array([1])},
        {"x": pa.array([1.0])},
    ]
    assert len({row_hashes(row)[0] for row in rows}) == len(rows)
    assert row_hashes({"y": two, "x": one}) == row_hashes({"x": one, "y": two})
