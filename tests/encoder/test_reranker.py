"""`Reranker` against sentence-transformers' CrossEncoder on the same folders."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli import SentenceEncoder
from sentcli.encoder.reranker import Reranker
from sentcli.errors import InputError, SentcliError
from sentcli.model.tokenizing import pair_text
from sentcli.onnx_export import verify
from tests.conftest import WORDS, save_cross_encoder
from tests.examples import examples
from tests.tolerance import VECTORS

PAIRS = [
    ("the cat sat", "a dog ran over the house"),
    ("a bird", "the fish swam " * 30),
    ("the old man sees a tree " * 20, "is it red"),
    ("green river " * 40, "blue house " * 40),
    ("", "a"),
    ("a", ""),
    ("", ""),
    ("Ünïcödé 漢字 🙂", "a\tb"),
]

OF_MEAN = {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True, "classifier_activation": "relu"}
"""The settings of ModernBERT's classifier that are not its usual ones."""


def peer(folder, pairs):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu").predict(pairs)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    return save_cross_encoder(tmp_path_factory.mktemp("cross") / "bert")


def with_json(folder, target, file, **values):
    """Copy a model folder with other values in one of its files."""
    shutil.copytree(folder, target)
    content = json.loads((target / file).read_text()) if (target / file).exists() else {}
    (target / file).write_text(json.dumps({**content, **values}))
    return target


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("backend", ["torch", "onnx", "openvino"])
@pytest.mark.parametrize(
    ("kind", "types", "settings"),
    [
        ("bert", True, {}), ("bert", False, {}), ("roberta", False, {}),
        ("deberta-v2", True, {}), ("deberta", False, {"pooler_hidden_act": "tanh"}),
        ("modernbert", False, {}), ("modernbert", False, OF_MEAN),
    ],
)  # fmt: skip
def test_scores_are_those_of_cross_encoder(kind, types, settings, backend, tmp_path):
    if backend == "openvino":
        pytest.importorskip("openvino", reason="the extra sentcli[openvino]")
    folder = save_cross_encoder(tmp_path / kind, kind, types=types, **settings)
    reranker = Reranker.load(folder, backend=backend)
    assert reranker.encoder.backend.name == backend
    scores = reranker.scores(PAIRS)
    assert (scores.dtype, scores.shape) == (np.float32, (len(PAIRS),))
    assert np.ptp(scores) > 0.01, "the pairs are told apart"
    pairs = [*PAIRS, ("un\0known", "the\0 cat")] if kind == "bert" else PAIRS
    np.testing.assert_allclose(reranker.scores(pairs), peer(folder, pairs), atol=1e-5)


@pytest.mark.slow
def test_a_folder_that_cross_encoder_wrote(cross_encoder, tmp_path):
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(cross_encoder), max_length=20, activation_fn=torch.nn.Identity())
    model.save_pretrained(str(tmp_path / "saved"))
    scores = Reranker.load(tmp_path / "saved").scores(PAIRS)
    np.testing.assert_allclose(scores, peer(tmp_path / "saved", PAIRS), atol=1e-5)
    own = Reranker.load(cross_encoder, max_length=20).scores(PAIRS)
    assert np.abs(own - Reranker.load(cross_encoder).scores(PAIRS)).max() > 1e-3
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), own, atol=1e-6)


IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("backend", ["torch", "onnx"])
@pytest.mark.parametrize(
    "values",
    [{"sentence_transformers": {"activation_fn": IDENTITY}}, {"sbert_ce_default_activation_function": IDENTITY}],
)
def test_the_activation_is_the_folders(cross_encoder, tmp_path, values, backend):
    folder = with_json(cross_encoder, tmp_path / "raw", "config.json", **values)
    scores = Reranker.load(folder, backend=backend).scores(PAIRS)
    np.testing.assert_allclose(scores, peer(folder, PAIRS), atol=1e-5)
    sigmoid = Reranker.load(cross_encoder).scores(PAIRS)
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), sigmoid, atol=1e-5)


