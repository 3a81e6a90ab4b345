"""Libraries that raise what their documentation does not say: each has one border, which makes one message of it."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from sentcli.errors import DataError, InputError, SentcliError
from sentcli.testset.reading import read_documents


class Own(Exception):
    """An error of no common class."""


RAISED = [KeyError("a"), IndexError("b"), AttributeError("c"), TypeError("d"), RuntimeError("e"), ValueError("f"),
          MemoryError(), AssertionError(), Own("g")]  # fmt: skip


def names(error):
    return type(error).__name__


@pytest.mark.parametrize(
    "value",
    ["!!bool foo", '!!int ""', "!!float x", "!!timestamp x", "2024-99-99", "!!binary é", "!!set [a]", "0b", "!Ref x"],
)
def test_a_value_in_front_matter_that_is_not_what_its_tag_says_leaves_the_title(value, tmp_path):
    (tmp_path / "a.md").write_text(f"---\ntitle: My title\nx: {value}\n---\na text above\n# first\nand below\n")
    documents = read_documents([str(tmp_path)])
    assert documents.titles == ["My title", "first"] and documents.texts == ["a text above", "and below"]


@pytest.mark.parametrize("error", RAISED, ids=names)
def test_whatever_yaml_raises_is_no_error_of_a_command(error, tmp_path, monkeypatch):
    def fail(*arguments):
        raise error

    (tmp_path / "a.md").write_text("---\ntitle: My title\n---\na text\n")
    assert read_documents([str(tmp_path)]).titles == ["My title"]
    monkeypatch.setattr("ruamel.yaml.YAML.compose", fail)
    assert read_documents([str(tmp_path)]).texts[-1] == "a text"


@pytest.fixture
def faq(tmp_path):
    """A corpus of which a set can be made."""
    rows = [{"id": number, "text": f"the text number {number} about thing {number * 7}"} for number in range(30)]
    (tmp_path / "faq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "faq.jsonl"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_folder_of_a_model_that_writes_is_named(file, faq, tmp_path, invoke):
    from tests.conftest import wordpiece_tokenizer

    folder = tmp_path / "writer"
    tokenizer = wordpiece_tokenizer()
    tokenizer.save_pretrained(folder)
    sizes = {"d_model": 8, "d_kv": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1, "vocab_size": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps({"model_type": "t5", **sizes}))
    (folder / file).write_bytes(b"\xff{]")
    result = invoke("data", "make-set", faq, "--write-with", folder, "-o", tmp_path / "set", check=2)
    assert f"--write-with {folder}" in result.stderr and "defect" not in result.stderr
    assert len(result.stderr.splitlines()) < 10


@pytest.mark.parametrize("error", RAISED, ids=names)
@pytest.mark.parametrize("place", ["AutoTokenizer", "AutoModelForSeq2SeqLM"])
def test_whatever_transformers_raises_for_a_model_that_writes_is_one_error(place, error, monkeypatch):
    import transformers

    from sentcli.testset.written import _by_seq2seq

    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(getattr(transformers, place), "from_pretrained", fail)
    if place != "AutoTokenizer":
        monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda name: None)
    with pytest.raises(InputError, match="--write-with folder is no address"):
        _by_seq2seq("folder", 0)


MIXED = [
    {"id": f"r{number}", "text": text, "a": number if number % 3 else "s", "list": [number, "x"],
     "object": {"k": number}, "part": None if number < 3 else number, "exact": 0.1234567890123456,
     "large": 2**70 if number == 5 else 1}
    for number, text in enumerate(f"{word} {word} in the house" for word in
                                  "man woman child bird dog mat river tree fish cat sat ran".split())
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv", ".tsv", ".txt"])
def test_rows_of_mixed_columns_are_written_as_they_are(suffix, tiny_bert, tmp_path, invoke):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in MIXED))
    kept = tmp_path / f"kept{suffix}"
    call = ["analyze", "duplicates", tmp_path / "rows.jsonl", "-m", tiny_bert, "-o", tmp_path / "out", "--write", kept]
    invoke(*call, "--least", 0.99999, check=0)
    if suffix == ".jsonl":
        assert [json.loads(line) for line in kept.read_text().splitlines()] == MIXED
    elif suffix == ".parquet":
        frame = pd.read_parquet(kept)
        assert frame["a"].tolist() == [str(row["a"]) for row in MIXED]
        assert frame["exact"].tolist() == [row["exact"] for row in MIXED]
    elif suffix != ".txt":
        frame = pd.read_csv(kept, sep="\t" if suffix == ".tsv" else ",", dtype=str, keep_default_na=False)
        assert frame["part"].tolist() == ["" if row["part"] is None else str(row["part"]) for row in MIXED]
        assert [json.loads(cell) for cell in frame["object"]] == [row["object"] for row in MIXED]


@pytest.mark.parametrize("command", ["analyze geometry {} -o {}", "retrieve --corpus {} --texts {} --query a -m {}"])
def test_vectors_of_no_columns_are_named(command, tiny_bert, tmp_path, invoke):
    np.save(tmp_path / "v.npy", np.empty((40, 0)))
    (tmp_path / "t.txt").write_text("a\n" * 40)
    second = tmp_path / ("out" if command.startswith("analyze") else "t.txt")
    result = invoke(*command.format(tmp_path / "v.npy", second, tiny_bert).split(), check=2)
    assert "v.npy" in result.stderr and "no columns" in " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_bert):
    """A finished run of one step, and the words of its command."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    folder = tmp_path_factory.mktemp("finished")
    (folder / "t.txt").write_text("".join(f"the cat {number}\n" for number in range(8)))
    words = ["train", "--method", "simcse", "--data", str(folder / "t.txt"), "-m", str(tiny_bert), "--batch-size", "4"]
    words += ["--max-steps", "1", "-q"]
    assert CliRunner().invoke(app, [*words, "-o", str(folder / "m")]).exit_code == 0
    return folder / "m", words


