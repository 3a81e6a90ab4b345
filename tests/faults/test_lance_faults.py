"""Tables of LanceDB after a kill, on a full disk, torn, and as a newer library writes them."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from importlib import import_module

import pytest

from sentcli.errors import SentcliError
from tests.search.conftest import clustered, write_directory

pytest.importorskip("lancedb", reason="LanceDB comes with the extra sentcli[lance]")
import lancedb

ROWS = 30
NEXT = "corpus_sentcli_next"


@pytest.fixture
def place(tmp_path):
    return f"lance:{tmp_path / 'l'}"


@pytest.fixture
def corpus(tmp_path):
    """Files of rows: of a corpus, and of the same in which every row has another text and one is new."""

    def written(name, word, rows):
        path = tmp_path / name
        path.write_text(
            "".join(json.dumps({"id": f"r{n}", "text": f"the {word} {n}", "n": n}) + "\n" for n in range(rows))
        )
        return path

    return written("old.jsonl", "cat", ROWS), written("new.jsonl", "dog", ROWS + 1)


@pytest.fixture
def texts(invoke, place, tiny_bert):
    """A function that returns the texts with which a table answers."""

    def call(*options):
        asked = ("retrieve", "--corpus", place, "-m", tiny_bert, "--query", "x", "--top-k", 999, "--json", "-")
        done = json.loads(invoke(*asked, *options, check=0).stdout)
        return {hit["text"] for hit in done["results"][0]["hits"]}

    return call


def version_of(place):
    return lancedb.connect(place.removeprefix("lance:")).open_table("corpus").version


@pytest.mark.slow
@pytest.mark.parametrize("with_table", [pytest.param(False, marks=pytest.mark.deep), True])
def test_a_killed_run_goes_on(invoke, place, tmp_path, with_table):
    folder = tmp_path / "l"
    count = 20_000
    if with_table:
        write_directory(tmp_path / "old", clustered(20, 16, seed=5))
        invoke("index", tmp_path / "old", "--to", place, check=0)
    write_directory(tmp_path / "d", clustered(count, 16), shard_rows=5000)
    if with_table:
        shutil.move(tmp_path / "old", tmp_path / "kept")
    running = subprocess.Popen([sys.executable, "-m", "sentcli", "index", str(tmp_path / "d"), "--to", place, "-q"])
    deadline = time.monotonic() + 60
    waiting = folder / f"{NEXT}.lance" / "_versions"
    while time.monotonic() < deadline and len(list(waiting.glob("*.manifest"))) < 3:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    done = invoke("retrieve", "--corpus", place, "--count-by", "id", "--json", "-", check=0 if with_table else 2)
    if with_table:
        assert len(json.loads(done.stdout)["counts"]["values"]) == 20, "the old version answers"
    else:
        assert "sentcli index" in done.stderr
    results = json.loads(invoke("index", tmp_path / "d", "--to", place, "--json", "-", check=0).stdout)["results"]
    assert results["unchanged"] > 0 and results["written"] == count - results["unchanged"] > 0
    assert results["rows"] == count
    table = lancedb.connect(folder).open_table("corpus")
    assert len(set(table.to_arrow()["sentcli_order"].to_pylist())) == count
    assert lancedb.connect(folder).list_tables().tables == ["corpus"]


STEPS = {
    "check_there": ("waiting", "WaitingRows"),
    "_made": ("store", "LanceStore"),
    "drop": ("waiting", "WaitingRows"),
    "_build_index": ("store", "LanceStore"),
    "with_record": ("table", "LanceCollection"),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_an_end_between_two_steps_leaves_a_whole_version(invoke, place, monkeypatch, tmp_path, step):
    """An error, which stands for a kill, before each step of --overwrite; then the same command again."""
    counts = {"old": 200, "new": 210}
    for name, count in counts.items():
        write_directory(tmp_path / name, clustered(count, 16, seed=count))
    index = ("--to", place, "--type", "ivf", "--overwrite", "--json", "-")
    invoke("index", tmp_path / "old", *index, check=0)

    def answered():
        done = invoke("retrieve", "--corpus", place, "--count-by", "id", "--json", "-", check=0)
        return len(json.loads(done.stdout)["counts"]["values"])

    def stopped(owner, *arguments, **options):
        if step != "drop" or owner.table is not None:  # before anything waits there is nothing to drop
            raise SentcliError("stopped")

    module, kind = STEPS[step]
    with monkeypatch.context() as patch:
        patch.setattr(getattr(import_module(f"sentcli.stores.lance.{module}"), kind), step, stopped)
        invoke("index", tmp_path / "new", *index, check=1)
    assert answered() == counts["old" if step in ("check_there", "_made") else "new"]
    results = json.loads(invoke("index", tmp_path / "new", *index, check=0).stdout)["results"]
    assert results["rows"] == answered() == counts["new"]
    assert results["recall"]["measured_rows"] == counts["new"]
    assert lancedb.connect(tmp_path / "l").list_tables().tables == ["corpus"]


@pytest.fixture
def disk(tmp_path):
    """A function that makes the folder of the tables a disk of so many KiB, or changes its size."""
    mount = tmp_path / "l"
    mount.mkdir()

    def sized(kib, *, again=False):
        options = f"{'remount,' if again else ''}size={kib}k"
        command = ["mount", "-o", options, *(() if again else ("-t", "tmpfs", "tmpfs")), mount]
        made = subprocess.run(command, capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"cannot mount a small disk: {made.stderr.decode().strip()}")

    yield sized
    subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["update", "--overwrite", "--compact"])
def test_a_full_disk_in_each_phase_leaves_the_old_version(invoke, corpus, place, texts, tiny_bert, disk, how, tmp_path):
    """The disk has room for a bit more each time, so that it is full in one step after the other."""
    old, new = corpus
    options = () if how == "update" else (how,)
    index = ("index", "-m", tiny_bert, "--to", place)
    of_old, of_new = ({f"the {word} {n}" for n in range(count)} for word, count in (("cat", ROWS), ("dog", ROWS + 1)))
    failures = 0
    disk(4096)
    for room in range(4, 200, 12):
        shutil.rmtree(tmp_path / "l" / "corpus.lance", ignore_errors=True)
        shutil.rmtree(tmp_path / "l" / f"{NEXT}.lance", ignore_errors=True)
        ballast = tmp_path / "l" / "ballast"
        ballast.unlink(missing_ok=True)
        invoke(*index, old, check=0)
        free = shutil.disk_usage(tmp_path / "l").free
        ballast.write_bytes(bytes(max(free - room * 1024, 0)))
        done = invoke(*index, new, *options)
        answered = texts()
        assert answered in (of_old, of_new), room
        if done.exit_code == 0:
            break
        failures += 1
        assert done.exit_code == 1, done.stderr
        error = done.stderr.splitlines()[-1]
        assert error.startswith("error: lance:") and ("No space left" in error or "make room" in error), error
        ballast.unlink()
        again = json.loads(invoke(*index, new, *options, "--json", "-", check=0).stdout)["results"]
        assert again["rows"] == ROWS + 1
        assert texts() == of_new
    assert failures > 3 and texts() == of_new


def newest_manifest(folder):
    return min((folder / "_versions").glob("*.manifest"), key=lambda path: int(path.stem))


def with_flag(folder, field):
    """Give the newest version a feature that no release knows: 9 for readers, 10 for writers."""
    path = newest_manifest(folder)
    content = path.read_bytes()
    (start,) = struct.unpack("<Q", content[-16:-8])
    (length,) = struct.unpack("<I", content[start : start + 4])
    flag, number = bytearray([field << 3]), 1 << 40
    while number > 127:
        flag.append(number & 127 | 128)
        number >>= 7
    flag.append(number)
    message = content[start + 4 : start + 4 + length] + bytes(flag)
    path.write_bytes(content[:start] + struct.pack("<I", len(message)) + message + content[start + 4 + length :])


def torn(pattern, share):
    def change(folder):
        for path in folder.glob(pattern):
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return change


def removed(pattern):
    def change(folder):
        for path in folder.glob(pattern):
            path.unlink()

    return change


DAMAGES = {
    "torn manifest": torn("_versions/*.manifest", 0.5),
    "empty manifest": torn("_versions/*.manifest", 0),
    "no manifest": removed("_versions/*"),
    "torn data": torn("data/*", 0.5),
    "no data": removed("data/*"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_is_refused_and_made_anew(invoke, corpus, place, texts, tiny_bert, tmp_path, damage):
    old, _ = corpus
    index = ("index", old, "-m", tiny_bert, "--to", place)
    invoke(*index, check=0)
    DAMAGES[damage](tmp_path / "l" / "corpus.lance")
    for command in (("retrieve", "--corpus", place, "-m", tiny_bert, "--query", "x"), index):
        failed = invoke(*command, check=2)
        assert failed.stderr.splitlines()[-1].startswith(f"error: {place} corpus")
        assert "--overwrite" in failed.stderr
    invoke(*index, "--overwrite", check=0)
    assert len(texts()) == ROWS


@pytest.mark.slow
def test_a_pipe_among_the_files_is_named(invoke, run, corpus, place, tiny_bert, tmp_path):
    invoke("index", corpus[0], "-m", tiny_bert, "--to", place, check=0)
    (manifest,) = (tmp_path / "l" / "corpus.lance" / "_versions").glob("*.manifest")
    manifest.unlink()
    os.mkfifo(manifest)
    asked = run("retrieve", "--corpus", place, "-m", tiny_bert, "--query", "x", check=2, timeout=60)
    assert manifest.name in asked.stderr


@pytest.mark.slow
def test_a_damaged_record_is_refused(invoke, corpus, place, tiny_bert):
    invoke("index", corpus[0], "-m", tiny_bert, "--to", place, check=0)
    table = lancedb.connect(place.removeprefix("lance:")).open_table("corpus")
    table.update_field_metadata({"path": "embedding", "metadata": {"sentcli": '{"dimension": 3}'}})
    asked = ("retrieve", "--corpus", place, "-m", tiny_bert, "--query", "x")
    assert "record is damaged" in invoke(*asked, check=2).stderr
    invoke(*asked, "--at", 1, check=0)
    index = ("index", corpus[0], "-m", tiny_bert, "--to", place)
    assert "record is damaged" in invoke(*index, check=2).stderr
    invoke(*index, "--overwrite", check=0)
    invoke(*asked, check=0)


@pytest.mark.parametrize("field", [9, 10])
def test_a_table_that_a_newer_lancedb_wrote_is_refused_and_kept(invoke, corpus, place, tiny_bert, tmp_path, field):
    old, new = corpus
    folder = tmp_path / "l" / "corpus.lance"
    invoke("index", old, "-m", tiny_bert, "--to", place, check=0)
    with_flag(folder, field)
    before = newest_manifest(folder).read_bytes()
    asked = ("retrieve", "--corpus", place, "-m", tiny_bert, "--query", "x")
    if field == 9:
        assert "pip install -U lancedb" in invoke(*asked, check=2).stderr
    else:
        invoke(*asked, check=0)
    for options in ((), ("--overwrite",)):
        failed = invoke("index", new, "-m", tiny_bert, "--to", place, *options, check=2)
        assert "pip install -U lancedb" in failed.stderr
    assert newest_manifest(folder).read_bytes() == before
