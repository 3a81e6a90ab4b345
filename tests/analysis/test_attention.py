"""Attention of two dropout views against definitions written out in NumPy."""

import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sentcli.analysis.attention import trees
from sentcli.analysis.attention.pairs import (
    AttentionPairs,
    attention_pairs,
    equal_pairs,
    equally_long_pairs,
    pair_information,
    tree_pairs,
)
from sentcli.analysis.attention.views import DropoutViews, attention_slices, by_head
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError
from tests.examples import examples

TEXTS = ["the cat sat", "a dog ran on the mat", "the old man eats fish", "a bird flew over the house", "the cat sees"]


def weights(layers, heads, width, seed=0):
    """Weights of two views `[2, L, H, T, T]`, a tenth of them dropped."""
    torch.manual_seed(seed)
    made = torch.randn(layers, heads, width, width)
    both = torch.stack([(made + 0.5 * torch.randn_like(made)).softmax(-1) for _ in range(2)])
    return torch.nn.functional.dropout(both, 0.1)


def rho_of(one, two):
    """Correlation of the logarithms where both are above 0."""
    one, two = (np.asarray(part, np.float64).ravel() for part in (one, two))
    kept = (one > 0) & (two > 0)
    return np.corrcoef(np.log(one[kept]), np.log(two[kept]))[0, 1]


def information(rho):
    return -0.5 * np.log(1 - rho**2)


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return SentenceEncoder.load(tiny_bert, backend="torch", pooling="cls")


@pytest.fixture
def views(encoder):
    made = DropoutViews(encoder, TEXTS, seed=3)
    yield made
    made.close()


def test_every_head_has_the_correlation_of_its_logarithms():
    found = weights(3, 4, 7)
    rho, mi = by_head(found)
    expected = np.array([[rho_of(found[0, i, j], found[1, i, j]) for j in range(4)] for i in range(3)])
    np.testing.assert_allclose(rho, expected, atol=1e-6)
    np.testing.assert_allclose(mi, information(expected), atol=1e-6)


def test_the_histograms_hold_the_positions_that_both_views_kept():
    found = weights(3, 4, 7)
    parts = attention_slices(found, [1, 2], [0, 3])
    assert [(part.layer, part.head) for part in parts] == [(1, 0), (1, 3), (2, 0), (2, 3)]
    for part in parts:
        one, two = found[:, part.layer, part.head].flatten(1).numpy()
        kept = (one > 0) & (two > 0)
        assert 0 < kept.sum() < 49
        np.testing.assert_allclose(part.first, np.log(one[kept]), rtol=1e-5)
        np.testing.assert_allclose(part.second, np.log(two[kept]), rtol=1e-5)
        assert part.correlation == pytest.approx(rho_of(one, two), abs=1e-6)


@pytest.mark.parametrize("slicing", ["layer-pairs", "head-pairs"])
def test_a_pair_of_texts_is_compared_where_both_have_tokens(slicing):
    first, second = weights(6, 4, 9, seed=1)[0], weights(6, 4, 6, seed=2)[1]
    one, two = first[..., :6, :6].numpy(), second.numpy()
    if slicing == "layer-pairs":  # one head in layers l and l + 2 of the four chosen
        cuts = [np.s_[[layer, layer + 2], h] for h in range(4) for layer in (1, 2)]
    else:  # two adjacent heads of one layer
        cuts = [np.s_[layer, h : h + 2] for layer in (1, 2, 3, 4) for h in (0, 2)]
    expected = np.mean([information(rho_of(one[cut], two[cut])) for cut in cuts])
    assert pair_information(first, second, (1, 2, 3, 4), slicing) == pytest.approx(expected, abs=1e-6)


def test_the_views_of_a_text_depend_on_seed_and_number_alone(encoder, views):
    before = views.of_view(1)
    views.of_view(4)
    again = views.of_view(1)
    assert torch.equal(before.weights, again.weights) and torch.equal(before.vectors, again.vectors)
    assert not torch.equal(before.weights[0], before.weights[1])
    fewer = DropoutViews(encoder, TEXTS[:2], seed=3).of_view(1)
    assert torch.equal(before.weights, fewer.weights)
    assert not torch.equal(before.weights, DropoutViews(encoder, TEXTS, seed=4).of_view(1).weights)


def test_views_draw_from_random_numbers_of_their_own(views):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    views.of_view(0)
    assert torch.equal(torch.rand(3), expected)


def test_without_dropout_views_are_the_models_own_vectors(tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert, backend="torch", pooling="cls")
    expected = encoder.encode(TEXTS)
    views = DropoutViews(encoder, TEXTS, dropout=0.0)
    found = views.of_view(1)
    assert found.weights.shape == (2, 2, 4, views.lengths[1], views.lengths[1])
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 2, 4, views.lengths[1]))
    np.testing.assert_allclose(found.vectors[1].numpy(), expected[1], atol=1e-5)
    with pytest.raises(InputError, match=r"--dropout 0.1"):
        views.check()


