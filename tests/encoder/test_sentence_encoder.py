"""`SentenceEncoder` against sentence-transformers on the same folders."""

import numpy as np
import pytest
import torch

from sentcli import SentenceEncoder
from sentcli.errors import InputError, MissingExtraError
from sentcli.model.spec import POOLINGS
from tests.model import folders
from tests.tolerance import VECTORS

LIMIT = 0.999999


def cosines(first, second):
    return (first * second).sum(1) / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))


def peer(folder, sentences, **kwargs):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(sentences, **kwargs)


@pytest.mark.drawn
@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "cls-head"])
@pytest.mark.parametrize("model", ["tiny_bert", "tiny_roberta"])
def test_saved_folder_opens_in_sentence_transformers_with_equal_vectors(model, pooling, request, sentences, tmp_path):
    encoder = SentenceEncoder.load(request.getfixturevalue(model), pooling=pooling, normalize=pooling == "mean")
    vectors = encoder.encode(sentences)
    encoder.save(tmp_path / "saved")
    assert cosines(vectors, peer(tmp_path / "saved", sentences)).min() > LIMIT
    again = SentenceEncoder.load(tmp_path / "saved")
    assert again.spec.pooling == pooling
    assert again.describe() == encoder.describe()
    np.testing.assert_allclose(again.encode(sentences, batch_tokens=50), vectors, atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, 40, 200, 100_000])
def test_vectors_do_not_depend_on_the_batch_budget(tiny_bert, sentences, budget):
    encoder = SentenceEncoder.load(tiny_bert)
    vectors, stats = encoder.encode_counted(sentences, batch_tokens=budget)
    assert cosines(vectors, encoder.encode(sentences)).min() > LIMIT
    assert stats.texts == len(sentences)
    assert stats.distinct == len(set(sentences))


@pytest.mark.slow
def test_folders_written_by_sentence_transformers(tiny_bert, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer import modules as parts

    chains = {
        "dense": lambda t: [parts.Pooling(32, "cls"), Dense(32, 8), Normalize()],
        "cnn": lambda t: [parts.CNN(32, 6, [1, 3, 5]), parts.Pooling(18, "mean")],
        "two": lambda t: [parts.Pooling(32, ("cls", "mean")), parts.Dropout(0.5)],
    }
    for name, rest in chains.items():
        transformer = Transformer(str(tiny_bert))
        SentenceTransformer(modules=[transformer, *rest(transformer)], device="cpu").save(
            str(tmp_path / name), create_model_card=False
        )
        encoder = SentenceEncoder.load(tmp_path / name)
        vectors = encoder.encode(sentences)
        # one by one: its convolutions see the padding, so that its vectors depend on the batch
        expected = peer(tmp_path / name, sentences, batch_size=1)
        assert vectors.shape == expected.shape, name
        assert cosines(vectors, expected).min() > LIMIT, name
        encoder.save(tmp_path / f"{name}-again")
        assert cosines(vectors, peer(tmp_path / f"{name}-again", sentences, batch_size=1)).min() > LIMIT, name


@pytest.mark.slow
def test_prompts_and_prompt_exclusion(tiny_bert, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    prompts = {"query": "find the ", "document": ""}
    for include in (True, False):
        modules = [Transformer(str(tiny_bert)), Pooling(32, "mean", include_prompt=include)]
        folder = tmp_path / str(include)
        SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(folder), create_model_card=False)
        encoder = SentenceEncoder.load(folder)
        texts = [text for text in sentences if text.strip()]
        ours = encoder.encode(texts, prompt_name="query")
        assert cosines(ours, peer(folder, texts, prompt_name="query")).min() > LIMIT
        assert encoder.role_prompt("query") == "find the "
        with pytest.raises(InputError, match=r"'qery'.*'query'"):
            encoder.encode(texts, prompt_name="qery")


def test_truncated_texts_are_counted(tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert)  # 32 tokens, 30 of them words
    _, stats = encoder.encode_counted(["the " * 30, "the " * 35, "the " * 35, "cat"])
    assert (stats.truncated, stats.tokens_lost) == (1, 5)
    short = SentenceEncoder.load(tiny_bert, max_length=8)
    np.testing.assert_allclose(short.encode(["the " * 30])[0], short.encode(["the " * 6])[0], atol=VECTORS)


def test_more_tokens_than_positions_is_refused(tiny_bert, tiny_roberta):
    for folder, positions in ((tiny_bert, 40), (tiny_roberta, 32)):
        with pytest.raises(InputError, match=f"--max-length {positions + 1} .*{positions}"):
            SentenceEncoder.load(folder, max_length=positions + 1)
        SentenceEncoder.load(folder, max_length=positions).encode(["the cat " * 40])


def test_empty_input_and_lone_surrogates(tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert)
    assert encoder.encode([]).shape == (0, 32)
    assert np.isfinite(encoder.encode(["a \ud800 b"])).all()
    with pytest.raises(TypeError, match="list of sentences"):
        encoder.encode("one sentence")


def test_half_precision_runs_where_the_hardware_has_it_and_is_refused_elsewhere(tiny_bert, sentences, monkeypatch):
    from sentcli import precision

    monkeypatch.setattr(precision, "half_precision_supported", lambda device, precision: precision == "bf16")
    half = SentenceEncoder.load(tiny_bert, precision="bf16").encode(sentences)
    assert half.dtype == np.float32
    assert cosines(half, SentenceEncoder.load(tiny_bert).encode(sentences)).min() > 0.99
    with pytest.raises(InputError, match=r"cpu .*fp16"):
        SentenceEncoder.load(tiny_bert, precision="fp16")


@pytest.mark.parametrize(("kind", "half"), [("modernbert", "bf16"), ("qwen3", "bf16"), ("t5", "fp16")])
def test_half_precision_keeps_in_float32_what_transformers_does(kind, half, tmp_path, monkeypatch):
    """Rotary positions, and the layers of T5 that overflow."""
    from sentcli import precision

    monkeypatch.setattr(precision, "half_precision_supported", lambda device, precision: True)
    folder = folders.make(tmp_path / "st", "lasttoken" if kind in folders.LAST_TOKEN else "mean", kind=kind)
    backbone = SentenceEncoder.load(folder, backend="torch", device="cpu", precision=half).torch_module.backbone
    expected = type(backbone).from_pretrained(folder, dtype=precision.PRECISIONS[half]).eval()
    ids = torch.arange(60)[None] % 30 + 5
    with torch.inference_mode():
        found, states = (model(ids).last_hidden_state for model in (backbone, expected))
    assert states.dtype == precision.PRECISIONS[half] and torch.equal(found, states)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:7"}, "'cuda:7'.*0 CUDA"),
        ({"device": "gpu0"}, "'gpu0'.*cpu"),
        ({"precision": "fp8"}, "'fp8'.*fp32"),
        ({"backend": "tensorflow"}, "'tensorflow'.*onnx"),
        ({"pooling": "men"}, "'men'.*'mean'"),
        ({"max_length": 2}, "--max-length 2 .*3"),
    ],
)
def test_wrong_options(tiny_bert, options, message):
    with pytest.raises(InputError, match=message):
        SentenceEncoder.load(tiny_bert, **options)


