"""Indexes find what exact search finds, are added to, survive interruption, and refuse what does not belong to them."""

import hashlib
import json
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from sentcli.errors import DataError, InputError
from sentcli.search import ann, exact, index, recall
from sentcli.search.exact import Blocks
from sentcli.search.faiss_index import FaissIndex
from sentcli.search.index import IndexManifest, IndexRequest
from sentcli.search.searcher import searcher_over
from sentcli.search.stored_vectors import SearchRequest
from sentcli.search.vector_directory import VectorDirectory
from tests.search.conftest import clustered, write_directory
from tests.tolerance import rounding

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

QUERIES = clustered(50, 16, seed=3)


def make(folder, kind, **options):
    """Build an index; return its manifest and how many rows were added."""
    return index.build(
        VectorDirectory.open(folder), IndexRequest(kind, **options), lambda count: None, lambda step: None
    )


def opened(folder, name=None, **options):
    return VectorDirectory.open(folder).open_index(SearchRequest(name, **options))[0]


def shared(found, others):
    """Share of the positions that two searches have in common."""
    return np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(found.tolist(), others.tolist(), strict=True)])


def everything(stored, similarity="cosine"):
    """All rows of each query by similarity, and the similarities."""
    true = exact.search(QUERIES, stored.blocks.arrays, len(stored.blocks), similarity=similarity)
    return true.positions.tolist(), true.scores.tolist()


# Kinds


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq", "sq8", "IVF20,SQ8", "HNSW8,Flat"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_an_index_finds_what_exact_search_finds(directory, kind, similarity):
    manifest, added = make(directory, kind, similarity=similarity)
    assert (manifest.rows, added) == (3000, 3000)
    found = opened(directory).search(QUERIES, 10)
    stored = VectorDirectory.open(directory)
    true = exact.search(QUERIES, stored.blocks.arrays, 10, similarity=similarity)
    assert shared(found.positions, true.positions) >= (0.5 if similarity == "dot" else 0.75 if kind == "ivfpq" else 0.9)
    known = [dict(zip(*row, strict=True)) for row in zip(*everything(stored, similarity), strict=True)]
    for one, positions, scores in zip(known, found.positions.tolist(), found.scores.tolist(), strict=True):
        close = 1e-5 if kind != "sq8" else 1e-2
        assert all(
            one[p] == pytest.approx(s, abs=close, rel=close) for p, s in zip(positions, scores, strict=True) if p >= 0
        )
    assert np.array_equal(found.scores, -np.sort(-found.scores, axis=1)), "best first"


def test_the_measured_recall_is_the_recall(directory):
    manifest, _ = make(directory, "ivf", settings={"nprobe": 1})
    assert manifest.recall["chosen"]["effort"] == 1
    stored = VectorDirectory.open(directory)
    own, rows = stored.blocks.sample(1000)
    true = exact.search(rows, stored.blocks.arrays, 11).positions
    found = opened(directory).search(rows, 11).positions
    counted = [
        len((set(t) - {q}) & (set(f) - {q})) / 10
        for q, t, f in zip(own.tolist(), true.tolist(), found.tolist(), strict=True)
    ]
    assert 0.1 < manifest.recall["chosen"]["recall"] < 0.99
    assert manifest.recall["chosen"]["recall"] == pytest.approx(np.mean(counted), abs=0.002)


def test_the_least_effort_that_reaches_the_recall_is_taken(directory):
    low, _ = make(directory, "ivf", target=0.5)
    high, added = make(directory, "ivf", target=0.99)
    assert added == 0, "the same index, measured anew"
    assert low.efforts["nprobe"] < high.efforts["nprobe"]
    for manifest, target in ((low, 0.5), (high, 0.99)):
        points = manifest.recall["points"]
        assert manifest.recall["chosen"] == next(point for point in points if point["recall"] >= target)
        assert opened(directory).efforts.keys() == {"nprobe"}
    assert opened(directory).efforts == high.efforts
    assert opened(directory).recipe.recall["chosen"]["recall"] == high.recall["chosen"]["recall"]


def test_queries_of_ones_own_are_measured(directory):
    manifest, _ = make(directory, "hnsw", queries=QUERIES)
    assert (manifest.recall["queries"], manifest.recall["of"]) == (50, "queries")


