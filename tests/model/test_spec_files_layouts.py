"""Older checkpoint layouts of the SimCSE family, hub ids from the cache, and folders that are broken."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sentcli import SentenceEncoder, hub_fetch, zoo
from sentcli.errors import InputError
from tests.conftest import make_backbone, save_backbone
from tests.tolerance import VECTORS


@pytest.fixture
def folder(tiny_bert, tmp_path):
    return Path(shutil.copytree(tiny_bert, tmp_path / "model"))


@pytest.fixture(scope="module")
def expected(tiny_bert):
    return SentenceEncoder.load(tiny_bert, pooling="cls").encode(["the cat sat", "a dog"])


def as_simcse_output(folder, prefix="bert", head="mlp.dense", extra=None):
    """Rewrite a folder as SimCSE's training leaves it: a .bin with prefixed keys and the head beside them."""
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    state = {
        f"{prefix}.{key}" if prefix else key: value for key, value in state.items() if not key.startswith("pooler")
    }
    torch.manual_seed(1)
    weight, bias = torch.randn(32, 32), torch.randn(32)
    state |= {f"{head}.weight": weight, f"{head}.bias": bias, **(extra or {})}
    torch.save(state, folder / "pytorch_model.bin")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForCL"]
    (folder / "config.json").write_text(json.dumps(config))
    return weight, bias


@pytest.mark.slow
def test_simcse_training_output(folder, expected):
    extra = {"lm_head.bias": torch.zeros(3), "bert.embeddings.position_ids": torch.arange(40)[None]}
    weight, bias = as_simcse_output(folder, extra=extra)
    np.testing.assert_allclose(
        SentenceEncoder.load(folder, pooling="cls").encode(["the cat sat", "a dog"]), expected, atol=VECTORS
    )
    head = SentenceEncoder.load(folder, pooling="cls-head").encode(["the cat sat", "a dog"])
    np.testing.assert_allclose(head, np.tanh(expected @ weight.numpy().T + bias.numpy()), atol=VECTORS)


def test_converted_simcse_checkpoint_keeps_its_head_in_the_pooler(folder, expected):
    weight, bias = as_simcse_output(folder, prefix="", head="pooler.dense")
    head = SentenceEncoder.load(folder, pooling="cls-head").encode(["the cat sat", "a dog"])
    np.testing.assert_allclose(head, np.tanh(expected @ weight.numpy().T + bias.numpy()), atol=VECTORS)


@pytest.mark.slow
def test_without_a_head_training_keeps_the_pooler_of_its_start(invoke, tiny_bert, text, tmp_path):
    """What InforMin-CL's README scores: the pretrained pooler over the trained [CLS]."""
    from sentcli.io.weights import load_state_dict

    call = ("train", "--method", "informin-cl", "--set", "head=none", "--max-steps", 3, "--batch-size", 8)
    invoke(*call, "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", check=0)
    start, trained = load_state_dict(tiny_bert), load_state_dict(tmp_path / "m")
    weight, bias = (start[f"pooler.dense.{name}"] for name in ("weight", "bias"))
    assert torch.equal(trained["pooler.dense.weight"], weight)
    word = "embeddings.word_embeddings.weight"
    assert not torch.equal(trained[word], start[word])
    raw, pooled = (
        SentenceEncoder.load(tmp_path / "m", pooling=pooling, normalize=False).encode(["the cat sat", "a dog"])
        for pooling in ("cls", "cls-head")
    )
    np.testing.assert_allclose(pooled, np.tanh(raw @ weight.numpy().T + bias.numpy()), atol=VECTORS)


def test_infocse_training_output(folder, expected):
    """Frozen copy, projection with batch norm and auxiliary layers stand beside the encoder and are left out."""
    extra = {
        "mlm.bert.embeddings.word_embeddings.weight": torch.zeros(4, 32),
        "mlp.net.0.weight": torch.zeros(64, 32),
        "c_head.0.attention.self.query.weight": torch.zeros(32, 32),
        "lm_head.decoder.weight": torch.zeros(4, 32),
    }
    as_simcse_output(folder, head="mlp.dense", extra=extra)
    np.testing.assert_allclose(
        SentenceEncoder.load(folder, pooling="cls").encode(["the cat sat", "a dog"]), expected, atol=VECTORS
    )


def test_published_heads_with_batch_norm(folder, expected):
    """As InfoCSE's and DiffCSE's training writes them, under ``mlp.net``."""
    from sentcli.methods.heads import BatchNormLayers

    torch.manual_seed(0)
    head = BatchNormLayers(32)
    head(torch.randn(2, 50, 32) * 3 + 1)  # running statistics other than those of the start
    as_simcse_output(folder, head="other", extra={f"mlp.{name}": value for name, value in head.state_dict().items()})
    encoder = SentenceEncoder.load(folder, pooling="cls-head")
    with torch.no_grad():
        wanted = head.eval()(torch.tensor(expected)[None])[0].numpy()
    np.testing.assert_allclose(encoder.encode(["the cat sat", "a dog"]), wanted, atol=VECTORS)


