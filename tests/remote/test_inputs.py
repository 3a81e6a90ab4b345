"""Inputs from a store, the web and the hub: the same rows as from this machine, and one message for what fails."""

import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

from sentcli.errors import InputError
from sentcli.io.atomic import check_output
from sentcli.io.formats import records
from sentcli.io.places import Address, is_remote, scheme_of
from sentcli.io.sources import open_source
from sentcli.io.text_inputs import text_sources
from tests.remote.conftest import KEY, SECRET, files


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["txt", "jsonl", "jsonl.gz", "csv", "parquet"])
def test_every_format_has_the_rows_that_it_has_on_this_machine(store, tmp_path, rows, kind):
    path = tmp_path / f"a.{kind}"
    table = [json.loads(line) for line in rows.read_text("utf-8").splitlines()]
    if kind == "txt":
        path.write_text("".join(f"{row['text']}\n" for row in table), "utf-8")
    elif kind.startswith("jsonl"):
        path.write_bytes(gzip.compress(rows.read_bytes()) if kind.endswith("gz") else rows.read_bytes())
    elif kind == "csv":
        pyarrow.csv.write_csv(pyarrow.Table.from_pylist(table), path)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    store.put(f"in/{path.name}", path.read_bytes())
    here, there = open_source(str(path)), open_source(f"s3://corpora/in/{path.name}")
    assert list(records(there)) == list(records(here))
    assert there.identity() == here.identity()
    assert there.name == f"s3://corpora/in/{path.name}"


def test_a_pattern_stands_for_its_files_in_order(store, tmp_path):
    for name in ("b.txt", "a.txt", "c.csv", "below/d.txt"):
        store.put(f"in/{name}", b"x\n")
    names = [source.name for source in text_sources(["s3://corpora/in/*.txt", "s3://corpora/in/c.csv"])]
    assert names == ["s3://corpora/in/a.txt", "s3://corpora/in/b.txt", "s3://corpora/in/c.csv"]


@pytest.mark.slow
def test_encode_of_a_store_is_encode_of_this_machine_and_leaves_no_copy(store, encode, rows, tmp_path):
    store.put("rows.jsonl", rows.read_bytes())
    encode(rows, "-o", tmp_path / "here", "--shard-rows", 40)
    encode("s3://corpora/rows.jsonl", "-o", tmp_path / "there", "--shard-rows", 40)
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert not list((tmp_path / "temporary").iterdir())


def test_queries_and_texts_of_a_search_come_from_a_store(store, invoke, tiny_bert, rows):
    store.put("rows.jsonl", rows.read_bytes())
    store.put("queries.txt", b"the cat\na storm\n")
    options = ("-m", tiny_bert, "--top-k", 3, "--json", "-")
    done = invoke(
        "retrieve", "--corpus", "s3://corpora/rows.jsonl", "--queries", "s3://corpora/queries.txt", *options, check=0
    )
    queries = [flag for query in ("the cat", "a storm") for flag in ("--query", query)]
    here = json.loads(invoke("retrieve", "--corpus", rows, *queries, *options, check=0).stdout)["results"]
    assert [result["hits"] for result in json.loads(done.stdout)["results"]] == [result["hits"] for result in here]


def test_a_table_in_a_store_is_evaluated_under_its_name(store, invoke, tiny_bert):
    table = "sentence1,sentence2,score\n" + "".join(f"a cat {i},the dog {i},{i % 5}\n" for i in range(20))
    store.put("pairs.csv", table.encode())
    done = invoke("evaluate", "s3://corpora/pairs.csv", "-m", tiny_bert, "--json", "-", check=0)
    assert list(json.loads(done.stdout)["results"]) == ["pairs.csv"]


