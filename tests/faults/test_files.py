"""Links, names and locks: what lies beside sentcli's files is neither read nor lost."""

import json
import os
import re
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.io.atomic import check_output
from sentcli.io.digests import cache_folder
from tests.search.conftest import clustered, write_directory
from tests.stores.outputs import contents, message_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")


@pytest.fixture
def directory(tmp_path):
    """300 rows of 8 dimensions in shards of 100."""
    write_directory(tmp_path / "d", clustered(300, 8), shard_rows=100)
    return tmp_path / "d"


@pytest.fixture
def foreign(tmp_path):
    """A folder of someone else."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "letter.txt").write_text("keep this")
    return folder


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("place", ["indexes", "indexes/hnsw"])
def test_an_index_is_not_built_through_a_link(directory, foreign, invoke, place):
    (directory / place).parent.mkdir(exist_ok=True)
    (directory / place).symlink_to(foreign)
    result = invoke("index", directory, "--type", "hnsw", "--overwrite", check=2)
    assert f"{directory / place} " in message_of(result)
    assert contents(foreign) == {"letter.txt": b"keep this"}


def test_files_that_the_manifest_of_an_index_does_not_name_stay_until_the_new_ones_are_there(directory, invoke):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    invoke("index", directory, "--type", "hnsw", check=0)
    place = directory / "indexes" / "hnsw"
    (whole,) = place.glob("rows-*.faiss")
    (file,) = json.loads((place / "index.json").read_text())["files"]
    (place / "notes.txt").write_text("mine")
    edit(place / "index.json", files=[{**file, "name": "rows-0000000000-0000000299.faiss"}])
    result = invoke("index", directory, "--type", "hnsw", check=2)
    assert re.search(rf"{place}/rows-0000000000-0000000299\.faiss .*--overwrite", message_of(result))
    assert whole.exists() and (place / "notes.txt").exists()


def test_names_in_a_manifest_are_those_of_shards(directory, tmp_path, invoke, tiny_bert):
    (tmp_path / "secret").mkdir()
    (directory / "rows-00000.parquet").rename(tmp_path / "secret" / "rows-00000.parquet")
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["shards"][0]["rows"] = "../secret/rows-00000.parquet"
    edit(directory / "manifest.json", shards=manifest["shards"])
    for command in (["encode", "--check", directory], ["index", directory]):
        assert "shards.0.rows" in message_of(invoke(*command, check=2))


@pytest.mark.parametrize("name", ["manifest.json", "vectors-00001.npy", "rows-00002.parquet"])
def test_a_directory_with_links_is_refused(directory, foreign, invoke, name):
    (directory / name).rename(foreign / name)
    (directory / name).symlink_to(foreign / name)
    before = contents(foreign)
    for command in (["encode", "--check", directory], ["index", directory]):
        assert f"{directory / name} " in message_of(invoke(*command, check=2))
    assert contents(foreign) == before


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_an_encode_writes_through_no_link(tiny_bert, foreign, text, tmp_path, invoke, option):
    out = tmp_path / "out"
    invoke("encode", text, "-m", tiny_bert, "-o", out, check=0)
    (out / "manifest.json").rename(foreign / "manifest.json")
    (out / "manifest.json").symlink_to(foreign / "manifest.json")
    before = contents(foreign)
    result = invoke("encode", text, "-m", tiny_bert, "-o", out, option, check=2)
    assert f"{out / 'manifest.json'} " in message_of(result)
    assert contents(foreign) == before


def test_a_second_encode_into_a_directory_says_so(tiny_bert, text, tmp_path, invoke):
    from sentcli.io.atomic import locked

    out = tmp_path / "out"
    out.mkdir()
    with locked(out / ".manifest.json.lock", "held"):
        result = invoke("encode", text, "-m", tiny_bert, "-o", out, "--resume", check=2)
    assert re.search(f"error: .* {out}: .*-o", message_of(result))
    invoke("encode", text, "-m", tiny_bert, "-o", out, "--resume", check=0)
    assert not list(out.glob(".*"))


def test_what_a_killed_process_left_goes_with_the_next_run(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = tmp_path / f".v.npy.{gone.stdout.decode().strip()}.partial"
    other = tmp_path / f".v.npy.{os.getppid()}.partial"
    odd = tmp_path / f".v.npy.{10**30}.partial"
    left.write_bytes(b"half")
    odd.write_bytes(b"of no process")
    other.write_bytes(b"of a process that runs")
    check_output(tmp_path / "v.npy")
    assert not left.exists() and not odd.exists() and other.exists()


def test_a_dangling_link_of_a_build_blocks_nothing(directory, invoke):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    (directory / "indexes").mkdir()
    (directory / "indexes" / ".hnsw.building").symlink_to(directory / "nothing")
    invoke("index", directory, "--type", "hnsw", check=0)


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_the_cache_is_private(tmp_path, monkeypatch, mask):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "deep" / "cache"))
    before = os.umask(mask)
    try:
        cache_folder("scores")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "deep" / "cache").stat().st_mode) == 0o700


@pytest.mark.slow
def test_an_export_of_another_model_in_the_cache_is_made_again(tiny_bert, tmp_path, monkeypatch, text, invoke):
    """It is told by the model's weights, not by what the folder says of itself."""
    from sentcli import SentenceEncoder
    from tests.conftest import save_backbone

    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    other = save_backbone(tmp_path / "other", seed=5)
    expected = SentenceEncoder.load(tiny_bert, backend="onnx").encode(["the cat"])
    (mine,) = (tmp_path / "cache" / "exports").glob("[0-9a-f]*")
    SentenceEncoder.load(other, backend="onnx")
    (theirs,) = set((tmp_path / "cache" / "exports").glob("[0-9a-f]*")) - {mine}
    for path in theirs.iterdir():
        if path.is_file():
            (mine / path.name).write_bytes(path.read_bytes())
    assert np.array_equal(SentenceEncoder.load(tiny_bert, backend="onnx").encode(["the cat"]), expected)


def test_a_manifest_that_claims_too_much_is_refused_at_once(directory, invoke):
    manifest = json.loads((directory / "manifest.json").read_text())
    edit(directory / "manifest.json", shard_rows=1, groups=[{**manifest["groups"][0], "rows": 10**9, "read": 10**9}])
    began = time.monotonic()
    failed = invoke("encode", "--check", directory, check=2)
    assert re.search(rf"{directory}/manifest\.json .*1,000,000", message_of(failed))
    assert time.monotonic() - began < 20


def test_a_file_name_that_is_no_utf8_is_encoded_and_written_down(tiny_bert, tmp_path, invoke):
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).write_text("the cat\n")
    invoke("encode", tmp_path / name, "-m", tiny_bert, "-o", tmp_path / "out", check=0)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    assert manifest["groups"][0]["inputs"][0]["name"] == "caf\\udce9.txt"
    invoke("encode", "--check", tmp_path / "out", check=0)


def test_a_lock_of_nothing_is_free(tmp_path):
    from sentcli.io.atomic import locked

    (tmp_path / ".x.lock").write_text("")
    with (
        locked(tmp_path / ".x.lock", "held"),
        pytest.raises(InputError, match="held"),
        locked(tmp_path / ".x.lock", "held"),
    ):
        raise AssertionError("two held it")
