"""Folders of model2vec are read by model2vec's rule, also those that sentcli saves."""

import json

import numpy as np
import pytest
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

from sentcli import SentenceEncoder

WORDS = ["[UNK]", "the", "cat", "dog", "sat", "on", "mat"]
TEXTS = ["the cat sat", "the zebra sat", "zebra", "", "the cat " * 700, "on the mat dog zebra dog"]


def make(folder, normalize=True, length=512, **parts):
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    table = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float32)
    StaticModel(table, tokenizer, normalize=normalize, max_length=length, **parts).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("length", [512, 3, None])
def test_vectors_are_those_of_model2vec(normalize, length, tmp_path):
    folder = make(tmp_path / "m2v", normalize, length)
    expected = StaticModel.from_pretrained(folder).encode(TEXTS)
    notes = []
    encoder = SentenceEncoder.load(folder, notice=notes.append)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
    assert any("model2vec" in note for note in notes)
    encoder.save(tmp_path / "saved")
    np.testing.assert_allclose(StaticModel.from_pretrained(tmp_path / "saved").encode(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(SentenceEncoder.load(tmp_path / "saved").encode(TEXTS), expected, atol=1e-6)


def test_a_folder_without_modules_is_read_as_well(tmp_path):
    folder = make(tmp_path / "m2v")
    (folder / "modules.json").unlink()
    expected = StaticModel.from_pretrained(folder).encode(TEXTS)
    np.testing.assert_allclose(SentenceEncoder.load(folder).encode(TEXTS), expected, atol=1e-6)


def test_its_settings_go_before_the_list_of_modules(tmp_path):
    folder = make(tmp_path / "m2v")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "normalize": False}))
    expected = StaticModel.from_pretrained(folder).encode(TEXTS)
    np.testing.assert_allclose(SentenceEncoder.load(folder).encode(TEXTS), expected, atol=1e-6)
