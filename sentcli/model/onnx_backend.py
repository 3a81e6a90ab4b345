"""Run an exported encoder with onnxruntime, without importing torch or transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.bounds import whole_number
from sentcli.errors import DeviceMemoryError, InputError, SentcliError, lacks_memory, one_line, required
from sentcli.machine import VISIBLE, hides_gpus, usable_cores
from sentcli.model.encoding import Backend, Batches
from sentcli.model.exported import SENTENCES, TOKENS, Export, check_files
from sentcli.waiting import forked

if TYPE_CHECKING:
    from sentcli.arrays import Float32Array, Int64Array
    from sentcli.model.spec import EncoderSpec
    from sentcli.model.token_head import TokenHead

PaddedBatch = dict[str, "Int64Array"]
CPU_BATCH_TOKENS = 512
"""On two cores, which run two batches at a time, MiniLM ran a tenth faster with 512 tokens a batch than with 1,024."""
_GPU_BATCH_TOKENS = 32768
GPU_STREAMS = 2
"""On a GPU one batch is copied there while another one is computed."""


class OnnxBackend(Backend):
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
        spec: EncoderSpec | None = None,
    ) -> None:
        """Open the graph of an export.

        Args:
            folder: the exported folder.
            export: the facts of the export.
            device: ``cpu``, ``cuda`` or ``cuda:1``.
            allow_cpu_fallback: take the CPU if onnxruntime does not run on the device.
            half_on_cpu: accept fp16 on a CPU, where it is slow, for the verification of an export.
            spec: the description of the encoder, by which the output of a foreign graph is pooled.
        """
        self.folder = folder
        self.export = export
        self.spec = spec
        self.process = os.getpid()
        path = folder / export.graph_file
        provider, options = _provider(device)
        self.session = _session(path, provider, options)
        running = self.session.get_providers()[0]
        if running != provider:
            if not allow_cpu_fallback:
                remedy = "install sentcli[gpu] with its CUDA libraries"
                if hides_gpus():
                    remedy = f"{VISIBLE} hides every GPU"
                raise InputError(
                    f"onnxruntime runs this model on {running}, not on {device}: {remedy}, "
                    "or accept it with --allow-cpu-fallback"
                )
            device = "cpu"
            self.session = _session(path, *_provider(device))
        if export.precision == "fp16" and device == "cpu" and not half_on_cpu:
            raise InputError(f"{folder} is in fp16, which a CPU computes many times slower than fp32; use a GPU")
        self.device = device
        self.precision = export.precision
        self.dimension = export.dimension
        # int8 has one scale for the activations of a batch; else the verification of an export tries padding
        self.batches: Batches = "one text" if export.precision == "int8" else "padded"
        if device == "cpu":
            self.streams = usable_cores()
            self.default_batch_tokens = CPU_BATCH_TOKENS
        else:
            self.streams = GPU_STREAMS
            self.default_batch_tokens = _GPU_BATCH_TOKENS
        self.inputs = {argument.name: argument.type for argument in self.session.get_inputs()}
        outputs = {output.name: output.shape for output in self.session.get_outputs()}
        self.head = graph_pooling(export, spec, path, list(self.inputs), list(outputs))
        _refuse_fixed_sizes(path, self.session)
        self.output = SENTENCES if self.head is None else self.head.output
        *_, width = outputs[self.output] or [0]
        if self.head is not None and spec is not None and self.batches == "padded":
            from sentcli.model.padding import try_padding

            # of a graph that another program wrote, no verification has tried it
            _, self.batches = try_padding(self.run, spec.config.get("model_type", ""), self.precision)
        if self.head is None and isinstance(width, int) and width != self.dimension:
            raise InputError(f"{path} gives {width} dimensions, {export.facts_file} says {self.dimension}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Be copied or sent to another process as the name of a folder, which has to be there."""
        return _opened, (type(self), self.folder, self.export, self.device, self.spec)

    def run(self, batch: PaddedBatch, prompt_length: int) -> Float32Array:
        """Return ``[B, dim]`` for a padded batch.

        Raises:
            SentcliError: if onnxruntime fails, or runs on a GPU for the process that this one was forked from.
        """
        if self.device != "cpu" and self.process != os.getpid():
            raise forked(f"onnxruntime on {self.device}")
        inputs = {name: _as_typed(input_of(batch, name), kind) for name, kind in self.inputs.items()}
        try:
            vectors = self._outputs(inputs)
        except Exception as error:  # onnxruntime's exceptions have no common class
            texts, tokens = batch["input_ids"].shape
            if self.device != "cpu" and lacks_memory(error):
                what = f"a batch of {texts:,} texts with {texts * tokens:,} tokens"
                raise DeviceMemoryError(f"{self.device} has too little memory for {what}, says onnxruntime") from error
            raise SentcliError(f"onnxruntime failed on {self.device}: {one_line(error)}") from error
        if self.head is None:
            return vectors
        return self.head(vectors, batch["attention_mask"], batch["input_ids"], prompt_length)

    def _outputs(self, inputs: dict[str, npt.NDArray[np.integer]]) -> Float32Array:
        """Return what the graph makes of its inputs, which are bound to the device where that is a GPU."""
        vectors: Float32Array
        if self.device == "cpu":
            vectors = self.session.run([self.output], inputs)[0]
            return vectors
        onnxruntime = required("onnxruntime", "onnxruntime", "gpu", "--backend onnx")
        kind, _, index = self.device.partition(":")
        number = int(index or 0)
        binding = self.session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, kind, number))
        binding.bind_output(self.output, kind, number)
        self.session.run_with_iobinding(binding)
        vectors = binding.copy_outputs_to_cpu()[0]
        return vectors