def test_dropout_removes_weights_and_scales_the_others(views):
    found = views.of_view(1).weights
    dropped = found == 0
    assert 0.02 < dropped.float().mean() < 0.25  # the tiny model drops a tenth
    assert views.check() == 4


def test_positives_and_negatives(views):
    found = attention_pairs(views, len(TEXTS), (0, 1), "layer-pairs", seed=5)
    assert found.information.shape == found.correlation.shape == (2, 4)
    one = views.of_view(2)
    assert list(found.of_kind("positives")["information"])[2] == pytest.approx(
        pair_information(one.weights[0], one.weights[1], (0, 1), "layer-pairs")
    )
    cosine = torch.nn.functional.cosine_similarity(one.vectors[0], one.vectors[1], dim=0)
    assert list(found.of_kind("positives")["cosine"])[2] == pytest.approx(float(cosine), abs=1e-5)
    heads = [by_head(views.of_view(i).weights) for i in range(len(TEXTS))]
    np.testing.assert_allclose(found.information, np.mean([mi for _, mi in heads], axis=0))
    assert found.centroid("positives")[0] > found.centroid("negatives")[0]
    again = attention_pairs(views, len(TEXTS), (0, 1), "layer-pairs", seed=5)
    assert again.to_dict() == found.to_dict()
    other = attention_pairs(views, len(TEXTS), (0, 1), "layer-pairs", seed=6)
    assert list(other.of_kind("negatives")["cosine"]) != list(found.of_kind("negatives")["cosine"])


def test_auc_is_the_chance_that_a_positive_is_greater(views):
    found = attention_pairs(views, len(TEXTS), (0, 1), "head-pairs")
    for key in ("cosine", "information"):
        one, two = (found.of_kind(kind)[key].to_numpy() for kind in ("positives", "negatives"))
        wins = (one[:, None] > two).mean() + (one[:, None] == two).mean() / 2
        assert found.auc(key) == pytest.approx(wins)
    x, y = found.centroid("positives") - found.centroid("negatives")
    assert found.distance("positives", "negatives") == pytest.approx(np.hypot(x, y))


def test_negatives_are_split_by_trees(views):
    lines = ["A", "B", "A", "C", "A"]
    ticks = []
    found = attention_pairs(views, 5, (0, 1), "layer-pairs", 0, lines, ticks.append)
    assert (found.sharing, found.equal_trees, len(found.of_kind("equal"))) == (3, 3, 3)
    one, two = views.of_view(0), views.of_view(2)
    expected = pair_information(one.weights[0], two.weights[1], (0, 1), "layer-pairs")
    assert found.of_kind("equal")["information"].iloc[0] == pytest.approx(expected)
    assert 0 < len(found.of_kind("unequal")) <= 5
    control = equally_long_pairs(lines, views.lengths)
    assert len(found.of_kind("unequal_as_long")) == len(control) == 1
    one, two = (views.of_view(number) for number in control[0])
    expected = pair_information(one.weights[0], two.weights[1], (0, 1), "layer-pairs")
    assert found.of_kind("unequal_as_long")["information"].iloc[0] == pytest.approx(expected)
    assert sum(ticks) == tree_pairs(lines, views.lengths) + 5
    offset = found.centroid("equal") - found.centroid("unequal")
    assert found.to_dict()["trees"]["centroid_distance"] == pytest.approx(np.linalg.norm(offset))


@pytest.mark.slow
def test_unequal_trees_are_found_where_the_drawn_negatives_have_equal_ones(views):
    for seed in range(20):
        found = attention_pairs(views, 3, (0, 1), "layer-pairs", seed, ["A", "A", "B"])
        assert 1 <= len(found.of_kind("unequal")) <= 3
        assert np.isfinite(found.centroid("unequal")).all()


@examples(50)
@given(st.lists(st.tuples(st.sampled_from("ABC"), st.integers(3, 5)), max_size=12))
def test_pairs_of_trees_are_all_pairs(texts):
    lines, lengths = [tree for tree, _ in texts], [length for _, length in texts]
    every = [(i, j) for i in range(len(texts)) for j in range(i + 1, len(texts))]
    assert equal_pairs(lines) == [(i, j) for i, j in every if lines[i] == lines[j]]
    as_long = [(i, j) for i, j in every if lines[i] != lines[j] and lengths[i] == lengths[j]]
    assert equally_long_pairs(lines, lengths) == as_long


