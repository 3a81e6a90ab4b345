"""What runs on a GPU gives what the CPU gives: `make test-gpu`.

`SENTCLI_TEST_DEVICE` names another device, such as cuda:1; with cpu the tests try themselves.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.search import searcher as searching
from sentcli.search.exact import Blocks, search, search_blocks
from sentcli.search.faiss_index import FaissIndex
from sentcli.search.on_device import DeviceRows
from sentcli.search.recall import recall, sample
from tests.model import folders
from tests.search.conftest import clustered
from tests.training.test_gradients_processes import ranks

DEVICE = os.environ.get("SENTCLI_TEST_DEVICE", "cuda")
TEXTS = [
    f"the {noun} sat on the {colour} mat {number}"
    for number in range(40)
    for noun in ("cat", "dog")
    for colour in ("red", "blue")
]


def is_there(device):
    import torch

    return (
        device == "cpu"
        or (device.startswith("cuda") and torch.cuda.is_available())
        or (device == "mps" and torch.backends.mps.is_available())
    )


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not is_there(DEVICE), reason=f"there is no device {DEVICE}"),
]


def has_kernel(precision):
    import torch

    from sentcli.model.flat_attention import choose_kernel

    return choose_kernel(torch.device(DEVICE), precision) is not None


def cosines(first, second):
    return np.einsum("nd,nd->n", *(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second)))


@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.99999), ("bf16", 0.999), ("fp16", 0.9999)])
def test_vectors_equal_those_of_the_cpu(minilm, precision, least):
    expected = SentenceEncoder.load(minilm, backend="torch", device="cpu", precision="fp32").encode(TEXTS)
    if DEVICE == "cpu" and precision != "fp32":
        pytest.skip("half precision is for accelerators")
    encoder = SentenceEncoder.load(minilm, backend="torch", device=DEVICE, precision=precision)
    assert (encoder.backend.batches == "flat") == has_kernel(precision)
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32 and cosines(vectors, expected).min() > least


@pytest.mark.parametrize("kind", ["roberta", "modernbert", "gte", "qwen3", "mistral", "gemma3_text"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_flat_batches_of_each_kind_of_attention_give_the_vectors_of_the_cpu(kind, precision, tmp_path):
    """Windows, rotary positions, tokens that see only those before them, heads that share keys, the first token."""
    if not has_kernel(precision):
        pytest.skip("this device runs padded batches")
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        pytest.skip(f"this release of transformers has no {kind}")
    modules = "lasttoken" if kind in folders.LAST_TOKEN else "cls" if kind == "roberta" else "mean"
    folder, notes = folders.make(tmp_path / "st", modules, kind=kind), []
    expected = SentenceEncoder.load(folder, backend="torch", device="cpu", precision="fp32").encode(folders.TEXTS * 9)
    options = {"backend": "torch", "device": DEVICE, "precision": precision, "notice": notes.append}
    encoder = SentenceEncoder.load(folder, **options)
    assert encoder.backend.batches == "flat", notes
    for budget in (40, 4096):
        assert cosines(encoder.encode(folders.TEXTS * 9, batch_tokens=budget), expected).min() > 0.995


def test_onnxruntime_on_the_device(minilm):
    import onnxruntime

    if DEVICE != "cpu" and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("onnxruntime-gpu is not installed: pip install 'sentcli[gpu]'")
    expected = SentenceEncoder.load(minilm, backend="torch", device="cpu").encode(TEXTS)
    vectors = SentenceEncoder.load(minilm, backend="onnx", device=DEVICE).encode(TEXTS)
    assert cosines(vectors, expected).min() > 0.9999


def test_a_directory_is_encoded_and_searched(invoke, minilm, tmp_path):
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS))
    on = ("-m", minilm, "--device", DEVICE)
    invoke("encode", source, "-o", tmp_path / "v", *on, "--shard-rows", 50, check=0)
    hits = []
    for device in (DEVICE, "cpu"):
        asked = ("--query", TEXTS[7], "--top-k", 3, "--json", "-", "-m", minilm, "--device", device)
        done = invoke("retrieve", "--corpus", tmp_path / "v", *asked, check=0)
        hits.append([hit["id"] for hit in json.loads(done.stdout)["results"][0]["hits"]])
    assert hits[0] == hits[1] and hits[0][0] == "7"


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_search_equals_that_of_the_cpu(kind):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu] or sentcli[gpu]")
    vectors, queries = clustered(5000, 32), clustered(30, 32, seed=1)
    on_cpu = searching.searcher_over(kind, vectors)
    expected = on_cpu.search(queries, 10)
    search = searching.searcher_over(kind, vectors)
    search.device = DEVICE
    search.set(on_cpu.efforts)
    search.parts = [part.on(DEVICE) for part in search.parts]
    found = search.search(queries, 10)
    assert np.allclose(found.scores, expected.scores, atol=1e-4)
    mask = np.arange(len(vectors)) % 2 == 0
    assert mask[search.search(queries, 10, mask).positions].all()


@pytest.mark.parametrize("kind", ["ivf", "ivfpq"])
def test_an_index_that_was_built_on_the_device_is_one_of_the_cpu(kind, tmp_path):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu] or sentcli[gpu]")
    vectors, queries = clustered(20_000, 64), clustered(100, 64, seed=1)
    on_device, on_cpu = (searching.searcher_over(kind, vectors, device=device) for device in (DEVICE, "cpu"))
    on_device.parts[0].write(tmp_path / "index.faiss")
    on_device.parts, on_device.device = [FaissIndex.read(tmp_path / "index.faiss", "cosine")], "cpu"
    exact = sample(Blocks([vectors]), "cosine", queries)
    recalls = []
    for built in (on_device, on_cpu):
        built.set({"nprobe": 64})
        recalls.append(recall(built.blocks, "cosine", exact, built.search(queries, 10).positions))
    assert recalls[0] > recalls[1] - 0.05 > 0.3


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("k", [1, 10, 100, 1000])
def test_exact_search_in_rows_on_the_device_equals_that_of_the_cpu(k, scan):
    vectors, queries = clustered(200_003, 48), clustered(300, 48, seed=1)
    rows = DeviceRows.open(Blocks([vectors[:70_001], vectors[70_001:]]), "cosine", DEVICE, scan=scan)
    mask = np.arange(len(vectors)) % 3 == 0
    for allowed in (None, mask):
        expected = search_blocks(queries, Blocks([vectors]), k, mask=allowed)
        for asked in (queries, queries[:1]):
            found = rows.search(asked, k, allowed)
            assert np.allclose(found.scores, expected.scores[: len(asked)], atol=1e-5)
            assert (found.positions == expected.positions[: len(asked)]).mean() > 0.99, "all but ties"
            assert allowed is None or allowed[found.positions].all()


def test_rows_that_are_copied_in_turns_are_those_of_the_cpu(monkeypatch):
    from sentcli.search import device_memory

    vectors, queries = clustered(300_000, 48), clustered(300, 48, seed=1)
    monkeypatch.setattr(device_memory, "COPIED", 4 * 48 * 20_000)  # many turns
    expected = search(queries, [vectors], 10)
    found = search(queries, [vectors[:1000], vectors[1000:]], 10, device=DEVICE)
    assert np.allclose(found.scores, expected.scores, atol=1e-5)
    assert (found.positions == expected.positions).mean() > 0.99, "all but ties"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_learns_and_encodes(invoke, tiny_bert, tmp_path, precision):
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS))
    options = (
        "--method",
        "simcse",
        "--batch-size",
        16,
        "--max-steps",
        12,
        "--learning-rate",
        1e-3,
        "--set",
        f"precision={precision}",
    )
    output = tmp_path / "model"
    invoke("train", "-m", tiny_bert, "--data", source, "-o", output, "--device", DEVICE, *options, check=0)
    losses = [
        json.loads(line)["loss"]
        for line in (output / "metrics.jsonl").read_text().splitlines()
        if "loss" in json.loads(line)
    ]
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < np.mean(losses[:3])
    assert np.isfinite(SentenceEncoder.load(str(output), device=DEVICE, backend="torch").encode(TEXTS[:4])).all()


@contextmanager
def no_wait_for_the_gpu():
    """Make torch raise an error where the program would wait for the GPU."""
    import torch

    if DEVICE != "cpu":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if DEVICE != "cpu":
            torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def training(tiny_bert, tmp_path):
    """The gradients of a run and the inputs of its steps."""
    from sentcli.training.batches import BatchMaker
    from sentcli.training.gradients import Gradients
    from sentcli.training.loop import run_order
    from sentcli.training.prepare import prepare
    from sentcli.training.request import TrainRequest

    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS))
    settings = [("settings.batch_size", 16)]
    request = TrainRequest("simcse", str(tiny_bert), [str(source)], tmp_path / "m", device=DEVICE, assignments=settings)
    run = prepare(request)
    order = run_order(run.model, run.method.settings, len(run.corpus.sentences))
    maker = BatchMaker(run.corpus, run.tokenizer, order, run.method.views)
    gradients = Gradients(run.model.train(), run.method.settings)
    return gradients, (inputs for _, inputs in maker.steps(0, 4, gradients.device))


def test_a_step_is_queued_without_a_wait(training):
    gradients, steps = training
    before = gradients.queue(next(steps))
    gradients.apply(1e-4)  # the optimiser makes its state
    for inputs in steps:
        with no_wait_for_the_gpu():
            step = gradients.queue(inputs)
            gradients.apply(1e-4)
        values, norm = before.read()
        assert 0 < values["loss"] < 10 and norm > 0
        before = step


def test_the_optimiser_leaves_out_a_step_that_is_not_finite(training):
    import torch

    gradients, steps = training
    if DEVICE == "cpu":
        pytest.skip("a CPU looks at the numbers before the step")
    gradients.queue(next(steps))
    gradients.apply(1e-3)
    with torch.no_grad():
        gradients.trained[0].view(-1)[:] = torch.nan
    kept = [weight.clone() for weight in gradients.trained]
    gradients.queue(next(steps))
    gradients.apply(1e-3)
    for weight, before in zip(gradients.trained, kept, strict=True):
        torch.testing.assert_close(weight, before, rtol=0, atol=0, equal_nan=True)


def test_two_processes_equal_one_of_twice_the_batch(tiny_bert, tmp_path):
    """Two GPUs by NCCL: the negatives of both, in float64."""
    import torch

    if DEVICE != "cpu" and torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS))
    cases = json.dumps({"simcse": ("simcse", {}), "esimcse": ("esimcse", {"momentum_dropout": 0.0, "views": "copies"})})
    found = []
    for count, batch in ((1, 16), (2, 8)):
        out = tmp_path / f"{count}.pt"
        arguments = [cases, tiny_bert, source, out, batch, 4, DEVICE]
        command = [sys.executable, "-m", "tests.training.two_ranks", *map(str, arguments)]
        processes = [subprocess.Popen(command, env=environment) for environment in ranks(count)]
        assert [process.wait(240) for process in processes] == [0] * count
        found.append(torch.load(out))
    for case, one in found[0].items():
        two = found[1][case]
        torch.testing.assert_close(one["losses"], two["losses"], rtol=1e-5, atol=1e-5)
        for name, gradient in one["gradients"].items():
            torch.testing.assert_close(gradient, two["gradients"][name], rtol=1e-5, atol=1e-5, msg=name)
