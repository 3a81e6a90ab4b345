"""A file's checksum is remembered from one process to the next until the file changes in any way."""

import hashlib
import os

import pytest

from sentcli.io import digests


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "SETTLED_NANOSECONDS", 0)
    path = tmp_path / "weights"
    path.write_bytes(b"some weights")
    return path


def sha256(path):
    digests._digest.cache_clear()  # what this process remembers by itself
    assert digests.known_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_known_file_is_not_read_again(file, monkeypatch):
    sha256(file)
    monkeypatch.setattr(digests, "file_digest", lambda path: pytest.fail("the file was read again"))
    sha256(file)


def test_a_changed_file_is_read_again_even_with_its_old_size_and_time(file):
    sha256(file)
    times = file.stat()
    file.write_bytes(b"same weights")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    sha256(file)


@pytest.mark.parametrize("note", [b"", b"\xff\xfe", b"12"])
def test_a_torn_note_or_a_cache_that_cannot_be_written_costs_time_alone(file, note):
    sha256(file)
    (stored,) = (file.parent / "cache" / "digests").iterdir()
    stored.write_bytes(note)
    sha256(file)
    stored.unlink()
    stored.parent.rmdir()
    stored.parent.write_text("a file where a folder should be")
    sha256(file)


def test_a_file_that_has_just_been_written_is_not_remembered(file, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED_NANOSECONDS", 10**12)
    sha256(file)
    assert not list((file.parent / "cache").rglob("*"))
