"""In-domain retrieval: ranks are those of a loop over all sentences, and what cannot be scored is told."""

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError
from sentcli.evaluation import positives
from sentcli.evaluation.files import is_stsb, read_pair_table
from sentcli.evaluation.positives import positive_choice, positive_pairs
from sentcli.evaluation.score_json import score_of, score_record, task_json
from sentcli.evaluation.scores import ModelScores
from sentcli.io.labelled import LabelledTable
from sentcli.io.sources import open_source
from sentcli.pages.score_report import ScoreReport
from sentcli.stores.text_vectors import TextVectors
from tests.examples import examples


def table_of(pairs, positive=None):
    texts = [a for a, _ in pairs], [b for _, b in pairs]
    values = None if positive is None else np.array(positive, float).tolist()
    kind = "pairs" if positive is None else "binary"
    return LabelledTable("t", kind, ("a", "b"), texts, values, [*range(1, len(pairs) + 1)])


def found(vectors):
    """A text's vectors by name."""
    rows = {text: row for row, text in enumerate(vectors)}
    return TextVectors(rows, np.array(list(vectors.values()), np.float32), np.zeros(len(rows), np.int64))


def ranks_by_loop(table, vectors, exclude, similarity):
    """The rank of each second sentence, sentence by sentence."""
    ranks = []
    for row in np.flatnonzero(positive_pairs(table)):
        query, gold = table.texts[0][row], table.texts[1][row]
        if exclude == "equal-text" and query == gold:
            ranks.append(0)
            continue

        def similar(text, query=query):
            a, b = np.array(vectors[query], float), np.array(vectors[text], float)
            length = np.linalg.norm(a) * np.linalg.norm(b) if similarity == "cosine" else 1
            return a @ b / length if length else 0.0

        rank = 1
        for i, pair in enumerate(zip(*table.texts, strict=True)):
            for side, text in enumerate(pair):
                out = {
                    "own": (i, side) == (row, 0),
                    "s2-only": side == 0,
                    "equal-text": text == query,
                    "equal-text-except-gold": text == query,
                }[exclude]
                rank += not out and text != gold and similar(text) >= similar(gold) - 1e-6
        ranks.append(rank)
    return ranks


TEXTS = [f"t{i}" for i in range(7)]
VECTORS = {text: (i % 3 - 1, i // 3 - 1, 1 if i % 2 else -2) for i, text in enumerate(TEXTS)}
PAIRS = st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.booleans()), min_size=2, max_size=12)


