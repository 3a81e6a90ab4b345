"""Flat batches give the vectors of single texts, on every architecture that runs them and with every module."""

import inspect
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sentcli import SentenceEncoder
from sentcli.errors import DeviceMemoryError, SentcliError
from sentcli.model import flat_attention
from sentcli.model.encoding import pack
from sentcli.model.flat import flat_of
from sentcli.model.flat_attention import FlatInputs, FlatLayout, Reach, text_by_text
from tests.examples import examples
from tests.model import folders
from tests.model.folders import TEXTS
from tests.tolerance import VECTORS


def load(folder, kernel=text_by_text, **options):
    """Load a folder on torch, with a kernel for flat batches on the CPU or with none."""
    with flat_attention.forcing(kernel):
        return SentenceEncoder.load(folder, backend="torch", device="cpu", **options)


def padded_vectors(encoder, texts, **options):
    """Return what the same encoder makes of texts that run alone, by torch's own attention."""
    backend = encoder.backend
    batches, backend.batches = backend.batches, "one text"
    try:
        return encoder.encode(texts, **options)
    finally:
        backend.batches = batches


def compare(folder, *, is_flat=True, prompt=None, **options):
    """Check that flat and padded batches give the same vectors."""
    flat = load(folder, **options)
    assert (flat.backend.batches == "flat") == is_flat
    expected = padded_vectors(flat, TEXTS, prompt=prompt)
    limit = 1e-5 * max(1.0, float(np.abs(expected).max()))
    for budget in (1, 40, 4096):
        vectors = flat.encode(TEXTS, prompt=prompt, batch_tokens=budget)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=limit)


def pooling_of(kind):
    return "lasttoken" if kind in folders.LAST_TOKEN else "mean"


@pytest.mark.slow
@pytest.mark.parametrize("kind", folders.FAMILIES)
def test_families(kind, tmp_path):
    compare(folders.make(tmp_path / "st", pooling_of(kind), kind=kind), is_flat=kind in flat_attention.FLAT_FAMILIES)


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", pytest.param("modernbert", marks=pytest.mark.slow)])
def test_the_first_token_alone(kind, tmp_path):
    compare(folders.make(tmp_path / "st", "cls", kind=kind))


def test_families_that_are_named_are_all_tested():
    assert {*flat_attention.FLAT_FAMILIES} <= {*folders.FAMILIES}


VARIED = ("lasttoken", "mean+max", "cnn", "word-weights", "without-prompt", "dense-tokens", "normalize-tokens")
"""Modules that read token vectors, masks or ids in different ways."""


@pytest.mark.slow
@pytest.mark.parametrize("modules", folders.MODULES)
def test_modules(modules, tmp_path):
    compare(folders.make(tmp_path / "st", modules), prompt="the cat : ")


@pytest.mark.parametrize("pooling", ["first-last-avg", "layer1-last-avg"])
def test_poolings_over_layers(pooling, tmp_path):
    compare(folders.make(tmp_path / "st"), pooling=pooling)


@pytest.mark.slow
def test_the_reference_model(minilm):
    texts = ["the cat sat on the mat", "", "why " * 400, "dog"]
    flat = load(minilm)
    assert flat.backend.batches == "flat"
    np.testing.assert_allclose(flat.encode(texts), padded_vectors(flat, texts), rtol=0, atol=VECTORS)


def test_texts_without_tokens_are_padded(tmp_path):
    folder = folders.make(tmp_path / "st", "lasttoken", kind="llama")
    flat, texts = load(folder), ["", "the cat sat", ""]
    flat.tokenizer.backend.post_processor = None
    np.testing.assert_allclose(flat.encode(texts), padded_vectors(flat, texts), rtol=0, atol=VECTORS)


def test_a_model_that_does_not_pass_the_trial_runs_padded_batches_and_says_so(tmp_path, monkeypatch):
    folder = folders.make(tmp_path / "st", kind="roberta")
    monkeypatch.setattr("sentcli.model.torch_model.POSITIONS_AFTER_PADDING", ())
    notes = []
    encoder = load(folder, notice=notes.append)
    assert encoder.backend.batches == "padded" and any("cosine" in note for note in notes)
    np.testing.assert_allclose(encoder.encode(TEXTS), load(folder, None).encode(TEXTS), rtol=0, atol=VECTORS)