def test_equal_rows_count_as_each_other():
    same = np.ones((300, 8), np.float32)
    found = searcher_over("hnsw", same)
    curve = recall.tune(found, recall.sample(Blocks([same]), "cosine"))
    assert curve["chosen"]["recall"] == 1.0


@pytest.mark.parametrize("length", [0.01, 30, 1000])
def test_the_recall_of_exact_search_is_one_whatever_the_lengths(length):
    vectors = clustered(2000, 16) * np.float32(length)
    found = searcher_over("Flat", vectors, "dot")
    assert recall.tune(found, recall.sample(Blocks([vectors]), "dot"))["chosen"]["recall"] == 1.0


def test_effort_rises_until_the_recall_is_reached_however_slow(directory, monkeypatch):
    monkeypatch.setattr(recall, "time", Slow())
    manifest, _ = make(directory, "ivf", target=0.99)
    assert manifest.recall["chosen"]["recall"] >= 0.99
    assert len(manifest.recall["points"]) > 1


class Slow:
    """A clock by which every search takes longer than the one before."""

    now, step = 0.0, 1.0

    def perf_counter(self):
        self.step *= 3
        self.now += self.step
        return self.now


def test_flat_is_exact_and_builds_nothing(directory):
    manifest, _ = make(directory, "flat")
    assert manifest.files == []
    found = opened(directory)
    assert not found.parts
    true = exact.search(QUERIES, VectorDirectory.open(directory).blocks.arrays, 10)
    assert np.array_equal(found.search(QUERIES, 10).positions, true.positions)


@pytest.mark.slow
def test_codes_are_compared_exactly_in_the_end(directory):
    make(directory, "ivfpq", target=0.9)
    found = opened(directory)
    assert found.recipe.rescore > 1
    best = found.search(QUERIES, 5)
    known = [dict(zip(*row, strict=True)) for row in zip(*everything(VectorDirectory.open(directory)), strict=True)]
    wanted = [[known[q][p] for p in best.positions[q].tolist()] for q in range(50)]
    np.testing.assert_allclose(best.scores, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("hsnw", "'hsnw'.*'hnsw'.*flat, hnsw, ivf, ivfpq, sq8"),
        ("IVF4096,Falt", "'IVF4096,Falt'.*16"),
        ("IVF9,PQ5", "'IVF9,PQ5'.*16"),
        ("IVF5000,Flat", "3000.*5000"),
    ],
)
def test_a_kind_that_does_not_fit_is_refused_and_leaves_nothing(directory, kind, words):
    with pytest.raises(InputError, match=words):
        make(directory, kind)
    assert list((directory / "indexes").glob("*")) == []


def test_product_codes_need_rows(tmp_path):
    write_directory(tmp_path / "small", clustered(100, 16))
    with pytest.raises(InputError, match=r"624.*100"):
        make(tmp_path / "small", "ivfpq")


def test_a_refused_parameter_does_not_stay(directory):
    make(directory, "hnsw")
    write_directory(directory, clustered(300, 16, seed=9), append=True)
    with pytest.raises(InputError, match="'nprobe'"):
        make(directory, "hnsw", settings={"nprobe": 4})
    assert make(directory, "hnsw")[1] == 300


def test_an_effort_that_was_set_gives_way_to_a_recall(directory):
    assert make(directory, "hnsw", settings={"efSearch": 1})[0].efforts == {"efSearch": 1}
    manifest, _ = make(directory, "hnsw", target=0.999)
    assert manifest.efforts["efSearch"] > 1
    assert manifest.recall["chosen"]["recall"] >= 0.999


def test_a_graph_finds_as_many_rows_as_are_wanted(directory):
    """Also with few candidates: it ended before with some tens of rows."""
    make(directory, "hnsw", settings={"efSearch": 2})
    store = VectorDirectory.open(directory)
    searcher, _ = store.open_index(SearchRequest("hnsw", "cosine"))
    rows = len(store.blocks)
    mask = np.arange(rows) % 2 == 0
    queries = np.random.default_rng(0).standard_normal((5, store.dimension)).astype(np.float32)
    assert (searcher.search(queries, 200).positions >= 0).all()
    assert (searcher.search(queries, 100, mask).positions >= 0).all()