def test_roberta_prefix_and_head(tmp_path):
    folder = save_backbone(tmp_path / "roberta", kind="roberta")
    before = SentenceEncoder.load(folder, pooling="cls").encode(["the cat"])
    as_simcse_output(folder, prefix="roberta")
    np.testing.assert_allclose(SentenceEncoder.load(folder, pooling="cls").encode(["the cat"]), before, atol=VECTORS)


def test_sharded_weights_and_vocab_txt(tiny_bert, expected, tmp_path):
    model, tokenizer = make_backbone()
    model.save_pretrained(tmp_path / "m", max_shard_size="20KB")
    vocab = tokenizer.get_vocab()
    (tmp_path / "m" / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.get)) + "\n")
    assert len(list((tmp_path / "m").glob("model-*.safetensors"))) > 1
    np.testing.assert_allclose(
        SentenceEncoder.load(tmp_path / "m", pooling="cls").encode(["the cat sat", "a dog"]), expected, atol=VECTORS
    )


@pytest.mark.slow
def test_saved_head_is_a_dense_module(folder, tmp_path):
    as_simcse_output(folder)
    encoder = SentenceEncoder.load(folder, pooling="cls-head")
    encoder.save(tmp_path / "saved")
    again = SentenceEncoder.load(tmp_path / "saved")
    np.testing.assert_allclose(again.encode(["the cat"]), encoder.encode(["the cat"]), atol=VECTORS)


class Payload:
    def __reduce__(self):
        return (print, ("this would be any code",))


def test_a_checkpoint_that_holds_more_than_tensors_is_refused(folder, capsys):
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as handle:
        pickle.dump({"weight": Payload()}, handle)
    with pytest.raises(InputError, match=r"model/pytorch_model\.bin"):
        SentenceEncoder.load(folder)
    torch.save({"weight": torch.zeros(2), "code": Payload()}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"model/pytorch_model\.bin"):
        SentenceEncoder.load(folder)
    assert "any code" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors.*pytorch_model\.bin"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x10" * 50), r"model\.safetensors"),
        (
            lambda f: (f / "tokenizer.json").unlink() or [p.unlink() for p in f.glob("vocab*")],
            r"tokenizer\.json.*vocab",
        ),
        (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer.*line 1"),
        (lambda f: (f / "config.json").write_text("{"), r"config\.json.*line 1"),
        (lambda f: (f / "config.json").write_text('{"model_type": "unheard-of"}'), r"config\.json.*`unheard-of`"),
        (lambda f: (f / "modules.json").write_text("{}"), "modules.json: .*list"),
        (
            lambda f: (f / "modules.json").write_text(
                '[{"type": "sentence_transformers.models.Transformer", "path": ""}]'
            ),
            r"modules\.json.*Pool",
        ),
        (
            lambda f: (f / "modules.json").write_text('[{"type": "custom_code.Transformer", "path": ""}]'),
            r"custom_code\.Transformer",
        ),
    ],
)
def test_broken_folders(folder, damage, message):
    damage(folder)
    with pytest.raises(InputError, match=message):
        SentenceEncoder.load(folder)


def test_weights_of_another_size_or_incomplete(folder):
    state = load_file(folder / "model.safetensors")
    smaller = dict(state, **{"embeddings.word_embeddings.weight": torch.zeros(5, 32)})
    save_file(smaller, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"config\.json"):
        SentenceEncoder.load(folder)
    save_file({key: value for key, value in state.items() if "layer.1.output" not in key}, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"4 .*encoder\.layer\.1\.output"):
        SentenceEncoder.load(folder)