def test_heads_that_flash_attention_does_not_compute_run_padded_batches(tmp_path):
    folder = folders.make(tmp_path / "st")
    folders.edit(folder, "config.json", num_attention_heads=8)
    notes = []
    encoder = load(folder, flat_attention.by_flash_attention, notice=notes.append)
    assert encoder.backend.batches == "padded" and any("heads of 4 dimensions" in note for note in notes)
    np.testing.assert_allclose(encoder.encode(TEXTS), load(folder, None).encode(TEXTS), rtol=0, atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [DeviceMemoryError("cuda has too little memory"), RuntimeError("no kernel"), TypeError("cu_seq_q")]
)
def test_a_trial_that_fails_leaves_padded_batches(error, tmp_path):
    def failing(*inputs):
        raise error

    notes = []
    encoder = load(folders.make(tmp_path / "st"), failing, notice=notes.append)
    assert encoder.backend.batches == "padded" and any(str(error) in note for note in notes)
    assert np.isfinite(encoder.encode(TEXTS)).all()


@pytest.mark.parametrize("kind", ["mistral", "modernbert", "gemma3_text"])
def test_the_trial_reaches_beyond_a_window(kind, tmp_path):
    folder = folders.make(tmp_path / "st", "lasttoken" if kind in folders.LAST_TOKEN else "mean", kind=kind)

    def without_window(query, key, value, layout, reach, scale):
        return text_by_text(query, key, value, layout, Reach(reach.causal, None), scale)

    assert load(folder, without_window).backend.batches == "padded"


@examples(200)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
    st.integers(1, 200),
)
def test_flat_batches_hold_each_text_once_and_stay_within_the_budget(lengths, budget):
    lengths = np.array(lengths)
    batches = list(pack(lengths, budget, "flat"))
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert all(lengths[batch].sum() <= budget or len(batch) == 1 for batch in batches)
    assert all(lengths[batch].max() * len(batch) <= 4 * budget or len(batch) == 1 for batch in batches)
    for batch, following in itertools.pairwise(batches):
        tokens = lengths[batch].sum() + lengths[following[0]]
        padded = lengths[batch].max() * (len(batch) + 1)
        assert tokens > budget or padded > 4 * budget, "no batch has room left"


@examples(100)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.booleans())
def test_padding_a_flat_batch_gives_the_padded_one(lengths, has_types):
    ids = [[10 * number + place for place in range(length)] for number, length in enumerate(lengths, 1)]
    flat = flat_of(ids, [[1] * length for length in lengths] if has_types else None)
    assert flat.longest == max(lengths) and flat.texts == len(lengths)
    inputs = FlatInputs.on(torch.device("cpu"), flat, text_by_text)
    padded, mask = inputs.padded(inputs.ids).numpy(), inputs.mask.numpy()
    for row, text in enumerate(ids):
        assert padded[row].tolist() == text + [0] * (flat.longest - len(text))
        assert mask[row].sum() == len(text)


RELEASES = {
    "2.10": "query key value cu_seq_q cu_seq_k max_q max_k is_causal return_aux",
    "2.11": "query key value cu_seq_q cu_seq_k max_q max_k return_aux scale window_size",
    "2.13": "query key value cu_seq_q cu_seq_k max_q max_k return_aux scale window_size enable_gqa num_splits",
}
"""The arguments of torch's variable-length attention in some releases."""


@pytest.fixture
def release(request, monkeypatch):
    """A stand-in for torch's function as a release has it, which computes it text by text."""
    names = RELEASES[request.param].split()

    def varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **options):
        assert {*options} <= {*names}
        assert max_q == int(cu_seq_q.diff().max()) and max_k == int(cu_seq_k.diff().max())
        assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
        left, right = options.get("window_size", (-1, 0 if options.get("is_causal") else -1))
        reach = SimpleNamespace(sides=(left, right))
        layout = FlatLayout(text_by_text, cu_seq_k, max_k)
        return text_by_text(query, key, value, layout, reach, options.get("scale"))

    function = (varlen_attn, frozenset(names))
    monkeypatch.setattr(flat_attention, "_varlen", lambda: function)
    return request.param


@pytest.mark.drawn
@pytest.mark.parametrize("release", RELEASES, indirect=True)
@pytest.mark.parametrize("kind", ["roberta", "qwen3", "modernbert"])
def test_each_release_of_variable_length_attention(release, kind, tmp_path):
    folder = folders.make(tmp_path / "st", "lasttoken" if kind == "qwen3" else "cls", kind=kind)
    has_window = kind == "modernbert"
    flat = load(folder, flat_attention.by_flash_attention)
    assert flat.backend.batches == ("padded" if has_window and release == "2.10" else "flat")
    np.testing.assert_allclose(flat.encode(TEXTS), padded_vectors(flat, TEXTS), rtol=0, atol=VECTORS)


def test_the_installed_release_takes_what_it_is_given():
    if torch.__version__ < "2.10":
        pytest.skip("this torch has no variable-length attention")
    function, names = flat_attention._varlen()
    assert names == {*inspect.signature(function).parameters}
    assert {"query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"} <= names
    assert "window_size" in names or "is_causal" in names


