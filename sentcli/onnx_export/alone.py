"""Run an exported folder as others will, by its ``tokenizer.json`` and its graph alone, and compare it with its model.

Services and programs that open such a folder know nothing of sentcli: whatever makes a text into token ids has to be in
``tokenizer.json``, lower-casing and the end that is cut included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.arrays import Vectors
from sentcli.errors import SentcliError, required
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import Export
from sentcli.model.tokenizing import BETWEEN_TEXTS, pair_text
from sentcli.onnx_export import verify

HOSTILE = (
    "",
    " ",
    "The QUICK Brown Fox JUMPS over the lazy DOG",
    "Ünïcödé façade, naïve café, Ångström, smørrebrød, İstanbul, ΟΔΥΣΣΕΥΣ, STRASSE, Straße",
    "xqzzv flurbnitz \u2603 \U0001d518\U0001d52b\U0001d526 \U0001f642\U0001f469\u200d\U0001f52c",
    "今天天气很好。東京は日本の首都です。대한민국의 수도는 서울이다.",
    "Быстрая КОРИЧНЕВАЯ лиса, مرحبا بالعالم, नमस्ते दुनिया, שלום עולם, สวัสดีชาวโลก",
    "tabs\tand\nline breaks\r\n and   many blanks \u00a0\u200b",
    "[CLS] special [SEP] tokens <s> </s> as text [MASK] <mask>",
    "https://example.org/a/b?c=d&e=f 3.14159 -17 1,000,000 user@example.org",
)
"""Texts that a tokenizer can get wrong: capitals, accents, unknown signs, other scripts, blanks, special tokens."""
BATCH = 8
"""Texts that are padded to one length."""
_LONG_TEXT = 512
"""A text with more characters is run by itself, since a batch of texts of thousands of tokens needs much memory."""


def hostile_texts(model: LoadedModel) -> list[str]:
    """Return texts that show how a model tokenises: `HOSTILE`, one that is cut at an end, and all with its prompts."""
    middle = " ".join(f"word {number}" for number in range(verify.longest_tried(model)))
    texts = [*HOSTILE, f"The beginning. {middle} The end."]
    if model.spec.scores_pairs:
        return [pair_text(text, HOSTILE[number - 1]) for number, text in enumerate(texts)]
    for prompt in model.spec.prompts.values():
        texts += [prompt + text for text in HOSTILE]
    return list(dict.fromkeys(texts))


def tokenise(tokenizer: Any, texts: Sequence[str], *, pairs: bool) -> list[Any]:
    """Return the encodings that a `tokenizers.Tokenizer` makes of texts, padded to one length."""
    inputs: list[Any] = list(texts)
    if pairs:
        inputs = [tuple(text.split(BETWEEN_TEXTS)) for text in texts]
    return tokenizer.encode_batch(inputs)


def encode_alone(folder: Path, export: Export, tokenizer: Any, texts: Sequence[str], *, pairs: bool) -> Vectors:
    """Return the vectors ``[n, dim]`` that a program makes with the tokenizers library and a runtime alone.

    Args:
        folder: the exported folder.
        export: its facts, of which only the runtime is looked at.
        tokenizer: its ``tokenizer.json``, as the tokenizers library reads it.
        texts: the texts, which the program cuts and pads by what ``tokenizer.json`` says.
        pairs: whether each text is one of `pair_text`.
    """
    names, run = _runtime(folder, export)
    vectors = []
    for batch in _batches(texts):
        encodings = tokenise(tokenizer, batch, pairs=pairs)
        columns = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        inputs = {name: np.array(columns[name], np.int64) for name in names}
        vectors.append(run(inputs))
    return np.concatenate(vectors)


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the texts in their order, `BATCH` at a time, and each `_LONG_TEXT` one by itself."""
    batch: list[str] = []
    for text in texts:
        if len(text) > _LONG_TEXT:
            if batch:
                yield batch
                batch = []
            yield [text]
            continue
        batch.append(text)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _runtime(folder: Path, export: Export) -> tuple[list[str], Any]:
    """Return the names of the inputs of a graph, and a function that runs it."""
    if export.runtime == "openvino":
        openvino = required("openvino", "openvino", "openvino", "int8 on openvino")
        # where a processor has bf16, OpenVINO computes in it by itself, which says nothing of the graph
        settings = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(folder / export.graph_file, "CPU", settings)
        names = [port.get_any_name() for port in compiled.inputs]
        return names, lambda batch: compiled(batch)[0]
    onnxruntime = required("onnxruntime", "onnxruntime", "cpu", "the verification of an export")
    session = onnxruntime.InferenceSession(str(folder / export.graph_file), providers=["CPUExecutionProvider"])
    names = [argument.name for argument in session.get_inputs()]
    return names, lambda batch: session.run(None, batch)[0]


def check_export(folder: Path, export: Export, model: LoadedModel) -> None:
    """Compare what others get of an exported folder with the token ids and the vectors of its model.

    In int8 vectors of such texts may be far from the model's, as those of sentences are not; what quantising costs is
    measured by `verify.compare_vectors`, and here it counts that the ids are the model's and the graph runs on them.

    Raises:
        SentcliError: if they differ by more than the precision allows.
    """
    from tokenizers import Tokenizer

    texts = hostile_texts(model)
    pairs = model.spec.scores_pairs
    problem = f"tokenizer.json and the graph of {model.name} alone do not give the model's vectors"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    own_ids = model.tokenizer(texts).ids
    encodings = tokenise(tokenizer, texts, pairs=pairs)
    for text, own, encoding in zip(texts, own_ids, encodings, strict=True):
        ids = list(compress(encoding.ids, encoding.attention_mask))
        if ids != own:
            raise SentcliError(f"{problem}: {text!r:.60} becomes other tokens; nothing was written")
    vectors = encode_alone(folder, export, tokenizer, texts, pairs=pairs)
    if export.precision == "int8":
        if not np.isfinite(vectors).all():
            raise SentcliError(f"{problem}: some are not finite; nothing was written")
        return
    expected = model.encode(texts).vectors
    _, least, _ = verify.agreement_by_kind(model, expected, vectors, export.precision)
    limit = verify.TOLERANCES[export.precision].min_cosine
    if not least >= limit:
        raise SentcliError(f"{problem}: the least cosine is {least:.6f}, wanted {limit}; nothing was written")
