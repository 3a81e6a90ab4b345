"""Names of models that are of none, and files that have the name of a known one."""

import shutil

import pytest

from sentcli.errors import InputError, SentcliError
from sentcli.zoo import find_entry, on_this_machine, resolve, zoo

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
