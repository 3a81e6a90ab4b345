"""From a model's name to a loaded encoder: which folder, which backend, which export."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import zoo
from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.io.weights import has_weights
from sentcli.machine import accelerator_in_sight, sums_saturate
from sentcli.model import exported
from sentcli.model.spec import EncoderSpec, PoolingSpec, read_spec
from sentcli.model.tokenizing import TextTokenizer, fit, read_tokenizer

if TYPE_CHECKING:
    from sentcli.model.encoding import Backend

BACKENDS = ("auto", "torch", "onnx", "openvino")
PRECISIONS = ("auto", "fp32", "fp16", "bf16", "int8")
WRITTEN = ("bert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert")
"""Architectures whose graph is written in seconds: ``auto`` makes an export of these by itself."""

Notice = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """How a model is to be loaded; see `SentenceEncoder.load`."""

    model: str
    backend: str = "auto"
    precision: str = "auto"
    device: str = "auto"
    max_length: int | None = None
    make_export: bool = True
    allow_cpu_fallback: bool = False
    notice: Notice = lambda message: None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"unknown backend {self.backend!r}; one of: {', '.join(BACKENDS)}")
        if self.precision not in PRECISIONS:
            raise InputError(f"unknown precision {self.precision!r}; one of: {', '.join(PRECISIONS)}")
        if self.precision == "int8" and self.backend == "torch":
            raise InputError("int8 runs on the onnx or openvino backend, not on torch")
        if self.precision == "bf16" and self.backend == "onnx":
            raise InputError("onnxruntime does not compute in bf16: use --backend openvino or torch")
        if self.precision == "fp16" and self.backend == "onnx" and self.on_cpu:
            raise InputError("a CPU computes fp16 with onnxruntime many times slower than fp32; use a GPU")

    @property
    def on_cpu(self) -> bool:
        """Whether it will run on a CPU, as far as can be told without importing torch."""
        falls_back = self.device == "auto" or self.allow_cpu_fallback
        return self.device == "cpu" or (falls_back and not accelerator_in_sight())


Loaded = tuple[EncoderSpec, TextTokenizer, "Backend", Any]
"""The spec with its maximum length, the tokenizer, what runs the model, and transformers' tokenizer or None."""


def describe(model: str, pooling: str | None, normalize: bool | None) -> EncoderSpec:
    """Find a model's folder and read what it says, with the user's choices applied.

    Raises:
        InputError: no such model, a broken folder, an option that does not fit.
    """
    folder, entry = zoo.resolve(model)
    spec = read_spec(folder)
    if entry is not None and spec.assumed_pooling:
        spec = spec.with_pooling(entry.pooling).with_normalize(entry.normalize)
        spec = replace(spec, max_length=spec.max_length or entry.max_length)
    if entry is not None and entry.prompts and not spec.prompts:
        spec = replace(spec, prompts=dict(entry.prompts))
    if pooling is not None:
        spec = spec.with_pooling(pooling)
    return spec if normalize is None else spec.with_normalize(normalize)


def load(spec: EncoderSpec, wanted: Wanted) -> Loaded:
    """Load an encoder on the backend that is wanted, or on the fastest one that gives the same vectors."""
    if wanted.backend == "torch":
        return load_torch(spec, wanted)
    if wanted.backend in ("onnx", "openvino"):
        return _load_exported(spec, wanted, wanted.backend)
    return _load_auto(spec, wanted)


def _load_auto(spec: EncoderSpec, wanted: Wanted) -> Loaded:
    ours = exported.beside(spec, wanted.precision)
    runs_exports = wanted.on_cpu and importlib.util.find_spec("onnxruntime") is not None
    only_exported = exported.read_export(spec.folder) is not None and not has_weights(spec.folder)
    if only_exported or (wanted.precision == "int8") or (runs_exports and _may_export(spec, wanted, ours)):
        try:
            return _load_exported(spec, wanted, "onnx")
        except (MissingExtraError, ExportError) as error:
            if only_exported or wanted.precision == "int8":
                raise
            wanted.notice(f"running on torch: {error}")
    return load_torch(spec, wanted)


