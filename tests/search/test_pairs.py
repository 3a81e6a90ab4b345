"""Near duplicates: the pairs of sentence-transformers' paraphrase mining, through an index with its recall."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from sentcli.search import pairs as pairing
from sentcli.search.exact import unit_length
from sentcli.search.pairs import groups_of, pairs_above, recall_of
from sentcli.search.searcher import searcher_over
from tests.search.conftest import clustered

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


def as_dict(pairs):
    return dict(zip(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True), pairs.similarities, strict=True))


@pytest.mark.parametrize("least", [0.5, 0.8, 0.95, 1.1])
def test_pairs_are_all_that_are_similar_enough(least, monkeypatch):
    monkeypatch.setattr(pairing, "QUERY_ROWS", 70)
    monkeypatch.setattr(pairing, "NEAREST", 2)
    vectors = clustered(300, 12)
    vectors[17] = vectors[250]
    similarities = unit_length(vectors) @ unit_length(vectors).T
    first, second = np.nonzero(np.triu(similarities >= least, 1))
    found = pairs_above(searcher_over("flat", vectors), least)
    assert as_dict(found) == pytest.approx(
        {(i, j): similarities[i, j] for i, j in zip(first.tolist(), second.tolist(), strict=True)}, abs=1e-5
    )
    assert (np.diff(found.similarities) <= 0).all() and found.crowded == 0
    np.fill_diagonal(similarities, -1)
    np.testing.assert_allclose(found.nearest, similarities.max(axis=1), atol=1e-5)


def test_pairs_are_those_of_paraphrase_mining():
    util = pytest.importorskip("sentence_transformers.util")
    import torch

    vectors = clustered(200, 12)
    mined = util.paraphrase_mining_embeddings(torch.from_numpy(vectors), top_k=199, max_pairs=10**6)
    expected = {(min(i, j), max(i, j)): score for score, i, j in mined if score >= 0.7}
    assert as_dict(pairs_above(searcher_over("flat", vectors), 0.7)) == pytest.approx(expected, abs=1e-5)


def test_groups_are_chains_of_pairs():
    vectors = np.eye(10, dtype=np.float32)
    vectors[7] = vectors[2] + 0.5 * vectors[5]
    vectors[5] = vectors[5] + vectors[7]  # 2 and 5 are alike only by way of 7
    vectors[[8, 9]] = vectors[[1, 1]]
    pairs = pairs_above(searcher_over("flat", vectors), 0.8)
    assert groups_of(pairs, 10).tolist() == [-1, 0, 1, -1, -1, 1, -1, 1, 0, 0]


def test_many_equal_rows_are_one_group_and_are_said_to_be_crowded(monkeypatch):
    monkeypatch.setattr(pairing, "MOST_NEIGHBOURS", 64)
    pairs = pairs_above(searcher_over("flat", np.ones((500, 4), np.float32)), 0.9)
    assert pairs.crowded == 500
    assert set(groups_of(pairs, 500)) == {0}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "at_least"), [("hnsw", 0.9), ("ivf", 0.6), ("sq8", 0.95)])
def test_the_recall_of_an_index_is_that_of_its_pairs(kind, at_least):
    vectors = clustered(3000, 24, clusters=300)
    exact = as_dict(pairs_above(searcher_over("flat", vectors), 0.9))
    searcher = searcher_over(kind, vectors)
    found = pairs_above(searcher, 0.9)
    true = len(exact.keys() & as_dict(found).keys()) / len(exact)
    recall, rows = recall_of(found, searcher, 0.9)
    assert rows == 1000
    assert recall == pytest.approx(true, abs=0.05) and recall >= at_least


TEXTS = [f"the {a} {b} sat on a {c}" for a in ("big", "small", "old") for b in ("cat", "dog") for c in ("mat", "tree")]


@pytest.fixture
def corpus(tmp_path):
    rows = [{"id": f"d{i}", "text": text} for i, text in enumerate([*TEXTS, TEXTS[3]])]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "a.jsonl"


@pytest.mark.slow
@pytest.mark.parametrize("given", ["directory", "a.parquet", "a.npy", "a.jsonl"])
def test_the_command_names_both_ids_and_groups(invoke, corpus, tiny_bert, tmp_path, given):
    model = ("-m", tiny_bert)
    if given != "a.jsonl":
        invoke("encode", corpus, "-o", tmp_path / given, *model, check=0)
        model = ()
    out = tmp_path / "out"
    done = invoke(
        "analyze", "duplicates", tmp_path / given, *model, "--least", 0.999, "-o", out, "--json", "-", check=0
    )
    results = json.loads(done.stdout)["results"]
    pairs, groups = pd.read_csv(out / "pairs.csv"), pd.read_csv(out / "groups.csv")
    assert pairs[["id1", "id2", "group"]].to_numpy().tolist() == [["d3", "d12", 1]]
    assert pairs.loc[0, "text1"] == pairs.loc[0, "text2"] == TEXTS[3]
    assert groups[["group", "id"]].to_numpy().tolist() == [[1, "d3"], [1, "d12"]]
    assert (results["pairs"], results["pairs_of_equal_text"], results["redundant_rows"]) == (1, 1, 1)
    assert "compared exactly" in (out / "index.html").read_text()


@pytest.mark.slow
def test_an_index_of_a_directory_is_used_and_measured(invoke, corpus, tiny_bert, tmp_path):
    invoke("index", corpus, "-o", tmp_path / "d", "-m", tiny_bert, "--type", "hnsw", check=0)
    call = ("analyze", "duplicates", tmp_path / "d", "--least", 0.999, "-o", tmp_path / "out", "--json", "-")
    report = json.loads(invoke(*call, check=0).stdout)
    assert report["protocol"]["index"]["kind"] == "hnsw"
    assert (report["results"]["recall"], report["results"]["recall_rows"]) == (1.0, 13)


@pytest.mark.slow
def test_what_is_missing_or_too_much_is_told(invoke, corpus, tiny_bert, tmp_path):
    call = ("analyze", "duplicates", corpus, "-o", tmp_path / "out")
    assert re.search(f"{corpus} .*-m", invoke(*call, check=2).stderr)
    invoke("encode", corpus, "-o", tmp_path / "a.parquet", "-m", tiny_bert, check=0)
    kept = invoke("analyze", "duplicates", tmp_path / "a.parquet", "-m", tiny_bert, "-o", tmp_path / "kept", check=0)
    assert "has made its vectors" in kept.stderr
    none = invoke(*call, "-m", tiny_bert, "--least", 1, "--json", "-", check=0)
    assert json.loads(none.stdout)["results"]["pairs"] in (0, 1)


def near_texts(count):
    words = ("cat", "dog", "bird", "fish", "man", "woman", "tree", "river")
    return [f"the {words[i % 8]} sat on the mat {i}" for i in range(count)]


@pytest.mark.slow
def test_too_many_pairs_are_refused_with_a_threshold_that_works(invoke, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(pairing, "MOST_PAIRS", 1000)
    monkeypatch.setattr(pairing, "PROPOSED", 100)
    file = tmp_path / "rows.txt"
    file.write_text("\n".join(near_texts(200)))
    call = ("analyze", "duplicates", file, "-m", tiny_bert, "-o", tmp_path / "out", "--json", "-")
    refused = invoke(*call, "--least", 0, check=2)
    assert not (tmp_path / "out").exists()
    proposed = refused.stderr.rpartition("--least ")[2].split()[0]
    results = json.loads(invoke(*call, "--least", proposed, check=0).stdout)["results"]
    assert 50 <= results["pairs"] <= 200


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet", ".txt"])
def test_equal_texts_are_apart_and_the_rows_that_are_left_are_written(invoke, tiny_bert, tmp_path, suffix):
    texts = ["the cat sat", "a red fish swam", "the cat sat", 'blue river, "old" tree', "the cat sat"]
    texts += [f"{word} and {word} in the house" for word in ("man", "woman", "child", "bird", "dog", "mat")]
    left = [i for i in range(len(texts)) if i not in (2, 4)]
    rows = pd.DataFrame({"id": [f"r{i}" for i in range(len(texts))], "text": texts, "number": range(len(texts))})
    rows.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    kept = tmp_path / f"kept{suffix}"
    call = ("analyze", "duplicates", tmp_path / "rows.jsonl", "-m", tiny_bert, "-o", tmp_path / "out", "--write", kept)
    results = json.loads(invoke(*call, "--least", 0.9999, "--json", "-", check=0).stdout)["results"]
    assert (results["pairs"], results["pairs_of_equal_text"], results["written"]["rows"]) == (3, 3, 9)
    assert all(pair["cosine"] <= 1 for pair in results["most_similar"])
    assert len(pd.read_csv(tmp_path / "out" / "equal.csv")) == 1
    if suffix == ".txt":
        assert kept.read_text().splitlines() == [texts[i] for i in left]
        return
    read = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".tsv": lambda file: pd.read_csv(file, sep="\t")}
    written = read.get(suffix, lambda file: pd.read_json(file, lines=True))(kept)
    pd.testing.assert_frame_equal(written, rows.iloc[left].reset_index(drop=True), check_dtype=False)
    invoke("encode", kept, "-m", tiny_bert, "-o", tmp_path / "v.npy", check=0)
    invoke(*call, "--least", 0.9999, check=2)  # it exists


def test_a_row_stays_that_is_like_a_row_that_goes():
    from sentcli.search.pairs import SimilarPairs, rows_left

    first, second = np.array([0, 1]), np.array([1, 2])
    chain = SimilarPairs(first, second, np.array([0.9, 0.9], np.float32), np.zeros(3, np.float32), 0)
    assert rows_left(chain, 3).tolist() == [True, False, True]
