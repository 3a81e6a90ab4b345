"""Names of models that are of none, and files that have the name of a known one."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from sentcli.errors import InputError, SentcliError
from sentcli.zoo import ZooEntry, download, find_entry, models_folder, on_this_machine, resolve, zoo

ODD = [
    "runs/lr=3e-05", "my models/x", f"a/{'b' * 100}", f"{'a' * 100}/b", "a" * 5000, f"a/{'b' * 5000}", "a/b/c", "./x",
    "owner/name/", "owner/name@main", "owner/name@", "@x", "a/b@c/d", "-x/y", "a--b/c", "a..b/c", "owner/..", "a/b:c",
    "owner/name.git", "é/x", "a/\udcff", "a\nb/c", "a\\b", "", " ", "minilm/", "MiniLM", "~/no-such-model/x", "/no/x",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_folder_and_no_hub_id_is_no_model(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"(?s)^no model .*no such model folder.*hub id"):
        resolve(name)
    assert not on_this_machine(name)


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

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(SentcliError, match="'owner/name' is not on this machine and the hub cannot be reached"):
        resolve("owner/name")
    assert not on_this_machine("owner/name")


ROOT = {"config.json", "tokenizer.json", "modules.json"}
LEFT = {
    "README.md",
    "onnx/model.onnx",
    "onnx/config.json",
    "tf_model.h5",
    "checkpoint-9/model.safetensors",
    "train.csv",
}
ADAPTED = {"adapter_config.json", "adapter_model.safetensors"}
THEIRS = "sentence_transformers.models."
REPOSITORIES = {
    "safetensors": ([""], ROOT | {"model.safetensors"}, {"pytorch_model.bin"}),
    "shards": ([""], ROOT | {"model-1-of-2.safetensors", "model.safetensors.index.json"}, {"pytorch_model-1-of-2.bin"}),
    "older": ([""], ROOT | {"pytorch_model.bin", "vocab.txt"}, {"adapter_model.bin"}),
    "modules": (["", "1_Pooling", "2_Dense"], ROOT | {"model.safetensors", "2_Dense/model.safetensors"},
                {"2_Dense/pytorch_model.bin", "3_Dense/model.safetensors"}),
    "older Dense": (["", "2_Dense"], ROOT | {"model.safetensors", "2_Dense/pytorch_model.bin"}, {"pytorch_model.bin"}),
    "first folder": (["0_Transformer"], {"modules.json", "0_Transformer/config.json", "0_Transformer/model.safetensors"},
                     {"model.safetensors"}),
    "table": (["0_StaticEmbedding"], {"modules.json", "0_StaticEmbedding/tokenizer.json",
              "0_StaticEmbedding/model.safetensors"}, {"embeddings.safetensors"}),
    "table of model2vec": (["."], ROOT | {"model.safetensors"}, {"pytorch_model.bin"}),
    "adapter": ([""], ROOT | ADAPTED, {"adapter_model.bin", "optimizer.pt"}),
    "older adapter": ([""], ROOT | {"adapter_config.json", "adapter_model.bin"}, {"training_args.bin"}),
    "adapter in the first folder": (["0_Transformer"], {"modules.json", *(f"0_Transformer/{name}" for name in ADAPTED)},
                                    {"adapter_model.safetensors"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_of_a_repository_settings_and_the_weights_of_its_modules_are_fetched(kind, tmp_path, monkeypatch):
    """Nothing else comes, and what has come is whole without the network."""
    modules, wanted, other = REPOSITORIES[kind]
    from huggingface_hub.utils import filter_repo_objects

    def snapshot(repository, *, local_files_only=False, allow_patterns=None, ignore_patterns=None):
        names = wanted | other | LEFT
        for name in (
            []
            if local_files_only
            else filter_repo_objects(names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns)
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            entries = [{"idx": i, "path": path, "type": THEIRS + "Dense"} for i, path in enumerate(modules)]
            (tmp_path / name).write_text(
                json.dumps(entries if name == "modules.json" else {"weight_map": {"a": "model-1-of-2.safetensors"}})
            )
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert not on_this_machine("owner/name")
    assert download("owner/name") == tmp_path
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == wanted
    assert on_this_machine("owner/name")
