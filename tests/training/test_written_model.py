"""What a run has written is opened and compared before it counts: every family with some of its layers."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sentcli import SentenceEncoder
from sentcli.training import run_folder
from tests.conftest import save_cross_encoder
from tests.model import folders
from tests.tolerance import VECTORS

LAYERS = {"first kept": "0,3", "first dropped": "1,3", "last dropped": "1,2", "one alone": "2"}
REFUSED = {
    "modernbert": {"first dropped", "last dropped", "one alone"},
    **{kind: set(LAYERS) for kind in ("albert", "t5", "mt5", "umt5", "gpt2", "bart", "embedding_gemma2_text")},
}
"""The layers that a family cannot be left with: its first one is built otherwise, or they cannot be taken apart."""


def train(invoke, model, text, out, *options, method="simcse", check=0):
    return invoke(
        "train", "--method", method, "-m", model, "--data", text, "-o", out, "--max-steps", 1, "--batch-size", 8,
        *options, check=check,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("kind", folders.FAMILIES)
def test_a_model_of_some_layers_opens_or_is_refused_before_training(invoke, text, tmp_path, kind, layers):
    model = folders.plain(kind, layers=4)
    is_refused = layers in REFUSED.get(kind, ())
    options = ["--layers", LAYERS[layers], "--set", "dropout=0.1", "--pooling", "mean"]
    done = train(invoke, model, text, tmp_path / "m", *options, check=2 if is_refused else 0)
    if is_refused:
        assert "layers" in done.stderr
        assert not (tmp_path / "m").exists()
        return
    from sentence_transformers import SentenceTransformer

    texts = ["the cat sat on a mat", "a dog"]
    expected = SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(texts, batch_size=1)
    found = SentenceEncoder.load(tmp_path / "m", backend="torch").encode(texts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=VECTORS * max(1, np.abs(expected).max()))


def other_weights(folder):
    path = folder / "model.safetensors"
    state = load_file(path)
    name = "encoder.layer.1.output.dense.weight"
    save_file({**state, name: state[name] + 0.1 * torch.rand(state[name].shape)}, path, metadata={"format": "pt"})


def other_pooling(folder):
    path = folder / "1_Pooling" / "config.json"
    config = json.loads(path.read_text())
    for key in config:
        if key.startswith("pooling_mode"):
            config[key] = key == "pooling_mode_max_tokens"
    path.write_text(json.dumps(config))


def other_length(folder):
    folders.edit(folder, "sentence_bert_config.json", max_seq_length=9)


def no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


DAMAGES = [
    (other_weights, "encoder.layer.1.output.dense.weight"), (other_pooling, "pooling is 'max'"),
    (other_length, "length is 9"), (no_tokenizer, "tokenizer"),
]  # fmt: skip


@pytest.fixture
def damaged(monkeypatch):
    """Let runs write a folder in which something is wrong, until the end of the block or of the test."""
    write = run_folder.write_model_files

    def with_damage(damage):
        def write_damaged(model, folder):
            write(model, folder)
            damage(folder)

        monkeypatch.setattr(run_folder, "write_model_files", write_damaged)

    yield with_damage
    monkeypatch.undo()


@pytest.mark.parametrize(("damage", "named"), DAMAGES)
def test_a_folder_with_another_model_is_no_model(invoke, tiny_bert, text, tmp_path, damaged, damage, named):
    damaged(damage)
    done = train(invoke, tiny_bert, text, tmp_path / "m", check=1)
    assert named in done.stderr
    assert not (tmp_path / "m" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_run_that_is_killed_before_the_comparison_is_no_model(invoke, tiny_bert, text, tmp_path):
    """The folder looked finished, and `--resume` took it, although nothing had compared its weights."""
    out = tmp_path / "m"
    kill = (
        "import os; from sentcli.cli.app import app; from sentcli.training import run_folder; "
        "run_folder.check_written_model = lambda *given: os._exit(9); app()"
    )
    call = ["train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", out, "--max-steps", "1"]
    call += ["--batch-size", "8", "--save-every", "1"]
    assert subprocess.run([sys.executable, "-c", kill, *map(str, call)], check=False).returncode == 9
    assert not (out / "model.safetensors").exists()
    invoke(*call, check=2)  # it is there, and not finished
    invoke(*call, "--resume", check=0)
    assert SentenceEncoder.load(out, backend="torch").dimension
    assert not list(out.glob(".*"))


def test_an_older_model_stays_and_the_run_can_be_finished(invoke, tiny_bert, text, tmp_path, damaged, monkeypatch):
    train(invoke, tiny_bert, text, tmp_path / "m")
    before = (tmp_path / "m" / "model.safetensors").read_bytes()
    damaged(other_weights)
    train(invoke, tiny_bert, text, tmp_path / "m", "--overwrite", "--seed", 5, check=1)
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before
    monkeypatch.undo()
    train(invoke, tiny_bert, text, tmp_path / "m", "--overwrite", "--resume", "--seed", 5)
    assert (tmp_path / "m" / "model.safetensors").read_bytes() != before


@pytest.mark.parametrize("method", ["whitening", "cross-encoder", "prompt-bert", "is-bert"])
def test_the_models_of_all_kinds_of_methods_are_compared(invoke, tiny_bert, text, tmp_path, damaged, method):
    model = tiny_bert
    data = text
    options = ["--max-steps", 1, "--batch-size", 8]
    if method == "cross-encoder":
        model = save_cross_encoder(tmp_path / "cross")
        data = tmp_path / "pairs.csv"
        data.write_text("sentence1,sentence2,score\n" + "the cat,a dog,3\nthe bird,a fish,1\n" * 8)
    if method == "whitening":
        options = []
    damaged(no_tokenizer)
    call = ["train", "--method", method, "-m", model, "--data", data, "-o", tmp_path / "m", *options]
    assert "tokenizer" in invoke(*call, check=1).stderr
