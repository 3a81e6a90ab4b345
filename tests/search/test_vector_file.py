"""`retrieve --corpus` searches the files that `encode` wrote, without encoding their texts again."""

import json
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tolerance import Near
from tests.verbs.test_retrieve_corpus import ROWS, hits

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
OPTIONS = ("--query", "the cat", "--query", "red fish", "--top-k", 3, "--json", "-")
FILES = ["corpus.parquet", "corpus.safetensors", "corpus.npy"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def encoded(corpus, invoke, tiny_bert):
    """A function that encodes the corpus into a file beside it."""

    def encode(name, *options, model=tiny_bert):
        invoke("encode", corpus, "-o", corpus.parent / name, "-m", model, *options, check=0)
        return corpus.parent / name

    return encode


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_vectors_gives_the_hits_of_its_texts(invoke, corpus, encoded, tiny_bert, name):
    from_texts = hits(invoke("retrieve", "--corpus", corpus, *OPTIONS, "-m", tiny_bert, check=0))
    assert hits(invoke("retrieve", "--corpus", encoded(name), *OPTIONS, "-m", tiny_bert, check=0)) == from_texts


def test_the_vectors_of_the_file_are_searched_and_not_new_ones(invoke, corpus, encoded, tiny_bert):
    path = encoded("corpus.npy")
    vectors = np.load(path)
    turned = vectors[0] + 0.02 * vectors[1]
    expected = vectors[0] @ turned / np.linalg.norm(vectors[0]) / np.linalg.norm(turned)
    np.save(path, np.concatenate([turned[None], vectors[1:]]))
    first = hits(invoke("retrieve", "--corpus", path, "--query", ROWS[0]["text"], "-m", tiny_bert, "--json", "-"))
    assert first[0][0][1:3] == ("d1", Near(expected)) and expected < 1


def test_vectors_that_the_model_has_not_made_are_refused(invoke, corpus, encoded, tiny_bert):
    path = encoded("corpus.npy")
    np.save(path, np.load(path)[::-1])
    failed = invoke("retrieve", "--corpus", path, "--query", "x", "-m", tiny_bert, check=2)
    assert f"are not {tiny_bert}'s" in failed.stderr


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("name", ["corpus.parquet", "corpus.safetensors", "directory"])
@pytest.mark.parametrize("loading", [(), ("--pooling", "cls", "--max-length", 12)])
def test_without_a_model_the_one_that_made_the_vectors_is_taken(invoke, encoded, tiny_bert, name, loading):
    path = encoded(name, *loading)
    expected = hits(invoke("retrieve", "--corpus", path, *OPTIONS, "-m", tiny_bert, *loading, check=0))
    done = invoke("retrieve", "--corpus", path, *OPTIONS, check=0)
    assert hits(done) == expected
    assert json.loads(done.stdout)["model"] == str(tiny_bert)


def test_a_named_model_that_is_not_there_or_has_changed_is_refused(invoke, encoded, tiny_bert, tiny_roberta, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_bert, model)
    path = encoded("corpus.parquet", model=model)
    shutil.rmtree(model)
    failed = invoke("retrieve", "--corpus", path, "--query", "x", check=2)
    assert f"{path} was encoded with {model}, which is not on this machine: give the model with -m" in failed.stderr
    shutil.copytree(tiny_roberta, model)
    assert "the vectors do not compare" in invoke("retrieve", "--corpus", path, "--query", "x", check=2).stderr


def test_a_file_without_a_record_needs_the_model_and_its_dimension(invoke, encoded, tiny_bert):
    path = encoded("corpus.npy")
    failed = invoke("retrieve", "--corpus", path, "--query", "x", check=2)
    assert f"{path} does not say which model made its vectors: give that model with -m" in failed.stderr
    done = invoke("retrieve", "--corpus", path, "--query", "x", "-m", tiny_bert, check=0)
    assert f"{path} does not say which model made its vectors; it has to be {tiny_bert}" in done.stderr
    np.save(path, np.ones((5, 7), np.float32))
    failed = invoke("retrieve", "--corpus", path, "--query", "x", "-m", tiny_bert, check=2)
    assert f"{path} has vectors of 7 dimensions, {tiny_bert} makes 32" in failed.stderr


def test_hits_show_no_vectors_and_keep_the_other_columns(invoke, tmp_path, tiny_bert):
    (tmp_path / "a.csv").write_text("text,kind\nthe cat,animal\na tree,plant\n")
    for name in ("v.jsonl", "v.parquet"):
        invoke("encode", tmp_path / "a.csv", "-o", tmp_path / name, "-m", tiny_bert, check=0)
        call = ("retrieve", "--corpus", tmp_path / name, "--query", "the cat", "-m", tiny_bert)
        done = invoke(*call, check=0)
        assert "embedding" not in done.stdout and "kind: animal" in done.stdout
        assert ("its texts encoded again" in done.stderr) == (name == "v.jsonl")
        found = json.loads(invoke(*call, "--json", "-", check=0).stdout)["results"][0]["hits"][0]
        assert found["columns"] == {"kind": "animal"}


def test_parquet_of_other_tools_is_searched_by_its_column(invoke, tmp_path, tiny_bert):
    from sentcli import SentenceEncoder

    vectors = SentenceEncoder.load(tiny_bert).encode([row["text"] for row in ROWS]).astype(np.float64)
    table = pa.table({"key": [7, 8, 9, 10, 11], "body": [row["text"] for row in ROWS], "embedding": list(vectors)})
    pq.write_table(table, tmp_path / "v.parquet", row_group_size=2)
    fields = ("--text-field", "body", "--id-field", "key")
    call = ("retrieve", "--corpus", tmp_path / "v.parquet", *fields, "--query", ROWS[1]["text"], "-m", tiny_bert)
    assert hits(invoke(*call, "--json", "-", check=0))[0][0] == (1, "8", 1.0, ROWS[1]["text"])


def test_texts_are_found_beside_or_named_and_have_to_be_the_same(invoke, corpus, encoded, tiny_bert, tmp_path):
    path = encoded("vectors.safetensors")
    call = ("retrieve", "--corpus", path, "--query", "the cat", "--json", "-")
    expected = hits(invoke(*call, check=0))
    moved = corpus.rename(tmp_path / "other.jsonl")
    assert "holds vectors without their texts" in invoke(*call, check=2).stderr
    assert hits(invoke(*call, "--texts", moved, check=0)) == expected
    moved.write_text(moved.read_text().replace("cat", "dog"))
    failed = invoke(*call, "--texts", moved, check=2)
    assert "was encoded from corpus.jsonl" in failed.stderr and "does not hold the same bytes" in failed.stderr
    np.save(tmp_path / "other.npy", np.ones((4, 32), np.float32))
    failed = invoke("retrieve", "--corpus", tmp_path / "other.npy", "--query", "x", "-m", tiny_bert, check=2)
    assert f"other.npy has 4 vectors, {moved} has 5 texts: not the same texts" in failed.stderr


def test_rows_that_were_skipped_are_skipped_again(invoke, corpus, encoded):
    corpus.write_text(corpus.read_text().replace('"a red fish swam"', "null"))
    path = encoded("v.safetensors", "--on-null", "skip")
    found = hits(invoke("retrieve", "--corpus", path, "--query", ROWS[2]["text"], "--json", "-", check=0))
    assert found[0][0][1:3] == ("d3", 1.0)


@pytest.mark.skipif(sys.platform != "linux", reason="a backslash, and bytes that are no UTF-8, in names of files")
@pytest.mark.parametrize("name", ["a\\b.jsonl", "caf\udce9.jsonl"])
@pytest.mark.parametrize("output", ["v", "v.parquet", "v.safetensors"])
def test_a_file_may_have_any_name_that_the_system_allows(invoke, corpus, tmp_path, tiny_bert, name, output):
    source = corpus.rename(tmp_path / name)
    invoke("encode", source, "-m", tiny_bert, "-o", tmp_path / output, check=0)
    beside = {"v.safetensors": ("--texts", source)}.get(output, ())
    asked = ("retrieve", "--corpus", tmp_path / output, "--query", ROWS[1]["text"], *beside, "--json", "-")
    assert hits(invoke(*asked, check=0))[0][0][1] == "d2"


def test_what_is_no_table_of_texts_is_not_said_to_hold_texts(invoke, corpus, tmp_path, tiny_bert):
    (tmp_path / "index.faiss").write_bytes(b"IxFI" + bytes(99))
    for options in (("--texts", corpus), ("--vector-field", "vec")):
        for name, words in {"index.faiss": "index of faiss", "nothing": "no such file"}.items():
            asked = ("retrieve", "--corpus", tmp_path / name, "-m", tiny_bert, "--query", "cat", *options)
            assert words in invoke(*asked, check=2).stderr
    assert "--texts" in invoke("retrieve", "--corpus", corpus, "--query", "cat", "--texts", corpus, check=2).stderr


def spoil_parquet(path, change):
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"sentcli": change(json.loads(table.schema.metadata[b"sentcli"]))}
    pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (lambda record: b"{", "damaged settings"),
        (lambda record: b"[1]", "damaged settings (they are no JSON object)"),
        (lambda record: json.dumps({**record, "truncate_dim": "many"}), "damaged settings (truncate_dim:"),
        (lambda record: json.dumps({**record, "inputs": [{"name": "../x", "sha256": ""}]}), "inputs.0.name:"),
        (
            lambda record: json.dumps({**record, "model": "no/such-model"}),
            "no/such-model, which is not on this machine",
        ),
    ],
)
def test_a_spoiled_record_is_told(invoke, encoded, settings, words):
    path = encoded("corpus.parquet")
    spoil_parquet(path, settings)
    failed = invoke("retrieve", "--corpus", path, "--query", "x", check=2)
    assert str(path) in failed.stderr and words in failed.stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.npy", b"\x93NUMPY nothing", "not a NumPy array"),
        ("a.npy", None, "an array (3,) of float32; vectors are numbers [rows, dimensions]"),
        ("a.safetensors", b"x" * 99, "not a readable safetensors file"),
        ("a.parquet", b"PAR1 and PAR1", "not a readable Parquet file"),
    ],
)
def test_a_damaged_file_of_vectors_is_told(invoke, tmp_path, tiny_bert, name, content, words):
    if content is None:
        np.save(tmp_path / name, np.ones(3, np.float32))
    else:
        (tmp_path / name).write_bytes(content)
    failed = invoke("retrieve", "--corpus", tmp_path / name, "--query", "x", "-m", tiny_bert, check=2)
    assert f"{tmp_path / name}: " in failed.stderr and words in failed.stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("v.npy", b"\x93NUMPY\x01\x00", "holds no texts: it is a NumPy array"),
        ("v.safetensors", b"\x10\0\0\0\0\0\0\0{}", "holds no texts: it is a file of tensors"),
        ("notes.docx", b"PK\x03\x04...", "holds no texts: it is an archive (zip, docx, xlsx, npz)"),
        ("notes.pdf", b"%PDF-1.4", "holds no texts: it is a PDF document"),
        ("table.pq", b"PAR1....", "holds no texts: it is Parquet: its name has to end in .parquet"),
    ],
)
def test_what_is_no_text_is_called_by_its_name(invoke, tmp_path, tiny_bert, name, content, words):
    (tmp_path / name).write_bytes(content)
    failed = invoke("encode", tmp_path / name, "-o", tmp_path / "o.parquet", "-m", tiny_bert, check=2)
    assert f"{tmp_path / name} {words}" in failed.stderr


@pytest.mark.slow
def test_analyses_read_every_kind_of_file(invoke, corpus, encoded, tiny_bert, tmp_path):
    corpus.write_text("".join(json.dumps({"text": f"the {a} {b}"}) + "\n" for a in "abcde" for b in "xyz"))
    paths = [encoded(f"v.{kind}") for kind in ("npy", "parquet", "safetensors")]
    invoke("analyze", "geometry", *paths, "-o", tmp_path / "g", "--json", tmp_path / "g.json", check=0)
    first, *others = [report["results"] for report in json.loads((tmp_path / "g.json").read_text())]
    assert all(other == first for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int64"])
def test_lists_of_whole_numbers_are_numbers(invoke, tmp_path, kind):
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, 100, (5, 32)).astype(kind)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 32)
    pq.write_table(pa.table({"text": list("abcde"), "vec": lists}), tmp_path / "v.parquet")
    invoke("index", tmp_path / "v.parquet", "-o", tmp_path / "i", "--vector-field", "vec", "--type", "flat", check=0)
    assert np.array_equal(np.load(tmp_path / "i" / "vectors-00000.npy"), numbers.astype(np.float32))
