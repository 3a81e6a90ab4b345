"""Sizes that an index asks for, memory that is not there, and what faiss raises."""

import json
import multiprocessing
import shutil
import sys

import numpy as np
import pytest

from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.search.exact import Blocks
from sentcli.search.exact import search as exact_search
from sentcli.search.faiss_border import faiss_errors, require_faiss
from sentcli.search.faiss_index import FaissIndex
from sentcli.search.index import IndexRequest
from sentcli.search.index import build as build_files
from sentcli.search.searcher import searcher_over
from sentcli.search.vector_directory import VectorDirectory
from tests.search.conftest import clustered


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


@pytest.mark.parametrize(
    "raised",
    [
        "RuntimeError('nvidia-cublas-cu12 is not installed: libcublas.so.12 was not found')",
        "ImportError('libcudart.so.12: cannot open shared object file: No such file or directory')",
    ],
)
def test_faiss_for_gpus_without_its_libraries_names_them(raised, encoded, tmp_path, invoke, tiny_bert, monkeypatch):
    (tmp_path / "faiss.py").write_text(f"raise {raised}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    wanted = "pip install nvidia-cuda-runtime-cu12 nvidia-cublas-cu12 nvidia-curand-cu12"
    with pytest.raises(SentcliError, match=wanted) as caught:
        require_faiss()
    assert "sentcli[cpu]" not in str(caught.value)
    said = " ".join(invoke("index", encoded, "--type", "ivf", check=1).stderr.split())
    assert said.count("error: ") == 1 and wanted in said
    invoke("retrieve", "--corpus", encoded, "-m", tiny_bert, "--query", "the cat 7", check=0)


class _Gpu:
    """What faiss does with an index on a GPU, in its process: copies that are counted, and come back."""

    def __init__(self, faiss, monkeypatch):
        self.faiss, self.there, self.back = faiss, [], []
        monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
        monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
        monkeypatch.setattr(faiss, "index_cpu_to_gpu", self.to_gpu, raising=False)
        monkeypatch.setattr(faiss, "index_gpu_to_cpu", self.to_cpu, raising=False)

    def to_gpu(self, resources, device, index):
        if isinstance(self.faiss.downcast_index(index), self.faiss.IndexHNSW):
            raise RuntimeError("Error in ... This index type is not implemented on GPU.")
        self.there.append((device, index.is_trained, index.ntotal))
        return self.faiss.clone_index(index)

    def to_cpu(self, index):
        self.back.append((index.is_trained, index.ntotal))
        return self.faiss.clone_index(index)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr("sentcli.search.exact.on_host", lambda device: True)  # torch has no GPU
    return _Gpu(require_faiss(), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ivf", "ivfpq"])
def test_clusters_and_codes_are_made_on_a_gpu_and_come_back(kind, gpu):
    vectors = clustered(3000, 32)
    search = searcher_over(kind, vectors, device="cuda:1")
    assert gpu.there == [(1, False, 0), (1, True, 0), (1, True, 3000)], "trained, filled and searched there"
    assert gpu.back == [(True, 0), (True, 3000)]
    on_cpu = searcher_over(kind, vectors)
    search.device, search.parts = "cpu", [search.parts[0].on_cpu]
    for searcher in (search, on_cpu):
        searcher.set({"nprobe": 32})
    found, expected = (searcher.search(vectors[:40], 5) for searcher in (search, on_cpu))
    assert np.array_equal(found.positions, expected.positions)


def test_more_clusters_than_a_gpu_looks_at_are_searched_on_the_cpu(gpu, monkeypatch):
    vectors = clustered(3000, 32)
    search = searcher_over("ivf", vectors, device="cuda")
    monkeypatch.setattr(gpu.faiss, "GpuParameterSpace", gpu.faiss.ParameterSpace, raising=False)
    search.set({"nprobe": 4096})

    def refused(queries, k):
        raise RuntimeError("GPU IVF index only supports nprobe selection up to 2048 (requested 4096)")

    search.parts[0].index.search = refused
    expected = exact_search(vectors[:40], [vectors], 5)
    assert np.array_equal(search.search(vectors[:40], 5).positions, expected.positions)


def test_a_graph_is_built_on_the_cpu(gpu):
    assert len(searcher_over("hnsw", clustered(500, 32), device="cuda").parts[0]) == 500
    assert not gpu.there and not gpu.back


def test_the_files_of_an_index_are_filled_on_a_gpu(gpu, directory):
    request = IndexRequest("ivf", file_rows=2000, device="cuda")
    manifest, added = build_files(VectorDirectory.open(directory), request, lambda count: None, lambda step: None)
    assert added == 3000 and [file.rows for file in manifest.files] == [2000, 1000]
    assert gpu.back == [(True, 0), (True, 2000), (True, 1000)]
    assert manifest.recall["chosen"]["recall"] > 0.9


def test_a_gpu_whose_memory_ends_is_named(gpu, monkeypatch):
    def no_memory(index):
        raise RuntimeError("Error in virtual void* faiss::gpu::allocMemory() at /f.cpp:9: cudaMalloc: out of memory")

    monkeypatch.setattr(gpu.faiss, "index_gpu_to_cpu", no_memory)
    with pytest.raises(SentcliError, match=r"faiss cannot build the index on cuda \(.*out of memory\); --device cpu"):
        searcher_over("ivf", clustered(3000, 32), device="cuda")