@pytest.mark.slow
def test_training_reads_its_data_and_dev_sets_from_a_store(store, invoke, tiny_bert, tmp_path):
    anchors = "anchor,positive\n" + "".join(f"the cat {i},a cat {i}\n" for i in range(32))
    scored = "sentence1,sentence2,score\n" + "".join(f"a cat {i},the dog {i},{i % 5}\n" for i in range(20))
    names = {}
    for name, text in (("anchors.csv", anchors), ("dev.csv", scored)):
        (tmp_path / name).write_text(text)
        store.put(name, text.encode())
    for run, place in (("here", tmp_path), ("there", "s3://corpora")):
        options = ("--data", f"{place}/anchors.csv", "--dev", f"{place}/dev.csv", "--max-steps", 2, "--batch-size", 8)
        invoke("train", "--method", "simcse", "-m", tiny_bert, *options, "-o", tmp_path / run, check=0)
        names[run] = json.loads((tmp_path / run / "run.json").read_text())
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("here", "there")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_a_broken_row_is_named_by_address_and_line_before_anything_is_encoded(store, encode, tmp_path):
    store.put("in/broken.jsonl", b'{"text": "fine"}\n{"text": \n')
    failed = encode("s3://corpora/in/broken.jsonl", "-o", tmp_path / "out", check=2)
    assert failed.stderr.startswith("error: s3://corpora/in/broken.jsonl, line 2: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("s3://nowhere-at-all/a.txt", "s3://nowhere-at-all/a.txt: .*'nowhere-at-all'"),
        ("s3://corpora/in/b.txt", ".*s3://corpora/in/b.txt"),
        ("s3://corpora/in", r"s3://corpora/in .*s3://corpora/in/\*\.jsonl"),
        ("s3://corpora/in/*.csv", r".*s3://corpora/in/\*\.csv"),
        ("s3://corpora/in/one.json", r"s3://corpora/in/one.json: .*\.jsonl"),
        ("s3://corpora/in/page.bin", "s3://corpora/in/page.bin .*PDF"),
        (f"s3://{KEY}:{SECRET}@corpora/a.txt", r"s3://\.\.\.: "),
        ("s3://", "s3://: .*bucket"),
        ("S3://corpora/in/b.txt", ".*s3://corpora/in/b.txt"),
        ("s3://not a bucket/a.txt", 's3://not a bucket/a.txt .*"not a bucket"'),
        ("ftp://host/a.txt", "ftp://host/a.txt: .*s3, gs, az, hf, https, http"),
    ],
)
def test_a_name_that_cannot_be_read_has_one_message(store, encode, tmp_path, name, words):
    for key, content in (("in/a.txt", b"a\n"), ("in/one.json", b"{}"), ("in/page.bin", b"%PDF-1.7")):
        store.put(key, content)
    failed = encode(name, "-o", tmp_path / "out", check=2)
    assert re.match(f"error: {words}", failed.stderr)
    assert len(failed.stderr.strip().splitlines()) == 1
    assert SECRET not in failed.stderr


def test_what_others_call_a_store_is_that_store(store, tmp_path):
    store.put("in/a.txt", b"one\n")
    [source] = text_sources([Address("s3a://corpora/in/a.txt")])
    assert source.name == "s3://corpora/in/a.txt" and source.path.read_bytes() == b"one\n"
    for name, public in (("gcs://b/x", "gs://b/x"), ("ABFS://c/x", "az://c/x"), ("abfss://c/x", "az://c/x")):
        assert is_remote(name) and Address(name) == Address(name).full_url == public and scheme_of(name) == public[:2]
    with pytest.raises(InputError, match="AZURE_STORAGE_ACCOUNT_NAME; the name is az://c/x"):
        Address("abfss://c@me.dfs.core.windows.net/x")
    with pytest.raises(InputError, match="gs://"):
        check_output(Path("gcs://b/out.npy"), overwrite=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("500", 1, "s3://corpora/a.txt .*500"),
        ("other key", 2, "s3://corpora/a.txt .*403"),
    ],
)
def test_a_store_that_fails_has_one_message_without_secrets(store, encode, tmp_path, fault, code, words, monkeypatch):
    monkeypatch.setattr("sentcli.io.object_stores.PAUSES", (0.01,))
    store.fault = fault
    failed = encode("s3://corpora/a.txt", "-o", tmp_path / "out", "--debug", check=code)
    assert re.search(words, failed.stderr.splitlines()[-1])
    assert KEY not in failed.stderr and SECRET not in failed.stderr


