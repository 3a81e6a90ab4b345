"""Exports that are made in passing, for `--backend onnx` and ``auto``, kept in the user's cache."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from sentcli.encoder.loading import ExportError, Wanted, load_torch
from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.model import exported

if TYPE_CHECKING:
    from sentcli.model.spec import EncoderSpec


def export_into_cache(spec: EncoderSpec, model: str, precision: str, folder: Path, runtime: str = "onnx") -> None:
    """Export an encoder to its folder of the cache; of several processes one does it and the others wait.

    Raises:
        MissingExtraError: without onnx and onnxscript.
        ExportError: if the export does not give the model's vectors, or the cache cannot be written.
    """
    from sentcli.encoder.sentence_encoder import SentenceEncoder

    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnx_ir")):
        raise MissingExtraError("onnx and onnxscript", "cpu", "making an ONNX export")
    from sentcli.onnx_export.publish import export_encoder

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if exported.is_whole(folder):  # another process was first
                return
            shutil.rmtree(folder, ignore_errors=True)  # damaged, or half deleted by someone
            loaded = load_torch(spec, Wanted(model, "torch", "fp32", "cpu"))
            full, tokenizer, runner, hf_tokenizer = loaded
            encoder = SentenceEncoder(full, tokenizer, runner, model=model, hf_tokenizer=hf_tokenizer)
            export_encoder(encoder, folder, precision, weights=False, runtime=runtime)
            exported.prune(folder)
    except (SentcliError, OSError) as error:
        if isinstance(error, (MissingExtraError, InputError)):
            raise
        raise ExportError(str(error)) from error
