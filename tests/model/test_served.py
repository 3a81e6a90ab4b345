"""Models behind an address: the vectors and scores of the same model here, and what a host can do wrong."""

import json
import random
import shlex
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import sentcli
from sentcli import SentenceEncoder
from sentcli.errors import SentcliError
from sentcli.io.served import Served
from sentcli.model.probe_vectors import PROBE_TEXTS
from tests.conftest import WORDS
from tests.evaluation.conftest import write_set
from tests.tolerance import VECTORS, Near

KEY = "a-key-that-nobody-may-see"


@pytest.fixture(scope="module")
def local(tiny_bert):
    """The model that the host serves."""
    return SentenceEncoder.load(tiny_bert, device="cpu", backend="torch")


@pytest.fixture
def host(local):
    """A server of the OpenAI form with the vectors of a tiny model, the last text first; `behave` can be changed."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with self.server.lock:  # requests come from several connections at a time
                self.server.requests.append((self.path, self.headers.get("Authorization"), request))
                status, body, *headers = self.server.behave(len(self.server.requests), request)
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *arguments):
            pass

    def behave(number, request):
        vectors = local.encode(request["input"])
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(vectors.tolist())]
        return 200, {"data": data[::-1], "usage": {"total_tokens": 3 * len(data)}}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.behave, server.normal, server.lock = [], behave, behave, threading.Lock()
    server.model = f"http://127.0.0.1:{server.server_port}/v1#tiny"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sentcli.io.served.WAITS", (0.01, 0.01, 0.01))


@pytest.fixture
def rows(tmp_path):
    """A file of 1,500 short texts, some of which repeat."""
    generator, words = random.Random(1), [word for word in WORDS if word.isalpha()]
    path = tmp_path / "rows.txt"
    path.write_text("".join(f"{' '.join(generator.choices(words, k=3))}\n" for _ in range(1500)))
    return path


def beir(folder):
    """Write a retrieval set of 12 queries."""
    words = [word for word in WORDS if word.isalpha()][:36]
    corpus = [{"_id": f"d{n}", "text": f"the {word} is near a {words[-n]}"} for n, word in enumerate(words)]
    queries = [{"_id": f"q{n}", "text": f"{words[n]} and {words[-n]}"} for n in range(12)]
    qrels = "".join(f"q{n}\td{n + n % 3}\t1\n" for n in range(12))
    return write_set(folder, corpus, queries, "query-id\tcorpus-id\tscore\n" + qrels)


def sent_texts(host):
    """Return the texts that the host was sent, without the one that asks for the dimension."""
    return [text for _, _, request in host.requests for text in request["input"] if text != "dimension"]


def test_a_served_model_gives_the_vectors_of_the_same_model_here(host, local, sentences, monkeypatch):
    monkeypatch.setenv("SENTCLI_API_KEY", KEY)
    encoder = SentenceEncoder.load(host.model)
    assert np.allclose(encoder.encode(sentences), local.encode(sentences), atol=VECTORS)
    assert np.allclose(encoder.encode(["a cat"], prompt="the "), local.encode(["the a cat"]), atol=VECTORS)
    path, key, request = host.requests[-1]
    assert path == "/v1/embeddings" and key == f"Bearer {KEY}" and request["model"] == "tiny"
    distinct = len(set(sentences))
    assert encoder.sent.texts == distinct + 2 and encoder.sent.tokens == 3 * (distinct + 2)
    assert encoder.sent.requests == len(host.requests) and len(host.requests) >= 2 + distinct / 32


@pytest.mark.slow
def test_encode_writes_the_vectors_and_says_what_was_sent_but_no_key(
    host, tiny_bert, rows, tmp_path, invoke, monkeypatch
):
    monkeypatch.setenv("SENTCLI_API_KEY", KEY)
    out, report = tmp_path / "vectors", tmp_path / "report.json"
    result = invoke("encode", rows, "-o", out, "-m", host.model, "--prompt", "the ", "--json", report, check=0)
    invoke("encode", rows, "-o", tmp_path / "own.npy", "-m", tiny_bert, "--prompt", "the ", "-q", check=0)
    assert np.allclose(np.load(out / "vectors-00000.npy"), np.load(tmp_path / "own.npy"), atol=VECTORS)
    texts = rows.read_text().splitlines()
    assert sorted(sent_texts(host)) == sorted([*{f"the {text}" for text in texts}, *(f"the {t}" for t in PROBE_TEXTS)])
    sent = json.loads(report.read_text())["results"]["sent"]
    assert sent["requests"] == len(host.requests) and sent["texts"] == len(set(texts)) + len(PROBE_TEXTS) + 1
    assert f"{sent['requests']} requests" in " ".join(result.stderr.split())
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["settings"]["model"] == host.model and manifest["settings"]["model_fingerprint"]
    seen = [
        result.stderr,
        result.stdout,
        *(p.read_bytes().decode("latin-1") for p in tmp_path.rglob("*") if p.is_file()),
    ]
    assert not any(KEY in text for text in seen)


def test_what_a_host_has_answered_for_the_documents_to_judge_is_kept(host, tmp_path, invoke):
    folder = beir(tmp_path / "set")
    arguments = ["data", "make-set", folder, "--judge", 12, "-m", host.model]
    invoke(*arguments, "-o", tmp_path / "one", check=0)
    sent = len(sent_texts(host))
    assert sent == 36 + 12
    invoke(*arguments, "-o", tmp_path / "two", check=0)
    assert len(sent_texts(host)) == sent


@pytest.mark.slow
@pytest.mark.parametrize("data", ["pairs", "set"])
def test_evaluate_gives_the_scores_of_the_same_model_here_and_its_costs_have_what_was_sent(
    data, host, tiny_bert, tmp_path, invoke
):
    if data == "pairs":
        path = tmp_path / "pairs.tsv"
        lines = [
            f"the cat sat {a}\ta dog ran {b}\t{n % 5}\n" for n, (a, b) in enumerate(zip(WORDS, WORDS[7:], strict=False))
        ]
        path.write_text("sentence1\tsentence2\tscore\n" + "".join(lines))
    else:
        path = beir(tmp_path / "set")
    report = tmp_path / "scores.json"
    invoke(
        "evaluate", path, "-m", tiny_bert, "-m", host.model, "--json", report, "--report", tmp_path / "page.md", check=0
    )
    here, served = json.loads(report.read_text())
    (mine,), (theirs,) = here["results"].values(), served["results"].values()
    assert theirs["value"] == pytest.approx(mine["value"], abs=1e-9)
    cost = served["cost"]
    assert cost["sent_requests"] == len(host.requests) and cost["sent_texts"] == len(sent_texts(host)) + 1
    assert cost["weight_bytes"] is None and cost["dimensions"] == 32 and "sent_requests" not in here["cost"]
    page = " ".join((tmp_path / "page.md").read_text().split())
    assert f"{cost['sent_requests']} requests with {cost['sent_texts']} texts" in page
    assert served["model"] == host.model and served["protocol"]["backend"] == "served"
    before = len(host.requests)
    invoke("evaluate", path, "-m", host.model, check=0)
    assert len(host.requests) - before < before  # scores and vectors were kept; dimension and speed were asked for


@pytest.mark.slow
def test_retrieve_searches_and_scores_as_the_same_model_here(host, tiny_bert, rows, tmp_path, invoke):
    def hits(*arguments):
        invoke("retrieve", *arguments, "--query", "the cat sat", "--json", tmp_path / "hits.json", check=0)
        (query,) = json.loads((tmp_path / "hits.json").read_text())["results"]
        return [(hit["id"], Near(hit["score"])) for hit in query["hits"]]

    expected = hits("--corpus", rows, "-m", tiny_bert)
    assert hits("--corpus", rows, "-m", host.model) == expected
    invoke("encode", rows, "-o", tmp_path / "dir", "-m", host.model, check=0)
    before = len(host.requests)
    assert hits("--corpus", tmp_path / "dir", "-m", host.model) == expected
    sent = [text for _, _, request in host.requests[before:] for text in request["input"]]
    assert sorted(sent) == sorted(["dimension", *PROBE_TEXTS, "the cat sat"])
    folder, before = beir(tmp_path / "set"), len(host.requests)
    scores = []
    for model in (tiny_bert, host.model):
        invoke("retrieve", "--beir", folder, "-m", model, "--json", tmp_path / "scores.json", check=0)
        scores.append(json.loads((tmp_path / "scores.json").read_text())["results"]["set"])
    assert scores[0] == scores[1] and len(host.requests) > before


def test_another_model_behind_the_same_name_is_found_out(host, rows, tmp_path, invoke):
    invoke("encode", rows, "-o", tmp_path / "dir", "-m", host.model, check=0)
    found = ["retrieve", "--corpus", tmp_path / "dir", "-m", host.model, "--query", "the cat sat"]
    invoke(*found, check=0)

    def other(number, request):
        status, body, *_ = host.normal(number, request)
        return status, {"data": [{**row, "embedding": row["embedding"][::-1]} for row in body["data"]]}

    host.behave = other
    assert "another model" in invoke(*found, check=2).stderr
    assert "another model" in invoke("encode", "--check", tmp_path / "dir", "-m", host.model, check=1).stderr


def test_what_a_directory_names_is_not_asked_unless_its_address_is_given(host, tiny_bert, rows, tmp_path, invoke):
    invoke("encode", rows, "-o", tmp_path / "dir", "-m", host.model, check=0)
    before = len(host.requests)
    result = invoke("retrieve", "--corpus", tmp_path / "dir", "--query", "the cat", check=2)
    assert f"-m {shlex.quote(host.model)}" in " ".join(result.stderr.split())
    invoke("retrieve", "--corpus", tmp_path / "dir", "--query", "the cat", "-m", tiny_bert, check=2)
    invoke("encode", rows, "-o", tmp_path / "dir", "-m", tiny_bert, "--resume", check=2)
    assert len(host.requests) == before


def test_another_name_or_dimension_is_another_model(host, rows, tmp_path, invoke):
    invoke("encode", rows, "-o", tmp_path / "dir", "-m", host.model, check=0)
    query = ("retrieve", "--corpus", tmp_path / "dir", "--query", "the cat")
    invoke(*query, "-m", host.model.replace("#tiny", "#other"), check=2)
    host.behave = lambda number, request: (200, {"data": [{"index": 0, "embedding": [1.0] * 16}]})
    invoke(*query, "-m", host.model, check=2)


def test_two_models_of_one_address_are_told_apart(host, rows, tmp_path, invoke):
    path = beir(tmp_path / "set")
    other = host.model.replace("#tiny", "#other")
    invoke("evaluate", path, "-m", host.model, "-m", other, "--json", tmp_path / "scores.json", check=0)
    assert [scores["model"] for scores in json.loads((tmp_path / "scores.json").read_text())] == [host.model, other]
    assert {request["model"] for _, _, request in host.requests} == {"tiny", "other"}


def changed(host, change):
    """Return the behaviour of a host whose answers are changed."""

    def behave(number, request):
        status, body = host.normal(number, request)
        change(body["data"])
        return status, body

    return behave


def fill(value):
    return lambda data: data[-1]["embedding"].__setitem__(0, value)


FAULTS = {
    "refuses": (lambda host: lambda number, request: (401, {"error": "no such key"}), ["401", "SENTCLI_API_KEY"]),
    "no JSON": (lambda host: lambda number, request: (200, b"<html>"), ["JSON"]),
    "no embeddings": (lambda host: lambda number, request: (200, {"choices": []}), ["data"]),
    "nested": (lambda host: lambda number, request: (200, b"[" * 100_000), ["JSON"]),
    "redirects": (lambda host: lambda number, request: (302, {}, ("Location", "http://127.0.0.1:9/")), ["302"]),
    "fewer rows": (lambda host: changed(host, lambda data: data.pop()), ["31", "32"]),
    "a row twice": (lambda host: changed(host, lambda data: data[0].update(index=data[1]["index"])), ["32"]),
    "other dimension": (
        lambda host: changed(host, lambda data: [row["embedding"].pop() for row in data]),
        ["31", "32"],
    ),
    "uneven": (lambda host: changed(host, lambda data: data[3]["embedding"].pop()), ["31", "32"]),
    "NaN": (lambda host: changed(host, fill(float("nan"))), ["embedding"]),
    "null": (lambda host: changed(host, fill(None)), ["embedding"]),
    "text": (lambda host: changed(host, fill("0.5")), ["embedding"]),
    "overflow": (lambda host: changed(host, fill(1e300)), ["float32"]),
    "zeros": (lambda host: changed(host, lambda data: data[2].update(embedding=[0] * 32)), ["zeros"]),
    "no object": (lambda host: lambda number, request: (200, [1, 2]), ["[1, 2]"]),
    "busy": (lambda host: lambda number, request: (503, b"overloaded"), ["503"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_host_that_fails_is_named(fault, host):
    misbehave, parts = FAULTS[fault]
    bad, encoder = misbehave(host), SentenceEncoder.load(host.model)
    host.behave = lambda number, request: (host.normal if number <= 3 else bad)(number, request)
    with pytest.raises(SentcliError) as error:
        encoder.encode([f"a cat {n}" for n in range(6 * 32)])
    message = " ".join(str(error.value).split())
    assert all(part in message for part in [host.model, *parts]), message


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_host_that_fails_is_named_and_what_is_done_is_kept(fault, host, local, rows, tmp_path, invoke, monkeypatch):
    monkeypatch.setattr("sentcli.stores.vector_cache.SERVED_AT_A_TIME", 256)
    misbehave, parts = FAULTS[fault]
    bad = misbehave(host)
    host.behave = lambda number, request: (host.normal if number <= 30 else bad)(number, request)
    command = ["encode", rows, "-o", tmp_path / "vectors", "-m", host.model, "--shard-rows", 500]
    result = invoke(*command, check=1)
    message = " ".join(result.stderr.split())
    assert all(part in message for part in [host.model, *parts]), message
    manifest = json.loads((tmp_path / "vectors" / "manifest.json").read_text())
    assert manifest["rows_done"] == 500
    host.behave, before = host.normal, len(host.requests)
    invoke(*command, "--resume", check=0)
    vectors = np.concatenate([np.load(path) for path in sorted((tmp_path / "vectors").glob("vectors-*.npy"))])
    texts = rows.read_text().splitlines()
    assert np.allclose(vectors, local.encode(texts), atol=VECTORS)
    again = sum(len(request["input"]) for _, _, request in host.requests[before:])
    assert again <= len(set(texts)) - 680  # of 30 requests, at most those that were under way with the bad one


def test_a_host_that_is_not_there_is_said_at_once(tmp_path, rows, invoke):
    result = invoke("encode", rows, "-o", tmp_path / "v.npy", "-m", "http://127.0.0.1:9/v1#tiny", check=1)
    assert "127.0.0.1:9" in result.stderr and not (tmp_path / "v.npy").exists()
    for name in ("http://127.0.0.1:9/v1", "http://me:secret@127.0.0.1:9/v1#m", "http://h:port/v1#m"):
        result = invoke("encode", rows, "-o", tmp_path / "v.npy", "-m", name, check=2)
        assert "secret" not in result.stderr


def test_a_proxy_that_leads_nowhere_is_named(tmp_path, rows, invoke, monkeypatch):
    monkeypatch.setattr("sentcli.io.served.WAITS", ())
    monkeypatch.setenv("http_proxy", "http://someone:hidden@127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    failed = invoke("encode", rows, "-o", tmp_path / "v.npy", "-m", "http://192.0.2.1/v1#m", check=1)
    assert "http_proxy" in failed.stderr and "no_proxy=192.0.2.1" in failed.stderr
    assert "hidden" not in failed.stderr


def test_a_key_that_no_header_can_hold_is_refused(host, rows, tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("SENTCLI_API_KEY", f"{KEY}\n")
    result = invoke("encode", rows, "-o", tmp_path / "vectors", "-m", host.model, check=2)
    assert "SENTCLI_API_KEY" in result.stderr and KEY not in result.stderr and not host.requests


def test_a_busy_host_is_asked_again_when_it_says(host, local):
    encoder = SentenceEncoder.load(host.model)
    refused = []

    def busy_once(number, request):
        if not refused:
            refused.append(number)
            return 429, {"error": "slower"}, ("Retry-After", "0")
        return host.normal(number, request)

    host.behave = busy_once
    assert np.allclose(encoder.encode(["a cat"]), local.encode(["a cat"]), atol=VECTORS)
    assert refused and encoder.sent.texts == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("encode", "ROWS", "-o", "OUT.npy", "--max-length", 16),
        ("encode", "ROWS", "-o", "OUT.npy", "--pooling", "cls"),
        ("encode", "ROWS", "-o", "OUT.npy", "--no-normalize"),
        ("encode", "ROWS", "-o", "OUT.npy", "--backend", "torch"),
        ("encode", "ROWS", "-o", "OUT.npy", "--precision", "int8"),
        ("encode", "ROWS", "-o", "OUT.npy", "--devices", "cpu,cpu"),
        ("encode", "ROWS", "-o", "OUT.npy", "--batch-tokens", 512),
        ("encode", "ROWS", "-o", "OUT.npy", "--on-long", "chunk-mean"),
        ("encode", "ROWS", "-o", "OUT.npy", "--on-long", "error"),
        ("encode", "ROWS", "-o", "OUT.npy", "--prompt-name", "query"),
        ("encode", "ROWS", "--estimate"),
        ("retrieve", "--corpus", "ROWS", "--query", "a cat", "--query-length", 8),
        ("export", "-o", "OUT"),
        ("train", "--method", "simcse", "--data", "ROWS", "-o", "OUT"),
    ],
)
def test_what_needs_the_weights_is_refused_and_sends_no_text(arguments, host, rows, tmp_path, invoke):
    places = {"ROWS": rows, "OUT": tmp_path / "out", "OUT.npy": tmp_path / "out.npy"}
    result = invoke(*(places.get(argument, argument) for argument in arguments), "-m", host.model, check=2)
    assert "tiny" in result.stderr and not sent_texts(host) and not (tmp_path / "out.npy").exists()


@pytest.mark.slow
def test_scores_of_published_data_come_from_a_served_model_too(host, tiny_bert, tmp_path):
    pairs = tmp_path / "own.tsv"
    pairs.write_text(
        "sentence1\tsentence2\tscore\n"
        + "".join(f"the cat {a}\ta dog {b}\t{n % 5}\n" for n, (a, b) in enumerate(zip(WORDS, WORDS[7:], strict=False)))
    )
    mine, theirs = (sentcli.sts_eval(model=model, pairs=pairs).to_dict() for model in (str(tiny_bert), host.model))
    assert theirs["results"]["own"]["spearman"] == pytest.approx(mine["results"]["own"]["spearman"], abs=1e-6)


def test_requests_have_few_texts_and_characters(host):
    SentenceEncoder.load(host.model).encode(["a" * 30_000, "b" * 30_000, "c" * 30_000, "d" * 100_000, "e"])
    sizes = [[len(text) for text in request["input"]] for _, _, request in host.requests[1:]]
    assert sorted(sizes) == [[1], [30_000], [30_000, 30_000], [100_000]]


def test_an_address_without_a_model_is_none(host):
    assert Served.parse("minilm") is None and Served.parse("s3://bucket/model") is None
    with pytest.raises(SentcliError):
        SentenceEncoder.load("http://127.0.0.1:9/v1")


@pytest.mark.slow
def test_a_host_that_takes_fewer_texts_at_a_time_is_sent_fewer(host, local, rows):
    """It says so with status 413."""
    sizes = []

    def behave(number, request):
        sizes.append(len(request["input"]))
        return host.normal(number, request) if len(request["input"]) <= 5 else (413, {"error": "batch size"})

    host.behave = behave
    texts = sorted(set(rows.read_text().splitlines()))[:500]
    assert np.allclose(SentenceEncoder.load(host.model).encode(texts), local.encode(texts), atol=VECTORS)
    refused = [size for size in sizes if size > 5]
    assert len(refused) < 40 and set(sizes[-50:]) <= {2, 4}


def test_a_text_that_is_too_large_for_a_host_is_named_by_its_row(host, tmp_path, invoke):
    host.behave = lambda number, request: (
        (413, b"too large") if max(map(len, request["input"])) > 50 else host.normal(number, request)
    )
    (tmp_path / "rows.txt").write_text("the cat\n" * 3 + "a dog\n" + "man " * 20 + "\n")
    result = invoke("encode", tmp_path / "rows.txt", "-o", tmp_path / "v.npy", "-m", host.model, check=1)
    message = " ".join(result.stderr.split())
    assert "rows.txt, row 5 (id 4): " in message and "413" in message and "80 characters" in message


def test_an_empty_text_that_a_host_refuses_is_named_by_its_row(host, tmp_path, invoke):
    host.behave = lambda number, request: (
        (400, {"error": "'$.input' is invalid"}) if "" in request["input"] else host.normal(number, request)
    )
    (tmp_path / "rows.csv").write_text('id,text\na,the cat\nb,the cat\nc,""\nd,a dog\n')
    result = invoke("encode", tmp_path / "rows.csv", "-o", tmp_path / "v.npy", "-m", host.model, check=1)
    message = " ".join(result.stderr.split())
    assert "rows.csv, row 3 (id c): " in message and "400" in message and "empty" in message
    with pytest.raises(SentcliError, match=r"text 2: .*400.*empty"):
        SentenceEncoder.load(host.model).encode(["the cat", "", "a dog"])
