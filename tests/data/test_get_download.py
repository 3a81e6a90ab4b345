"""Downloads arrive whole or not at all, whatever the server does on the way."""

import random
import socket
from types import SimpleNamespace

import pytest

from sentcli.data.get import download_checked
from sentcli.data.registry import Pin
from sentcli.errors import SentcliError
from sentcli.io import object_stores
from sentcli.io.atomic import NoRoomError
from tests.data.conftest import pin

CONTENT = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)


@pytest.fixture
def fetch(tmp_path, meter):
    def call(*sources, wanted=None, **how):
        wanted = pin(CONTENT) if wanted is None else wanted
        source = download_checked(sources, tmp_path / "file", wanted, meter, **how)
        return SimpleNamespace(path=tmp_path / "file", source=source)

    return call


def test_a_file_arrives_and_the_meter_counts_it(server, fetch, meter):
    received = fetch(server.put("a", CONTENT))
    assert received.path.read_bytes() == CONTENT
    assert meter.count == len(CONTENT)
    fetch(server.put("a", CONTENT), wanted=Pin())
    assert (meter.size, meter.count) == (len(CONTENT), 2 * len(CONTENT))


@pytest.mark.parametrize("pinned", [True, False])
def test_a_connection_that_ends_midway_is_asked_again(server, fetch, meter, pinned):
    url = server.put("a", CONTENT, drops=[100_000, 50_000])
    received = fetch(url, wanted=pin(CONTENT) if pinned else Pin())
    assert received.path.read_bytes() == CONTENT
    assert len(server.ranges("a")) == 3
    assert meter.count == len(CONTENT), "bytes of broken attempts are taken back"


def test_a_source_that_always_breaks_is_not_asked_for_ever(server, fetch, tmp_path):
    url = server.put("a", CONTENT, drops=[30_000] * 50)
    with pytest.raises(SentcliError):
        fetch(url)
    assert len(server.asked) == 1 + len(object_stores.PAUSES)
    assert not list(tmp_path.iterdir()), "half a file was left"


@pytest.mark.parametrize("pinned", [True, False])
def test_bytes_of_two_sources_are_not_joined(server, fetch, pinned):
    first = server.put("a", OTHER, drops=[100_000] * 9)
    second = server.put("b", CONTENT)
    received = fetch(first, second, wanted=pin(CONTENT) if pinned else Pin())
    assert received.path.read_bytes() == CONTENT and received.source == second


def test_wrong_bytes_and_the_next_source(server, fetch, tmp_path):
    first, second = server.put("a", OTHER), server.put("b", CONTENT)
    received = fetch(first, second)
    assert received.path.read_bytes() == CONTENT
    assert len(server.ranges("a")) == 1, "wrong bytes are not asked for twice"


def test_if_no_source_is_right_the_error_lists_all(server, fetch, tmp_path):
    first, second = server.put("a", OTHER), server.base + "missing"
    third = server.put("c", CONTENT, statuses=[500] * 9)
    with pytest.raises(SentcliError) as caught:
        fetch(first, second, third)
    lines = str(caught.value).splitlines()
    assert "file" in lines[0]
    assert f"  {first}: sha256 is {pin(OTHER).sha256}, not {pin(CONTENT).sha256}" in lines
    assert any(line.startswith(f"  no such file: {second}") for line in lines)
    assert any("127.0.0.1 answers 500" in line for line in lines)
    assert len(server.ranges("c")) == 1 + len(object_stores.PAUSES)
    assert not (tmp_path / "file").exists(), "wrong bytes were kept"


def test_an_md5_is_compared_too(server, fetch):
    right = pin(CONTENT, sha256=False, md5=True)
    with pytest.raises(SentcliError, match="md5 is"):
        fetch(server.put("a", OTHER), wanted=right)
    assert fetch(server.put("a", CONTENT), wanted=right).path.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_passing_failure_is_tried_again(server, fetch, status):
    assert fetch(server.put("a", CONTENT, statuses=[status, status])).path.read_bytes() == CONTENT


def test_another_size_is_seen_before_the_bytes_come(server, fetch):
    url = server.put("a", bytes(2**24))
    with pytest.raises(SentcliError, match=r"16,777,216.*300,000"):
        fetch(url)
    assert server.sent < 2**24


def test_more_bytes_than_there_should_be_are_not_read(server, fetch):
    url = server.put("a", CONTENT * 40, length=False)
    with pytest.raises(SentcliError, match="300,000"):
        fetch(url)
    assert server.sent < len(CONTENT) * 40


def test_an_answer_without_a_length(server, fetch):
    assert fetch(server.put("a", CONTENT, length=False), wanted=Pin()).path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("headers", "problem"),
    [({"Content-Type": "text/html; charset=utf-8"}, "/a .*page"), ({"Content-Encoding": "gzip"}, r"127\.0\.0\.1")],
)
def test_what_is_not_the_file_is_refused(server, fetch, headers, problem):
    with pytest.raises(SentcliError, match=problem):
        fetch(server.put("a", b"<html>", headers=headers), wanted=Pin())


@pytest.mark.slow
def test_a_silent_source_is_left(server, fetch, monkeypatch):
    monkeypatch.setattr(object_stores, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(object_stores, "LEAST_BYTES", 10**6)
    first, second = server.put("a", CONTENT, delay=1), server.put("b", CONTENT)
    assert fetch(first, second).source == second


def test_nobody_there(fetch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{taken.getsockname()[1]}/a"
        with pytest.raises(SentcliError, match=r"127\.0\.0\.1") as caught:
            fetch(url, "ftp://127.0.0.1/a")
    assert "secret" not in str(caught.value)
    assert "ftp://127.0.0.1/a: " in str(caught.value)


def test_too_little_room_is_seen_before(server, fetch, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(NoRoomError, match=r"/a needs 0.3 MB below .* 0.0 MB"):
        fetch(server.put("a", CONTENT), server.put("b", CONTENT))
    assert not server.ranges("b"), "another source does not help"


def test_a_full_disk_is_no_fault_of_the_source(server, fetch, tmp_path):
    resource = pytest.importorskip("resource")
    import signal

    url = server.put("a", CONTENT)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
    try:
        with pytest.raises(NoRoomError, match=f"/a: File too large.*{tmp_path}"):
            fetch(url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(server.asked) == 1 and not list(tmp_path.iterdir())
    assert fetch(url).path.read_bytes() == CONTENT


def test_the_hub_can_be_another_one(server, fetch, monkeypatch):
    server.put("datasets/x/resolve/main/a", CONTENT)
    monkeypatch.setenv("HF_ENDPOINT", server.base)
    assert fetch("https://huggingface.co/datasets/x/resolve/main/a").path.read_bytes() == CONTENT