def test_a_centroid_is_the_mean():
    pairs = pd.DataFrame({"kind": "positives", "cosine": [0.0, 1.0], "information": [2.0, 5.0]})
    pairs = pd.concat([pairs, pairs.assign(kind="negatives")])
    made = AttentionPairs(np.ones((1, 1)), np.ones((1, 1)), pairs)
    assert made.to_dict()["positives"] == {"pairs": 2, "mean_cosine": 0.5, "mean_mi": 3.5}


CONLLU = """# sent_id = 1
# text = Don't sleep.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_
3\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_
3.1\tsleep\tsleep\tVERB\t_\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_

# text = Did not run!
1\tDid\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tnot\tnot\tPART\t_\t_\t3\tadvmod\t_\t_
3\trun\trun\tVERB\t_\t_\t0\troot\t_\t_
4\t!\t!\tPUNCT\t_\t_\t3\tpunct\t_\t_

# text = Run.
1\tRun\trun\tVERB\t_\t_\t0\troot\t_\t_
2\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

"""


def test_conllu_trees_are_parts_of_speech_heads_and_relations(tmp_path):
    pytest.importorskip("conllu")
    path = tmp_path / "trees.conllu"
    path.write_text(CONLLU + CONLLU.split("\n\n")[2] + "\n\n", "utf-8")
    found = trees.read_conllu(path).texts
    assert list(found) == ["Don't sleep.", "Did not run!", "Run."]
    assert found["Don't sleep."] == "AUX<3:aux PART<3:advmod VERB<0:root PUNCT<3:punct"
    assert Counter(found.values()).most_common(1)[0][1] == 2
    sample = trees.read_conllu(path, limit=2, seed=3)
    assert list(sample.texts.items()) == [item for item in found.items() if item[0] in sample.texts]
    assert (sample.sample.texts, sample.sample.of) == (2, 3)


@pytest.mark.parametrize(("text", "message"), [
    (CONLLU.replace("# text = Did not run!\n", ""), ", sentence 2: .*'# text = "),
    (CONLLU.replace("\tAUX\t_\t_\t3\taux", "\t_\t_\t_\t3\taux", 1), ", sentence 1: word 1 .*4, 7 .*8"),
    (CONLLU.replace("1\tRun\trun\tVERB\t_\t_\t0", "1\tRun\trun\tVERB\t_\t_\tx"), ", sentence 3: .*head.*'x'"),
    ("just text\n", ", sentence 1: .*CoNLL-U"),
    ("# text = nothing\n\n", ", sentence 1: "),
    ("\n", ""),
])  # fmt: skip
def test_what_is_no_tree_is_refused_by_its_number(tmp_path, text, message):
    pytest.importorskip("conllu")
    path = tmp_path / "trees.conllu"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=f"{path}{message}"):
        trees.read_conllu(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    pytest.importorskip("conllu")
    path = tmp_path / "trees.conllu"
    path.write_bytes(b"# text = \xff\xfe\n")
    with pytest.raises(DataError, match=f"{path}.*UTF-8"):
        trees.read_conllu(path)


def spacy_stand_in(monkeypatch, part="NOUN"):
    """A module that parses each word as a child of the first one."""
    asked = []

    class Parser:
        def pipe(self, texts):
            for text in texts:
                words = [SimpleNamespace(i=i, pos_=part, dep_="dep" if i else "ROOT") for i in range(len(text.split()))]
                for word in words:
                    word.head = words[0]
                yield words

    def load(name):
        asked.append(name)
        if name == "missing":
            raise OSError("[E050] Can't find model")
        return Parser()

    module = ModuleType("spacy")
    module.load = load
    monkeypatch.setitem(sys.modules, "spacy", module)
    return asked


def test_spacy_trees(monkeypatch):
    asked = spacy_stand_in(monkeypatch)
    found = trees.parse_with_spacy("spacy", ["one two", "three four", "five"])
    assert found == ["NOUN<0:ROOT NOUN<1:dep"] * 2 + ["NOUN<0:ROOT"]
    trees.parse_with_spacy("spacy:other", ["one"])
    assert asked == ["en_core_web_sm", "other"]
    with pytest.raises(InputError, match=r"--trees spacy:missing: .*python -m spacy download missing"):
        trees.parse_with_spacy("spacy:missing", ["one"])
    spacy_stand_in(monkeypatch, part="")
    with pytest.raises(InputError, match="--trees spacy: en_core_web_sm "):
        trees.parse_with_spacy("spacy", ["one"])


def test_without_spacy_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError, match=r"--trees spacy .*pip install spacy.*python -m spacy download en_core_web_sm"):
        trees.parse_with_spacy("spacy", ["one"])
    assert [trees.is_spacy(name) for name in ("spacy", "spacy:x", "spacy.conllu", "a/spacy")] == [1, 1, 0, 0]
