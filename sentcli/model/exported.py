"""Folders that `sentcli export` writes, and the facts in their ``export.json``.

This module imports neither torch nor transformers, because an exported encoder runs without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sentcli.errors import InputError
from sentcli.io.digests import known_digest
from sentcli.io.forms import read_json_form
from sentcli.io.weights import has_weights
from sentcli.model.identity import config_digest, model_digest, same_modules, weight_digests
from sentcli.model.runtime_check import Probes
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
    """The hash of weights and modules that `identity.model_digest` returns."""
    source_sha256: list[str]
    """The SHA-256 of each weight file that the export was made from; see `identity.weight_digests`."""
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
    source_config: str = ""
    """The `identity.config_digest` of the model that the export was made from; earlier versions did not keep it."""
    probes: Probes | None = None
    """Texts with the model's own vectors, for `runtime_check.check`; earlier versions did not keep them."""
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


def source_digests(spec: EncoderSpec) -> list[str]:
    """Return the `weight_digests` of an encoder, or those of the model that an exported encoder was made from."""
    export = _own_export(spec)
    return weight_digests(spec) if export is None else export.source_sha256


def source_config(spec: EncoderSpec) -> str:
    """Return the `config_digest` of an encoder, or that of the model that an exported encoder was made from."""
    export = _own_export(spec)
    own = config_digest(spec.config)
    return own if export is None else export.source_config or own


def _own_export(spec: EncoderSpec) -> Export | None:
    """Return the export in the folder of an encoder, unless it was made from other weights than those beside it."""
    export = read_export(spec.folder)
    if export is None or (has_weights(spec.folder) and model_digest(read_spec(spec.folder)) != export.model_digest):
        return None
    return export


def beside(spec: EncoderSpec, precision: str) -> Path | None:
    """Return the encoder's own folder if it holds an export of this encoder in this precision, else None.

    Raises:
        InputError: if the export was made from other weights than those in the folder.
    """
    export = read_export(spec.folder)
    if export is None or (precision not in ("auto", export.precision)):
        return None
    folder_spec = read_spec(spec.folder)
    if not same_modules(folder_spec.modules, spec.modules):
        return None  # the user chose another pooling or normalisation
    if has_weights(spec.folder) and model_digest(folder_spec) != export.model_digest:
        raise InputError(f"{spec.folder / ONNX} is an export of other weights than those beside it; export again")
    return spec.folder
