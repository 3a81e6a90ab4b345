"""`sentcli encode` from files to vectors: order, formats, and what happens to an output that is there already."""

import json
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from sentcli.io import atomic
from sentcli.io.dataset_writer import ShardWriter
from tests.tolerance import VECTORS


@pytest.fixture(scope="module")
def expected(tiny_bert, sentences):
    """The vectors of `sentences` from the library."""
    from sentcli import SentenceEncoder

    return SentenceEncoder.load(tiny_bert).encode(sentences)


@pytest.fixture
def text(tmp_path, sentences):
    """`sentences` as a text file."""
    path = tmp_path / "in" / "sentences.txt"
    path.parent.mkdir()
    path.write_text("".join(f"{s}\n" for s in sentences), "utf-8")
    return path


@pytest.fixture
def encode(invoke, tiny_bert):
    """Run `encode` with the tiny BERT."""

    def call(*arguments, check=0, model=tiny_bert, stdin=None):
        return invoke("encode", *arguments, "-m", model, check=check, stdin=stdin)

    return call


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def vectors_of(path):
    if path.is_dir():
        return np.concatenate([np.load(p) for p in sorted(path.glob("vectors-*.npy"))])
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".safetensors":
        return safetensors.numpy.load_file(path)["embeddings"]
    if path.suffix == ".parquet":
        return np.array(pq.read_table(path)["embedding"].to_pylist(), np.float32)
    return np.array([json.loads(line)["embedding"] for line in path.open(encoding="utf-8")], np.float32)


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Vectors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.jsonl", "v.safetensors", "v"])
def test_row_i_of_the_output_is_row_i_of_the_input(encode, text, tmp_path, sentences, expected, name):
    out = tmp_path / "deep" / "er" / name
    encode(text, "-o", out, "--shard-rows", 50)
    found = vectors_of(out)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=VECTORS)
    twins = slice(120, 130)
    assert sentences[twins] == sentences[:10]
    np.testing.assert_allclose(found[twins], found[:10], atol=VECTORS)
    assert [p.name for p in out.parent.iterdir()] == [name], "something was left beside the output"


@pytest.mark.parametrize("name", ["v.parquet", "v.jsonl"])
def test_rows_keep_their_id_text_and_other_columns(encode, tmp_path, name):
    rows = [{"key": 7, "body": "a cat", "year": 1999}, {"key": "b", "body": "", "year": None}]
    source = jsonl(tmp_path / "a.jsonl", rows)
    encode(source, "-o", tmp_path / name, "--text-field", "body", "--id-field", "key")
    if name == "v.jsonl":
        found = [json.loads(line) for line in (tmp_path / name).open()]
    else:
        found = pq.read_table(tmp_path / name).to_pylist()
    assert [list(row) for row in found] == [["id", "text", "year", "embedding"]] * 2
    assert [(r["id"], r["text"], r["year"]) for r in found] == [("7", "a cat", 1999), ("b", "", None)]
    assert all(len(row["embedding"]) == 32 for row in found)


def test_a_directory_has_shards_with_their_rows_and_a_manifest(encode, text, tmp_path, sentences):
    out = tmp_path / "out"
    encode(text, "-o", out, "--shard-rows", 50)
    assert sorted(p.name for p in out.iterdir()) == [
        "manifest.json",
        *(f"rows-{i:05d}.parquet" for i in range(3)),
        *(f"vectors-{i:05d}.npy" for i in range(3)),
    ]
    tables = [pq.read_table(p).to_pylist() for p in sorted(out.glob("rows-*"))]
    rows = [row for table in tables for row in table]
    assert [row["text"] for row in rows] == sentences
    assert [row["id"] for row in rows] == [str(i) for i in range(len(sentences))]
    assert json.loads((out / "manifest.json").read_text())["rows_done"] == len(sentences)


def test_several_inputs_are_encoded_as_one(encode, text, tmp_path, sentences):
    half = tmp_path / "half.csv"
    half.write_text("text\nthe cat sat\n", "utf-8")
    encode(text, half, text, "-o", tmp_path / "v.npy")
    found = np.load(tmp_path / "v.npy")
    assert len(found) == 2 * len(sentences) + 1
    assert np.array_equal(found[: len(sentences)], found[len(sentences) + 1 :])


