"""``--rerank`` of ``evaluate`` and ``retrieve``: the order of hits, another row, what is kept, what is refused."""

import json
import shlex
from itertools import pairwise

import numpy as np
import pytest

from sentcli.encoder.reranker import Reranker
from sentcli.model.encoding import LoadedModel
from sentcli.model.tokenizing import BETWEEN_TEXTS
from tests.conftest import save_cross_encoder
from tests.evaluation.test_labelled_tasks import TEXTS, beir, write
from tests.tolerance import rounding

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    return save_cross_encoder(tmp_path_factory.mktemp("cross") / "cross-encoder")


@pytest.fixture(scope="module")
def made_set(tmp_path_factory):
    return beir(tmp_path_factory.mktemp("sets") / "set", "test")


def read_run(path):
    hits = {}
    for line in path.read_text().splitlines():
        query, _, document, rank, score, _ = line.split()
        hits.setdefault(query, []).append((document, float(score)))
        assert int(rank) == len(hits[query])
    return hits


@pytest.fixture
def scored(monkeypatch):
    """The pairs that go through a model."""
    pairs, encode = [], LoadedModel.encode

    def recorded(self, texts, *args, **options):
        pairs.extend(text for text in texts if BETWEEN_TEXTS in text)
        return encode(self, texts, *args, **options)

    monkeypatch.setattr(LoadedModel, "encode", recorded)
    return pairs


@pytest.mark.slow
def test_retrieve_orders_the_first_hits_anew(made_set, cross_encoder, tiny_bert, invoke, tmp_path, scored):
    call = ["retrieve", "--beir", made_set, "-m", tiny_bert, "--rerank", cross_encoder, "--rerank-depth", 10]
    call += ["--run", tmp_path / "runs", "--overwrite", "--json", "-"]
    plain, reranked = json.loads(invoke(*call, check=0).stdout)
    assert reranked["model"] == f"{plain['model']} + {cross_encoder}"
    assert (reranked["protocol"]["rerank"], reranked["protocol"]["rerank_depth"]) == (str(cross_encoder), 10)
    assert "rerank" not in plain["protocol"]
    before, after = (read_run(tmp_path / "runs" / f"set.dense{more}.trec") for more in ("", ".reranked"))
    assert before.keys() == after.keys() and len(before) == 12
    texts = {record["_id"]: record["text"] for record in map(json.loads, (made_set / "corpus.jsonl").open())}
    queries = {record["_id"]: record["text"] for record in map(json.loads, (made_set / "queries.jsonl").open())}
    reranker, changed = Reranker.load(cross_encoder), 0
    for query, hits in after.items():
        first, ids = [document for document, _ in before[query][:10]], [document for document, _ in hits]
        scores = reranker.scores([(queries[query], texts[document]) for document in ids[:10]])
        np.testing.assert_allclose([score for _, score in hits[:10]], scores, atol=1e-5)
        assert sorted(ids[:10]) == sorted(first)
        assert ids[10:] == [document for document, _ in before[query][10:]]
        assert all(one >= other for (_, one), (_, other) in pairwise(hits))
        changed += ids[:10] != first
    assert changed > 6
    one, other = (result["results"]["set"] for result in (plain, reranked))
    assert other["ndcg@10"] != one["ndcg@10"]
    assert other["interval"][0] <= other["ndcg@10"] <= other["interval"][1]
    assert reranked["compared"]["tasks"]["set"]["difference"] == pytest.approx(other["ndcg@10"] - one["ndcg@10"])
    # what is kept: scores of pairs, where hits have to be found again, and scores of sets
    assert len(scored) >= 120
    scored.clear()
    assert json.loads(invoke(*call, check=0).stdout)[1]["results"] == reranked["results"]
    assert not scored
    assert json.loads(invoke(*call, "--rerun", check=0).stdout)[1]["results"] == reranked["results"]
    assert len(scored) >= 120
    kept = json.loads(invoke(*call[:-5], "--json", "-", check=0).stdout)
    kept = json.loads(invoke(*call[:-5], "--json", "-", check=0).stdout)
    assert [result["cached"] for result in kept] == [["set"], ["set"]]
    deeper = [*call[:-6], 30, "--json", "-"]
    assert json.loads(invoke(*deeper, check=0).stdout)[1]["results"] != reranked["results"]


@pytest.mark.slow
def test_evaluate_has_another_row_with_its_cost(made_set, cross_encoder, tiny_bert, tiny_roberta, invoke, tmp_path):
    page = tmp_path / "page.html"
    call = ["evaluate", made_set, "-m", tiny_bert, "-m", tiny_roberta, "--rerank", cross_encoder]
    call += ["--rerank-depth", 12, "--json", tmp_path / "r.json", "--report", page]
    printed = invoke(*call, check=0).stdout
    results = json.loads((tmp_path / "r.json").read_text())
    names = [str(tiny_bert), f"{tiny_bert} + {cross_encoder}", str(tiny_roberta), f"{tiny_roberta} + {cross_encoder}"]
    assert [result["model"] for result in results] == names
    for plain, reranked in (results[:2], results[2:]):
        assert reranked["results"]["set"]["value"] != plain["results"]["set"]["value"]
        low, high = reranked["results"]["set"]["interval"]
        assert low <= reranked["results"]["set"]["value"] <= high
        assert reranked["cost"]["rerank_milliseconds"] > 0
        assert "rerank_milliseconds" not in plain["cost"]
        weights = (cross_encoder / "model.safetensors").stat().st_size
        assert reranked["cost"]["weight_bytes"] == plain["cost"]["weight_bytes"] + weights
        assert reranked["protocol"]["rerank_depth"] == 12
    assert {result["compared"]["with"] for result in results[1:]} == {names[0]}
    assert "rerank" in printed
    assert "to rerank" in page.read_text()
    command = shlex.join(map(str, ["sentcli", *call[:-4]]))
    assert [result["command_line"] for result in results] == [command] * 4
    assert command in page.read_text()
    again = json.loads(invoke(*call[:-4], "--json", "-", check=0).stdout)
    assert [result["cached"] for result in again] == [["set"]] * 4
    assert [result["results"] for result in again] == [result["results"] for result in results]


