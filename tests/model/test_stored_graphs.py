"""Folders that hold a graph of another program and no weights: optimum's, transformers.js', fastembed's."""

import pickle
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sentcli
from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.model.identity import cache_key
from sentcli.model.options import LoadOptions
from tests.model import folders
from tests.model.folders import TEXTS
from tests.tolerance import VECTORS

MODULES = ("mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean", "normalize-twice", "dense-GELU",
           "normalize-tokens", "dense-tokens", "mean+max")  # fmt: skip


def strip(source, folder, file="onnx/model.onnx", output="last_hidden_state", precision="fp32"):
    """Write what another program writes of a model: a graph with one output, and the folder without weights."""
    made = folder.parent / f"{folder.name}-export"
    sentcli.export(model=str(source), output=made, precision=precision, tokens=True, verify=False)
    shutil.copytree(source, folder)
    (folder / "model.safetensors").unlink()
    (folder / file).parent.mkdir(exist_ok=True)
    model = onnx.load(made / "model.onnx")
    kept = [value for value in model.graph.output if value.name in (output, "last_hidden_state")][-1:]
    if output == "sentence_embedding":
        kept = [value for value in model.graph.output if value.name == output]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    if output == "token_embeddings":
        model.graph.node.append(helper.make_node("Identity", ["last_hidden_state"], [output]))
        del model.graph.output[:]
        model.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", "tokens", 32]))
    onnx.save(model, folder / file)
    return folder


