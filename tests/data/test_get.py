"""Archives are fetched, checked, unpacked and recorded; what is wrong leaves nothing behind."""

import gzip
import io
import json
import os
import shutil
import tarfile
import threading
import time
from dataclasses import replace

import pytest

from sentcli.data import data_folder, dataset_path, locate
from sentcli.data import get as module
from sentcli.data.get import fetch_data_set
from sentcli.data.pins import PINS_FILE, WORK, recorded_files, verify_files
from sentcli.data.registry import Archive, DataSet, File, Pin, is_offline, missing, presence
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import NoRoomError
from tests.data.conftest import BEIR, beir_set, beir_zip, pin, plain_set, tree, zipped

FOLDER = {f"retrieval/tiny/{name}": content for name, content in BEIR.items()}
PLAIN = {"a.txt": b"the cat\n" * 1000, "sub/b.txt": b"a dog\n" * 500}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def kept(folder):
    """All files but the lock file."""
    return {name: content for name, content in tree(folder).items() if name != PINS_FILE}


def test_an_archive_is_fetched_unpacked_and_recorded(server, folder, meter):
    content = beir_zip(**{"qrels/dev.tsv": b"dev", "README": b"not wanted"})
    dataset = beir_set(server.put("tiny.zip", content), content)
    assert presence(dataset, folder) == "no"
    got = fetch_data_set(dataset, folder, meter)
    assert kept(folder) == {**FOLDER, "retrieval/tiny/qrels/dev.tsv": b"dev"}
    assert (got.size, got.sources, got.first_use) == (len(content), [server.base + "tiny.zip"], [])
    assert presence(dataset, folder) == "yes"
    assert "unpacking tiny.zip" in meter.steps
    recorded = recorded_files(folder)
    assert recorded["retrieval/tiny: tiny.zip"].sha256 == pin(content).sha256
    assert recorded["retrieval/tiny/corpus.jsonl"].size == len(BEIR["corpus.jsonl"])
    assert [one.state for one in verify_files(dataset, folder, whole=True)] == ["ok"] * 4
    asked = len(server.asked)
    assert fetch_data_set(dataset, folder, meter).files == [] and len(server.asked) == asked, "fetched what is there"
    assert fetch_data_set(dataset, folder, meter, overwrite=True).files and len(server.asked) == asked + 1


def test_an_archive_that_is_wrong_leaves_nothing(server, folder, meter):
    content = beir_zip()
    dataset = beir_set(server.put("tiny.zip", beir_zip(**{"x": b"y"})), content)
    with pytest.raises(SentcliError, match=r"^tiny .*\n.* tiny\.zip:\n.*/tiny\.zip .*\d"):
        fetch_data_set(dataset, folder, meter)
    assert kept(folder) == {} and not recorded_files(folder)


@pytest.mark.parametrize(
    "content",
    [beir_zip()[:-40], zipped({"../evil": b"1"}), zipped({"tiny/corpus.jsonl": b"1"}), b"<html></html>"],
    ids=["truncated", "evil", "a file is missing", "no archive"],
)
def test_an_archive_without_checksum_that_is_damaged_leaves_no_data(server, folder, meter, content):
    dataset = beir_set(server.put("tiny.zip", content), content, pinned=False)
    with pytest.raises(SentcliError, match=r"^tiny "):
        fetch_data_set(dataset, folder, meter)
    assert not (folder / "retrieval").exists()
    assert not list((folder / WORK).rglob("unpacked"))


def test_a_damaged_archive_without_checksum_is_not_pinned(server, folder, meter):
    """Nobody has seen that it is the right one: what comes later may be."""
    url = server.put("tiny.zip", beir_zip()[:-40])
    dataset = beir_set(url, b"", pinned=False)
    with pytest.raises(SentcliError):
        fetch_data_set(dataset, folder, meter)
    server.put("tiny.zip", beir_zip())
    assert fetch_data_set(dataset, folder, meter).first_use == ["tiny.zip"]


def test_single_files_and_the_mirror_of_one(server, folder, meter):
    dataset = plain_set(server, PLAIN)
    for name, content in PLAIN.items():
        server.put(name, content)
    second = replace(dataset.files[0], sources=(server.put("wrong", b"x" * 8000), *dataset.files[0].sources))
    said = []
    got = fetch_data_set(replace(dataset, files=(second, dataset.files[1])), folder, meter, notice=said.append)
    assert kept(folder) == {f"plain/{name}": content for name, content in PLAIN.items()}
    assert len(got.sources) == 2 and got.first_use == []
    assert "wrong: sha256 is" in said[0]
    assert meter.size == meter.count == sum(map(len, PLAIN.values()))


