"""The record of a collection, each of whose values is set to every kind of value."""

import json
from dataclasses import asdict, replace

import pytest

from sentcli.errors import InputError
from sentcli.search.provenance import Provenance
from sentcli.stores.record import CollectionRecord
from tests.faults.leaves import KINDS, changed, places

RECORD = CollectionRecord(
    settings={"model": "m", "model_fingerprint": "f", "pooling": "mean", "prompt": "", "max_length": 32},
    dimension=8,
    similarity="cosine",
    columns={"year": ("year", "int"), "day": ("day", "date")},
    efforts={"ef": 64},
    rows=3,
)


def test_every_value_of_the_record_of_a_collection():
    tree = json.loads(json.dumps(asdict(RECORD)))
    assert CollectionRecord.read(json.dumps(tree), "c") == RECORD
    refused = 0
    for place in places(tree):
        for kind in KINDS:
            try:
                record = CollectionRecord.read(json.dumps(changed(tree, place, kind)), "c")
                Provenance.named("c", record.settings)
                record.schema()
                record.differences(RECORD)
            except InputError:
                refused += 1
    assert refused > 100
    with pytest.raises(InputError, match="damaged"):
        CollectionRecord.read(json.dumps({**tree, "columns": {"year": ["year", "complex"]}}), "c")


def test_columns_of_other_types_are_refused_with_what_reads_them_as_they_are():
    rows = replace(RECORD, columns={"year": ("year", "int"), "day": ("day", "timestamp")})
    with pytest.raises(InputError, match=r"'date' there, 'timestamp' here.*--types day=date .*--overwrite"):
        RECORD.takes(rows, "c")
