"""`encode --ray` from a store into a store: every worker puts its shards there."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.conftest import clusters
from tests.remote.conftest import SECRET, files

OUT = "s3://corpora/out"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc"),
]


@pytest.fixture
def cluster(store, monkeypatch, tmp_path_factory):
    """Start clusters whose nodes know the store."""
    monkeypatch.delenv("TMPDIR")  # paths of Ray's sockets have at most 107 bytes
    monkeypatch.setattr(tempfile, "tempdir", None)
    with clusters(tmp_path_factory) as make:
        yield make


@pytest.fixture
def on_ray(tiny_bert, tmp_path):
    """Begin `encode` of 300 rows on a cluster, in a process of its own."""

    def call(*arguments, cluster=None):
        words = ["encode", *arguments, "--shard-rows", 30, "-m", tiny_bert, "--pooling", "mean"]
        words += [] if cluster is None else ["--ray", cluster.address, "--cpus-per-worker", 1]
        command = [sys.executable, "-m", "sentcli", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, **pipes, cwd=tmp_path)

    return call


@pytest.fixture
def lines(store):
    """Three hundred texts in the store."""
    store.put("texts.txt", "".join(f"the cat {i} saw a big red dog {i * 7}\n" for i in range(300)).encode())
    return "s3://corpora/texts.txt"


@pytest.mark.deep
def test_a_store_has_the_bytes_of_one_machine_also_when_workers_are_killed(store, cluster, on_ray, lines, tmp_path):
    assert on_ray(lines, "-o", tmp_path / "local").wait(200) == 0
    store.pause = 1.0  # so that there is time to kill workers
    nodes = cluster(2)
    process = on_ray(lines, "-o", OUT, cluster=nodes)
    killed = 0
    while process.poll() is None and killed < 2:
        time.sleep(0.1)
        done = len([name for name in store.names("out") if name.startswith("vectors")])
        if done > 3 * killed:
            killed += _kill_worker(nodes)
    store.pause = 0.0
    _, messages = process.communicate(timeout=200)
    assert process.returncode == 0, messages
    assert killed == 2
    assert re.search(r"worker .*shard \d", messages)
    assert store.contents("out") == files(tmp_path / "local")
    assert SECRET not in messages


@pytest.mark.deep
def test_a_node_without_credentials_is_named(store, cluster, on_ray, lines):
    nodes = cluster(0)
    nodes.add_node(**nodes.common, num_cpus=1, env_vars={"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""})
    process = on_ray(lines, "-o", OUT, cluster=nodes)
    _, messages = process.communicate(timeout=200)
    assert process.returncode == 2, messages
    last = messages.splitlines()[-1]
    assert last.startswith("error: node ")
    assert "s3://corpora/out/manifest.json: " in last and "AWS_ACCESS_KEY_ID" in last


def _kill_worker(cluster):
    """Kill a worker of a cluster, and return how many were killed."""
    parents = {str(raylet.process.pid) for node in cluster.list_all_nodes() for raylet in node.all_processes["raylet"]}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
            if status["PPid"] in parents and (process / "cmdline").read_bytes().startswith(b"ray::Worker"):
                os.kill(int(process.name), signal.SIGKILL)
                return 1
    return 0


def test_an_index_in_a_store_is_not_built_on_other_nodes(store, on_ray, lines, invoke):
    assert on_ray(lines, "-o", OUT).wait(200) == 0
    refused = invoke("index", OUT, "--type", "hnsw", "--ray", "127.0.0.1:1", check=2)
    assert re.search("--ray.*store|store.*--ray", refused.stderr)
