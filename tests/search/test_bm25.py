"""BM25's scores are those of its formula, and its results those of the reference on real sets."""

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError, MissingExtraError
from sentcli.search.bm25 import BM25
from tests.examples import examples

pytest.importorskip("bm25s", reason="BM25 comes with the extra sentcli[cpu]")
pytest.importorskip("Stemmer", reason="BM25 comes with the extra sentcli[cpu]")

DOCUMENTS = ["The cats are running", "a cat runs", "", "dogs and wolves", "the of and", "wolves"]


def rows(found):
    """The positions of each query that are any."""
    return [[place for place in row if place >= 0] for row in found.positions.tolist()]


def formula(documents, query, k1, b):
    """Lucene's BM25 without stop words and stems, in float64."""
    words = [re.findall(r"\w\w+", text) for text in documents]
    mean = sum(map(len, words)) / len(words)
    scores = []
    for document in map(Counter, words):
        length, score = sum(document.values()), 0.0
        for word in re.findall(r"\w\w+", query):
            n = sum(word in each for each in words)
            if document[word]:
                idf = math.log(1 + (len(words) - n + 0.5) / (n + 0.5))
                score += idf * document[word] / (document[word] + k1 * (1 - b + b * length / mean))
        scores.append(score)
    return scores


TEXT = st.lists(st.sampled_from(["red", "green", "blue", "grey", "x"]), max_size=8).map(" ".join)


@examples(60)
@given(
    documents=st.lists(TEXT, min_size=1, max_size=12),
    query=TEXT,
    k=st.integers(1, 15),
    k1=st.sampled_from([0.0, 0.9, 1.2]),
    b=st.sampled_from([0.0, 0.75, 1.0]),
)
def test_scores_are_those_of_the_formula_and_equal_ones_come_in_order(documents, query, k, k1, b):
    found = BM25.build(documents, k1=k1, b=b, language="none").search([query], k)
    exact = np.array(formula(documents, query, k1, b))
    assert found.positions.shape == found.scores.shape == (1, min(k, len(documents)))
    place = rows(found)[0]
    np.testing.assert_allclose(found.scores[0, : len(place)], exact[place], rtol=1e-5)
    assert len(place) == min(k, np.count_nonzero(exact))
    assert not found.scores[0, len(place) :].any()
    assert found.scores[0, : len(place)] == pytest.approx(-np.sort(-exact)[: len(place)], rel=1e-5)
    same = found.scores[0, 1:] == found.scores[0, :-1]
    assert all(a < b for a, b, equal in zip(place, place[1:], same, strict=False) if equal)


def test_words_are_stemmed_and_stop_words_left_out():
    index = BM25.build(DOCUMENTS)
    assert len(index) == 6
    assert rows(index.search(["cat", "The running of wolf", "WOLVES!", "the of and", "", "zebra"], 10)) == [
        [0, 1],
        [0, 1],
        [5, 3],
        [],
        [],
        [],
    ]


def test_equal_documents_at_the_cut_are_the_first_ones():
    index = BM25.build(["red"] * 5 + ["red red"] + ["red"] * 5 + ["blue"] * 20)
    assert index.search(["red"], 4).positions.tolist() == [[5, 0, 1, 2]]


@pytest.mark.parametrize("documents", [[], ["", ""], ["the of and"]])
def test_an_index_without_words_finds_nothing_and_can_be_kept(documents, tmp_path):
    BM25.build(documents).save(tmp_path)
    index = BM25.open(tmp_path)
    assert len(index) == len(documents)
    assert rows(index.search(["the cat", ""], 3)) == [[], []]


def test_one_document():
    assert BM25.build(["cat"]).search(["cat dog"], 10**12).positions.tolist() == [[0]]


def test_no_query():
    assert BM25.build(["cat"]).search([], 3).positions.shape == (0, 1)


def test_queries_in_blocks_are_queries_one_by_one(monkeypatch):
    index = BM25.build(DOCUMENTS)
    queries = ["cat", "wolf", "", "running dogs", "zebra"]
    alone = [index.search([query], 4).positions[0].tolist() for query in queries]
    monkeypatch.setattr("sentcli.search.bm25.BATCH_QUERIES", 2)
    assert index.search(queries, 4).positions.tolist() == alone


@pytest.mark.parametrize(
    ("language", "texts", "query"),
    [
        ("german", ["die Häuser", "der Hund"], "das Haus"),
        ("finnish", ["taloissa", "koira"], "talo"),
        ("porter", ["generously", "dog"], "generous"),
    ],
)
def test_other_languages_are_stemmed(language, texts, query):
    index = BM25.build(texts, language=language)
    assert rows(index.search([query], 2)) == [[0]]
    assert index.protocol()["language"] == language


