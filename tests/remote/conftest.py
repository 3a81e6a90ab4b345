"""A store and a web server on this machine, which fail when a test asks for it."""

import threading
import time
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sentcli.io import object_stores
from sentcli.io.scratch import remove_scratch

BUCKET = "corpora"
KEY, SECRET = "AKIASENTCLITESTS", "a-secret-of-forty-signs-that-nobody-sees"


@dataclass
class Store:
    """moto's server behind an application that injects faults."""

    url: str
    fault: str = ""
    pause: float = 0.0
    """Seconds before each upload."""
    requests: list = field(default_factory=list)
    """Method and path of each request."""
    client: object = None

    def put(self, key, content):
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def get(self, key):
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def delete(self, key):
        self.client.delete_object(Bucket=BUCKET, Key=key)

    def names(self, folder):
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/")
        return sorted(item["Key"].removeprefix(f"{folder}/") for item in listed.get("Contents", []))

    def contents(self, folder):
        return {name: self.get(f"{folder}/{name}") for name in self.names(folder)}

    def uploads(self, folder):
        """The names of the files below a folder in the order of their uploads."""
        begin = f"/{BUCKET}/{folder}/"
        return [
            path.removeprefix(begin) for method, path in self.requests if method == "PUT" and path.startswith(begin)
        ]


def error(start_response, status, code):
    body = f"<Error><Code>{code}</Code><Message>of {KEY}</Message></Error>".encode()
    start_response(status, [("Content-Type", "text/xml")])
    return [body]


def dropped(inner, environ, start_response):
    """Half of a response, after which the connection breaks off."""
    head = {}
    body = b"".join(inner(environ, lambda status, headers, exc_info=None: head.update(status=status, headers=headers)))
    start_response(head["status"], head["headers"])

    def half():
        yield body[: len(body) // 2]
        raise ConnectionResetError

    return half()


@pytest.fixture(scope="session")
def descriptions():
    """Read botocore's descriptions of services once, and not for each client."""
    loaders = pytest.importorskip("botocore.loaders", reason="s3fs is not installed")
    with pytest.MonkeyPatch.context() as patch:
        whole = loaders.JSONFileLoader.load_file
        read = cache(lambda path: whole(loaders.JSONFileLoader(), path))
        patch.setattr(loaders.JSONFileLoader, "load_file", lambda self, path: read(path))
        yield


@pytest.fixture(scope="session")
def server(descriptions):
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    from werkzeug.serving import make_server

    inner = moto.DomainDispatcherApplication(moto.create_backend_app)
    store = Store("")

    def application(environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        store.requests.append((method, path))
        writes = method in ("PUT", "POST", "DELETE")
        if writes and store.pause:
            time.sleep(store.pause)
        number = len(store.requests)
        refused = None
        if store.fault == "500" or (store.fault == "some 500" and number % 3 == 0):
            refused = error(start_response, "500 Internal Server Error", "InternalError")
        if store.fault == "read-only" and writes:
            refused = error(start_response, "403 Forbidden", "AccessDenied")
        if store.fault == "other key":
            refused = error(start_response, "403 Forbidden", "InvalidAccessKeyId")
        if refused is not None:
            return refused if method != "HEAD" else []
        if store.fault == "drop" and method == "GET" and number % 2 == 0:
            return dropped(inner, environ, start_response)
        if store.fault == "slow":
            time.sleep(0.1)
        return inner(environ, start_response)

    http = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    store.url = f"http://127.0.0.1:{http.server_port}"
    yield store
    http.shutdown()


@pytest.fixture
def variables(server, tmp_path):
    """The variables by which the store is found, and folders of this test alone."""
    (tmp_path / "temporary").mkdir()
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": server.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "TMPDIR": str(tmp_path / "temporary"),
    }


@pytest.fixture
def store(server, variables, monkeypatch):
    """An empty bucket, and the variables that give access to it."""
    import tempfile

    import boto3

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)  # TMPDIR is read anew
    again = "botocore.retries.standard.ExponentialBackoff.delay_amount"
    monkeypatch.setattr(again, lambda self, context: 0.01)  # seconds before a further attempt
    object_stores._filesystem.cache_clear()
    server.fault, server.pause = "", 0.0
    server.client = boto3.client("s3", endpoint_url=server.url)
    server.client.create_bucket(Bucket=BUCKET)
    server.requests.clear()
    yield server
    server.fault, server.pause = "", 0.0
    for page in server.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for item in page.get("Contents", []):
            server.delete(item["Key"])
    server.client.delete_bucket(Bucket=BUCKET)
    remove_scratch()
    object_stores._filesystem.cache_clear()


@dataclass
class Web:
    """A web server."""

    url: str
    body: bytes = b"one\ntwo\nthree\n"
    kind: str = "text/plain"
    authorization: str | None = None
    """What a request has to send."""
    query: str | None = None
    """What a request has to ask with."""
    heads: bool = True
    """Whether HEAD requests are answered; an address that is signed for GET alone refuses them."""
    statuses: list = field(default_factory=list)
    """The statuses of the next GET requests; later ones have 200."""
    drops: int = 0
    """How many of the next GET requests break off in the middle."""

    def status(self, authorization, query, *, with_body):
        """The status of the answer to a request."""
        if self.authorization not in (None, authorization):
            return 401
        if self.query not in (None, query) or not (with_body or self.heads):
            return 403
        return self.statuses.pop(0) if with_body and self.statuses else 200


@pytest.fixture
def web():
    pytest.importorskip("aiohttp", reason="fsspec[http] is not installed")
    told = Web("")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer(with_body=False)

        def do_GET(self):
            self.answer(with_body=True)

        def answer(self, *, with_body):
            status = told.status(self.headers.get("Authorization"), self.path.partition("?")[2], with_body=with_body)
            body = told.body if status == 200 else b""
            self.send_response(status)
            self.send_header("Content-Type", told.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body and status == 200 and told.drops:
                told.drops -= 1
                body = body[: len(body) // 2]
            if with_body:
                self.wfile.write(body)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    told.url = f"http://127.0.0.1:{http.server_port}"
    object_stores._filesystem.cache_clear()
    yield told
    http.shutdown()
    remove_scratch()
    object_stores._filesystem.cache_clear()


@pytest.fixture
def encode(invoke, tiny_bert):
    """Run `encode` with the tiny BERT."""

    def call(*arguments, check=0, model=tiny_bert):
        return invoke("encode", *arguments, "-m", model, "--backend", "torch", check=check)

    return call


@pytest.fixture
def rows(tmp_path, sentences):
    """90 rows with ids and a column, as JSON Lines."""
    import json

    path = tmp_path / "rows.jsonl"
    lines = [{"id": f"r{i}", "text": f"{sentences[i % 40]} {i}", "n": i} for i in range(90)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def files(folder):
    """The bytes of the files in a folder by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
