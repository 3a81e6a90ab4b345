"""`mine_negatives` over texts and vectors: what is never a negative, what decides among the others, what is counted."""

import random
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError, SentcliError
from sentcli.mining.copies import MiningCorpus, sequences
from sentcli.mining.judging import Judge
from sentcli.mining.mined import REASONS, MiningQueries, mine_negatives, share_of
from sentcli.mining.options import MiningOptions
from sentcli.search.words import plain
from tests.conftest import WORDS
from tests.examples import examples

PLAIN = [word for word in WORDS if word.isalpha()]
ALL = MiningOptions(ranks="1-50", below=1, apart=False, near=1, negatives=1)


def vectors_of(texts):
    """A vector of length 1 for each text, which no other text has."""
    vectors = []
    for text in texts:
        generator = np.random.default_rng(zlib.crc32(text.encode()))
        vectors.append(generator.normal(size=8) + 1)
    vectors = np.array(vectors, np.float32).reshape(-1, 8)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def at(*cosines):
    """Vectors in the plane with these cosines to [1, 0]."""
    return np.array([(cosine, np.sqrt(1 - cosine**2)) for cosine in cosines], np.float32)


def mined(query, positives, texts, options=ALL, **more):
    queries = MiningQueries([query], [positives])
    return mine_negatives(queries, vectors_of([query]), MiningCorpus(texts), vectors_of(texts), options, **more)


def in_plane(cosines, options, positives=(0,), **more):
    """Mine for one query among documents with these cosines, whose texts have nothing in common."""
    corpus = MiningCorpus([f"document {number}" for number in range(len(cosines))])
    queries = MiningQueries(["query"], [list(positives)])
    return mine_negatives(queries, at(1), corpus, at(*cosines), options, **more)


NAMES = st.sampled_from(["a cat", "A  cat", "a dog", "a bird", "old fish", "OLD fish", "the tree", "a river", " ", "x"])


@examples(60)
@given(st.lists(NAMES, min_size=2, max_size=12), st.data(), st.sampled_from(["dense", "bm25", "rrf"]))
def test_no_positive_nor_its_text_is_a_negative(texts, data, way):
    positives = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=3, unique=True))
    query = data.draw(NAMES)
    if not any(map(str.strip, texts)):
        return
    found = mined(query, positives, texts, replace(ALL, search=way))
    known = {plain(texts[number]) for number in positives} | {plain(query), ""}
    for row in found.rows:
        negatives = [plain(texts[number]) for number in row.negatives]
        assert known.isdisjoint(negatives)
        assert len(set(negatives)) == len(negatives)
        assert max(row.scores[1:]) < row.scores[0]


@examples(40)
@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=5), st.sampled_from(["dense", "bm25", "rrf"]))
def test_order_and_repetitions_change_no_negative(order, repeated, way):
    texts = [f"the {name} sat near the {name}" for name in "cat dog bird fish tree river house mat".split()]
    options = replace(ALL, search=way, below=0.99, negatives=2, ranks="1-4")

    def negatives(documents):
        found = mined("cat dog bird fish tree river house mat", [documents.index(texts[0])], documents, options)
        return [[documents[number] for number in row.negatives] for row in found.rows]

    other = [texts[number] for number in order] + [texts[number] for number in repeated]
    if way == "dense":
        assert negatives(other) == negatives(texts)
    else:  # equal scores of BM25 go by the order of documents
        assert len(negatives(other)) == len(negatives(other[:8]))
    assert negatives(texts + other) == negatives(texts)


def test_ranks_are_counted_without_known_positives():
    cosines = [0.99, 0.98, 0.97, 0.9, 0.8, 0.7, 0.6]
    options = replace(ALL, ranks="2-3", below=0.95, negatives=2)
    found = in_plane(cosines, options, positives=[0, 2])
    assert [(row.positive, row.negatives, row.ranks) for row in found.rows] == [
        (0, [3, 4], [2, 3]),
        (2, [3, 4], [2, 3]),
    ]
    assert found.fell == dict.fromkeys(REASONS, 0) | {"known positive": 4, "before the first rank": 2}
    np.testing.assert_allclose(found.rows[1].scores, [0.97, 0.9, 0.8], atol=1e-6)


