"""Weights as older releases saved them, or not all that a pooling needs: loaded, or refused by their names."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.io.weights import load_state_dict, tensor_names
from tests.conftest import save_backbone

TEXTS = ["the cat sat", "a bird flew over the river"]
NUMBERS = torch.arange(40)[None]


def load(folder, **options):
    return SentenceEncoder.load(folder, backend="torch", device="cpu", **options)


def rewrite(folder, change):
    """Change the weights of a folder by a function of their dict."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)
    return folder


@pytest.fixture
def folder(tmp_path):
    return save_backbone(tmp_path / "bert")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "embeddings.position_ids",
        "embeddings.token_type_ids",
        "bert.embeddings.position_ids",
        "encoder.layer.0.attention.self.position_ids",
    ],
)
def test_tensors_that_number_positions_are_left_out(folder, name):
    expected = load(folder).encode(TEXTS)
    prefix = "bert." if name.startswith("bert.") else ""
    rewrite(folder, lambda state: {**{f"{prefix}{key}": value for key, value in state.items()}, name: NUMBERS})
    said = []
    encoder = SentenceEncoder.load(folder, backend="torch", device="cpu", notice=said.append)
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected)
    assert not [line for line in said if "ids" in line]


def test_any_other_tensor_of_a_layer_is_refused(folder):
    rewrite(folder, lambda state: {**state, "embeddings.positions": NUMBERS})
    with pytest.raises(InputError, match=r"1 tensor \(embeddings\.positions\) is in its weights"):
        load(folder)


def test_a_vocabulary_of_another_size_is_named(folder):
    config = json.loads((folder / "config.json").read_text())
    rows = config["vocab_size"]
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows + 5}))
    with pytest.raises(InputError, match=rf"word_embeddings\.weight.*\[{rows}, 32\].*\[{rows + 5}, 32\].*vocab_size"):
        load(folder)


def test_a_pooler_that_the_weights_lack_is_not_made_up(folder, tmp_path):
    """It would be random, be saved with the rest, and be taken for a trained one by --pooling cls-head."""
    rewrite(folder, lambda state: {key: value for key, value in state.items() if "pooler" not in key})
    with pytest.raises(InputError, match="no trained head"):
        load(folder, pooling="cls-head")
    load(folder).save(tmp_path / "saved")
    assert not [name for name in tensor_names(tmp_path / "saved") if "pooler" in name]
    with pytest.raises(InputError, match="no trained head"):
        load(tmp_path / "saved", pooling="cls-head")


def test_half_a_pooler_is_refused(folder):
    rewrite(folder, lambda state: {key: value for key, value in state.items() if key != "pooler.dense.bias"})
    with pytest.raises(InputError, match=r"pooler\.dense\.bias is missing"):
        load(folder, pooling="cls-head")


def test_training_begins_from_weights_without_a_pooler(folder, tmp_path, invoke, text):
    rewrite(folder, lambda state: {key: value for key, value in state.items() if "pooler" not in key})
    call = ("train", "--method", "simcse", "--max-steps", 1, "--batch-size", 4, "--data", text)
    invoke(*call, "-m", folder, "-o", tmp_path / "trained", check=0)
    assert not [name for name in load_state_dict(tmp_path / "trained") if "pooler" in name]
    head = load(tmp_path / "trained", pooling="cls-head").encode(TEXTS)
    assert np.abs(head).max() <= 1  # the head that was trained ends with tanh
