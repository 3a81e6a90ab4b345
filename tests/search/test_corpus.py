"""What holds for every kind of corpus: a file, directories, collections, and a kind that a user adds."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation.retrieval import SetRows, load_set
from sentcli.model.options import LoadOptions
from sentcli.search.condition_reader import parse_condition
from sentcli.search.corpus import search_rows
from sentcli.search.local_corpus import LocalCorpus
from sentcli.search.options import SEARCH_MODES, CorpusOptions, SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.stores.opening import load_query_encoder, open_corpus
from tests.evaluation.conftest import write_set
from tests.search.frame_corpus import FrameCorpus
from tests.tolerance import Near

ANIMALS = ["cat", "dog", "bird", "fish"]
TEXTS = [f"the {animal} sat {where} the {place}"
         for animal in ANIMALS for where in ("on", "under") for place in ("mat", "house", "river")]  # fmt: skip
TEXTS += [TEXTS[3], TEXTS[10], "a word like zanzibar"]  # equal texts, and a rare word
ROWS = [
    {"id": f"r{i}", "text": text, "year": None if i % 5 == 0 else 1900 + i, "lang": ("en", "de", "it")[i % 3]}
    for i, text in enumerate(TEXTS)
]
QUERIES = [TEXTS[3], "dog", "zanzibar"]
KINDS = ["file", "directory", "index", "parquet", "milvus", "lance", "postgres", "frame"]
LOAD = LoadOptions(backend="torch")


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return SentenceEncoder.load(tiny_bert, backend="torch")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def corpus(kind, tmp_path, tiny_bert, encoder, invoke, request):
    """The rows above as a corpus of each kind."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    made_with = ("-m", tiny_bert, "--backend", "torch")
    if kind == "frame":
        facts = encoder.describe()
        settings = {key: facts[key] for key in ("pooling", "normalize", "max_length")}
        settings |= {"model": encoder.model, "model_fingerprint": encoder.fingerprint()}
        frame = pd.DataFrame(ROWS).astype({"year": "Int64"})
        yield FrameCorpus(frame, unit(encoder.encode(TEXTS)), Provenance.named("frame", settings))
        return
    options = CorpusOptions(corpus=str(file))
    if kind in ("directory", "index"):
        options = CorpusOptions(corpus=str(tmp_path / "d"))
        invoke("encode", file, "-o", options.corpus, *made_with, "--shard-rows", 10, check=0)
        if kind == "index":
            invoke("index", options.corpus, "--type", "hnsw", check=0)
    elif kind == "parquet":
        options = CorpusOptions(corpus=str(tmp_path / "d.parquet"))
        invoke("encode", file, "-o", options.corpus, *made_with, check=0)
    elif kind == "milvus":
        request.getfixturevalue("soon_indexed")
        options = CorpusOptions(corpus=f"milvus:{tmp_path}/m.db", collection="rows")
        invoke("index", file, "--to", options.corpus, "--collection", "rows", *made_with, check=0)
    elif kind == "lance":
        pytest.importorskip("lancedb", reason="LanceDB comes with the extra sentcli[lance]")
        options = CorpusOptions(corpus=f"lance:{tmp_path}/l")
        invoke("index", file, "--to", options.corpus, *made_with, check=0)
    elif kind == "postgres":
        options = CorpusOptions(corpus=request.getfixturevalue("postgres"))
        invoke("index", file, "--to", options.corpus, *made_with, check=0)
    with open_corpus(options, SearchOptions(), LOAD) as opened:
        yield opened


def selected(corpus, text):
    return corpus.select(parse_condition(text, corpus.schema, corpus.title))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ids(hits):
    return [hit.row.id for hit in hits]


def test_rows_are_counted_selected_and_taken(corpus):
    assert len(corpus) == len(ROWS)
    assert {"id", "text", "year", "lang"} <= set(corpus.schema)
    assert dict(corpus.counts("lang")) == {"en": 9, "de": 9, "it": 9}
    assert corpus.counts("year")[0] == (None, 6)
    some = selected(corpus, "year > 1910 and lang <> 'it'")
    expected = [row for row in ROWS if row["year"] is not None and row["year"] > 1910 and row["lang"] != "it"]
    assert len(some) == len(expected)
    assert sum(count for _, count in some.counts("year")) == len(expected)
    both = selected(selected(corpus, "year > 1910"), "lang <> 'it'")
    assert sorted(both.counts("year")) == sorted(some.counts("year"))
    documents = corpus.documents(["r4", "nothing", "r0"])
    assert set(documents) == {"r0", "r4"}
    assert asdict(documents["r4"]) == {
        "id": "r4",
        "text": TEXTS[4],
        "columns": {"year": 1904, "lang": "de"},
    }
    assert documents["r0"].columns["year"] is None