def test_only_what_is_missing_is_fetched(server, folder, meter):
    dataset = plain_set(server, PLAIN)
    for name, content in PLAIN.items():
        server.put(name, content)
    (folder / "plain").mkdir(parents=True)
    (folder / "plain" / "a.txt").write_bytes(PLAIN["a.txt"])
    assert presence(dataset, folder) == "partly"
    assert fetch_data_set(dataset, folder, meter).files == ["sub/b.txt"]
    assert server.ranges("a.txt") == []


def test_what_has_no_checksum_is_pinned_at_the_first_download(server, folder, meter):
    dataset = plain_set(server, {"a.txt": b"first"}, pinned=False)
    server.put("a.txt", b"first")
    got = fetch_data_set(dataset, folder, meter)
    assert got.first_use == ["a.txt"]
    entry = json.loads((folder / PINS_FILE).read_text())["files"]["plain/a.txt"]
    assert entry == {**entry, "url": server.base + "a.txt", "sha256": pin(b"first").sha256, "size": 5}
    assert time.strptime(entry["date"], "%Y-%m-%dT%H:%M:%S+00:00")
    (folder / "plain" / "a.txt").unlink()
    server.put("a.txt", b"other")
    with pytest.raises(SentcliError, match=rf"a\.txt[\s\S]*{PINS_FILE}"):
        fetch_data_set(dataset, folder, meter)
    assert kept(folder) == {}
    server.put("a.txt", b"first")
    assert fetch_data_set(dataset, folder, meter).first_use == [], "known by now"


def test_a_compressed_file_and_the_order_of_ways(server, folder, meter):
    """What has a checksum goes first; the hub's copies, which have none, come after it."""
    content = beir_zip()
    files = tuple(File(name, (server.put(f"hub/{name}.gz", gzip.compress(text)),), "gz") for name, text in BEIR.items())
    dataset = replace(beir_set(server.base + "tiny.zip", content), files=files)
    got = fetch_data_set(dataset, folder, meter)
    assert server.asked[0][0] == "tiny.zip"
    assert kept(folder) == FOLDER
    assert got.first_use == list(BEIR)
    server.put("hub/corpus.jsonl.gz", gzip.compress(BEIR["corpus.jsonl"])[:-9])
    with pytest.raises(SentcliError, match=r"corpus\.jsonl\.gz is"):
        fetch_data_set(dataset, folder, meter, overwrite=True)
    assert kept(folder).items() >= FOLDER.items(), "what was there is gone"