def test_a_negative_is_below_its_share_of_the_positive():
    found = in_plane([0.8, 0.77, 0.75, 0.1], replace(ALL, ranks="1-9", below=0.95, negatives=2))
    (row,) = found.rows
    assert row.negatives == [2, 3] and found.fell["not below the share"] == 1
    assert in_plane([0.8, 0.79, 0.1], replace(ALL, below=0.95)).rows[0].negatives == [2]


@pytest.mark.parametrize("score", [-0.5, 0.0, 0.5])
def test_the_share_of_a_negative_score_is_below_it(score):
    assert share_of(score, 0.95) <= score and share_of(score, 1) == score
    found = in_plane([score, -0.49, -0.51, -0.9], replace(ALL, below=0.95, negatives=1))
    cosines = [score, -0.49, -0.51, -0.9]
    for row in found.rows:
        assert all(cosines[number] < share_of(score, 0.95) for number in row.negatives)
    assert share_of(-0.5, 0.95) == pytest.approx(-0.525) and found.rows[0].negatives == [3 if score < 0 else 1]


def test_rows_without_enough_negatives_are_counted_and_left_out():
    queries = MiningQueries(["first", "second", "third"], [[0], [1], []])
    corpus = MiningCorpus(["document a", "document b", "document c"])
    found = mine_negatives(queries, at(1, 1, 1), corpus, at(0.9, 0.2, 0.1), replace(ALL, negatives=2))
    assert (len(found.rows), found.short, found.without_positive, found.queries) == (1, 1, 1, 1)


def test_equal_queries_know_the_positives_of_each_other():
    queries = MiningQueries(["a query", "A  QUERY"], [[0], [1]])
    corpus = MiningCorpus(["document a", "document b", "document c"])
    found = mine_negatives(queries, at(1, 1), corpus, at(0.95, 0.9, 0.1), ALL)
    assert [row.negatives for row in found.rows] == [[2], [2]]


def test_documents_beyond_the_corpus_are_no_candidates():
    queries = MiningQueries(["query"], [[2]])
    corpus = MiningCorpus(["document a", "document b", "the positive", "of another"], 2)
    found = mine_negatives(queries, at(1), corpus, at(0.5, 0.4, 0.9, 0.8), replace(ALL, negatives=2))
    assert found.rows[0].negatives == [0, 1]


def test_documents_that_are_left_out_have_no_rank():
    queries = MiningQueries(["query"], [[1]], [[0]])
    found = mine_negatives(queries, at(1), MiningCorpus(["own", "positive", "negative"]), at(0.99, 0.9, 0.1), ALL)
    assert found.rows[0].negatives == [2] and found.rows[0].ranks == [1]


def test_near_copies_fall_by_words_and_by_cosine():
    positive = "the old man sat on the mat near the river and saw a small red fish"
    texts = [
        positive,
        positive.upper() + "!",
        positive[:40],
        f"{positive} and ran home",
        "a fish",
        "a dog flew over it",
    ]
    found = mined("where did he sit", [0], texts, replace(ALL, below=1))
    assert found.fell["near copy of a positive"] == 3
    same = in_plane([0.9, 0.899, 0.2], replace(ALL, near=0.95))
    assert same.fell["near copy of a positive"] == 1 and same.rows[0].negatives == [2]
    assert sequences("four words are few") == frozenset()


def test_the_similarity_decides():
    corpus = MiningCorpus(["positive", "long", "short"])
    documents = np.array([[3, 0], [1, 2], [0.9, 0]], np.float32)
    queries = MiningQueries(["query"], [[0]])
    by_dot = mine_negatives(queries, at(1), corpus, documents, replace(ALL, near=0.99, negatives=1), similarity="dot")
    assert (by_dot.rows[0].negatives, by_dot.rows[0].scores) == ([1], [3, 1])
    by_cosine = mine_negatives(queries, at(1), corpus, documents, ALL)
    np.testing.assert_allclose(by_cosine.rows[0].scores, [1, 0.2**0.5], atol=1e-6)