def test_standard_input_to_standard_output_is_clean_json_lines(run, tiny_bert, sentences, expected):
    done = run("encode", "-", "-o", "-", "-m", tiny_bert, stdin="".join(f"{s}\n" for s in sentences), check=0)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == sentences
    np.testing.assert_allclose(np.array([row["embedding"] for row in rows], np.float32), expected, atol=VECTORS)
    assert f"{len(sentences)} rows -> -" in done.stderr


def test_lone_surrogates_do_not_stop_a_run(encode, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "\\ud800", "text": "a\\udc00 cat", "n": "\\ud800"}\n')
    for name in ("v.jsonl", "v.parquet", "v"):
        encode(tmp_path / "a.jsonl", "-o", tmp_path / name)
    assert json.loads((tmp_path / "v.jsonl").read_text("utf-8"))["text"] == "a\ufffd cat"


def test_a_prompt_stands_in_front_of_every_text(encode, tmp_path):
    (tmp_path / "a.txt").write_text("cat\ndog\n")
    (tmp_path / "b.txt").write_text("the cat\nthe dog\n")
    encode(tmp_path / "a.txt", "-o", tmp_path / "a.npy", "--prompt", "the ")
    encode(tmp_path / "b.txt", "-o", tmp_path / "b.npy")
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


def test_truncated_texts_are_counted(encode, text, tmp_path):
    done = encode(text, "-o", tmp_path / "v.npy", "--json", tmp_path / "r.json")
    assert re.search("rows .*32 tokens .*--on-long", done.stderr)
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert results["truncated"] >= 1
    assert results["tokens_lost"] >= 30


# Rows without text


@pytest.mark.parametrize("name", ["v.npy", "v.jsonl", "v"])
def test_a_null_is_an_error_that_names_the_row_unless_told_otherwise(encode, tmp_path, name):
    source = jsonl(tmp_path / "a.jsonl", [{"text": "cat"}, {"text": None}, {"text": ""}, {"text": "dog"}])
    failed = encode(source, "-o", tmp_path / name, check=2)
    assert re.search(f"{source}, line 2: 'text' .*--on-null empty .*skip", failed.stderr)
    assert not (tmp_path / name).exists()
    encode(source, "-o", tmp_path / name, "--on-null", "empty")
    filled = vectors_of(tmp_path / name)
    done = encode(source, "-o", tmp_path / name, "--on-null", "skip", "--overwrite")
    assert re.search("warning: 1 rows .*text", done.stderr)
    kept = vectors_of(tmp_path / name)
    np.testing.assert_array_equal(filled[1], filled[2])
    np.testing.assert_allclose(kept, filled[[0, 2, 3]], atol=VECTORS)


# JSON and messages


def test_json_on_standard_output_stands_alone(encode, text, tmp_path, tiny_bert, sentences):
    done = encode(text, "-o", tmp_path / "v.npy", "--json", "-", "--verbose")
    found = json.loads(done.stdout)
    assert list(found) == ["command", "model", "protocol", "results", "environment", "elapsed_seconds"]
    assert (found["command"], found["model"]) == ("encode", str(tiny_bert))
    assert {"pooling", "normalize", "max_length", "backend", "precision", "prompt", "on_null"} <= set(found["protocol"])
    assert {"torch", "transformers", "sentcli", "device", "precision", "seed"} <= set(found["environment"])
    assert found["results"]["rows"] == len(sentences)
    assert found["results"]["distinct"] == len(set(sentences))
    assert found["results"]["dimension"] == 32


def test_vectors_and_json_cannot_both_go_to_standard_output(encode, text):
    assert re.search("--json - .*--output - ", encode(text, "-o", "-", "--json", "-", check=2).stderr)


def test_quiet_says_nothing(encode, text, tmp_path):
    done = encode(text, "-o", tmp_path / "v.npy", "--quiet", "--pooling", "cls")
    assert (done.stdout, done.stderr) == ("", "")


def test_verbose_names_rows_and_model(encode, text, tmp_path, sentences, tiny_bert):
    done = encode(text, "-o", tmp_path / "v.npy", "--verbose", "--pooling", "cls")
    assert re.search(f"{len(sentences)} rows .*1 inputs", done.stderr)
    assert f"{tiny_bert}: pooling cls" in done.stderr


# Outputs that exist


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.jsonl", "v.safetensors", "v"])
def test_an_output_that_exists_is_kept_unless_overwritten(encode, text, tmp_path, name):
    out = tmp_path / "out" / name
    other = tmp_path / "other.txt"
    other.write_text("a dog\n" * 3)
    encode(text, "-o", out, "--shard-rows", 50)
    before = contents(out.parent)
    failed = encode(other, "-o", out, check=2)
    assert re.search(f"{out} .*--overwrite", failed.stderr)
    assert contents(out.parent) == before
    encode(other, "-o", out, "--overwrite")
    assert len(vectors_of(out)) == 3
    assert len(contents(out.parent)) == (3 if name == "v" else 1)


@pytest.mark.parametrize("name", ["v.npy", "v"])
def test_bad_input_does_not_touch_the_output_that_it_was_to_replace(encode, text, tmp_path, name):
    out = tmp_path / "out" / name
    encode(text, "-o", out)
    before = contents(out.parent)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "x"}\n{\n')
    assert f"{bad}, line 2: " in encode(bad, "-o", out, "--overwrite", check=2).stderr
    encode(text, "-o", out, "--overwrite", model=tmp_path / "no-model", check=2)
    assert contents(out.parent) == before


@pytest.mark.parametrize(("name", "kind"), [("v.npy", "folder"), ("v", "file")])
def test_a_file_does_not_replace_a_folder_nor_the_other_way_round(encode, text, tmp_path, name, kind):
    out = tmp_path / name
    if kind == "folder":
        out.mkdir()
    else:
        out.write_text("mine")
    assert re.search(f"{out} .*{kind}", encode(text, "-o", out, "--overwrite", check=2).stderr)
    assert out.is_dir() == (kind == "folder")


@pytest.mark.parametrize("name", ["v.npy", "v.jsonl", "v"])
def test_resume_where_nothing_is_starts(encode, text, tmp_path, sentences, name):
    encode(text, "-o", tmp_path / "new" / name, "--resume")
    assert len(vectors_of(tmp_path / "new" / name)) == len(sentences)


def test_resume_of_a_complete_directory_changes_nothing(encode, text, tmp_path):
    out = tmp_path / "out"
    encode(text, "-o", out, "--shard-rows", 50)
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.iterdir()}
    done = encode(text, "-o", out, "--shard-rows", 50, "--resume", "--json", "-")
    assert json.loads(done.stdout)["results"]["rows_encoded"] == 0
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in out.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize("finished", [0, 1, 3])
def test_an_interrupted_run_resumes_to_the_same_bytes(encode, text, tmp_path, monkeypatch, sentences, finished):
    encode(text, "-o", tmp_path / "whole", "--shard-rows", 30)
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "publish", interrupted_after(finished))
        encode(text, "-o", out, "--shard-rows", 30, check=130)
    assert json.loads((out / "manifest.json").read_text())["rows_done"] == 30 * finished
    assert len(contents(out)) == 1 + 2 * finished, "a shard that is not full was published, or a partial file left"
    done = encode(text, "-o", out, "--shard-rows", 30, "--resume", "--json", "-")
    assert json.loads(done.stdout)["results"]["rows_encoded"] == len(sentences) - 30 * finished
    assert contents(out) == contents(tmp_path / "whole")


def interrupted_after(finished):
    publish = ShardWriter.publish

    def call(writer):
        if writer.place.number == finished:
            raise KeyboardInterrupt
        return publish(writer)

    return call


def test_a_directory_without_its_last_shard_resumes_to_the_same_bytes(encode, text, tmp_path):
    arguments = (text, "-o", tmp_path / "out", "--shard-rows", 30)
    encode(*arguments)
    whole = contents(tmp_path / "out")
    manifest = json.loads(whole["manifest.json"])
    last = manifest["shards"].pop()
    manifest["rows_done"] -= last["count"]
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    for name in (last["vectors"], last["rows"]):
        (tmp_path / "out" / name).unlink()
    encode(*arguments, "--resume")
    assert contents(tmp_path / "out") == whole


