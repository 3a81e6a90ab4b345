"""What is written: types of numbers, fewer dimensions, and settings that a resume does not change."""

import errno
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli.compression import as_int8
from tests.stores.outputs import contents, manifest_of, message_of, vectors_of
from tests.tolerance import VECTORS

FORMATS = ["v.npy", "v.parquet", "v.safetensors", "v.jsonl", "v"]
TEXTS = [
    f"the {size} {animal} sat on {n} mats" for n in range(8) for size in ("big", "small") for animal in ("cat", "dog")
]


@pytest.fixture
def source(write):
    return write("a.txt", TEXTS)


@pytest.fixture(scope="session")
def whole(encoder):
    """The vectors before they are made smaller."""
    return encoder.encode(TEXTS)


SMALLER = {
    "float32": lambda vectors: vectors,
    "float16": lambda vectors: vectors.astype(np.float16),
    "int8": as_int8,
    "binary": lambda vectors: np.packbits(vectors > 0, axis=1),
}


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", SMALLER)
def test_vectors_have_the_type_that_was_chosen(encode, source, tmp_path, whole, kind, name):
    done = encode(source, "-o", tmp_path / name, "--output-dtype", kind, "--shard-rows", 10, "--json", "-")
    encode(source, "-o", tmp_path / "plain.npy", "--shard-rows", 10)
    wanted = SMALLER[kind](np.load(tmp_path / "plain.npy"))
    found = vectors_of(tmp_path / name)
    if name != "v.jsonl":
        assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.astype(wanted.dtype), wanted)
    report = json.loads(done.stdout)
    assert (report["protocol"]["output_dtype"], report["results"]["dimension"]) == (kind, wanted.shape[1])


def test_a_parquet_file_says_its_type(encode, source, tmp_path):
    for kind, element in (("float16", pa.float16()), ("int8", pa.int8()), ("binary", pa.uint8())):
        encode(source, "-o", tmp_path / f"{kind}.parquet", "--output-dtype", kind)
        width = 4 if kind == "binary" else 32
        assert pq.read_schema(tmp_path / f"{kind}.parquet").field("embedding").type == pa.list_(element, width)


def test_a_manifest_says_type_and_width(encode, source, tmp_path):
    encode(source, "-o", tmp_path / "v", "--output-dtype", "binary", "--truncate-dim", 16)
    manifest = manifest_of(tmp_path / "v")
    assert (manifest["dtype"], manifest["dimension"]) == ("uint8", 2)
    assert (manifest["settings"]["output_dtype"], manifest["settings"]["truncate_dim"]) == ("binary", 16)
    encode("--check", tmp_path / "v")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_search_works_on_smaller_numbers(encode, invoke, source, tmp_path, tiny_bert, kind):
    encode(source, "-o", tmp_path / "v", "--output-dtype", kind)
    call = ["retrieve", "-m", tiny_bert, "--corpus", tmp_path / "v", "--query", TEXTS[5], "--top-k", 3]
    (found,) = json.loads(invoke(*call, "--json", "-", check=0).stdout)["results"]
    assert found["hits"][0]["text"] == TEXTS[5]
    assert found["hits"][0]["score"] == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize("normalize", [True, False])
def test_cut_vectors_are_unit_length_where_whole_ones_are(encode, source, tmp_path, tiny_bert, normalize):
    flag = "--normalize" if normalize else "--no-normalize"
    encode(source, "-o", tmp_path / "whole.npy", flag)
    encode(source, "-o", tmp_path / "v.npy", flag, "--truncate-dim", 8)
    first = np.load(tmp_path / "whole.npy")[:, :8]
    wanted = first / np.linalg.norm(first, axis=1, keepdims=True) if normalize else first
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=VECTORS)


@pytest.mark.parametrize("width", [33, 1000])
def test_more_dimensions_than_there_are(encode, source, tmp_path, width):
    failed = encode(source, "-o", tmp_path / "v.npy", "--truncate-dim", width, check=2)
    assert re.search(f"--truncate-dim {width} .*32 ", message_of(failed))


# Resuming


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch-tokens", 64], "batch_tokens 512 .*64 "),
        (["--on-long", "chunk-mean"], "on_long 'truncate' .*'chunk-mean' "),
        (["--output-dtype", "int8"], "output_dtype 'float32' .*'int8' "),
        (["--truncate-dim", 8], "truncate_dim None .*8 "),
        (["--max-length", 16], "max_length 32 .*16 "),
        (["--backend", "torch"], "backend 'onnx' .*'torch' "),
        (["--prompt", "the "], "prompt '' .*'the ' "),
        (["--on-null", "skip"], "on_null 'error' .*'skip' "),
    ],
)
def test_resume_refuses_another_setting_and_shows_which(encode, source, tmp_path, options, words):
    out = tmp_path / "v"
    encode(source, "-o", out, "--shard-rows", 10)
    (out / "vectors-00002.npy").unlink()
    before = contents(out)
    failed = encode(source, "-o", out, "--shard-rows", 10, "--resume", *options, check=2)
    assert re.search(f"{out} .*{words}.*--overwrite", message_of(failed))
    assert contents(out) == before


def test_a_setting_of_another_version_that_was_not_used_is_no_difference(encode, source, tmp_path):
    out = tmp_path / "v"
    encode(source, "-o", out, "--shard-rows", 10)
    whole = contents(out)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["settings"]["pca_sha256"] = None
    (out / "manifest.json").write_text(json.dumps(manifest))
    (out / "vectors-00001.npy").unlink()
    encode(source, "-o", out, "--shard-rows", 10, "--resume")
    assert contents(out) == whole


@pytest.mark.parametrize("name", ["vectors", "vectors.npy"])
def test_no_room_for_the_vectors_is_found_before_they_are_made(name, tiny_bert, tmp_path, invoke, monkeypatch):
    (tmp_path / "rows.txt").write_text("".join(f"the cat {number}\n" for number in range(50)))
    encode = ("encode", tmp_path / "rows.txt", "-m", tiny_bert, "-o")
    size = 50 * 32 * 4
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=size - 1))
    assert "MB" in invoke(*encode, tmp_path / f"none-{name}", check=1).stderr
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=size))
    invoke(*encode, tmp_path / name, check=0)


@pytest.mark.parametrize("to", [("-o", "-"), ("--to", "lance:reviews")])
def test_a_full_temporary_folder_is_named(to, tiny_bert, write, tmp_path, invoke, monkeypatch):
    """What goes to standard output or into a database keeps the vectors of texts that repeat there."""

    def full(**options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sentcli.stores.row_vectors.tempfile.TemporaryFile", full)
    verb = "encode" if to[0] == "-o" else "index"
    failed = invoke(verb, write("a.txt", ["a cat", "a dog"]), *to, "-m", tiny_bert, check=1)
    assert re.search(f"error: {tmp_path} .*TMPDIR.*: No space left.*same command", failed.stderr)
