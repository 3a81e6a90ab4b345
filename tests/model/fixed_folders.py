"""Folders of models whose every byte is fixed, so that what names them can be compared with what was kept before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

CONFIG = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 5,
    "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32, "pad_token_id": 0,
    "transformers_version": "5.0.0",
}  # fmt: skip
MODULES = ["Transformer", "Pooling", "Dense", "Normalize"]
VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "the": 2, "cat": 3, "sat": 4}


def write_model(folder: Path) -> Path:
    """Write a folder of a small BERT with mean pooling, a dense layer and normalisation."""
    write_settings(folder)
    write_weights(folder / "model.safetensors", 1)
    write_weights(folder / "2_Dense" / "model.safetensors", 2)
    return folder


def write_settings(folder: Path) -> None:
    """Write all of the model but its weights."""
    write(folder / "config.json", CONFIG)
    modules = []
    for number, name in enumerate(MODULES):
        place = f"{number}_{name}" if number else ""
        modules.append(
            {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{name}"}
        )
    write(folder / "modules.json", modules)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": False})
    pooling = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    write(folder / "1_Pooling" / "config.json", pooling)
    activation = "torch.nn.modules.activation.Tanh"
    write(
        folder / "2_Dense" / "config.json",
        {"in_features": 8, "out_features": 4, "bias": True, "activation_function": activation},
    )
    (folder / "3_Normalize").mkdir()
    tokenizer = Tokenizer(WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder / "tokenizer_config.json", {"pad_token": "[PAD]", "unk_token": "[UNK]", "model_max_length": 16})


def write_weights(path: Path, factor: int) -> None:
    """Write weights that no code reads, only their digest."""
    weights = {"linear.weight": np.arange(32, dtype=np.float32).reshape(4, 8) * factor}
    weights["linear.bias"] = np.arange(4, dtype=np.float32) * factor
    save_file(weights, str(path))


def write_export(folder: Path, file: str = "", **facts: object) -> Path:
    """Write the graph and the facts of an export of that model, as version 1 of ``export.json`` has them."""
    graph = folder / (file or "model.onnx")
    graph.parent.mkdir(parents=True, exist_ok=True)
    graph.write_bytes(b"a graph")
    export = {
        "precision": "fp32", "dimension": 4, "pad_id": 0, "model": "first", "model_digest": "0" * 64,
        "source_sha256": ["1" * 64, "2" * 64], "pooling": "mean", "normalize": True, "max_length": 16,
        "graph": "written", "sha256": {file or "model.onnx": "3" * 64}, "format": 1, **facts,
    }  # fmt: skip
    write(graph.with_suffix(".export.json") if file else folder / "export.json", export)
    return folder


def write(path: Path, value: object) -> None:
    """Write a file of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