@pytest.mark.parametrize("modules", MODULES)
def test_the_graph_is_pooled_as_the_folder_says(modules, tmp_path):
    source = folders.make(tmp_path / "source", modules, ["short"])
    folder = strip(source, tmp_path / "foreign")
    encoder = SentenceEncoder.load(str(folder))
    assert encoder.backend.name == "onnx"
    wanted = SentenceEncoder.load(str(source), backend="torch", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(encoder.encode(TEXTS), wanted, atol=VECTORS)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(encoder)).encode(TEXTS), wanted, atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "output"),
    [("model.onnx", "last_hidden_state"), ("model_optimized.onnx", "last_hidden_state"),
     ("onnx/model.onnx", "token_embeddings"), ("onnx/model.onnx", "sentence_embedding")],
)  # fmt: skip
def test_other_names_of_files_and_outputs(file, output, tmp_path):
    source = folders.make(tmp_path / "source", "normalize")
    folder = strip(source, tmp_path / "foreign", file, output)
    for each in (source, folder):  # a setting of the whole model, of which no graph of others knows
        folders.SETTINGS["truncated"](each)
    wanted = SentenceEncoder.load(str(source), backend="torch", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(SentenceEncoder.load(str(folder)).encode(TEXTS), wanted, atol=VECTORS)


def test_a_prompt_is_left_out_of_the_pooling_where_the_folder_says_so(tmp_path):
    source = folders.make(tmp_path / "source", "mean")
    folder = strip(source, tmp_path / "foreign")
    for each in (source, folder):
        folders.edit(each, "1_Pooling/config.json", include_prompt=False)
    wanted = SentenceEncoder.load(str(source), backend="torch", device="cpu").encode(TEXTS, prompt="the cat ")
    np.testing.assert_allclose(SentenceEncoder.load(str(folder)).encode(TEXTS, prompt="the cat "), wanted, atol=VECTORS)


@pytest.mark.slow
def test_openvino_runs_such_a_graph(tmp_path):
    pytest.importorskip("openvino")
    source = folders.make(tmp_path / "source", "normalize")
    folder = strip(source, tmp_path / "foreign")
    wanted = SentenceEncoder.load(str(source), backend="torch", device="cpu").encode(TEXTS)
    vectors = SentenceEncoder.load(str(folder), backend="openvino", precision="fp32").encode(TEXTS)
    np.testing.assert_allclose(vectors, wanted, atol=1e-4)


def test_the_precision_is_told_from_the_operators_where_the_name_does_not_say_it(tmp_path):
    source = folders.make(tmp_path / "source", "mean")
    folder = strip(source, tmp_path / "foreign", "model_optimized.onnx", precision="int8")
    assert SentenceEncoder.load(str(folder)).backend.precision == "int8"
    with pytest.raises(InputError, match="model_optimized"):
        SentenceEncoder.load(str(folder), precision="fp32")


def test_a_folder_that_does_not_say_how_to_pool_asks_for_it(tmp_path, invoke):
    source = folders.make(tmp_path / "source", "mean")
    folder = strip(source, tmp_path / "foreign")
    shutil.rmtree(folder / "1_Pooling")
    (folder / "modules.json").unlink()
    with pytest.raises(InputError, match="--pooling"):
        SentenceEncoder.load(str(folder))
    wanted = SentenceEncoder.load(str(source), backend="torch", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(SentenceEncoder.load(str(folder), pooling="mean").encode(TEXTS), wanted, atol=VECTORS)
    (tmp_path / "in.txt").write_text("the cat\n")
    call = ["encode", tmp_path / "in.txt", "-o", tmp_path / "v.npy", "-m", folder]
    assert "--pooling" in invoke(*call, check=2).stderr
    invoke(*call, "--pooling", "mean", check=0)


def test_a_graph_that_lacks_what_a_module_reads_is_refused(tmp_path):
    source = folders.make(tmp_path / "source", "mean")
    folder = strip(source, tmp_path / "foreign")
    with pytest.raises(InputError, match="last layer"):
        SentenceEncoder.load(str(folder), pooling="first-last-avg")


@pytest.mark.slow
def test_graphs_of_a_folder_with_weights_are_left_alone(tmp_path):
    """Another program's graph beside weights may be of other weights: sentcli makes its own."""
    source = folders.make(tmp_path / "source", "mean")
    folder = strip(folders.make(tmp_path / "other", "max"), tmp_path / "foreign")
    shutil.copytree(folder / "onnx", source / "onnx")
    wanted = SentenceEncoder.load(str(source), backend="torch", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(SentenceEncoder.load(str(source), backend="onnx").encode(TEXTS), wanted, atol=VECTORS)


@pytest.mark.parametrize(("name", "said"), [("model.Q4_K_M.gguf", "gguf"), ("onnx/model_q4.onnx", "model_q4.onnx")])
def test_files_that_nothing_here_runs_are_named(name, said, tmp_path, invoke):
    folder = folders.make(tmp_path / "source", "mean")
    (folder / "model.safetensors").unlink()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"GGUF")
    (tmp_path / "in.txt").write_text("the cat\n")
    for model in (folder, folder / name):
        result = invoke("encode", tmp_path / "in.txt", "-o", tmp_path / "v.npy", "-m", model, check=2)
        assert said in result.stderr
        assert name.endswith("onnx") or "http://HOST/v1#NAME" in result.stderr


def test_a_head_that_is_left_out_is_said(tmp_path, invoke):
    folder = folders.make(tmp_path / "setfit", "mean")
    (folder / "model_head.pkl").write_bytes(b"whatever: it is not opened")
    (tmp_path / "in.txt").write_text("the cat\n")
    assert "model_head.pkl" in invoke("encode", tmp_path / "in.txt", "-o", tmp_path / "v.npy", "-m", folder).stderr


@pytest.fixture(scope="module")
def stripped(tmp_path_factory):
    """The folder of a model with a dense layer, which keeps its weights beside the graph."""
    folder = tmp_path_factory.mktemp("stripped")
    return strip(folders.make(folder / "source", "dense-GELU"), folder / "foreign")


def edited(stripped, folder, edit, **options):
    """A copy of the folder whose graph is changed."""
    shutil.copytree(stripped, folder)
    graph = folder / "onnx" / "model.onnx"
    model = onnx.load(graph)
    edit(model.graph)
    onnx.save(model, graph, **options)
    return folder


def doubled(graph):
    for tensor in graph.initializer:
        if len(tensor.dims) == 2:
            tensor.CopyFrom(onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(tensor), tensor.name))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["weights.bin", "model.onnx.data", "model.onnx_data"])
def test_weights_beside_a_graph_are_known_by_whatever_name(place, stripped, tmp_path):
    """The graphs of two models of one architecture are the same to the byte then."""
    apart = {"save_as_external_data": True, "location": place, "size_threshold": 100}  # shapes have to stay inside
    first = SentenceEncoder.load(str(edited(stripped, tmp_path / "first", lambda graph: None, **apart)))
    second = SentenceEncoder.load(str(edited(stripped, tmp_path / "second", doubled, **apart)))
    assert f"onnx/{place}" in first.local.backend.export.sha256
    before = first.fingerprint()
    assert before != second.fingerprint()
    assert first.provenance() != second.provenance()
    data = tmp_path / "first" / "onnx" / place
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    assert SentenceEncoder.load(str(tmp_path / "first")).fingerprint() != before