@examples(100)
@given(pairs=PAIRS, exclude=st.sampled_from(list(positives.EXCLUDED)), similarity=st.sampled_from(["cosine", "dot"]))
def test_ranks_are_those_of_a_loop(pairs, exclude, similarity):
    table = table_of([pair[:2] for pair in pairs], [True, *(pair[2] for pair in pairs[1:])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positives, "PAIRS_AT_A_TIME", 3)
        ranks, best = positives.in_domain_ranks(table, found(VECTORS), exclude, similarity)
        details = positives.InDomainTask(table, exclude, similarity=similarity).score(None, found(VECTORS)).details
    assert ranks.tolist() == ranks_by_loop(table, VECTORS, exclude, similarity)
    slots = table.texts[1] if exclude == "s2-only" else [*table.texts[0], *table.texts[1]]
    assert (details["corpus"], details["distinct"]) == (len(slots), len(set(slots)))
    assert (ranks[best > 0] > 0).all()
    assert (ranks[best == 0] == 0).all()


COPIES = [("a", "b"), ("a", "c"), ("d", "d"), ("e", "f")]
"""A query that stands twice, a pair of equal texts, and one without either."""


@pytest.mark.parametrize(
    ("exclude", "best"),
    [
        ("equal-text-except-gold", [1, 1, 1, 1]),
        ("own", [2, 2, 1, 1]),
        ("equal-text", [1, 1, 0, 1]),
        ("s2-only", [1, 1, 1, 1]),
    ],
)
def test_the_bound_is_what_a_perfect_model_reaches(exclude, best):
    """It finds each text most similar to itself, then to its partner."""
    angles = {"a": 0.0, "b": 0.1, "c": -0.1, "d": 2.0, "e": 4.0, "f": 4.1}
    vectors = {text: (np.cos(angle), np.sin(angle)) for text, angle in angles.items()}
    found_vectors = found({**vectors, "c": vectors["b"]})
    ranks, bound = positives.in_domain_ranks(table_of(COPIES), found_vectors, exclude)
    assert bound.tolist() == best
    tied = [rank + (i < 2) for i, rank in enumerate(best)]  # b and c have one vector: neither comes first
    assert ranks.tolist() == tied
    score = positives.InDomainTask(table_of(COPIES), exclude).score(None, found_vectors)
    assert score.details["bounds"]["recall@1"] == 100 * np.mean(np.array(best) == 1)
    apart = {**vectors, "c": (np.cos(0.1), np.sin(0.1)), "b": (np.cos(0.2), np.sin(0.2))}
    assert positives.in_domain_ranks(table_of(COPIES), found(apart), exclude)[0].tolist() == [best[0] + 1, *best[1:]]


@pytest.mark.parametrize("vector", [(1.0, 0.5), (0.0, 0.0)])
def test_a_model_that_gives_all_texts_one_vector_finds_nothing(vector):
    pairs = [(f"a{i}", f"b{i}") for i in range(20)]
    vectors = found({text: vector for pair in pairs for text in pair})
    for exclude in positives.EXCLUDED:
        score = positives.InDomainTask(table_of(pairs), exclude).score(None, vectors)
        assert [score.metrics[f"recall@{k}"] for k in (1, 5, 10)] == [0, 0, 0]
        assert score.details["zero_vectors"] == (0 if any(vector) else 40)


def test_a_score_is_kept_whole_and_compared_on_the_same_queries():
    random = np.random.default_rng(0)
    table = table_of([(f"a{i}", f"b{i}") for i in range(30)])
    base = {text: random.normal(size=8) for text in (*table.texts[0], *table.texts[1])}
    near = {**base, **{f"b{i}": base[f"a{i}"] + random.normal(size=8) for i in range(30)}}
    task = positives.InDomainTask(table, "own", (1, 3))
    good, bad = (task.score(None, found(one)) for one in (near, base))
    again = score_of(json.loads(json.dumps(score_record(good))))
    assert task_json(again) == task_json(good)
    assert list(task_json(good))[:4] == ["recall@1", "recall@3", "queries", "corpus"]
    low, high = task_json(good)["intervals"]["recall@1"]
    assert low < good.metrics["recall@1"] < high
    models = [ModelScores("retrieve", name, {}, (score,)) for name, score in (("bad", bad), ("good", again))]
    _, compared = ScoreReport.of(models).with_differences(models)
    difference = compared.compared["tasks"]["recall@1"]
    assert difference["difference"] == pytest.approx(good.metrics["recall@1"] - bad.metrics["recall@1"])
    assert difference["low"] > 0
    assert difference["p"] < 0.05


# Tables


@pytest.mark.parametrize("name", ["any.csv", "any.csv.gz"])
def test_sts_b_is_known_by_its_layout_and_its_best_pairs_are_positive(tmp_path, name):
    text = 'g\tf\t2012\t1\t5.000\ta  "cat\ta dog\ng\tf\t2012\t2\t4.900\tb\tc\tlicence\ng\tf\t2012\t3\t5.0\td\te\n'
    file = _write(tmp_path, name, text)
    table = read_pair_table(file)
    assert table.texts == (['a "cat', "b", "d"], ["a dog", "c", "e"])
    assert (positive_pairs(table).tolist(), is_stsb(open_source(file))) == ([True, False, True], True)
    assert positive_choice(table) == "the 2 of 3 pairs with the highest score, 5"


def _write(folder, name, text):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("name", "text", "columns", "positive"),
    [
        ("a.csv", "sentence1,sentence2\nx,y\nz,x\n", None, [True, True]),
        ("a.tsv.gz", "sentence1\tsentence2\tscore\nx\ty\t0\nz\tx\t1\n", None, [False, True]),
        ("a.jsonl", '{"q": "x", "a": "y", "n": true}\n{"q": "z", "a": "x", "n": false}\n', "q, a,n", [True, False]),
        ("a.jsonl.gz", '{"q": "x", "a": "y", "n": 1}\n{"q": "z", "a": "x", "n": 2}\n', "q,a", [True, True]),
    ],
)
def test_tables_of_ones_own(tmp_path, name, text, columns, positive):
    file = _write(tmp_path, name, text)
    table = read_pair_table(file, columns)
    assert table.texts == (["x", "z"], ["y", "x"])
    assert (positive_pairs(table).tolist(), is_stsb(open_source(file))) == (positive, False)
    assert positive_choice(table).startswith(
        "all 2 pairs" if all(positive) else "the 1 of 2 pairs with the highest score"
    )


