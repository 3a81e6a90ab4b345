"""Run an exported encoder with OpenVINO, straight from its ONNX file, without importing torch or transformers."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import Float32Array, Int64Array
from sentcli.errors import InputError, SentcliError, one_line, required
from sentcli.machine import usable_cores
from sentcli.model.encoding import Backend, Batches
from sentcli.model.exported import SENTENCES, TOKEN_OUTPUTS, Export, check_files
from sentcli.model.onnx_backend import CPU_BATCH_TOKENS, PaddedBatch, graph_pooling, input_of
from sentcli.model.padding import try_padding
from sentcli.waiting import forked, refuse_lost

if TYPE_CHECKING:
    from sentcli.model.spec import EncoderSpec

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
BF16_BATCH_TOKENS = 1024
KNOWN_LENGTHS = (12, 7, 4, 3)
_OTHER_BACKENDS = ", or use --backend onnx or torch"
MOST_DRIFT = {"fp32": 1e-3, "bf16": 0.1, "int8": 0.1}
"""How far the vector of a known row may be from its first one, relative to its length."""


def _name_of(port: Any) -> str:
    """Return the name of an input or output, which may have several: the one that is looked for, if it has that."""
    names = port.get_names()
    for name in (*INPUTS, SENTENCES, *TOKEN_OUTPUTS):
        if name in names:
            return name
    return str(port.get_any_name())


class _OfThread(threading.local):
    """What a thread keeps for itself: no two ever use the same request."""

    request: Any = None
    batches = 0


def _known_rows(lengths: Int64Array, inputs: Sequence[str], pad_id: int) -> PaddedBatch:
    """Return a padded batch of texts of some lengths, which is computed again and again."""
    places = np.arange(lengths.max())
    mask = places < lengths[:, None]
    tokens = np.where(mask, 1 + (places + lengths[:, None]) % 16, pad_id)
    values = {"input_ids": tokens, "attention_mask": mask}
    rows = {}
    for name in inputs:
        rows[name] = values.get(name, np.zeros_like(tokens)).astype(np.int64)
    return rows


class OpenVinoBackend(Backend):
    """A `Backend` over an OpenVINO model that runs several batches at a time, each in one thread.

    A wrong vector was seen once, with requests that went from thread to thread, and its cause was not found
    (OpenVINO 2026.4). Therefore each thread has a request of its own, rows whose vectors are known are computed again
    and again, and ``auto`` does not choose this backend.
    """

    name = "openvino"
    batches: Batches = "padded"  # its int8 has fixed scales

    def __init__(
        self,
        folder: Path,
        export: Export,
        device: str = "cpu",
        *,
        precision: str = "auto",
        spec: EncoderSpec | None = None,
    ) -> None:
        """Compile the model.

        Args:
            folder: the exported folder.
            export: the facts of the export.
            device: ``cpu``; OpenVINO's other devices are not supported.
            precision: ``bf16`` computes an fp32 export in bfloat16, where the processor has instructions for it.
            spec: the description of the encoder, by which the output of a foreign graph is pooled.
        """
        refuse_lost("openvino", _OTHER_BACKENDS)
        openvino = required("openvino", "openvino", "openvino", "--backend openvino")
        self.folder = folder
        self.export = export
        self.spec = spec
        self.process = os.getpid()
        if device != "cpu":
            raise InputError(f"the openvino backend runs on cpu, not on {device!r}")
        core = openvino.Core()
        chosen = export.precision if precision == "auto" else precision
        capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if chosen not in HINTS or (chosen == "bf16" and "BF16" not in capabilities):
            raise InputError(f"openvino does not compute in {chosen} on this processor: use fp32 or int8")
        self.device = device
        self.precision = chosen
        self.dimension = export.dimension
        self.streams = usable_cores()
        self.default_batch_tokens = BF16_BATCH_TOKENS if chosen == "bf16" else CPU_BATCH_TOKENS
        settings = {
            "INFERENCE_PRECISION_HINT": HINTS[chosen],
            "NUM_STREAMS": self.streams,
            "INFERENCE_NUM_THREADS": self.streams,
        }
        path = folder / export.graph_file
        try:
            self.compiled = core.compile_model(core.read_model(path), "CPU", settings)
            self.inputs = [_name_of(port) for port in self.compiled.inputs]
            outputs = [_name_of(port) for port in self.compiled.outputs]
        except Exception as error:  # OpenVINO raises many kinds for a damaged file
            raise SentcliError(f"openvino cannot open {path}: {one_line(error)}") from error
        self.head = graph_pooling(export, spec, path, self.inputs, outputs)
        self.output: int | str = 0 if self.head is None else self.head.output
        self._own = _OfThread()
        # The first access to a tensor's data initialises something, and deadlocks if two threads do it (2026.4).
        np.asarray(openvino.Tensor(np.zeros((1, 1), np.int64)).data)
        lengths = np.minimum(KNOWN_LENGTHS, export.max_length)
        self._known = _known_rows(lengths, self.inputs, export.pad_id)
        request = self.compiled.create_infer_request()
        if self.head is not None and spec is not None:
            once = partial(self._infer, request)
            drift = "fp32" if chosen == "fp32" else "bf16"
            if try_padding(once, spec.config.get("model_type", ""), drift)[1] != "padded":
                raise InputError(f"{path} gives vectors that depend on the padding of their batch: use --backend onnx")
        expected = []
        for row, length in enumerate(lengths):
            alone = {name: ids[row : row + 1, :length] for name, ids in self._known.items()}
            expected.append(self._infer(request, alone))
        self._expected = np.concatenate(expected)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be copied or sent to another process as the name of a folder, which has to be there."""
        return _opened, (type(self), self.folder, self.export, self.device, self.precision, self.spec)

    def run(self, batch: PaddedBatch, prompt_length: int) -> Float32Array:
        """Return ``[B, dim]`` for a padded batch; may be called by several threads.

        Raises:
            SentcliError: if OpenVINO fails, belongs to the process that this one was forked from, or gives other
                vectors than at first for rows that are known.
        """
        if self.process != os.getpid():
            raise forked("openvino", _OTHER_BACKENDS)
        own = self._own
        if own.request is None:
            own.request = self.compiled.create_infer_request()
        vectors = self._infer(own.request, batch, prompt_length)
        # A thread computes known rows after its first batch, and then after so many batches each time
        if own.batches % 16 == 0:
            drift = np.linalg.norm(self._infer(own.request, self._known) - self._expected, axis=1)
            allowed = MOST_DRIFT[self.precision] * np.linalg.norm(self._expected, axis=1)
            if (drift > allowed).any():
                raise SentcliError(
                    "openvino gave another vector for the same tokens than at first, so that none can be trusted: use "
                    "--backend onnx or torch, and report it with 'sentcli doctor'"
                )
        own.batches += 1
        return vectors

    def _infer(self, request: Any, batch: PaddedBatch, prompt_length: int = 0) -> Float32Array:
        try:
            outputs = request.infer({name: input_of(batch, name) for name in self.inputs})
        except Exception as error:
            raise SentcliError(f"openvino failed: {one_line(error)}") from error
        # a copy: the request's memory is reused
        vectors: Float32Array = np.array(outputs[self.output], np.float32)
        if self.head is None:
            return vectors
        return self.head(vectors, batch["attention_mask"], batch["input_ids"], prompt_length)


def _opened(
    kind: type[OpenVinoBackend], folder: Path, export: Export, device: str, precision: str, spec: EncoderSpec | None
) -> OpenVinoBackend:
    """Open the same export again.

    Raises:
        InputError: if its files are gone, or others.
    """
    check_files(folder, export)
    return kind(folder, export, device, precision=precision, spec=spec)
