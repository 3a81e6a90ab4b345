"""`index --ray`: a file of the index for each shard, with the bytes of one process."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.stores.outputs import contents, manifest_of, message_of


@pytest.fixture
def index(tmp_path):
    def call(*arguments, check=0):
        command = [sys.executable, "-m", "sentcli", "index", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ}, timeout=300)
        assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
        return done

    return call


@pytest.fixture
def folders(encode, source, tmp_path):
    """The same vectors twice."""
    for name in ("plain", "out"):
        encode(source, "-o", tmp_path / name, "--shard-rows", 80)
    return tmp_path / "plain", tmp_path / "out"


def files_of(folder, name):
    files = contents(folder / "indexes" / name)
    return {name: data for name, data in files.items() if name.endswith(".faiss")}


@pytest.mark.slow
def test_files_of_an_index_are_those_of_one_process(two_nodes, index, encode, source, folders):
    plain, out = folders
    on_ray = ["--ray", two_nodes.address, "--cpus-per-worker", 1]
    index(plain, "--type", "hnsw", "--file-rows", 80)
    done = index(out, "--type", "hnsw", *on_ray)
    assert re.search("300 rows .*hnsw", message_of(done))
    assert "recall@10" in done.stdout
    assert files_of(plain, "hnsw") == files_of(out, "hnsw")
    assert len(files_of(out, "hnsw")) == 4 + 1  # and the one without rows
    more = shutil.copy(source, source.with_name("more.csv"))
    for folder in folders:
        encode(more, "-o", folder, "--shard-rows", 80, "--append")
    index(plain, "--type", "hnsw", "--file-rows", 80)
    index(out, "--type", "hnsw", *on_ray)
    assert files_of(plain, "hnsw") == files_of(out, "hnsw")
    assert "rows-0000000240-0000000320.faiss" in files_of(out, "hnsw"), "the last file has grown"
    assert len(files_of(out, "hnsw")) == 8 + 1
    index("--check", out)


@pytest.mark.deep
def test_text_is_encoded_and_indexed_on_ray(two_nodes, index, exported, source, tmp_path):
    call = [source, "-m", exported, "--pooling", "mean", "--type", "hnsw"]
    index(*call, "-o", tmp_path / "plain")
    index(*call, "-o", tmp_path / "out", "--ray", two_nodes.address, "--cpus-per-worker", 1)
    assert manifest_of(tmp_path / "plain") == manifest_of(tmp_path / "out")
    assert files_of(tmp_path / "plain", "hnsw") == files_of(tmp_path / "out", "hnsw")


@pytest.mark.deep
def test_there_is_nothing_to_build(index, folders):
    for kind in ("flat", "bm25"):
        failed = index(folders[0], "--type", kind, "--ray", "local", check=2)
        assert re.search(f"--ray .*--type {kind} ", message_of(failed))
