"""What names a model is what it was in earlier versions, whose manifests, exports and results keep it."""

from dataclasses import dataclass

import pytest

from sentcli.encoder.loading import read_model
from sentcli.model.identity import EncoderIdentity, ModelSource, encoder_digest, model_digest
from sentcli.model.options import ModelOptions
from sentcli.model.tokenizing import fit, read_tokenizer
from tests.model import fixed_folders


@dataclass(frozen=True)
class Kept:
    """The first twelve digits of what version 1 of the manifests, exports and caches keeps of a model."""

    graph: str
    folder: str
    source: str
    fingerprint: str
    earlier: str
    weights: str | None
    revision: str | None = None


def weights(folder):
    fixed_folders.write_model(folder)


def export(folder):
    fixed_folders.write_settings(folder)
    fixed_folders.write_export(folder, source_config="4" * 64, revision="5" * 40)


def export_of_an_earlier_version(folder):
    fixed_folders.write_settings(folder)
    fixed_folders.write_export(folder)


def export_beside_its_weights(folder):
    fixed_folders.write_model(folder)
    digest = model_digest(read_model(str(folder), ModelOptions()))
    fixed_folders.write_export(folder, "onnx/model.onnx", model_digest=digest, source_config="4" * 64)


def export_beside_other_weights(folder):
    fixed_folders.write_model(folder)
    fixed_folders.write_export(folder, "onnx/model.onnx")


def graph_of_another_program(folder):
    fixed_folders.write_settings(folder)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"a graph")


KEPT = {
    weights: Kept("7440356a650d", "866cea86c43e", "866cea86c43e", "340116634bf9", "ab8b209c2eeb", "82d77b93c78e"),
    export: Kept(
        "a8e6fe02d662", "e64e76a6fc6a", "10f283916cb5", "8cae4b3ade4b", "7769abace38d", "ca9034371c79", "5" * 40
    ),
    export_of_an_earlier_version: Kept(
        "a8e6fe02d662", "e64e76a6fc6a", "10f283916cb5", "9a044ffbeec8", "7769abace38d", "ca9034371c79"
    ),
    export_beside_its_weights: Kept(
        "7440356a650d", "866cea86c43e", "10f283916cb5", "8cae4b3ade4b", "7769abace38d", "ca9034371c79"
    ),
    export_beside_other_weights: Kept(
        "7440356a650d", "866cea86c43e", "866cea86c43e", "340116634bf9", "ab8b209c2eeb", "82d77b93c78e"
    ),
    graph_of_another_program: Kept(
        "a8e6fe02d662", "e64e76a6fc6a", "78f0d3d2374c", "e953539489e6", "c311395962fd", "170df6144b15"
    ),
    fixed_folders.write_settings: Kept(
        "a8e6fe02d662", "e64e76a6fc6a", "e64e76a6fc6a", "2814786299a8", "f5f0394acc39", None
    ),
}


@pytest.mark.parametrize("write", KEPT, ids=lambda write: write.__name__)
def test_what_names_a_model_is_what_earlier_versions_kept(write, tmp_path):
    kept = KEPT[write]
    write(tmp_path)
    spec = read_model(str(tmp_path), ModelOptions())
    source = ModelSource.of(spec)
    identity = EncoderIdentity.of(spec, fit(read_tokenizer(tmp_path), spec, 0, None))
    assert model_digest(spec)[:12] == kept.graph
    assert encoder_digest(spec)[:12] == kept.folder
    assert encoder_digest(spec, source)[:12] == kept.source
    assert identity.fingerprint[:12] == kept.fingerprint
    assert identity.is_named(identity.fingerprint)
    assert identity.earlier_fingerprint[:12] == kept.earlier
    assert identity.is_named(identity.earlier_fingerprint)
    assert not identity.is_named("0" * 64)
    assert identity.provenance.get("weights", "")[:12] == (kept.weights or "")
    assert identity.provenance.get("revision") == kept.revision
