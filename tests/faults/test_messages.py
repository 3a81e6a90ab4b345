"""Messages name the real cause, the file or row, and what to do."""

import errno
import json

import numpy as np
import pytest

import sentcli
from sentcli import SentenceEncoder
from sentcli.cli.base import _message
from sentcli.errors import InputError, SentcliError, lacks_memory, required
from sentcli.evaluation import transfer, transfer_data
from sentcli.io.sources import input_files
from sentcli.io.weights import load_weights
from sentcli.io.writers import output_format
from tests.conftest import save_backbone
from tests.evaluation.conftest import write_downstream
from tests.io.test_formats import POINTER


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return SentenceEncoder.load(tiny_bert, backend="torch", device="cpu")


# Pointers of git-lfs


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "tokenizer.json", "config.json", "spiece.model"]
)
def test_a_pointer_of_git_lfs_in_a_model_is_named_and_nothing_unsafe_is_advised(tmp_path, name):
    folder = save_backbone(tmp_path / "m")
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(POINTER)
    with pytest.raises(InputError, match=rf"{name} is a pointer of git-lfs.*git lfs pull") as caught:
        SentenceEncoder.load(folder, backend="torch")
    assert "weights_only" not in str(caught.value)


def test_a_pointer_in_an_export_is_named(tmp_path, tiny_bert):
    pytest.importorskip("onnxruntime", reason="exports come with the extra sentcli[cpu]")
    sentcli.export(model=tiny_bert, output=tmp_path / "e", verify=False, quiet=True)
    (tmp_path / "e" / "model.onnx").write_bytes(POINTER)
    with pytest.raises(InputError, match=r"model\.onnx is a pointer of git-lfs"):
        SentenceEncoder.load(tmp_path / "e").encode(["a"])


def test_no_message_advises_to_load_weights_unsafely(tmp_path):
    import torch

    for content in ({"a": object}, "text"):
        path = tmp_path / "pytorch_model.bin"
        torch.save(content, path) if isinstance(content, dict) else path.write_text(content)
        with pytest.raises(InputError, match=r"pytorch_model\.bin") as caught:
            load_weights(path)
        assert "weights_only" not in str(caught.value) and "not loaded" in str(caught.value)


# Inputs and outputs


def test_a_column_that_the_output_has_is_named_with_its_file(tmp_path, tiny_bert):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "x", "embedding": [1, 2]}\n')
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    with pytest.raises(InputError, match=r"b\.jsonl: column 'embedding' .*rename it"):
        sentcli.encode(files, output=tmp_path / "v", model=tiny_bert)
    sentcli.encode(files, output=tmp_path / "v.npy", model=tiny_bert, quiet=True)


@pytest.mark.parametrize("name", ["out/minilm-v2.0", "v1.5-fp16", "run.1", "out.v2", "s3://bucket/v2.0"])
def test_a_version_is_the_name_of_a_directory(name):
    assert output_format(name).name == "directory"


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.pkl", "a.nyp", "a.h5", "a.7z", "v2.0.pt", "a.bin"])
def test_the_suffix_of_another_format_is_refused(name):
    with pytest.raises(InputError, match=r"unknown output format '\.[a-z0-9]+'"):
        output_format(name)
    assert output_format("v2.0.npy").name == ".npy"


@pytest.mark.slow
def test_a_directory_with_a_version_is_written_and_searched(tmp_path, tiny_bert, text):
    out = tmp_path / "minilm-v2.0"
    sentcli.encode(text, output=out, model=tiny_bert, quiet=True)
    sentcli.encode(text, output=out, model=tiny_bert, quiet=True, overwrite=True)
    found = sentcli.retrieve(model=tiny_bert, corpus=out, query="the cat", top_k=2, quiet=True)
    assert len(found.to_dict()["results"][0]["hits"]) == 2


