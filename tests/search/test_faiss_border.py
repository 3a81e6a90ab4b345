"""Sizes that an index asks for, memory that is not there, and what faiss raises."""

import json
import multiprocessing
import shutil
import sys

import numpy as np
import pytest

from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.search.ann import FaissIndex
from sentcli.search.exact import Blocks
from sentcli.search.faiss_border import faiss_errors, require_faiss


@pytest.fixture(scope="module")
def encoded(tmp_path_factory, tiny_bert):
    """A directory of 60 vectors."""
    import sentcli

    folder = tmp_path_factory.mktemp("bounds")
    (folder / "t.txt").write_text("".join(f"the cat {number}\n" for number in range(60)))
    sentcli.encode(folder / "t.txt", output=folder / "vectors", model=tiny_bert, backend="torch", quiet=True)
    return folder / "vectors"


@pytest.mark.parametrize(
    "factory",
    ["IVF999999999,Flat", "HNSW1000000000,Flat", "IVF8_HNSW1000000000,Flat", "PQ8x40", "RQ1000000x8",
     "LSQ8x30", "OPQ1_999999999,Flat", "Pad1000000000,Flat", "RR1000000,Flat", "PCA999999999,Flat", "LSH99999999999",
     "NSG999999999", "HNSW999999999999999999999"],
)  # fmt: skip
def test_an_index_that_no_memory_holds_is_refused_before_it_is_made(factory, monkeypatch):
    monkeypatch.setattr("sentcli.search.faiss_border.memory_left", lambda: 2**33)
    monkeypatch.setattr(require_faiss(), "index_factory", lambda *arguments: pytest.fail("faiss was asked for it"))
    with pytest.raises(InputError, match=r"(?s)\d+(,Flat)?: .*(MB of memory|more than the 60 rows)"):
        FaissIndex.empty(factory, 32, "cosine", 60)


@pytest.mark.parametrize("factory", ["IVF60,Flat", "HNSW32,Flat", "PQ8x8", "OPQ8_32,IVF16_HNSW32,PQ8", "SQ8,RFlat"])
def test_an_index_that_fits_is_made(factory, monkeypatch):
    monkeypatch.setattr("sentcli.search.faiss_border.memory_left", lambda: 2**29)
    assert len(FaissIndex.empty(factory, 32, "cosine", 60)) == 0


def test_too_little_memory_is_said_before_the_work(encoded, tmp_path, invoke, monkeypatch):
    monkeypatch.setattr("sentcli.machine.memory_left", lambda: 10 * 10**6)
    shutil.copytree(encoded, tmp_path / "vectors")
    result = invoke("index", tmp_path / "vectors", "--type", "hnsw", check=1)
    assert "60 rows" in result.stderr and "10 MB are left" in " ".join(result.stderr.split())
    assert not (tmp_path / "vectors" / "indexes" / "hnsw").exists()


def _index_in(folder, results):
    import resource

    from typer.testing import CliRunner

    from sentcli.cli.app import app
    from sentcli.machine import _kilobytes

    limit = _kilobytes("/proc/self/status", "VmSize:") + 2**26
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    result = CliRunner().invoke(app, ["index", str(folder), "--type", "hnsw"])
    results.send((result.exit_code, result.stderr))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_limit_of_the_shell_counts(encoded, tmp_path):
    shutil.copytree(encoded, tmp_path / "vectors")
    require_faiss()
    context = multiprocessing.get_context("fork")
    received, sent = context.Pipe()
    process = context.Process(target=_index_in, args=(tmp_path / "vectors", sent))
    process.start()
    process.join()
    assert process.exitcode == 0
    code, said = received.recv()
    assert code == 1 and "needs about" in said and "MB are left" in " ".join(said.split())


class Own(Exception):
    pass


RAISED = [RuntimeError("a"), MemoryError("std::bad_alloc"), AssertionError(), TypeError("b"), ValueError("c"), Own("d")]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_faiss_raises_is_one_error(error, tmp_path, monkeypatch):
    def fail(*arguments, **keywords):
        raise error

    faiss = require_faiss()
    vectors = np.eye(40, dtype=np.float32)
    index = FaissIndex.empty("IVF1,Flat", 40, "cosine", 40)
    for place, call in [
        ("index_factory", lambda: FaissIndex.empty("Flat", 4, "cosine")),
        ("read_index", lambda: FaissIndex.read(tmp_path / "x.faiss", "cosine")),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(faiss, place, fail)
            with pytest.raises(SentcliError):
                call()
    for place, call in [("train", lambda: index.train(Blocks([vectors]))), ("add", lambda: index.add(vectors))]:
        with monkeypatch.context() as patch:
            patch.setattr(type(index.index), place, fail)
            with pytest.raises(SentcliError):
                call()
    with pytest.raises(SentcliError, match="place: "), faiss_errors("place: {why}"):
        fail()


def test_a_library_that_raises_while_it_is_imported_does_not_load(monkeypatch):
    from sentcli import errors

    def fail(name):
        raise RuntimeError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(errors, "import_module", fail)
    with pytest.raises(MissingExtraError, match=r"faiss, which does not load \(libcudart.*sentcli\[cpu\]"):
        require_faiss()


@pytest.mark.parametrize("field", ["efforts", "settings"])
def test_a_parameter_that_is_none_names_the_file_of_the_index(field, encoded, tmp_path, invoke):
    shutil.copytree(encoded, tmp_path / "vectors")
    invoke("index", tmp_path / "vectors", "--type", "hnsw", check=0)
    file = tmp_path / "vectors" / "indexes" / "hnsw" / "index.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), field: {"evil": 1}}))
    result = invoke("index", tmp_path / "vectors", "--check", check=2)
    assert "index.json" in result.stderr and "evil" in result.stderr
