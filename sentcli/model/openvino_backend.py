"""Run an exported encoder with OpenVINO, straight from its ONNX file, without importing torch or transformers."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, MissingExtraError, SentcliError, one_line
from sentcli.machine import usable_cores
from sentcli.model.exported import ONNX, OPENVINO, Export
from sentcli.model.onnx_backend import CPU_BATCH_TOKENS, Batch

HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
BF16_BATCH_TOKENS = 1024


class OpenVinoBackend:
    """A `Backend` over an OpenVINO model that runs several batches at a time, each in one thread."""

    name = "openvino"

    def __init__(self, folder: Path, export: Export, device: str = "cpu", *, precision: str = "auto") -> None:
        """Compile the model.

        Args:
            folder: the exported folder.
            export: the content of its ``export.json``.
            device: ``cpu``; OpenVINO's other devices are not supported.
            precision: ``bf16`` computes an fp32 export in bfloat16, where the processor has instructions for it.
        """
        try:
            import openvino
        except ImportError as error:
            raise MissingExtraError("openvino", "openvino", "--backend openvino") from error
        if device != "cpu":
            raise InputError(f"the openvino backend runs on cpu, not on {device!r}")
        core = openvino.Core()
        chosen = export.precision if precision == "auto" else precision
        capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if chosen not in HINTS or (chosen == "bf16" and "BF16" not in capabilities):
            raise InputError(f"openvino does not compute in {chosen} on this processor: use fp32 or int8")
        self.device, self.precision, self.dimension = device, chosen, export.dimension
        self.streams = usable_cores()
        self.default_batch_tokens = BF16_BATCH_TOKENS if chosen == "bf16" else CPU_BATCH_TOKENS
        settings = {
            "INFERENCE_PRECISION_HINT": HINTS[chosen],
            "NUM_STREAMS": self.streams,
            "INFERENCE_NUM_THREADS": self.streams,
        }
        path = folder / (OPENVINO if export.runtime == "openvino" else ONNX)
        try:
            self.compiled = core.compile_model(core.read_model(path), "CPU", settings)
            self.inputs = [port.get_any_name() for port in self.compiled.inputs]
            if {"input_ids", "attention_mask"} ^ {*self.inputs} - {"token_type_ids"} or len(self.compiled.outputs) != 1:
                raise ValueError(f"it is not an export of sentcli: its inputs are {', '.join(self.inputs)}")
        except Exception as error:  # OpenVINO raises many kinds for a damaged or foreign file
            raise SentcliError(f"openvino cannot open {path}: {one_line(error)}") from error
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # The first access to a tensor's data initialises something, and deadlocks if two threads do it (2026.4).
        np.asarray(openvino.Tensor(np.zeros((1, 1), np.int64)).data)

    def run(self, batch: Batch, prompt_length: int) -> npt.NDArray[np.float32]:
        """Return ``[B, dim]`` for a padded batch; may be called by several threads."""
        try:
            request = self._free.get_nowait()
        except queue.Empty:
            request = self.compiled.create_infer_request()
        try:
            outputs = request.infer({name: batch[name] for name in self.inputs})
        except Exception as error:
            raise SentcliError(f"openvino failed: {one_line(error)}") from error
        vectors: npt.NDArray[np.float32] = np.array(outputs[0], np.float32)  # a copy: the request's memory is reused
        self._free.put(request)
        return vectors
