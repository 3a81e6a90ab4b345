"""A model whose folder says that its vectors are compared by inner products is searched and scored so."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from sentcli import SentenceEncoder
from tests.model import folders

DOCUMENTS = [
    "the cat",
    "a dog ran",
    "a small red fish",
    "the old house near the river",
    "cat",
    "birds",
    "the the the .",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return folders.make(tmp_path_factory.mktemp("dot") / "st", "mean", ["dot"])


@pytest.fixture(scope="module")
def vectors(model):
    return SentenceEncoder.load(model, backend="torch", device="cpu").encode(DOCUMENTS)


@pytest.fixture
def call(invoke, model):
    def run(verb, *arguments):
        words = (verb, *arguments, "-m", model, "--backend", "torch", "--json", "-")
        return json.loads(invoke(*words, check=0).stdout)

    return run


def best(vectors):
    """The documents by their inner product with the first one, best first, and these products."""
    products = vectors.astype(np.float64) @ vectors[0]
    order = np.argsort(-products)
    return [DOCUMENTS[row] for row in order], products[order]


def check(report, vectors):
    texts, products = best(vectors)
    hits = report["results"][0]["hits"]
    assert report["protocol"]["similarity"] == "dot"
    assert [hit["text"] for hit in hits] == texts
    np.testing.assert_allclose([hit["score"] for hit in hits], products, rtol=1e-5)


def test_retrieve_compares_by_inner_products(call, invoke, model, vectors, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(DOCUMENTS) + "\n")
    query = ("--query", DOCUMENTS[0], "--top-k", len(DOCUMENTS))
    check(call("retrieve", "--corpus", tmp_path / "a.txt", *query), vectors)
    invoke("encode", tmp_path / "a.txt", "-o", tmp_path / "v", "-m", model, "--backend", "torch", check=0)
    check(call("retrieve", "--corpus", tmp_path / "v", *query), vectors)
    built = json.loads(invoke("index", tmp_path / "v", "--type", "hnsw", "--json", "-", check=0).stdout)
    assert built["protocol"]["similarity"] == "dot"
    check(call("retrieve", "--corpus", tmp_path / "v", *query), vectors)
    cosine = call("retrieve", "--corpus", tmp_path / "v", *query, "--similarity", "cosine", "--index", "flat")
    assert cosine["protocol"]["similarity"] == "cosine"
    assert cosine["results"][0]["hits"][0]["score"] == pytest.approx(1.0, abs=1e-5)


def test_evaluate_correlates_inner_products(call, vectors, tmp_path):
    gold = [0.0, 1.5, 3.0, 4.0, 5.0, 2.0, 1.0, 2.5, 3.5, 4.5, 0.5, 1.2]
    pairs = [(first, second) for first in (0, 3) for second in range(len(DOCUMENTS)) if first != second]
    texts = [(DOCUMENTS[first], DOCUMENTS[second], score) for (first, second), score in zip(pairs, gold, strict=True)]
    rows = [f"{first}\t{second}\t{score}" for first, second, score in texts]
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    report = call("evaluate", tmp_path / "pairs.tsv")
    products = [float(vectors[first].astype(np.float64) @ vectors[second]) for first, second in pairs]
    (result,) = report["results"].values()
    assert result["value"] == pytest.approx(100 * spearmanr(products, gold).statistic, abs=1e-6)
    assert next(iter(report["protocol"]["kinds"].values()))["similarity"] == "dot"


def test_an_encoder_compares_as_its_folder_says(model, vectors):
    found = SentenceEncoder.load(model, backend="torch", device="cpu").similarity(vectors, vectors)
    np.testing.assert_allclose(found, vectors @ vectors.T, rtol=1e-6)


def test_sts_benchmarks_keep_the_cosine(call, tmp_path):
    folder = tmp_path / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    lines = [f"main\tx\t2015\t{n}\t{n}.0\tthe cat\t{text}" for n, text in enumerate(DOCUMENTS[:5])]
    (folder / "sts-test.csv").write_text("\n".join(lines) + "\n")
    report = call("sts-eval", "--data", tmp_path, "--tasks", "STSBenchmark")
    assert report["protocol"]["similarity"] == "cosine"


def test_in_domain_retrieval_compares_by_inner_products(call, tmp_path):
    lines = [f"{a}\t{b}" for a, b in zip(DOCUMENTS[::2], DOCUMENTS[1::2], strict=False)]
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + "\n".join(lines) + "\n")
    report = call("retrieve", "--in-domain", tmp_path / "pairs.tsv", "--pair-fields", "anchor,positive")
    assert report["protocol"]["similarity"] == "dot"
