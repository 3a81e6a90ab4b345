"""From a model's name to a loaded model: which folder, which backend, which export."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import zoo
from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.io.cache import cache_folder, least_recently_used
from sentcli.io.weights import has_weights
from sentcli.machine import sums_saturate
from sentcli.model import exported
from sentcli.model.encoding import LoadedModel
from sentcli.model.options import LoadOptions, ModelOptions
from sentcli.model.spec import EncoderSpec, read_spec
from sentcli.model.tokenizing import fit, read_tokenizer

if TYPE_CHECKING:
    from sentcli.model.encoding import Backend

WRITTEN = ("bert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert")
"""Architectures whose graph is written in seconds: ``auto`` makes an export of these by itself."""

Notice = Callable[[str], None]


def read_model(name: str, options: ModelOptions) -> EncoderSpec:
    """Find a model's folder and read what it says, with the user's choices applied."""
    folder, entry = zoo.resolve(name)
    spec = read_spec(folder)
    if entry is not None and spec.assumed_pooling:
        spec = spec.with_pooling(entry.pooling).with_normalize(entry.normalize)
        spec = replace(spec, max_length=spec.max_length or entry.max_length)
    if entry is not None and entry.prompts and not spec.prompts:
        spec = replace(spec, prompts=dict(entry.prompts))
    if options.pooling is not None:
        spec = spec.with_pooling(options.pooling)
    return spec if options.normalize is None else spec.with_normalize(options.normalize)


def load(
    name: str,
    spec: EncoderSpec,
    options: LoadOptions,
    notice: Notice = lambda message: None,
    *,
    make_export: bool = True,
    untrained: bool = False,
) -> LoadedModel:
    """Load a model on the backend that was chosen, or on the fastest one that gives the same vectors.

    Args:
        name: that was given for the model.
        spec: of the model.
        options: backend, precision, device and maximum length.
        notice: called with what the user should know.
        make_export: whether ``auto`` makes an export in the cache where there is none.
        untrained: with torch, a folder without weights gives random ones instead of an error.
    """
    if options.backend in ("onnx", "openvino"):
        return _load_export(name, spec, options, notice)
    if options.backend == "auto":
        beside = exported.beside(spec, options.precision)
        only_exported = exported.read_export(spec.folder) is not None and not has_weights(spec.folder)
        required = only_exported or options.precision == "int8"
        runs_exports = options.on_cpu and importlib.util.find_spec("onnxruntime") is not None
        if required or (runs_exports and (beside is not None or _may_export(spec, options, make_export=make_export))):
            try:
                return _load_export(name, spec, options, notice)
            except (MissingExtraError, ExportError) as error:
                if required:
                    raise
                notice(f"running on torch: {error}")
    from sentcli.model import torch_backend

    return torch_backend.load(name, spec, options, notice, untrained=untrained)


def _may_export(spec: EncoderSpec, options: LoadOptions, *, make_export: bool) -> bool:
    """Tell whether ``auto`` takes an export of the cache: one that is there, or one that is quickly made."""
    if options.precision not in ("auto", "fp32") or not spec.includes_prompt or not has_weights(spec.folder):
        return False
    if (cached_place(spec, "fp32") / exported.EXPORT).exists():
        return True
    return make_export and has_tools() and spec.config.get("model_type") in WRITTEN


def _load_export(name: str, spec: EncoderSpec, options: LoadOptions, notice: Notice) -> LoadedModel:
    """Load the export of a model on onnxruntime or OpenVINO."""
    folder = _export_folder(name, spec, options, notice)
    export = exported.read_export(folder)
    assert export is not None
    exported.check_files(folder, export)
    device = options.device
    if device == "auto":
        device = "cpu" if options.on_cpu else "cuda"
    backend: Backend
    if options.backend == "openvino":
        from sentcli.model.openvino_backend import OpenVinoBackend

        backend = OpenVinoBackend(folder, export, device, precision=options.precision)
    else:
        from sentcli.model.onnx_backend import OnnxBackend

        backend = OnnxBackend(folder, export, device, allow_cpu_fallback=options.allow_cpu_fallback)
    if export.quantisation and not export.quantisation.get("reduce_range") and sums_saturate():
        notice(
            f"{folder} was quantised for a processor with VNNI, which this one lacks: its sums may overflow; "
            "export it again on this machine"
        )
    tokenizer = fit(read_tokenizer(folder), spec, export.pad_id, export.max_length, options.max_length)
    return LoadedModel(name, replace(spec, max_length=tokenizer.max_length), tokenizer, backend)


def _export_folder(name: str, spec: EncoderSpec, options: LoadOptions, notice: Notice) -> Path:
    """Return the export beside the model, else the one in the cache, which is made if it is not there yet."""
    runtime = "openvino" if options.backend == "openvino" and options.precision == "int8" else "onnx"
    beside = exported.beside(spec, options.precision)
    if beside is not None and (runtime == "onnx" or not has_weights(spec.folder)):
        return beside
    precision = "fp32" if options.precision in ("auto", "bf16") else options.precision
    if not has_weights(spec.folder):
        raise InputError(
            f"{spec.folder} holds an export in another precision, pooling or normalisation, and no weights to make one "
            "of; name the model that it was made of"
        )
    folder = cached_place(spec, precision, runtime)
    if not is_whole_export(folder):
        notice(f"exporting {name} in {precision} to {folder} (once)")
        make_export_in(name, spec, precision, folder, runtime)
    with suppress(OSError):  # used now: the cache drops what has not been used for long
        (folder / exported.EXPORT).touch()
    return folder


EXPORTS = "exports"
"""Of the cache."""
ABANDONED_SECONDS = 24 * 3600
"""After so long, what an export that was killed has left in the cache is deleted."""
CACHE_BYTES = 8 * 2**30
"""What the exports in the cache may take up together; the least recently used go first."""


class ExportError(SentcliError):
    """An export that was made in passing did not work out; torch still runs the model."""


def cached_place(spec: EncoderSpec, precision: str, runtime: str = "onnx") -> Path:
    """Return where the export of an encoder in a precision is, or would be, in the cache."""
    digests = f"{exported.model_digest(spec)} {exported.tokenizer_digest(spec.folder)}"
    digest = hashlib.sha256(f"{exported.FORMAT} mapped {precision} {runtime} {digests}".encode())
    if precision == "int8" and runtime == "onnx":
        digest.update(f"reduce_range {sums_saturate()}".encode())
    return cache_folder(EXPORTS) / digest.hexdigest()[:32]


def is_whole_export(folder: Path) -> bool:
    """Tell whether a folder of the cache holds an export that is in order."""
    try:
        export = exported.read_export(folder)
        if export is None:
            return False
        exported.check_files(folder, export)
    except InputError:
        return False
    return True


def make_export_in(name: str, spec: EncoderSpec, precision: str, folder: Path, runtime: str = "onnx") -> None:
    """Export a model to its folder of the cache; of several processes one does it and the others wait.

    Raises:
        MissingExtraError: without onnx and onnxscript.
        ExportError: if the export does not give the model's vectors, or the cache cannot be written.
    """
    _check_tools()
    from filelock import FileLock

    from sentcli.onnx_export.publish import export_model

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if is_whole_export(folder):  # another process was first
                return
            shutil.rmtree(folder, ignore_errors=True)  # damaged, or half deleted by someone
            export_model(_source(name, spec), folder, precision, weights=False, mapped=True, runtime=runtime)
            prune(folder)
    except (SentcliError, OSError) as error:
        if isinstance(error, (MissingExtraError, InputError)):
            raise
        raise ExportError(str(error)) from error


def add_beside(name: str, folder: Path) -> None:
    """Write the ONNX export of a saved model beside its weights if it has modules that sentence-transformers lacks.

    So the folder can be run without sentcli and the code of those modules.
    """
    spec = read_spec(folder)
    if spec.is_sentence_transformers or not spec.includes_prompt:
        return
    _check_tools()
    from sentcli.onnx_export.publish import add_export

    add_export(_source(name, spec), folder)


def has_tools() -> bool:
    """Tell whether what makes an export is installed."""
    return all(importlib.util.find_spec(library) is not None for library in ("onnx", "onnx_ir"))


def _check_tools() -> None:
    if not has_tools():
        raise MissingExtraError("onnx and onnxscript", "cpu", "making an ONNX export")


def _source(name: str, spec: EncoderSpec) -> LoadedModel:
    """Load the model that an export is made of."""
    from sentcli.model import torch_backend

    return torch_backend.load(name, spec, LoadOptions(backend="torch", precision="fp32", device="cpu"))


def prune(keep: Path) -> None:
    """Delete the least recently used exports of the cache while it is too large, never `keep`."""
    everything = [path for path in cache_folder(EXPORTS).iterdir() if path.is_dir()]
    for path in everything:
        if path.name.startswith(".") and time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
    folders = [path for path in everything if not path.name.startswith(".")]
    for path in least_recently_used(folders, keep, CACHE_BYTES, lambda folder: folder / exported.EXPORT):
        shutil.rmtree(path, ignore_errors=True)