@pytest.mark.slow
@pytest.mark.parametrize("condition", [None, "year > 1910 and lang <> 'it'", "year > 3000"])
def test_hits_are_those_of_all_comparisons(corpus, encoder, condition):
    some = corpus if condition is None else selected(corpus, condition)
    ready, facts = some.prepare(SearchOptions(), encoder)
    assert {"similarity", "index", "query_prompt", "document_prompt"} <= set(facts)
    left = [
        i for i, row in enumerate(ROWS)
        if condition is None or ((row["year"] or 0) > 1910 and row["lang"] != "it" and "3000" not in condition)
    ]  # fmt: skip
    vectors = encoder.encode(QUERIES)
    similarities = unit(vectors) @ unit(encoder.encode([TEXTS[i] for i in left])).T if left else np.empty((3, 0))
    for hits, expected in zip(search_rows(ready, "dense", QUERIES, vectors, 7), similarities, strict=True):
        assert [hit.rank for hit in hits] == list(range(1, min(7, len(left)) + 1))
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(expected)[::-1][:7], atol=1e-5)
        assert {hit.row.id for hit in hits} <= {f"r{i}" for i in left}
        assert all(hit.row.text == TEXTS[int(hit.row.id[1:])] for hit in hits)


@pytest.mark.slow
def test_equal_texts_are_both_found(corpus, encoder):
    ready, _ = corpus.prepare(SearchOptions(), encoder)
    (hits,) = search_rows(ready, "dense", [TEXTS[3]], encoder.encode([TEXTS[3]]), 2)
    assert sorted(ids(hits)) == ["r24", "r3"]
    assert hits[0].score == pytest.approx(hits[1].score, abs=1e-5)


@pytest.mark.slow
def test_words_and_fusion(corpus, encoder):
    ready, facts = corpus.prepare(SearchOptions(search="dense,bm25,rrf,weighted"), encoder)
    assert "bm25" in facts
    vectors = encoder.encode(QUERIES)
    for way in SEARCH_MODES:
        lists = search_rows(ready, way, QUERIES, vectors, 100)
        assert len(lists) == len(QUERIES)
        for hits in lists:
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert len(set(ids(hits))) == len(hits)
    _, dogs, (rare,) = search_rows(ready, "bm25", QUERIES, None, 100)
    assert {hit.row.text for hit in dogs} == {text for text in TEXTS if "dog" in text}
    assert rare.row.id == "r26"
    for way in ("rrf", "weighted"):
        assert ids(search_rows(ready, way, ["zanzibar"], encoder.encode(["a word like zanzibar"]), 1)[0]) == ["r26"]


@pytest.mark.slow
def test_words_alone_need_no_encoder(corpus):
    ready, facts = corpus.prepare(SearchOptions(search="bm25"), None)
    assert set(facts) - {"version"} == {"bm25"}
    assert ids(search_rows(ready, "bm25", ["zanzibar"], None, 5)[0]) == ["r26"]


@pytest.mark.slow
def test_vectors_of_another_model_are_refused(corpus, kind, tiny_roberta):
    if kind == "file":
        pytest.skip("a file of texts is encoded with any model")
    other = SentenceEncoder.load(tiny_roberta, backend="torch")
    with pytest.raises(InputError):
        corpus.prepare(SearchOptions(), other)
    assert load_query_encoder([], corpus, LOAD).fingerprint() == corpus.origin.model_fingerprint


@pytest.mark.parametrize("condition", [None, "id <> 'r24' and id <> 'r26'"])
@pytest.mark.parametrize("index", [None, "hnsw"])
def test_a_retrieval_set_is_searched_as_a_file_of_its_documents(tmp_path, encoder, condition, index):
    documents = [{"_id": row["id"], "text": row["text"]} for row in ROWS]
    folder = write_set(tmp_path / "set", corpus=documents, queries=[{"_id": "q", "text": "x"}], qrels="q\tr1\t1\n")
    rows = SetRows(load_set(folder))
    of_set = LocalCorpus("set", rows, encode=lambda model, prompt, texts: model.encode(list(texts), prompt=prompt))
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"id": row["id"], "text": row["text"]}) + "\n" for row in ROWS))
    options, vectors = SearchOptions(search="dense,bm25,rrf", index=index), encoder.encode(QUERIES)
    with open_corpus(CorpusOptions(corpus=str(file)), options, LOAD) as of_file:
        found = []
        for corpus in (of_set, of_file):
            corpus = corpus if condition is None else selected(corpus, condition)
            ready, facts = corpus.prepare(options, encoder)
            lists = [
                [(hit.row.id, Near(hit.score)) for hits in search_rows(ready, way, QUERIES, vectors, 5) for hit in hits]
                for way in ("dense", "bm25", "rrf")
            ]
            found.append((len(corpus), sorted(corpus.counts("id")), corpus.documents(["r3"]), lists, facts))
    assert found[0] == found[1]
    assert found[0][0] == len(ROWS) - 2 * (condition is not None)


def test_a_backend_of_another_package_registers_itself(tmp_path, monkeypatch, tiny_bert, encoder, invoke):
    folder = tmp_path / "site"
    (folder / "frames-1.0.dist-info").mkdir(parents=True)
    (folder / "frames-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: frames\nVersion: 1.0\n")
    (folder / "frames-1.0.dist-info" / "entry_points.txt").write_text(
        "[sentcli.corpora]\nframe = tests.search.frame_corpus:open_frame\n"
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    np.save(f"{rows}.npy", unit(encoder.encode(TEXTS)))
    search = ["retrieve", "-m", tiny_bert, "--backend", "torch", "--corpus", f"frame:{rows}", "--query", TEXTS[3]]
    assert "frame" in invoke(*search, check=2).stderr
    monkeypatch.syspath_prepend(folder)
    found = json.loads(invoke(*search, "--json", "-", check=0).stdout)
    assert found["results"][0]["hits"][0]["id"] == ROWS[3]["id"]
