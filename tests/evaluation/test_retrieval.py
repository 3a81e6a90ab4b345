"""BEIR folders as they are on disk, and scores that equal trec_eval's."""

import copy
import gzip
import json
import random

import pytest

from sentcli.errors import InputError
from sentcli.evaluation import retrieval

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

CORPUS = [
    {"_id": "d1", "title": "Cat", "text": "the cat sat on the mat"},
    {"_id": "d2", "title": "", "text": "a red fish swam"},
    {"_id": "d3", "text": "the old man sees a bird"},
    {"_id": "q1", "title": None, "text": "big dog"},
    {"_id": 5, "title": "Tree", "text": ""},
]
QUERIES = [
    {"_id": "q1", "text": "big dog"},
    {"_id": "q2", "text": "the red fish"},
    {"_id": "unjudged", "text": "house"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\tq1\t1\nq1\td1\t2\nq2\td2\t1\nq2\td3\t0\n"


@pytest.fixture
def make_set(tmp_path):
    """Write a BEIR folder; parts given as None are left out."""

    def write(name="tiny", corpus=CORPUS, queries=QUERIES, qrels=QRELS, split="test"):
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for part, rows in (("corpus", corpus), ("queries", queries)):
            if rows is not None:
                lines = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
                (folder / f"{part}.jsonl").write_text(lines, "utf-8")
        if qrels is not None:
            (folder / "qrels" / f"{split}.tsv").write_text(qrels, "utf-8")
        return folder

    return write


# Reading


def test_a_set_is_read_as_beir_reads_it(make_set):
    found = retrieval.load_set(make_set())
    assert found.documents == {
        "d1": "Cat the cat sat on the mat",
        "d2": "a red fish swam",
        "d3": "the old man sees a bird",
        "q1": "big dog",
        "5": "Tree",
    }
    assert found.queries == {"q1": "big dog", "q2": "the red fish"}, "queries without a judgement are left out"
    assert found.qrels == {"q1": {"q1": 1, "d1": 2}, "q2": {"d2": 1, "d3": 0}}
    assert (found.name, found.split, found.unknown_documents, found.unknown_queries) == ("tiny", "test", 0, 0)


def test_gzipped_parts_are_read(make_set):
    folder = make_set()
    plain = retrieval.load_set(folder)
    for path in (folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / "test.tsv"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert retrieval.load_set(folder) == plain


@pytest.mark.parametrize(
    "qrels",
    [QRELS.split("\n", 1)[1], "\ufeff" + QRELS, QRELS.replace("\n", "\r\n"), QRELS + "\n", QRELS.rstrip("\n")],
    ids=["no header", "byte-order mark", "Windows line ends", "blank line", "no last line end"],
)
def test_qrels_are_read_with_and_without_a_header(make_set, qrels):
    assert retrieval.load_set(make_set(qrels=qrels)).qrels == {"q1": {"q1": 1, "d1": 2}, "q2": {"d2": 1, "d3": 0}}


def test_ids_in_qrels_may_hold_quotation_marks(make_set):
    folder = make_set(queries=[{"_id": '"q', "text": "x"}], qrels='query-id\tcorpus-id\tscore\n"q\td1\t1\n')
    assert retrieval.load_set(folder).qrels == {'"q': {"d1": 1}}


def test_judgements_of_unknown_documents_count_and_are_told(make_set, invoke, tiny_bert):
    qrels = QRELS + "q2\tgone1\t1\nq2\tgone2\t0\nnobody\td1\t1\n"
    folder = make_set(qrels=qrels)
    done = invoke("retrieve", "--beir", folder, "-m", tiny_bert, "--json", "-", check=0)
    assert "2 judgements name documents that are not in the corpus" in done.stderr
    assert "1 judged queries are not in queries.jsonl and were left out" in done.stderr
    results = json.loads(done.stdout)["results"]["tiny"]
    assert results["queries"] == 2
    assert results["recall@1000"] == 0.75, "q1 finds 2 of 2, q2 one of d2 and gone1"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("corpus", "corpus.jsonl is missing"),
        ("queries", "queries.jsonl is missing"),
        ("qrels", "qrels/test.tsv is missing"),
    ],
)
def test_a_missing_part_is_named(make_set, part, words):
    folder = make_set(**{part: None})
    with pytest.raises(InputError) as caught:
        retrieval.load_set(folder)
    assert str(caught.value) == f"{folder}/{words}: {folder} is not in BEIR layout"


def test_a_missing_split_names_those_that_are_there(make_set):
    make_set(split="train")
    folder = make_set(split="dev")
    with pytest.raises(InputError, match=r"qrels/test\.tsv is missing: .*; it has: dev, train$"):
        retrieval.load_set(folder)


def test_a_set_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nfcorpus is not a folder; BEIR sets are read from disk"):
        retrieval.load_set(tmp_path / "nfcorpus")


@pytest.mark.parametrize(
    ("parts", "place", "words"),
    [
        ({"corpus": [*CORPUS, CORPUS[1]]}, "corpus.jsonl, line 6", "the id 'd2' stands twice"),
        ({"corpus": [CORPUS[4], {"_id": "5", "text": ""}]}, "corpus.jsonl, line 2", "the id '5' stands twice"),
        ({"queries": [QUERIES[0]] * 2}, "queries.jsonl, line 2", "the id 'q1' stands twice"),
        ({"corpus": [CORPUS[0], {"text": "x"}]}, "corpus.jsonl, line 2", "no '_id'"),
        ({"queries": [{"_id": "", "text": "x"}]}, "queries.jsonl, line 1", "no '_id'"),
        ({"corpus": '{"_id": "a", "text": "x"}\n{\n'}, "corpus.jsonl, line 2", "broken JSON"),
        ({"corpus": ""}, "corpus.jsonl", "the file is empty"),
        ({"qrels": QRELS + "q2 d1 1\n"}, "qrels/test.tsv, line 6", "expected query-id, corpus-id and a whole number"),
        ({"qrels": QRELS + "q2\td1\t0.5\n"}, "qrels/test.tsv, line 6", "a whole number"),
        ({"qrels": QRELS + "\nq2\td1\n"}, "qrels/test.tsv, line 7", "a whole number"),
    ],
)
def test_a_broken_line_is_named(make_set, parts, place, words):
    folder = make_set(**parts)
    with pytest.raises(InputError) as caught:
        retrieval.load_set(folder)
    assert str(caught.value).startswith(f"{folder}/{place}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("qrels", ["query-id\tcorpus-id\tscore\n", "query-id\tcorpus-id\tscore\nnobody\td1\t1\n"])
def test_a_set_without_a_judged_query_is_refused(make_set, qrels):
    folder = make_set(qrels=qrels)
    with pytest.raises(InputError, match=r"no query of qrels/test\.tsv is in queries\.jsonl"):
        retrieval.load_set(folder)


# Scoring


def random_run(seed, queries=12, documents=60, retrieved=40):
    rng = random.Random(seed)
    names = [f"d{i}" for i in range(documents)]
    qrels = {f"q{q}": {d: rng.choice([0, 1, 1, 2, 3]) for d in rng.sample(names, 8)} for q in range(queries)}
    run = {query: {d: rng.uniform(-1, 1) for d in rng.sample(names, retrieved)} for query in qrels}
    return run, qrels


@pytest.mark.parametrize("seed", range(3))
def test_metrics_equal_trec_eval(seed):
    import pytrec_eval

    run, qrels = random_run(seed)
    run["q0"]["q0"], qrels["q0"]["q0"] = 2.0, 3  # a hit that is the query itself counts
    ours = retrieval.score(run, qrels, 1000)
    cutoffs = (1, 3, 5, 10, 100, 1000)
    names = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}
    wanted = {f"{name}.{','.join(map(str, cutoffs))}" for name in names.values()}
    each = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run).values()
    expected = {
        f"{ours_name}@{k}": sum(scores[f"{name}_{k}"] for scores in each) / len(qrels)
        for ours_name, name in names.items()
        for k in cutoffs
    }
    expected |= {f"mrr@{k}": sum(reciprocal_rank(run[q], qrels[q], k) for q in qrels) / len(qrels) for k in cutoffs}
    assert ours == pytest.approx(expected, abs=1e-5)