def test_dense_activation_outside_torch_is_refused(tiny_bert, tmp_path):
    SentenceEncoder.load(tiny_bert).save(tmp_path / "m")
    modules = json.loads((tmp_path / "m" / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (tmp_path / "m" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "m" / "2_Dense").mkdir()
    dense = {"in_features": 32, "out_features": 4, "bias": True, "activation_function": "os.getcwd"}
    (tmp_path / "m" / "2_Dense" / "config.json").write_text(json.dumps(dense))
    save_file(
        {"linear.weight": torch.zeros(4, 32), "linear.bias": torch.zeros(4)},
        tmp_path / "m" / "2_Dense" / "model.safetensors",
    )
    with pytest.raises(InputError, match=r"'os\.getcwd'.*torch\.nn"):
        SentenceEncoder.load(tmp_path / "m")


def cached_on_hub(cache, repository, folder):
    """Lay a folder out as the hub's cache does."""
    root = cache / f"models--{repository.replace('/', '--')}"
    shutil.copytree(folder, root / "snapshots" / "0123456789abcdef0123456789abcdef01234567")
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0123456789abcdef0123456789abcdef01234567")


def test_hub_id_from_the_cache_offline(tmp_path, tiny_bert):
    """Known checkpoints get the pooling of their authors; another id is said to pool by default."""
    (tmp_path / "a.txt").write_text("the cat\n")
    known = "princeton-nlp/unsup-simcse-bert-base-uncased"
    for repository in (known, "someone/something"):
        cached_on_hub(tmp_path / "hub", repository, tiny_bert)
    models = [known, "unsup-simcse-bert-base", "someone/something", "someone/else"]
    program = """
import json, sys
from typer.testing import CliRunner
from sentcli.cli.app import app
done = [CliRunner().invoke(app, ["encode", sys.argv[1], "-o", "-", "-m", model, "-v"]) for model in sys.argv[2:]]
print(json.dumps([[result.exit_code, result.stderr] for result in done]))
"""  # one process, since the folder of the hub's cache is read when it starts
    env = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", program, tmp_path / "a.txt", *models]
    done = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    assert [code for code, _ in done] == [0, 0, 0, 1]
    assert all("pooling cls" in said for _, said in done[:2])
    assert "does not say how it pools" in done[2][1]
    assert "hub cannot be reached" in done[3][1]


def test_every_zoo_entry_is_complete():
    from sentcli.model.spec import POOLINGS

    entries = zoo.zoo()
    assert {"minilm", "unsup-simcse-bert-base", "infocse-bert-base", "micse-bert-base", "whitenedcse-bert-base"} <= set(
        entries
    )
    for entry in entries.values():
        assert entry.pooling in POOLINGS
        assert entry.source.count("/") == 1
        assert entry.licence
    assert len({entry.source for entry in entries.values()}) == len(entries)


@pytest.mark.slow
def test_the_model_that_comes_with_sentcli(monkeypatch):
    """It needs neither hub nor package, and its words are transformers' words."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    monkeypatch.setattr(hub_fetch, "fetch", lambda *_: pytest.fail("the hub was asked"))
    encoder = SentenceEncoder.load("sentcli-bert-mini")
    assert (encoder.spec.pooling, encoder.dimension) == ("cls", 256)
    folder = zoo.resolve("sentcli-bert-mini")[0]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert model.dtype == torch.float32
    text = "He sat down on the [MASK] and read a book."
    with torch.no_grad():
        given = tokenizer(text, return_tensors="pt")
        output = model(**given, output_hidden_states=True)
    place = given["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    assert {"floor", "table"} <= set(tokenizer.convert_ids_to_tokens(output.logits[0, place].topk(20).indices))
    np.testing.assert_allclose(encoder.encode([text])[0], output.hidden_states[-1][0, 0], atol=1e-4)


def test_no_network_for_a_local_folder(run, tmp_path, tiny_bert):
    """A local folder opens with every socket blocked."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\n"
        "def refuse(*a, **k):\n    raise AssertionError('the network was opened')\n"
        "socket.socket.connect = refuse\nsocket.getaddrinfo = refuse\n"
    )
    (tmp_path / "a.txt").write_text("the cat\n")
    env = {"PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    run("encode", tmp_path / "a.txt", "-o", tmp_path / "a.npy", "-m", tiny_bert, env=env, check=0)
    assert np.load(tmp_path / "a.npy").shape == (1, 32)


def test_another_mean_over_layers_keeps_its_weights_and_its_name(tiny_bert, tmp_path):
    encoder = SentenceEncoder.load(tiny_bert, pooling="first-last-avg")
    encoder.save(tmp_path / "m")
    weights = tmp_path / "m" / "1_WeightedLayerPooling" / "model.safetensors"
    save_file({"layer_weights": torch.ones(3)}, weights)
    other = SentenceEncoder.load(tmp_path / "m")
    assert other.spec.pooling == "layers/mean"
    published = SentenceEncoder.load(tmp_path / "m", pooling="first-last-avg").encode(["the cat"])
    np.testing.assert_allclose(published, encoder.encode(["the cat"]), atol=VECTORS)
    assert np.abs(other.encode(["the cat"]) - published).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1_Pooling/config.json", "[]"),
        ("sentence_bert_config.json", "[]"),
        ("config.json", "[]"),
        ("config.json", '{"model_type": "bert", "hidden_size": 30}'),
    ],
)
def test_damaged_configurations_are_bad_input(tiny_bert, tmp_path, name, content):
    SentenceEncoder.load(tiny_bert).save(tmp_path / "m")
    (tmp_path / "m" / name).write_text(content)
    with pytest.raises(InputError):
        SentenceEncoder.load(tmp_path / "m")


def test_a_folder_with_a_pinned_name_is_checked_too(tiny_bert, tmp_path, monkeypatch):
    shutil.copytree(tiny_bert, tmp_path / "minilm")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="SHA-256"):
        SentenceEncoder.load("minilm")
    assert SentenceEncoder.load("./minilm").dimension == 32


@pytest.mark.parametrize("odd", [("a", "b"), b"bytes", None, 3])
def test_only_strings_are_encoded(tiny_bert, odd):
    with pytest.raises(TypeError, match="encode takes strings"):
        SentenceEncoder.load(tiny_bert).encode(["the cat", odd])
