"""`encode --ray` while workers, nodes and the driver are killed: what it costs, and that the bytes stay the same."""

import itertools
import re
import signal
import sys
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from sentcli.cluster.nodes import Workers, was_taken_away
from sentcli.cluster.pool import Pool
from sentcli.errors import SentcliError
from tests.cluster.conftest import write_rows
from tests.conftest import heed_ctrl_c
from tests.stores.outputs import contents, manifest_of, message_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")
SHARDS = ["--shard-rows", 400]
ROWS = 16_000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Rows that keep two workers busy for some seconds, in forty shards."""
    return write_rows(tmp_path_factory.mktemp("many") / "in" / "rows.csv", ROWS)


@pytest.fixture(scope="module")
def plain(many, exported, tmp_path_factory):
    """What one machine writes."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    out = tmp_path_factory.mktemp("plain") / "out"
    call = ["encode", many, "-o", out, *SHARDS, "-m", exported, "--pooling", "mean"]
    assert CliRunner().invoke(app, [str(word) for word in call]).exit_code == 0
    return contents(out)


def shards_in(out, least=1, seconds=60):
    """Wait until some shards are finished."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (out / "manifest.json").exists() and len(manifest_of(out)["shards"]) >= least:
            return
        time.sleep(0.01)
    raise AssertionError(f"not {least} shards within {seconds} s")


def processes_of_ray():
    """The numbers of the processes of Ray that began in a folder of a Ray of its own."""
    lines = {path.parent.name: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")}
    return {number for number, line in lines.items() if b"sentcli-ray-" in line}


@pytest.mark.slow
def test_killed_workers_cost_their_shards(two_nodes, kills, encode, many, plain, tmp_path):
    out = tmp_path / "out"
    for number in (5, 17):
        kills(f"vectors-{number:05}.npy")
    done = encode(many, "-o", out, *SHARDS, "--ray", two_nodes.address)
    for number in (5, 17):
        assert re.search(rf"worker .*shard {number}\b", message_of(done))
    assert contents(out) == plain
    assert not done.stdout, "Ray prints there, where --json - may write"


@pytest.mark.deep
def test_a_shard_at_which_workers_die_again_and_again(two_nodes, kills, encode, many, plain, tmp_path):
    out = tmp_path / "out"
    kills("vectors-00005.npy", times=3)
    failed = encode(many, "-o", out, *SHARDS, "--ray", two_nodes.address, check=1)
    assert re.search(f"shard 5, .*{many}, row 2001: 3 ", message_of(failed))
    assert len(manifest_of(out)["shards"]) == ROWS // 400 - 1
    assert {name: data for name, data in plain.items() if "-00005" not in name and "manifest" not in name}.items() == {
        name: data for name, data in contents(out).items() if "manifest" not in name
    }.items()
    encode(many, "-o", out, *SHARDS, "--ray", two_nodes.address, "--resume")
    assert contents(out) == plain


@pytest.mark.deep
def test_a_killed_node_costs_its_shards(own_cluster, encode, many, plain, tmp_path):
    cluster, out = own_cluster(2), tmp_path / "out"
    running = encode(many, "-o", out, *SHARDS, "--ray", cluster.address, wait=False)
    shards_in(out, 3)
    cluster.remove_node(sorted(cluster.worker_nodes, key=id)[0], allow_graceful=False)
    _, errors = running.communicate(timeout=200)
    assert running.returncode == 0, errors
    assert "a worker has died at shard" in " ".join(errors.split())
    assert contents(out) == plain


@pytest.mark.deep
def test_what_dies_with_a_node_that_is_taken_away_is_told_from_a_crash(own_cluster):
    import ray
    from ray._raylet import GcsClient
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    def here(seconds=0):
        time.sleep(seconds)
        return ray.get_runtime_context().get_node_id()

    @ray.remote
    class Place:
        def here(self, seconds=0):
            return here(seconds)

    cluster = own_cluster(0)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    try:
        for preempted in (True, False):
            node = cluster.add_node(**cluster.common, num_cpus=2)
            actor = Place.options(num_cpus=1).remote()
            assert ray.get(actor.here.remote()) == node.node_id
            ends = [actor.here.remote(100), ray.remote(num_cpus=1, max_retries=0)(here).remote(100)]
            time.sleep(2)
            if preempted:
                reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
                GcsClient(address=cluster.address).drain_node(
                    node.node_id, reason, "spot", int(1000 * time.time()) + 500
                )
                time.sleep(1.5)
            cluster.remove_node(node, allow_graceful=False)
            for end in ends:
                with pytest.raises(ray.exceptions.RayError) as died:
                    ray.get(end)
                assert was_taken_away(died.value) == preempted
    finally:
        ray.shutdown()


class FakeRay:
    """A Ray whose workers end with the errors of a list, one after the other, and then with a result."""

    def __init__(self, errors):
        import ray

        self.exceptions, self.errors, self.references = ray.exceptions, list(errors), itertools.count()

    def remote(self, **options):
        assert options["max_restarts"] == 0  # Ray would count them by itself
        start = SimpleNamespace(remote=lambda: ("start", next(self.references)))
        call = SimpleNamespace(remote=lambda *arguments: ("call", next(self.references)))
        return lambda actor: SimpleNamespace(remote=lambda *arguments: SimpleNamespace(start=start, call=call))

    def wait(self, references, timeout=None):
        return list(references)[:1], []

    def kill(self, actor):
        pass

    def get(self, reference):
        if reference[0] == "call" and self.errors:
            raise self.errors.pop(0)
        return reference[0]


def errors_of(kinds):
    """Errors of nodes that were taken away (t) and of crashes (c)."""
    import ray

    errors = []
    for kind in kinds:
        errors.append(ray.exceptions.ActorDiedError())
        errors[-1]._preempted = kind == "t"
    return errors


@pytest.mark.parametrize(("kinds", "given_up"), [("tttttt", False), ("ctttct", False), ("ctctc", True), ("ccc", True)])
def test_only_crashes_count_as_the_deaths_of_an_item(kinds, given_up, monkeypatch):
    monkeypatch.setattr("sentcli.cluster.pool.require_ray", lambda: FakeRay(errors_of(kinds)))
    with Pool(Workers(1, 1)) as pool:
        events = list(pool.run_each(deque(["shard"]), len))
    assert [event.kind for event in events] == ["again"] * (len(kinds) - given_up) + ["died" if given_up else "done"]
    assert {event.item for event in events} == {"shard"}
    monkeypatch.setattr("sentcli.cluster.pool.require_ray", lambda: FakeRay(errors_of(kinds)))
    with Pool(Workers(1, 1)) as pool:
        if given_up:
            with pytest.raises(SentcliError):
                list(pool.map(["a", "b"], len))
        else:
            assert list(pool.map(["a", "b"], len)) == ["call", "call"]


@pytest.mark.deep
@pytest.mark.parametrize("again", [["--ray", "local"], []], ids=["on Ray", "on one machine"])
def test_a_killed_driver_goes_on_with_resume_and_leaves_no_process(encode, many, plain, tmp_path, again):
    out = tmp_path / "out"
    running = encode(many, "-o", out, *SHARDS, "--ray", "local", wait=False, preexec_fn=heed_ctrl_c)
    shards_in(out, 3)
    running.kill()
    running.communicate()
    kept = {shard["number"] for shard in manifest_of(out)["shards"]}
    end = time.monotonic() + 20
    while processes_of_ray() and time.monotonic() < end:
        time.sleep(0.2)
    assert not processes_of_ray()
    done = encode(many, "-o", out, *SHARDS, *again, "--resume")
    assert f" rows, {400 * len(kept)} " in message_of(done)
    assert contents(out) == plain


@pytest.mark.deep
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_within_seconds(encode, many, tmp_path, kind, slowness):
    out = tmp_path / "out"
    call = [many, "-o", out, *SHARDS, "--ray", "local", "--workers", 2]
    folders = set(Path("/tmp").glob("sentcli-ray-*"))
    running = encode(*call, wait=False, preexec_fn=heed_ctrl_c)
    shards_in(out, 3)
    sent = time.monotonic()
    running.send_signal(kind)
    _, errors = running.communicate(timeout=60)
    assert time.monotonic() - sent < 5 * slowness
    assert running.returncode == 128 + kind, errors
    assert "the same command with --resume continues it" in " ".join(errors.split())
    assert "Traceback" not in errors
    assert not processes_of_ray()
    assert set(Path("/tmp").glob("sentcli-ray-*")) <= folders
