"""Search over vectors that were made smaller: by what they are, and rescored by the full ones."""

import json
from functools import partial

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.compression import Compression
from sentcli.search import exact
from sentcli.search.exact import Blocks, unit_length
from sentcli.search.provenance import Provenance
from sentcli.search.searcher import CompressedSearch, searcher_over
from tests.search.conftest import clustered
from tests.tolerance import rounding

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
TEXTS = [f"the {a} {b} sat on a {c}" for a in ("big", "small", "old") for b in ("cat", "dog") for c in ("mat", "tree")]
QUERIES = ["a big cat", "the old dog", TEXTS[3]]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n")
    return tmp_path / "a.txt"


@pytest.fixture
def search(invoke, source, tiny_bert, tmp_path):
    """Encode with some options and search; the texts and scores of the hits of each query."""

    def call(options, *more, name="v", check=0):
        invoke("encode", source, "-o", tmp_path / name, "-m", tiny_bert, "--shard-rows", 5, *options, check=0)
        queries = [part for query in QUERIES for part in ("--query", query)]
        done = invoke(
            "retrieve", "--corpus", tmp_path / name, *queries, "--top-k", 4, "--json", "-", *more, check=check
        )
        if check:
            return done.stderr
        return [[(hit["text"], hit["score"]) for hit in one["hits"]] for one in json.loads(done.stdout)["results"]]

    return call


def expected(tiny_bert, documents_of, queries_of):
    """The hits by numpy, given what is compared of documents and of queries."""
    encoder = SentenceEncoder.load(tiny_bert)
    documents, queries = documents_of(encoder.encode(TEXTS)), queries_of(encoder.encode(QUERIES))
    similarities = unit_length(queries) @ unit_length(documents).T
    best = np.argsort(-similarities, axis=1, kind="stable")[:, :4]
    return [[(TEXTS[i], similarities[q, i]) for i in row] for q, row in enumerate(best)]


def check(found, wanted):
    for got, want in zip(found, wanted, strict=True):
        assert [score for _, score in got] == pytest.approx([score for _, score in want], abs=2e-3)
        true = dict(want)
        assert all(score == pytest.approx(true[text], abs=2e-3) for text, score in got if text in true)


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["v", "v.parquet", "a.npy", "v.safetensors"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "binary"])
@pytest.mark.parametrize("cut", [None, 12])
def test_smaller_vectors_are_searched_as_what_they_are(search, tiny_bert, name, dtype, cut):
    if cut and name == "a.npy":
        pytest.skip("a npy file does not say that it was cut")
    options = ["--output-dtype", dtype, *(["--truncate-dim", cut] if cut else [])]
    found = search(options, "-m", tiny_bert, name=name)
    width = slice(None, cut)

    def documents(vectors):
        return np.where(vectors[:, width] > 0, 1.0, -1.0) if dtype == "binary" else vectors[:, width]

    check(found, expected(tiny_bert, documents, lambda vectors: vectors[:, width]))


@pytest.mark.slow
@pytest.mark.parametrize("full", ["full", "full.parquet", "a.npy"])
def test_rescored_hits_have_the_scores_of_the_full_vectors(search, invoke, source, tiny_bert, tmp_path, full):
    invoke("encode", source, "-o", tmp_path / full, "-m", tiny_bert, check=0)
    found = search(["--output-dtype", "binary"], "-m", tiny_bert, "--rescore", tmp_path / full)
    check(found, expected(tiny_bert, lambda vectors: vectors, lambda vectors: vectors))


def test_rescoring_brings_back_the_recall(tmp_path):
    vectors, asked = clustered(4000, 64), clustered(50, 64, seed=1)
    true = exact.search(asked, [vectors], 10).positions
    recall = {}
    for dtype in ("int8", "binary"):
        small, origin = Compression(dtype).apply(vectors), Provenance(output_dtype=dtype)
        searcher = searcher_over("flat", Blocks([small[:1500], small[1500:]], signs=origin.signs(8)))
        for full in (None, Blocks([vectors])):
            found = (
                CompressedSearch(searcher, partial(origin.compress, normalized=False), full).search(asked, 10).positions
            )
            pairs = zip(found, true, strict=True)
            recall[dtype, full is not None] = np.mean([np.isin(one, best).mean() for one, best in pairs])
    assert recall["int8", False] > 0.97
    assert recall["binary", False] < recall["binary", True] - 0.1
    assert min(recall["int8", True], recall["binary", True]) > 0.97


