"""What a model folder says is obeyed as sentence-transformers does, or refused by name."""

import itertools
import json
import random

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from tests.model import folders
from tests.model.folders import TEXTS, WHOLE, edit
from tests.tolerance import VECTORS


def compare(folder, tmp_path, *, saved=True):
    """Check that a folder gives the peer's vectors, and that what is saved of it gives them to both."""
    peer = folders.opened(folder)
    expected = peer.encode(TEXTS, batch_size=1)
    encoder = SentenceEncoder.load(folder, backend="torch", device="cpu")
    limit = 1e-5 * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=limit)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, expected, rtol=0, atol=limit)
    if saved:
        encoder.save(tmp_path / "saved")
        again = SentenceEncoder.load(tmp_path / "saved", backend="torch", device="cpu")
        np.testing.assert_allclose(again.encode(TEXTS), expected, rtol=0, atol=limit)
        assert again.spec.stated_similarity == peer.similarity_fn_name
        if again.spec.is_sentence_transformers:
            theirs = folders.opened(tmp_path / "saved").encode(TEXTS, batch_size=1)
            np.testing.assert_allclose(theirs, expected, rtol=0, atol=limit)
    return encoder, expected


@pytest.mark.parametrize("modules", folders.MODULES)
def test_modules(modules, tmp_path):
    compare(folders.make(tmp_path / "st", modules), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("setting", folders.SETTINGS)
def test_settings(setting, tmp_path):
    encoder, _ = compare(folders.make(tmp_path / "st", "mean", [setting]), tmp_path)
    assert not encoder.spec.unknown_keys


def pairs():
    """Every module with every setting, and every two settings, in an order that does not depend on the machine."""
    mixed = [(modules, [setting]) for modules in folders.MODULES for setting in folders.SETTINGS]
    mixed += [("normalize", list(two)) for two in itertools.combinations(folders.SETTINGS, 2)]
    random.Random(0).shuffle(mixed)
    return mixed


def conflicts(settings):
    """Whether one setting removes the file that another one changes."""
    return "old-name" in settings and {"short", "short-processor", "lower-case", "left-processor"} & {*settings}


@pytest.mark.deep
def test_pairs_of_options(tmp_path):
    drawn = [(modules, settings) for modules, settings in pairs() if not conflicts(settings)][:150]
    for number, (modules, settings) in enumerate(drawn):
        place = tmp_path / str(number)
        place.mkdir()
        compare(folders.make(place / "st", modules, settings), place)


@pytest.mark.slow
@pytest.mark.parametrize("kind", folders.FAMILIES)
def test_families(kind, tmp_path):
    pooling = "lasttoken" if kind in folders.LAST_TOKEN else "mean"
    compare(folders.make(tmp_path / "st", pooling, kind=kind), tmp_path, saved=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen3", "gpt2", "gemma3_text"])
def test_padding_on_the_left_changes_nothing(kind, tmp_path):
    pooling = "lasttoken" if kind in folders.LAST_TOKEN else "mean"
    compare(folders.make(tmp_path / "st", pooling, kind=kind, padding="left"), tmp_path, saved=False)


NOT_EXPORTED = ("convbert", "nystromformer")
"""Families whose vectors depend on padding, so that an export is refused."""


EXPORTED_IN_CI = (*NOT_EXPORTED, "deberta-v2", "t5", "nomic_bert", "qwen3", "gpt2")
"""One family of each kind of attention and positions."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in EXPORTED_IN_CI else pytest.mark.deep) for kind in folders.FAMILIES],
)
def test_families_are_exported_or_say_why_not(kind, tmp_path):
    pooling = "lasttoken" if kind in folders.LAST_TOKEN else "mean"
    folder = folders.make(tmp_path / "st", pooling, kind=kind)
    if kind in NOT_EXPORTED:
        with pytest.raises(SentcliError, match="padding"):
            SentenceEncoder.load(folder, backend="onnx", device="cpu")
        return
    expected = SentenceEncoder.load(folder, backend="torch", device="cpu").encode(TEXTS)
    found = SentenceEncoder.load(folder, backend="onnx", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * float(np.abs(expected).max()))


REFUSED = {
    "code of its own": ("config.json", {"auto_map": {"AutoModel": "modeling.Model"}}, "auto_map"),
    "a tokenizer's code": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "auto_map"),
    "quantised weights": ("config.json", {"quantization_config": {"bits": 4}}, "quantization_config"),
    "relative positions": ("config.json", {"position_embedding_type": "relative_key"}, "relative_key"),
    "removed heads": ("config.json", {"pruned_heads": {"0": [1]}}, "pruned_heads"),
    "another task": ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
    "a chat template": (
        "sentence_bert_config.json",
        {"modality_config": {"message": {"method": "forward", "method_output_name": "last_hidden_state"}}},
        "message",
    ),
    "another output": (
        "sentence_bert_config.json",
        {"modality_config": {"text": {"method": "get_text_features", "method_output_name": "pooler_output"}}},
        "pooler_output",
    ),
    "another tokenisation": (
        "sentence_bert_config.json",
        {"processing_kwargs": {"text": {"padding": 0}}},
        "processing",
    ),
    "other arguments": ("sentence_bert_config.json", {"processor_kwargs": {"add_bos_token": True}}, "add_bos_token"),
    "another configuration": ("sentence_bert_config.json", {"config_kwargs": {"is_causal": False}}, "config_kwargs"),
    "lengths of roles": ("sentence_bert_config.json", {"query_length": 8}, "query_length"),
    "an unknown setting": ("sentence_bert_config.json", {"reverse_tokens": True}, "reverse_tokens"),
    "a missing default": (WHOLE, {"default_prompt_name": "nowhere"}, "nowhere"),
    "sparse vectors": (WHOLE, {"model_type": "SparseEncoder"}, "SparseEncoder"),
    "another similarity": (WHOLE, {"similarity_fn_name": "maxsim"}, "maxsim"),
    "an unknown pooling": ("1_Pooling/config.json", {"pooling_mode_attention": True}, "pooling_mode_attention"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_obeyed_is_refused_by_name(why, tmp_path):
    file, changes, named = REFUSED[why]
    folder = folders.make(tmp_path / "st")
    edit(folder, file, **changes)
    with pytest.raises(InputError, match=named):
        SentenceEncoder.load(folder, backend="torch", device="cpu")


@pytest.mark.parametrize("name", ["custom_st.Transformer", "code.Pooling"])
def test_a_module_of_foreign_code_is_refused_by_its_name(name, tmp_path):
    folder = folders.make(tmp_path / "st")
    path = folder / "modules.json"
    entries = json.loads(path.read_text())
    entries[name.endswith("Pooling")]["type"] = name
    path.write_text(json.dumps(entries))
    with pytest.raises(InputError, match=name):
        SentenceEncoder.load(folder)


def test_keys_that_nobody_knows_are_said(tmp_path):
    folder = folders.make(tmp_path / "st")
    edit(folder, WHOLE, colour="red")
    edit(folder, "tokenizer_config.json", taste="sweet")
    edit(folder, "config.json", sound="loud")
    notes = []
    SentenceEncoder.load(folder, backend="torch", device="cpu", notice=notes.append)
    for key in ("colour", "taste", "sound"):
        assert any(key in note for note in notes)


def test_no_key_that_a_peer_writes_is_unknown(tmp_path):
    for kind in ("bert", "roberta", "mpnet", "albert", "modernbert"):
        notes = []
        SentenceEncoder.load(folders.make(tmp_path / kind, kind=kind), backend="torch", notice=notes.append)
        assert not [note for note in notes if "not known" in note]


def test_a_table_of_a_search_engine_says_euclidean(tmp_path, invoke):
    """Such a model encodes; a search by it is refused by name, unless the user says what to take."""
    folder = folders.make(tmp_path / "st", "mean", ["euclidean"])
    (tmp_path / "a.txt").write_text("the cat\na dog\n")
    call = ("retrieve", "-m", folder, "--corpus", tmp_path / "a.txt", "--query", "cat", "--backend", "torch")
    assert "euclidean" in invoke(*call, check=2).stderr
    invoke(*call, "--similarity", "cosine", check=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "precision", "apart"),
    [
        ("torch", "fp32", 1e-6),
        ("torch", "bf16", 2e-2),
        ("onnx", "fp32", 1e-6),
        ("onnx", "int8", 0),
        ("openvino", "int8", 1e-6),
    ],
)
def test_a_vector_does_not_depend_on_its_neighbours(backend, precision, apart, tmp_path):
    """In int8 onnxruntime has one scale for the activations of a batch, so that texts are run one by one."""
    if backend == "openvino":
        pytest.importorskip("nncf", reason="int8 on openvino comes with the extra sentcli[openvino]")
    folder = folders.make(tmp_path / "st", "normalize")
    try:
        encoder = SentenceEncoder.load(folder, backend=backend, precision=precision, device="cpu")
    except InputError:
        if precision != "bf16":
            raise
        pytest.skip("this processor does not compute in bf16")
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    backwards = encoder.encode(TEXTS[::-1])[::-1]
    for vectors in (alone, backwards, encoder.encode(TEXTS, batch_tokens=20)):
        assert np.abs(vectors - together).max() <= apart


@pytest.mark.slow
@pytest.mark.parametrize("settings", [["truncated"], ["left"], ["lower-case", "dot"]])
def test_what_a_folder_says_stays_when_it_is_trained(settings, tmp_path, invoke):
    folder = folders.make(tmp_path / "st", "normalize", settings)
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS if text))
    call = ("train", "--method", "simcse", "--pooling", "own", "-m", folder, "--data", tmp_path / "a.txt")
    invoke(*call, "-o", tmp_path / "out", "--max-steps", 2, "--batch-size", 3, check=0)
    peer = folders.opened(tmp_path / "out")
    encoder = SentenceEncoder.load(tmp_path / "out", backend="torch", device="cpu")
    np.testing.assert_allclose(encoder.encode(TEXTS), peer.encode(TEXTS, batch_size=1), atol=VECTORS)
    before = SentenceEncoder.load(folder, backend="torch", device="cpu")
    assert encoder.dimension == before.dimension and encoder.tokenizer.side == before.tokenizer.side
    assert encoder.spec.stated_similarity == before.spec.stated_similarity == peer.similarity_fn_name