@pytest.mark.parametrize("parameter", ["nprobe", "efSearhc"])
def test_a_parameter_that_the_index_lacks_is_refused(directory, parameter):
    words = "'nprobe'" if parameter == "nprobe" else "'efSearhc'.*'efSearch'"
    with pytest.raises(InputError, match=words):
        make(directory, "hnsw", settings={parameter: 3})


# Files and shards


def test_several_files_are_one_index(directory, tmp_path):
    one, _ = make(directory, "HNSW16,Flat")
    whole = opened(directory).search(QUERIES, 10)
    several, _ = make(directory, "Flat", file_rows=700)
    assert len(one.files) == 1
    assert [(file.first, file.rows) for file in several.files] == [
        (0, 700),
        (700, 700),
        (1400, 700),
        (2100, 700),
        (2800, 200),
    ]
    found = opened(directory, "Flat").search(QUERIES, 10)
    true = exact.search(QUERIES, VectorDirectory.open(directory).blocks.arrays, 10)
    assert np.array_equal(found.positions, true.positions)
    np.testing.assert_allclose(found.scores, true.scores, atol=rounding(32))
    assert shared(found.positions, whole.positions) > 0.9


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq"])
@pytest.mark.parametrize("file_rows", [None, 1300])
def test_rows_that_came_since_are_found_and_then_added(directory, kind, file_rows):
    make(directory, kind, file_rows=file_rows)
    new = clustered(500, 16, seed=9)
    write_directory(directory, new, append=True)
    before = opened(directory)
    assert len(before.blocks) - before.recipe.rows == 500
    assert before.search(new, 1).positions[:, 0].tolist() == list(range(3000, 3500)), "searched exactly"
    manifest, added = make(directory, kind, file_rows=file_rows)
    assert (manifest.rows, added) == (3500, 500)
    after = opened(directory)
    assert len(after.blocks) == after.recipe.rows
    assert np.mean(after.search(new, 1).positions[:, 0] == np.arange(3000, 3500)) > 0.95
    names = {path.name for path in (directory / "indexes" / kind).iterdir()}
    assert names == {"index.json", "trained.faiss", *(file.name for file in manifest.files)}, "nothing is left over"


def test_an_interrupted_build_goes_on(directory, monkeypatch):
    whole, _ = make(directory, "ivf", file_rows=1000)
    kept = opened(directory).search(QUERIES, 10)
    files, write = [], FaissIndex.write

    def stop(self, path):
        if len(self) and len(files) == 2:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        files.append(path)
        write(self, path)

    monkeypatch.setattr(FaissIndex, "write", stop)
    with pytest.raises(OSError, match=r"Errno 28"):
        make(directory, "ivf", file_rows=1000, overwrite=True)
    assert IndexManifest.read(directory / "indexes" / "ivf").files == whole.files, "the old one is there"
    monkeypatch.undo()
    progress = []
    wanted = IndexRequest("ivf", file_rows=1000, overwrite=True)
    manifest, _ = index.build(VectorDirectory.open(directory), wanted, progress.append, lambda step: None)
    assert progress[0] == 1000, "rows that were there"
    assert [file.sha256 for file in manifest.files] == [file.sha256 for file in whole.files]
    assert np.array_equal(opened(directory).search(QUERIES, 10).positions, kept.positions)
    assert [path.name for path in (directory / "indexes").iterdir()] == ["ivf"]


@pytest.mark.parametrize(
    "left", ["rows-0000000000-0000000007.faiss", ".rows-0000000000-0000000009.faiss.5000000.partial"]
)
def test_what_an_interrupted_run_left_is_cleared(directory, left):
    make(directory, "ivf")
    (directory / "indexes" / "ivf" / left).write_bytes(b"left over")
    make(directory, "ivf")
    assert not (directory / "indexes" / "ivf" / left).exists()
    assert VectorDirectory.open(directory).check_index("ivf") == []


def test_a_damaged_beginning_is_begun_again(directory):
    work = directory / "indexes" / ".ivf.building"
    work.mkdir(parents=True)
    (work / "index.json").write_text("{")
    assert make(directory, "ivf")[1] == 3000
    assert not work.exists()