def test_bits_are_the_signs():
    vectors = clustered(30, 20)
    blocks = Blocks([np.packbits(vectors[:13] > 0, axis=1), np.packbits(vectors[13:] > 0, axis=1)], signs=20)
    signs = np.where(vectors > 0, 1, -1)
    assert (len(blocks), blocks.dimension) == (30, 20)
    np.testing.assert_array_equal(np.concatenate(list(blocks.since(0, 7))), signs)
    np.testing.assert_array_equal(blocks.take(np.array([29, 0, 13])), signs[[29, 0, 13]])


def test_what_cannot_be_compared_is_refused(search, invoke, source, tiny_bert, tmp_path):
    call = ("encode", source, "-m", tiny_bert, "-o")
    other = tmp_path / "b.txt"
    other.write_text("\n".join(TEXTS[::-1]) + "\n")
    invoke("encode", other, "-m", tiny_bert, "-o", tmp_path / "other", check=0)
    invoke(*call, tmp_path / "full", check=0)
    invoke(*call, tmp_path / "cut", "--truncate-dim", 8, check=0)
    bits = ["--output-dtype", "binary"]
    words = {
        "other": "was encoded from other files or columns",
        "cut": "its vectors were made smaller, too",
        "a.txt": "holds no vectors",
    }
    for name, problem in words.items():
        assert problem in search([*bits, "--overwrite"], "--rescore", tmp_path / name, check=2).replace("\n", " ")
    failed = invoke("retrieve", "--corpus", tmp_path / "full", "--query", "x", "--rescore", tmp_path / "full", check=2)
    assert "--rescore goes with vectors that were made smaller" in failed.stderr
    failed_dot = search([*bits, "--overwrite"], "--similarity", "dot", check=2)
    assert "without their lengths: only their cosine is known" in failed_dot
    assert "bits, which are searched exactly" in invoke("index", tmp_path / "v", "--type", "hnsw", check=2).stderr


def test_an_index_over_cut_vectors_is_searched(search, invoke, tmp_path, tiny_bert):
    flat = search(["--truncate-dim", 8])
    invoke("index", tmp_path / "v", "--type", "hnsw", check=0)
    for own, whole in zip(search(["--truncate-dim", 8, "--resume"]), flat, strict=True):
        assert [text for text, _ in own] == [text for text, _ in whole]
        assert [score for _, score in own] == pytest.approx([score for _, score in whole], abs=rounding(32))


def test_queries_are_encoded_in_the_precision_of_the_directory(invoke, source, tiny_bert, tmp_path):
    """An identical text had 0.9589 with all-MiniLM-L6-v2: the corpus was in int8 and the query in fp32."""
    invoke("encode", source, "-o", tmp_path / "v", "-m", tiny_bert, "--precision", "int8", check=0)

    def first(*options):
        call = ["retrieve", "--corpus", tmp_path / "v", "--query", TEXTS[3], "--top-k", 1, "--json", "-", *options]
        done = invoke(*call, check=0)
        found = json.loads(done.stdout)
        return found["protocol"]["precision"], found["results"][0]["hits"][0], "int8 there" in done.stderr

    for named in ((), ("-m", tiny_bert)):
        precision, hit, warned = first(*named)
        assert (precision, hit["text"], warned) == ("int8", TEXTS[3], False)
        assert hit["score"] == pytest.approx(1, abs=1e-5)
    precision, hit, warned = first("--precision", "fp32")
    assert (precision, warned) == ("fp32", True) and hit["score"] < 1 - 1e-5
