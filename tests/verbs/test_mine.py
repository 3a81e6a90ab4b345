"""``data mine``: what it reads and writes, that training takes it, and what it refuses."""

import json
import random

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentcli.encoder.reranker import Reranker
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.search.words import plain
from sentcli.training.pairs import read_anchors
from tests.conftest import WORDS, save_cross_encoder

NOUNS = "cat dog bird fish man woman child house river tree mat".split()
WIDE = ("--ranks", "1-40", "--below", "1", "--no-apart", "--near", "1", "--negatives", "2")
PLAIN = [word for word in WORDS if word.isalpha()]


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


@pytest.fixture(scope="module")
def documents():
    generator = random.Random(0)
    return [" ".join(generator.choices(PLAIN, k=12)) for _ in range(40)]


@pytest.fixture
def folder(tmp_path, documents):
    """A retrieval set with a copy of a document, a query without positive, and a judgement of a missing document."""
    corpus = [{"_id": f"d{number}", "title": "", "text": text} for number, text in enumerate(documents)]
    corpus += [{"_id": "copy", "text": documents[0].upper()}, {"_id": "empty", "text": " "}]
    write(tmp_path / "set" / "corpus.jsonl", corpus)
    queries = [{"_id": f"q{number}", "text": documents[number][:30]} for number in range(6)]
    write(tmp_path / "set" / "queries.jsonl", queries)
    rows = ["query-id\tcorpus-id\tscore"]
    rows += [f"q{number}\td{number}\t1" for number in range(5)]
    rows += ["q0\td7\t2", "q1\td9\t0", "q5\tgone\t1", "q5\tempty\t1"]
    (tmp_path / "set" / "qrels").mkdir()
    for split in ("test", "train"):
        (tmp_path / "set" / "qrels" / f"{split}.tsv").write_text(
            "\n".join(rows[: 5 if split == "train" else 99]) + "\n"
        )
    return tmp_path / "set"


@pytest.fixture
def pairs(tmp_path, documents):
    rows = [{"question": text[:30], "answer": text} for text in documents[:5]]
    rows.append({"question": documents[0][:30], "answer": "an answer that the corpus lacks"})
    return write(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def corpus(tmp_path, documents):
    return write(tmp_path / "corpus.jsonl", [{"id": f"c{n}", "text": text} for n, text in enumerate(documents)])


@pytest.fixture
def mine(invoke, tiny_bert, tmp_path):
    """Mine, and return the rows and the results."""

    def call(*arguments, name="out.jsonl"):
        words = ("data", "mine", *arguments, "-m", tiny_bert, "-o", tmp_path / name, "--overwrite", "--json", "-")
        done = invoke(*words, check=0)
        return lines(tmp_path / name), json.loads(done.stdout)

    return call


@pytest.mark.slow
@pytest.mark.parametrize("way", ["dense", "bm25", "rrf"])
def test_a_set_gives_rows_of_each_query_and_positive(mine, folder, documents, tiny_bert, way):
    rows, result = mine(folder, *WIDE, "--search", way)
    results = result["results"]
    assert results["queries_without_positive"] == 1 and results["unknown_positives"] == 1
    assert results["documents"] == 42 and results["documents_of_equal_text"] == 1
    assert results["empty_documents"] == results["empty_positives"] == 1
    assert results["rows"] == len(rows) and results["rows"] + results["rows_left_out"] == 6
    assert result["protocol"]["search"] == way and result["protocol"]["ranks"] == "1-40"
    ids = {f"d{number}": text for number, text in enumerate(documents)} | {"copy": documents[0].upper()}
    encoder = SentenceEncoder.load(tiny_bert)
    for row in rows:
        texts = [row["positive"], row["negative_1"], row["negative_2"]]
        keys = [row["positive_id"], *row["negative_ids"]]
        assert [ids[key] for key in keys] == texts
        known = {"q0": {plain(documents[0]), plain(documents[7])}}.get(row["anchor_id"], {plain(row["positive"])})
        assert known.isdisjoint(map(plain, texts[1:]))
        vectors = encoder.encode([row["anchor"], *texts])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors[1:] @ vectors[0], row["scores"], atol=1e-4)
        assert row["negative_ranks"] == sorted(row["negative_ranks"])


