"""``evaluate --variants`` tries the ways of reading long documents: cut, in pieces, in passages."""

import json

import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

from tests.conftest import save_cross_encoder
from tests.evaluation.conftest import write_set

ANIMALS = ["cat", "dog", "bird", "fish"]
PLACES = ["mat", "house", "river"]


@pytest.fixture
def long_documents(tmp_path):
    """A set whose queries ask for the ends of documents, which a model of 32 tokens does not read."""
    corpus, queries, qrels = [], [], "query-id\tcorpus-id\tscore\n"
    for animal in ANIMALS:
        for place in PLACES:
            key = f"{animal}-{place}"
            text = "the old man sat on a tree. " * 12 + f"the {animal} swam under the {place}."
            corpus.append({"_id": key, "title": "", "text": text})
            queries.append({"_id": f"q-{key}", "text": f"the {animal} swam under the {place}."})
            qrels += f"q-{key}\t{key}\t1\n"
    return write_set(tmp_path / "long", corpus, queries, qrels)


def test_passages_find_what_stands_at_the_end(long_documents, tiny_bert, tmp_path, invoke):
    grid = tmp_path / "grid.toml"
    grid.write_text('dimensions = []\ntypes = ["float32"]\nindexes = []\nlengths = []\nprecisions = []\n')
    out = tmp_path / "out.json"
    model = ("-m", tiny_bert, "--backend", "torch")
    result = invoke("evaluate", long_documents, *model, "--variants", grid, "--json", out, check=0)
    ways = {row["name"]: row for row in json.loads(out.read_text())["results"]["long"]["variants"]}
    cut, mean, passages = ways["float32 x 32"], ways["chunk-mean, float32 x 32"], ways["passages, float32 x 32"]
    assert passages["value"] > 0.9 > cut["value"] + 0.3
    assert mean["value"] != cut["value"]
    assert passages["bytes_per_vector"] > 2 * cut["bytes_per_vector"] == 2 * mean["bytes_per_vector"]
    assert "--passages" in passages["command"]
    assert "--on-long chunk-mean" in mean["command"]
    assert "passages" in result.stderr


@pytest.mark.slow
def test_a_grid_names_the_readings(long_documents, tiny_bert, tmp_path, invoke):
    grid = tmp_path / "grid.toml"
    few = 'dimensions = []\ntypes = ["float32"]\nindexes = []\nlengths = []\nprecisions = []\n'
    grid.write_text(few + 'readings = ["cut"]\n')
    out = tmp_path / "out.json"
    command = ("evaluate", long_documents, "-m", tiny_bert, "--backend", "torch", "--variants", grid, "--json", out)
    invoke(*command, check=0)
    assert len(json.loads(out.read_text())["results"]["long"]["variants"]) == 1
    grid.write_text(few + 'readings = ["whole"]\n')
    assert "readings" in invoke(*command, check=2).stderr


CUT = ("--passages", "--passage-tokens", 12, "--context", "title")


def scores_of(invoke, *command):
    return json.loads(invoke(*command, "--json", "-", check=0).stdout)["results"]


@pytest.mark.slow
def test_a_set_in_passages_is_scored_as_a_directory_of_passages_is_searched(
    long_documents, tiny_bert, tmp_path, invoke
):
    model = ("-m", tiny_bert, "--backend", "torch")
    runs, out = tmp_path / "set.trec", tmp_path / "out"
    found = scores_of(invoke, "retrieve", "--beir", long_documents, *model, *CUT, "--run", runs)["long"]
    whole = scores_of(invoke, "retrieve", "--beir", long_documents, *model)["long"]
    assert found["ndcg@10"] > whole["ndcg@10"] + 0.3
    own = scores_of(invoke, "evaluate", long_documents, *model, *CUT)["long"]
    assert own["ndcg@10"] == found["ndcg@10"]
    invoke("encode", long_documents / "corpus.jsonl", "--id-field", "_id", *model, *CUT, "-o", out, check=0)
    queries = long_documents / "queries.jsonl"
    ask = ("retrieve", "--corpus", out, *model, "--queries", queries, "--top-k", 12)
    searched = {}
    for query in scores_of(invoke, *ask):
        searched[query["id"]] = [(hit["document"], hit["score"]) for hit in query["hits"]]
    listed = {}
    for line in runs.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        listed.setdefault(query, []).append((document, float(score)))
    assert len(listed) == 12
    for query, hits in listed.items():
        expected = dict(searched[query])
        assert [document for document, _ in hits] == [document for document, _ in searched[query]]
        assert all(expected[document] == pytest.approx(score, abs=1e-5) for document, score in hits)


def test_a_document_is_reranked_by_its_best_passage(long_documents, tiny_bert, tmp_path, invoke):
    cut = ("--passages", "--passage-tokens", 24)  # 100 passages are reranked at most
    cross = save_cross_encoder(tmp_path / "cross")
    command = ("retrieve", "--beir", long_documents, "-m", tiny_bert, "--backend", "torch", "--rerank", cross)
    command += ("--rerank-depth", 12, "--run", tmp_path / "runs")
    invoke(*command, *cut, check=0)
    run = tmp_path / "runs" / "long.dense.reranked.trec"
    documents = ("encode", long_documents / "corpus.jsonl", "--id-field", "_id")
    invoke(*documents, "-m", tiny_bert, "--backend", "torch", *cut, "-o", tmp_path / "out", check=0)
    query = next(json.loads(line) for line in (long_documents / "queries.jsonl").read_text().splitlines())
    ask = ("retrieve", "--corpus", tmp_path / "out", "-m", tiny_bert, "--backend", "torch", "--query", query["text"])
    hits = scores_of(invoke, *ask, "--rerank", cross, "--top-k", 100, "--rerank-depth", 100, "--per-document", 100)
    best = {}
    for hit in hits[0]["hits"]:
        best[hit["document"]] = max(best.get(hit["document"], -9), hit["rerank_score"])
    reranked = {}
    for key, _, document, _, score, _ in map(str.split, run.read_text().splitlines()):
        if key == query["_id"]:
            reranked[document] = float(score)
    assert reranked == pytest.approx(best, abs=1e-5)


def test_passages_of_sets_need_a_model(long_documents, tiny_bert, tmp_path, invoke):
    invoke("retrieve", "--beir", long_documents, "--search", "bm25", "--passages", check=2)
    invoke("retrieve", "--corpus", long_documents, "-m", tiny_bert, "--query", "cat", "--passages", check=2)
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\na cat,a dog,1\na cat,the cat,5\na,b,2\n")
    invoke("evaluate", tmp_path / "pairs.csv", "-m", tiny_bert, "--passages", check=2)
    invoke("evaluate", long_documents, "-m", tiny_bert, "--passages", "--variants", check=2)


def test_a_title_that_leaves_no_room_is_named(long_documents, tiny_bert, invoke):
    corpus = long_documents / "corpus.jsonl"
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    rows[3]["title"] = "the cat sat " * 20
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cut = ("--passages", "--context", "title", "--backend", "torch")
    for command in (("retrieve", "--beir", long_documents), ("evaluate", long_documents)):
        refused = invoke(*command, "-m", tiny_bert, *cut, check=2)
        assert rows[3]["_id"] in refused.stderr and "corpus.jsonl" in refused.stderr
