"""`encode --ray`: the bytes of one machine, and what it says before and while it works."""

import json

import pytest

from tests.bulk.outputs import contents, manifest_of, message_of

SHARDS = ["--shard-rows", 40]


@pytest.fixture
def plain(encode, source, tmp_path):
    """What one machine writes."""
    encode(source, "-o", tmp_path / "plain", *SHARDS)
    return tmp_path / "plain"


def test_a_ray_of_its_own_writes_the_bytes_of_one_machine(encode, source, plain, tmp_path):
    report = tmp_path / "r.json"
    done = encode(source, "-o", tmp_path / "out", *SHARDS, "--ray", "local", "--workers", 2, "--json", report)
    assert contents(tmp_path / "out") == contents(plain)
    assert "Ray (local): nodes 1, workers 2, CPUs of each 1" in message_of(done)
    results = json.loads(report.read_text())["results"]
    assert (results["rows"], results["rows_encoded"]) == (300, 300)
    assert results["duplicates"] == manifest_of(plain)["counts"]["duplicates"] > 0


def test_two_nodes_write_the_bytes_of_one_machine(two_nodes, encode, source, plain, tmp_path):
    done = encode(source, "-o", tmp_path / "out", *SHARDS, "--ray", two_nodes.address)
    assert contents(tmp_path / "out") == contents(plain)
    assert "nodes 2, workers 2, CPUs of each 2" in message_of(done)
