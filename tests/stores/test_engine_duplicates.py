"""A text is encoded once in a shard, and the counts say what was found."""

import json
import re

import numpy as np
import pytest

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.stores import row_vectors
from tests.stores.outputs import manifest_of, vectors_of
from tests.tolerance import VECTORS

LONG = "the " * 60  # 62 tokens, of which the tiny BERT reads 32
MIXED = ["cat", "cat", "", " ", LONG, "dog", LONG.strip()]


@pytest.fixture
def encoded(monkeypatch):
    """What reaches the encoder, block by block."""
    seen = []
    original = SentenceEncoder.encode_distinct

    def recorded(encoder, texts, *arguments, **options):
        seen.append(list(texts))
        return original(encoder, texts, *arguments, **options)

    monkeypatch.setattr(SentenceEncoder, "encode_distinct", recorded)
    return seen


def words(count, repeat):
    """Texts of which `repeat` of each kind stand far apart."""
    return [f"the cat {n} sat" for n in range(count)] * repeat


@pytest.mark.parametrize("name", ["v.npy", "v"])
def test_a_text_that_returns_in_a_later_block_is_not_encoded_again(
    encode, write, tmp_path, encoder, encoded, monkeypatch, name
):
    monkeypatch.setattr(row_vectors, "BLOCK_ROWS", 4)
    texts = words(6, repeat=3)
    encode(write("a.txt", texts), "-o", tmp_path / name)
    assert [text for block in encoded for text in block] == texts[:6]
    found = vectors_of(tmp_path / name)
    np.testing.assert_array_equal(found, np.tile(found[:6], (3, 1)))
    np.testing.assert_allclose(found, encoder.encode(texts), atol=VECTORS)


def test_every_shard_encodes_its_own_texts(encode, write, tmp_path, encoded, monkeypatch):
    monkeypatch.setattr(row_vectors, "BLOCK_ROWS", 2)
    texts = ["cat", "dog", "cat", "bird", "dog", "cat", "dog", "fish"]
    encode(write("a.txt", texts), "-o", tmp_path / "v", "--shard-rows", 4)
    assert [text for block in encoded for text in block] == ["cat", "dog", "bird", "dog", "cat", "fish"]
    assert [shard["duplicates"] for shard in manifest_of(tmp_path / "v")["shards"]] == [1, 1]


def test_a_block_of_nothing_new_costs_nothing(encode, write, tmp_path, encoded, monkeypatch):
    monkeypatch.setattr(row_vectors, "BLOCK_ROWS", 3)
    encode(write("a.txt", ["cat", "dog", "bird"] * 4 + ["fish"]), "-o", tmp_path / "v.npy")
    assert [block for block in encoded if block] == [["cat", "dog", "bird"], ["fish"]]


@pytest.mark.parametrize(
    ("on_long", "truncated", "lost", "tokens"),
    [("truncate", 2, 60, 3 + 2 + 2 + 32 + 32 + 3), ("chunk-mean", 2, 0, 3 + 2 + 2 + 64 + 64 + 3)],
)
def test_counts_in_report_and_manifest(encode, write, tmp_path, on_long, truncated, lost, tokens):
    out = tmp_path / "v"
    encode(write("a.txt", MIXED), "-o", out, "--on-long", on_long, "--json", tmp_path / "r.json")
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    expected = {"duplicates": 1, "empty": 2, "truncated": truncated, "tokens_lost": lost, "tokens": tokens}
    assert {key: results[key] for key in expected} == expected
    assert (results["rows"], results["rows_encoded"], results["distinct"]) == (7, 7, 6)
    assert manifest_of(out)["counts"] == {"rows": 7, **expected}


def test_a_long_text_that_stands_twice_is_two_cut_rows(encode, write, tmp_path):
    out = tmp_path / "v"
    done = encode(write("a.txt", [LONG, "cat", LONG, LONG]), "-o", out)
    assert re.search("3 rows .*32 tokens .*90 tokens .*--on-long", " ".join(done.stderr.split()))
    counts = manifest_of(out)["counts"]
    assert (counts["truncated"], counts["tokens_lost"], counts["duplicates"], counts["tokens"]) == (3, 90, 2, 35)


def test_counts_of_shards_add_up(encode, write, tmp_path):
    out = tmp_path / "v"
    done = encode(write("a.txt", MIXED), "-o", out, "--shard-rows", 3, "--json", "-")
    manifest = manifest_of(out)
    shards = manifest["shards"]
    assert [(s["count"], s["empty"], s["duplicates"], s["truncated"], s["tokens_lost"]) for s in shards] == [
        (3, 1, 1, 0, 0),
        (3, 1, 0, 1, 30),
        (1, 0, 0, 1, 30),
    ]
    totals = manifest["counts"]
    assert {key: sum(s[key] for s in shards) for key in totals if key != "rows"} == {
        key: value for key, value in totals.items() if key != "rows"
    }
    results = json.loads(done.stdout)["results"]
    assert {key: results[key] for key in totals if key != "rows"} == {
        key: value for key, value in totals.items() if key != "rows"
    }


def test_after_a_resume_the_report_counts_what_was_encoded_now(encode, write, tmp_path):
    source, out = write("a.txt", MIXED), tmp_path / "v"
    encode(source, "-o", out, "--shard-rows", 3)
    whole = manifest_of(out)
    (out / "vectors-00001.npy").unlink()
    done = encode(source, "-o", out, "--shard-rows", 3, "--resume", "--json", "-")
    results = json.loads(done.stdout)["results"]
    assert (results["rows"], results["rows_encoded"], results["truncated"], results["tokens_lost"]) == (7, 3, 1, 30)
    assert "warning: vectors-00001.npy " in " ".join(done.stderr.split())
    assert manifest_of(out) == whole