def reciprocal_rank(hits, judgements, k):
    ranked = sorted(hits, key=hits.get, reverse=True)[:k]
    return next((1 / rank for rank, document in enumerate(ranked, 1) if judgements.get(document, 0) > 0), 0.0)


def test_scoring_does_not_change_the_run():
    run, qrels = random_run(0)
    run["q0"]["q0"] = 2.0
    before = copy.deepcopy((run, qrels))
    retrieval.score(run, qrels, 1000)
    assert (run, qrels) == before


def test_cutoffs_do_not_go_beyond_top_k():
    run, qrels = random_run(0)
    assert {name.split("@")[1] for name in retrieval.score(run, qrels, 10)} == {"1", "3", "5", "10"}


# Searching


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    from sentcli import SentenceEncoder

    return SentenceEncoder.load(tiny_bert)


@pytest.mark.parametrize(("name", "kept"), [("tiny", True), ("arguana", False), ("Quora", False)])
def test_a_querys_own_document_counts_except_where_queries_are_documents(make_set, encoder, name, kept):
    data = retrieval.load_set(make_set(name))
    result = retrieval.evaluate(encoder, data, 3)
    hits = result.run["q1"]
    assert len(hits) == 3
    assert ("q1" in hits) == kept
    assert [len(found) for found in result.run.values()] == [3, 3]
    if kept:
        assert max(hits, key=hits.get) == "q1", "its text is the query's"
    only_own = {"q1": {"q1": 1}}
    assert retrieval.score({"q1": hits}, only_own, 3)["mrr@1"] == float(kept)


