"""Exports that are made in passing: in the user's cache for `--backend onnx` and ``auto``, and beside saved models."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from pathlib import Path

from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.io.cache import cache_folder, least_recently_used
from sentcli.machine import sums_saturate
from sentcli.model import exported
from sentcli.model.encoding import LoadedModel
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec, read_spec

EXPORTS = "exports"
"""Of the cache."""
ABANDONED_SECONDS = 24 * 3600
"""After so long, what an export that was killed has left in the cache is deleted."""
CACHE_BYTES = 8 * 2**30
"""What the exports in the cache may take up together; the least recently used go first."""


class ExportError(SentcliError):
    """An export that was made in passing did not work out; torch still runs the model."""


def place(spec: EncoderSpec, precision: str, runtime: str = "onnx") -> Path:
    """Return where the export of an encoder in a precision is, or would be, in the cache."""
    digests = f"{exported.model_digest(spec)} {exported.tokenizer_digest(spec.folder)}"
    digest = hashlib.sha256(f"{exported.FORMAT} {precision} {runtime} {digests}".encode())
    if precision == "int8" and runtime == "onnx":
        digest.update(f"reduce_range {sums_saturate()}".encode())
    return cache_folder(EXPORTS) / digest.hexdigest()[:32]


def is_whole(folder: Path) -> bool:
    """Tell whether a folder of the cache holds an export that is in order."""
    try:
        export = exported.read_export(folder)
        if export is None:
            return False
        exported.check_files(folder, export)
    except InputError:
        return False
    return True


def make(name: str, spec: EncoderSpec, precision: str, folder: Path, runtime: str = "onnx") -> None:
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
            if is_whole(folder):  # another process was first
                return
            shutil.rmtree(folder, ignore_errors=True)  # damaged, or half deleted by someone
            export_model(_source(name, spec), folder, precision, weights=False, runtime=runtime)
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