def test_unknown_models(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"'minilmm'.*'minilm'"):
        SentenceEncoder.load("minilmm")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=str(tmp_path / "file")):
        SentenceEncoder.load(tmp_path / "file")
    with pytest.raises(InputError, match=rf"{tmp_path} .*config\.json"):
        SentenceEncoder.load(tmp_path)
    from sentcli import hub_fetch, zoo

    monkeypatch.setattr(zoo, "package_folder", lambda package: None)
    monkeypatch.setattr(hub_fetch, "fetch", lambda model, native: (_ for _ in ()).throw(zoo.SentcliError("offline")))
    with pytest.raises(MissingExtraError, match=r"sentcli\[minilm\]"):
        SentenceEncoder.load("minilm")


@pytest.mark.slow
def test_minilm_equals_sentence_transformers(minilm, sentences):
    encoder = SentenceEncoder.load(minilm)
    texts = [*sentences, "A man is playing a guitar.", "Sentence embeddings " * 200]
    assert cosines(encoder.encode(texts), peer(encoder.spec.folder, texts)).min() > LIMIT
    # first numbers of a known vector (all-MiniLM-L6-v2, fp32)
    known = encoder.encode(["A man is playing a guitar."])[0]
    assert known.shape == (384,)
    assert abs(float(np.linalg.norm(known)) - 1) < 1e-6


def test_other_bytes_under_a_pinned_name_are_refused(minilm, monkeypatch, tmp_path, tiny_bert):
    import shutil

    from sentcli import zoo

    shutil.copytree(tiny_bert, tmp_path / "model")
    monkeypatch.setattr(zoo, "package_folder", lambda package: tmp_path / "model")
    with pytest.raises(InputError, match="SHA-256"):
        SentenceEncoder.load("minilm")


def test_a_frame_is_encoded_by_its_column_of_texts(tiny_bert):
    import pandas as pd

    encoder, frame = SentenceEncoder.load(tiny_bert), pd.DataFrame({"id": [1, 2, 3], "text": ["the cat", "a", "the"]})
    assert np.array_equal(encoder.encode(frame), encoder.encode(list(frame["text"])))
    assert encoder.similarity(frame, ["the cat"]).shape == (3, 1)
    with pytest.raises(InputError, match=r"'text'.*id, body"):
        encoder.encode(frame.rename(columns={"text": "body"}))
    with pytest.raises(TypeError, match="number 1"):
        encoder.encode(frame.assign(text=["the cat", None, "the"]))


def test_an_encoder_shows_itself(tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert, backend="torch", device="cpu", pooling="cls", normalize=True)
    assert repr(encoder) == (
        f"SentenceEncoder({str(tiny_bert)!r}: 32 dimensions, pooling cls, unit length, at most 32 tokens; "
        "torch on cpu, fp32)"
    )


def test_similarity_is_that_of_sentence_transformers(tiny_bert):
    from sentence_transformers import SentenceTransformer

    first, second = ["the cat sat", "a red fish"], ["a dog ran", "the cat sat", "."]
    encoder, reference = SentenceEncoder.load(tiny_bert), SentenceTransformer(str(tiny_bert), device="cpu")
    expected = reference.similarity(reference.encode(first), reference.encode(second)).numpy()
    found = encoder.similarity(first, second)
    assert (found.shape, found.dtype) == ((2, 3), np.float32)
    np.testing.assert_allclose(found, expected, atol=VECTORS)
    np.testing.assert_allclose(encoder.similarity(encoder.encode(first) * 7, second), expected, atol=VECTORS)
    assert encoder.similarity(np.zeros((1, 32)), second).tolist() == [[0, 0, 0]]
    with pytest.raises(TypeError, match="a list of sentences"):
        encoder.similarity("the cat", second)


def test_the_package_lists_its_public_names():
    import sentcli

    assert {"SentenceEncoder", "encode", "retrieve", "analyze", "__version__"} <= {*dir(sentcli)}
    assert all(hasattr(sentcli, name) for name in dir(sentcli))
