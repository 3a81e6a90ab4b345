"""Static models without torch: the mean of the vectors of a text's tokens, by NumPy.

They start in the time of a bare script, and the sum over a table is as fast as it is anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sentcli.arrays import Int64Array, Vectors
from sentcli.io.weights import read_tensors
from sentcli.model.encoding import Backend, Batches, LoadedModel
from sentcli.model.modules import ModuleSpec, NormalizeSpec, PoolingSpec, TruncateSpec
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec
from sentcli.model.static import TABLE_FILE, static_table
from sentcli.model.tokenizing import fit, plain_tokenizer

GATHERED = 2**24
"""How many numbers of the table are copied at a time: 64 MiB, whatever the length of a text."""
SUMMED = 256
"""How many tokens of a text are summed in float32; their sums are added in float64, since texts may be long."""
TYPES = {"F16", "F32", "F64", "I32", "I64"}
"""The types of numbers of which NumPy makes those that torch makes."""


class StaticBackend(Backend):
    """A `Backend` over a table of token vectors.

    Args:
        table: the vector of each token ``[vocabulary, d]``.
        after: what follows the mean, of the kinds that `can_run` accepts.
    """

    name = "numpy"
    device = "cpu"
    precision = "fp32"
    streams = 1
    default_batch_tokens = 4096
    batches: Batches = "padded"

    def __init__(self, table: Vectors, after: Sequence[ModuleSpec]) -> None:
        self.table, self.after = table, after
        empty = {name: np.zeros((1, 1), np.int64) for name in ("input_ids", "attention_mask")}
        self.dimension = int(self.run(empty, 0).shape[1])

    def run(self, batch: dict[str, Int64Array], prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for a padded batch; a prompt counts, and a text without tokens has the zero vector."""
        ids = batch["input_ids"]
        mask = batch["attention_mask"].astype(np.float32)
        sums = np.zeros((len(ids), self.table.shape[1]), np.float64)
        at_a_time = min(max(GATHERED // max(sums.size, 1), 1), SUMMED)
        for start in range(0, ids.shape[1], at_a_time):
            tokens = np.s_[:, start : start + at_a_time]
            sums += np.matmul(mask[tokens][:, None], self.table[ids[tokens]])[:, 0]
        counts = np.maximum(mask.sum(axis=1, keepdims=True), 1e-9)
        vectors: Vectors = (sums / counts).astype(np.float32)
        for module in self.after:
            vectors = _applied(module, vectors)
        return vectors


def _applied(module: ModuleSpec, vectors: Vectors) -> Vectors:
    """Return what a module makes of sentence vectors ``[B, d]``."""
    if isinstance(module, TruncateSpec):
        return vectors[:, : module.dimension]
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    normalized: Vectors = vectors / np.maximum(norms, np.float32(1e-12))
    return normalized


def can_run(spec: EncoderSpec, options: LoadOptions) -> bool:
    """Tell whether NumPy gives the vectors of a model: a mean over a table in safetensors, maybe normalised or cut."""
    if not spec.is_static or not options.on_cpu or options.precision not in ("auto", "fp32"):
        return False
    first, *after = spec.modules
    if not isinstance(first, PoolingSpec) or first.modes != ("mean",) or not spec.includes_prompt:
        return False
    for module in after:
        cuts = isinstance(module, TruncateSpec)
        normalizes = isinstance(module, NormalizeSpec) and not module.on_tokens
        if not cuts and not normalizes:
            return False
    return _types(spec) <= TYPES


def _types(spec: EncoderSpec) -> set[str]:
    """Return the types of the numbers in a model's safetensors file; a damaged one is left to who reads it."""
    from safetensors import safe_open

    path = spec.folder / TABLE_FILE
    try:
        with safe_open(path, framework="numpy") as file:
            return {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    except Exception:  # safetensors' own error is no subclass of a narrower one
        return {"unknown"}


def load_static(name: str, spec: EncoderSpec, options: LoadOptions) -> LoadedModel:
    """Load a model that `runs` accepts."""
    tokenizer = fit(plain_tokenizer(spec.folder), spec, None, options.max_length)
    tokenizer.has_type_ids = False
    state: dict[str, Any] = read_tensors(spec.folder / TABLE_FILE)
    backend = StaticBackend(static_table(spec.folder, state), spec.modules[1:])
    return LoadedModel(name, replace(spec, max_length=tokenizer.max_length), tokenizer, backend)
