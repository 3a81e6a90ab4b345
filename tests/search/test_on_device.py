"""Exact search by torch gives what a sorted product gives, however the rows are kept; torch's CPU stands for a GPU."""

import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sentcli import console
from sentcli.errors import InputError, SentcliError
from sentcli.search import device_memory, device_products, exact, on_device, searcher
from sentcli.search.device_products import full_products, largest
from sentcli.search.exact import Blocks, unit_length
from sentcli.search.on_device import DeviceRows, kept_types
from sentcli.search.recall import recall, sample
from tests.examples import examples
from tests.search.conftest import clustered

ROOM = {"float32": 4, "bf16": 2, "in turns": 0, "scan": 6}
"""The least bytes for each number of the rows with which they are kept in some way: half of what is free."""


def kept(way, vectors, monkeypatch, *, similarity="cosine", **options):
    """Open rows on a device whose free memory lets them be kept in some way."""
    blocks = vectors if isinstance(vectors, Blocks) else Blocks([vectors])
    free = 2 * ROOM[way] * max(len(blocks), 1) * blocks.dimension
    monkeypatch.setattr(device_memory, "free_memory", lambda device: free)
    monkeypatch.setattr(exact, "on_host", lambda device: False)  # for rows that are copied in turns
    return DeviceRows.open(blocks, similarity, "cpu", scan=way == "scan", **options)


WAYS = list(ROOM)


def sorted_products(queries, vectors, k, similarity="cosine", mask=None):
    """Return the similarities of all pairs, and the `k` greatest ones of each query."""
    one, two = queries.astype(np.float64), vectors.astype(np.float64)
    products = unit_length(one) @ unit_length(two).T if similarity == "cosine" else one @ two.T
    among = products if mask is None else products[:, mask]
    return products, -np.sort(-among, axis=1)[:, :k]


def agrees(found, queries, vectors, k, similarity="cosine", mask=None):
    """Check that hits are those with the greatest similarities, each once, and allowed, the best first."""
    products, best = sorted_products(queries, vectors, k, similarity, mask)
    scale = max(np.abs(products).max(initial=0), 1)
    assert found.positions.shape == best.shape
    np.testing.assert_allclose(found.scores, best, atol=2e-6 * scale)
    np.testing.assert_allclose(np.take_along_axis(products, found.positions, 1), best, atol=2e-6 * scale)
    assert all(len(set(row)) == len(row) for row in found.positions.tolist()), "a row was found twice"
    assert mask is None or mask[found.positions].all()