def test_one_process_builds_at_a_time(directory):
    from filelock import FileLock

    (directory / "indexes").mkdir()
    with (
        FileLock(directory / "indexes" / ".ivf.lock"),
        pytest.raises(InputError, match=str(directory / "indexes" / "ivf")),
    ):
        make(directory, "ivf")
    assert make(directory, "ivf")[1] == 3000


def test_equal_rows_are_all_found_over_files(tmp_path):
    write_directory(tmp_path / "d", np.repeat(clustered(40, 16), 5, axis=0), shard_rows=30)
    make(tmp_path / "d", "Flat", file_rows=17)
    found = opened(tmp_path / "d").search(clustered(40, 16), 5)
    assert np.sort(found.positions, axis=1).tolist() == [list(range(5 * i, 5 * i + 5)) for i in range(40)]


# What does not belong together


def test_vectors_that_have_changed_are_refused(directory):
    make(directory, "hnsw")
    for path in directory.iterdir():
        if path.is_file():
            path.unlink()
    write_directory(directory, clustered(3000, 16, seed=5))
    for use in (opened, lambda folder: make(folder, "hnsw")):
        with pytest.raises(InputError, match=f"{directory}.*hnsw.*--overwrite"):
            use(directory)
    assert make(directory, "hnsw", overwrite=True)[1] == 3000


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """A function that returns a folder with an index of a kind, and its manifest."""

    @cache
    def made(kind):
        folder = tmp_path_factory.mktemp("made") / "d"
        write_directory(folder, clustered(3000, 16))
        return folder, make(folder, kind)[0]

    return made


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
@pytest.mark.parametrize("damage", ["torn", "missing", "other", "flipped"])
def test_a_damaged_file_is_named(made_once, tmp_path, kind, damage):
    folder, manifest = made_once(kind)
    directory = shutil.copytree(folder, tmp_path / "d")
    path = directory / "indexes" / kind / manifest.files[0].name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "torn" else b"xxxx" + content[4:])
    if damage == "other":  # as another release of faiss may have written it
        changed = replace(manifest.files[0], sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        replace(manifest, files=[changed]).write(path.parent)
    words = {
        "torn": f"{len(content) - 1}.*{len(content)}",
        "missing": "--overwrite",
        "flipped": "SHA-256",
        "other": "faiss 1.*faiss 1",
    }
    with pytest.raises(InputError, match=f"{path}.*{words[damage]}"):
        opened(directory)
    assert damage == "other" or VectorDirectory.open(directory).check_index(kind), "the check finds it, too"


@pytest.mark.parametrize("which", ["rows", "trained"])
def test_a_changed_byte_is_found_by_the_check(directory, which):
    manifest, _ = make(directory, "hnsw")
    assert VectorDirectory.open(directory).check_index("hnsw") == []
    path = directory / "indexes" / "hnsw" / (manifest.files[0].name if which == "rows" else "trained.faiss")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert VectorDirectory.open(directory).check_index("hnsw") == [f"{path} is damaged (its SHA-256 differs)"]


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{", '{"format": 99}', '{"format": 1, "files": [], "odd": 1}', "[]"])
def test_a_damaged_manifest_is_named(directory, content):
    make(directory, "hnsw")
    (directory / "indexes" / "hnsw" / "index.json").write_text(content)
    with pytest.raises(InputError, match=r"hnsw/index\.json.*--overwrite"):
        opened(directory)


def test_similarity_and_query_prompt_are_pinned(directory):
    make(directory, "ivf", similarity="dot", query_prompt="q: ")
    assert opened(directory).recipe.query_prompt == "q: "
    assert opened(directory, similarity="dot", query_prompt="q: ").similarity == "dot"
    with pytest.raises(InputError, match=r"'dot'.*'cosine'"):
        opened(directory, similarity="cosine")
    with pytest.raises(InputError, match="'x'"):
        opened(directory, query_prompt="x")
    with pytest.raises(InputError, match=r"'dot'.*'cosine'"):
        make(directory, "ivf", query_prompt="q: ")
    flat, prompt = VectorDirectory.open(directory).open_index(SearchRequest("flat"))
    assert (flat.similarity, prompt) == ("dot", "q: "), "as the index"
    make(directory, "hnsw")
    with pytest.raises(InputError, match="'x'"):
        opened(directory, "hnsw", query_prompt="x")
    assert opened(directory, "hnsw", query_prompt="").parts, "the model's own"


def test_inner_products_need_lengths(tmp_path):
    write_directory(tmp_path / "d", clustered(100, 16), settings={"output_dtype": "int8"})
    with pytest.raises(InputError, match=f"{tmp_path / 'd'}.*int8"):
        make(tmp_path / "d", "hnsw", similarity="dot")
    with pytest.raises(InputError, match=f"{tmp_path / 'd'}.*int8"):
        opened(tmp_path / "d", similarity="dot")


def test_an_index_of_another_kind_under_the_same_name_is_refused(directory):
    make(directory, "IVF10,Flat")
    with pytest.raises(InputError, match=r"'IVF10,Flat'.*'IVF10-Flat'"):
        make(directory, "IVF10-Flat")
    make(directory, "sq8")
    make(directory, "SQ8")
    assert VectorDirectory.open(directory).indexes == ["faiss-ivf10-flat", "faiss-sq8", "sq8"]


def test_an_index_is_chosen_by_name(directory):
    make(directory, "hnsw")
    make(directory, "IVF10,Flat")
    with pytest.raises(InputError, match="--index"):
        opened(directory)
    for name in ("IVF10,Flat", "faiss-ivf10-flat"):
        assert opened(directory, name).recipe.factory == "IVF10,Flat"
    assert not opened(directory, "flat").parts
    with pytest.raises(InputError, match=r"'ivf'.*faiss-ivf10-flat, hnsw.*sentcli index .* --type ivf"):
        opened(directory, "ivf")


def test_another_width_is_refused(directory):
    make(directory, "hnsw")
    with pytest.raises(InputError, match=r"8.*16"):
        opened(directory).search(np.ones((1, 8), np.float32), 3)


def test_an_index_of_faiss_of_other_rows_is_refused(directory):
    make(directory, "hnsw")
    place = directory / "indexes" / "hnsw"
    found = json.loads((place / "index.json").read_text())
    found["files"][0]["rows"] = 2999
    (place / "index.json").write_text(json.dumps(found))
    with pytest.raises(DataError, match=r"3000.*2999"):
        opened(directory)


# GPUs


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_index_goes_to_the_gpu_if_faiss_can(directory, monkeypatch, kind):
    """A stand-in for faiss-gpu: what is there of it is called, and a graph stays where it is."""
    import faiss

    make(directory, kind)
    copied = []

    def copy(resources, number, found):
        if kind == "hnsw":
            raise RuntimeError("not implemented for this type of index")
        copied.append(number)
        return found

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", copy, raising=False)
    stored = VectorDirectory.open(directory)
    on_gpu = stored.open_index(SearchRequest(device="cuda:1"))[0]
    assert copied == ([] if kind == "hnsw" else [1])
    assert on_gpu.efforts == opened(directory).efforts
    assert np.array_equal(on_gpu.search(QUERIES, 3).positions, opened(directory).search(QUERIES, 3).positions)


# In memory


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq", "sq8", "flat"])
def test_an_index_in_memory_is_tuned(kind):
    vectors = clustered(2000, 24)
    found = searcher_over(kind, vectors)
    true = exact.search(vectors[:100], [vectors], 10)
    assert shared(found.search(vectors[:100], 10).positions, true.positions) >= 0.85
    assert found.protocol()["kind"] == kind


def test_recipes_grow_with_the_corpus():
    assert [ann.recipe("ivf", rows, 384).factory for rows in (1, 100, 10_000, 10**6, 10**8)] == [
        "IVF1,Flat", "IVF2,Flat", "IVF256,Flat", "IVF4096,Flat", "IVF32768,Flat",
    ]  # fmt: skip
    assert ann.recipe("ivfpq", 3000, 384).factory == "OPQ48,IVF76,PQ48x6"
    assert ann.recipe("ivfpq", 10**6, 384).factory == "OPQ48,IVF4096,PQ48"
    assert ann.recipe("ivfpq", 10**6, 100).factory == "OPQ10,IVF4096,PQ10"