def test_the_same_command_writes_the_same_bytes(mine, folder, tmp_path):
    mine(folder, *WIDE)
    mine(folder, *WIDE, "--rerun", name="again.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()


def test_training_takes_the_rows(mine, folder, invoke, tiny_bert, tmp_path):
    rows, result = mine(folder, *WIDE)
    read = read_anchors([str(tmp_path / "out.jsonl")])
    columns = ("anchor", "positive", "negative_1", "negative_2")
    assert [list(texts) for texts in read.texts] == [[row[name] for row in rows] for name in columns]
    train = ("train", "--method", "simcse", "-m", tiny_bert, "--data", tmp_path / "out.jsonl", "-o", tmp_path / "model")
    invoke(*train, "--max-steps", 2, "--batch-size", 4, check=0)
    (command,) = result["commands"]
    assert str(tmp_path / "out.jsonl") in command
    triplets, _ = mine(folder, *WIDE, "--negatives", 1, name="one.jsonl")
    assert {"anchor", "positive", "negative"} <= set(triplets[0])
    assert len(read_anchors([str(tmp_path / "one.jsonl")]).texts) == 3


def test_a_table_of_pairs_goes_with_a_corpus(mine, pairs, corpus, documents):
    rows, result = mine(pairs, "--corpus", corpus, "--pair-fields", "question,answer", *WIDE)
    assert result["results"]["positives_beside_the_corpus"] == 1 and result["results"]["queries"] == 5
    known = {text[:30]: text for text in documents}
    for row in rows:
        assert row["anchor_id"] == str([text[:30] for text in documents].index(row["anchor"]) + 1)
        assert known[row["anchor"]] not in (row["negative_1"], row["negative_2"])
    beside = [row for row in rows if row["positive"] == "an answer that the corpus lacks"]
    assert all(row["positive_id"] is None for row in beside)


def test_pairs_with_0_and_1_have_the_positives_of_1(mine, corpus, documents, tmp_path):
    table = [{"sentence1": t[:20], "sentence2": t, "label": n % 2} for n, t in enumerate(documents[:8])]
    _, result = mine(write(tmp_path / "binary.jsonl", table), "--corpus", corpus, *WIDE)
    assert result["results"]["queries"] == 4


def test_vectors_of_a_directory_are_taken(mine, invoke, pairs, corpus, tiny_bert, tmp_path, monkeypatch):
    of_file = mine(pairs, "--corpus", corpus, "--pair-fields", "question,answer", *WIDE)[0]
    invoke("encode", corpus, "-m", tiny_bert, "-o", tmp_path / "vectors", check=0)
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "empty"))
    done = invoke(
        "data", "mine", pairs, "--corpus", tmp_path / "vectors", "--pair-fields", "question,answer", *WIDE,
        "-m", tiny_bert, "-o", tmp_path / "of-directory.jsonl", check=0,
    )  # fmt: skip
    assert "taken as they are" in done.stderr
    for row, expected in zip(lines(tmp_path / "of-directory.jsonl"), of_file, strict=True):
        np.testing.assert_allclose(row.pop("scores"), expected.pop("scores"), atol=1e-5)
        assert row == expected


def test_prompts_and_titles_stand_in_front(mine, pairs, corpus, documents, tmp_path):
    titled = write(tmp_path / "titled.jsonl", [{"id": n, "name": "a cat", "text": t} for n, t in enumerate(documents)])
    arguments = (pairs, "--pair-fields", "question,answer", *WIDE)
    plain_rows, _ = mine(*arguments, "--corpus", corpus)
    prompted, result = mine(*arguments, "--corpus", corpus, "--query-prompt", "the query", "--doc-prompt", "a document")
    assert result["protocol"]["query_prompt"] == "the query" and result["protocol"]["document_prompt"] == "a document"
    assert plain_rows[0]["scores"] != prompted[0]["scores"]
    rows, _ = mine(*arguments, "--corpus", titled, "--title-field", "name")
    assert rows and all(row["negative_1"].startswith("a cat ") for row in rows)


