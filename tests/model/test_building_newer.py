"""Tiny models of the newer families, ModernBERT and Qwen3-Embedding, give the vectors of sentence-transformers."""

import json

import numpy as np
import pytest
import torch

from sentcli import SentenceEncoder
from sentcli.search.exact import unit_length
from tests.conftest import make_backbone
from tests.tolerance import VECTORS

TEXTS = [
    "the cat sat",
    "a small red fish swam under the old tree",
    "",
    "dog",
    "the cat sat on the mat near the river .",
]
INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


def qwen3_tokenizer():
    """A byte-level BPE without merges that ends texts with <|endoftext|> and pads on the left, as Qwen3-Embedding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab = {piece: i for i, piece in enumerate([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    backend = Tokenizer(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        model_max_length=256,
    )


def qwen3(folder):
    """A tiny Qwen3-Embedding: last token, unit length, an instruction for queries."""
    import transformers as t
    from sentence_transformers import SentenceTransformer, models

    torch.manual_seed(0)
    tokenizer = qwen3_tokenizer()
    config = t.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, intermediate_size=64, max_position_embeddings=256, initializer_range=0.2, pad_token_id=0,
        eos_token_id=2, bos_token_id=None,
    )  # fmt: skip
    t.Qwen3Model(config).save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    transformer = models.Transformer(str(folder / "plain"), max_seq_length=200)
    modules = [transformer, models.Pooling(32, pooling_mode="lasttoken"), models.Normalize()]
    prompts = {"query": INSTRUCTION, "document": ""}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(
        str(folder / "st"), create_model_card=False
    )
    return folder / "st"


def modernbert(folder):
    """A tiny ModernBERT with mean pooling, as modernbert-embed-base has it."""
    from sentence_transformers import SentenceTransformer, models

    model, tokenizer = make_backbone(kind="modernbert")
    model.save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    transformer = models.Transformer(str(folder / "plain"))
    modules = [transformer, models.Pooling(32, pooling_mode="mean")]
    prompts = {"query": "the ", "document": "a "}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(
        str(folder / "st"), create_model_card=False
    )
    return folder / "st"


@pytest.fixture(scope="module", params=[qwen3, modernbert], ids=["qwen3", "modernbert"])
def folder(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("newer"))


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [None, "query", "document"])
@pytest.mark.parametrize("batch_tokens", [None, 16])
def test_vectors_are_those_of_sentence_transformers(folder, prompt, batch_tokens):
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, prompt_name=prompt)
    encoder = SentenceEncoder.load(folder, backend="torch", device="cpu")
    found = encoder.encode(TEXTS, prompt_name=prompt, batch_tokens=batch_tokens)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.slow
def test_a_saved_model_is_the_same(folder, tmp_path):
    encoder = SentenceEncoder.load(folder, backend="torch", device="cpu")
    encoder.save(tmp_path / "again")
    again = SentenceEncoder.load(tmp_path / "again", backend="torch", device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=VECTORS)
    assert again.spec.prompts == encoder.spec.prompts


@pytest.mark.slow
def test_retrieve_puts_the_instruction_before_the_query_alone(folder, invoke, tmp_path):
    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    texts = [text for text in TEXTS if text]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    call = ("retrieve", "-m", folder, "--corpus", tmp_path / "a.txt", "--query", "a dog", "--json", "-")
    report = json.loads(invoke(*call, "--backend", "torch", check=0).stdout)
    encoder = SentenceEncoder.load(folder, backend="torch", device="cpu")
    query = encoder.spec.prompts["query"]
    assert report["protocol"]["query_prompt"] == query
    document = encoder.spec.prompts.get("document", "")
    scores = (
        unit_length(encoder.encode(["a dog"], prompt=query)) @ unit_length(encoder.encode(texts, prompt=document)).T
    )
    expected = sorted(scores[0].tolist(), reverse=True)
    assert [hit["score"] for hit in report["results"][0]["hits"]] == pytest.approx(expected, abs=1e-5)