class ExportError(SentcliError):
    """An export that was made in passing did not work out; torch still runs the model."""


def _may_export(spec: EncoderSpec, wanted: Wanted, ours: Path | None) -> bool:
    """Tell whether ``auto`` takes an export: one that is there, or one that is quickly made."""
    if ours is not None:
        return True
    prompts_count = all(part.include_prompt for part in spec.modules if isinstance(part, PoolingSpec))
    if wanted.precision not in ("auto", "fp32") or not prompts_count or not has_weights(spec.folder):
        return False
    if (exported.cached(spec, "fp32") / exported.EXPORT).exists():
        return True
    tools = all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnx_ir"))
    return wanted.make_export and tools and spec.config.get("model_type") in WRITTEN


def _load_exported(spec: EncoderSpec, wanted: Wanted, backend: str) -> Loaded:
    folder = _export_folder(spec, wanted, backend)
    export = exported.read_export(folder)
    assert export is not None
    exported.check_files(folder, export)
    device = "cuda" if wanted.device == "auto" and not wanted.on_cpu else wanted.device
    device = "cpu" if device == "auto" else device
    runner: Backend
    if backend == "openvino":
        from sentcli.model.openvino_backend import OpenVinoBackend

        runner = OpenVinoBackend(folder, export, device, precision=wanted.precision)
    else:
        from sentcli.model.onnx_backend import OnnxBackend

        runner = OnnxBackend(folder, export, device, allow_cpu_fallback=wanted.allow_cpu_fallback)
    if export.quantisation and not export.quantisation.get("reduce_range") and sums_saturate():
        wanted.notice(
            f"{folder} was quantised for a processor with VNNI, which this one lacks: its sums may overflow; "
            "export it again on this machine"
        )
    tokenizer = fit(read_tokenizer(folder), spec, export.pad_id, export.max_length, wanted.max_length)
    return replace(spec, max_length=tokenizer.max_length), tokenizer, runner, None


def _export_folder(spec: EncoderSpec, wanted: Wanted, backend: str) -> Path:
    """Return the export beside the model, else the one in the cache, which is made if it is not there yet."""
    runtime = "openvino" if backend == "openvino" and wanted.precision == "int8" else "onnx"
    ours = exported.beside(spec, wanted.precision)
    if ours is not None and (runtime == "onnx" or not has_weights(spec.folder)):
        return ours
    precision = {"auto": "fp32", "bf16": "fp32"}.get(wanted.precision, wanted.precision)
    if not has_weights(spec.folder):
        raise InputError(
            f"{spec.folder} holds an export in another precision, pooling or normalisation, and no weights to make one "
            "of; name the model that it was made of"
        )
    folder = exported.cached(spec, precision, runtime)
    if not exported.is_whole(folder):
        from sentcli.encoder.export_cache import export_into_cache

        wanted.notice(f"exporting {wanted.model} in {precision} to {folder} (once)")
        export_into_cache(spec, wanted.model, precision, folder, runtime)
    with suppress(OSError):  # used now: the cache drops what has not been used for long
        (folder / exported.EXPORT).touch()
    return folder


def load_torch(spec: EncoderSpec, wanted: Wanted, *, untrained: bool = False) -> Loaded:
    """Load an encoder with torch and transformers."""
    from sentcli.model import torch_backend, torch_model

    torch_backend.quiet_transformers()
    runner = torch_backend.TorchBackend.choose(
        wanted.device, wanted.precision, allow_cpu_fallback=wanted.allow_cpu_fallback, notice=wanted.notice
    )
    hf_tokenizer = torch_backend.load_tokenizer(spec.folder)
    tokenizer = torch_backend.text_tokenizer(hf_tokenizer, spec, wanted.max_length)
    runner.attach(torch_model.build(spec, untrained=untrained))
    return replace(spec, max_length=tokenizer.max_length), tokenizer, runner, hf_tokenizer
