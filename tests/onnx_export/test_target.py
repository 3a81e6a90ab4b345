"""The hub's layout: graphs in a model's folder under the names by which other programs look for them."""

import json
import shutil

import numpy as np
import onnxruntime
import pytest

import sentcli
from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.model.exported import exports_in
from tests.model import folders
from tests.model.folders import TEXTS
from tests.tolerance import VECTORS


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def outputs_of(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [output.name for output in session.get_outputs()]


def export(model, folder, **options):
    return sentcli.export(model=str(model), output=folder, layout="hub", **options).to_dict()["results"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return folders.make(tmp_path_factory.mktemp("hub") / "source", "normalize", ["lower-case"])


@pytest.fixture(scope="module")
def several(source, tmp_path_factory):
    """A folder with three graphs, each added by a run of its own."""
    folder = tmp_path_factory.mktemp("hub") / "several"
    export(source, folder)
    export(source, folder, precision="fp16")
    export(source, folder, precision="int8")
    return folder


@pytest.mark.slow
def test_each_run_adds_a_graph_and_weights_are_there_once(several):
    files = files_in(several)
    assert {"onnx/model.onnx", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx", "model.safetensors"} <= files
    assert {"modules.json", "1_Pooling/config.json", "tokenizer.json", "special_tokens_map.json", "README.md"} <= files
    assert not {"model.onnx", "export.json"} & files
    card = (several / "README.md").read_text()
    assert card.count("onnx/model_quantized.onnx") == 1 and card.count("least cosine") == 3


@pytest.mark.slow
def test_the_graph_is_chosen_by_precision(several, source):
    wanted = SentenceEncoder.load(str(source), backend="torch").encode(TEXTS)
    assert [export.precision for export in exports_in(several)] == ["fp32", "fp16", "int8"]
    exact = SentenceEncoder.load(str(several), backend="onnx")
    assert exact.backend.precision == "fp32"
    np.testing.assert_allclose(exact.encode(TEXTS), wanted, atol=VECTORS)
    quantised = SentenceEncoder.load(str(several), backend="onnx", precision="int8")
    assert quantised.local.backend.folder == several  # and not one of the cache
    assert 1e-5 < np.abs(quantised.encode(TEXTS) - wanted).max() < 0.5


@pytest.mark.slow
def test_a_graph_in_fewer_bits_does_not_change_what_auto_takes(source, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    export(folder, folder, precision="int8")
    assert SentenceEncoder.load(str(folder)).backend.precision == "fp32"
    assert SentenceEncoder.load(str(folder), backend="onnx").backend.precision == "fp32"


def test_a_folder_without_torch_weights_runs_what_is_there(source, tmp_path):
    export(source, tmp_path / "out", precision="int8", torch_weights=False)
    assert SentenceEncoder.load(str(tmp_path / "out")).backend.precision == "int8"
    with pytest.raises(InputError, match=r"model_quantized\.onnx"):
        SentenceEncoder.load(str(tmp_path / "out"), precision="fp32")
    export(source, tmp_path / "out")  # knows its model by the weights that the first one was made from
    assert SentenceEncoder.load(str(tmp_path / "out")).backend.precision == "fp32"


def test_a_trained_folder_keeps_what_it_holds(source, tmp_path):
    folder = tmp_path / "trained"
    shutil.copytree(source, folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n\n# Mine\n\nTrained on my texts.\n")
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    before = {name: (folder / name).read_bytes() for name in files_in(folder) if "token" not in name}
    vectors = SentenceEncoder.load(str(folder), backend="torch").encode(TEXTS)
    export(folder, folder)
    after = {name: (folder / name).read_bytes() for name in before}
    card = after.pop("README.md").decode()
    assert after == {name: content for name, content in before.items() if name != "README.md"}
    assert card.startswith("---\nlicense: mit\n---\n\n# Mine\n\nTrained on my texts.\n") and "onnx/model.onnx" in card
    np.testing.assert_array_equal(SentenceEncoder.load(str(folder), backend="torch").encode(TEXTS), vectors)
    with pytest.raises(InputError, match="exists"):
        export(folder, folder)
    export(folder, folder, overwrite=True)
    assert (folder / "README.md").read_text() == card
    assert set(before) <= files_in(folder)


@pytest.mark.slow
def test_a_folder_of_another_model_is_refused(several, tmp_path):
    other = folders.make(tmp_path / "other", "max")
    with pytest.raises(InputError, match="another model"):
        export(other, several, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    with pytest.raises(InputError, match=r"letter\.txt"):
        export(other, tmp_path / "mine", overwrite=True)


@pytest.mark.slow
def test_an_interrupted_run_leaves_the_folder_as_it_was(several, source, monkeypatch):
    from sentcli.onnx_export import publish

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    before = files_in(several)
    monkeypatch.setattr(publish, "write_card", full)
    with pytest.raises(Exception, match=r"[Nn]o space|full"):
        export(source, several, overwrite=True)
    assert files_in(several) == before
    assert exports_in(several)
    assert not [path for path in several.parent.iterdir() if path.name.startswith(".")]


def test_a_changed_graph_is_found(several, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(several, folder)
    graph = folder / "onnx" / "model_quantized.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="SHA-256"):
        SentenceEncoder.load(str(folder), backend="onnx", precision="int8")
    SentenceEncoder.load(str(folder), backend="onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pooling", "options", "outputs"),
    [
        ("mean", {}, ["sentence_embedding", "last_hidden_state"]),
        ("mean", {"tokens": False}, ["sentence_embedding"]),
        ("cls", {}, ["sentence_embedding"]),
        ("cls", {"tokens": True}, ["sentence_embedding", "last_hidden_state"]),
        ("lasttoken", {}, ["sentence_embedding"]),
    ],
)
def test_token_vectors_are_given_where_they_cost_nothing(pooling, options, outputs, tmp_path):
    folder = folders.make(tmp_path / "st", pooling)
    sentcli.export(model=str(folder), output=tmp_path / "out", verify=False, **options)
    assert outputs_of(tmp_path / "out" / "model.onnx") == outputs


@pytest.mark.slow
def test_token_vectors_are_those_before_pooling_dense_and_normalize(tmp_path):
    import torch
    import transformers

    folder = folders.make(tmp_path / "st", "normalize-twice")
    sentcli.export(model=str(folder), output=tmp_path / "out")
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"])
    ids = np.array([[2, 7, 9, 3], [2, 8, 3, 0]], np.int64)
    mask = (ids != 0).astype(np.int64)
    _, tokens = session.run(None, {"input_ids": ids, "attention_mask": mask})
    backbone = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        wanted = backbone(torch.tensor(ids), attention_mask=torch.tensor(mask)).last_hidden_state.numpy()
    np.testing.assert_allclose(tokens[mask == 1], wanted[mask == 1], atol=VECTORS)


@pytest.mark.slow
def test_every_file_states_the_same_length(tmp_path):
    """MiniLM's own files say 128 and 256, and programs read any of them."""
    sentcli.export(model="minilm", output=tmp_path / "out", layout="hub", verify=False)
    names = ("tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json")
    tokenizer, config, settings = (json.loads((tmp_path / "out" / name).read_text()) for name in names)
    stated = {tokenizer["truncation"]["max_length"], config["max_length"], config["model_max_length"]}
    assert stated | {settings["max_seq_length"]} == {256}
    assert tokenizer["padding"]["strategy"] == "BatchLongest"


def swap(folder):
    """Give two words of a tokenizer each other's numbers."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    words = content["model"]["vocab"]
    words["cat"], words["dog"] = words["dog"], words["cat"]
    path.write_text(json.dumps(content))


OTHERS = {
    "tokenizer": swap,
    "lower-casing": folders.SETTINGS["lower-case"],
    "length": folders.SETTINGS["short"],
    "side": folders.SETTINGS["left"],
    "prompts": folders.SETTINGS["default-prompt"],
    "similarity": folders.SETTINGS["dot"],
    "dimensions": folders.SETTINGS["truncated"],
    "config": lambda folder: folders.edit(folder, "config.json", layer_norm_eps=0.5),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_of_the_same_weights_that_differs_is_refused(kind, tmp_path):
    """Its tokenizer's files would replace those of the folder, and its graph would give other vectors."""
    folder = folders.make(tmp_path / "model", "mean")
    shutil.copytree(folder, tmp_path / "other")
    OTHERS[kind](tmp_path / "other")
    before = {name: (folder / name).read_bytes() for name in files_in(folder)}
    with pytest.raises(InputError, match="choose another output="):
        export(tmp_path / "other", folder, verify=False)
    assert {name: (folder / name).read_bytes() for name in files_in(folder)} == before


def test_the_options_of_a_run_do_not_change_the_model_that_is_there(tmp_path):
    folder = folders.make(tmp_path / "model", "mean")
    for options in ({"max_length": 8}, {"pooling": "cls"}, {"normalize": True}):
        with pytest.raises(InputError, match="choose another output="):
            export(folder, folder, verify=False, **options)


def test_earlier_weights_are_not_added_to_later_ones(tmp_path):
    """The folder's first graph was made of the earlier weights, and says so."""
    folder = folders.make(tmp_path / "model", "mean")
    shutil.copytree(folder, tmp_path / "earlier")
    export(folder, folder, verify=False)
    folders.halve(folder / "model.safetensors")
    with pytest.raises(InputError, match="another model"):
        export(tmp_path / "earlier", folder, verify=False, overwrite=True)


def test_a_folder_with_added_graphs_is_not_replaced_as_a_whole(source, tmp_path):
    folder = tmp_path / "trained"
    shutil.copytree(source, folder)
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    export(folder, folder, verify=False)
    with pytest.raises(InputError, match="layout= hub"):
        sentcli.export(model=str(folder), output=folder, overwrite=True, verify=False)
    assert (folder / "metrics.jsonl").exists()


def test_the_folder_that_one_is_in_is_named_as_that(source, tmp_path, monkeypatch):
    shutil.copytree(source, tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    with pytest.raises(InputError, match="you are in"):
        export(".", ".", verify=False)


def test_auto_takes_no_graph_for_openvino_beside_weights(source, tmp_path):
    pytest.importorskip("openvino")
    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    export(folder, folder, runtime="openvino", verify=False)
    assert SentenceEncoder.load(str(folder)).backend.name == "onnx"
    assert SentenceEncoder.load(str(folder), backend="openvino").local.backend.folder == folder


def test_a_run_that_replaces_a_folder_keeps_the_graphs_of_others(source, tmp_path):
    from sentcli.training.run_folder import check_run_folder

    folder = tmp_path / "model"
    shutil.copytree(source, folder)
    export(folder, folder, verify=False)
    check_run_folder(folder, overwrite=True, resume=False)
    (folder / "onnx" / "model_q4.onnx").write_bytes(b"of another program")
    with pytest.raises(InputError, match=r"onnx/model_q4\.onnx"):
        check_run_folder(folder, overwrite=True, resume=False)
