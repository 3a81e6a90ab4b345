"""What the parts of `benchmarks/gpu.py` work on, made in place: texts, a model of BERT-base's shape, vectors."""

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np

from gpu_parts.sheet import Setting
from sentcli.zoo import resolve

DIMENSION = 384
WORDS_OF_A_LINE = (3.2, 0.45)
"""Mean and deviation of the logarithm of the number of words in a line of Wikipedia: 25 words in the middle."""


def texts(setting: Setting, count: int) -> list[str]:
    """Return distinct texts: lines of Wikipedia from SENTCLI_DATA, or made ones as long as those, of MiniLM's words."""
    lines = _lines(setting, count)
    return [f"{lines[number % len(lines)]} {number}" for number in range(count)]


def _lines(setting: Setting, count: int) -> list[str]:
    folder = os.environ.get("SENTCLI_DATA")
    if folder:
        with (Path(folder) / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
            found = (line.strip() for line in handle)
            return [line for line, _ in zip(filter(None, found), range(count), strict=False)]
    generator = random.Random(0)
    tokenizer = json.loads((resolve(setting.model)[0] / "tokenizer.json").read_text("utf-8"))
    vocabulary = [word for word in tokenizer["model"]["vocab"] if word.isascii() and word.isalpha() and len(word) > 1]
    generator.shuffle(vocabulary)
    weights = 1 / np.arange(1, len(vocabulary) + 1)  # Zipf
    lengths = [max(3, round(generator.lognormvariate(*WORDS_OF_A_LINE))) for _ in range(count)]
    words = iter(generator.choices(vocabulary, weights.tolist(), k=sum(lengths)))
    return [" ".join(next(words) for _ in range(length)) for length in lengths]


def mixed_lengths(setting: Setting, count: int) -> list[str]:
    """Return texts of about 16 to 512 tokens, all lengths alike."""
    words = " ".join(texts(setting, max(count * 10, 200))).split()
    generator = random.Random(1)
    lengths = [generator.randint(12, 400) for _ in range(count)]
    starts = [generator.randrange(max(1, len(words) - 400)) for _ in range(count)]
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


def base_model(setting: Setting) -> str:
    """Return a folder with a model of BERT-base's shape, random weights, and MiniLM's tokenizer and pooling."""
    import torch
    from transformers import BertConfig, BertModel

    folder = setting.work / "base"
    if folder.exists():
        return str(folder)
    source = resolve(setting.model)[0]
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "onnx*", "openvino*"))
    words = json.loads((source / "config.json").read_text("utf-8"))["vocab_size"]
    shape = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
    config = BertConfig(vocab_size=words, **(shape if setting.small else {}))
    torch.manual_seed(0)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    _change(folder / "1_Pooling" / "config.json", word_embedding_dimension=config.hidden_size)
    _change(folder / "sentence_bert_config.json", max_seq_length=config.max_position_embeddings)
    _change(folder / "tokenizer_config.json", model_max_length=config.max_position_embeddings)
    return str(folder)


def _change(file: Path, **values: int) -> None:
    """Change values of a JSON file, if it is there."""
    if file.exists():
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **values}), "utf-8")


def unit_vectors(setting: Setting, rows: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of length 1 and queries near some of them, made on the device."""
    import torch
    from torch.nn.functional import normalize

    generator = torch.Generator(setting.device).manual_seed(0)
    made = {"generator": generator, "device": setting.device}
    vectors = normalize(torch.randn(rows, DIMENSION, **made))
    chosen = vectors[torch.randint(rows, (queries,), **made)]
    asked = normalize(chosen + 0.02 * torch.randn(queries, DIMENSION, **made))
    return vectors.cpu().numpy(), asked.cpu().numpy()