def test_each_graph_of_a_folder_counts_for_what_is_kept(stripped, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(stripped, folder)
    spec = SentenceEncoder.load(str(folder)).local.spec
    keys = {cache_key(spec, LoadOptions(device="cpu"))}
    for content in (b"DynamicQuantizeLinear", b"DynamicQuantizeLinear of other weights"):
        (folder / "onnx" / "model_quantized.onnx").write_bytes(content)
        keys.add(cache_key(spec, LoadOptions(device="cpu")))
    assert len(keys) == 3


def test_the_weights_of_modules_count(stripped, tmp_path):
    shutil.copytree(stripped, tmp_path / "other")
    folders.halve(tmp_path / "other" / "2_Dense" / "model.safetensors")
    one, other = (SentenceEncoder.load(str(folder)) for folder in (stripped, tmp_path / "other"))
    assert one.fingerprint() != other.fingerprint()


def test_another_pooling_of_a_graph_that_has_pooled_is_refused(tmp_path):
    folder = strip(folders.make(tmp_path / "source", "normalize"), tmp_path / "foreign", output="sentence_embedding")
    with pytest.raises(InputError, match="pooled already"):
        SentenceEncoder.load(str(folder), pooling="cls")
    SentenceEncoder.load(str(folder), pooling="mean")


def test_inputs_of_32_bits_are_given(stripped, tmp_path):
    def narrow(graph):
        for value in graph.input:
            value.type.tensor_type.elem_type = TensorProto.INT32
            for node in graph.node:
                node.input[:] = [f"{name}_wide" if name == value.name else name for name in node.input]
        casts = [helper.make_node("Cast", [v.name], [f"{v.name}_wide"], to=TensorProto.INT64) for v in graph.input]
        nodes = [*casts, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)

    wanted = SentenceEncoder.load(str(stripped)).encode(TEXTS)
    found = SentenceEncoder.load(str(edited(stripped, tmp_path / "narrow", narrow))).encode(TEXTS)
    np.testing.assert_array_equal(found, wanted)


def cached(graph):
    for name in ("past_key_values.0.key", "position_ids"):
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2, "past", 8]))
    for number in range(30):
        graph.node.append(helper.make_node("Identity", ["past_key_values.0.key"], [f"present.{number}.key"]))
        graph.output.append(helper.make_tensor_value_info(f"present.{number}.key", TensorProto.FLOAT, None))


def of_one_shape(graph):
    for value in graph.input:
        for axis, size in zip(value.type.tensor_type.shape.dim, (1, 16), strict=True):
            axis.dim_value = size


@pytest.mark.parametrize(
    ("edit", "said"),
    [(cached, "past_key_values.0.key, position_ids"), (of_one_shape, r"\[1, 16\]")],
)
def test_what_a_graph_asks_for_beside_tokens_is_named(edit, said, stripped, tmp_path):
    with pytest.raises(InputError, match=said):
        SentenceEncoder.load(str(edited(stripped, tmp_path / "edited", edit)))


def behind(graph, *nodes):
    """Put nodes behind the last one; the tensor that they begin with is named `/inner`."""
    for node in graph.node:
        node.output[:] = ["/inner" if name == "last_hidden_state" else name for name in node.output]
        node.input[:] = ["/inner" if name == "last_hidden_state" else name for name in node.input]
    graph.node.extend(nodes)


def padding_counts(graph):
    """Add to each token the mean of all, those of the padding included, as convolutions see them."""
    behind(
        graph,
        helper.make_node("ReduceMean", ["/inner", "integers_axis"], ["/mean"], keepdims=1),
        helper.make_node("Add", ["/inner", "/mean"], ["last_hidden_state"]),
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "integers_axis"))


def test_texts_are_not_padded_where_that_moves_their_vectors(stripped, tmp_path):
    folder = edited(stripped, tmp_path / "edited", padding_counts)
    encoder = SentenceEncoder.load(str(folder))
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, atol=VECTORS)
    pytest.importorskip("openvino")
    with pytest.raises(InputError, match="padding"):
        SentenceEncoder.load(str(folder), backend="openvino")


def test_openvino_finds_an_output_of_several_names(stripped, tmp_path):
    pytest.importorskip("openvino")
    same = helper.make_node("Identity", ["/inner"], ["last_hidden_state"])
    folder = edited(stripped, tmp_path / "edited", lambda graph: behind(graph, same))
    wanted = SentenceEncoder.load(str(stripped)).encode(TEXTS)
    found = SentenceEncoder.load(str(folder), backend="openvino").encode(TEXTS)
    np.testing.assert_allclose(found, wanted, atol=VECTORS)
