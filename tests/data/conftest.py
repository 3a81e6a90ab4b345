"""A local server that misbehaves as it is told, and small data sets on it."""

import hashlib
import io
import threading
import time
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sentcli.data.registry import Archive, DataSet, File, Pin
from sentcli.io import object_stores


@dataclass
class Page:
    """What the server gives under one path."""

    content: bytes
    drops: list[int] = field(default_factory=list)
    """After how many bytes of each answer in turn the connection ends."""
    statuses: list[int] = field(default_factory=list)
    """What the first answers are instead."""
    delay: float = 0.0
    """Seconds between blocks of 16 KiB."""
    headers: dict[str, str] = field(default_factory=dict)
    length: bool = True
    """Whether the answer says how long it is."""


class Server:
    """Pages by path, and what was asked for."""

    def __init__(self):
        self.pages, self.asked, self.sent = {}, [], 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def do_HEAD(self):
                server.describe(self)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.base = f"http://127.0.0.1:{self.http.server_port}/"

    def put(self, path, content, **how):
        self.pages[path] = Page(content, **how)
        return self.base + path

    def ranges(self, path):
        return [asked for name, asked in self.asked if name == path]

    def describe(self, handler):
        page = self.pages.get(handler.path.lstrip("/"))
        if page is None or page.statuses:
            handler.send_error(404 if page is None else page.statuses[0])
        else:
            self.start(handler, page)

    def start(self, handler, page):
        handler.send_response(200)
        if page.length:
            handler.send_header("Content-Length", str(len(page.content)))
        for name, value in page.headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    def answer(self, handler):
        path = handler.path.lstrip("/")
        asked = handler.headers.get("Range")
        self.asked.append((path, asked))
        page = self.pages.get(path)
        status = 404 if page is None else page.statuses.pop(0) if page.statuses else 200
        if status != 200:
            handler.send_error(status)
            return
        self.start(handler, page)
        end = page.drops.pop(0) if page.drops else len(page.content)
        for place in range(0, min(end, len(page.content)), 2**14):
            try:
                handler.wfile.write(page.content[place : min(place + 2**14, end)])
            except OSError:
                return
            self.sent += 2**14
            time.sleep(page.delay)


@pytest.fixture
def server():
    found = Server()
    yield found
    found.http.shutdown()
    found.http.server_close()


@pytest.fixture(autouse=True)
def network(monkeypatch):
    """Let the local server be asked, without long pauses."""
    switches = ("HF_HUB_OFFLINE", "SENTCLI_OFFLINE", "HF_ENDPOINT", "HTTP_PROXY", "http_proxy")
    for name in (*switches, "SENTCLI_DATA_DIR", "SENTCLI_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(object_stores, "PAUSES", (0.001,) * 3)
    object_stores._filesystem.cache_clear()


class Meter:
    """Adds up what it is told."""

    def __init__(self):
        self.size, self.count, self.steps = None, 0, []

    def total(self, size):
        self.size = size

    def advance(self, count):
        self.count += count

    def step(self, text):
        self.steps.append(text)


@pytest.fixture
def meter():
    return Meter()


def pin(content, *, sha256=True, md5=False, size=True):
    return Pin(
        hashlib.sha256(content).hexdigest() if sha256 else None,
        hashlib.md5(content).hexdigest() if md5 else None,
        len(content) if size else None,
    )


BEIR = {
    "corpus.jsonl": b'{"_id": "d1", "title": "A", "text": "the cat sat"}\n{"_id": "d2", "text": "a dog ran"}\n',
    "queries.jsonl": b'{"_id": "q1", "text": "cat"}\n',
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\n",
}


def zipped(files, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def beir_zip(prefix="tiny/", **more):
    return zipped({f"{prefix}{name}": content for name, content in {**BEIR, **more}.items()})


def beir_set(url, content, pinned=True, **facts):
    """A set like BEIR's: one archive."""
    archive = Archive((url,), "zip", "tiny/", ("qrels/*.tsv",), pin(content) if pinned else Pin())
    files = tuple(File(path) for path in BEIR)
    return DataSet("tiny", "Tiny", "beir", "retrieval/tiny", "none", files, (archive,), **facts)


def plain_set(server, files, name="plain", pinned=True, **facts):
    """A set of single files."""
    made = tuple(
        File(path, (server.base + path,), pin=pin(content) if pinned else Pin()) for path, content in files.items()
    )
    return DataSet(name, "Plain", "text", name, "none", made, **facts)


def tree(folder):
    """Every file below a folder, without locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }
