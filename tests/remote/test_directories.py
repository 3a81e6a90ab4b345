"""Directories of shards in a store: the bytes of a local one, whatever happens on the way."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from sentcli.io.dataset_writer import ShardWriter
from tests.remote.conftest import files
from tests.tolerance import VECTORS

OUT = "s3://corpora/out"
SHARDS = ("--shard-rows", 30)
WHOLE = ["manifest.json", *(f"rows-{i:05d}.parquet" for i in range(3)), *(f"vectors-{i:05d}.npy" for i in range(3))]


@pytest.fixture
def local(encode, rows, tmp_path):
    """What `encode` writes on this machine."""
    encode(rows, "-o", tmp_path / "local", *SHARDS)
    return files(tmp_path / "local")


def encoded_rows(result):
    return json.loads(result.stdout)["results"]["rows_encoded"]


@pytest.mark.slow
def test_a_store_has_the_bytes_of_a_local_directory_and_the_manifest_comes_last(store, encode, rows, local, tmp_path):
    done = encode(rows, "-o", OUT, *SHARDS)
    assert "-> s3://corpora/out [90, 32]" in done.stderr
    assert store.contents("out") == local
    names = [name for name in store.uploads("out") if not name.startswith(".")]
    shards = ((f"vectors-{i:05d}.npy", f"rows-{i:05d}.parquet", "manifest.json") for i in range(3))
    assert names == ["manifest.json", *(name for shard in shards for name in shard)]
    assert not list((tmp_path / "temporary").iterdir())
    assert re.search(f"{OUT} .*90 rows .*3 shards", encode("--check", OUT).stderr)


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_a_directory_in_a_store_is_an_input_for_another_model(encode, rows, tiny_roberta, tmp_path):
    encode(rows, "-o", OUT, *SHARDS)
    for name, given in (("there", OUT), ("here", rows)):
        encode(given, "-o", tmp_path / f"{name}.jsonl", model=tiny_roberta)
    found, expected = ((tmp_path / f"{name}.jsonl").read_text("utf-8").splitlines() for name in ("there", "here"))
    for row, other in zip(map(json.loads, found), map(json.loads, expected), strict=True):
        assert row.pop("embedding") == pytest.approx(other.pop("embedding"), abs=VECTORS)
        assert row == other


@pytest.mark.slow
def test_a_directory_that_is_there_is_refused_and_overwritten_when_told(store, encode, rows, local):
    encode(rows, "-o", OUT, "--shard-rows", 10)
    refused = encode(rows, "-o", OUT, *SHARDS, check=2)
    assert re.search("s3://corpora/out .*--resume.*--overwrite", refused.stderr)
    encode(rows, "-o", OUT, *SHARDS, "--overwrite")
    assert store.contents("out") == local


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_an_update_in_a_store_is_that_of_this_machine(packed, store, encode, rows, tmp_path):
    """The corpus is in the store, too, and may be compressed."""
    pa = pytest.importorskip("pyarrow")

    def put(lines):
        content = "\n".join(lines).encode()
        store.put(
            "corpus.jsonl.zst" if packed else "corpus.jsonl",
            pa.compress(content, "zstd", asbytes=True) if packed else content,
        )

    corpus = "s3://corpora/corpus.jsonl.zst" if packed else "s3://corpora/corpus.jsonl"
    lines = rows.read_text("utf-8").splitlines()
    put(lines)
    for output in (OUT, tmp_path / "here"):
        encode(corpus, "-o", output, *SHARDS)
    put([*lines[5:40], *(line.replace("r5", "new5") for line in lines[50:]), lines[0]])
    said = {}
    for output in (OUT, tmp_path / "here"):
        said[output] = json.loads(encode(corpus, "-o", output, "--update", "--json", "-").stdout)["results"]
    counts = ("kept", "changed", "new", "gone", "encoded")
    assert [said[OUT][key] for key in counts] == [said[tmp_path / "here"][key] for key in counts]
    assert said[OUT]["kept"] > 60 and said[OUT]["new"] > 0 and said[OUT]["gone"] > 0
    assert store.contents("out") == files(tmp_path / "here")


def test_files_of_others_are_not_touched(store, encode, rows):
    store.put("out/notes.txt", b"mine")
    refused = encode(rows, "-o", OUT, "--overwrite", check=2)
    assert re.search(r"s3://corpora/out .*manifest\.json.* -o", refused.stderr)
    assert store.contents("out") == {"notes.txt": b"mine"}


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_same_bytes(store, encode, rows, local, monkeypatch):
    publish = ShardWriter.publish

    def interrupted(writer):
        if writer.place.number == 1:
            raise KeyboardInterrupt
        return publish(writer)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "publish", interrupted)
        encode(rows, "-o", OUT, *SHARDS, check=130)
    assert store.names("out") == ["manifest.json", "rows-00000.parquet", "vectors-00000.npy"]
    assert encoded_rows(encode(rows, "-o", OUT, *SHARDS, "--resume", "--json", "-")) == 60
    assert store.contents("out") == local


@pytest.mark.slow
def test_resume_of_a_whole_directory_uploads_nothing_and_other_settings_are_refused(store, encode, rows):
    encode(rows, "-o", OUT, *SHARDS)
    store.requests.clear()
    assert encoded_rows(encode(rows, "-o", OUT, *SHARDS, "--resume", "--json", "-")) == 0
    assert [name for name in store.uploads("out") if not name.startswith(".")] == []
    refused = encode(rows, "-o", OUT, *SHARDS, "--resume", "--pooling", "cls", check=2)
    assert re.search("s3://corpora/out .*pooling 'mean' .*'cls' .*--overwrite", refused.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows-00001.parquet", None, r"rows-00001\.parquet "),
        ("vectors-00001.npy", b"torn", r"vectors-00001\.npy .*4 bytes"),
        ("rows-00001.parquet", b"", r"rows-00001\.parquet .*0 bytes"),
    ],
)
def test_a_shard_that_is_torn_is_made_again(store, encode, rows, local, name, content, words):
    encode(rows, "-o", OUT, *SHARDS)
    store.delete(f"out/{name}") if content is None else store.put(f"out/{name}", content)
    checked = encode("--check", OUT, check=1)
    assert f"error: s3://corpora/out: {name} " in checked.stderr
    again = encode(rows, "-o", OUT, *SHARDS, "--resume", "--json", "-")
    assert encoded_rows(again) == 30 and re.search(f"warning: {words}", again.stderr)
    assert store.contents("out") == local


@pytest.mark.slow
def test_check_reads_what_resume_trusts(store, encode, rows, local):
    encode(rows, "-o", OUT, *SHARDS)
    vectors = bytearray(local["vectors-00002.npy"])
    vectors[-1] ^= 1
    store.put("out/vectors-00002.npy", bytes(vectors))
    store.put("out/vectors-00007.npy", b"stray")
    checked = encode("--check", OUT, check=1)
    assert re.search(r"s3://corpora/out: vectors-00002\.npy .*SHA-256.*vectors-00007\.npy .*--resume", checked.stderr)


@pytest.mark.slow
def test_parts_of_machines_are_one_directory_to_which_rows_are_appended(store, encode, rows, tmp_path):
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"id": f"m{i}", "text": f"a cat {i}", "n": i}) + "\n" for i in range(7)))
    for place in (OUT, tmp_path / "out"):
        encode(rows, "-o", place, *SHARDS, "--shard", "1/2")
        encode(rows, "-o", place, *SHARDS, "--shard", "2/2")
        encode(more, "-o", place, *SHARDS, "--append")
    assert store.contents("out") == files(tmp_path / "out")
    assert re.search(f"{OUT} .*97 rows .*4 shards", encode("--check", OUT).stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [pytest.param("some 500", marks=pytest.mark.deep), "drop", pytest.param("slow", marks=pytest.mark.deep)]
)
def test_faults_that_pass_do_not_change_a_byte(store, encode, rows, local, fault):
    store.fault = fault
    encode(rows, "-o", OUT, *SHARDS)
    store.fault = ""
    assert store.contents("out") == local


@pytest.mark.parametrize(
    ("output", "fault", "code", "words"),
    [
        ("s3://nowhere-at-all/out", "", 2, "s3://nowhere-at-all/out: .*'nowhere-at-all'"),
        (OUT, "read-only", 2, "s3://corpora/out .*AccessDenied"),
        ("s3://corpora/out.npy", "", 2, r"s3://corpora/out\.npy: .*-o"),
        ("https://127.0.0.1/out", "", 2, "https://127.0.0.1/out: .*s3://"),
        ("hf://datasets/own/set/out", "", 2, "hf://datasets/own/set/out: .*s3://"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_first(store, encode, output, fault, code, words):
    store.fault = fault
    failed = encode("not-there.txt", "-o", output, check=code)
    assert re.search(words, failed.stderr)


@pytest.mark.slow
def test_a_store_that_fails_in_the_middle_keeps_what_it_has(store, encode, rows, local, monkeypatch):
    monkeypatch.setattr("sentcli.io.object_stores.PAUSES", (0.01,))
    publish = ShardWriter.publish

    def failing(writer):
        store.fault = "500" if writer.place.number == 2 else ""
        return publish(writer)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "publish", failing)
        failed = encode(rows, "-o", OUT, *SHARDS, check=1)
    assert re.search(r"s3://corpora/out/vectors-00002\.npy .*500", failed.stderr)
    store.fault = ""
    assert encoded_rows(encode(rows, "-o", OUT, *SHARDS, "--resume", "--json", "-")) == 30
    assert store.contents("out") == local


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--method", "simcse", "--data", "a.txt", "-o", "s3://corpora/run"),
        ("export", "-o", "s3://corpora/export"),
        ("encode", "a.txt", "-o", "out.npy", "--json", "s3://corpora/a.json"),
    ],
)
def test_other_outputs_are_refused(store, invoke, tiny_bert, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    failed = invoke(*arguments, "-m", tiny_bert, check=2)
    assert "s3://" in failed.stderr
    command = f"aws s3 cp --recursive FOLDER {arguments[-1]}"
    assert (command in " ".join(failed.stderr.split())) == (arguments[-2] == "-o")
    assert not (tmp_path / "s3:").exists()


@pytest.mark.slow
def test_a_run_that_is_killed_resumes_to_the_same_bytes(store, variables, rows, tiny_bert, encode, local, tmp_path):
    store.put("rows.jsonl", rows.read_bytes())
    store.pause = 0.3
    arguments = ["encode", "s3://corpora/rows.jsonl", "-o", OUT, "--shard-rows", "30", "-m", str(tiny_bert)]
    environment = {**os.environ, **variables}
    run = subprocess.Popen(
        [sys.executable, "-m", "sentcli", *arguments, "--backend", "torch"], env=environment, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while "vectors-00001.npy" not in store.names("out"):
        assert run.poll() is None and time.monotonic() < deadline, run.stderr.read()
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    store.pause = 0.0
    done = json.loads(store.get("out/manifest.json"))["rows_done"]
    assert done == 30, "the killed run was not in the middle"
    [left] = (tmp_path / "temporary").iterdir()
    os.utime(left / ".lock", (0, 0))  # as if the run had begun long ago
    resumed = encode("s3://corpora/rows.jsonl", "-o", OUT, *SHARDS, "--resume", "--json", "-")
    assert encoded_rows(resumed) == 60
    assert not left.exists(), "the copies of the killed run are still there"
    assert store.contents("out") == local
