"""Bulk encoding that is killed again and again, that runs out of disk, and that meets odd rows."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli import SentenceEncoder
from tests.conftest import heed_ctrl_c
from tests.stores.outputs import contents, manifest_of, message_of, rows_of, vectors_of
from tests.tolerance import VECTORS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and limits")

SHARD_ROWS, SHARDS = 10, 400
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    """Makes the export, too, that every `encode` here runs."""
    return SentenceEncoder.load(tiny_bert)


@pytest.fixture
def encode(invoke, tiny_bert, encoder):
    def call(*arguments, check=0):
        return invoke("encode", *arguments, "-m", tiny_bert, "--pooling", "mean", check=check)

    return call


# Killed


def command(source, out, model):
    words = ["encode", source, "-o", out, "-m", model, "--pooling", "mean", "--shard-rows", SHARD_ROWS, "--resume"]
    return [sys.executable, "-m", "sentcli", *map(str, words)]


@contextlib.contextmanager
def started(source, out, model):
    call = command(source, out, model)
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(call, **pipes, text=True, env=ONE_THREAD, preexec_fn=heed_ctrl_c) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(out):
    """Shards that the manifest lists, with when their files were written."""
    if not (out / "manifest.json").exists():
        return {}
    names = [shard[kind] for shard in manifest_of(out)["shards"] for kind in ("vectors", "rows")]
    return {name: (out / name).stat().st_mtime_ns for name in names}


def kill_at_random(process, out, rng, kills_left):
    """Kill a run some time after its start or after some more shards; enough are left for the other kills."""
    there = len(list(out.glob("vectors-*")))
    more = rng.randrange((SHARDS - there) // (kills_left + 2))
    deadline = time.monotonic() + (rng.uniform(0, 0.8) if kills_left % 4 == 3 else 120)
    while time.monotonic() < deadline and not (out / f"vectors-{there + more:05d}.npy").exists():
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.01))
    assert process.poll() is None, f"ended too early: {process.communicate()}"
    process.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("encoder")
@pytest.mark.parametrize("kills", [10, pytest.param(20, marks=pytest.mark.deep)])
def test_kills_cost_no_row_and_no_finished_shard(kills, tiny_bert, tmp_path, record_property):
    source, out, whole = tmp_path / "rows.txt", tmp_path / "out", tmp_path / "whole"
    texts = [f"the cat {n % 350} sat on {n % 7} red mats" for n in range(SHARD_ROWS * SHARDS - 3)]
    source.write_text("".join(f"{text}\n" for text in texts))
    subprocess.run(command(source, whole, tiny_bert), check=True, capture_output=True, env=ONE_THREAD)
    rng, before, kept = random.Random(5), {}, []
    for kills_left in reversed(range(kills)):
        with started(source, out, tiny_bert) as process:
            kill_at_random(process, out, rng, kills_left)
        there = finished(out)
        assert before.items() <= there.items(), "a finished shard was made again"
        assert [name for name in there if (out / name).read_bytes() != (whole / name).read_bytes()] == []
        before = there
        kept.append(len(there) // 2)
    record_property("finished shards after each kill", kept)
    assert len(set(kept)) > kills / 2, "most kills came while shards were made"
    done = subprocess.run(command(source, out, tiny_bert), check=True, capture_output=True, env=ONE_THREAD, text=True)
    assert before.items() <= finished(out).items(), "a finished shard was made again"
    assert contents(out) == contents(whole)
    assert "vectors-0" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("torn", ["vectors-00001.npy", "rows-00001.parquet", "manifest.json"])
def test_files_torn_by_a_power_cut_are_found_or_mended(encode, tmp_path, torn):
    """A file system may lose the last bytes of a file although it was renamed."""
    source, out = tmp_path / "rows.txt", tmp_path / "out"
    source.write_text("".join(f"the cat {n}\n" for n in range(35)))
    encode(source, "-o", out, "--shard-rows", 10)
    whole = contents(out)
    (out / torn).write_bytes(whole[torn][: len(whole[torn]) // 2])
    if torn == "manifest.json":
        failed = encode(source, "-o", out, "--shard-rows", 10, "--resume", check=2)
        assert re.search(rf"{out}/manifest\.json .*--overwrite", message_of(failed))
        encode(source, "-o", out, "--shard-rows", 10, "--overwrite")
    else:
        done = encode(source, "-o", out, "--shard-rows", 10, "--resume")
        assert re.search(f"{torn} .*SHA-256", message_of(done))
    assert contents(out) == whole


# A full disk


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a small disk: {made.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_a_full_disk_keeps_the_finished_shards_and_resume_completes_them(encode, small_disk, tmp_path):
    source, out, whole = tmp_path / "rows.txt", small_disk / "out", tmp_path / "whole"
    source.write_text("".join(f"the cat {n} sat on {n * 7} red mats\n" for n in range(1500)))
    call = [source, "--shard-rows", 100, "-o"]
    failed = encode(*call, out, check=1)
    assert failed.stderr.count("\n") == 1
    assert failed.stderr.startswith(f"error: {small_disk}")
    assert "No space left on device" in failed.stderr and "--resume" in failed.stderr
    done = manifest_of(out)["rows_done"]
    assert 0 < done < 1500
    assert not list(small_disk.rglob(".*")), "a partial file was left"
    stamps = finished(out)
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    assert f"{1500 - done} rows, {done} " in message_of(encode(*call, out, "--resume"))
    assert stamps.items() <= finished(out).items()
    encode(*call, whole)
    assert contents(out) == contents(whole)


def test_an_export_that_does_not_fit_the_disk_leaves_nothing(invoke, small_disk, tiny_bert):
    (small_disk / "ballast").write_bytes(bytes(150_000))
    failed = invoke("export", "-m", tiny_bert, "-o", small_disk / "out", "--pooling", "mean", check=1)
    assert failed.stderr.startswith("error: ")
    assert failed.stderr.count("\n") == 1
    assert "No space left on device" in failed.stderr or "os error 28" in failed.stderr
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


# Odd rows


@pytest.mark.slow
def test_a_row_of_5_mb_is_a_row_like_any_other(encode, encoder, tmp_path):
    long = "the cat sat on the mat " * 230_000
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a dog", long, "a bird")))
    assert source.stat().st_size > 5_000_000
    done = encode(source, "-o", tmp_path / "v")
    lost = re.search(r"1 rows .*\b32 tokens .*\b(\d+) tokens", message_of(done))
    assert int(lost[1]) == pytest.approx(1379970, rel=1e-3), "estimated, for it is cut before it is tokenised"
    expected = encoder.encode(["a dog", "the cat sat on the mat " * 5, "a bird"])
    np.testing.assert_allclose(vectors_of(tmp_path / "v"), expected, atol=VECTORS)
    assert [row["text"] for row in rows_of(tmp_path / "v", "text")] == ["a dog", long, "a bird"]


@pytest.mark.slow
def test_the_mean_of_the_pieces_of_a_row_of_5_mb(encode, encoder, tmp_path):
    long = "the cat sat on the mat " * 230_000
    (tmp_path / "rows.txt").write_text(f"{long}\na dog\n")
    encode(tmp_path / "rows.txt", "-o", tmp_path / "v.npy", "--on-long", "chunk-mean")
    # 30 words are five times the same six: every piece is equal
    expected = encoder.encode(["the cat sat on the mat " * 5, "a dog"])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=VECTORS)


def test_10_000_empty_rows_are_encoded_once_and_counted(encode, encoder, tmp_path):
    source, out = tmp_path / "rows.txt", tmp_path / "v"
    source.write_text("\n" * 9_999 + "a cat\n")
    done = encode(source, "-o", out, "--json", "-")
    results = json.loads(done.stdout)["results"]
    counts = {"rows": 10_000, "empty": 9_999, "duplicates": 9_998, "distinct": 2, "tokens": 2 + 4}
    assert {key: results[key] for key in counts} == counts
    found = vectors_of(out)
    np.testing.assert_array_equal(found[:-1], np.tile(found[0], (9_999, 1)))
    np.testing.assert_allclose(found[[0, -1]], encoder.encode(["", "a cat"]), atol=VECTORS)
    assert rows_of(out, "id", "text")[9_998:] == [{"id": "9998", "text": ""}, {"id": "9999", "text": "a cat"}]


CONTROLS = [f"a{chr(code)}cat" for code in (*range(0x20), 0x7F, 0x85, 0x200B, 0x2028, 0xFEFF, 0xFFFE, 0x10FFFF)]


@pytest.mark.parametrize("name", ["v", "v.parquet", "v.jsonl"])
def test_control_characters_go_through_unchanged(encode, encoder, tmp_path, name):
    source, out = tmp_path / "rows.jsonl", tmp_path / name
    source.write_text("".join(json.dumps({"text": text, "note": text}) + "\n" for text in CONTROLS))
    encode(source, "-o", out)
    if name == "v.jsonl":
        rows = [json.loads(line) for line in out.read_text("utf-8").split("\n")[:-1]]
    else:
        rows = rows_of(out) if name == "v" else pq.read_table(out).to_pylist()
    assert [(row["text"], row["note"]) for row in rows] == [(text, text) for text in CONTROLS]
    np.testing.assert_allclose(vectors_of(out), encoder.encode(CONTROLS), atol=VECTORS)


def test_control_characters_do_not_reach_the_terminal(encode, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps({"id": "\x1b[31mred\x07", "text": "the " * 60}) + "\n")
    failed = encode(source, "-o", tmp_path / "v.npy", "--on-long", "error", check=2)
    assert not set("\x1b\x07") & set(failed.stderr)


def test_lone_surrogates_become_the_replacement_character(encode, encoder, tmp_path):
    source, out = tmp_path / "rows.jsonl", tmp_path / "v"
    source.write_text('{"text": "a \\ud800 cat"}\n{"text": "a \\udfff cat"}\n{"text": "a \\ud83d\\ude42 cat"}\n')
    encode(source, "-o", out)
    assert [row["text"] for row in rows_of(out, "text")] == ["a \ufffd cat", "a \ufffd cat", "a \U0001f642 cat"]
    assert manifest_of(out)["counts"]["duplicates"] == 1
    found = vectors_of(out)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(
        found, encoder.encode(["a \ud800 cat", "a \ufffd cat", "a \U0001f642 cat"]), atol=VECTORS
    )


def test_line_breaks_inside_csv_fields_are_part_of_a_text(encode, encoder, tmp_path):
    source, out = tmp_path / "rows.csv", tmp_path / "v"
    texts = ["a cat\nsat", 'she said "no",\r\nand left', "", "\n\n", "a dog"]
    quoted = ['"{}"'.format(text.replace('"', '""')) for text in texts]
    source.write_bytes(("id,text\n" + "".join(f"r{n},{text}\n" for n, text in enumerate(quoted))).encode())
    encode(source, "-o", out, "--shard-rows", 2)
    assert rows_of(out, "id", "text") == [{"id": f"r{n}", "text": text} for n, text in enumerate(texts)]
    np.testing.assert_allclose(vectors_of(out), encoder.encode(texts), atol=VECTORS)
    assert manifest_of(out)["counts"]["empty"] == 2


@pytest.fixture
def nulls(tmp_path):
    """A parquet file in which some texts are null, with ids and a further column."""
    texts = ["a cat", None, "", None, "a dog", "a cat"]
    table = {"id": [f"r{n}" for n in range(6)], "text": pa.array(texts, pa.string()), "n": [1, 2, None, 4, 5, 6]}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet", row_group_size=2)
    return tmp_path / "rows.parquet"


def test_nulls_of_a_parquet_file_are_an_error_that_names_the_row(encode, nulls, tmp_path):
    failed = encode(nulls, "-o", tmp_path / "v", check=2)
    assert re.search(f"{nulls}, row 2: 'text' .*--on-null empty .*skip", message_of(failed))
    assert not (tmp_path / "v").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_null", "ids", "texts", "numbers", "empty", "skipped"),
    [
        ("empty", "012345", ["a cat", "", "", "", "a dog", "a cat"], [1, 2, None, 4, 5, 6], 3, 0),
        ("skip", "0245", ["a cat", "", "a dog", "a cat"], [1, None, 5, 6], 1, 2),
    ],
)
@pytest.mark.parametrize("shards", [[], ["--shard-rows", 2]])
def test_nulls_of_a_parquet_file_are_empty_texts_or_left_out(
    encode, encoder, nulls, tmp_path, on_null, ids, texts, numbers, empty, skipped, shards
):
    out = tmp_path / "v"
    done = encode(nulls, "-o", out, "--on-null", on_null, *shards, "--json", "-")
    rows = rows_of(out)
    assert [(row["id"], row["text"], row["n"]) for row in rows] == [
        (f"r{name}", text, number) for name, text, number in zip(ids, texts, numbers, strict=True)
    ]
    np.testing.assert_allclose(vectors_of(out), encoder.encode(texts), atol=VECTORS)
    results = json.loads(done.stdout)["results"]
    assert (results["rows"], results["empty"], results["rows_skipped"]) == (len(texts), empty, skipped)
    encode(nulls, "-o", out, "--on-null", on_null, *shards, "--resume")
    encode("--check", out)
