"""``retrieve --least``: hits below a similarity or a probability are left out, and what is kept holds for one model."""

import json
import re
import shutil

import pytest

from sentcli.search.calibration import Calibration
from tests.conftest import save_backbone, save_cross_encoder
from tests.evaluation.test_thresholds import pairs_table

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

NOUNS = "cat dog bird fish tree house river mat man woman child".split()
QUERY = "the cat number 11 sat on the mat"


def write_set(folder):
    """Write a set of 40 queries, each with three relevant documents that are near to it."""
    (folder / "qrels").mkdir(parents=True)
    documents, queries, judgements = [], [], ["query-id\tcorpus-id\tscore"]
    for number in range(40):
        noun = NOUNS[number % len(NOUNS)]
        queries.append({"_id": f"q{number}", "text": f"the {noun} number {number} sat on the mat"})
        for copy, place in enumerate(("a mat", "the old mat", "the big mat")):
            key = f"d{number}-{copy}"
            documents.append({"_id": key, "title": "", "text": f"the {noun} number {number} sat on {place}"})
            judgements.append(f"q{number}\t{key}\t1")
    for name, records in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "qrels" / "test.tsv").write_text("\n".join(judgements) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of its own, whose folder may keep something."""
    return save_backbone(tmp_path_factory.mktemp("model") / "own")


@pytest.fixture(scope="module")
def kept(tmp_path_factory, model):
    """A set, and a corpus of its documents that keeps what was learned from it."""
    import sentcli

    folder = tmp_path_factory.mktemp("kept")
    beir = write_set(folder / "set")
    corpus = folder / "vectors"
    sentcli.encode(beir / "corpus.jsonl", output=corpus, model=str(model), id_field="_id")
    sentcli.evaluate(str(beir), model=[str(model)], threshold=0.6, keep_threshold=corpus)
    return beir, corpus


@pytest.fixture
def corpus(kept, tmp_path):
    return shutil.copytree(kept[1], tmp_path / "vectors")


@pytest.fixture
def retrieve(invoke, tmp_path):
    """Search, and return the hits of the first query and the protocol."""

    def call(*arguments, query=QUERY):
        report = tmp_path / "hits.json"
        words = ("--query", query) if query else ()
        invoke("retrieve", *arguments, *words, "--json", report, check=0)
        read = json.loads(report.read_text())
        return read["results"][0]["hits"], read["protocol"]

    return call


def test_hits_show_probabilities_and_those_below_are_left_out(corpus, retrieve):
    hits, protocol = retrieve("--corpus", corpus)
    probabilities = [hit["probability"] for hit in hits]
    assert len(hits) == 10 and probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] > probabilities[-1]
    assert protocol["probabilities"]["name"] == "set" and protocol["probabilities"]["depth"] == 10
    least = (probabilities[0] + probabilities[-1]) / 2
    fewer, protocol = retrieve("--corpus", corpus, "--least", f"{least}p")
    assert fewer == [hit for hit in hits if hit["probability"] >= least]
    assert 0 < len(fewer) < 10
    assert protocol["least"] == {"value": least, "is_probability": True}


def test_what_no_hit_can_have_is_said_and_the_frame_has_its_columns(corpus, invoke):
    import sentcli

    searched = ("retrieve", "--corpus", corpus, "--query", QUERY)
    highest = Calibration.read(corpus).highest
    assert highest < 1
    beyond = (highest + 1) / 2
    assert f"{highest:.3f}" in invoke(*searched, "--least", f"{beyond}p", check=0).stderr
    assert f"{highest:.3f}" not in invoke(*searched, "--least", f"{highest - 1e-9}p", check=0).stderr
    found = sentcli.retrieve(corpus=str(corpus), query=QUERY, least=f"{beyond}p").to_frame()
    assert len(found) == 0 and {"query", "rank", "id", "score", "text"} <= set(found.columns)
    assert "p" in invoke(*searched, "--least", "90", check=2).stderr
    assert "--least" in invoke(*searched, "--least", "1.5", check=0).stderr


def test_a_least_probability_that_is_offered_is_one_that_hits_have(kept, model, invoke, tmp_path):
    beir, vectors = kept
    place = shutil.copytree(vectors, tmp_path / "vectors")
    (place / "calibration.json").unlink()
    done = invoke("evaluate", beir, "-m", model, "--threshold", "0.99", "--keep-threshold", place, check=0)
    offered = re.search(r"--least ([\d.]+)p", done.stderr)
    assert float(offered[1]) <= Calibration.read(place).highest


def test_a_similarity_needs_nothing_that_is_kept(kept, model, retrieve):
    beir, _ = kept
    source = ("--corpus", beir / "corpus.jsonl", "--id-field", "_id", "-m", model)
    hits, _ = retrieve(*source)
    least = (hits[3]["score"] + hits[4]["score"]) / 2
    fewer, _ = retrieve(*source, "--least", least)
    assert fewer == hits[:4]
    assert "probability" not in fewer[0]
    none, _ = retrieve(*source, "--least", "1.5")
    assert none == []


def test_without_anything_kept_a_probability_is_refused(kept, model, invoke):
    beir, _ = kept
    arguments = ("--corpus", beir / "corpus.jsonl", "-m", model, "--query", "cat")
    result = invoke("retrieve", *arguments, "--least", "0.5p", check=2)
    assert "--keep-threshold" in result.stderr


@pytest.mark.parametrize("least", ["p", "x", "1.2p", "-0.1p", "nan", "inf", "nanp"])
def test_what_is_no_number_is_refused(least, corpus, invoke):
    result = invoke("retrieve", "--corpus", corpus, "--query", "cat", f"--least={least}", check=2)
    assert "--least" in result.stderr


@pytest.mark.parametrize("ways", ["bm25", "rrf", "weighted", "dense,bm25"])
def test_scores_that_are_no_similarities_are_refused(ways, corpus, invoke):
    result = invoke("retrieve", "--corpus", corpus, "--query", "cat", "--search", ways, "--least", "0.5", check=2)
    assert "--least" in result.stderr and ways in result.stderr


def test_only_hits_by_vectors_have_probabilities(corpus, invoke, tmp_path):
    arguments = ("--corpus", corpus, "--query", QUERY, "--search", "dense,bm25")
    invoke("retrieve", *arguments, "--json", tmp_path / "both.json", check=0)
    dense, words = json.loads((tmp_path / "both.json").read_text())["results"]
    assert all("probability" in hit for hit in dense["hits"])
    assert not any("probability" in hit for hit in words["hits"])


@pytest.mark.slow
def test_reranked_hits_are_left_out_by_their_similarity(corpus, retrieve, tmp_path):
    cross = save_cross_encoder(tmp_path / "cross")
    hits, _ = retrieve("--corpus", corpus, "--rerank", cross)
    least = sorted(hit["score"] for hit in hits)[5]
    fewer, _ = retrieve("--corpus", corpus, "--rerank", cross, "--least", least)
    assert [hit["id"] for hit in fewer] == [hit["id"] for hit in hits if hit["score"] >= least]


def test_rows_as_queries_have_none_that_was_learned_from_queries(corpus, retrieve, invoke):
    hits, _ = retrieve("--corpus", corpus, "--like", "d3-0", query=None)
    assert "probability" not in hits[0]
    invoke("retrieve", "--corpus", corpus, "--like", "d3-0", "--least", "0.5p", check=2)


def test_the_model_keeps_it_for_every_corpus_of_full_vectors(model, kept, retrieve, invoke, tmp_path):
    beir, _ = kept
    own = shutil.copytree(model, tmp_path / "own")
    table = pairs_table(tmp_path / "pairs.tsv")
    invoke("evaluate", table, "-m", own, "--threshold", "0.8", "--keep-threshold", own, check=0)
    source = ("--corpus", beir / "corpus.jsonl", "--id-field", "_id", "-m", own)
    hits, protocol = retrieve(*source)
    assert "probability" in hits[0] and protocol["probabilities"]["name"] == "pairs.tsv"
    similar, _ = retrieve(*source, "--like", "d3-0", query=None)
    assert "probability" in similar[0]
    small = tmp_path / "small"
    invoke(
        "encode", beir / "corpus.jsonl", "-o", small, "-m", own, "--truncate-dim", "16", "--id-field", "_id", check=0
    )
    hits, _ = retrieve("--corpus", small, "-m", own)
    assert "probability" not in hits[0]
    result = invoke("retrieve", "--corpus", small, "-m", own, "--query", "cat", "--least", "0.5p", check=2)
    assert "smaller" in result.stderr


@pytest.mark.slow
def test_what_the_corpus_keeps_comes_before_what_the_model_keeps(model, corpus, retrieve, invoke, tmp_path):
    own = shutil.copytree(model, tmp_path / "own")
    table = pairs_table(tmp_path / "pairs.tsv")
    invoke("evaluate", table, "-m", own, "--threshold", "0.8", "--keep-threshold", own, check=0)
    _, protocol = retrieve("--corpus", corpus, "-m", own)
    assert protocol["probabilities"]["name"] == "set"


@pytest.mark.slow
def test_it_is_of_one_model_and_stays_through_an_update(kept, corpus, model, retrieve, invoke):
    beir, _ = kept
    more = beir / "more.jsonl"
    row = json.dumps({"_id": "new", "title": "", "text": "a new cat"}) + "\n"
    more.write_text((beir / "corpus.jsonl").read_text() + row)
    invoke("encode", more, "-o", corpus, "-m", model, "--update", "--id-field", "_id", check=0)
    hits, _ = retrieve("--corpus", corpus)
    assert "probability" in hits[0]


def test_after_a_move_to_another_model_it_is_refused_and_comes_back_with_the_old_one(
    corpus, retrieve, invoke, tmp_path
):
    other = save_backbone(tmp_path / "other", seed=7)
    invoke("migrate", corpus, "-m", other, "--anyway", check=0)
    hits, _ = retrieve("--corpus", corpus)
    assert "probability" not in hits[0]
    result = invoke("retrieve", "--corpus", corpus, "--query", "cat", "--least", "0.5p", check=2)
    assert "another model" in result.stderr and "calibration.json" in result.stderr
    invoke("migrate", corpus, "--back", check=0)
    hits, _ = retrieve("--corpus", corpus)
    assert "probability" in hits[0]


def test_places_that_cannot_keep_it_are_refused(kept, corpus, model, invoke, tmp_path):
    beir, _ = kept
    evaluate = ("evaluate", beir, "-m", model, "--threshold", "0.6", "--keep-threshold")
    assert "--overwrite" in invoke(*evaluate, corpus, check=2).stderr
    invoke(*evaluate, corpus, "--overwrite", check=0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "-m" in invoke(*evaluate, elsewhere, check=2).stderr
    other = save_backbone(tmp_path / "other", seed=7)
    assert "several" in invoke(*evaluate, corpus, "-m", other, "--overwrite", check=2).stderr
    of_other = ("evaluate", beir, "-m", other, "--threshold", "0.6", "--keep-threshold", corpus, "--overwrite")
    before = (corpus / "calibration.json").read_bytes()
    assert "another model" in invoke(*of_other, check=2).stderr
    assert (corpus / "calibration.json").read_bytes() == before
    invoke("evaluate", beir, "-m", model, "--keep-threshold", corpus, check=2)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"curve": {"form": "isotonic", "knots": [[1, 0.5], [0, 0.6]]}}'])
def test_a_damaged_file_is_named_and_gives_no_probability(text, corpus, invoke):
    (corpus / "calibration.json").write_text(text)
    search = ("retrieve", "--corpus", corpus, "--query", "cat")
    assert "calibration.json" in invoke(*search, check=0).stderr
    assert "calibration.json" in invoke(*search, "--least", "0.5p", check=2).stderr