def test_an_archive_whose_files_are_checked_one_by_one(server, folder, meter):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in {**PLAIN, "more.txt": b"not wanted"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    dataset = plain_set(server, PLAIN, archives=(Archive((server.put("all.tar", buffer.getvalue()),), "tar"),))
    assert not dataset.archive_first
    got = fetch_data_set(dataset, folder, meter)
    assert kept(folder) == {f"plain/{name}": content for name, content in PLAIN.items()}
    assert got.first_use == [], "each of its files is checked"
    server.put("all.tar", zipped(PLAIN))  # packed anew
    assert len(fetch_data_set(dataset, folder, meter, overwrite=True).files) == 2
    wrong = replace(dataset.files[0], pin=pin(b"x" * 8000))
    with pytest.raises(SentcliError, match=r"a\.txt"):
        fetch_data_set(replace(dataset, files=(wrong, dataset.files[1])), folder, meter, overwrite=True)
    assert kept(folder)["plain/a.txt"] == PLAIN["a.txt"]


def test_source_takes_another_address(server, folder, meter):
    content = beir_zip()
    dataset = beir_set("http://127.0.0.1:9/tiny.zip", content)
    fetch_data_set(dataset, folder, meter, source=server.put("copy.zip", content))
    assert kept(folder) == FOLDER
    for name, text in PLAIN.items():
        server.put(f"mirror/{name}", text)
    plain = plain_set(server, PLAIN)
    assert len(fetch_data_set(plain, folder, meter, source=server.base + "mirror/").files) == 2
    with pytest.raises(InputError, match=r"plain .*2.*--source"):
        fetch_data_set(plain, folder, meter, source=server.base + "mirror", overwrite=True)


@pytest.mark.parametrize("prefix", ["tiny/", "", "some/where/else/"])
def test_an_archive_that_somebody_has(folder, tmp_path, meter, prefix):
    content = beir_zip(prefix)
    own = tmp_path / "own.zip"
    own.write_bytes(content)
    dataset = beir_set("http://127.0.0.1:9/tiny.zip", content)
    assert fetch_data_set(dataset, folder, meter, local_file=own, offline=True).sources == [str(own)]
    assert kept(folder) == FOLDER and own.read_bytes() == content


def test_a_file_that_somebody_has(server, folder, tmp_path, meter):
    own = tmp_path / "own.txt"
    own.write_bytes(b"mine")
    dataset = plain_set(server, {"a.txt": b"mine"})
    fetch_data_set(dataset, folder, meter, local_file=own)
    assert kept(folder) == {"plain/a.txt": b"mine"} and own.exists()
    own.write_bytes(b"other")
    with pytest.raises(InputError, match=r"own.txt.*5.*4"):
        fetch_data_set(dataset, folder, meter, local_file=own, overwrite=True)
    with pytest.raises(InputError, match=str(tmp_path / "no")):
        fetch_data_set(dataset, folder, meter, local_file=tmp_path / "no", overwrite=True)
    with pytest.raises(InputError, match=f"{folder}/plain/"):
        fetch_data_set(plain_set(server, PLAIN), folder, meter, local_file=own, overwrite=True)


def test_offline_says_what_is_missing_and_where_it_could_be_put(server, folder, meter):
    content = beir_zip()
    dataset = beir_set(server.put("tiny.zip", content), content)
    with pytest.raises(InputError) as caught:
        fetch_data_set(dataset, folder, meter, offline=True)
    said = str(caught.value).splitlines()
    assert "tiny" in said[0] and said[0].endswith(": corpus.jsonl, queries.jsonl, qrels/test.tsv")
    assert f"    {server.base}tiny.zip" in said and f"    {folder}/retrieval/tiny/qrels/test.tsv" in said
    assert not server.asked
    for name, text in BEIR.items():  # what the message says works
        path = folder / "retrieval" / "tiny" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    assert fetch_data_set(dataset, folder, meter, offline=True).files == []
    assert {one.state for one in verify_files(dataset, folder, whole=True)} == {"no checksum"}


@pytest.mark.parametrize(("value", "offline"), [("1", True), ("true", True), ("0", False), ("", False)])
@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "SENTCLI_OFFLINE"])
def test_the_environment_can_forbid_the_network(monkeypatch, name, value, offline):
    monkeypatch.setenv(name, value)
    assert is_offline() is offline


def test_a_folder_that_cannot_be_written(server, tmp_path, meter):
    content = beir_zip()
    dataset = beir_set(server.put("tiny.zip", content), content)
    (tmp_path / "file").write_text("no folder")
    fetch_data_set(dataset, tmp_path / "there", meter)
    server.asked.clear()
    with pytest.raises(InputError, match=str(tmp_path / "file" / "data")):
        fetch_data_set(dataset, tmp_path / "file" / "data", meter)
    if os.geteuid() != 0:
        (tmp_path / "read-only").mkdir(mode=0o500)
        with pytest.raises(InputError, match=str(tmp_path / "read-only")):
            fetch_data_set(dataset, tmp_path / "read-only", meter)
    shutil.rmtree(tmp_path / "there" / WORK)
    (tmp_path / "there" / WORK).write_text("in the way of the lock")
    assert fetch_data_set(dataset, tmp_path / "there", meter).files == [], "what is there needs no write"
    with pytest.raises(InputError, match=str(tmp_path / "there")):
        fetch_data_set(dataset, tmp_path / "there", meter, overwrite=True)
    assert not server.asked


def test_a_full_disk_is_not_blamed_on_the_source(server, folder, meter, monkeypatch):
    content = beir_zip()
    dataset = beir_set(server.put("tiny.zip", content), content)
    monkeypatch.setattr("sentcli.io.atomic.shutil.disk_usage", lambda path: type("Usage", (), {"free": 3}))
    with pytest.raises(NoRoomError, match=rf"tiny\.zip .* {folder}"):
        fetch_data_set(dataset, folder, meter)
    assert not server.asked


