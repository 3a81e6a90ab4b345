"""What a host answers to `Served.answers`: its key in any form, and more bytes than there is memory for."""

import base64
import gzip
import json
import resource
import sys
import threading
import traceback
import urllib.parse
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sentcli.errors import SentcliError
from sentcli.io.served import LARGEST_ANSWER, Served

KEY = 'sk-0123456789/abc+def="ghi'


@pytest.fixture
def host(monkeypatch):
    """A server whose `answer` (status, headers, chunks of the body) a test sets."""
    monkeypatch.setenv("SENTCLI_API_KEY", KEY)
    monkeypatch.setattr("sentcli.io.served.WAITS", ())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, headers, chunks = self.server.answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for chunk in chunks:
                    self.wfile.write(chunk)
                    self.server.sent += len(chunk)
            except OSError:  # the client has heard enough
                pass

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.sent = True, 0
    server.name = f"http://127.0.0.1:{server.server_port}/v1#m"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()


def ask(host):
    return list(Served.parse(host.name).answers("embeddings", [{"input": ["a"]}]))


def refusal(host):
    with pytest.raises(SentcliError) as caught:
        ask(host)
    return str(caught.value), "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, 245, 280, 299, 2**16 - 20])
@pytest.mark.parametrize(
    "form",
    [
        str,
        lambda key: urllib.parse.quote(key, safe=""),
        json.dumps,
        lambda key: base64.b64encode(f"me:{key}".encode()).decode(),
    ],
    ids=["raw", "percent", "JSON", "base64"],
)
def test_a_reason_that_quotes_the_key_does_not_show_a_part_of_it(start, form, host):
    host.answer = 400, {}, [b"x " * (start // 2) + form(KEY).encode() + b" is wrong"]
    said, shown = refusal(host)
    assert "status 400 " in said
    quoted = form(KEY)
    assert not any(quoted[place : place + 8] in text for place in range(len(quoted) - 8) for text in (said, shown))


def test_an_answer_that_quotes_the_key_as_data_is_without_it(host, invoke, tmp_path):
    host.answer = 200, {}, [json.dumps({"a": [f"your key {KEY}"], KEY: 1}).encode()]
    assert ask(host) == [{"a": ["your key ..."], "...": 1}]
    for answer in ({"data": KEY}, {"data": [{"index": 0, "embedding": f"{KEY}"}]}, {"data": [{"index": KEY}]}):
        host.answer = 200, {}, [json.dumps(answer).encode()]
        (tmp_path / "t.txt").write_text("a\n")
        result = invoke("encode", tmp_path / "t.txt", "-o", tmp_path / "v.npy", "-m", host.name, "--debug", check=1)
        assert "is no list of embeddings" in result.stderr and "sk-0" not in result.stderr


def test_a_header_that_quotes_the_key_is_not_shown(host):
    host.answer = 302, {"Location": f"http://127.0.0.1:1/?key={urllib.parse.quote(KEY)}"}, [KEY.encode()]
    said, shown = refusal(host)
    assert "status 302" in said and "sk-0" not in said + shown


BOMB = zlib.compressobj(1, wbits=31)
PACKED_BOMB = b"".join([BOMB.compress(b" " * 2**20) for _ in range(80)]) + BOMB.flush()


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("kind", ["bytes", "gzip"])
def test_an_answer_without_end_is_not_read_to_its_end(status, kind, host):
    if kind == "gzip":
        host.answer = status, {"Content-Encoding": "gzip"}, [PACKED_BOMB]
    else:
        host.answer = status, {"Content-Length": str(3 * 2**29)}, (b" " * 2**20 for _ in range(3 * 2**9))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said, _ = refusal(host)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert grown < 5 * LARGEST_ANSWER
    assert host.sent < 3 * LARGEST_ANSWER
    assert ("more than 32 MB" if status == 200 else "status 400") in said


def test_packed_answers_are_read(host):
    for encoding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)):
        host.answer = 200, {"Content-Encoding": encoding}, [pack(b'{"a": 1}')]
        assert ask(host) == [{"a": 1}]


@pytest.mark.parametrize(
    ("encoding", "body", "said"),
    [
        ("gzip", gzip.compress(b'{"a": 1}', mtime=0)[:-9], "unpacked"),
        ("gzip", b'{"a": 1}', "unpacked"),
        ("br", b"xyz", "packed with br"),
    ],
)
def test_an_answer_that_cannot_be_unpacked_is_named(encoding, body, said, host):
    host.answer = 200, {"Content-Encoding": encoding}, [body]
    assert said in refusal(host)[0]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_a_forked_child_asks_as_its_parent_does(host):
    import multiprocessing

    host.answer = 200, {}, [b'{"a": 1}']
    assert ask(host) == [{"a": 1}]
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=lambda: theirs.send(ask(host)))
    process.start()
    try:
        assert ours.poll(30) and ours.recv() == [{"a": 1}]
    finally:
        process.kill()
        process.join()