@pytest.fixture(scope="module")
def unfinished(tiny_bert, tmp_path_factory):
    """An input of 90 rows and a directory in which its first 30 are done."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    folder = tmp_path_factory.mktemp("unfinished")
    rows = [{"id": str(i), "text": f"the {i}", "title": f"a {i}"} for i in range(90)]
    source = jsonl(folder / "a.jsonl", rows)
    arguments = ["encode", str(source), "-o", str(folder / "out"), "--shard-rows", "30", "-m", str(tiny_bert)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardWriter, "publish", interrupted_after(1))
        assert CliRunner().invoke(app, arguments).exit_code == 130
    return source, folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (["--pooling", "cls"], "pooling 'mean' .*'cls' "),
        (["--normalize"], "normalize False .*True "),
        (["--max-length", 20], "max_length 32 .*20 "),
        (["--prompt", "a "], "prompt '' .*'a ' "),
        (["--id-field", "title"], "id_field None .*'title' "),
        (["--on-null", "skip"], "on_null 'error' .*'skip' "),
        (["--shard-rows", 45], "shard_rows .*30 .*45 "),
        (["--input-format", "txt"], "format 'jsonl' .*'txt' "),
    ],
)
def test_resume_refuses_another_setting_and_names_it(encode, unfinished, tmp_path, changed, words):
    source, partial = unfinished
    out = shutil.copytree(partial, tmp_path / "out")
    if changed[0] == "--id-field":  # "id" would stand twice in the output
        source = jsonl(source.with_name("no-id.jsonl"), [{"text": "x", "title": "t"}] * 90)
    failed = encode(source, "-o", out, "--shard-rows", 30, *changed, "--resume", check=2)
    assert re.search(f"{out} .*{words}.*--overwrite", failed.stderr)
    assert contents(out) == contents(partial)


def test_resume_refuses_another_model(encode, unfinished, tmp_path, tiny_roberta):
    source, partial = unfinished
    out = shutil.copytree(partial, tmp_path / "out")
    failed = encode(source, "-o", out, "--shard-rows", 30, "--resume", model=tiny_roberta, check=2)
    assert "tiny-bert" in failed.stderr
    assert "tiny-roberta" in failed.stderr
    assert contents(out) == contents(partial)


def test_resume_refuses_other_weights_under_the_same_name(encode, text, tmp_path, tiny_bert):
    import torch
    from safetensors.torch import load_file, save_file

    model = shutil.copytree(tiny_bert, tmp_path / "model")
    encode(text, "-o", tmp_path / "out", model=model)
    before = contents(tmp_path / "out")
    weights = load_file(model / "model.safetensors")
    save_file({name: value + torch.ones(()) for name, value in weights.items()}, model / "model.safetensors")
    failed = encode(text, "-o", tmp_path / "out", "--resume", model=model, check=2)
    assert "model_fingerprint" in failed.stderr
    assert contents(tmp_path / "out") == before


def test_resume_refuses_an_input_that_has_changed(encode, text, tmp_path):
    encode(text, "-o", tmp_path / "out", "--shard-rows", 50)
    before = contents(tmp_path / "out")
    text.write_text(text.read_text("utf-8").replace("the", "not"), "utf-8")
    failed = encode(text, "-o", tmp_path / "out", "--shard-rows", 50, "--resume", check=2)
    assert re.search(f"{tmp_path}/out .*inputs .*sha256", failed.stderr)
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("content", "options", "column"),
    [
        ("text,embedding\nx,1\n", [], "embedding"),
        ("text,body\nx,y\n", ["--text-field", "body"], "text"),
        ("text,id,key\nx,y,z\n", ["--id-field", "key"], "id"),
    ],
)
def test_a_column_that_the_output_adds_itself_is_refused_where_columns_are_kept(
    invoke, tiny_bert, tmp_path, content, options, column
):
    (tmp_path / "a.csv").write_text(content)
    call = ["encode", tmp_path / "a.csv", "-m", tiny_bert, *options, "-o"]
    message = invoke(*call, tmp_path / "a.parquet", check=2).stderr
    assert re.search(rf"a\.csv: .*{column!r}", " ".join(message.split()))
    assert not (tmp_path / "a.parquet").exists()
    invoke(*call, tmp_path / "a.npy", check=0)  # vectors alone


def test_a_directory_that_is_there_needs_a_flag(invoke, tiny_bert, tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n")
    call = ["encode", tmp_path / "a.txt", "-m", tiny_bert, "-o", tmp_path / "v"]
    invoke(*call, check=0)
    assert re.search(f"{tmp_path}/v .*--resume.*--overwrite", " ".join(invoke(*call, check=2).stderr.split()))


def test_vectors_that_are_not_finite_are_an_error(invoke, tmp_path):
    from safetensors.torch import load_file, save_file

    from tests.conftest import save_backbone

    model = save_backbone(tmp_path / "broken")
    state = load_file(model / "model.safetensors")
    state["embeddings.LayerNorm.weight"][0] = float("nan")
    save_file(state, model / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "a.txt").write_text("the cat\na dog\n")
    result = invoke("encode", tmp_path / "a.txt", "-m", model, "-o", tmp_path / "v.npy", check=1)
    assert re.search("error: 2 of 2 vectors .*fp32", " ".join(result.stderr.split()))
    assert not (tmp_path / "v.npy").exists()


@pytest.mark.slow
def test_sigterm_leaves_no_partial_file(tiny_bert, tmp_path):
    import signal
    import subprocess
    import sys
    import time

    (tmp_path / "a.txt").write_text("".join(f"the cat {i}\n" for i in range(400_000)))
    call = [sys.executable, "-m", "sentcli", "encode", tmp_path / "a.txt", "-m", tiny_bert, "-o", tmp_path / "v.npy"]
    process = subprocess.Popen([str(word) for word in call], stderr=subprocess.PIPE)
    deadline = time.time() + 120
    while not list(tmp_path.glob(".v.npy*")):
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert {p.name for p in tmp_path.iterdir()} == {"a.txt"}


def test_inputs_inside_the_output_are_refused(invoke, tiny_bert, tmp_path):
    (tmp_path / "a.txt").write_text("the cat\na dog\n")
    invoke("encode", tmp_path / "a.txt", "-m", tiny_bert, "-o", tmp_path / "v", check=0)
    rows = tmp_path / "v" / "rows-00000.parquet"
    before = rows.read_bytes()
    refused = invoke("encode", rows, "-m", tiny_bert, "-o", tmp_path / "v", "--overwrite", check=2)
    assert re.search(f"{rows}.* -o", " ".join(refused.stderr.split()))
    assert rows.read_bytes() == before
    table = tmp_path / "b.jsonl"
    table.write_text('{"text": "the cat"}\n')
    invoke("encode", table, "-m", tiny_bert, "-o", table, "--overwrite", check=2)
    invoke("encode", table, "-m", tiny_bert, "-o", tmp_path / "b.npy", "--json", table, check=2)
    assert table.read_text() == '{"text": "the cat"}\n'


@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_a_folder_that_encode_did_not_write_is_left_alone(invoke, tiny_bert, tmp_path, flag):
    (tmp_path / "a.txt").write_text("the cat\n")
    mine = tmp_path / "v" / "vectors-mine.npy"
    mine.parent.mkdir()
    mine.write_bytes(b"precious")
    refused = invoke("encode", tmp_path / "a.txt", "-m", tiny_bert, "-o", tmp_path / "v", flag, check=2)
    assert re.search(rf"{tmp_path}/v .*manifest\.json", refused.stderr)
    assert mine.read_bytes() == b"precious"


def test_a_pipe_is_an_input_like_any_other(invoke, tiny_bert, tmp_path):
    import os
    import threading

    os.mkfifo(tmp_path / "pipe")
    feeder = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("the cat\na dog\n"))
    feeder.start()
    invoke("encode", tmp_path / "pipe", "-m", tiny_bert, "-o", tmp_path / "v.npy", check=0)
    feeder.join()
    assert np.load(tmp_path / "v.npy").shape == (2, 32)


@pytest.mark.parametrize("on_null", ["empty", "skip"])
def test_a_misspelt_column_is_no_null(invoke, tiny_bert, tmp_path, on_null):
    (tmp_path / "a.jsonl").write_text('{"text": "the cat"}\n{"text": "a dog"}\n')
    call = ["encode", tmp_path / "a.jsonl", "-m", tiny_bert, "-o", tmp_path / "v.npy", "--on-null", on_null]
    assert re.search(r"a\.jsonl: .*'txet'.*--text-field", invoke(*call, "--text-field", "txet", check=2).stderr)


def test_data_on_stdout_is_utf8_whatever_the_locale(run, tiny_bert):
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = run("encode", "-", "-o", "-", "-m", tiny_bert, stdin="Ünïcödé\n".encode(), env=env, check=0)
    assert "Ünïcödé" in done.stdout.decode("utf-8")


def test_resume_with_the_model_under_another_path(invoke, tiny_bert, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("the cat\n")
    invoke("encode", tmp_path / "a.txt", "-m", tiny_bert, "-o", tmp_path / "v", check=0)
    monkeypatch.chdir(tiny_bert.parent)
    invoke("encode", tmp_path / "a.txt", "-m", f"./{tiny_bert.name}", "-o", tmp_path / "v", "--resume", check=0)


def test_an_interrupted_command_says_in_its_json_what_was_done(invoke, tiny_bert, tmp_path, monkeypatch):
    from sentcli import SentenceEncoder

    source, told = tmp_path / "a.txt", tmp_path / "so-far.json"
    source.write_text("".join(f"the cat {n} sat on {n * 7} mats\n" for n in range(40)), "utf-8")
    whole, calls = SentenceEncoder.encode_distinct, 0

    def stop(self, *arguments, **options):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return whole(self, *arguments, **options)

    monkeypatch.setattr(SentenceEncoder, "encode_distinct", stop)
    call = ["encode", source, "-o", tmp_path / "v", "-m", tiny_bert, "--shard-rows", 10, "--json", told]
    for more in ((), ("--overwrite",)):
        calls = 0
        invoke(*call, *more, check=130)
        found = json.loads(told.read_text())
        assert found["interrupted"] and found["results"]["rows_total"] == 40 and 0 < found["results"]["rows_done"] < 40
        invoke(*call, "--resume", *more, check=0)  # so that a finished directory is what is replaced next


def test_append_says_which_rows_are_there_and_refuses_the_same_bytes(encode, tmp_path):
    first, more = ([{"id": f"r{i}", "text": f"the cat {i}"} for i in numbers] for numbers in (range(20), range(15, 30)))
    one, other = jsonl(tmp_path / "one.jsonl", first), jsonl(tmp_path / "more.jsonl", more)
    third = jsonl(tmp_path / "third.jsonl", [{"id": "s", "text": "a dog"}])
    out, told = tmp_path / "out", tmp_path / "told.json"
    encode(one, "-o", out)
    appended = encode(other, "-o", out, "--append", "--json", told)
    assert "5 ids" in appended.stderr and json.loads(told.read_text())["results"]["repeated_ids"] == 5
    encode(third, "-o", out, "--append")
    before = contents(out)
    refused = encode(one, "-o", out, "--append", check=2)
    assert "one.jsonl" in refused.stderr and "same bytes" in refused.stderr
    # a folder that has grown: the new file is named
    refused = encode(one, other, jsonl(tmp_path / "new.jsonl", [{"text": "b"}]), "-o", out, "--append", check=2)
    assert "new.jsonl alone" in " ".join(refused.stderr.split()) and contents(out) == before
    assert encode(third, "-o", out, "--append").exit_code == 0 and contents(out) == before  # the same command again
    copy = shutil.copy(one, tmp_path / "copy.jsonl")
    assert "copy.jsonl has the bytes of one.jsonl" in encode(copy, "-o", out, "--append").stderr


def test_two_processes_do_not_write_one_file(encode, tmp_path, monkeypatch):
    source, out = jsonl(tmp_path / "one.jsonl", [{"text": "the cat"}]), tmp_path / "v.npy"
    with atomic.locked(tmp_path / ".v.npy.lock", "held"):  # as another process does
        assert "another process" in encode(source, "-o", out, check=2).stderr
    assert not out.exists()
    # one that began after the check and has ended
    monkeypatch.setattr("sentcli.stores.target.check_output", lambda *_, **__: out.write_bytes(b"theirs"))
    assert "--overwrite" in encode(source, "-o", out, check=2).stderr and out.read_bytes() == b"theirs"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
