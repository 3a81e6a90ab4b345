"""Adapters of peft are applied, beside their base model or alone, or refused with what is missing."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from sentcli import SentenceEncoder
from sentcli.errors import InputError, MissingExtraError
from tests.model import folders
from tests.model.folders import TEXTS
from tests.tolerance import VECTORS


def lora(target=("query", "value")):
    from peft import LoraConfig

    return LoraConfig(r=4, lora_alpha=16, target_modules=list(target), task_type="FEATURE_EXTRACTION")


def randomise(module):
    """Give the second matrices of an adapter, which begin with zeros, other values."""
    torch.manual_seed(3)
    for name, parameter in module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)


@pytest.fixture
def base(tmp_path):
    return folders.make(tmp_path / "base", "normalize")


@pytest.fixture
def adapted(base, tmp_path):
    """The folder that sentence-transformers saves of a model with an adapter, and the vectors of that model."""
    peer = SentenceTransformer(str(base), device="cpu")
    peer.add_adapter(lora())
    randomise(peer)
    expected = peer.encode(TEXTS, batch_size=1)
    peer.save(str(tmp_path / "adapter"))
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    folders.edit(tmp_path / "adapter", "adapter_config.json", **{**settings, "base_model_name_or_path": str(base)})
    return tmp_path / "adapter", expected


@pytest.mark.slow
def test_an_adapter_alone_is_applied_to_the_base_that_it_names(adapted, tmp_path):
    folder, expected = adapted
    assert not (folder / "model.safetensors").exists()
    encoder = SentenceEncoder.load(folder, backend="torch", device="cpu")
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=VECTORS)
    encoder.save(tmp_path / "merged")
    theirs = SentenceTransformer(str(tmp_path / "merged"), device="cpu").encode(TEXTS, batch_size=1)
    np.testing.assert_allclose(theirs, expected, atol=VECTORS)


@pytest.mark.slow
def test_an_adapter_beside_weights_is_applied_and_part_of_every_key(adapted, base):
    folder, expected = adapted
    before = SentenceEncoder.load(base, backend="torch", device="cpu")
    plain = before.encode(TEXTS)
    for path in folder.glob("adapter*"):
        shutil.copy(path, base / path.name)
    encoder = SentenceEncoder.load(base, backend="torch", device="cpu")
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=VECTORS)
    assert np.abs(plain - expected).max() > 0.01
    assert encoder.fingerprint() != before.fingerprint()
    np.testing.assert_allclose(SentenceEncoder.load(base, backend="onnx").encode(TEXTS), expected, atol=VECTORS)


def test_a_base_that_is_not_there_is_named(adapted):
    folder, _ = adapted
    folders.edit(folder, "adapter_config.json", base_model_name_or_path="/nowhere/base")
    with pytest.raises(InputError, match=r"adapter \(LORA\).*/nowhere/base"):
        SentenceEncoder.load(folder)


@pytest.mark.slow
def test_without_peft_the_extra_is_named(adapted, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"sentcli\[lora\]"):
        SentenceEncoder.load(adapted[0], backend="torch", device="cpu")


def test_weights_of_an_adapter_that_are_missing_are_named(adapted):
    folder, _ = adapted
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(InputError, match="adapter_model"):
        SentenceEncoder.load(folder)


@pytest.mark.slow
def test_an_adapter_of_another_model_is_refused(adapted, tmp_path):
    folder, _ = adapted
    other = folders.make(tmp_path / "other", kind="distilbert")
    folders.edit(folder, "adapter_config.json", base_model_name_or_path=str(other))
    with pytest.raises(InputError, match=r"adapter.*other"):
        SentenceEncoder.load(folder, backend="torch", device="cpu")