@examples(120)
@given(
    way=st.sampled_from(WAYS),
    rows=st.integers(1, 700),
    queries=st.integers(1, 9),
    dimension=st.integers(1, 40),
    k=st.integers(1, 300),
    similarity=st.sampled_from(["cosine", "dot"]),
    kind=st.sampled_from(["normal", "clustered", "repeated"]),
    allowed=st.sampled_from([None, 0.9, 0.5, 0.05]),
    similarities=st.sampled_from([2**28, 20_000, 1000, 1]),
    cuts=st.lists(st.integers(0, 700), max_size=4),
    seed=st.integers(0, 1000),
)
def test_every_way_of_keeping_rows_finds_the_best(
    way, rows, queries, dimension, k, similarity, kind, allowed, similarities, cuts, seed, monkeypatch
):
    random = np.random.default_rng(seed)
    vectors = clustered(rows, dimension, seed) if kind == "clustered" else random.normal(size=(rows, dimension))
    vectors = vectors.astype(np.float32)
    if kind == "repeated":
        vectors = vectors[random.integers(0, max(rows // 5, 1), rows)]
    asked = random.normal(size=(queries, dimension)).astype(np.float32)
    mask = None if allowed is None else random.random(rows) < allowed
    monkeypatch.setattr(device_products, "DEVICE_SIMILARITIES", similarities)
    monkeypatch.setattr(device_memory, "COPIED", 4 * dimension * 97)
    blocks = Blocks(np.split(vectors, sorted(min(cut, rows) for cut in cuts)))
    found = kept(way, blocks, monkeypatch, similarity=similarity).search(asked, k, mask)
    possible = min(k, rows if mask is None else int(mask.sum()))
    if not possible:
        assert found.positions.shape == (queries, 0)
        return
    agrees(found, asked, vectors, possible, similarity, mask)


@pytest.mark.parametrize("k", [1, 10, 100, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_of_groups_are_the_largest_of_all(k, dtype):
    products = torch.randn(5, 6400, generator=torch.Generator().manual_seed(k)).to(dtype)
    products[0] = products[0].round()  # many equal ones
    scores, columns = largest(products, k)
    expected = products.sort(dim=1, descending=True).values[:, :k]
    assert torch.equal(scores.sort(dim=1, descending=True).values, expected)
    assert torch.equal(products.gather(1, columns), scores)
    assert all(len(set(row)) == k for row in columns.tolist())


@pytest.mark.parametrize("way", WAYS)
def test_equal_rows_come_in_the_order_of_the_corpus(way, monkeypatch):
    vectors = np.repeat(clustered(50, 8), 3, axis=0)
    found = kept(way, vectors, monkeypatch).search(vectors[[30, 99]], 3)
    assert found.positions.tolist() == [[30, 31, 32], [99, 100, 101]]


def near_rows(rows):
    """Rows whose similarities with the first axis differ by less than bf16 can tell: the later a row, the greater."""
    vectors = np.zeros((rows, 16), np.float32)
    vectors[:, 0] = 0.9 + 1e-5 * np.arange(rows, dtype=np.float32)
    return vectors


@pytest.mark.parametrize("way", ["scan", "bf16"])
def test_what_bf16_cannot_tell_apart_is_searched_again(way, monkeypatch, capsys):
    rows = kept(way, near_rows(1000), monkeypatch, similarity="dot")
    queries = np.eye(16, dtype=np.float32)[[0, 0, 0]]
    assert rows.protocol() == {}
    found = rows.search(queries, 5)
    assert found.positions.tolist() == [[999, 998, 997, 996, 995]] * 3
    assert rows.protocol() == {"scan": "bf16", "searched_again": 1.0}
    rows.search(queries, 5)
    said = capsys.readouterr().err
    assert said.count("3 of 3 queries were searched again in float32") == 1, "it is said once"


@pytest.mark.parametrize("way", ["scan", "bf16"])
def test_what_bf16_tells_apart_is_not_searched_again(way, monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    rows = kept(way, vectors, monkeypatch)
    queries = vectors[:50] + 0.1 * np.random.default_rng(1).normal(size=(50, 64)).astype(np.float32)
    agrees(rows.search(queries, 5), queries, vectors, 5)
    assert rows.protocol()["searched_again"] < 0.2
    assert (rows.full is None) == (way == "bf16")


@pytest.mark.parametrize("rounded", ["rows", "query", "sums"])
@pytest.mark.parametrize("way", ["scan", "bf16"])
def test_a_hit_that_rounding_hides_from_the_scan_is_found(way, rounded, monkeypatch):
    """Five rows look like hits and are surely above what the scan saw of any other; the best ones it saw far below."""
    signs = np.repeat([1.0, -1.0], 32)
    moved = np.where(signs > 0, 1 + 2.0**-8 - 2.0**-20, 1 + 2.0**-8 + 2.0**-20)  # the halves are rounded apart
    vectors, query = np.zeros((505, 65)), np.zeros(65)
    vectors[:, 64], query[64] = 0.125, 1
    vectors[:5, 64], best = 0.1875, [57, 157, 257, 357, 457]
    if rounded == "rows":
        query[:64], vectors[best, :64], vectors[best, 64] = signs, moved, 0.25
    elif rounded == "query":
        query[:64], vectors[best, :64], vectors[best, 64] = moved, signs, 0.25
    else:  # all are 256 to the scan
        vectors[:, 64], query[0] = 256, 1
        vectors[:, 0] = np.random.default_rng(0).integers(1, 100, 505) / 256
        vectors[best, 0] = np.arange(105, 100, -1) / 256
    vectors, queries = vectors.astype(np.float32), query[None].astype(np.float32)
    found = kept(way, vectors, monkeypatch, similarity="dot").search(queries, 5)
    assert found.positions.tolist() == [best]
    agrees(found, queries, vectors, 5, "dot")


def test_rows_that_rounding_moves_most_are_found(monkeypatch):
    """Each number lies in the middle of two of bf16, so that rounding takes as much as it can, each way."""
    random = np.random.default_rng(3)
    signs = random.choice([-1.0, 1.0], size=(4000, 48))
    middles = 1 + 2.0**-8 * (2 * random.integers(0, 64, (4000, 48)) + 1)
    vectors = (signs * middles).astype(np.float32)
    rows = kept("scan", vectors, monkeypatch, similarity="dot")
    agrees(rows.search(vectors[:40], 20), vectors[:40], vectors, 20, "dot")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["float16", "int8", "float64", "signs"])
def test_numbers_of_other_types(way, kind, monkeypatch):
    wide = clustered(400, 32)
    if kind == "signs":
        blocks = Blocks([np.packbits(wide > 0, axis=1)], signs=32)
        vectors = np.where(wide > 0, 1, -1)
    else:
        vectors = (wide * 20).astype(kind)
        blocks = Blocks([vectors[:150], vectors[150:]])
    found = kept(way, blocks, monkeypatch).search(wide[:5], 7)
    agrees(found, wide[:5], vectors, 7)


@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_are_not_finite_count_as_on_the_cpu(way, monkeypatch):
    vectors = clustered(200, 8)
    vectors[17], vectors[18, 0] = np.nan, np.inf
    queries = clustered(3, 8, seed=5)
    mask = np.ones(200, bool)
    mask[40:] = False
    wanted = [(k, allowed) for k in (4, 40) for allowed in (None, mask)]
    on_cpu = searcher.searcher_over("flat", vectors, "dot")
    expected = [on_cpu.search(queries, k, allowed).scores for k, allowed in wanted]
    rows = kept(way, vectors, monkeypatch, similarity="dot")
    for (k, allowed), scores in zip(wanted, expected, strict=True):
        found = rows.search(queries, k, allowed)
        np.testing.assert_allclose(found.scores, scores, rtol=1e-5)
        assert allowed is None or allowed[found.positions].all()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_found_by_no_query_and_in_no_row(way, monkeypatch):
    rows = kept(way, clustered(20, 8), monkeypatch)
    assert len(rows.search(np.empty((0, 8), np.float32), 3).positions) == 0
    assert rows.search(clustered(2, 8), 3, np.zeros(20, bool)).positions.shape == (2, 0)
    assert kept(way, np.empty((0, 8), np.float32), monkeypatch).search(clustered(2, 8), 3).positions.shape == (2, 0)
    with pytest.raises(InputError, match="query vectors are 9 wide, the index is 8"):
        rows.search(clustered(2, 9), 3)


def test_rows_are_kept_as_they_fit():
    assert kept_types(4, scan=False) == (True, False)
    assert kept_types(3.9, scan=False) == (False, True)
    assert kept_types(1.9, scan=False) == kept_types(1.9, scan=True) == (False, False)
    assert kept_types(6, scan=True) == (True, True)
    assert kept_types(5, scan=True) == (False, True)
    assert kept_types(None, scan=True) == (True, True)


def test_a_search_is_left_memory_of_its_own(monkeypatch):
    vectors = clustered(5000, 8)
    monkeypatch.setattr(on_device, "SEARCH_BYTES", 1000)
    for free, is_full in ((1000 + 4 * vectors.size, True), (999 + 4 * vectors.size, False)):
        monkeypatch.setattr(device_memory, "free_memory", lambda device, free=free: free)
        rows = DeviceRows.open(Blocks([vectors]), "cosine", "cpu")
        assert (rows.full is not None, rows.rounded is not None) == (is_full, not is_full)


def test_rows_that_do_not_fit_are_said(monkeypatch, capsys):
    kept("in turns", clustered(300, 8), monkeypatch)
    assert "300 rows do not fit into the memory of the device cpu" in capsys.readouterr().err


@pytest.fixture
def as_a_gpu(monkeypatch):
    """Let the searcher treat torch's CPU as a device of its own, and list the rows that are opened on it."""
    opened = []
    true_open = DeviceRows.open

    def listed(*args, **options):
        opened.append(true_open(*args, **options))
        return opened[-1]

    monkeypatch.setattr(exact, "on_host", lambda device: False)
    monkeypatch.setattr(DeviceRows, "open", listed)
    return opened


def test_a_searcher_opens_its_rows_once(as_a_gpu):
    vectors, queries = clustered(800, 16), clustered(6, 16, seed=2)
    search = searcher.searcher_over("flat", vectors, device="cpu")
    assert not as_a_gpu, "rows are copied when they are searched"
    mask = np.arange(800) % 3 == 0
    for _ in range(3):
        agrees(search.search(queries, 10), queries, vectors, 10)
        agrees(search.search(queries, 10, mask), queries, vectors, 10, mask=mask)
    assert len(as_a_gpu) == 1 and as_a_gpu[0].full is not None
    assert search.protocol() == {"kind": "flat"}, "nothing was scanned"


def test_a_searcher_scans_where_that_is_asked_for(as_a_gpu):
    vectors, queries = clustered(800, 16), clustered(6, 16, seed=2)
    search = searcher.searcher_over("flat-bf16", vectors, device="cpu")
    agrees(search.search(queries, 3), queries, vectors, 3)
    (rows,) = as_a_gpu
    assert search.protocol() == {"kind": "flat", **rows.protocol()}
    assert search.protocol()["scan"] == "bf16"


@pytest.mark.slow
def test_the_command_line_asks_for_a_scan(as_a_gpu, invoke, tiny_bert, tmp_path):
    rows = [{"id": f"d{i}", "text": f"the cat {i} sat on mat {i % 7}"} for i in range(90)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    invoke("encode", tmp_path / "corpus.jsonl", "-o", tmp_path / "v", "-m", tiny_bert, check=0)
    hits = []
    for source in (tmp_path / "v", tmp_path / "corpus.jsonl"):
        for index in ("flat", "flat-bf16"):
            asked = ("--query", "the cat 7", "--top-k", 5, "--json", "-", "-m", tiny_bert, "--index", index)
            done = json.loads(invoke("retrieve", "--corpus", source, *asked, check=0).stdout)
            hits.append([hit["id"] for hit in done["results"][0]["hits"]])
    assert all(found == hits[0] for found in hits)
    assert [rows.rounded is not None for rows in as_a_gpu].count(True) == 2


def test_a_scan_is_refused_on_a_processor_and_not_built(invoke, tiny_bert, tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "the cat"}\n')
    invoke("encode", tmp_path / "corpus.jsonl", "-o", tmp_path / "v", "-m", tiny_bert, check=0)
    asked = ("--query", "cat", "-m", tiny_bert, "--index", "flat-bf16")
    assert "flat-bf16" in invoke("retrieve", "--corpus", tmp_path / "v", *asked, check=2).stderr
    assert "flat-bf16" in invoke("index", tmp_path / "v", "--type", "flat-bf16", check=2).stderr


def test_rows_that_an_index_lacks_are_the_only_ones_on_the_device(as_a_gpu):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    vectors, queries = clustered(900, 16), clustered(6, 16, seed=2)
    search = searcher.searcher_over("ivf", vectors[:700], device="cpu")
    search.blocks = Blocks([vectors])
    search.set({"nprobe": 4096})
    agrees(search.search(queries, 5), queries, vectors, 5)
    assert [(rows.first, len(rows)) for rows in as_a_gpu] == [(700, 200)]


def test_a_stream_of_blocks_is_compared_on_a_device(monkeypatch):
    monkeypatch.setattr(exact, "on_host", lambda device: False)
    monkeypatch.setattr(device_memory, "COPIED", 4 * 16 * 50)
    vectors, queries = clustered(500, 16), clustered(6, 16, seed=2)
    blocks = np.split(vectors, [3, 3, 200])
    agrees(exact.search(queries, blocks, 30, device="cpu"), queries, vectors, 30)
    assert exact.search(queries, [], 3, device="cpu").positions.shape == (6, 0)
    assert len(exact.search(queries[:0], blocks, 3, device="cpu").positions) == 0


def test_the_processor_goes_on_without_torch(monkeypatch):
    monkeypatch.setattr(DeviceRows, "open", lambda *args, **options: pytest.fail("rows were copied"))
    vectors, queries = clustered(500, 16), clustered(6, 16, seed=2)
    for device in ("cpu", "cpu:0"):
        agrees(searcher.searcher_over("flat", vectors, device=device).search(queries, 5), queries, vectors, 5)


def test_the_settings_of_products_come_back():
    before = torch.get_float32_matmul_precision()
    matmul = torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ValueError), full_products():
            assert getattr(matmul, "fp32_precision", "ieee") == "ieee"
            assert not matmul.allow_bf16_reduced_precision_reduction
            raise ValueError
        assert torch.get_float32_matmul_precision() == "high"
        assert matmul.allow_bf16_reduced_precision_reduction
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.fixture
def little_memory(monkeypatch):
    """A function after which products of more than so many numbers find no memory."""
    true_mm = torch.mm
    tried = []

    def limited(most):
        def mm(queries, rows, out):
            tried.append(out.numel())
            if out.numel() > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
            return true_mm(queries, rows, out=out)

        monkeypatch.setattr(torch, "mm", mm)
        return tried

    return limited


@pytest.mark.parametrize("way", WAYS)
def test_where_memory_ends_fewer_similarities_are_tried_once(way, monkeypatch, little_memory):
    vectors, queries = clustered(640, 16), clustered(60, 16, seed=2)
    monkeypatch.setattr(device_products, "DEVICE_SIMILARITIES", 32_000)
    rows = kept(way, vectors, monkeypatch)
    tried = little_memory(5000)
    agrees(rows.search(queries, 5), queries, vectors, 5)
    assert max(tried) > 5000


@pytest.mark.parametrize("way", WAYS)
def test_where_memory_ends_again_the_error_says_what_was_wanted(way, monkeypatch, little_memory):
    rows = kept(way, clustered(640, 16), monkeypatch)
    little_memory(0)
    message = r"cpu has too little memory for exact search in 640 rows.*, which wants [\d,]+ MB.*--device cpu"
    with pytest.raises(SentcliError, match=message) as caught:
        rows.search(clustered(60, 16, seed=2), 5)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)


def test_where_rows_find_no_memory_the_error_names_them(monkeypatch):
    def no_memory(*args, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", no_memory)
        with pytest.raises(SentcliError, match="too little memory for exact search in 640 rows of 16 dimensions"):
            kept("float32", clustered(640, 16), patched)


def test_a_device_that_fails_is_named(monkeypatch):
    def lost(*args, **options):
        raise RuntimeError("CUDA error: the launch timed out and was terminated")

    rows = kept("float32", clustered(640, 16), monkeypatch)
    monkeypatch.setattr(torch, "mm", lost)
    with pytest.raises(SentcliError, match=r"cpu failed at exact search.*the launch timed out.*--device cpu") as caught:
        rows.search(clustered(60, 16), 5)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_device_that_torch_was_built_without_is_named(monkeypatch):
    def absent(device):
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(device_memory, "free_memory", absent)
    with pytest.raises(SentcliError, match=r"cpu failed at exact search.*Torch not compiled with CUDA enabled"):
        DeviceRows.open(Blocks([clustered(10, 4)]), "cosine", "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error():
    vectors = clustered(30, 8)
    message = "cuda failed at exact search.*--device cpu does without it"
    with pytest.raises(SentcliError, match=message):
        exact.search(vectors, [vectors], 3, device="cuda")
    with pytest.raises(SentcliError, match=message):
        searcher.searcher_over("flat", vectors, device="cuda").search(vectors, 3)


def test_a_quiet_search_says_nothing(monkeypatch, capsys):
    with console.speaking(quiet=True, verbose=False):
        kept("scan", clustered(300, 8), monkeypatch).search(clustered(2, 8), 3)
    assert not capsys.readouterr().err


def test_exact_search_on_a_device_goes_on_without_faiss(as_a_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    vectors, queries = clustered(300, 16), clustered(6, 16, seed=2)
    agrees(searcher.searcher_over("flat", vectors, device="cpu").search(queries, 5), queries, vectors, 5)


def test_recall_is_measured_against_the_device(as_a_gpu):
    vectors = clustered(600, 16)
    blocks = Blocks([vectors])
    reference = sample(blocks, "cosine", vectors[:50], device="cpu")
    assert recall(blocks, "cosine", reference, exact.search(vectors[:50], [vectors], 10).positions) == 1


class _Event:
    """An event of CUDA that tells what is done with it."""

    def __init__(self, log):
        self.log = log

    def record(self, stream):
        self.log.append(("record", self, stream))

    def synchronize(self):
        self.log.append(("host waits", self))


class _Stream:
    def __init__(self, log):
        self.log = log

    def wait_event(self, event):
        self.log.append(("wait", self, event))


def test_copies_take_turns_with_what_reads_them(monkeypatch):
    """A place is filled again when its copy has ended, and copied over when what was compared there has ended."""
    log, true_empty = [], torch.empty
    copying, computing = _Stream(log), _Stream(log)
    monkeypatch.setattr(torch.cuda, "Event", lambda: _Event(log))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: copying)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computing)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch, "empty", lambda size, dtype, **options: true_empty(size, dtype=dtype))
    copies = device_memory.StagedCopies(torch.device("cuda"))
    blocks = [clustered(20, 8, seed=number) for number in range(5)]
    blocks[2] = (blocks[2] * 9).astype(np.int8)
    blocks[4] = blocks[4][:7]
    places, began = [], []
    for number, block in enumerate(blocks):
        began.append(len(log))
        there = copies.put(block)
        assert np.array_equal(there.numpy(), block) and there.numpy().dtype == block.dtype
        if number:
            assert np.array_equal(places[-1].numpy(), blocks[number - 1]), "the block before is still there"
        places.append(there)
    assert places[0].data_ptr() == places[2].data_ptr() == places[4].data_ptr() != places[1].data_ptr()
    (_, used_before, _), (_, copied), (_, _, used), *_ = log[began[3] :]
    assert log[began[3] : began[4]] == [
        ("record", used_before, computing),
        ("host waits", copied),
        ("wait", copying, used),
        ("record", copied, copying),
        ("wait", computing, copied),
    ]
    assert log[began[4]] == ("record", used, computing), "its use ends where the next block is put"
