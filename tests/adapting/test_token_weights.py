"""Weights of tokens by their idf: what they are, and that others read the model as it is read here."""

import json

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.adapting.token_weights import POWERS, inverse_document_frequencies, powers_for, write_weighted
from sentcli.errors import InputError
from tests.tolerance import VECTORS

DOCUMENTS = ["the cat sat on the mat", "the dog ran", "the cat ran near the river", "the bird"]
TEXTS = [*DOCUMENTS, "a river", "", "cat"]


@pytest.fixture
def start(tiny_bert):
    return SentenceEncoder.load(tiny_bert, backend="torch", pooling="mean")


@pytest.fixture
def weighted(tiny_bert, start, tmp_path):
    start.save(tmp_path / "start")
    write_weighted(str(tmp_path / "start"), inverse_document_frequencies(start, DOCUMENTS), 0.5, tmp_path / "weighted")
    return tmp_path / "weighted"


def test_the_weights_are_those_of_the_formula(start):
    rarities = inverse_document_frequencies(start, DOCUMENTS)
    vocabulary = start.tokenizer.backend.get_vocab()
    for word, count in {"the": 4, "cat": 2, "river": 1, "fish": 0}.items():
        assert rarities[vocabulary[word]] == pytest.approx(np.log((len(DOCUMENTS) + 1) / (count + 0.5)))
    occurring = {token for text in DOCUMENTS for token in start.tokenizer([text]).ids[0]}
    occurring -= set(start.hf_tokenizer.all_special_ids)
    for special in start.hf_tokenizer.all_special_ids:
        assert rarities[special] == pytest.approx(np.median(rarities[sorted(occurring)]))


def test_words_that_the_tokenizer_does_not_know_count_alike(start):
    rarities = inverse_document_frequencies(start, ["ξενία", "φίλος"])
    assert set(rarities) == {1.0}


def test_a_token_of_a_prompt_is_no_rare_one(start, tmp_path):
    start.save(tmp_path / "prompted")
    settings = tmp_path / "prompted" / "config_sentence_transformers.json"
    stored = json.loads(settings.read_text())
    settings.write_text(json.dumps({**stored, "prompts": {"query": "fish ", "document": "the "}}))
    encoder = SentenceEncoder.load(tmp_path / "prompted", backend="torch")
    rarities = inverse_document_frequencies(encoder, DOCUMENTS)
    vocabulary = start.tokenizer.backend.get_vocab()
    special = rarities[start.hf_tokenizer.cls_token_id]
    assert rarities[vocabulary["fish"]] == rarities[vocabulary["the"]] == special
    assert rarities[vocabulary["cat"]] < special < inverse_document_frequencies(start, DOCUMENTS)[vocabulary["fish"]]


@pytest.mark.slow
def test_a_vector_is_the_weighted_mean_of_the_token_vectors(start, weighted):
    from sentence_transformers import SentenceTransformer

    ids = start.tokenizer(TEXTS).ids
    weights = inverse_document_frequencies(start, DOCUMENTS) ** 0.5
    transformer = SentenceTransformer(str(weighted), device="cpu")[0]
    expected = []
    for text, of_text in zip(TEXTS, ids, strict=True):
        tokens = transformer(transformer.tokenize([text]))["token_embeddings"][0].detach().numpy()
        expected.append(np.average(tokens, axis=0, weights=weights[of_text]))
    found = SentenceEncoder.load(weighted, backend="torch").encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_sentence_transformers_reads_the_same_model(weighted, backend):
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(weighted), device="cpu").encode(TEXTS)
    found = SentenceEncoder.load(weighted, backend=backend).encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=VECTORS)


@pytest.mark.slow
def test_the_power_0_is_the_start(start, weighted, tmp_path):
    write_weighted(str(tmp_path / "start"), inverse_document_frequencies(start, DOCUMENTS), 0.0, tmp_path / "same")
    same = SentenceEncoder.load(tmp_path / "same", backend="torch").encode(TEXTS)
    np.testing.assert_allclose(same, start.encode(TEXTS), atol=VECTORS)
    other = SentenceEncoder.load(weighted, backend="torch").encode(TEXTS)
    assert np.abs(other - same).max() > 1e-3


def test_a_model_that_pools_otherwise_has_no_weights(start, weighted, tiny_bert):
    assert powers_for(start) == POWERS
    first_token = SentenceEncoder.load(tiny_bert, backend="torch", pooling="cls")
    assert powers_for(first_token) == ()
    size = start.tokenizer.backend.get_vocab_size()
    for encoder in (first_token, SentenceEncoder.load(weighted, backend="torch")):
        with pytest.raises(InputError):
            encoder.with_word_weights([1.0] * size)
