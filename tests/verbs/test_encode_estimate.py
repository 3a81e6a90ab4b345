"""``encode --estimate``: what is counted, what is measured, and that nothing is written."""

import json
import random

import numpy as np
import pytest

from sentcli import SentenceEncoder

WORDS = "the cat sat on mats dog ran".split()


@pytest.fixture
def corpus(tmp_path):
    """Texts of 2 to 40 words, a fifth of which repeat others."""
    generator = random.Random(0)
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(2, 40))) for _ in range(1200)]
    texts += generator.choices(texts, k=300)
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts) + "\n")
    return path


@pytest.mark.slow
def test_counts_are_those_of_encode_and_nothing_is_written(corpus, tiny_bert, tmp_path, invoke):
    arguments = ["encode", corpus, "-m", tiny_bert, "--max-length", 16, "--output-dtype", "float16"]
    invoke(*arguments, "--estimate", "--json", tmp_path / "e.json", check=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.json", "texts.txt"]
    estimated = json.loads((tmp_path / "e.json").read_text())["results"]
    invoke(*arguments, "-o", tmp_path / "v.npy", "--json", tmp_path / "r.json", check=0)
    done = json.loads((tmp_path / "r.json").read_text())["results"]
    assert [estimated[key] for key in ("rows", "distinct", "duplicates")] == [
        done[key] for key in ("rows", "distinct", "duplicates")
    ]
    vectors = np.load(tmp_path / "v.npy")
    for entry in estimated["models"]:
        assert entry["bytes"] == vectors.nbytes and entry["dimension"] == vectors.shape[1]
        assert entry["seconds"] == pytest.approx(entry["load_seconds"] + done["distinct"] / entry["texts_per_second"])
        # of 500 rows: the share lies within four standard errors of that of all rows
        share = done["truncated"] / done["rows"]
        assert abs(entry["cut_rows"] - share) < 4 * np.sqrt(share * (1 - share) / 500)
        assert entry["tokens_per_text"] == pytest.approx(done["tokens"] / done["distinct"], rel=0.1)
    assert {entry["precision"] for entry in estimated["models"]} == {"fp32", "int8"}


def test_a_small_corpus_is_measured_whole(tmp_path, tiny_bert, invoke):
    (tmp_path / "three.txt").write_text("the cat\nthe dog ran\nthe cat\n")
    arguments = ["encode", tmp_path / "three.txt", "--estimate", "-m", tiny_bert, "--precision", "fp32"]
    results = json.loads(invoke(*arguments, "--json", "-", check=0).stdout)["results"]
    tokens = SentenceEncoder.load(tiny_bert).tokenizer(["the cat", "the dog ran"]).lengths
    assert (results["rows"], results["distinct"]) == (3, 2)
    (entry,) = results["models"]
    assert entry["tokens_per_text"] == tokens.mean() and entry["precision"] == "fp32"
    assert entry["bytes"] == 3 * 32 * 4 and results["duplicates"] == 1
    (tmp_path / "null.jsonl").write_text('{"text": null}\n')
    null = ["encode", tmp_path / "null.jsonl", "--on-null", "skip", "--estimate", "-m", tiny_bert]
    assert "no row has a text" in invoke(*null, check=2).stderr


@pytest.mark.slow
def test_several_models_and_wrong_usage(corpus, tiny_bert, tiny_roberta, tmp_path, invoke):
    arguments = ["encode", corpus, "-m", tiny_bert, "-m", tiny_roberta]
    results = json.loads(invoke(*arguments, "--estimate", "--json", "-", check=0).stdout)["results"]
    assert {entry["model"] for entry in results["models"]} == {str(tiny_bert), str(tiny_roberta)}
    assert str(tiny_roberta) in invoke(*arguments, "-o", tmp_path / "v.npy", check=2).stderr
    refused = invoke("encode", corpus, "-m", tiny_bert, "--estimate", "-o", tmp_path / "v.npy", check=2).stderr
    assert "--estimate" in refused and "--output" in refused
    assert "--model" in invoke("encode", corpus, "--estimate", check=2).stderr


@pytest.mark.slow
def test_the_bytes_of_rows_and_indexes_are_those_on_disk(tmp_path, tiny_bert, invoke):
    rows = ({"id": f"row {i}", "text": " ".join(WORDS[: 2 + i % 5]) + f" {i}", "year": i} for i in range(3000))
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["encode", tmp_path / "texts.jsonl", "-m", tiny_bert, "--precision", "fp32"]
    estimated = json.loads(invoke(*arguments, "--estimate", "--json", "-", check=0).stdout)["results"]
    (entry,) = estimated["models"]
    invoke(*arguments, "-o", tmp_path / "v", check=0)
    taken = {path.name: path.stat().st_size for path in (tmp_path / "v").iterdir()}
    assert estimated["rows_bytes"] == pytest.approx(taken["rows-00000.parquet"], rel=0.05)
    assert set(entry["index_bytes"]) == {"hnsw", "ivf", "ivfpq", "sq8"}
    for kind, size in entry["index_bytes"].items():
        invoke("index", tmp_path / "v", "--type", kind, check=0)
        files = (tmp_path / "v" / "indexes" / kind).iterdir()
        assert size == pytest.approx(sum(path.stat().st_size for path in files), rel=0.15), kind
