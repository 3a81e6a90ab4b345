"""Queries that a model writes: behind an address, by a seq2seq model, and again from the answers without a model."""

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.conftest import wordpiece_tokenizer

PLACES = "harbour castle bridge market temple garden station library museum stadium prison airport".split()


@pytest.fixture
def corpus(tmp_path):
    """Documents without any structure: one sentence each, so that only a model can ask for them."""
    generator = random.Random(0)
    rows = [
        f"the {PLACES[n % 12]} of town {n} has {' '.join(generator.choices(PLACES, k=6))} beside it" for n in range(24)
    ]
    path = tmp_path / "places.txt"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def host():
    """A server of the OpenAI form that asks for the first words of a document; its behaviour can be changed."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            server = self.server
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:  # requests come from several connections at a time
                server.requests.append((self.path, self.headers.get("Authorization"), request))
                number = len(server.requests)
            status, body = server.behave(number, request)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *arguments):
            pass

    def behave(number, request):
        text = request["messages"][0]["content"].rpartition("\n\n")[2]
        return 200, {"choices": [{"message": {"content": "Where is " + " ".join(text.split()[:5])}}]}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.behave, server.normal, server.lock = [], behave, behave, threading.Lock()
    server.address = f"http://127.0.0.1:{server.server_port}/v1#writer"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))


def queries_of(folder):
    return [json.loads(line)["text"] for line in (folder / "queries.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_model_behind_an_address_writes_and_its_answers_make_the_set_again(
    corpus, host, tmp_path, invoke, monkeypatch
):
    monkeypatch.setenv("SENTCLI_API_KEY", "a-secret-key")
    command = ["data", "make-set", corpus, "-o", tmp_path / "set", "--write-with", host.address, "--seed", 3]
    invoke(*command, check=0)
    path, key, request = host.requests[0]
    assert path == "/v1/chat/completions" and key == "Bearer a-secret-key" and len(host.requests) == 24
    assert request["model"] == "writer" and request["seed"] == 3
    assert "Where is the castle of town 1" in queries_of(tmp_path / "set")
    manifest = json.loads((tmp_path / "set" / "set.json").read_text())
    assert manifest["queries_from"] == {"written": 24} and manifest["settings"]["write_with"] == host.address
    assert manifest["settings"]["prompt"] in request["messages"][0]["content"]
    assert not any(b"a-secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    host.shutdown()
    invoke(
        "data",
        "make-set",
        corpus,
        "-o",
        tmp_path / "again",
        "--write-with",
        tmp_path / "set" / "written.jsonl",
        check=0,
    )
    assert (tmp_path / "again" / "queries.jsonl").read_bytes() == (tmp_path / "set" / "queries.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ['"{}"\n', "\u201c{}\u201d", "<think>\nWhat is it?\n</think>\n\n{}", "Here are two:\n\n1. {}\n2. no other"]
)
def test_what_stands_around_a_query_is_no_part_of_it(form, corpus, host, tmp_path, invoke):
    def behave(number, request):
        status, body = host.normal(number, request)
        body["choices"][0]["message"]["content"] = form.format(body["choices"][0]["message"]["content"])
        return status, body

    host.behave = behave
    invoke("data", "make-set", corpus, "-o", tmp_path / "set", "--write-with", host.address, check=0)
    assert queries_of(tmp_path / "set")[:2] == ["Where is the harbour of town 0", "Where is the castle of town 1"]


def test_queries_that_do_not_find_their_document_by_words_are_left_out(tmp_path, host, invoke):
    many = tmp_path / "many.txt"
    many.write_text("".join(f"the {PLACES[n % 12]} number{n} is open on day{n}\n" for n in range(40)))
    behave = host.normal
    host.behave = lambda n, request: (
        behave(n, request) if n % 4 else (200, {"choices": [{"message": {"content": f"entirely other words q{n}"}}]})
    )
    invoke("data", "make-set", many, "-o", tmp_path / "set", "--write-with", host.address, check=0)
    manifest = json.loads((tmp_path / "set" / "set.json").read_text())
    assert manifest["left_out"] == {"not among the first 20 by BM25": 10} and manifest["queries"] == 30


@pytest.mark.parametrize(
    ("status", "body", "parts"),
    [
        (401, {"error": "no such key"}, ["401", "no such key"]),
        (200, b"<html>", ["127.0.0.1", "JSON"]),
        (200, {"choices": []}, ["127.0.0.1", "choices"]),
        (302, {}, ["302"]),
    ],
)
def test_an_answer_that_is_none_is_said_and_what_is_done_is_kept(status, body, parts, corpus, host, tmp_path, invoke):
    host.behave = lambda number, request: host.normal(number, request) if number <= 16 else (status, body)
    command = ["data", "make-set", corpus, "-o", tmp_path / "set", "--write-with", host.address]
    result = invoke(*command, check=1)
    assert all(part in result.stderr for part in ["#writer", *parts]), result.stderr
    assert not (tmp_path / "set").exists()
    (kept,) = (tmp_path / "cache" / "answers").iterdir()
    kept.write_bytes(kept.read_bytes()[:-10])  # as a process that was killed while it wrote
    host.behave, before = host.normal, len(host.requests)
    invoke(*command, check=0)
    assert len(host.requests) - before == 9  # of 24, 15 were answered and written before
    invoke(*command, "--overwrite", check=0)
    assert len(host.requests) - before == 9


@pytest.mark.slow
def test_a_busy_host_is_asked_again(corpus, host, tmp_path, invoke, monkeypatch):
    monkeypatch.setattr("sentcli.io.served.WAITS", (0.01, 0.01, 0.01))
    before = set()

    def busy_at_first(number, request):
        text = request["messages"][0]["content"]
        if text in before:
            return host.normal(number, request)
        before.add(text)
        return 503, {}

    host.behave = busy_at_first
    invoke("data", "make-set", corpus, "-o", tmp_path / "set", "--write-with", host.address, check=0)
    assert len(queries_of(tmp_path / "set")) == 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("http://127.0.0.1:1/v1#m", 1),
        ("http://127.0.0.1:1/v1", 2),
        ("http://user:secret-word@127.0.0.1:1/v1#m", 2),
        ("no-such-folder", 2),
    ],
)
def test_an_address_that_is_none_is_named(address, code, corpus, tmp_path, invoke, monkeypatch):
    monkeypatch.setattr("sentcli.io.served.WAITS", (0.01,))
    result = invoke("data", "make-set", corpus, "-o", tmp_path / "set", "--write-with", address, check=code)
    assert ("127.0.0.1" if "127" in address else address) in result.stderr
    assert "secret-word" not in result.output


@pytest.mark.parametrize(
    ("change", "part"),
    [({"document": "unknown"}, "'unknown'"), ({"sha256": "0"}, "changed"), ({"query": 1}, "query")],
)
def test_answers_that_do_not_fit_are_refused(change, part, corpus, host, tmp_path, invoke):
    invoke("data", "make-set", corpus, "-o", tmp_path / "set", "--write-with", host.address, check=0)
    rows = [json.loads(line) for line in (tmp_path / "set" / "written.jsonl").read_text().splitlines()]
    rows[2] |= change
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["data", "make-set", corpus, "-o", tmp_path / "other", "--write-with", tmp_path / "answers.jsonl"]
    result = invoke(*command, check=2)
    assert "answers.jsonl, line 3" in result.stderr and part in result.stderr


def test_a_file_without_answers_makes_no_set_of_titles(tmp_path, invoke):
    rows = [{"_id": f"d{n}", "title": f"The old house number {n}", "text": f"text {n}"} for n in range(12)]
    (tmp_path / "titled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "written.jsonl").write_text("")
    arguments = ["data", "make-set", tmp_path / "titled.jsonl", "--write-with", tmp_path / "written.jsonl"]
    assert "written.jsonl" in invoke(*arguments, "-o", tmp_path / "set", check=2).stderr


def test_a_seq2seq_model_on_this_machine_writes(corpus, tmp_path, invoke):
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = wordpiece_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "doc2query")
    tokenizer.save_pretrained(tmp_path / "doc2query")
    command = ["data", "make-set", corpus, "--write-with", tmp_path / "doc2query"]
    result = invoke(*command, "-o", tmp_path / "set")
    # an untrained model writes noise, most of which does not find its document: the answers are kept all the same
    assert result.exit_code in (0, 2), result.stderr
    (kept,) = (tmp_path / "cache" / "answers").iterdir()
    assert len(kept.read_text().strip().splitlines()) == 24