def test_a_folder_and_a_pattern_stand_for_their_files(tmp_path, tiny_bert):
    for name in ("b.jsonl", "a.jsonl", ".hidden.jsonl", "odd[1].jsonl"):
        (tmp_path / name).write_text('{"text": "x"}\n')
    whole = sentcli.encode(tmp_path, output=tmp_path / "whole.npy", model=tiny_bert, quiet=True)
    assert whole.to_dict()["results"]["rows"] == 3
    names = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "odd[1].jsonl")]
    assert input_files([f"{tmp_path}/*.jsonl"]) == names and input_files(names[2:]) == names[2:]
    with pytest.raises(InputError, match="no file matches"):
        input_files([f"{tmp_path}/*.csv"])
    result = sentcli.encode(f"{tmp_path}/[ab].jsonl", output=tmp_path / "v.npy", model=tiny_bert, quiet=True)
    assert result.to_dict()["results"]["rows"] == 2


def test_a_column_that_is_a_word_of_sql_is_written_in_quotes():
    pytest.importorskip("sqlglot", reason="--where comes with the extra sentcli[cpu]")
    import pyarrow as pa

    from sentcli.search.condition_reader import parse_condition

    schema = {"when": pa.int64(), "n": pa.int64()}
    with pytest.raises(InputError, match='double quotes: "when"'):
        parse_condition("when = 1", schema, "corpus")
    assert parse_condition('"when" = 1', schema, "corpus").columns == ["when"]
    with pytest.raises(InputError) as caught:
        parse_condition("n = = 1", schema, "corpus")
    assert "double quotes" not in str(caught.value)


# Python


def test_one_vector_is_compared_as_a_row(encoder):
    vectors = encoder.encode(["the cat", "a dog", "the man"])
    assert np.allclose(encoder.similarity(vectors[0], vectors), encoder.similarity(vectors[:1], vectors))
    assert encoder.similarity(vectors, vectors[1]).shape == (3, 1)
    for other in (vectors[:, :4], vectors[None]):
        with pytest.raises(ValueError, match="similarity takes"):
            encoder.similarity(vectors, other)


# Files of indexes and benchmarks


@pytest.mark.parametrize("efforts", [{"evil": 1}, {"nprobe": 3}])
def test_an_index_with_a_parameter_that_it_lacks_is_named(tmp_path, tiny_bert, text, efforts):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    sentcli.encode(text, output=tmp_path / "v", model=tiny_bert, quiet=True)
    sentcli.index(tmp_path / "v", type="hnsw", quiet=True)
    path = tmp_path / "v" / "indexes" / "hnsw" / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "efforts": efforts}))
    with pytest.raises(InputError, match=rf"hnsw/index\.json.*{next(iter(efforts))}.*overwrite"):
        sentcli.retrieve(model=tiny_bert, corpus=tmp_path / "v", index="hnsw", query="x", quiet=True)


@pytest.mark.parametrize("name", ["MR/rt-polarity.pos", "TREC/train_5500.label", "TREC/TREC_10.label"])
def test_an_empty_file_of_senteval_is_named(tmp_path, name):
    write_downstream(tmp_path)
    (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=name):
        transfer_data.load_examples(tmp_path, [name.partition("/")[0]])


def test_too_few_examples_for_the_folds_name_their_files(tmp_path):
    write_downstream(tmp_path)
    (tmp_path / "MR" / "rt-polarity.pos").write_text("good\nfine\n")
    (task,) = transfer_data.load_examples(tmp_path, ["MR"])
    with pytest.raises(InputError, match=r"MR: .*rt-polarity\.pos and .*rt-polarity\.neg: a class has 2 "):
        transfer._stratified(task, np.array([example.label for example in task.splits["all"]]), 10)


# Memory


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libgfortran-040039e1.so.5: failed to map segment from shared object"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_too_little_memory_is_said_as_such(error, monkeypatch):
    assert lacks_memory(error) and not lacks_memory(ValueError("of memory"))

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("sentcli.errors.import_module", fail)
    if isinstance(error, ImportError):
        with pytest.raises(SentcliError, match="faiss needs more memory than is left"):
            required("faiss", "faiss", "cpu", "search")
    message = _message(error)
    assert "needs more memory than is left here" in message and "defect" not in message


def test_a_byte_order_mark_is_no_part_of_a_sentence_of_senteval(tmp_path):
    write_downstream(tmp_path)
    path = tmp_path / "SST" / "binary" / "sentiment-train"
    plain = transfer_data.load_examples(tmp_path, ["SST2"])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert transfer_data.load_examples(tmp_path, ["SST2"]) == plain