def test_a_parquet_table(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"sentence1": ["x", "z"], "sentence2": ["y", "x"]}), tmp_path / "a.parquet")
    assert read_pair_table(str(tmp_path / "a.parquet")).texts[1] == ["y", "x"]


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("", None, r"p\.csv"),
        ("sentence1,sentence2\n", None, r"p\.csv"),
        ("sentence1,sentence2\nx,y\n", None, r"p\.csv .*\bpair\b"),
        ("sentence1,sentence2\nx,x\nx,x\n", None, r"p\.csv: .*sentences"),
        ("sentence1,sentence2,score\nx,y,0\nz,x,0\n", None, r"p\.csv: .*score.*\b0\b"),
        ("sentence1,sentence2,score\nx,y,high\n", None, r"p\.csv, line 2: .*'high'"),
        ("sentence1,sentence2,score\nx,y,nan\n", None, r"p\.csv, line 2: .*'nan'"),
        ("sentence1,sentence2,score\nx,y,1\nz,x\n", None, r"p\.csv, line 3: .*'score'.*2.*3"),
        ("sentence1,other\nx,y\n", None, r"p\.csv, line 2: .*'sentence2'.*'sentence1'.*other"),
        ("question1,question2\nx,y\n", "qestion1,question2", "'qestion1'.*'question1'"),
        ("a,b\nx,y\n", "a", "--pair-fields a: .*A,B,SCORE"),
        ("a,b\nx,y\n", "a,a", "--pair-fields a,a .*ANCHOR,POSITIVE"),
        ("a,b\nx,y\n", "a,b,c,d", "--pair-fields a,b,c,d: .*A,B,SCORE"),
    ],
)
def test_what_is_no_table_of_pairs_is_told(tmp_path, text, columns, words):
    with pytest.raises(InputError, match=words):
        positive_choice(read_pair_table(_write(tmp_path, "p.csv", text), columns))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"sentence1": None, "sentence2": "y"}, r"p\.jsonl, line 1: sentence1 .*null"),
        ({"sentence1": "x", "sentence2": ["y"]}, r"p\.jsonl, line 1: sentence2 .*\['y'\]"),
        ({"sentence1": "x", "sentence2": "y", "score": None}, r"p\.jsonl, line 1: score .*null"),
    ],
)
def test_rows_without_texts_are_told(tmp_path, record, words):
    with pytest.raises(InputError, match=words):
        read_pair_table(_write(tmp_path, "p.jsonl", json.dumps(record) + "\n"))


# The command


@pytest.fixture
def pairs(tmp_path, sentences, monkeypatch):
    """A table of twelve pairs, four of them positive, and a cache that holds nothing."""
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    words = list(dict.fromkeys(s for s in sentences if s.strip() and "\t" not in s and "\n" not in s))
    lines = [f"{words[2 * i]}\t{words[2 * i + 1]}\t{i % 3}" for i in range(12)]
    return _write(tmp_path, "pairs.tsv", "sentence1\tsentence2\tscore\n" + "\n".join(lines) + "\n")


def test_the_command_writes_scores_and_a_page(pairs, tiny_bert, invoke, tmp_path):
    done = invoke(
        "retrieve", "-m", tiny_bert, "--in-domain", pairs, "--exclude", "own", "--top-k", 20, "--json",
        tmp_path / "r.json", "--report", tmp_path / "r.md", check=0,
    )  # fmt: skip
    report = json.loads((tmp_path / "r.json").read_text())
    result = report["results"]["in-domain"]
    assert [key for key in result if key.startswith("recall")] == ["recall@1", "recall@5", "recall@10", "recall@20"]
    assert (result["queries"], result["corpus"], result["exclude"]) == (4, 24, "own")
    assert report["protocol"]["queries"] == "first sentences of the 4 of 12 pairs with the highest score, 2"
    assert report["protocol"]["exclude"] == "own"
    assert "comes before it" in report["protocol"]["ties"]
    assert re.search(r"pairs\.tsv: .*\b4\b.*\b12\b", done.stderr)
    assert f"{result['recall@5']:.2f}" in (tmp_path / "r.md").read_text()