words = st.lists(st.sampled_from(WORDS[:30]), max_size=25).map(" ".join)


@pytest.mark.slow
@examples(25)
@given(st.lists(st.tuples(words, words), min_size=1, max_size=12), st.integers(1, 200))
def test_a_score_depends_on_its_pair_alone(cross_encoder, pairs, budget):
    reranker = loaded(cross_encoder)
    alone = [reranker.scores([pair])[0] for pair in pairs]
    np.testing.assert_allclose(reranker.scores(pairs, batch_tokens=budget), alone, atol=VECTORS)
    tokens = reranker.encoder.tokenizer([pair_text(*pair) for pair in pairs])
    for (first, second), ids, types, excess_tokens in zip(
        pairs, tokens.ids, tokens.type_ids, tokens.excess_tokens, strict=True
    ):
        lengths = len(first.split()), len(second.split())
        kept = len(types) - sum(types) - 2, sum(types) - 1
        assert len(ids) == min(sum(lengths) + 3, 32)
        assert excess_tokens == sum(lengths) + 3 - len(ids)
        if excess_tokens:  # the longer one is cut first
            assert min(kept) >= min(*lengths, 14)


def loaded(folder, kept={}):  # noqa: B006
    """Load the model once for all examples of a property."""
    return kept.setdefault(folder, Reranker.load(folder) if folder not in kept else None) or kept[folder]


@pytest.mark.slow
def test_int8_orders_pairs_as_fp32_does_or_is_refused(cross_encoder, monkeypatch, tmp_path):
    from scipy.stats import spearmanr

    reranker = Reranker.load(cross_encoder, precision="int8")
    assert reranker.encoder.backend.precision == "int8"
    many = [(first, second) for first, _ in PAIRS for _, second in PAIRS]
    own, exact = reranker.scores(many), Reranker.load(cross_encoder, backend="torch").scores(many)
    assert np.abs(own - exact).max() > 0
    assert spearmanr(own, exact).statistic > 0.95
    monkeypatch.setitem(verify.TOLERANCES, "int8", verify.Tolerance(1.1, 1.1, 0))
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path))
    with pytest.raises(SentcliError, match="correlation"):
        Reranker.load(cross_encoder, precision="int8")


def test_what_is_no_cross_encoder_with_one_score(cross_encoder, tiny_bert, tmp_path):
    two = save_cross_encoder(tmp_path / "two", labels=2)
    cases = {
        "no classifier": tiny_bert,
        "2 scores": two,
        "a DistilBertForSequenceClassification": with_json(
            cross_encoder, tmp_path / "a", "config.json", architectures=["DistilBertForSequenceClassification"]
        ),
        "activation 'os.system'": with_json(
            cross_encoder, tmp_path / "b", "config.json", sentence_transformers={"activation_fn": "os.system"}
        ),
        "num_labels|id2label": with_json(cross_encoder, tmp_path / "c", "config.json", id2label=3),
        r"classifier\.dense\.weight": with_json(
            cross_encoder, tmp_path / "d", "config.json", architectures=["RobertaForSequenceClassification"]
        ),
        "activation 'mish'": save_cross_encoder(tmp_path / "e", "modernbert", classifier_activation="mish"),
        "no such|no model": tmp_path / "missing",
    }
    for message, folder in cases.items():
        with pytest.raises(InputError, match=message):
            Reranker.load(folder)
    with pytest.raises(InputError, match="at least 5"):
        Reranker.load(cross_encoder, max_length=4)


@pytest.mark.slow
def test_a_cross_encoder_makes_no_vectors(cross_encoder, tmp_path):
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(cross_encoder)).save_pretrained(str(tmp_path / "saved"))
    for folder in (cross_encoder, tmp_path / "saved"):
        with pytest.raises(InputError, match="--rerank"):
            SentenceEncoder.load(folder)
    assert SentenceEncoder.load(cross_encoder, pooling="mean").encode(["a cat"]).shape == (1, 32)
