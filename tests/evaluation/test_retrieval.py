"""BEIR folders as they are on disk."""

import bz2
import gzip
import json
import re

import pytest

from sentcli.data.registry import registry
from sentcli.errors import InputError
from sentcli.evaluation import known_sets, retrieval
from tests.evaluation.conftest import CORPUS, QRELS, QUERIES

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


def test_a_set_is_read_as_beir_reads_it(make_set):
    found = retrieval.load_set(make_set())
    assert found.ids == ["d1", "d2", "d3", "q1", "5"]
    texts = ["Cat the cat sat on the mat", "a red fish swam", "the old man sees a bird", "big dog", "Tree"]
    assert list(found.texts()) == texts
    assert found.queries == {"q1": "big dog", "q2": "the red fish"}, "queries without a judgement are left out"
    assert found.qrels == {"q1": {"q1": 1, "d1": 2}, "q2": {"d2": 1, "d3": 0}}
    assert (found.name, found.split, found.unknown_documents, found.unknown_queries) == ("tiny", "test", 0, 0)
    assert (found.unjudged_queries, found.empty_documents, found.without_relevant) == (1, 0, 0)


@pytest.mark.parametrize(("end", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_parts_are_read(make_set, end, pack):
    folder = make_set()
    plain = retrieval.load_set(folder)
    texts = list(plain.texts())
    for path in (folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / "test.tsv"):
        path.with_name(path.name + end).write_bytes(pack(path.read_bytes()))
        path.unlink()
    packed = retrieval.load_set(folder)
    assert (packed.ids, packed.queries, packed.qrels) == (plain.ids, plain.queries, plain.qrels)
    assert list(packed.texts()) == texts


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


def test_copies_of_relevant_documents_without_a_judgement_are_counted_and_told(make_set, invoke, tiny_bert, tmp_path):
    corpus = [
        {"_id": "a", "title": "Über", "text": "the cat sat"},
        {"_id": "b", "text": "U\u0308BER  the CAT sat"},
        {"_id": "c", "text": "a red fish"},
        {"_id": "d", "text": "a red fish"},
        {"_id": "e", "text": "a dog"},
        {"_id": "f", "text": "a dog"},
        {"_id": "g", "text": ""},
        {"_id": "h", "text": " "},
    ]
    judgements = ["q2\tg\t1", "q1\ta\t1", "q1\tc\t1", "q1\td\t0", "q2\tc\t1", "q2\te\t0"]
    folder = make_set(corpus=corpus, qrels="\n".join(["query-id\tcorpus-id\tscore", *judgements, ""]))
    assert retrieval.load_set(folder).unjudged_copies == 2, "b of a for q1, and d of c for q2"
    rows = [{"_id": f"{name}{n}", "text": f"the cat {n}"} for n in range(12) for name in "az"]
    queries = [{"_id": f"q{n}", "text": f"cat {n}"} for n in range(12)]
    qrels = "".join(f"q{n}\ta{n}\t1\n" for n in range(12))
    many = make_set("many", corpus=rows, queries=queries, qrels=qrels)
    for command in (("retrieve", "--beir", many), ("evaluate", many)):
        done = invoke(*command, "-m", tiny_bert, "--json", tmp_path / "r.json", check=0)
        assert re.search("12 .*copies", done.stderr)
        assert re.search('"unjudged_copies": ?12', (tmp_path / "r.json").read_text())
    assert retrieval.load_set(make_set()).unjudged_copies == 0


def test_judgements_of_unknown_documents_count_and_are_told(make_set, invoke, tiny_bert):
    qrels = QRELS + "q2\tgone1\t1\nq2\tgone2\t0\nnobody\td1\t1\n"
    folder = make_set(qrels=qrels)
    done = invoke("retrieve", "--beir", folder, "-m", tiny_bert, "--json", "-", check=0)
    assert re.search("tiny: 2 .*corpus", done.stderr)
    assert re.search(r"tiny: 1 .*queries\.jsonl", done.stderr)
    results = json.loads(done.stdout)["results"]["tiny"]
    assert results["queries"] == 2
    assert results["recall@1000"] == 0.75, "q1 finds 2 of 2, q2 one of d2 and gone1"


@pytest.mark.parametrize(
    ("part", "file"), [("corpus", "corpus.jsonl"), ("queries", "queries.jsonl"), ("qrels", "qrels/test.tsv")]
)
def test_a_missing_part_is_named(make_set, part, file):
    folder = make_set(**{part: None})
    with pytest.raises(InputError, match=f"^{folder}/{re.escape(file)} .*BEIR"):
        retrieval.load_set(folder)


def test_a_missing_split_names_those_that_are_there(make_set):
    make_set(split="train")
    folder = make_set(split="dev")
    with pytest.raises(InputError, match=r"qrels/test\.tsv .*dev, train$"):
        retrieval.load_set(folder)


def test_a_set_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"/nfcorpus .*BEIR"):
        retrieval.load_set(tmp_path / "nfcorpus")


@pytest.mark.parametrize(
    ("parts", "place", "words"),
    [
        ({"corpus": [*CORPUS, CORPUS[1]]}, "corpus.jsonl, line 6", "'d2'"),
        ({"corpus": [CORPUS[4], {"_id": "5", "text": ""}]}, "corpus.jsonl, line 2", "'5'"),
        ({"queries": [QUERIES[0]] * 2}, "queries.jsonl, line 2", "'q1'"),
        ({"corpus": [CORPUS[0], {"text": "x"}]}, "corpus.jsonl, line 2", "'_id'"),
        ({"queries": [{"_id": "", "text": "x"}]}, "queries.jsonl, line 1", "'_id'"),
        ({"corpus": '{"_id": "a", "text": "x"}\n{\n'}, "corpus.jsonl, line 2", "JSON"),
        ({"corpus": ""}, "corpus.jsonl", ""),
        ({"qrels": QRELS + "q2 d1 1\n"}, "qrels/test.tsv, line 6", "query-id, corpus-id"),
        ({"qrels": QRELS + "q2\td1\t0.5\n"}, "qrels/test.tsv, line 6", "query-id, corpus-id"),
        ({"qrels": QRELS + "\nq2\td1\n"}, "qrels/test.tsv, line 7", "query-id, corpus-id"),
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
    with pytest.raises(InputError, match=r"test\.tsv.*queries\.jsonl"):
        retrieval.load_set(folder)


def test_a_torn_archive_is_named(make_set):
    folder = make_set(corpus=[{"_id": str(i), "text": f"{i * 7919}"} for i in range(500)])
    path = folder / "corpus.jsonl"
    path.with_name("corpus.jsonl.gz").write_bytes(gzip.compress(path.read_bytes())[:-40])
    path.unlink()
    with pytest.raises(InputError, match=r"corpus\.jsonl\.gz: .*gzip"):
        retrieval.load_set(folder)


def test_what_is_odd_is_counted_and_told(make_set, invoke):
    corpus = [*CORPUS, {"_id": "e", "title": "", "text": " "}]
    folder = make_set(corpus=corpus, qrels=QRELS + "unjudged\td1\t0\n")
    found = retrieval.load_set(folder)
    assert (found.empty_documents, found.without_relevant, len(found.queries)) == (1, 1, 3)
    done = invoke("retrieve", "--beir", folder, "--search", "bm25", "--json", "-", check=0)
    assert re.search("tiny: 1 .*queries", done.stderr)
    assert re.search("tiny: 1 documents", done.stderr)
    results = json.loads(done.stdout)["results"]["tiny"]
    assert (results["queries"], results["documents"]) == (3, 6), "such a query counts, as for trec_eval"


def test_a_file_that_changes_meanwhile_is_noticed(make_set):
    folder = make_set()
    found = retrieval.load_set(folder)
    for changed in (CORPUS[:-1], [*CORPUS, {"_id": "new", "text": "x"}], CORPUS[::-1]):
        make_set(corpus=changed)
        with pytest.raises(InputError, match=r"corpus\.jsonl"):
            list(found.texts())


def test_the_name_says_which_facts_hold(make_set):
    make_set("msmarco", split="dev")
    found = retrieval.load_collection(make_set("msmarco"))
    assert found.protocol() == {"split": "dev", "own_document": "kept"}
    assert retrieval.load_collection(make_set("msmarco"), "test").split == "test"
    assert retrieval.load_collection(make_set("ArguAna")).protocol()["own_document"] == "left out"
    assert known_sets.canonical("touche2020") == known_sets.canonical("Webis-Touche2020") == "webis-touche2020"
    assert known_sets.set_facts("my-own") == known_sets.SetFacts("my-own", title="my-own")
    assert len(known_sets.averaged()) == 14


def test_facts_are_of_sets_that_can_be_had():
    fetched = {name for name, found in registry().items() if found.kind == "beir"}
    ours = {"cranfield", "npl", "cacm", "time", "lisa", "negconstraint"}
    assert set(known_sets.known_sets()) - fetched <= ours
    forums = {file.path.partition("/")[0] for file in registry()["cqadupstack"].files}
    assert set(known_sets.set_facts("cqadupstack").forums) == forums
    for facts in known_sets.known_sets().values():
        assert facts.self_hits in ("kept", "removed") and facts.split in ("test", "dev")


def test_a_folder_of_sets_is_no_set(make_set):
    folder = make_set("one").parent
    make_set("two")
    with pytest.raises(InputError, match=r"corpus\.jsonl .*one, two$"):
        retrieval.load_collection(folder)


def test_all_forums_have_to_be_there(make_set):
    make_set("cqadupstack/android")
    with pytest.raises(InputError, match=r"/cqadupstack: .*12.* english, gaming,.*/NAME"):
        retrieval.load_collection(make_set("cqadupstack/gis").parent)


def test_a_first_judgement_with_a_fraction_is_no_header(make_set):
    qrels = QRELS.split("\n", 1)[1].replace("\t1\n", "\t1.0\n", 1)
    assert retrieval.load_set(make_set(qrels=qrels)).qrels == {"q1": {"q1": 1, "d1": 2}, "q2": {"d2": 1, "d3": 0}}


@pytest.mark.parametrize("relevance", ["0.5", "nan", "1e3", "²", "1_000", "", "x"])
@pytest.mark.parametrize("first", ["", "query-id\tcorpus-id\tscore\n"])
def test_a_relevance_is_a_whole_number(make_set, relevance, first):
    if not first and relevance in ("²", "1_000", "", "x"):
        first = "q1\td2\t1\n"  # the first line would be a header
    with pytest.raises(InputError, match=r"test\.tsv, line \d: expected .* whole number"):
        retrieval.load_set(make_set(qrels=f"{first}q1\td1\t{relevance}\n"))


def test_contradictory_judgements_are_counted_and_said(make_set):
    found = retrieval.load_set(make_set(qrels=QRELS + "q1\td1\t0\nq1\td1\t2\nq2\td2\t1\nq2\td3\t1\n"))
    assert found.contradictory == 2 and found.qrels == {"q1": {"q1": 1, "d1": 2}, "q2": {"d2": 1, "d3": 1}}
    assert any(problem.startswith("2 ") and "judged twice" in problem for problem in found.problems)


def test_a_whole_float_is_no_id_of_a_document(make_set):
    folder = make_set(corpus=[{"_id": 1.0, "text": "x"}])
    with pytest.raises(InputError, match=r"corpus\.jsonl, line 1: '_id' is 1\.0"):
        retrieval.load_set(folder)