def test_what_was_saved_is_found_again_and_says_how_it_was_made(tmp_path):
    index = BM25.build(DOCUMENTS, k1=0.9, b=0.4, language="porter")
    index.save(tmp_path / "words")
    again = BM25.open(tmp_path / "words")
    queries = ["cats", "the wolf", "dog"]
    assert again.search(queries, 3).scores.tolist() == index.search(queries, 3).scores.tolist()
    assert again.search(queries, 3).positions.tolist() == index.search(queries, 3).positions.tolist()
    facts = json.loads((tmp_path / "words" / "bm25.json").read_text())
    assert (facts["k1"], facts["b"], facts["language"], facts["rows"]) == (0.9, 0.4, "porter", 6)
    of_scores = {k: v for k, v in facts.items() if k not in ("rows", "words")}
    assert again.protocol() == index.protocol() == of_scores
    assert isinstance(again._index.scores["data"], np.memmap)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "bm25.json").unlink(), r"bm25\.json"),
        (lambda folder: (folder / "vocab.index.json").unlink(), r"vocab\.index\.json"),
        (lambda folder: (folder / "bm25.json").write_text("[]"), r"bm25\.json"),
        (lambda folder: (folder / "bm25.json").write_text('{"rows": 3}'), r"bm25\.json.*words"),
        (lambda folder: (folder / "vocab.index.json").write_text('{"cat": 0}'), ""),
        (lambda folder: (folder / "data.csc.index.npy").write_bytes(b"\x93NUMPY"), r"data\.csc\.index\.npy"),
        (lambda folder: np.save(folder / "data.csc.index.npy", np.zeros(2, np.float32)), ""),
        (
            lambda folder: np.save(folder / "data.csc.index.npy", np.array([{}]), allow_pickle=True),
            r"data\.csc\.index\.npy",
        ),
    ],
)
def test_a_folder_that_is_none_is_refused(tmp_path, damage, words):
    folder = tmp_path / "words"
    BM25.build(DOCUMENTS).save(folder)
    damage(folder)
    with pytest.raises(InputError, match=f"{folder}.*{words}"):
        BM25.open(folder)
    with pytest.raises(InputError, match=r"nowhere.*bm25\.json"):
        BM25.open(tmp_path / "nowhere")


def test_saving_over_another_index_replaces_it(tmp_path):
    BM25.build(DOCUMENTS).save(tmp_path)
    BM25.build(["fish"]).save(tmp_path)
    assert rows(BM25.open(tmp_path).search(["fish", "cat"], 3)) == [[0], []]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"language": "englsh"}, "'englsh'.*'english'"),
        ({"k1": -1}, "k1 -1"),
        ({"k1": math.nan}, "k1 nan"),
        ({"b": 1.5}, r"b 1\.5"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        BM25.build(["cat"], **options)


@pytest.mark.parametrize(("module", "name"), [("bm25s", "bm25s"), ("Stemmer", "PyStemmer")])
def test_a_missing_library_is_named_with_its_extra(monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"BM25 search needs {name}.*sentcli\[cpu\]"):
        BM25.build(["cat"])


def test_nothing_is_printed(tmp_path):
    code = f"""
from pathlib import Path
from sentcli.search.bm25 import BM25
index = BM25.build(["cat", ""] * 50)
index.save(Path({str(tmp_path)!r}))
BM25.open(Path({str(tmp_path)!r})).search(["cat", ""], 3)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


REFERENCE = {
    "cranfield": (37.58, 73.14),
    "npl": (43.62, 60.34),
    "cacm": (49.94, 67.18),
    "time": (70.13, 95.26),
    "lisa": (47.07, 76.45),
    "scifact": (67.91, 91.27),
    "negconstraint": (72.65, 99.49),
}
"""nDCG@10 and recall@100 of an implementation of its own (k1 1.2, b 0.75, English, title + text)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCE)
def test_real_sets_score_as_the_reference(name, data):
    metrics = pytest.importorskip("beir.retrieval.evaluation", reason="scores are BEIR's")
    folder = data / "retrieval" / name
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    documents, queries = (
        [json.loads(line) for line in (folder / f"{part}.jsonl").read_text("utf-8").splitlines()]
        for part in ("corpus", "queries")
    )
    qrels = {}
    for line in (folder / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]:
        query, document, relevance = line.split("\t")
        qrels.setdefault(query, {})[document] = int(relevance)
    # 1,000 hits, since trec_eval breaks ties by id, not by position: they must not be cut at 100
    index = BM25.build(f"{each['title']} {each['text']}" for each in documents)
    found = index.search([query["text"] for query in queries], 1000)
    run = {
        query["_id"]: {documents[i]["_id"]: float(score) for i, score in zip(*row, strict=True) if i >= 0}
        for query, *row in zip(queries, found.positions, found.scores, strict=True)
    }
    ndcg, _, recall, _ = metrics.EvaluateRetrieval.evaluate(qrels, run, [10, 100], ignore_identical_ids=False)
    assert (100 * ndcg["NDCG@10"], 100 * recall["Recall@100"]) == pytest.approx(REFERENCE[name], abs=0.011)