def test_a_negative_is_farther_from_the_positive_than_the_query():
    angles = np.radians([40, 75, -20, -60])  # of the positive, and of documents beyond it and on the other side
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    queries = MiningQueries(["query"], [[0]])
    corpus = MiningCorpus(["positive", "beyond it", "beside the query", "opposite"])
    options = replace(ALL, below=0.95, near=0.99, negatives=2)
    found = mine_negatives(queries, at(1), corpus, vectors, options)
    assert found.rows[0].negatives == [3, 1] and found.fell["not below the share"] == 1
    found = mine_negatives(queries, at(1), corpus, vectors, replace(options, apart=True, negatives=1))
    assert found.rows[0].negatives == [3] and found.fell["nearer to the positive"] == 1


@pytest.mark.parametrize("logits", [False, True])
def test_the_judge_reads_what_is_needed_and_refuses_what_is_relevant(logits):
    given = {0: 0.9, 1: 0.88, 2: 0.1, 3: 0.2, 4: 0.3}
    read = []

    def score(pairs):
        read.extend(pairs)
        probabilities = np.array([given[int(document.split()[1])] for _, document in pairs])
        return np.log(probabilities / (1 - probabilities)) if logits else probabilities

    options = replace(ALL, below=0.95, negatives=2)
    found = in_plane([0.9, 0.8, 0.7, 0.6, 0.5], options, judge=Judge(score, logits=logits))
    (row,) = found.rows
    assert row.negatives == [2, 3] and found.fell["judged relevant"] == 1 and found.fell["not needed"] == 1
    assert [document for _, document in read] == ["document 0", "document 1", "document 2", "document 3"]
    expected = score([("query", f"document {number}") for number in (0, 2, 3)])
    np.testing.assert_allclose(row.judge_scores, expected)


def test_what_cannot_be_mined_is_refused():
    with pytest.raises(InputError):
        in_plane([0.9, 0.8], replace(ALL, ranks="3-4"))
    assert in_plane([0.9, 0.8], replace(ALL, ranks="2-40")).short == 1  # clipped
    with pytest.raises(SentcliError):
        mine_negatives(MiningQueries(["q"], [[0]]), at(1) * np.nan, MiningCorpus(["a", "b"]), at(0.5, 0.4), ALL)


@pytest.mark.parametrize("values", [{"ranks": "5"}, {"ranks": "0-5"}, {"ranks": "9-2"}, {"below": 0}, {"below": 1.1}])
def test_options_out_of_bounds_are_refused(values):
    with pytest.raises(InputError):
        MiningOptions(**values)


def test_negatives_are_those_of_sentence_transformers(tiny_bert):
    datasets = pytest.importorskip("datasets")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    generator = random.Random(0)
    texts = [" ".join(generator.choices(PLAIN, k=9)) for _ in range(60)]
    queries = [text.rpartition(" ")[0] for text in texts[:12]]
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    pairs = datasets.Dataset.from_dict({"anchor": queries, "positive": texts[:12]})
    peer = mine_hard_negatives(
        pairs, model, corpus=texts, range_min=0, range_max=55, relative_margin=0.05, num_negatives=3,
        output_format="n-tuple", verbose=False,
    )  # fmt: skip
    options = replace(ALL, ranks="1-55", below=0.95, negatives=3)
    corpus = MiningCorpus(texts)
    known = MiningQueries(queries, [[number] for number in range(12)])
    found = mine_negatives(known, model.encode(queries), corpus, model.encode(texts), options)
    own = [[queries[row.query], texts[row.positive], *(texts[n] for n in row.negatives)] for row in found.rows]
    assert len(own) > 3 and own == [list(row.values()) for row in peer]
