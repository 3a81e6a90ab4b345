"""What is kept of a model depends on nothing that ran before: keys hold whatever a vector depends on."""

from dataclasses import fields, replace

import numpy as np
import pytest

from sentcli import SentenceEncoder, machine
from sentcli.encoder.loading import read_model
from sentcli.model.identity import NOT_IN_DIGEST, cache_key, encoder_digest
from sentcli.model.options import LoadOptions, ModelOptions
from sentcli.model.spec import EncoderSpec
from sentcli.model.spec_files import read_spec
from tests.model import folders
from tests.model.folders import TEXTS, edit
from tests.tolerance import VECTORS

OTHERS = {
    "mean+max": lambda folder: None,
    "normalize": lambda folder: None,
    "config": lambda folder: edit(folder, "config.json", layer_norm_eps=0.1),
    "vocabulary": lambda folder: swap_words(folder / "tokenizer.json"),
}
"""Folders that differ from the plain one in their modules, their configuration and their tokenizer."""
ALTERED = (*folders.SETTINGS, *OTHERS)


def swap_words(path):
    """Exchange the ids of two words."""
    text = path.read_text("utf-8")
    path.write_text(text.replace('"cat"', '"?"').replace('"dog"', '"cat"').replace('"?"', '"dog"'), "utf-8")


def pair(tmp_path, name):
    """Two folders that differ in one thing."""
    modules = name if name in folders.STACKS else "mean"
    first = folders.make(tmp_path / "first")
    second = folders.make(tmp_path / "second", modules, [name] if name in folders.SETTINGS else [])
    if name in OTHERS:
        OTHERS[name](second)
    return first, second


def expected_of(folder):
    return SentenceEncoder.load(folder, backend="torch", device="cpu").encode(TEXTS)


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize(
    "name", ["short", "short-tokenizer", "lower-case", "left", "truncated", "config", "vocabulary"]
)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_export_in_the_cache_depends_on_nothing_that_ran_before(name, order, tmp_path, monkeypatch):
    """An export was named by its weights, and had the length of whichever folder of equal weights came first."""
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    two = pair(tmp_path, name)
    for number in order:
        found = SentenceEncoder.load(two[number], backend="onnx").encode(TEXTS)
        np.testing.assert_allclose(found, expected_of(two[number]), atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALTERED)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_every_option_in_every_order(name, order, tmp_path, monkeypatch):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    two = pair(tmp_path, name)
    for number in order:
        found = SentenceEncoder.load(two[number], backend="onnx").encode(TEXTS)
        np.testing.assert_allclose(found, expected_of(two[number]), atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALTERED)
def test_keys_of_kept_scores_and_fingerprints_differ_where_vectors_do(name, tmp_path):
    two = pair(tmp_path, name)
    specs = [read_model(str(folder), ModelOptions()) for folder in two]
    vectors = [expected_of(folder) for folder in two]
    same = vectors[0].shape == vectors[1].shape and np.array_equal(*vectors)
    if same:
        return
    assert encoder_digest(specs[0]) != encoder_digest(specs[1])
    options = LoadOptions(device="cpu")
    assert cache_key(specs[0], options) != cache_key(specs[1], options)
    prints = [SentenceEncoder.load(folder, backend="torch", device="cpu").fingerprint() for folder in two]
    if "prompt" not in name:  # a prompt is recorded beside the fingerprint
        assert prints[0] != prints[1]


def test_every_field_of_a_description_is_in_the_key_or_has_a_reason_not_to_be(tmp_path):
    spec = read_model(str(folders.make(tmp_path / "st")), ModelOptions())
    others = {"max_length": 7, "prompts": {"a": "b"}, "default_prompt": "a", "lowercase": True}
    others |= {"truncation_side": "left", "tokenizer_length": 9}
    assert {field.name for field in fields(EncoderSpec)} == {*others, *NOT_IN_DIGEST}
    for name, value in others.items():
        assert encoder_digest(replace(spec, **{name: value})) != encoder_digest(spec), name


@pytest.mark.slow
def test_a_directory_of_an_earlier_version_is_still_searched(tmp_path, invoke):
    """Its fingerprint did not know the configuration."""
    import json

    folder = folders.make(tmp_path / "st")
    (tmp_path / "a.txt").write_text("the cat\na dog\n")
    model = ("-m", folder, "--backend", "torch")
    invoke("encode", tmp_path / "a.txt", "-o", tmp_path / "v", *model, check=0)
    encoder = SentenceEncoder.load(folder, backend="torch", device="cpu")
    earlier = encoder.identity.earlier_fingerprint
    path = tmp_path / "v" / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["settings"]["model_fingerprint"] == encoder.fingerprint()
    manifest["settings"]["model_fingerprint"] = earlier
    path.write_text(json.dumps(manifest))
    invoke("retrieve", "--corpus", tmp_path / "v", *model, "--query", "cat", check=0)
    edit(folder, "tokenizer_config.json", truncation_side="left")
    assert "not this" in invoke("retrieve", "--corpus", tmp_path / "v", *model, "--query", "cat", check=2).stderr


def test_scores_of_int8_on_openvino_have_another_key_where_weights_have_7_bits(tiny_bert, monkeypatch):
    spec = read_spec(tiny_bert)
    options = LoadOptions(backend="openvino", precision="int8", device="cpu")
    keys = []
    for saturates in (False, True):
        monkeypatch.setattr(machine, "sums_saturate", lambda runtime, answer=saturates: answer)
        keys.append((cache_key(spec, options), cache_key(spec, LoadOptions(precision="int8", device="cpu"))))
    assert keys[0][0] != keys[1][0] and keys[0][1] == keys[1][1]
