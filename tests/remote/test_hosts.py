"""Web servers that answer badly, slowly or with nothing: what they answered is said, and they are not waited for."""

import re
import socket
import threading
import time

import pytest

from sentcli.data.get import download_checked
from sentcli.errors import SentcliError
from sentcli.io import object_stores
from sentcli.io.places import causes
from sentcli.io.scratch import remove_scratch
from tests.stores.outputs import message_of


class RawHost:
    """A server that answers every request with the same bytes, perhaps one at a time, of GET also those of the head."""

    def __init__(self, answer, pause=0.0, slow_head=False):
        self.answer, self.pause, self.slow_head = answer, pause, slow_head
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/rows.txt"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            try:
                request = connection.recv(65_536)
                head, _, body = self.answer.partition(b"\r\n\r\n")
                head += b"\r\n\r\n"
                if request.startswith(b"GET") and self.slow_head:
                    head, body = b"", head + body
                connection.sendall(head)
                if request.startswith(b"GET"):
                    for at in range(0, len(body), 1 if self.pause else max(len(body), 1)):
                        connection.sendall(body[at : at + 1] if self.pause else body)
                        time.sleep(self.pause)
            except OSError:
                pass


@pytest.fixture
def host(monkeypatch):
    pytest.importorskip("aiohttp", reason="fsspec[http] is not installed")
    monkeypatch.setattr(object_stores, "PAUSES", ())
    object_stores._filesystem.cache_clear()
    hosts = []

    def start(answer, *pace):
        hosts.append(RawHost(answer, *pace))
        return hosts[-1]

    yield start
    for each in hosts:
        each.socket.close()
    remove_scratch()
    object_stores._filesystem.cache_clear()


def http(status, *headers):
    return "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *headers, "", ""]).encode()


BAD = {
    "400": (http("400 Bad Request", "Content-Length: 0"), "400 Bad Request"),
    "418": (http("418 I'm a teapot", "Content-Length: 0"), "418 I'm a teapot"),
    "999": (http("999 Request denied", "Content-Length: 0"), "999"),
    "a bad length": (http("200 OK", "Content-Length: many"), ""),
    "garbage": (b"not HTTP at all\r\n\r\n" * 3, ""),
    "a redirection to nowhere": (http("302 Found", "Content-Length: 0"), "302 Found"),
    "nothing": (http("200 OK", "Content-Length: 0", "Content-Type: text/plain"), ""),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_host_answers_is_said(host, encode, tmp_path, name):
    answer, said = BAD[name]
    message = message_of(encode(host(answer).url, "-o", tmp_path / "o.npy", check=None))
    assert "127.0.0.1" in message and said in message, message
    assert "no such file" not in message and "the file is empty" not in message
    assert not (tmp_path / "o.npy").exists()


@pytest.mark.parametrize("name", BAD)
def test_a_data_set_is_not_fetched_from_a_host_that_answers_so(host, tmp_path, name):
    from sentcli import console
    from sentcli.data.registry import Pin

    answer, _ = BAD[name]
    with console.transferring("x") as meter, pytest.raises(SentcliError, match=r"127\.0\.0\.1"):
        download_checked([host(answer).url], tmp_path / "rows", Pin(), meter)


@pytest.mark.slow
@pytest.mark.parametrize("slow_head", [False, True])
def test_a_host_that_sends_a_byte_at_a_time_is_not_waited_for(host, encode, tmp_path, monkeypatch, slow_head):
    monkeypatch.setattr(object_stores, "SLOW_SECONDS", 1.0)
    answer = http("200 OK", "Content-Length: 500", "Content-Type: text/plain", *["X-More: " + "x" * 50] * 9)
    slow = host(answer + b"x" * 500, 0.2, slow_head)
    start = time.monotonic()
    message = message_of(encode(slow.url, "-o", tmp_path / "o.npy", check=1))
    assert time.monotonic() - start < 30
    assert re.search(f"{slow.url}: .* 1 seconds", message)

    from sentcli import console
    from sentcli.data.registry import Pin

    with console.transferring("x") as meter, pytest.raises(SentcliError, match=r"127\.0\.0\.1.* 1 seconds"):
        download_checked([slow.url], tmp_path / "rows", Pin(), meter)
    assert time.monotonic() - start < 60


# Keys of a store that a disk cannot hold


@pytest.mark.slow
def test_a_key_of_three_hundred_characters_is_read(store, encode, tmp_path):
    key = "k" * 300 + ".txt"
    store.put(key, b"one\ntwo\n")
    encode(f"s3://corpora/{key}", "-o", tmp_path / "o.npy")
    assert (tmp_path / "o.npy").exists()


@pytest.mark.parametrize(("content", "code"), [(b"full", 2), (b"", 0)])
def test_a_file_and_a_folder_of_one_name(store, encode, invoke, rows, tmp_path, content, code):
    encode(rows, "-o", "s3://corpora/v")
    store.put("v/indexes", content)
    store.put("v/indexes/notes.txt", b"mine")
    store.put("v/" + "n" * 300 + ".txt", b"another's")
    done = invoke("retrieve", "--corpus", "s3://corpora/v", "--query", "cat", "--search", "bm25")
    assert done.exit_code == code, done.stderr
    assert code == 0 or "'indexes'" in message_of(done)


def test_a_version_of_an_object_is_not_taken_for_the_current_one(store, encode, tmp_path):
    store.put("rows.txt", b"one\n")
    message = message_of(encode("s3://corpora/rows.txt?versionId=x", "-o", tmp_path / "o.npy", check=2))
    assert "versionId" in message and not (tmp_path / "o.npy").exists()


LONG = "a" * 300
"""A label of a host has at most 63 characters."""


@pytest.mark.parametrize(
    "command",
    [
        ("encode", "TEXTS", "-o", "OUT.npy", "-m", f"https://{LONG}/v1#m"),
        ("encode", f"https://{LONG}/texts.txt", "-o", "OUT.npy", "-m", "MODEL"),
        ("index", "TEXTS", "--to", f"postgresql://{LONG}/db", "--collection", "rows", "-m", "MODEL"),
        ("retrieve", "--corpus", f"postgresql://{LONG}/db", "--collection", "rows", "--query", "x"),
    ],
)
def test_a_host_whose_name_is_too_long_is_no_address(command, tiny_bert, tmp_path, invoke):
    pytest.importorskip("psycopg", reason="needs the extra sentcli[postgres]")
    texts = tmp_path / "texts.txt"
    texts.write_text("a cat\n")
    places = {"TEXTS": texts, "OUT.npy": tmp_path / "out.npy", "MODEL": tiny_bert}
    said = invoke(*(places.get(word, word) for word in command), check=2).stderr
    assert LONG[:20] in said and "defect" not in said


def test_errors_in_a_circle_are_named_once():
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    assert list(causes(first)) == [first, second]
