"""The graphs that export writes and traces, against torch: every architecture, pooling and further module."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import sentcli
from sentcli import SentenceEncoder
from sentcli.model.modules import (
    TOKEN_POOLINGS,
    CNNSpec,
    DenseSpec,
    LayerMeanSpec,
    NormalizeSpec,
    PoolingSpec,
)
from sentcli.model.spec import POOLINGS
from sentcli.model.tokenizing import pad
from sentcli.onnx_export import tracing
from sentcli.onnx_export.publish import export_model
from tests.onnx_export.models import (
    TEXTS,
    TRACED,
    WRITTEN,
    assert_equal_vectors,
    cosines,
    export,
    load_edited,
    plain_vectors,
    run,
    save_model,
)

ACTIVATION = "torch.nn.modules.activation."


def batches(encoder):
    """Token ids of `TEXTS`: all padded to the longest, then the texts of each length by themselves."""
    tokens = encoder.tokenizer(TEXTS)
    lengths = tokens.lengths
    assert lengths.max() == encoder.tokenizer.max_length
    groups = [range(len(TEXTS)), *(np.flatnonzero(lengths == length) for length in sorted(set(lengths)))]
    return [pad(tokens, rows, encoder.tokenizer.pad_id) for rows in groups]


def assert_same_as_torch(encoder, folder):
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    for batch in batches(encoder):
        assert_equal_vectors(session.run(None, batch)[0], encoder.backend.run(batch, 0))


# Written from the weights


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "cls-head"])
@pytest.mark.parametrize("kind", WRITTEN)
def test_a_written_graph_equals_torch(model, tmp_path, kind, pooling):
    encoder = SentenceEncoder.load(model(kind), backend="torch", pooling=pooling, normalize=pooling == "mean")
    written = export(encoder, tmp_path / "out")
    assert written.export.graph == "written"
    assert_same_as_torch(encoder, tmp_path / "out")


@pytest.mark.slow
def test_a_trained_head_is_part_of_the_graph(model, tmp_path):
    encoder = SentenceEncoder.load(model("bert"), backend="torch", pooling="cls-head")
    assert export(encoder, tmp_path / "out").export.graph == "written"
    assert_same_as_torch(encoder, tmp_path / "out")
    assert np.abs(run(tmp_path / "out", batches(encoder)[0])).max() <= 1, "tanh of the head"


MODULES = {
    "dense-tanh-normalize": [PoolingSpec(("cls",)), DenseSpec(32, 8), NormalizeSpec()],
    "dense-without-bias": [PoolingSpec(("mean",)), DenseSpec(32, 8, bias=False, activation=f"{ACTIVATION}GELU")],
    "dense-twice": [PoolingSpec(("mean",)), DenseSpec(32, 16, activation=f"{ACTIVATION}ReLU"), DenseSpec(16, 40)],
    "dense-sigmoid": [PoolingSpec(("max",)), DenseSpec(32, 8, activation=f"{ACTIVATION}Sigmoid")],
    "dense-linear": [PoolingSpec(("mean",)), DenseSpec(32, 8, activation="torch.nn.modules.linear.Identity")],
    "cnn": [CNNSpec(32, 6, (1, 3, 5), (1, 1, 1)), PoolingSpec(("mean",))],
    "cnn-relu-max": [
        CNNSpec(32, 6, (1, 3), (1, 1)),
        DenseSpec(12, 12, activation=f"{ACTIVATION}ReLU", on_tokens=True),
        PoolingSpec(("max",)),
    ],
    "cnn-cls": [CNNSpec(32, 6, (3,), (1,)), PoolingSpec(("cls",))],
    "all-poolings": [PoolingSpec(TOKEN_POOLINGS), NormalizeSpec()],
    "all-layers": [LayerMeanSpec(0, (0.5, 0.0, 2.0)), PoolingSpec(("cls", "mean")), DenseSpec(64, 8)],
}


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_further_modules_are_part_of_the_graph(model, tmp_path, kind, name):
    encoder = load_edited(model(kind), *MODULES[name])
    written = export(encoder, tmp_path / "out")
    assert (written.export.graph, written.export.dimension) == ("written", encoder.dimension)
    assert_same_as_torch(encoder, tmp_path / "out")


@pytest.mark.slow
def test_other_activations_of_a_dense_module_are_traced(model, tmp_path):
    encoder = load_edited(model("bert"), PoolingSpec(("cls",)), DenseSpec(32, 8, activation=f"{ACTIVATION}SiLU"))
    assert export(encoder, tmp_path / "out").export.graph == "traced"
    assert_same_as_torch(encoder, tmp_path / "out")


@pytest.mark.parametrize("activation", ["relu", "gelu_new", "silu"])
def test_activations_of_the_transformer(tmp_path, activation):
    def choose(backbone):
        backbone.config.hidden_act = activation

    encoder = SentenceEncoder.load(save_model(tmp_path / "model", "bert", choose), backend="torch")
    assert export(encoder, tmp_path / "out").export.graph == "written"
    assert_same_as_torch(encoder, tmp_path / "out")


@pytest.mark.parametrize("normalize", [True, False])
def test_normalisation_is_in_the_graph_when_it_is_wanted(model, tmp_path, normalize):
    encoder = SentenceEncoder.load(model("bert"), backend="torch", normalize=normalize)
    export(encoder, tmp_path / "out")
    lengths = np.linalg.norm(run(tmp_path / "out", batches(encoder)[0]), axis=1)
    assert np.allclose(lengths, 1, atol=1e-6) == normalize


@pytest.mark.parametrize("shape", [(1, 1), (1, 32), (5, 1), (3, 17)])
@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet"])
def test_batch_and_length_are_free(model, tmp_path, kind, shape):
    encoder = SentenceEncoder.load(model(kind), backend="torch", pooling="cls")
    export(encoder, tmp_path / "out")
    ids = np.random.default_rng(0).integers(5, 40, shape)
    batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    assert_equal_vectors(run(tmp_path / "out", batch), encoder.backend.run(batch, 0))


def test_the_last_layer_of_a_cls_pooled_model_is_computed_for_position_0_alone(model, tmp_path):
    rows = {}
    for pooling in ("cls", "mean"):
        encoder = SentenceEncoder.load(model("bert"), backend="torch", pooling=pooling)
        export(encoder, tmp_path / pooling)
        graph = onnx.load(tmp_path / pooling / "model.onnx")
        wide = {each.name for each in graph.graph.initializer if list(each.dims) == [32, 64]}
        inner = [node.output[0] for node in graph.graph.node if wide.intersection(node.input)]
        graph.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in inner)
        session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        ids = np.full((3, 7), 9)
        rows[pooling] = [len(found) for found in session.run(inner, {"input_ids": ids, "attention_mask": ids * 0 + 1})]
    assert rows == {"cls": [21, 3], "mean": [21, 21]}


def test_inputs_and_output_have_the_names_of_the_contract(model, tmp_path):
    export(SentenceEncoder.load(model("bert"), backend="torch"), tmp_path / "out")
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    assert [each.name for each in graph.input] == ["input_ids", "attention_mask"]
    assert [each.name for each in graph.output] == ["sentence_embedding", "last_hidden_state"]
    onnx.checker.check_model(onnx.load(tmp_path / "out" / "model.onnx"))


def test_a_model_that_uses_token_types_gets_them(tmp_path):
    from tokenizers import Tokenizer, processors

    folder = save_model(tmp_path / "model", "bert")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A:1 [SEP]:1", special_tokens=ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]  # else transformers drops them
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    encoder = SentenceEncoder.load(folder, backend="torch")
    export(encoder, tmp_path / "out")
    assert_same_as_torch(encoder, tmp_path / "out")
    assert_equal_vectors(SentenceEncoder.load(tmp_path / "out", backend="onnx").encode(TEXTS), encoder.encode(TEXTS))
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]


# Traced


@pytest.fixture(scope="module")
def traced(model, tmp_path_factory):
    """The graphs that torch's exporter makes, traced once."""
    made = {}

    def path(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("traced") / f"{kind}.onnx"
            encoder = SentenceEncoder.load(model(kind), backend="torch")
            tracing.trace(encoder.torch_module, made[kind], token_types=False, tokens=True)
        return made[kind]

    return path


@pytest.fixture
def trace_once(traced, monkeypatch):
    """Let the export of a kind take the graph that is there."""

    def prepare(kind):
        graph = traced(kind)
        monkeypatch.setattr(tracing, "trace", lambda encoder, path, **_: shutil.copyfile(graph, path))

    return prepare


@pytest.mark.parametrize("kind", [TRACED[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in TRACED[1:])])
def test_a_traced_graph_equals_torch(model, trace_once, tmp_path, kind):
    trace_once(kind)
    encoder = SentenceEncoder.load(model(kind), backend="torch")
    written = export_model(encoder.on_torch().loaded, tmp_path / "out")
    assert written.export.graph in ("traced", "traced and fused")
    names = [str(Path(library.__file__).parent).encode() for library in (sentcli, torch)]
    content = (tmp_path / "out" / "model.onnx").read_bytes()
    assert not [name for name in names if name in content]  # where the lines of the code stand on this machine
    assert_same_as_torch(encoder, tmp_path / "out")


# Compression precisions

LIMITS = {"fp16": (0.999, 0.9999), "int8": (0.9, 0.99)}


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("kind", [*WRITTEN, *TRACED])
def test_smaller_precisions_keep_their_tolerance(model, trace_once, tmp_path, kind, precision):
    if kind in TRACED:
        trace_once(kind)
    encoder = SentenceEncoder.load(model(kind), backend="torch")
    wanted = encoder.encode(TEXTS)
    export(encoder, tmp_path / "out", precision)
    weights = onnx.load(tmp_path / "out" / "model.onnx").graph.initializer
    narrow = {"fp16": onnx.TensorProto.FLOAT16, "int8": onnx.TensorProto.INT8}[precision]
    layers = 6 if kind != "modernbert" else 4  # a layer's matrices; ALBERT has one set for all layers
    assert sum(each.data_type == narrow and len(each.dims) == 2 for each in weights) >= layers
    found = cosines(plain_vectors(tmp_path / "out", TEXTS), wanted)
    assert found.min() >= LIMITS[precision][0]
    assert found.mean() >= LIMITS[precision][1]


@pytest.mark.slow
@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("name", ["cnn", "dense-tanh-normalize", "all-poolings", "all-layers"])
def test_smaller_precisions_of_encoders_with_further_modules(model, tmp_path, name, precision):
    encoder = load_edited(model("bert"), *MODULES[name])
    export(encoder, tmp_path / "out", precision)
    found = cosines(plain_vectors(tmp_path / "out", TEXTS), encoder.encode(TEXTS))
    assert found.min() >= LIMITS[precision][0]
    assert found.mean() >= LIMITS[precision][1]


def test_auto_exports_the_architectures_that_are_written():
    from sentcli.encoder.loading import QUICK_ARCHITECTURES
    from sentcli.onnx_export.transformer import GRAPH_FAMILIES

    assert set(QUICK_ARCHITECTURES) == set(GRAPH_FAMILIES)
