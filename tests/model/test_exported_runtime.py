"""An export is compared with its model when a version of a runtime opens it for the first time."""

import json
import re
import shutil
import sys

import numpy as np
import pytest

import sentcli
from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.model import exported
from sentcli.model.exported import Probes, WrongRuntimeError
from sentcli.model.onnx_backend import OnnxBackend
from tests.tolerance import VECTORS

pytest.importorskip("onnxruntime", reason="exports come with the extra sentcli[cpu]")

TEXTS = ["the cat sat", "a small red fish swam under the old tree near the big blue house"]


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_bert):
    """Exports with [CLS] pooling by their precision."""
    folder = tmp_path_factory.mktemp("exports")
    for precision in ("fp32", "int8"):
        options = {"precision": precision, "pooling": "cls", "verify": False, "quiet": True}
        sentcli.export(model=tiny_bert, output=folder / precision, **options)
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of the export in fp32, and a cache in which nothing has been compared."""
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    shutil.copytree(made / "fp32", tmp_path / "export")
    return tmp_path / "export"


def version(monkeypatch, name):
    monkeypatch.setattr(sys.modules["onnxruntime"], "__version__", name)


@pytest.fixture
def wrong(monkeypatch):
    """A runtime that reads the padding of shorter texts, as onnxruntime 1.20 does; it counts its batches."""
    batches = []

    def run(self, batch, prompt_length):
        batches.append(len(batch["input_ids"]))
        return right(self, {**batch, "attention_mask": np.ones_like(batch["attention_mask"])}, prompt_length)

    right = OnnxBackend.run
    monkeypatch.setattr(OnnxBackend, "run", run)
    version(monkeypatch, "1.20.1")
    return batches


@pytest.mark.slow
def test_an_export_holds_texts_of_several_lengths_with_the_vectors_of_the_model(made, tiny_bert):
    probes = exported.read_export(made / "fp32").probes
    lengths = [len(row) for row in probes.ids]
    assert lengths == sorted(set(lengths)) and len(lengths) > 2
    model = SentenceEncoder.load(tiny_bert, backend="torch", device="cpu", pooling="cls")
    longest = np.array([probes.ids[-1]])
    batch = {"input_ids": longest, "attention_mask": np.ones_like(longest)}
    np.testing.assert_allclose(probes.expected[-1:], model.backend.run(batch, 0), atol=VECTORS)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_right_runtime_passes(made, precision, monkeypatch, tmp_path):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path))
    SentenceEncoder.load(made / precision, backend="onnx", device="cpu")
    (kept,) = (tmp_path / "runtimes").iterdir()
    assert float(kept.read_text()) < exported.RUNTIME_TOLERANCES[precision]


def test_a_wrong_runtime_is_refused_where_it_was_asked_for(folder, wrong):
    with pytest.raises(WrongRuntimeError, match=rf"onnxruntime 1\.20\.1 .*{folder}.*--backend torch"):
        SentenceEncoder.load(folder, backend="onnx", device="cpu")


def test_auto_goes_to_torch_and_says_why(folder, wrong):
    said = []
    encoder = SentenceEncoder.load(folder, device="cpu", notice=said.append)
    assert encoder.backend.name == "torch"
    assert [line for line in said if re.match(r"running on torch: onnxruntime 1\.20\.1", line)]


def test_auto_refuses_where_there_are_no_weights_for_torch(folder, wrong):
    (folder / "model.safetensors").unlink()
    with pytest.raises(WrongRuntimeError):
        SentenceEncoder.load(folder, device="cpu")


def test_texts_that_run_alone_are_compared_alone(made, wrong, tmp_path, monkeypatch):
    """int8 on onnxruntime: what would be wrong in padded batches does not matter."""
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path))
    SentenceEncoder.load(made / "int8", backend="onnx", device="cpu")
    assert wrong == [1] * len(exported.read_export(made / "int8").probes.ids)


def test_a_version_is_compared_once(folder, wrong, monkeypatch):
    for _ in range(2):
        with pytest.raises(WrongRuntimeError):
            SentenceEncoder.load(folder, backend="onnx", device="cpu")
    assert len(wrong) == 1
    version(monkeypatch, "1.20.2")
    with pytest.raises(WrongRuntimeError):
        SentenceEncoder.load(folder, backend="onnx", device="cpu")
    assert len(wrong) == 2


def test_another_export_is_compared_anew(folder, wrong):
    for change in (lambda probes: probes, lambda probes: {**probes, "ids": probes["ids"][::-1]}):
        path = folder / "export.json"
        facts = json.loads(path.read_text())
        path.write_text(json.dumps({**facts, "probes": change(facts["probes"])}))
        with pytest.raises(WrongRuntimeError):
            SentenceEncoder.load(folder, backend="onnx", device="cpu")
    assert len(wrong) == 2


def test_an_export_of_an_earlier_version_is_taken_as_it_is(folder, wrong):
    path = folder / "export.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "probes": None}))
    assert SentenceEncoder.load(folder, device="cpu").backend.name == "onnx"
    assert wrong == []


def test_without_a_cache_it_is_compared_each_time(folder, monkeypatch):
    monkeypatch.setenv("SENTCLI_CACHE", str(folder / "model.onnx" / "cache"))
    backend = OnnxBackend(folder, exported.read_export(folder))
    counted = []
    monkeypatch.setattr(Probes, "distance", lambda *args: counted.append(1) or 0.0)
    export = exported.read_export(folder)
    for _ in range(2):
        exported.check_runtime(folder, export.sha256, export.probes, export.pad_id, backend)
    assert len(counted) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": "no base64!"},
        {"vectors": "AAAA"},
        {"vectors": ""},
        {"ids": []},
        {"ids": [[]]},
        {"ids": [[-1]]},
        {"ids": "text"},
    ],
    ids=str,
)
def test_damaged_probes_name_the_file(folder, change):
    path = folder / "export.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "probes": {**facts["probes"], **change}}))
    with pytest.raises(InputError, match=r"export\.json.*export the model again"):
        SentenceEncoder.load(folder, device="cpu")


@pytest.mark.slow
def test_openvino_is_compared_too(folder, monkeypatch):
    pytest.importorskip("openvino", reason="OpenVINO comes with the extra sentcli[openvino]")
    monkeypatch.setattr(Probes, "distance", lambda *args: 0.5)
    with pytest.raises(WrongRuntimeError, match=r"openvino [0-9.]+"):
        SentenceEncoder.load(folder, backend="openvino", device="cpu")
