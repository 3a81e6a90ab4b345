"""Folders that `sentcli export` writes, and what they say about themselves.

No torch and no transformers here: an exported encoder runs without both.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sentcli.errors import InputError
from sentcli.io.digests import file_digest, known_digest
from sentcli.io.forms import read_json_form
from sentcli.io.weights import has_weights, weight_files
from sentcli.model.modules import ModuleSpec
from sentcli.model.spec import EncoderSpec, read_spec

EXPORT, ONNX, OPENVINO = "export.json", "model.onnx", "openvino.xml"
FORMAT: Final = 1
"""Of `export.json`, and of the graphs that are written: another number makes new exports in the cache."""


@dataclass(frozen=True)
class Export:
    """What ``export.json`` says."""

    precision: str
    dimension: int
    pad_id: int
    model: str
    """The name that was given to `sentcli export`."""
    model_digest: str
    """Of weights and modules, see `model_digest`."""
    source_sha256: list[str]
    """Of the weight files that it was made of, see `weight_digests`."""
    pooling: str
    normalize: bool
    max_length: int
    graph: str
    """``written`` from the weights, ``traced`` by torch's exporter, or ``traced and fused``."""
    sha256: dict[str, str] = field(default_factory=dict)
    """Of each file that makes the vectors."""
    quantisation: dict[str, Any] | None = None
    verification: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    runtime: str = "onnx"
    """What it is for: ``onnx`` for onnxruntime, whose file OpenVINO reads too, or ``openvino`` for OpenVINO alone."""
    format: Literal[1] = FORMAT

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def read_export(folder: Path) -> Export | None:
    """Read what an exported folder says about itself; None if it is none.

    Raises:
        InputError: if it is damaged, of a later version, or a file in it is not the one that was exported.
    """
    path = folder / EXPORT
    if not path.exists():
        return None
    return read_json_form(Export, path, missing=f"{path} is missing", remedy="export the model again")


def check_files(folder: Path, export: Export) -> None:
    """Compare the files of an exported folder with their checksums.

    Raises:
        InputError: if one is missing or another one.
    """
    for name, digest in export.sha256.items():
        path = folder / name
        if not path.exists():
            raise InputError(f"{path} is missing; export the model again")
        if known_digest(path) != digest:
            raise InputError(f"{path} is not the file that was exported (SHA-256 differs); export the model again")


def model_digest(spec: EncoderSpec) -> str:
    """Return a hash of what the graph computes: weights, configuration, modules. The tokenizer is apart."""
    digest = hashlib.sha256("".join(weight_digests(spec)).encode())
    config = {key: value for key, value in spec.config.items() if key not in ("transformers_version", "dtype")}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for module in spec.modules:
        digest.update(described(module).encode())
    return digest.hexdigest()


def source_digests(spec: EncoderSpec) -> list[str]:
    """Return the `weight_digests` of an encoder; of an exported one, those of the model that it was made of."""
    export = read_export(spec.folder)
    if export is None or (has_weights(spec.folder) and model_digest(read_spec(spec.folder)) != export.model_digest):
        return weight_digests(spec)
    return export.source_sha256


def weight_digests(spec: EncoderSpec) -> list[str]:
    """Return the SHA-256 of each weight file of an encoder, those of the modules after the transformer's."""
    folders = [spec.folder, *(getattr(module, "folder", None) for module in spec.modules)]
    return [known_digest(path) for folder in folders if folder and has_weights(folder) for path in weight_files(folder)]


def described(module: ModuleSpec) -> str:
    """Return a module as text, without the place where it is kept."""
    facts = {key: value for key, value in vars(module).items() if key != "folder"}
    return f"{type(module).__name__} {facts}"


def beside(spec: EncoderSpec, precision: str) -> Path | None:
    """Return the folder itself if it is an export of this encoder in this precision."""
    export = read_export(spec.folder)
    if export is None or (precision not in ("auto", export.precision)):
        return None
    own = read_spec(spec.folder)
    if [described(module) for module in own.modules] != [described(module) for module in spec.modules]:
        return None  # another pooling is wanted
    if has_weights(spec.folder) and model_digest(own) != export.model_digest:
        raise InputError(f"{spec.folder / ONNX} is an export of other weights than those beside it; export again")
    return spec.folder


def tokenizer_digest(folder: Path) -> str:
    """Return the hashes of the files that make a folder's tokenizer."""
    names = (
        *("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json"),
        *("special_tokens_map.json", "sentencepiece.bpe.model", "spiece.model"),
    )
    return " ".join(file_digest(folder / name) for name in names if (folder / name).exists())
