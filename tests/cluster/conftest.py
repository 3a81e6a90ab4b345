"""A Ray cluster of two nodes on this machine, and a source of a few hundred rows."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

ON_LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray then listens on 127.0.0.1 alone
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "7" * 64,
    "OMP_NUM_THREADS": "1",
}
os.environ.update(ON_LOOPBACK)  # before ray is imported, and for the processes of the nodes
pytest.importorskip("ray", reason="Ray comes with the extra sentcli[cluster]")

WORDS = "the a cat dog bird fish ran swam house river tree big small red blue old new man woman child".split()


DEADLY = """
import os, re, signal, sys
from pathlib import Path

def heed(event, arguments):
    found = event == "open" and re.search(r"/\\.([^/]+)\\.\\d+\\.partial$", str(arguments[0]))
    for order in Path(__file__).parent.glob(f"{found[1]}-*") if found else ():
        try:
            order.unlink()
        except FileNotFoundError:
            continue  # another process has taken it
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(heed)
"""
"""A sitecustomize.py: who opens an output that a file beside this one names takes that file away and is killed."""


def start_cluster(nodes, **options):
    """Start a head, which has no CPUs to give, and nodes with two CPUs each."""
    from ray.cluster_utils import Cluster

    Path("/tmp/ray").mkdir(exist_ok=True)  # where Cluster notes its address
    common = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**common, "num_cpus": 0})
    cluster.common = common
    for _ in range(nodes):
        cluster.add_node(**common, num_cpus=2, **options)
    return cluster


@pytest.fixture(scope="session")
def orders(tmp_path_factory):
    """The folder with the orders that kill workers of `two_nodes`."""
    folder = tmp_path_factory.mktemp("orders")
    (folder / "sitecustomize.py").write_text(DEADLY)
    return folder


@pytest.fixture(scope="session")
def two_nodes(orders):
    """A cluster that stays as it is."""
    cluster = start_cluster(2, env_vars={"PYTHONPATH": str(orders)})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def kills(orders):
    """Order that the worker which opens an output is killed, and so often; all of it must have happened at the end."""

    def order(name, times=1):
        for number in range(times):
            (orders / f"{name}-{number}").touch()

    yield order
    left = {path.name for path in orders.glob("*.npy-*")}
    for name in left:
        (orders / name).unlink()
    assert not left


@contextmanager
def clusters(tmp_path_factory):
    """Make clusters of one test, while other processes of the tests wait: nodes that start at once crowd each other."""
    made = []

    def make(nodes):
        made.append(start_cluster(nodes))
        return made[-1]

    with FileLock(tmp_path_factory.getbasetemp().parent / "ray.lock"):
        yield make
        for cluster in made:
            cluster.shutdown()


@pytest.fixture
def own_cluster(tmp_path_factory):
    """Make clusters whose nodes a test may kill."""
    with clusters(tmp_path_factory) as make:
        yield make


@pytest.fixture(scope="session")
def exported(tiny_bert):
    """The tiny BERT with its export in the cache, which every worker would make else."""
    from sentcli import SentenceEncoder

    SentenceEncoder.load(tiny_bert)
    return tiny_bert


@pytest.fixture
def source(tmp_path):
    """A table with a column besides the text; some texts repeat."""
    return write_rows(tmp_path / "in" / "rows.csv", 300)


def write_rows(path, count):
    path.parent.mkdir()
    numbers = [i - (i % 10 == 9) for i in range(count)]
    texts = [" ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(3 + i % 9)) for i in numbers]
    path.write_text("id,text,stars\n" + "".join(f"r{i},{text},{i % 6}\n" for i, text in enumerate(texts)))
    return path


@pytest.fixture
def encode(exported, tmp_path):
    """Run `encode` in a process of its own; with wait=False, return it while it runs."""

    def call(*arguments, check=0, wait=True, model=exported, **options):
        words = ["encode", *arguments, "-m", model, "--pooling", "mean"]
        command = [sys.executable, "-m", "sentcli", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, **pipes, cwd=tmp_path, **options)  # workers import from there, too
        if not wait:
            return process
        stdout, stderr = process.communicate(timeout=200)
        assert process.returncode == check, (process.returncode, stdout, stderr)
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    return call
