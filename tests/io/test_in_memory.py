"""Tables in memory are read as files are, with the types that they have."""

import datetime

import pyarrow as pa
import pytest

from sentcli.errors import InputError
from sentcli.io.blocks import blocks, survey
from sentcli.io.in_memory import in_files, texts_of
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import open_source

WHEN, DAY = datetime.datetime(2024, 1, 5), datetime.date(2024, 1, 6)


def read(*values):
    files = in_files(values[0] if len(values) == 1 else list(values), "data", is_list=True)
    sources = [open_source(file) for file in ([files] if isinstance(files, str) else files)]
    found = survey(sources, ReadOptions())
    (block,) = blocks(sources, ReadOptions(), columns=list(found.column_types))
    return block.texts, block.columns, {name: str(kind) for name, kind in found.column_types.items()}


def frame():
    import pandas as pd

    return pd.DataFrame({"text": ["x", "y"], "when": pd.to_datetime([WHEN, None]), "day": [DAY, None]})


def dataset():
    datasets = pytest.importorskip("datasets")
    rows = {"text": ["z", "y", "x"], "when": [None, None, WHEN], "day": [None, None, DAY]}
    features = datasets.Features(
        text=datasets.Value("string"), when=datasets.Value("timestamp[ns]"), day=datasets.Value("date32")
    )
    return datasets.Dataset.from_dict(rows, features).select([2, 1])


TABLES = pytest.mark.parametrize(
    "make",
    [
        frame,
        dataset,
        lambda: pa.table({"text": ["x", "y"], "when": [WHEN, None], "day": [DAY, None]}),
        lambda: pa.record_batch({"text": ["x", "y"], "when": [WHEN, None], "day": [DAY, None]}),
        lambda: [{"text": "x", "when": WHEN, "day": DAY}, {"text": "y", "when": None, "day": None}],
    ],
    ids=["frame", "dataset", "table", "batch", "dicts"],
)


@TABLES
def test_dates_of_a_table_stay_dates(make):
    texts, columns, types = read(make())
    assert texts == ["x", "y"] and types == {"when": "timestamp[us]", "day": "date32[day]"}
    assert columns == {"when": [WHEN, None], "day": [DAY, None]}


def test_values_that_arrow_has_no_type_for_stay_as_they_were():
    import pandas as pd

    mixed = pd.DataFrame({"text": ["x", "y"], "mixed": [1, "a"]})
    months = pd.DataFrame({"text": ["x", "y"], "month": pd.period_range("2024-01", periods=2, freq="M")})
    assert read(mixed)[1] == {"mixed": [1, "a"]} and read(months)[1] == {"month": ["2024-01", "2024-02"]}
    assert read(mixed, pa.table({"text": ["z"]}), ["one text", "two texts"])[0] == [
        "x",
        "y",
        "z",
        "one text",
        "two texts",
    ]


def test_columns_are_texts():
    import numpy as np

    texts = ["x", "y"]
    for column in (frame()["text"], pa.array(texts), pa.chunked_array([texts[:1], texts[1:]]), np.array(texts)):
        assert read(column)[0] == texts
    assert read(dataset()["text"])[0] == texts


@TABLES
def test_texts_of_a_table_are_its_column_or_the_columns_are_named(make):
    assert texts_of(make()) == ["x", "y"]
    with pytest.raises(InputError, match=r"'body'.*text, when, day.*'text'"):
        texts_of(make(), "body")


def test_texts_that_are_no_table_stay():
    assert texts_of(["x"]) == ["x"] and texts_of(frame()["text"]) == ["x", "y"] == texts_of(pa.array(["x", "y"]))
    with pytest.raises(TypeError, match="dictionary"):
        texts_of({"text": ["x"]})


def test_a_dictionary_of_data_sets_is_refused_with_the_choices():
    datasets = pytest.importorskip("datasets")
    with pytest.raises(InputError, match=r"data\['train'\], data\['test'\]"):
        in_files(datasets.DatasetDict(train=dataset(), test=dataset()), "data", is_list=True)
    stream = datasets.IterableDataset.from_generator(lambda: ({"text": text} for text in "ab"))
    assert read(stream)[0] == ["a", "b"]
