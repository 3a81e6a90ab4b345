"""`sentcli data` as a user calls it: stopped, killed, twice at once, offline."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sentcli.data.pins import PINS_FILE, WORK
from sentcli.data.registry import find_data_set
from sentcli.io import object_stores
from tests.conftest import heed_ctrl_c
from tests.data.conftest import BEIR, pin, tree, zipped

WIKI = "corpus/wiki1m/wiki1m_for_simcse.txt"
TEXT = b"".join(b"sentence %d about rivers and trees\n" % i for i in range(60_000))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


@contextlib.contextmanager
def started(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-m", "sentcli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def wait_for(condition, process):
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_download_leaves_no_half_file(server, folder, run, kind):
    arguments = ["data", "get", "wiki1m", "--data-dir", folder]
    url = server.put("wiki.txt", TEXT, delay=0.02)

    def part():
        return sum(path.stat().st_size for path in (folder / WORK).rglob("*.partial"))

    with started(*arguments, "--source", url) as process:
        wait_for(lambda: part() > 100_000, process)
        process.send_signal(kind)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if kind == signal.SIGINT else -signal.SIGKILL)
    if kind == signal.SIGINT:
        assert errors.splitlines()[-2:] == [
            "wiki1m is not finished: the same command fetches what is missing",
            "error: interrupted",
        ]
    assert not (folder / WIKI).exists()
    server.put("wiki.txt", TEXT)
    done = run(*arguments, "--source", url, check=0)
    assert {name: text for name, text in tree(folder).items() if name != PINS_FILE} == {WIKI: TEXT}
    assert "no checksum is published" in done.stderr and "licence: CC BY-SA 3.0 (Wikipedia)" in done.stderr
    assert run("data", "verify", "--data-dir", folder, check=0).stderr.startswith("1 files in")


@pytest.mark.slow
def test_two_at_once_fetch_it_once(server, folder):
    arguments = ["data", "get", "wiki1m", "--data-dir", folder, "--source", server.put("wiki.txt", TEXT, delay=0.01)]
    with started(*arguments) as first, started(*arguments) as second:
        said = [process.communicate(timeout=60)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert len(server.asked) == 1
    assert sum("is there already" in text for text in said) == 1
    assert (folder / WIKI).read_bytes() == TEXT


def test_verify_names_the_changed_file(server, folder, invoke):
    url = server.put("wiki.txt", TEXT)
    invoke("data", "get", "wiki1m", "--data-dir", folder, "--source", url, "-q", check=0)
    (folder / WIKI).write_bytes(TEXT[:-1] + b"!")
    result = invoke("data", "verify", "--data-dir", folder, "--json", folder / "report.json", check=1)
    assert f"{folder / WIKI}: sha256 is" in result.stderr.replace("\n", "") + result.stderr
    assert "sentcli data get wiki1m --overwrite" in " ".join(result.stderr.split())
    (checked,) = json.loads((folder / "report.json").read_text())["results"]
    assert (checked["name"], checked["state"]) == ("wiki1m", "wrong")
    (folder / WIKI).unlink()
    assert "missing" in invoke("data", "verify", "--data-dir", folder, check=1).stderr
    assert "84 of 84" in invoke("data", "verify", "senteval", "--data-dir", folder, check=1).stderr


def test_list(folder, invoke):
    results = json.loads(invoke("data", "list", "--data-dir", folder, "--json", "-", check=0).stdout)["results"]
    by_name = {one["name"]: one for one in results}
    assert by_name["scifact"]["present"] == "no" and by_name["scifact"]["size"] == 2_816_079
    assert by_name["scifact"]["path"] == str(folder / "retrieval" / "scifact")
    (folder / WIKI).parent.mkdir(parents=True)
    (folder / WIKI).write_text("x")
    shown = invoke("data", "list", "wiki1m", "sts", "--data-dir", folder, check=0).stdout
    assert "yes" in shown and "its first download" in shown and "SHA-256" in shown and "wiki1m_for_simcse.txt" in shown
    assert "did you mean 'scifact'" in invoke("data", "list", "scifac", check=2).stderr


@pytest.mark.parametrize("how", ["option", "HF_HUB_OFFLINE", "SENTCLI_OFFLINE"])
def test_offline(folder, invoke, monkeypatch, how):
    if how != "option":
        monkeypatch.setenv(how, "1")
    arguments = ["--offline"] if how == "option" else []
    said = invoke("data", "get", "scifact", "--data-dir", folder, *arguments, check=2).stderr
    assert "thakur/BEIR/datasets/scifact.zip" in said
    assert f"{folder}/retrieval/scifact/corpus.jsonl" in said.replace("\n", "")


def test_from_a_file_that_is_there_already(folder, tmp_path, invoke, monkeypatch):
    content = zipped({f"scifact/{name}": text for name, text in BEIR.items()})
    own = tmp_path / "scifact.zip"
    own.write_bytes(content)
    said = invoke("data", "get", "scifact", "--from", own, "--data-dir", folder, check=2).stderr
    assert "is not the known scifact" in said and f"{len(content):,} bytes, not 2,816,079" in said
    archive = find_data_set("scifact").archives[0]
    monkeypatch.setitem(archive.__dict__, "pin", pin(content, md5=True))
    monkeypatch.setenv("SENTCLI_OFFLINE", "1")
    result = invoke("data", "get", "scifact", "--from", own, "--data-dir", folder, "--json", "-", check=0)
    (got,) = json.loads(result.stdout)["results"]
    assert (got["state"], sorted(got["files"]), got["first_use"]) == ("fetched", sorted(BEIR), [])


def test_several_sets_one_of_which_fails(server, folder, invoke, monkeypatch):
    monkeypatch.setattr(object_stores, "PAUSES", ())
    for name in ("wiki1m", "nli"):
        (file,) = find_data_set(name).files
        monkeypatch.setitem(file.__dict__, "sources", (server.base + name,))
    server.put("nli", b"sent0,sent1,hard_neg\n")
    result = invoke("data", "get", "wiki1m", "nli", "--data-dir", folder, "--json", folder / "r.json", check=1)
    assert "wiki1m could not be fetched" in result.stderr and "no such file: " in result.stderr
    assert [one["name"] for one in json.loads((folder / "r.json").read_text())["results"]] == ["nli"]
    said = invoke("data", "get", "nli", "sts", "--source", server.base, "--data-dir", folder, check=2).stderr
    assert "one set at a time" in said


def test_quiet_says_nothing(server, folder, run):
    arguments = ["data", "get", "wiki1m", "--data-dir", folder, "-q", "--source", server.put("a", b"the cat\n")]
    done = run(*arguments, check=0)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_a_bar_of_bytes_on_a_terminal(server, folder):
    pty = pytest.importorskip("pty")
    url = server.put("wiki.txt", TEXT, delay=0.005)
    command = [sys.executable, "-m", "sentcli", "data", "get", "wiki1m", "--data-dir", str(folder), "--source", url]
    own, terminal = pty.openpty()
    with subprocess.Popen(command, stderr=terminal, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while block := os.read(own, 2**16):
                shown += block
        os.close(own)
    assert process.returncode == 0
    assert f"/{len(TEXT) / 1e6:.1f} MB".encode() in shown and b"MB/s" in shown and b"left" in shown


@pytest.mark.parametrize(
    ("command", "name"), [("retrieve", "--beir"), ("sts-eval", "--data"), ("senteval", "--data")], ids=str
)
def test_commands_take_a_name_for_a_folder(invoke, folder, monkeypatch, tmp_path, command, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTCLI_DATA_DIR", str(folder))
    dataset = "scifact" if command == "retrieve" else "senteval"
    said = invoke(command, "-m", "none", name, dataset, check=2).stderr
    assert f"sentcli data get {dataset}" in " ".join(said.split())
    said = invoke(command, "-m", "none", name, "no-such-set", check=2).stderr
    assert "data get" not in said


def test_retrieve_scores_a_set_by_its_name(invoke, folder, monkeypatch, tmp_path, tiny_bert):
    pytest.importorskip("faiss")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTCLI_DATA_DIR", str(folder))
    for path, text in BEIR.items():
        (folder / "retrieval" / "scifact" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "retrieval" / "scifact" / path).write_bytes(text)
    result = invoke("retrieve", "-m", tiny_bert, "--beir", "scifact", "--json", "-", check=0)
    assert list(json.loads(result.stdout)["results"]) == ["scifact"]
