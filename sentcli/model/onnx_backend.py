"""Run an exported encoder with onnxruntime, without importing torch or transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.bounds import whole_number
from sentcli.errors import InputError, SentcliError, one_line, required
from sentcli.machine import usable_cores
from sentcli.model.encoding import Batches
from sentcli.model.exported import ONNX, Export, check_files
from sentcli.model.forking import forked

Batch = dict[str, npt.NDArray[np.int64]]
CPU_BATCH_TOKENS = 512
"""On two cores, which run two batches at a time, MiniLM ran a tenth faster with 512 tokens a batch than with 1,024."""
GPU_BATCH_TOKENS = 32768


class OnnxBackend:
    """A `Backend` over an onnxruntime session.

    On a CPU several batches run at a time, each in one thread, because a small batch divides badly among cores.
    """

    name = "onnx"

    def __init__(
        self,
        folder: Path,
        export: Export,
        device: str = "cpu",
        *,
        allow_cpu_fallback: bool = False,
        half_on_cpu: bool = False,
    ) -> None:
        """Open ``model.onnx``.

        Args:
            folder: the exported folder.
            export: the content of its ``export.json``.
            device: ``cpu``, ``cuda`` or ``cuda:1``.
            allow_cpu_fallback: take the CPU if onnxruntime does not run on the device.
            half_on_cpu: accept fp16 on a CPU, where it is slow, for the verification of an export.
        """
        self.folder, self.export, self.process = folder, export, os.getpid()
        provider, options = _provider(device)
        self.session = _session(folder / ONNX, provider, options)
        running = self.session.get_providers()[0]
        if running != provider:
            if not allow_cpu_fallback:
                raise InputError(
                    f"onnxruntime runs this model on {running}, not on {device}: "
                    "install sentcli[gpu] with its CUDA libraries, or accept it with --allow-cpu-fallback"
                )
            device = "cpu"
            self.session = _session(folder / ONNX, *_provider(device))
        if export.precision == "fp16" and device == "cpu" and not half_on_cpu:
            raise InputError(f"{folder} is in fp16, which a CPU computes many times slower than fp32; use a GPU")
        self.device, self.precision, self.dimension = device, export.precision, export.dimension
        # int8 has one scale for the activations of a batch; else the verification of an export tries padding
        self.batches: Batches = "one text" if export.precision == "int8" else "padded"
        self.streams = usable_cores() if device == "cpu" else 1
        self.default_batch_tokens = CPU_BATCH_TOKENS if device == "cpu" else GPU_BATCH_TOKENS
        self.inputs = [argument.name for argument in self.session.get_inputs()]
        outputs = self.session.get_outputs()
        unknown = {"input_ids", "attention_mask"} ^ {*self.inputs} - {"token_type_ids"}
        if unknown or [output.name for output in outputs] != ["sentence_embedding"]:
            inputs, names = ", ".join(self.inputs), ", ".join(output.name for output in outputs)
            raise InputError(f"{folder / ONNX} is not an export of sentcli: it makes {names} of {inputs}"[:300])
        *_, width = outputs[0].shape or [0]
        if isinstance(width, int) and width != self.dimension:
            raise InputError(f"{folder / ONNX} gives {width} dimensions, export.json says {self.dimension}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Be copied or sent to another process as the name of a folder, which has to be there."""
        return _opened, (type(self), self.folder, self.export, self.device)

    def run(self, batch: Batch, prompt_length: int) -> npt.NDArray[np.float32]:
        """Return ``[B, dim]`` for a padded batch.

        Raises:
            SentcliError: if onnxruntime fails, or runs on a GPU for the process that this one was forked from.
        """
        if self.device != "cpu" and self.process != os.getpid():
            raise forked(f"onnxruntime on {self.device}")
        try:
            vectors: npt.NDArray[np.float32] = self.session.run(None, {name: batch[name] for name in self.inputs})[0]
        except Exception as error:  # onnxruntime's exceptions have no common class
            raise SentcliError(f"onnxruntime failed: {one_line(error)}") from error
        return vectors


def _opened(kind: type[OnnxBackend], folder: Path, export: Export, device: str) -> OnnxBackend:
    """Open the same export again.

    Raises:
        InputError: if its files are gone, or others.
    """
    check_files(folder, export)
    return kind(folder, export, device, half_on_cpu=True)  # whoever made the first one has taken that


def _provider(device: str) -> tuple[str, dict[str, Any]]:
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return "CPUExecutionProvider", {}
    if kind == "cuda" and (not index or whole_number(index) is not None):
        return "CUDAExecutionProvider", {"device_id": index or "0"}
    raise InputError(f"the onnx backend runs on cpu and cuda, not on {device!r}")


def _session(path: Path, provider: str, provider_options: dict[str, Any]) -> Any:
    """Open a model on a provider if onnxruntime has it, else on the CPU."""
    onnxruntime = required("onnxruntime", "onnxruntime", "cpu", "--backend onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if provider not in onnxruntime.get_available_providers():
        provider, provider_options = "CPUExecutionProvider", {}
    if provider == "CPUExecutionProvider":
        options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[(provider, provider_options)])
    except Exception as error:
        raise SentcliError(f"onnxruntime cannot open {path}: {one_line(error)}") from error