def test_an_archive_that_was_fetched_before_a_kill_is_not_fetched_again(server, folder, meter, monkeypatch):
    content = beir_zip()
    dataset = beir_set(server.put("tiny.zip", content), content)

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "unpack", killed)
        fetch_data_set(dataset, folder, meter)
    assert not (folder / "retrieval").exists()
    fetch_data_set(dataset, folder, meter)
    assert kept(folder) == FOLDER and len(server.asked) == 1


def test_the_second_of_two_waits_and_finds_it_there(server, folder, meter):
    content = beir_zip(**{"qrels/dev.tsv": os.urandom(2**19)})
    dataset = beir_set(server.put("tiny.zip", content, delay=0.01), content)
    said, got = [], []
    threads = [
        threading.Thread(target=lambda: got.append(fetch_data_set(dataset, folder, meter, notice=said.append)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.asked) == 1
    assert sorted(len(one.files) for one in got) == [0, 4]
    assert said == ["another process is getting retrieval/tiny; waiting for it"]


def test_verify_finds_a_changed_byte_and_a_missing_file(server, folder, meter):
    content = beir_zip()
    dataset = beir_set(server.put("tiny.zip", content), content)
    assert verify_files(dataset, folder, whole=False) == []
    assert {one.state for one in verify_files(dataset, folder, whole=True)} == {"missing"}
    fetch_data_set(dataset, folder, meter)
    corpus = folder / "retrieval" / "tiny" / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes().replace(b"cat", b"bat"))
    (folder / "retrieval" / "tiny" / "queries.jsonl").unlink()
    states = {one.path.name: one.state for one in verify_files(dataset, folder, whole=False)}
    assert states == {"corpus.jsonl": "wrong", "queries.jsonl": "missing", "test.tsv": "ok"}


def test_a_damaged_lock_file_is_said(folder, server, meter):
    folder.mkdir()
    (folder / PINS_FILE).write_text('{"format": 1, "files": {"a": {}}}')
    with pytest.raises(InputError, match=PINS_FILE):
        fetch_data_set(plain_set(server, PLAIN), folder, meter)
    (folder / PINS_FILE).write_text('{"format": 9, "files": {}}')
    with pytest.raises(InputError, match=rf"{PINS_FILE} .*format.*9"):
        recorded_files(folder)


def test_locate(folder, monkeypatch, tmp_path):
    with pytest.raises(InputError, match=r"'scifac'.*'scifact'"):
        locate("scifac")
    with pytest.raises(InputError, match="--from"):
        locate("scifact", folder)
    for name in BEIR:
        path = folder / "retrieval" / "scifact" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert locate("scifact", folder) == folder / "retrieval" / "scifact"
    assert locate("scifact/qrels", folder) == folder / "retrieval" / "scifact" / "qrels"
    with pytest.raises(InputError, match="'x'"):
        locate("scifact/x", folder)
    monkeypatch.setenv("SENTCLI_DATA_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    path = type(folder)
    assert dataset_path(path("scifact")) == folder / "retrieval" / "scifact"
    assert dataset_path(path("elsewhere/scifact")) == path("elsewhere/scifact")
    (tmp_path / "scifact").mkdir()
    assert dataset_path(path("scifact")) == path("scifact"), "a folder of one's own goes first"
    text = folder / "corpus" / "wiki1m" / "wiki1m_for_simcse.txt"
    text.parent.mkdir(parents=True)
    text.write_bytes(b"")
    assert dataset_path(path("wiki1m")) == text, "a text is its file"


def test_where_data_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "data"
    with pytest.raises(InputError, match=r"cache/data/retrieval/scifact.*SENTCLI_DATA "):
        locate("scifact")
    monkeypatch.setenv("SENTCLI_DATA", str(tmp_path / "readme"))
    assert data_folder() == tmp_path / "readme"
    with pytest.raises(InputError, match=r"readme/retrieval/scifact.*SENTCLI_DATA "):
        locate("scifact")
    monkeypatch.setenv("SENTCLI_DATA_DIR", str(tmp_path / "named"))
    assert data_folder() == tmp_path / "named"
    assert data_folder(tmp_path / "given") == tmp_path / "given"


def test_a_set_of_parts_knows_what_is_missing(folder):
    dataset = DataSet("x", "X", "text", "x", "none", (File("a", ("http://a/a",), pin=Pin()),))
    assert [file.path for file in missing(dataset, folder)] == ["a"]
