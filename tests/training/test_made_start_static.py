"""A static student: the folder gives the same vectors in three packages, and what it is made of is refused or read."""

import json

import numpy as np
import pytest

from sentcli import SentenceEncoder
from tests.conftest import save_backbone
from tests.model import folders
from tests.tolerance import VECTORS
from tests.training.test_teachers import refused, teacher, terms, train  # noqa: F401 - fixtures

TEXTS = ["the cat sat on a mat", "The Red house", "a dog. a dog, a bird!", "one tree " * 40, "the"]


def static(train, name, *options, **more):  # noqa: F811
    return train("static", "--teacher", name, *options, model=None, **more)


@pytest.mark.slow
def test_the_folder_opens_in_three_packages(train, teacher, tmp_path):  # noqa: F811
    from sentence_transformers import SentenceTransformer

    model2vec = pytest.importorskip("model2vec")
    static(train, teacher)
    encoder = SentenceEncoder.load(tmp_path / "m")
    vectors = encoder.encode(TEXTS)
    assert encoder.backend.name == "numpy"
    theirs = SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, theirs, atol=VECTORS)
    peer = model2vec.StaticModel.from_pretrained(tmp_path / "m")
    np.testing.assert_allclose(vectors, peer.encode(TEXTS), atol=VECTORS)
    np.testing.assert_allclose(
        SentenceEncoder.load(tmp_path / "m", backend="torch").encode(TEXTS), vectors, atol=VECTORS
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["roberta", "word-level", "unigram"])
def test_other_tokenizers(train, tmp_path, kind):  # noqa: F811
    from sentence_transformers import SentenceTransformer

    if kind == "roberta":
        name = save_backbone(tmp_path / "teacher", kind="roberta")
    elif kind == "unigram":
        name = unigram_teacher(tmp_path / "teacher")
    else:
        name = folders.make(tmp_path / "teacher")
    static(train, name)
    theirs = SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(SentenceEncoder.load(tmp_path / "m").encode(TEXTS), theirs, atol=VECTORS)


def unigram_teacher(folder):
    """A tiny BERT with a tokenizer as SentencePiece makes them."""
    import transformers as t
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from tests.conftest import WORDS

    words = [word for word in WORDS if word.isalpha()]
    letters = sorted({letter for word in words for letter in word})
    pieces = [*("\u2581" + word for word in words), "\u2581", *letters]
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    scored = [(piece, -float(number)) for number, piece in enumerate([*specials, *pieces])]
    backend = Tokenizer(models.Unigram(scored, unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>", "sep": "</s>"}
    tokenizer = t.PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=32, **{f"{name}_token": token for name, token in names.items()}
    )
    config = t.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=40, pad_token_id=1, initializer_range=0.2,
    )  # fmt: skip
    t.BertModel(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_settings_of_the_table(train, teacher, tmp_path):  # noqa: F811
    static(train, teacher, "--set", "start.dimensions=16", "--set", "start.words=0")
    assert SentenceEncoder.load(tmp_path / "m").encode(["the cat"]).shape == (1, 16)
    assert "dimensions" in static(train, teacher, "--set", "start.dimensions=99", output="n", check=2).stderr


def test_a_static_model_is_trained_further_and_teaches_no_static_one(train, teacher, tmp_path):  # noqa: F811
    static(train, teacher, output="first")
    train("static", "--teacher", teacher, model=tmp_path / "first", output="second")
    first, second = (terms(tmp_path / name) for name in ("first", "second"))
    assert second[0]["loss"] < first[0]["loss"]
    assert "static" in static(train, tmp_path / "first", output="third", check=2).stderr
    train("distill", "--teacher", tmp_path / "first", output="fourth")


def test_what_a_static_model_is_not_made_of(train, invoke, teacher, tiny_bert, text, tmp_path):  # noqa: F811
    assert "--teacher" in refused(train, tmp_path, "static", model=None)
    assert "start" in refused(train, tmp_path, "static", "--teacher", teacher, model=tiny_bert)
    invoke("encode", text, "-m", teacher, "-o", tmp_path / "v.parquet", check=0)
    assert "encoder" in refused(train, tmp_path, "static", "--teacher", tmp_path / "v.parquet", model=None)
    lowering = folders.make(tmp_path / "lower", settings=["lower-case"])
    assert "lower" in refused(train, tmp_path, "static", "--teacher", lowering, model=None)


def test_what_retrieval_loses_is_said(train, invoke, teacher, dev, tmp_path):  # noqa: F811
    """The score of the teacher on the dev set is told, and kept; the card says what a static model does not know."""
    result = static(train, teacher, "--eval-data", dev, "--json", tmp_path / "r.json")
    found = json.loads((tmp_path / "r.json").read_text())["results"]["teacher_dev"]
    scored = invoke(
        "evaluate", dev / "STS" / "STSBenchmark" / "sts-dev.csv", "-m", teacher, "--json", tmp_path / "e.json", check=0
    )
    assert f"{found:.2f}" in result.stderr and f"{found:.2f}" in scored.stdout
    assert f"{found:.2f}" in (tmp_path / "m" / "README.md").read_text()