def test_a_judge_refuses_and_its_scores_are_kept(mine, folder, tmp_path):
    judge = save_cross_encoder(tmp_path / "judge")
    unjudged, _ = mine(folder, *WIDE)
    rows, result = mine(folder, *WIDE, "--below", "0.99", "--judge", judge)
    assert result["results"]["fell"]["judged relevant"] > 0 and "judge_scores" not in unjudged[0]
    for row in rows:
        texts = [row["positive"], row["negative_1"], row["negative_2"]]
        expected = Reranker.load(judge).scores([(row["anchor"], text) for text in texts])
        np.testing.assert_allclose(row["judge_scores"], expected, atol=1e-4)
        assert max(row["judge_scores"][1:]) < 0.99 * row["judge_scores"][0]


def test_parquet_has_the_same_rows(mine, folder, invoke, tiny_bert, tmp_path):
    rows, _ = mine(folder, *WIDE)
    invoke("data", "mine", folder, *WIDE, "-m", tiny_bert, "-o", tmp_path / "out.parquet", check=0)
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == rows


@pytest.mark.parametrize(
    "arguments",
    [
        "SET -m JUDGE -o OUT.jsonl",
        "SET -m TINY -o OUT.jsonl --judge TINY",
        "SET -m TINY -o OUT.csv",
        "SET -m TINY -o EXISTS.jsonl",
        "SET -m TINY -o OUT.jsonl --ranks 9-2",
        "SET -m TINY -o OUT.jsonl --ranks 0-2",
        "SET -m TINY -o OUT.jsonl --ranks many",
        "SET -m TINY -o OUT.jsonl --ranks 100-200",
        "SET -m TINY -o OUT.jsonl --below 0",
        "SET -m TINY -o OUT.jsonl --below -1",
        "SET -m TINY -o OUT.jsonl --negatives 0",
        "SET -m TINY -o OUT.jsonl --split none",
        "SET -m TINY -o OUT.jsonl --pair-fields a,b",
        "SET -m TINY -o OUT.jsonl --language klingon --search bm25",
        "SET -m TINY -o OUT.jsonl --language english",
        "SET -m TINY -o OUT.jsonl --corpus EXISTS.jsonl --text-field body",
        "PAIRS -m TINY -o OUT.jsonl --pair-fields question,answer",
        "PAIRS -m TINY -o PAIRS --pair-fields question,answer --corpus CORPUS --overwrite",
        "PAIRS -m TINY -o OUT.jsonl --pair-fields question,answer --corpus CORPUS --split dev",
        "PAIRS -m TINY -o OUT.jsonl --pair-fields question,answer --corpus CORPUS --title-field none",
        "PAIRS -m TINY -o OUT.jsonl --pair-fields question,answer --corpus EMPTY",
        "CORPUS -m TINY -o OUT.jsonl --corpus CORPUS",
        "SCORED -m TINY -o OUT.jsonl --corpus CORPUS",
        "no-such-file -m TINY -o OUT.jsonl",
    ],
)
def test_wrong_usage_is_one_message(arguments, invoke, folder, pairs, corpus, tiny_bert, tmp_path):
    places = {
        "SET": folder,
        "PAIRS": pairs,
        "CORPUS": corpus,
        "TINY": tiny_bert,
        "JUDGE": tmp_path / "judge",
        "EMPTY": write(tmp_path / "empty.jsonl", []),
        "EXISTS.jsonl": write(tmp_path / "exists.jsonl", [{"text": "a cat"}]),
        "OUT.jsonl": tmp_path / "out.jsonl",
        "OUT.csv": tmp_path / "out.csv",
        "SCORED": write(tmp_path / "scored.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 0.5}]),
    }
    if "JUDGE" in arguments:
        save_cross_encoder(places["JUDGE"])
    words = [places.get(word, word) for word in arguments.split()]
    done = invoke("data", "mine", *words, check=2)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_without_any_row_nothing_is_written(folder, invoke, tiny_bert, tmp_path):
    words = ("data", "mine", folder, "-m", tiny_bert, "-o", tmp_path / "out.jsonl", "--json", tmp_path / "out.json")
    invoke(*words, "--ranks", "1-3", "--negatives", 5, check=1)
    assert json.loads((tmp_path / "out.json").read_text())["results"]["rows"] == 0
    assert not (tmp_path / "out.jsonl").exists()
