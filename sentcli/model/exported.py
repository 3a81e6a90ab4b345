"""Folders that `sentcli export` writes, and the facts in their ``export.json``.

This module imports neither torch nor transformers, because an exported encoder runs without them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sentcli.errors import InputError
from sentcli.io.digests import file_digest, known_digest
from sentcli.io.forms import read_json_form
from sentcli.io.weights import has_weights, weight_files
from sentcli.model.modules import ModuleSpec
from sentcli.model.spec import EncoderSpec
from sentcli.model.spec_files import read_spec

EXPORT, ONNX, OPENVINO = "export.json", "model.onnx", "openvino.xml"
FORMAT: Final = 1
"""The version of ``export.json`` and of the graphs. When it changes, the cache makes new exports."""


@dataclass(frozen=True)
class Export:
    """The content of ``export.json``."""

    precision: Annotated[str, Field(pattern="^(fp32|fp16|bf16|int8)$")]
    dimension: Annotated[int, Field(ge=1, lt=2**24)]
    pad_id: Annotated[int, Field(ge=0, lt=2**31)]
    model: str
    """The name of the model that was given to `sentcli export`."""
    model_digest: str
    """The hash of weights and modules that `model_digest` returns."""
    source_sha256: list[str]
    """The SHA-256 of each weight file that the export was made from; see `weight_digests`."""
    pooling: str
    normalize: bool
    max_length: Annotated[int, Field(ge=1, lt=2**31)]
    graph: str
    """``written`` from the weights, ``traced`` by torch's exporter, or ``traced and fused``."""
    sha256: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of each file that determines the vectors, by name."""
    quantisation: dict[str, Any] | None = None
    verification: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    canaries: dict[str, Any] | None = None
    """The `Canaries` of the export itself."""
    runtime: Annotated[str, Field(pattern="^(onnx|openvino)$")] = "onnx"
    """``onnx`` for a file that onnxruntime and OpenVINO read, or ``openvino`` for one that only OpenVINO reads."""
    format: Literal[1] = FORMAT


def read_export(folder: Path) -> Export | None:
    """Read the ``export.json`` of a folder, or return None if it has none.

    Raises:
        InputError: if the file is damaged or of a later version.
    """
    path = folder / EXPORT
    if not path.exists():
        return None
    return read_json_form(Export, path, missing=f"{path} is missing", remedy="export the model again")


def check_files(folder: Path, export: Export) -> None:
    """Compare the files of an exported folder with their checksums.

    Raises:
        InputError: if a file is missing or has changed.
    """
    for name, digest in export.sha256.items():
        path = folder / name
        if not path.exists():
            raise InputError(f"{path} is missing; export the model again")
        if known_digest(path) != digest:
            raise InputError(f"{path} is not the file that was exported (SHA-256 differs); export the model again")


def model_digest(spec: EncoderSpec) -> str:
    """Return a hash of what the graph computes: weights, configuration and modules, but not the tokenizer."""
    digest = hashlib.sha256("".join(weight_digests(spec)).encode())
    config = {key: value for key, value in spec.config.items() if key not in ("transformers_version", "dtype")}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for module in spec.modules:
        digest.update(module_identity(module).encode())
    return digest.hexdigest()


def source_digests(spec: EncoderSpec) -> list[str]:
    """Return the `weight_digests` of an encoder, or those of the model that an exported encoder was made from."""
    export = read_export(spec.folder)
    if export is None or (has_weights(spec.folder) and model_digest(read_spec(spec.folder)) != export.model_digest):
        return weight_digests(spec)
    return export.source_sha256


def weight_digests(spec: EncoderSpec) -> list[str]:
    """Return the SHA-256 of each weight file of an encoder: first the transformer's, then those of its modules."""
    folders = [spec.folder, *(getattr(module, "folder", None) for module in spec.modules)]
    return [known_digest(path) for folder in folders if folder and has_weights(folder) for path in weight_files(folder)]


def module_identity(module: ModuleSpec) -> str:
    """Return a module's name and settings as text, without its folder."""
    facts = {key: value for key, value in vars(module).items() if key != "folder"}
    return f"{type(module).__name__} {facts}"


def beside(spec: EncoderSpec, precision: str) -> Path | None:
    """Return the encoder's own folder if it holds an export of this encoder in this precision, else None.

    Raises:
        InputError: if the export was made from other weights than those in the folder.
    """
    export = read_export(spec.folder)
    if export is None or (precision not in ("auto", export.precision)):
        return None
    folder_spec = read_spec(spec.folder)
    if [module_identity(module) for module in folder_spec.modules] != [
        module_identity(module) for module in spec.modules
    ]:
        return None  # the user chose another pooling or normalisation
    if has_weights(spec.folder) and model_digest(folder_spec) != export.model_digest:
        raise InputError(f"{spec.folder / ONNX} is an export of other weights than those beside it; export again")
    return spec.folder


def tokenizer_digest(folder: Path) -> str:
    """Return the SHA-256 of the tokenizer files of a folder, separated by spaces."""
    names = (
        *("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json"),
        *("special_tokens_map.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model"),
    )
    return " ".join(file_digest(folder / name) for name in names if (folder / name).exists())