@pytest.mark.slow
def test_int8(made_set, cross_encoder, tiny_bert, invoke):
    call = ["evaluate", made_set, "-m", tiny_bert, "--rerank", cross_encoder, "--json", "-"]
    exact, small = (json.loads(invoke(*call, "--precision", p, check=0).stdout)[1] for p in ("fp32", "int8"))
    assert small["protocol"]["precision"] == "int8"
    assert small["results"]["set"]["value"] == pytest.approx(exact["results"]["set"]["value"], abs=0.2)


@pytest.mark.slow
def test_search_of_a_file_gives_both_scores(cross_encoder, tiny_bert, invoke, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS[:40]) + "\n")
    call = ["retrieve", "-m", tiny_bert, "--corpus", corpus, "--query", TEXTS[50], "--query", TEXTS[51], "--json", "-"]
    plain = json.loads(invoke(*call, "--top-k", 20, check=0).stdout)["results"]
    found = json.loads(invoke(*call, "--rerank", cross_encoder, "--rerank-depth", 20, "--top-k", 5, check=0).stdout)
    assert found["protocol"]["rerank"] == str(cross_encoder)
    reranker = Reranker.load(cross_encoder)
    for query, before in zip(found["results"], plain, strict=True):
        own = reranker.scores([(query["query"], hit["text"]) for hit in before["hits"]])
        best = [before["hits"][row]["id"] for row in np.argsort(-own, kind="stable")[:5]]
        assert [hit["id"] for hit in query["hits"]] == best, "five of twenty"
        assert [hit["rank"] for hit in query["hits"]] == [1, 2, 3, 4, 5]
        scores = {hit["id"]: hit["score"] for hit in before["hits"]}
        assert [hit["score"] for hit in query["hits"]] == pytest.approx(
            [scores[key] for key in best], abs=rounding(512)
        )
        assert [hit["rerank_score"] for hit in query["hits"]] == pytest.approx(sorted(own)[:-6:-1], abs=1e-5)
    deep = json.loads(invoke(*call, "--rerank", cross_encoder, "--rerank-depth", 10, "--top-k", 20, check=0).stdout)
    for query, before in zip(deep["results"], plain, strict=True):
        assert ["rerank_score" in hit for hit in query["hits"]] == [True] * 10 + [False] * 10
        assert query["hits"][10:] == before["hits"][10:]
    like = ["retrieve", "-m", tiny_bert, "--corpus", corpus, "--like", "3", "--json", "-", "--rerank", cross_encoder]
    (found,) = json.loads(invoke(*like, "--top-k", 4, check=0).stdout)["results"]
    assert len(found["hits"]) == 4 and "3" not in [hit["id"] for hit in found["hits"]]


def test_words_are_reranked_without_a_model(made_set, cross_encoder, invoke):
    pytest.importorskip("bm25s", reason="search by words comes with the extra sentcli[cpu]")
    call = ["retrieve", "--beir", made_set, "--search", "bm25", "--rerank", cross_encoder, "--json", "-"]
    plain, reranked = json.loads(invoke(*call, check=0).stdout)
    assert (plain["model"], reranked["model"]) == ("bm25", f"bm25 + {cross_encoder}")


def test_what_is_refused(made_set, cross_encoder, tiny_bert, invoke, tmp_path):
    table = write(tmp_path / "p.tsv", ["anchor", "positive"], [(TEXTS[i], TEXTS[i + 40]) for i in range(24)])
    beir_call = ["retrieve", "--beir", made_set]
    cases = [
        ("p.tsv", ["evaluate", made_set, table, "-m", tiny_bert, "--rerank", cross_encoder]),
        ("no classifier", ["evaluate", made_set, "-m", tiny_bert, "--rerank", tiny_bert]),
        ("no classifier", [*beir_call, "-m", tiny_bert, "--rerank", tiny_bert]),
        ("--rerank", ["evaluate", made_set, "-m", cross_encoder]),
        ("--rerank", [*beir_call, "-m", cross_encoder]),
        ("--rerank", [*beir_call, "-m", tiny_bert, "--rerank-depth", 20]),
        ("--from-run", [*beir_call, "--from-run", tmp_path / "run", "--rerank", cross_encoder]),
        ("--variants", ["evaluate", made_set, "-m", tiny_bert, "--rerank", cross_encoder, "--variants"]),
        ("--baseline", ["evaluate", made_set, "-m", tiny_bert, "--rerank", cross_encoder, "--baseline", tmp_path]),
        ("100", [*beir_call, "-m", tiny_bert, "--rerank", cross_encoder, "--rerank-depth", 101]),
    ]
    for words, call in cases:
        assert words in " ".join(invoke(*call, check=2).stderr.split())