@pytest.mark.slow
def test_models_are_compared_and_not_loaded_again(pairs, tiny_bert, tiny_roberta, invoke, monkeypatch):
    call = ["retrieve", "-m", tiny_bert, "-m", tiny_roberta, "--in-domain", pairs, "--json", "-"]
    one, two = json.loads(invoke(*call, check=0).stdout)
    assert "compared" not in one
    assert two["compared"]["with"] == str(tiny_bert)
    difference = two["compared"]["tasks"]["recall@5"]
    recalls = [each["results"]["in-domain"]["recall@5"] for each in (one, two)]
    assert difference["difference"] == pytest.approx(recalls[1] - recalls[0])
    monkeypatch.setattr("sentcli.encoder.sentence_encoder.SentenceEncoder.load", None)
    again = json.loads(invoke(*call, check=0).stdout)
    assert [each["results"] for each in again] == [one["results"], two["results"]]
    assert [each["cached"] for each in again] == [["in-domain"]] * 2


@pytest.mark.slow
def test_print_stands_beside_the_recalls_of_sts_b(pairs, tmp_path, tiny_bert, invoke):
    rows = [line.split("\t") for line in Path(pairs).read_text().splitlines()[1:]]
    stsb = _write(tmp_path, "sts-test.csv", "".join(f"g\tf\t2012\t1\t{n}\t{a}\t{b}\n" for a, b, n in rows))
    call = ("retrieve", "-m", tiny_bert, "--in-domain", stsb, "--json", "-", "--against")
    report = json.loads(invoke(*call, "infocse-bert-base", check=0).stdout)
    printed = {task: one["published"] for task, one in report["against"]["tasks"].items()}
    assert printed == {"recall@1": 80.41, "recall@5": 100, "recall@10": 100}
    measured = report["against"]["tasks"]["recall@5"]
    assert measured["measured"] == report["results"]["in-domain"]["recall@5"]
    assert measured["range"] == report["results"]["in-domain"]["intervals"]["recall@5"]
    failed = invoke(*call, "micse-bert-base", check=2)
    assert re.search("micse-bert-base .*recall@1", failed.stderr)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--query-prompt", "q: "], "--query-prompt"),
        (["--doc-prompt", ""], "--doc-prompt"),
        (["--query-length", "9"], "--query-length"),
        (["--against", "micse-bert-base"], "--against: .*STS-B"),
    ],
)
def test_options_without_meaning_are_refused(pairs, tiny_bert, invoke, options, words):
    failed = invoke("retrieve", "-m", tiny_bert, "--in-domain", pairs, *options, check=2)
    assert re.search(words, failed.stderr)


def test_a_model_is_needed(pairs, invoke):
    assert re.search("--in-domain.*-m", invoke("retrieve", "--in-domain", pairs, check=2).stderr)


# Real data


@pytest.fixture
def sts_b(data):
    path = data / "senteval" / "STS" / "STSBenchmark" / "sts-test.csv"
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


def test_the_queries_of_sts_b_are_the_golden_rows(sts_b):
    folder = os.environ.get("SENTCLI_GOLDEN")
    if not folder or not (golden := Path(folder) / "stsb_retrieval_pairs.npz").exists():
        pytest.skip("golden rows: set SENTCLI_GOLDEN")
    table = read_pair_table(str(sts_b))
    assert np.flatnonzero(positive_pairs(table)).tolist() == np.load(golden)["query_row_index"].tolist()
    assert (len(table), positive_pairs(table).sum()) == (1379, 97)


RECALLS = {
    "equal-text-except-gold": ([80.41, 94.85, 97.94], [100, 100, 100]),
    "own": ([64.95, 90.72, 95.88], [68.04, 97.94, 100]),
    "equal-text": ([80.41, 94.85, 97.94], [100, 100, 100]),
    "s2-only": ([76.29, 98.97, 100], [91.75, 100, 100]),
}
"""Of MiniLM on STS-B's test split, and the bounds."""


@pytest.mark.slow
def test_recalls_of_minilm(minilm, sts_b):
    from sentcli import SentenceEncoder
    from sentcli.evaluation.evaluated import EvaluatedModel

    table = read_pair_table(str(sts_b))
    encoded = EvaluatedModel.of(SentenceEncoder.load(minilm)).encode([*table.texts[0], *table.texts[1]])
    for exclude, (recalls, bounds) in RECALLS.items():
        score = positives.InDomainTask(table, exclude).score(None, encoded)
        assert [round(score.metrics[f"recall@{k}"], 2) for k in (1, 5, 10)] == recalls
        assert [round(score.details["bounds"][f"recall@{k}"], 2) for k in (1, 5, 10)] == bounds
        assert (score.details["queries"], score.details["corpus"]) == (97, 1379 if exclude == "s2-only" else 2758)
