"""Names of models that are of none, and files that have the name of a known one."""

import json
import shutil
from pathlib import Path

import pytest

from sentcli import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.hub import HubModel
from sentcli.hub_fetch import fetch
from sentcli.zoo import _entry_called, find_entry, on_this_machine, resolve, served_model, zoo
from tests.model.folders import make
from tests.model.test_spec_files_layouts import cached_on_hub

ODD = [
    "runs/lr=3e-05", "my models/x", f"a/{'b' * 100}", f"{'a' * 100}/b", "a" * 5000, f"a/{'b' * 5000}", "a/b/c", "./x",
    "owner/name/", "owner/name@", "@x", "a@b/c", "-x/y", "a--b/c", "a..b/c", "owner/..", "a/b:c", "owner/name@a b",
    "owner/name.git", "é/x", "a/\udcff", "a\nb/c", "a\\b", "", " ", "minilm/", "MiniLM", "~/no-such-model/x", "/no/x",
    "owner/name@../x", "owner/name@-x", "owner/name@x/", "owner/name@/x", f"owner/name@{'a' * 300}", "minilm@",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_folder_and_no_hub_id_is_no_model(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"(?s)^no model .*no such model folder.*hub id"):
        resolve(name)
    assert not on_this_machine(name)


@pytest.mark.parametrize("before", ["", " ", "\t", "\x01"])
def test_an_address_behind_blanks_is_an_address_and_keeps_its_password(before):
    served = served_model(f"{before}http://host/v1#model")
    assert served is not None and served.model == "model"
    with pytest.raises(InputError, match="password") as error:
        resolve(f"{before}http://user:geheim12345@host/v1#model")
    assert "geheim12345" not in str(error.value)


def test_a_command_says_so_with_the_code_of_wrong_usage(tmp_path, invoke):
    (tmp_path / "t.txt").write_text("a\n")
    result = invoke("encode", tmp_path / "t.txt", "-m", "runs/lr=3e-05", "-o", tmp_path / "v.npy", check=2)
    assert "no such model folder" in " ".join(result.stderr.split()) and "defect" not in result.stderr


@pytest.mark.parametrize("kind", ["file", "empty file", "folder", "broken link"])
def test_a_known_name_is_not_taken_by_what_is_no_model(kind, minilm, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    match kind:
        case "file":
            (tmp_path / minilm).write_text("my notes\n")
        case "empty file":
            (tmp_path / minilm).touch()
        case "folder":
            (tmp_path / minilm).mkdir()
            (tmp_path / minilm / "vectors.npy").touch()
        case "broken link":
            (tmp_path / minilm).symlink_to(tmp_path / "gone")
    folder, entry = resolve(minilm)
    assert entry is not None and entry == find_entry(minilm) and (folder / "config.json").exists()
    assert on_this_machine(minilm)
    assert ("is no model" in capsys.readouterr().err) == (kind != "broken link")


def test_a_model_or_word_vectors_of_a_known_name_come_first(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unpinned = next(name for name, entry in zoo().items() if entry.sha256 is None)
    shutil.copytree(tiny_bert, tmp_path / unpinned)
    assert resolve(unpinned)[0].samefile(tmp_path / unpinned) and find_entry(unpinned) is None
    shutil.rmtree(tmp_path / unpinned)
    (tmp_path / unpinned).write_text("the 0.1 0.2\ncat 0.3 0.4\n")
    assert resolve(unpinned)[1] is None


@pytest.mark.parametrize("error", [RuntimeError("a"), ValueError("b"), KeyError("c"), OSError("d")], ids=repr)
def test_whatever_the_hub_raises_is_one_error(error, monkeypatch):
    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", fail)
    with pytest.raises(SentcliError, match="'owner/name' is not on this machine and the hub cannot be reached"):
        resolve("owner/name")
    assert not on_this_machine("owner/name")


ROOT = {"config.json", "tokenizer.json", "modules.json", "README.md"}
LEFT = {
    "LICENSE",
    "onnx/model.onnx",
    "onnx/config.json",
    "tf_model.h5",
    "checkpoint-9/model.safetensors",
    "model.fp16.safetensors",
    "train.csv",
}
ADAPTED = {"adapter_config.json", "adapter_model.safetensors"}
THEIRS = "sentence_transformers.models."
REPOSITORIES = {
    "safetensors": ([""], ROOT | {"model.safetensors"}, {"pytorch_model.bin"}),
    "shards": ([""], ROOT | {"model-1-of-2.safetensors", "model-2-of-2.safetensors", "model.safetensors.index.json"},
               {"pytorch_model-1-of-2.bin"}),
    "older": ([""], ROOT | {"pytorch_model.bin", "vocab.txt"}, {"adapter_model.bin"}),
    "modules": (["", "1_Pooling", "2_Dense"], ROOT | {"model.safetensors", "2_Dense/model.safetensors"},
                {"2_Dense/pytorch_model.bin", "3_Dense/model.safetensors"}),
    "older Dense": (["", "2_Dense"], ROOT | {"model.safetensors", "2_Dense/pytorch_model.bin"}, {"pytorch_model.bin"}),
    "first folder": (["0_Transformer"], {"modules.json", "0_Transformer/config.json",
                     "0_Transformer/model.safetensors"}, {"model.safetensors"}),
    "table": (["0_StaticEmbedding"], {"modules.json", "0_StaticEmbedding/tokenizer.json",
              "0_StaticEmbedding/model.safetensors"}, {"embeddings.safetensors"}),
    "table of model2vec": (["."], ROOT | {"model.safetensors"}, {"pytorch_model.bin"}),
    "adapter": ([""], ROOT | ADAPTED, {"adapter_model.bin", "optimizer.pt"}),
    "older adapter": ([""], ROOT | {"adapter_config.json", "adapter_model.bin"}, {"training_args.bin"}),
    "adapter in the first folder": (["0_Transformer"], {"modules.json", *(f"0_Transformer/{name}" for name in ADAPTED)},
                                    {"adapter_model.safetensors"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_of_a_repository_settings_and_the_weights_of_its_modules_are_fetched(kind, hub):
    """Nothing else comes, and what has come is whole without the network."""
    modules, wanted, other = REPOSITORIES[kind]
    classes = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    entries = [
        {"idx": number, "path": path, "type": THEIRS + classes.get(path, "Other")}
        for number, path in enumerate(modules)
    ]
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    files = {name: json.dumps(entries if name == "modules.json" else index).encode() for name in wanted | other | LEFT}
    hub.put("owner/name", files)
    assert not on_this_machine("owner/name")
    folder = fetch(HubModel("owner/name"))
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == wanted
    assert on_this_machine("owner/name")
    largest = max((name for name in wanted if name.endswith((".safetensors", ".bin"))), key=len)
    (folder / largest).unlink()  # as after a download that was cut off
    assert not on_this_machine("owner/name")


@pytest.mark.parametrize(("model", "fetched"), [("nomic-embed-v1.5", True), ("nomic-embed-v1", False)])
def test_no_weights_are_fetched_for_a_folder_that_is_refused(model, fetched, hub):
    config = json.dumps({"auto_map": {"AutoModel": "modeling.Model"}}).encode()
    hub.put(zoo()[model].source, {"config.json": config, "model.safetensors": b"weights"})
    folder = resolve(model)[0]
    assert (folder / "model.safetensors").exists() == fetched
    hub.requests.clear()
    assert resolve(model)[0] == folder and not hub.requests


def test_each_entry_says_where_its_facts_were_read_and_only_papers_do_not():
    """Checkpoints of papers and raw language models have their papers; all others have a card."""
    entries = list(zoo().values())
    names = [entry.name for entry in entries]
    papers = names.index("bert-base")
    assert [entry.name for entry in entries[:papers] if not entry.card.startswith("https://")] == ["minilm-l12"]
    assert len({name.casefold() for name in names} | {entry.source.casefold() for entry in entries}) == 2 * len(names)
    page = (Path(__file__).parents[1] / "docs" / "models.md").read_text()
    assert [name for name in names[:papers] if f"`{name}`" not in page] == []
    for entry in entries:
        assert set(entry.prompts) <= {"query", "document"} and all(entry.prompts.values())


NATIVE, OTHER = "nomic-ai/nomic-embed-text-v1.5", "nomic-ai/nomic-embed-text-v1"


@pytest.fixture
def on_hub(tmp_path, monkeypatch):
    """A hub's cache of models whose folders name code of their own; transformers' class is right for the first."""
    folder = shutil.copytree(make(tmp_path / "m", kind="nomic_bert"), tmp_path / "with code")
    config = json.loads((folder / "config.json").read_text())
    code = {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": code}))
    for repository in (NATIVE, OTHER, "someone/something"):
        cached_on_hub(tmp_path / "hub", repository, folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


def test_transformers_class_stands_for_the_code_of_a_folder_where_the_list_says_so(on_hub):
    notes = []
    encoder = SentenceEncoder.load(NATIVE, backend="torch", notice=notes.append)
    assert any("auto_map" in note and "nomic_bert" in note for note in notes)
    plain = SentenceEncoder.load(on_hub / "m", backend="torch")
    assert (encoder.encode(["the cat sat"]) == plain.encode(["the cat sat"])).all()
    encoder.save(on_hub / "saved")
    assert "auto_map" not in json.loads((on_hub / "saved" / "config.json").read_text())
    assert (
        SentenceEncoder.load(on_hub / "saved", backend="torch").encode(["the cat sat"]) == plain.encode(["the cat sat"])
    ).all()


@pytest.mark.parametrize("model", [OTHER, "nomic-embed-v1", "someone/something", "with code"])
def test_the_code_of_any_other_folder_is_refused(model, on_hub):
    name = on_hub / model if model == "with code" else model
    with pytest.raises(InputError, match="auto_map names code of the folder's own"):
        SentenceEncoder.load(name)


def test_the_class_of_nomic_bert_has_by_default_what_the_published_configuration_states():
    """It reads none of the names there, so another default would be another model."""
    from transformers import NomicBertConfig

    config = NomicBertConfig()
    sizes = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size)
    assert sizes == (768, 12, 12, 3072)  # n_embd, n_layer, n_head, n_inner
    assert (config.hidden_act, config.layer_norm_eps) == ("silu", 1e-12)  # activation_function swiglu
    assert config.rope_parameters == {"rope_theta": 1000, "rope_type": "default"}  # rotary_emb_base


def test_a_short_name_is_found_without_reading_the_entries_and_no_other_is():
    names = zoo()
    assert {name for name in names if _entry_called(name) is names[name]} == set(names)
    assert _entry_called("export") is None and _entry_called("./minilm") is None
