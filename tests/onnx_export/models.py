"""Tiny encoders whose weights leave no part of them without effect, and ways to run what is exported."""

from dataclasses import replace

import numpy as np
import onnxruntime
import torch
from tokenizers import Tokenizer

from sentcli import SentenceEncoder
from sentcli.model.exported import read_export
from sentcli.onnx_export.publish import export_model
from tests.conftest import byte_bpe_tokenizer, make_backbone
from tests.tolerance import VECTORS

WRITTEN = ("bert", "roberta", "mpnet", "distilbert", "electra", "xlm-roberta", "camembert")
TRACED = ("albert", "modernbert")
WORDS = "the cat sat on a mat under big red house river tree and or not is".split()
TEXTS = [" ".join((WORDS * 3)[n : 2 * n]) for n in range(1, 24)] + ["", " ", "a", "Ünïcödé 漢字 🙂", "the " * 60, "!?"]
"""Of 2 to 32 tokens, special ones included; one is cut."""


def backbone_of(kind):
    """A random backbone with its tokenizer; XLM-R and CamemBERT are RoBERTa's layers under other names."""
    if kind not in ("xlm-roberta", "camembert"):
        return make_backbone(kind)
    import transformers as t

    tokenizer = byte_bpe_tokenizer()
    names = {"xlm-roberta": (t.XLMRobertaConfig, t.XLMRobertaModel), "camembert": (t.CamembertConfig, t.CamembertModel)}
    make_config, make_model = names[kind]
    config = make_config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=34, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    return make_model(config, add_pooling_layer=False).eval(), tokenizer


def save_model(folder, kind, edit=None):
    """Write a transformers folder in which also biases, positions and normalisations are random."""
    backbone, tokenizer = backbone_of(kind)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * noise if "norm" in name.lower() and parameter.ndim == 1 else 0.2 * noise)
        if edit is not None:
            edit(backbone)
    backbone.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_modules(*modules):
    """An `edit` of `SentenceEncoder.load` that puts other modules behind the transformer."""
    return lambda spec: replace(spec, modules=modules, assumed_pooling=False)


def load_edited(folder, *modules):
    """An encoder on torch with these modules, their weights random."""
    torch.manual_seed(2)
    return SentenceEncoder.load(folder, edit=with_modules(*modules))


def export(encoder, folder, precision="fp32", *, verify=False, **options):
    """Export without comparing: that is what the test does."""
    return export_model(encoder.on_torch().loaded, folder, precision, verify=verify, **options)


def plain_vectors(folder, texts):
    """What onnxruntime and tokenizers alone make of an exported folder."""
    said = read_export(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(said.max_length)
    tokenizer.enable_padding(pad_id=said.pad_id)
    found = tokenizer.encode_batch(texts)
    batch = {"input_ids": [each.ids for each in found], "attention_mask": [each.attention_mask for each in found]}
    return run(folder, {name: np.array(rows, np.int64) for name, rows in batch.items()})


def run(folder, batch):
    """Run ``model.onnx`` on token ids."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, batch)[0]


def cosines(first, second):
    first, second = first.astype(np.float64), second.astype(np.float64)
    return (first * second).sum(1) / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))


def assert_equal_vectors(found, wanted, atol=VECTORS):
    """Equal as far as float32 goes, whose steps grow with the numbers."""
    assert found.shape == wanted.shape
    assert cosines(found, wanted).min() >= 0.99999
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol * max(1, np.abs(wanted).max()))
