"""Encoders in forked processes, as web servers and the loaders of PyTorch make them, and copies of encoders."""

import copy
import importlib.util
import multiprocessing
import pickle
import sys

import numpy as np
import pytest
import torch

from sentcli import SentenceEncoder, waiting
from sentcli.errors import InputError, SentcliError
from tests.tolerance import VECTORS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
TEXTS = [f"the cat {'sat on the mat ' * (number % 9)}" for number in range(300)]
BACKENDS = [
    "torch",
    "onnx",
    pytest.param(
        "openvino",
        marks=pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed"),
    ),
]


def in_child(work):
    """Return what work gives in a forked process, or the message of its error; it may take a minute."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run():
        try:
            theirs.send(work())
        except SentcliError as error:
            theirs.send(str(error))

    process = context.Process(target=run)
    process.start()
    try:
        assert ours.poll(60), "the child hangs"
        return ours.recv()
    finally:
        process.kill()
        process.join()


@pytest.fixture
def threads():
    """Two threads for torch, which have begun before a fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(1000, 1000) @ torch.ones(1000, 1000)
    torch.ones(2_000_000).exp()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forked_child_encodes_or_says_how_it_can(backend, warm, tiny_bert, threads):
    encoder = SentenceEncoder.load(tiny_bert, backend=backend, device="cpu")
    if warm:
        encoder.encode(TEXTS)
    found = in_child(lambda: encoder.encode(TEXTS))
    if backend == "openvino":
        assert "spawn" in found and "onnx" in found
    else:
        np.testing.assert_allclose(found, encoder.encode(TEXTS), atol=VECTORS)


def test_a_child_loads_an_encoder_of_its_own(tiny_bert, threads):
    expected = SentenceEncoder.load(tiny_bert, backend="torch", device="cpu").encode(TEXTS)
    found = in_child(lambda: SentenceEncoder.load(tiny_bert, backend="torch", device="cpu").encode(TEXTS))
    np.testing.assert_allclose(found, expected, atol=VECTORS)


@pytest.mark.slow
def test_a_child_searches(threads):
    from sentcli.search.exact import search
    from sentcli.search.faiss_index import FaissIndex

    vectors = np.random.default_rng(0).normal(size=(3000, 32)).astype(np.float32)
    index = FaissIndex.empty("HNSW32,Flat", 32, "cosine", len(vectors))
    index.add(vectors)
    exact, approximate = search(vectors, [vectors], 5), index.search(vectors, 5)
    np.testing.assert_array_equal(in_child(lambda: search(vectors, [vectors], 5).positions), exact.positions)
    np.testing.assert_array_equal(in_child(lambda: index.search(vectors, 5).positions), approximate.positions)


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_what_runs_on_a_gpu_names_spawn_in_a_child(backend, tiny_bert, monkeypatch):
    encoder = SentenceEncoder.load(tiny_bert, backend=backend, device="cpu")
    runner = encoder.loaded.backend
    monkeypatch.setattr(runner, "device", "cuda")
    if backend == "torch":
        monkeypatch.setattr(runner, "torch_device", torch.device("cuda"))
    said = in_child(lambda: runner.run({}, 0))
    assert "cuda" in said and "spawn" in said


def test_a_process_that_lost_no_threads_keeps_its_own(monkeypatch):
    monkeypatch.setattr(waiting, "_process", waiting._Process(threads=1))
    waiting._note_loss()
    assert waiting._process.adapted and not waiting._process.lost


@pytest.mark.drawn
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "way", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy, copy.copy], ids=["pickle", "deep", "shallow"]
)
def test_an_encoder_can_be_copied(backend, way, tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert, backend=backend, device="cpu", max_length=7)
    other = way(encoder)
    np.testing.assert_array_equal(other.encode(TEXTS[:20]), encoder.encode(TEXTS[:20]))
    assert other.describe() == encoder.describe() and other.fingerprint() == encoder.fingerprint()


def test_a_copy_whose_folder_is_gone_or_another_is_refused(tiny_bert, tmp_path):
    import sentcli

    sentcli.export(tiny_bert, output=tmp_path / "export", torch_weights=False, verify=False, quiet=True)
    packed = pickle.dumps(SentenceEncoder.load(tmp_path / "export"))
    (tmp_path / "export" / "model.onnx").write_bytes(b"other")
    with pytest.raises(InputError, match=r"model\.onnx is not the file that was exported"):
        pickle.loads(packed)
    (tmp_path / "export" / "model.onnx").unlink()
    with pytest.raises(InputError, match=r"model\.onnx is missing"):
        pickle.loads(packed)