def test_the_command_writes_scores_and_run(make_set, invoke, tiny_bert, tmp_path):
    run = tmp_path / "deep" / "r.trec"
    arguments = ("retrieve", "--beir", make_set(), "-m", tiny_bert, "--run", run, "--top-k", 4)
    found = json.loads(invoke(*arguments, "--json", "-", check=0).stdout)
    assert list(found) == ["command", "model", "protocol", "results", "environment", "elapsed_seconds"]
    assert {"ndcg@3", "recall@3", "map@3", "mrr@3", "precision@3", "queries", "documents"} <= set(
        found["results"]["tiny"]
    )
    assert found["results"]["tiny"]["documents"] == 5
    assert found["protocol"]["top_k"] == 4
    lines = [line.split() for line in run.read_text().splitlines()]
    assert [(query, rank) for query, _, _, rank, _, _ in lines] == [
        (q, str(r)) for q in ("q1", "q2") for r in range(1, 5)
    ]
    before = run.read_bytes()
    assert f"{run} exists; use --overwrite" in invoke(*arguments, check=2).stderr
    assert run.read_bytes() == before


def test_the_table_goes_to_standard_output(make_set, invoke, tiny_bert):
    done = invoke("retrieve", "--beir", make_set(), "-m", tiny_bert, check=0)
    assert f"{tiny_bert} on tiny: 2 queries, 5 documents" in " ".join(done.stdout.split())
    assert "ndcg" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_scifact_with_minilm(invoke, minilm, data, tmp_path):
    run = tmp_path / "scifact.trec"
    arguments = ("retrieve", "-m", minilm, "--beir", data / "retrieval" / "scifact", "--run", run, "--json", "-")
    found = json.loads(invoke(*arguments, check=0).stdout)["results"]["scifact"]
    assert found["ndcg@10"] == pytest.approx(0.6451, abs=0.0005)
    assert {"ndcg@10", "recall@100", "map@100", "mrr@10"} <= set(found)
    assert (found["queries"], found["documents"]) == (300, 5183)
    assert len(run.read_text().splitlines()) == 300 * 1000


def test_a_run_never_replaces_a_folder(invoke, tiny_bert, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("x")
    set_ = tmp_path / "set"
    (set_ / "qrels").mkdir(parents=True)
    (set_ / "corpus.jsonl").write_text('{"_id": "d1", "text": "the cat"}\n')
    (set_ / "queries.jsonl").write_text('{"_id": "q1", "text": "cat"}\n')
    (set_ / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    call = ["retrieve", "-m", tiny_bert, "--beir", set_, "--overwrite", "--run"]
    invoke(*call, tmp_path / "precious", check=2)
    assert (tmp_path / "precious" / "thesis.txt").exists()
    invoke(*call, tmp_path / "run.trec", check=0)
    (set_ / "corpus.jsonl").write_text('{"_id": "d1", "text": null}\n')
    assert "corpus.jsonl, line 1" in invoke(*call, tmp_path / "run.trec", check=2).stderr
