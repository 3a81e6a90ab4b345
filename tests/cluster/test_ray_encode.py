"""`encode --ray`: the bytes of one machine, and what it says before and while it works."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sentcli
from sentcli.cluster import joining
from tests.conftest import save_backbone
from tests.stores.outputs import contents, manifest_of, message_of

SHARDS = ["--shard-rows", 40]


@pytest.fixture
def plain(encode, source, tmp_path):
    """What one machine writes."""
    encode(source, "-o", tmp_path / "plain", *SHARDS)
    return tmp_path / "plain"


@pytest.mark.deep
def test_a_ray_of_its_own_writes_the_bytes_of_one_machine(encode, source, plain, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    call = [source, "-o", tmp_path / "out", *SHARDS, "--ray", "local", "--workers", 2, "--json", tmp_path / "r.json"]
    done = encode(*call, env={name: value for name, value in os.environ.items() if "RAY" not in name} | {"HOME": home})
    assert contents(tmp_path / "out") == contents(plain)
    assert "nodes 1, workers 2, CPUs of each 1" in message_of(done)
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert (results["rows"], results["rows_encoded"]) == (300, 300)
    assert results["duplicates"] == manifest_of(plain)["counts"]["duplicates"] > 0
    assert not (home / ".ray").exists(), "a token in the home folder"


@pytest.mark.slow
def test_two_nodes_write_the_bytes_of_one_machine(two_nodes, encode, source, plain, tmp_path):
    done = encode(source, "-o", tmp_path / "out", *SHARDS, "--ray", two_nodes.address)
    assert contents(tmp_path / "out") == contents(plain)
    assert "nodes 2, workers 2, CPUs of each 2" in message_of(done)


@pytest.mark.deep
def test_what_is_there_is_kept_and_rows_are_appended(two_nodes, encode, source, plain, tmp_path):
    on_ray = ["--ray", two_nodes.address, *SHARDS]
    (plain / "vectors-00003.npy").unlink()
    before = contents(plain)
    times = {path.name: path.stat().st_mtime_ns for path in plain.iterdir()}
    done = encode(source, "-o", plain, *on_ray, "--resume")
    assert "warning: vectors-00003.npy " in message_of(done)
    assert before.items() <= contents(plain).items()
    redone = {path.name for path in plain.iterdir() if path.stat().st_mtime_ns != times.get(path.name)}
    assert redone == {"vectors-00003.npy", "rows-00003.parquet", "manifest.json"}
    shutil.copytree(plain, tmp_path / "more")
    added = shutil.copy(source, source.with_name("added.csv"))
    encode(added, "-o", plain, *SHARDS, "--append")
    encode(added, "-o", tmp_path / "more", *on_ray, "--append")
    assert manifest_of(plain)["rows_done"] == 600
    assert contents(plain) == contents(tmp_path / "more")


@pytest.mark.deep
def test_an_update_keeps_the_vectors_of_texts_that_are_there(two_nodes, encode, source, plain, tmp_path):
    file = plain / "vectors-00001.npy"
    np.save(file, np.full_like(np.load(file), 0.25))  # as no model makes them
    manifest = manifest_of(plain)
    manifest["shards"][1]["sha256"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    (plain / "manifest.json").write_text(json.dumps(manifest))
    shutil.copytree(plain, tmp_path / "out")
    with source.open("a", encoding="utf-8") as rows:
        rows.write("new,a text that nobody had,1\n")
    encode(source, "-o", plain, *SHARDS, "--update")
    done = encode(source, "-o", tmp_path / "out", *SHARDS, "--update", "--ray", two_nodes.address)
    assert contents(tmp_path / "out") == contents(plain)
    assert (np.load(tmp_path / "out" / file.name) == 0.25).all(axis=1).mean() > 0.5
    assert "300 as before, 0 changed, 1 new" in message_of(done)


@pytest.mark.slow
def test_all_that_decides_vectors_reaches_the_workers(two_nodes, encode, source, tmp_path):
    call = [source, *SHARDS, "--prompt", "a big ", "--output-dtype", "int8", "--on-long", "truncate", "--shard", "2/3"]
    call += ["--truncate-dim", 8, "--backend", "torch", "--batch-tokens", 100]
    encode(*call, "-o", tmp_path / "one")
    encode(*call, "-o", tmp_path / "out", "--ray", two_nodes.address, "--cpus-per-worker", 1)
    assert contents(tmp_path / "one") == contents(tmp_path / "out")


@pytest.mark.deep
def test_a_directory_is_replaced_when_the_workers_are_done(two_nodes, encode, source, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other.txt"
    other.write_text("".join(f"the old cat {i}\n" for i in range(70)))
    encode(other, *SHARDS, "-o", out)
    encode(source, *SHARDS, "-o", tmp_path / "plain")
    encode(source, *SHARDS, "-o", out, "--overwrite", "--ray", two_nodes.address, "--cpus-per-worker", 1)
    assert contents(out) == contents(tmp_path / "plain")
    assert not list(tmp_path.glob(".*"))


# Bad input


@pytest.mark.deep
def test_a_row_that_cannot_be_encoded_is_named_as_on_one_machine(two_nodes, encode, source, tmp_path):
    long = [f"x{i},{'cat ' * 50},1\n" for i in range(2)]
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join([*lines[:130], long[0], *lines[130:230], long[1], *lines[230:]]))
    call = [source, *SHARDS, "--on-long", "error"]
    plain = encode(*call, "-o", tmp_path / "plain", check=2)
    failed = encode(*call, "-o", tmp_path / "out", "--ray", two_nodes.address, check=2)
    assert re.search(r"rows\.csv, row 130 \(id x0\): .*52 tokens", message_of(plain))
    assert failed.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert [shard["number"] for shard in manifest_of(tmp_path / "out")["shards"]][:3] == [0, 1, 2]
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
    encode(*call[:-1], "truncate", "-o", tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "v.npy", "--ray", "local"], "--ray .*-o"),
        (["-o", "v", "--ray", "local", "--devices", "cpu,cpu"], "--devices .*--ray"),
        (["-o", "v", "--workers", "2"], "--workers .*--ray"),
        (["-o", "v", "--ray", "far-away"], "--ray far-away: .*local, auto.*HOST:PORT"),
        (["-o", "v", "--ray", "127.0.0.1:1"], "--ray 127.0.0.1:1 .*Errno"),
        (["-o", "v", "--ray", "no-such-host.invalid:6379"], "--ray no-such-host.invalid:6379 "),
    ],
)
def test_usage(invoke, source, exported, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    assert re.search(words, message_of(invoke("encode", source, *options, "-m", exported, check=2)))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_ray_that_is_not_installed(invoke, source, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    failed = invoke("encode", source, "-o", tmp_path / "v", "-m", exported, "--ray", "local", check=1)
    assert re.search(r"--ray .*'sentcli\[cluster\]'", message_of(failed))


@pytest.mark.deep
def test_an_address_at_which_nothing_is_said_ends_within_half_a_minute(invoke, source, exported, tmp_path, slowness):
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        failed = invoke("encode", source, "-o", tmp_path / "v", "-m", exported, "--ray", address, check=2)
    assert f"--ray {address} " in message_of(failed)
    assert time.monotonic() - began < 30 * slowness


@pytest.mark.deep
@pytest.mark.parametrize(
    "token", [{"RAY_AUTH_TOKEN": "8" * 64}, {"RAY_AUTH_TOKEN": "", "RAY_AUTH_MODE": "disabled"}], ids=["wrong", "none"]
)
def test_a_token_that_is_refused_is_named_within_seconds(two_nodes, encode, source, tmp_path, token, slowness):
    began = time.monotonic()
    call = [source, "-o", tmp_path / "v", "--ray", two_nodes.address]
    failed = encode(*call, check=2, env={**os.environ, **token})
    assert "RAY_AUTH_TOKEN" in message_of(failed) and "RAY_AUTH_MODE" in message_of(failed)
    assert time.monotonic() - began < 18 * slowness
    assert not (tmp_path / "v").exists()


@pytest.mark.deep
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_cluster_of_which_only_the_head_answers_ends_in_time_and_heeds_signals(
    own_cluster, invoke, encode, exported, source, tmp_path, monkeypatch, slowness
):
    cluster = own_cluster(1)
    call = [source, "-o", tmp_path / "v", "--ray", cluster.address]
    for node in cluster.list_all_nodes():
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGSTOP)
    running = encode(*call, wait=False)
    time.sleep(5 * slowness)
    assert running.poll() is None
    running.terminate()
    began = time.monotonic()
    running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGTERM and time.monotonic() - began < 5 * slowness
    monkeypatch.setattr(joining, "JOIN_SECONDS", 3)
    began = time.monotonic()
    assert f"--ray {cluster.address}" in message_of(invoke("encode", *call, "-m", exported, check=2))
    assert time.monotonic() - began < 15 * slowness
    assert not (tmp_path / "v").exists()


@pytest.mark.deep
def test_more_than_any_node_has(two_nodes, encode, source, tmp_path):
    failed = encode(source, "-o", tmp_path / "v", "--ray", two_nodes.address, "--gpus-per-worker", 1, check=2)
    assert re.search("1 CPUs .*1 GPUs", message_of(failed))
    assert not (tmp_path / "v").exists()


@pytest.mark.deep
def test_no_rows_make_an_empty_directory(encode, tmp_path):
    (tmp_path / "n.jsonl").write_text('{"text": null}\n' * 3)
    call = [tmp_path / "n.jsonl", "--on-null", "skip"]
    encode(*call, "-o", tmp_path / "plain")
    encode(*call, "-o", tmp_path / "out", "--ray", "local")
    assert contents(tmp_path / "out") == contents(tmp_path / "plain")


@pytest.mark.deep
def test_a_model_that_is_not_there(two_nodes, encode, source, tmp_path):
    failed = encode(source, "-o", tmp_path / "v", "--ray", two_nodes.address, model=tmp_path / "gone", check=1)
    assert "gone" in message_of(failed)
    assert "node " in message_of(failed)


# Nodes that differ


@pytest.mark.slow
def test_a_node_with_another_version_is_named_before_the_work(own_cluster, encode, source, tmp_path):
    cluster = own_cluster(1)
    foreign = tmp_path / "foreign"
    shutil.copytree(Path(sentcli.__file__).parent, foreign / "sentcli")
    package = foreign / "sentcli" / "__init__.py"
    package.write_text(package.read_text().replace(sentcli.__version__, "9.9.9"))
    cluster.add_node(**cluster.common, num_cpus=2, node_name="odd", env_vars={"PYTHONPATH": str(foreign)})
    failed = encode(source, "-o", tmp_path / "v", "--ray", cluster.address, check=1)
    assert re.search(rf"node .*9\.9\.9.*{re.escape(sentcli.__version__)}", message_of(failed))
    assert not (tmp_path / "v").exists()


@pytest.mark.deep
def test_a_node_with_other_weights_is_named_before_the_work(own_cluster, encode, source, tmp_path):
    """The model lies in the home folder, and both nodes have one of their own."""
    cluster = own_cluster(0)
    for name, seed in (("first", 0), ("second", 1)):
        save_backbone(tmp_path / name / "bert", seed=seed)
        cluster.add_node(**cluster.common, num_cpus=2, env_vars={"HOME": str(tmp_path / name)})
    failed = encode(source, "-o", tmp_path / "v", "--ray", cluster.address, model="~/bert", check=1)
    assert re.search("node .*~/bert", message_of(failed))
    assert not (tmp_path / "v").exists()
