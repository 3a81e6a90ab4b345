"""A module of one's own: one class, and no file of the package knows it."""

import json
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.methods.method_file import load_method_file
from sentcli.model.modules import MODULES, ModuleSpec, NormalizeSpec, PoolingSpec
from sentcli.onnx_export.publish import export_model
from tests.onnx_export.models import TEXTS, cosines, plain_vectors, save_model


@dataclass(frozen=True)
class AttentionPooling(ModuleSpec, name="AttentionPooling"):
    """Mean over the tokens, weighted by the softmax of a learned score."""

    temperature: float = 1.0

    pools = True

    def parts(self, width, layers):
        return {"score": nn.Linear(width, 1)}

    def forward(self, features, parts):
        scores = parts.score(features.tokens).squeeze(-1) / self.temperature
        weights = scores.masked_fill(features.mask == 0, -torch.inf).softmax(dim=1)
        features.sentence = torch.einsum("btd,bt->bd", features.tokens, weights)

    def write_onnx(self, graph, states, value, name, parts):
        scores = graph.op("MatMul", value, graph.weight(f"{name}.weight", parts.score.weight.T))
        scores = graph.op("Add", scores, graph.weight(f"{name}.bias", parts.score.bias))
        scores = graph.op("Div", scores, graph.number(self.temperature))
        real = graph.op("Unsqueeze", graph.op("Equal", states.mask, graph.integer(1)), graph.integers(2))
        weights = graph.op("Softmax", graph.op("Where", real, scores, graph.number(-1e9)), axis=1)
        return graph.op("ReduceSum", graph.op("Mul", value, weights), graph.integers(1), keepdims=0)


@dataclass(frozen=True)
class Halves(ModuleSpec, name="Halves"):
    """The sum of the two halves of a sentence vector: no weights, and no ONNX of its own."""

    def output_width(self, width):
        return width // 2

    def forward(self, features, parts):
        features.sentence = features.sentence.unflatten(-1, (2, -1)).sum(dim=1)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("own") / "start", "bert")


def load(folder, *modules):
    torch.manual_seed(3)
    return SentenceEncoder.load(folder, edit=lambda spec: replace(spec, modules=modules))


OWN = {
    "pooling": (AttentionPooling(0.25), NormalizeSpec()),
    "pooling-traced": (PoolingSpec(("mean",)), Halves(), NormalizeSpec()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pooling", pytest.param("pooling-traced", marks=pytest.mark.deep)])
def test_it_is_saved_and_loaded_on_torch_and_from_the_export_beside_it(start, tmp_path, name):
    encoder = load(start, *OWN[name])
    expected = encoder.encode(TEXTS)
    encoder.save(tmp_path / "saved")
    for backend in ("torch", "onnx", "auto"):
        again = SentenceEncoder.load(tmp_path / "saved", backend=backend)
        assert again.spec.pooling == encoder.spec.pooling
        assert again.dimension == encoder.dimension == expected.shape[1]
        assert cosines(again.encode(TEXTS), expected).min() >= 0.99999
    assert cosines(plain_vectors(tmp_path / "saved", TEXTS), expected).min() >= 0.99999


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_it_is_exported(start, tmp_path, precision):
    encoder = load(start, *OWN["pooling"])
    written = export_model(encoder.loaded, tmp_path / "out", precision)
    assert written.export.graph == "written"
    least = 0.99999 if precision == "fp32" else 0.9
    assert cosines(plain_vectors(tmp_path / "out", TEXTS), encoder.encode(TEXTS)).min() >= least


@pytest.mark.slow
def test_its_weights_count_and_another_pooling_takes_its_place(start):
    encoder = load(start, *OWN["pooling"])
    assert encoder.spec.pooling == "AttentionPooling"
    means = SentenceEncoder.load(start, pooling="mean", normalize=True).encode(TEXTS)
    assert cosines(encoder.encode(TEXTS), means).min() < 0.9999
    assert encoder.spec.with_pooling("mean").modules == (PoolingSpec(), NormalizeSpec())


@pytest.mark.slow
def test_the_folder_names_it_as_no_module_of_sentence_transformers(start, tmp_path):
    load(start, *OWN["pooling"]).save(tmp_path / "saved")
    entries = json.loads((tmp_path / "saved" / "modules.json").read_text())
    assert [entry["type"] for entry in entries][1:] == [
        "sentcli.AttentionPooling",
        "sentence_transformers.models.Normalize",
    ]
    assert json.loads((tmp_path / "saved" / "1_AttentionPooling" / "config.json").read_text()) == {"temperature": 0.25}


@pytest.mark.slow
def test_it_is_trained_and_the_run_folder_has_the_export(start, tmp_path, invoke, text):
    load(start, *OWN["pooling"]).save(tmp_path / "start")
    run = ("train", "--method", "simcse", "-m", tmp_path / "start", "--pooling", "own", "--data", text)
    run = (*run, "-o", tmp_path / "out", "--batch-size", 8, "--max-steps", 2, "--learning-rate", 1e-2)
    invoke(*run, check=0)
    trained = SentenceEncoder.load(tmp_path / "out", backend="torch")
    score = [encoder.torch_module.stack[0].score.weight for encoder in (load(start, *OWN["pooling"]), trained)]
    assert not torch.equal(*score), "the pooling is trained with the rest"
    assert cosines(plain_vectors(tmp_path / "out", TEXTS), trained.encode(TEXTS)).min() >= 0.99999
    invoke(*run, "--resume", check=0)
    invoke(*run, "--overwrite", check=0)
    assert (tmp_path / "out" / "model.onnx").exists()


def test_a_folder_with_a_module_whose_class_is_missing_says_so(start, tmp_path, monkeypatch):
    load(start, *OWN["pooling"]).save(tmp_path / "saved")
    monkeypatch.delitem(MODULES, "sentcli.AttentionPooling")
    with pytest.raises(InputError, match=r"sentcli\.AttentionPooling.*import"):
        SentenceEncoder.load(tmp_path / "saved")


def test_a_method_file_brings_a_module_and_takes_it_back_when_it_is_read_again(tmp_path):
    source = """
from sentcli.methods.method import Method
from sentcli.model.modules import ModuleSpec
from sentcli.objectives import Contrastive
class Brought(ModuleSpec, name="Brought"): pass
METHOD = Method(name="brought", title="t", objectives={"contrastive": Contrastive()})
"""
    (tmp_path / "own.py").write_text(source)
    for _ in range(2):
        load_method_file(tmp_path / "own.py")
    assert MODULES.pop("sentcli.Brought").name == "Brought"


def test_a_name_stands_for_one_module():
    with pytest.raises(InputError, match="Halves already"):

        class Other(ModuleSpec, name="Halves"):
            pass
