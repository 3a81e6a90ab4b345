"""Folders of model2vec are read by model2vec's rule, also those that sentcli saves."""

import json

import numpy as np
import pytest
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

from sentcli import SentenceEncoder
from tests.tolerance import VECTORS

WORDS = ["[UNK]", "the", "cat", "dog", "sat", "on", "mat"]
TEXTS = ["the cat sat", "the zebra sat", "zebra", "", "the cat " * 700, "on the mat dog zebra dog"]


def make(folder, normalize=True, length=512, **parts):
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    table = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float32)
    StaticModel(table, tokenizer, normalize=normalize, max_length=length, **parts).save_pretrained(folder)
    return folder


def of_peer(folder):
    """Return model2vec's vectors from a table in float64: in float32 its sum of 384 tokens is wrong by 4e-6."""
    model = StaticModel.from_pretrained(folder)
    model.embedding = model.embedding.astype(np.float64)
    return model.encode(TEXTS)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("length", [512, 3, None])
def test_vectors_are_those_of_model2vec(normalize, length, tmp_path):
    folder = make(tmp_path / "m2v", normalize, length)
    expected = of_peer(folder)
    notes = []
    encoder = SentenceEncoder.load(folder, notice=notes.append)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=VECTORS)
    assert any("model2vec" in note for note in notes)
    encoder.save(tmp_path / "saved")
    np.testing.assert_allclose(of_peer(tmp_path / "saved"), expected, atol=VECTORS)
    np.testing.assert_allclose(SentenceEncoder.load(tmp_path / "saved").encode(TEXTS), expected, atol=VECTORS)


def test_a_folder_without_modules_is_read_as_well(tmp_path):
    folder = make(tmp_path / "m2v")
    (folder / "modules.json").unlink()
    expected = of_peer(folder)
    np.testing.assert_allclose(SentenceEncoder.load(folder).encode(TEXTS), expected, atol=VECTORS)


def test_its_settings_go_before_the_list_of_modules(tmp_path):
    folder = make(tmp_path / "m2v")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "normalize": False}))
    expected = of_peer(folder)
    np.testing.assert_allclose(SentenceEncoder.load(folder).encode(TEXTS), expected, atol=VECTORS)