@pytest.mark.slow
def test_no_credentials_name_the_variables(store, encode, tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    failed = encode("s3://corpora/a.txt", "-o", tmp_path / "out", check=2)
    assert re.search("s3://corpora/a.txt: .*AWS_ACCESS_KEY_ID .*AWS_SECRET_ACCESS_KEY", failed.stderr)


def test_a_store_that_is_not_there_fails_soon(store, encode, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    began = time.monotonic()
    failed = encode("s3://corpora/a.txt", "-o", tmp_path / "out", check=1)
    assert re.search("s3://corpora/a.txt .*EndpointConnectionError", failed.stderr)
    assert time.monotonic() - began < 20


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["some 500", "drop", "slow"])
def test_faults_that_pass_do_not_change_a_byte(store, rows, fault):
    store.put("rows.jsonl", rows.read_bytes())
    store.fault = fault
    assert open_source("s3://corpora/rows.jsonl").path.read_bytes() == rows.read_bytes()


def test_a_file_that_changed_is_copied_anew(store):
    store.put("a.txt", b"one\n")
    assert open_source("s3://corpora/a.txt").path.read_bytes() == b"one\n"
    copied = len(store.requests)
    assert open_source("s3://corpora/a.txt").path.read_bytes() == b"one\n"
    assert "GET" not in [method for method, _ in store.requests[copied:]]
    store.put("a.txt", b"two\n")
    assert open_source("s3://corpora/a.txt").path.read_bytes() == b"two\n"


def test_a_disk_without_room_is_said_before_the_copy(store, encode, tmp_path, monkeypatch):
    import shutil

    store.put("a.txt", b"one\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(9, 9, 0))
    failed = encode("s3://corpora/a.txt", "-o", tmp_path / "out", check=1)
    assert re.search("s3://corpora/a.txt .*0 MB", failed.stderr)


@pytest.mark.parametrize(("scheme", "library"), [("gs", "gcsfs"), ("az", "adlfs")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(encode, tmp_path, scheme, library, monkeypatch):
    from sentcli.io import object_stores

    object_stores._filesystem.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    failed = encode(f"{scheme}://bucket/a.txt", "-o", tmp_path / "out", check=1)
    assert re.search(rf"{scheme}:// .*{library}.*'sentcli\[remote\]'", failed.stderr)


@pytest.mark.slow
def test_web_addresses_are_read_with_user_or_signature_and_neither_is_seen(web, invoke, tiny_bert, tmp_path):
    web.authorization = "Basic dXNlcjpoaWRkZW4tcGFzcw=="  # user:hidden-pass
    web.query, web.heads = "X-Amz-Signature=abc%2Fhidden-signature&X-Amz-Credential=hidden-key", False
    address = f"{web.url.replace('://', '://user:hidden-pass@')}/a/corpus.txt?{web.query}"
    out, report = tmp_path / "out", tmp_path / "report.json"
    done = invoke("encode", address, "-o", out, "-m", tiny_bert, "-v", "--json", report, check=0)
    found = invoke("retrieve", "--corpus", address, "-m", tiny_bert, "--query", "one", "-v", "--json", "-", check=0)
    web.body = b"one\n\xff\n"
    failed = invoke("encode", address, "-o", tmp_path / "other", "-m", tiny_bert, "--debug", check=2)
    assert re.search(f"{web.url}/a/corpus.txt, line 2: .*0xff", failed.stderr)
    web.query = "another"
    refused = invoke("encode", address, "-o", tmp_path / "other", "-m", tiny_bert, "--debug", check=2)
    assert re.search(f"{web.url}/a/corpus.txt .*403", refused.stderr)
    texts = [done.output, found.output, failed.output, refused.output, report.read_text()]
    texts += [path.read_bytes().decode("latin1") for path in out.iterdir()]
    assert not any("hidden" in text for text in texts)
    assert json.loads((out / "manifest.json").read_text())["groups"][0]["inputs"][0]["name"] == "corpus.txt"


@pytest.mark.slow
def test_a_table_is_evaluated_and_trained_on_with_user_and_signature(web, invoke, tiny_bert, tmp_path):
    web.authorization = "Basic dXNlcjpoaWRkZW4tcGFzcw=="  # user:hidden-pass
    web.query, web.heads = "sig=hidden-signature", False
    lines = [f"a cat {i},the cat {i % 3},{i % 6}" for i in range(12)]
    web.body = "\n".join(["sentence1,sentence2,score", *lines, ""]).encode()
    address = f"{web.url.replace('://', '://user:hidden-pass@')}/a/scored.csv?{web.query}"
    report, run = tmp_path / "report.json", tmp_path / "run"
    scored = invoke("evaluate", address, "-m", tiny_bert, "--json", report, check=0)
    arguments = ("--method", "sts-regression", "--max-steps", 1, "--batch-size", 4, "--dev", address)
    trained = invoke("train", "--data", address, "-m", tiny_bert, "-o", run, *arguments, check=None)
    assert trained.exit_code == 0, trained.stderr
    texts = [scored.output, trained.output, report.read_text()]
    texts += [path.read_bytes().decode("latin1") for path in run.rglob("*") if path.is_file()]
    assert not any("hidden-pass" in text or "hidden-sig" in text for text in texts)


def test_two_addresses_that_differ_only_in_what_is_not_shown_are_refused(web, encode, tmp_path):
    failed = encode(f"{web.url}/a.txt?part=1", f"{web.url}/a.txt?part=2", "-o", tmp_path / "out", check=2)
    assert f"{web.url}/a.txt: " in failed.stderr


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        (
            {"authorization": "Basic other"},
            2,
            "a.txt: .*netrc",
        ),
        ({"kind": "text/html"}, 2, "a.txt .*page"),
        ({"statuses": [503] * 99}, 1, "127.0.0.1 .*503"),
    ],
)
def test_a_web_address_that_cannot_be_read_has_one_message(web, encode, tmp_path, monkeypatch, facts, code, words):
    monkeypatch.setattr("sentcli.io.object_stores.PAUSES", (0.01, 0.01))
    vars(web).update(facts)
    failed = encode(f"{web.url}/a.txt", "-o", tmp_path / "out", check=code)
    assert re.search(words, failed.stderr)


def test_web_faults_that_pass_do_not_change_a_byte(web, monkeypatch):
    monkeypatch.setattr("sentcli.io.object_stores.PAUSES", (0.01, 0.01, 0.01))
    web.statuses, web.drops, web.body = [500], 1, b"a line\n" * 1000
    assert open_source(f"{web.url}/a.txt").path.read_bytes() == web.body


def test_nothing_of_it_is_imported_for_files_of_this_machine():
    code = """
import sys
import sentcli, sentcli.io.folder, sentcli.zoo
from sentcli.io.sources import open_source
open_source(sys.argv[1]).identity()
assert not {"fsspec", "s3fs", "aiohttp", "botocore"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, __file__], check=True)


def test_a_file_of_the_hub(tmp_path):
    """The hub's own file system, against a stand-in that answers as the hub does."""
    code = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
body = b"one\\ntwo\\n"
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_HEAD(self): self.do_GET()
    def do_GET(self):
        path, status = self.path.partition("?")[0], 200
        file = {"type": "file", "path": "data/x.txt", "size": len(body), "oid": "abc"}
        folder = {"type": "directory", "path": "data", "oid": "def", "size": 0}
        answers = {
            "/api/datasets/own/set": {"id": "own/set", "sha": "f" * 40, "siblings": []},
            "/api/datasets/own/set/tree/main": [folder],
            "/api/datasets/own/set/tree/main/data": [file],
        }
        if path in answers:
            sent = json.dumps(answers[path]).encode()
        elif path == "/datasets/own/set/resolve/main/data/x.txt":
            sent = body
        else:
            status, sent = 404, b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "f" * 40)
        self.end_headers()
        if self.command == "GET": self.wfile.write(sent)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
import os
os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
from sentcli.errors import InputError
from sentcli.io.formats import records
from sentcli.io.text_inputs import text_sources
for name in ("hf://datasets/own/set/data/x.txt", "hf://datasets/own/set/data/*.txt"):
    [source] = text_sources([name])
    assert source.name == "hf://datasets/own/set/data/x.txt", source.name
    assert [row["text"] for _, row in records(source)] == ["one", "two"]
try:
    text_sources(["hf://datasets/own/set/data/y.txt"])
except InputError as error:
    assert str(error) == "no such file: hf://datasets/own/set/data/y.txt", error
else:
    raise AssertionError
"""
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)