@pytest.mark.parametrize(
    ("device", "precision", "capability", "cuda", "is_flash"),
    [
        ("cuda", "bf16", (9, 0), "13.0", True),
        ("cuda:1", "fp16", (8, 0), "12.8", True),
        ("cuda", "fp32", (9, 0), "13.0", False),
        ("cuda", "fp16", (7, 5), "13.0", False),
        ("cuda", "bf16", (9, 0), None, False),
        ("cpu", "bf16", None, None, False),
        ("mps", "fp16", None, None, False),
    ],
)
def test_the_kernel_is_chosen_by_device_and_precision(device, precision, capability, cuda, is_flash, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    kernel = flat_attention.choose_kernel(torch.device(device), precision)
    assert (kernel is flat_attention.by_flash_attention) == is_flash
    with flat_attention.forcing(None):
        assert flat_attention.choose_kernel(torch.device(device), precision) is None


def runs_on_meta(module):
    """Run a model on torch's meta device, where tensors have no values: whatever asks for one is an error."""
    module.to("meta")
    device = torch.device("meta")
    flat = FlatInputs.on(device, flat_of([[2, 5, 3], [2, 3]]), lambda query, *others: torch.empty_like(query))
    ids = torch.ones(2, 3, dtype=torch.long, device=device)
    padded = {"input_ids": ids, "attention_mask": ids}
    assert module.of_flat(flat).shape == module(padded).shape == module(padded, is_full=True).shape


@pytest.mark.slow
@pytest.mark.parametrize("kind", flat_attention.FLAT_FAMILIES)
def test_nothing_asks_the_device(kind, tmp_path):
    runs_on_meta(load(folders.make(tmp_path / "st", pooling_of(kind), kind=kind)).torch_module)


@pytest.mark.slow
@pytest.mark.parametrize("modules", [*VARIED, "first-last-avg"])
def test_no_module_asks_the_device(modules, tmp_path):
    pooling = {"pooling": modules} if modules not in folders.MODULES else {}
    folder = folders.make(tmp_path / "st", "mean" if pooling else modules)
    runs_on_meta(load(folder, **pooling).torch_module)


def limited(encoder, tokens):
    """Let a backend have memory for batches of so many tokens; return the sizes of the batches that it got."""
    sizes, real = [], encoder.backend.start

    def start(batch, prompt_length):
        size = len(batch.ids)
        sizes.append(size)
        if size > tokens:
            raise DeviceMemoryError("cuda:0 has too little memory for a batch of 9 texts: 1.0 of its 8.0 GB are free")
        return real(batch, prompt_length)

    encoder.backend.start = start
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [2048, 14])
def test_a_smaller_budget_is_tried_where_a_device_lacks_memory(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr("sentcli.model.encoding.CHUNK", chunk)
    encoder = load(folders.make(tmp_path / "st"))
    expected = encoder.encode(TEXTS * 8, batch_tokens=4096)
    sizes = limited(encoder, 60)
    np.testing.assert_allclose(
        encoder.encode_distinct(TEXTS * 8, batch_tokens=200).vectors, expected, rtol=0, atol=VECTORS
    )
    assert sum(size > 60 for size in sizes) == 1, "larger ones are not tried again"


def test_too_little_memory_for_the_smaller_budget_is_an_error_that_names_both(tmp_path):
    encoder = load(folders.make(tmp_path / "st"))
    limited(encoder, 5)
    with pytest.raises(SentcliError, match=r"9 texts.*8\.0 GB.*50 tokens.*--batch-tokens"):
        encoder.encode(TEXTS, batch_tokens=200)


def test_batches_are_begun_before_the_first_is_waited_for(tmp_path):
    encoder = load(folders.make(tmp_path / "st"))
    expected = encoder.encode(TEXTS * 20, batch_tokens=64)
    log, real = [], encoder.backend.start

    def start(batch, prompt_length):
        waiting = real(batch, prompt_length)
        log.append("begun")

        def wait():
            log.append("waited")
            return waiting()

        return wait

    encoder.backend.start, encoder.backend.streams = start, 4
    vectors = encoder.encode_distinct(TEXTS * 20, batch_tokens=64).vectors
    np.testing.assert_allclose(vectors, np.tile(expected[: len(TEXTS)], (20, 1)), rtol=0, atol=VECTORS)
    assert log[:8] == ["begun"] * 8 and log.count("begun") == log.count("waited") > 20
    open_at = np.cumsum([1 if entry == "begun" else -1 for entry in log])
    assert open_at.max() <= 9