@pytest.mark.slow
def test_the_files_do_not_depend_on_the_process(tmp_path):
    """The stems of a set have another order in each process."""
    code = "import sys; from sentcli.search.bm25 import BM25; from pathlib import Path; "
    code += "BM25.build(['the cats sat near dogs', 'a big river ran', 'trees'] * 2).save(Path(sys.argv[1]))"
    contents = []
    for seed in "12":
        variables = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], env=variables, check=True)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()})
    assert contents[0] == contents[1] and len(contents[0]) == 6


# Scripts without blanks between words

PHRASES = [
    "国際標準化に関する動向を調べる",
    "猫がマットの上に座った",
    "我想申请退款因为包裹没有到",
    "how do I get my money back",
    "ขอคืนเงินเพราะพัสดุไม่มา",
    "iPhone手机",
]


@pytest.mark.parametrize(
    ("query", "best"),
    [("国際標準", 0), ("動向", 0), ("猫", 1), ("座った", 1), ("退款", 2), ("包裹没有到", 2), ("money", 3), ("เงิน", 4),
     ("手机", 5), ("iphone", 5)],
)  # fmt: skip
def test_words_of_scripts_without_blanks_are_found(tmp_path, query, best):
    BM25.build(PHRASES).save(tmp_path)
    for language in ("english", "none"):
        assert rows(BM25.build(PHRASES, language=language).search([query], 1)) == [[best]]
    assert rows(BM25.open(tmp_path).search([query], 1)) == [[best]]


LATIN = st.text(st.characters(max_codepoint=0x24F), max_size=80)


@examples(60)
@given(st.lists(LATIN, min_size=1, max_size=8))
def test_other_texts_are_cut_as_bm25s_cuts_them(texts):
    import bm25s

    from sentcli.search.words import FOLDED, PATTERNS, folded, separated

    texts = list(map(folded, texts))
    theirs = bm25s.tokenize(texts, stopwords=[], show_progress=False, return_ids=False)
    ours = bm25s.tokenize(
        separated(texts, FOLDED), token_pattern=PATTERNS[FOLDED], stopwords=[], show_progress=False, return_ids=False
    )
    assert ours == theirs


def test_an_index_from_before_is_searched_as_it_was_built_and_says_so(tmp_path, capsys):
    BM25.build(DOCUMENTS).save(tmp_path)
    facts = json.loads((tmp_path / "bm25.json").read_text())
    assert facts.pop("analyzer") == "folded"
    (tmp_path / "bm25.json").write_text(json.dumps(facts))
    index = BM25.open(tmp_path)
    assert index.protocol()["analyzer"] == "words" and rows(index.search(["wolves"], 2)) == [[5, 3]]
    assert capsys.readouterr().err == ""
    assert rows(index.search(["猫が"], 2)) == [[]]
    assert "--type bm25 --overwrite" in capsys.readouterr().err


def test_an_index_of_texts_that_were_not_normalised_is_searched_as_it_was_built(tmp_path):
    BM25.build(["the café", "tea"]).save(tmp_path)
    facts = json.loads((tmp_path / "bm25.json").read_text())
    (tmp_path / "bm25.json").write_text(json.dumps({**facts, "analyzer": "words+pairs"}))
    index = BM25.open(tmp_path)
    assert index.protocol()["analyzer"] == "words+pairs"
    assert rows(index.search(["café", "cafe\u0301", "CAFÉ"], 2)) == [[0], [], [0]]


# The same word in other signs

SPELLINGS = [
    ("café", ["cafe\u0301", "CAFÉ", "ＣＡＦÉ", "caf\u00ad\u00e9"]),
    ("straße", ["STRASSE", "Strasse", "STRAẞE"]),
    ("istanbul", ["İstanbul", "I\u0307stanbul", "ISTANBUL", "ist\u00adan\u00adbul"]),
    ("ﬁnancial", ["financial", "FINANCIAL"]),
    ("ﾊﾟｿｺﾝ", ["パソコン", "ハ\u309aソコン"]),
    ("m²", ["m2", "M2"]),
    ("हिन्दी", ["हिन्\u2060दी"]),
    ("Σίσυφος", ["ΣΊΣΥΦΟΣ", "σίσυφοσ"]),
]


@pytest.mark.parametrize(("word", "others"), SPELLINGS)
@pytest.mark.parametrize("language", ["english", "none"])
def test_a_word_is_found_however_it_is_typed(tmp_path, word, others, language):
    texts = [f"near {spelling} there" for spelling in (word, *others)]
    BM25.build([*texts, "another river"], language=language).save(tmp_path)
    every = list(range(len(texts)))
    assert rows(BM25.open(tmp_path).search([word, *others], 9)) == [every] * len(texts)


@examples(100)
@given(st.text(max_size=40))
def test_a_text_has_the_words_of_each_of_its_forms(text):
    import unicodedata

    from sentcli.search.words import folded

    plain = folded(text)
    assert folded(plain) == plain
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert folded(unicodedata.normalize(form, text)) == plain