def input_of(batch: PaddedBatch, name: str) -> Int64Array:
    """Return an input of a batch; a single text is of type 0 throughout, which a tokenizer need not say."""
    if name in batch:
        return batch[name]
    return np.zeros_like(batch["input_ids"])


def _as_typed(ids: Int64Array, kind: str) -> npt.NDArray[np.integer]:
    """Return token ids in the type that a graph takes them in; those of some programs take 32 bits."""
    if kind == "tensor(int32)":
        return ids.astype(np.int32)
    return ids


def _refuse_fixed_sizes(path: Path, session: Any) -> None:
    """Refuse a graph that takes batches of one shape alone, as some devices need it.

    Raises:
        InputError: which says the shape.
    """
    for argument in session.get_inputs():
        if any(isinstance(size, int) for size in argument.shape):
            raise InputError(f"{path} takes batches of the shape {argument.shape} alone: export it with dynamic axes")


def graph_pooling(
    export: Export, spec: EncoderSpec | None, path: Path, inputs: list[str], outputs: list[str]
) -> TokenHead | None:
    """Return what pools the output of a graph that another program wrote; None for an export of sentcli, which does it.

    Args:
        export: the facts of the export.
        spec: the description of the encoder.
        path: the file of the graph, for messages.
        inputs: the names of its inputs.
        outputs: the names of its outputs.

    Raises:
        InputError: if the graph takes or gives something else.
    """
    missing = sorted({"input_ids", "attention_mask"}.difference(inputs))
    unknown = [name for name in inputs if name not in ("input_ids", "attention_mask", "token_type_ids")]
    if not export.is_foreign:
        is_own = outputs in ([SENTENCES], [SENTENCES, TOKENS])
        if missing or unknown or not is_own:
            problem = f"it makes {', '.join(outputs)} of {', '.join(inputs)}"
            raise InputError(f"{path} is not an export of sentcli: {problem}"[:300])
        return None
    if unknown:
        raise InputError(f"{path} asks for {', '.join(unknown)}, which an encoder of texts does not have"[:300])
    if missing:
        raise InputError(f"{path} takes {', '.join(inputs)}, and not {', '.join(missing)}"[:300])
    from sentcli.model.token_head import TokenHead

    assert spec is not None
    return TokenHead(spec, outputs, path)


def _opened(
    kind: type[OnnxBackend], folder: Path, export: Export, device: str, spec: EncoderSpec | None
) -> OnnxBackend:
    """Open the same export again.

    Raises:
        InputError: if its files are gone, or others.
    """
    check_files(folder, export)
    return kind(folder, export, device, half_on_cpu=True, spec=spec)  # whoever made the first one has taken that


def _provider(device: str) -> tuple[str, dict[str, Any]]:
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return "CPUExecutionProvider", {}
    number = whole_number(index or "0")
    if kind == "cuda" and number is not None:
        # onnxruntime from 1.26 on writes a line about plugins wherever a number is given
        options = {"device_id": index} if number else {}
        return "CUDAExecutionProvider", options
    raise InputError(f"the onnx backend runs on cpu and cuda, not on {device!r}")


def _session(path: Path, provider: str, provider_options: dict[str, Any]) -> Any:
    """Open a model on a provider if onnxruntime has it, else on the CPU."""
    onnxruntime = required("onnxruntime", "onnxruntime", "cpu", "--backend onnx")
    if provider != "CPUExecutionProvider":
        onnxruntime.set_default_logger_severity(3)  # what it notes about plugins is nothing that a user can change
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if provider not in onnxruntime.get_available_providers():
        provider = "CPUExecutionProvider"
        provider_options = {}
    if provider == "CPUExecutionProvider":
        options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[(provider, provider_options)])
    except Exception as error:
        raise SentcliError(f"onnxruntime cannot open {path}: {one_line(error)}") from error
