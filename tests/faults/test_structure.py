"""Files that are of the right format and of the wrong form, as single cases: what is said, and that nothing is made."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.model.test_spec_files_layouts import folder  # noqa: F401 - a fixture
from tests.search.conftest import clustered, write_directory
from tests.stores.outputs import message_of

DEEP = "[" * 500 + "1" + "]" * 500


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.fixture
def directory(tmp_path):
    write_directory(tmp_path / "d", clustered(300, 8), shard_rows=100)
    return tmp_path / "d"


def test_an_index_with_a_flipped_tail_is_not_given_to_faiss(directory, invoke):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    invoke("index", directory, "--type", "hnsw", check=0)
    (index,) = (directory / "indexes" / "hnsw").glob("rows-*.faiss")
    content = bytearray(index.read_bytes())
    content[-40:] = bytes(byte ^ 0xFF for byte in content[-40:])
    index.write_bytes(content)
    assert index.name in message_of(invoke("index", directory, "--type", "hnsw", check=2))


def test_bm25_with_fractions_for_places_is_damaged(directory, invoke):
    pytest.importorskip("bm25s", reason="search comes with the extra sentcli[cpu]")
    from sentcli.errors import InputError
    from sentcli.search.bm25 import BM25

    invoke("index", directory, "--type", "bm25", check=0)
    starts = directory / "indexes" / "bm25" / "indptr.csc.index.npy"
    np.save(starts, np.load(starts).astype(np.float64))
    words = ("retrieve", "--corpus", directory, "--query", "text", "--search", "bm25")
    assert starts.name in message_of(invoke(*words, check=2))
    with pytest.raises(InputError, match="damaged"):  # also where nothing has its checksum
        BM25.open(starts.parent)


def test_a_shard_without_checksums_or_of_another_type_is_refused(directory, invoke):
    words = ("retrieve", "--corpus", directory, "--query", "text", "--search", "bm25")
    shard = directory / "vectors-00001.npy"
    good = shard.read_bytes()
    np.save(shard, np.load(shard).astype(np.float64))
    assert "float64" in message_of(invoke("index", directory, "--type", "hnsw", check=2))
    shard.write_bytes(good)
    rows = directory / "rows-00001.parquet"
    table = pq.read_table(rows)
    pq.write_table(table.set_column(1, "text", pa.array(range(len(table)))), rows)
    assert rows.name in message_of(invoke(*words, check=2))
    edit(directory / "manifest.json", lambda manifest: manifest["shards"][0].update(sha256={}))
    assert "sha256" in message_of(invoke(*words, check=2))


def test_a_shard_of_another_type_behind_an_index_is_not_searched(directory, invoke):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    from sentcli.errors import DataError
    from sentcli.search.stored_vectors import SearchRequest
    from sentcli.search.vector_directory import VectorDirectory

    invoke("index", directory, "--type", "hnsw", check=0)
    shard = directory / "vectors-00001.npy"
    np.save(shard, np.load(shard).astype(np.float16))
    with pytest.raises(DataError, match="float16"):
        VectorDirectory.open(directory).open_index(SearchRequest("hnsw"))


def test_half_a_surrogate_pair_is_no_prompt(folder, text, tmp_path, invoke):  # noqa: F811
    prompts = {"prompts": {"query": "\ud800"}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": kind * (kind == "Pooling")}
               for kind in ("Transformer", "Pooling")]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "Pooling").mkdir()
    (folder / "Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    message = message_of(invoke("encode", text, "-m", folder, "-o", tmp_path / "o.npy", check=2))
    assert "config_sentence_transformers.json" in message


def test_an_id_beyond_the_embeddings_is_refused(folder, text, tmp_path, invoke):  # noqa: F811
    edit(folder / "tokenizer.json", lambda tokenizer: tokenizer["model"]["vocab"].update(cat=2**32 - 1))
    words = ("encode", text, "-m", folder, "-o", tmp_path / "o.npy", "--backend", "torch")
    assert "tokenizer" in message_of(invoke(*words, check=2))


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_an_export_of_another_dimension_is_refused(tiny_bert, text, tmp_path, invoke, backend):
    pytest.importorskip({"onnx": "onnxruntime"}.get(backend, backend))
    invoke("export", "-m", tiny_bert, "-o", tmp_path / "e", check=0)
    for dimension in (1, 16, 64):
        edit(tmp_path / "e" / "export.json", lambda export: export.update(dimension=dimension))  # noqa: B023
        words = ("encode", text, "-m", tmp_path / "e", "-o", tmp_path / "o.npy", "--backend", backend)
        done = invoke(*words)
        assert done.exit_code in (1, 2) and "a defect" not in done.stderr
        message_of(done)
    assert not (tmp_path / "o.npy").exists()


def test_a_damaged_openvino_file_is_refused(tiny_bert, text, tmp_path, invoke):
    openvino = pytest.importorskip("openvino")
    invoke("export", "-m", tiny_bert, "-o", tmp_path / "e", "--no-torch-weights", check=0)
    xml = tmp_path / "e" / "openvino.xml"
    openvino.save_model(openvino.Core().read_model(tmp_path / "e" / "model.onnx"), xml, compress_to_fp16=False)
    (tmp_path / "e" / "model.onnx").unlink()
    facts = tmp_path / "e" / "export.json"
    edit(facts, lambda export: export.update(runtime="openvino", sha256={}))
    words = ("encode", text, "-m", tmp_path / "e", "--backend", "openvino", "-o")
    invoke(*words, tmp_path / "o.npy", check=0)
    good = xml.read_text()
    for bad in (good.replace("input_ids", "other"), good[: len(good) // 2], good.replace('"i64"', '"f32"'), "<net/>"):
        xml.write_text(bad)
        done = invoke(*words, tmp_path / "n.npy")
        assert done.exit_code in (1, 2), done.stderr
        message_of(done)
        assert "a defect" not in done.stderr and not (tmp_path / "n.npy").exists()


def test_a_column_of_five_hundred_levels_and_huge_numbers_are_refused(tmp_path, invoke):
    (tmp_path / "deep.jsonl").write_text(f'{{"text": "a cat", "c": 1}}\n{{"text": "a dog", "c": {DEEP}}}\n')
    words = ("--corpus", tmp_path / "deep.jsonl", "--query", "cat", "--search", "bm25", "--hits", tmp_path / "h.jsonl")
    assert "line 2" in message_of(invoke("retrieve", *words, check=2))
    assert not (tmp_path / "h.jsonl").exists()
    np.save(tmp_path / "huge.npy", np.full((50, 8), 1e38, np.float32))
    assert "huge.npy" in message_of(invoke("analyze", "geometry", tmp_path / "huge.npy", "-o", tmp_path / "g", check=2))


def test_an_npz_file_named_npy_is_no_array(tmp_path, invoke):
    np.savez(tmp_path / "v.npz", a=np.zeros((3, 2)))
    (tmp_path / "v.npz").rename(tmp_path / "v.npy")
    (tmp_path / "v.txt").write_text("a\nb\nc\n")
    assert "v.npy" in message_of(invoke("analyze", "geometry", tmp_path / "v.npy", "-o", tmp_path / "g", check=2))


def test_a_weight_that_is_not_finite_is_not_exported(folder, tmp_path, invoke):  # noqa: F811
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    state["embeddings.word_embeddings.weight"][-1] = float("nan")  # of a token that no text of the check has
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    assert "embeddings" in message_of(invoke("export", "-m", folder, "-o", tmp_path / "e", check=1))
    assert not (tmp_path / "e").exists()