@pytest.mark.parametrize(
    "content", ["{}", '{"a": 1}', '{"results": {}}', '{"results": {"best_step": 1}}', '{"results": 1}', "[]", "",
                '{"results": {"best_step": "x", "steps": 1, "sentences_per_second": 1.0, "truncated": 0}}',
                '{"results": {"dev": {"a": 1}, "best_step": 1, "steps": 1, "truncated": 0}}'],
)  # fmt: skip
def test_a_finished_run_without_its_results_is_not_resumed(content, finished, tmp_path, invoke):
    folder, words = finished
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "sentcli.json").write_text(content)
    result = invoke(*words, "-o", tmp_path / "m", "--resume", check=2)
    assert "sentcli.json" in result.stderr and "--overwrite" in result.stderr
    assert (tmp_path / "m" / "sentcli.json").read_text() == content


@pytest.mark.parametrize("error", RAISED, ids=names)
def test_whatever_the_readers_of_files_raise_is_one_error(error, tmp_path, monkeypatch):
    import safetensors
    from tokenizers import Tokenizer

    from sentcli.io.places import Place
    from sentcli.io.weights import load_weights, names_in, read_tensors
    from sentcli.io.writers import mapped_array
    from sentcli.model.tokenizing import read_tokenizer
    from sentcli.search.vector_file import VectorFile

    def fail(*arguments, **keywords):
        raise error

    for name in ("v.npy", "v.safetensors", "v.bin", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(safetensors, "safe_open", fail)
    monkeypatch.setattr("safetensors.torch.load_file", fail)
    monkeypatch.setattr("safetensors.numpy.load_file", fail)
    monkeypatch.setattr("torch.load", fail)
    monkeypatch.setattr(np, "load", fail)
    monkeypatch.setattr(Tokenizer, "from_file", fail)
    for call, file in [
        (mapped_array, "v.npy"),
        (load_weights, "v.safetensors"),
        (load_weights, "v.bin"),
        (names_in, "v.safetensors"),
        (read_tensors, "v.safetensors"),
        (lambda path: VectorFile.open(Place.of(path)), "v.safetensors"),
        (lambda path: read_tokenizer(path.parent), "tokenizer.json"),
    ]:
        # too little memory says nothing of the file: it is no bad input
        kind = SentcliError if isinstance(error, MemoryError) else InputError
        with pytest.raises(kind, match=file.replace(".", r"\.")):
            call(tmp_path / file)


@pytest.mark.parametrize("error", RAISED, ids=names)
def test_whatever_arrow_raises_for_a_file_is_one_error(error, tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    from sentcli.io.formats import records
    from sentcli.io.places import Place
    from sentcli.io.sources import open_source
    from sentcli.search.vector_file import VectorFile, holds_vectors

    def fail(*arguments, **keywords):
        raise error

    pd.DataFrame({"text": ["a"], "embedding": [[0.5, 0.5]]}).to_parquet(tmp_path / "t.parquet")
    for name in ("ParquetFile", "read_schema", "read_metadata"):
        monkeypatch.setattr(pq, name, fail)
    place = Place.of(tmp_path / "t.parquet")
    for call in (
        lambda: list(records(open_source(str(tmp_path / "t.parquet")))),
        lambda: holds_vectors(place),
        lambda: VectorFile.open(place),
    ):
        with pytest.raises(DataError, match=r"t\.parquet"):
            call()


def test_an_interruption_stays_one(monkeypatch):
    from sentcli.testset.written import _by_seq2seq

    def fail(*arguments, **keywords):
        raise ImportError("half loaded") from KeyboardInterrupt()

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", fail)
    with pytest.raises(KeyboardInterrupt):
        _by_seq2seq("folder", 0)


def test_a_name_that_is_no_utf_8_is_named_and_nothing_is_called_damaged(tiny_bert, tmp_path, invoke):
    (tmp_path / "texts.txt").write_text("the cat sat\n")
    out = tmp_path / os.fsdecode(b"out \xf6")
    model = ("-m", tiny_bert, "--backend", "torch")
    invoke("encode", tmp_path / "texts.txt", *model, "-o", out, check=0)
    for words in (("index", out, "--type", "hnsw"), ("retrieve", "--corpus", out, *model, "--query", "cat")):
        refused = invoke(*words, check=2).stderr
        assert "UTF-8" in refused and "damaged" not in refused
