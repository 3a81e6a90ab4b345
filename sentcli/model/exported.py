"""Folders that hold exports of `sentcli export`, and the facts of each.

There are two layouts. The own one has one graph, ``model.onnx`` or ``openvino.xml``, and its facts in ``export.json``.
That of the hub has a graph for each precision in ``onnx/`` and one in ``openvino/``, under the names by which other
programs look for them, and the facts of each beside it: those of ``onnx/model.onnx`` in ``onnx/model.export.json``.

This module imports neither torch nor transformers, because an exported encoder runs without them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sentcli.errors import InputError
from sentcli.io.digests import known_digest
from sentcli.io.forms import read_json_form, write_json
from sentcli.io.graph_files import HUB_GRAPHS, ONNX, OPENVINO, NamedGraph, data_files, named_graphs, rank
from sentcli.io.weights import has_weights
from sentcli.model.runtime_check import Probes

EXPORT = "export.json"
SENTENCES, TOKENS = "sentence_embedding", "last_hidden_state"
"""The outputs of a graph: vectors of texts, and the last layer's vectors of tokens before the pooling."""
TOKEN_OUTPUTS = (TOKENS, "token_embeddings")
"""The names of token vectors in graphs of any program, in the order in which they are looked for."""
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
    """The SHA-256 of each weight file that the export was made from; see `identity.ModelSource`."""
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
    """The `ProbeVectors` of the export itself."""
    source_config: str = ""
    """The `identity.config_digest` of the model that the export was made from; earlier versions did not keep it."""
    revision: str | None = None
    """The commit of the model that it was made from, if that is of the hub."""
    probes: Probes | None = None
    """Texts with the model's own vectors, for `runtime_check.check`; earlier versions did not keep them."""
    runtime: Annotated[str, Field(pattern="^(onnx|openvino)$")] = "onnx"
    """``onnx`` for a file that onnxruntime and OpenVINO read, or ``openvino`` for one that only OpenVINO reads."""
    file: str = ""
    """The file of the graph inside the folder; empty for that of the own layout."""
    format: Literal[1] = FORMAT

    @property
    def graph_file(self) -> str:
        """The file of the graph inside the folder."""
        if self.file:
            return self.file
        return OPENVINO if self.runtime == "openvino" else ONNX

    @property
    def facts_file(self) -> str:
        """The file of these facts inside the folder."""
        return facts_file(self.file)

    @property
    def title(self) -> str:
        """The kind of graph, as people write it."""
        return "OpenVINO" if self.runtime == "openvino" else "ONNX"

    @property
    def is_foreign(self) -> bool:
        """Whether another program wrote the graph, so that only its files say what it computes."""
        return self.graph == FOREIGN


FOREIGN: Final = "foreign"
"""Stands for the way in which a graph was made, if another program made it."""


def graph_files(folder: Path, graph: str) -> list[Path]:
    """Return the files of a graph and of its weights that a folder has."""
    path = folder / graph
    if not path.exists():
        return []
    return [path, *data_files(path)]


def facts_file(graph: str) -> str:
    """Return the name of the file that has the facts of a graph; the own layout's has no name."""
    if not graph:
        return EXPORT
    return str(PurePosixPath(graph).with_suffix(f".{EXPORT}"))


def read_export(folder: Path) -> Export | None:
    """Read the ``export.json`` of a folder, or return None if it has none.

    Raises:
        InputError: if the file is damaged or of a later version.
    """
    return _read(folder, "")


def _read(folder: Path, graph: str) -> Export | None:
    path = folder / facts_file(graph)
    if not path.exists():
        return None
    export = read_json_form(Export, path, missing=f"{path} is missing", remedy="export the model again")
    return replace(export, file=graph)


def exports_in(folder: Path) -> list[Export]:
    """Return the exports that a folder holds, of both layouts: fp32 first, for onnxruntime first.

    Raises:
        InputError: if the facts of one are damaged or of a later version.
    """
    exports = []
    for graph in dict.fromkeys(("", *HUB_GRAPHS.values())):
        export = _read(folder, graph)
        if export is not None:
            exports.append(export)
    return sorted(exports, key=lambda export: rank(export.precision, export.runtime))


def foreign_graphs(folder: Path) -> list[NamedGraph]:
    """Return the graphs of a folder that holds neither weights nor exports of sentcli; see `named_graphs`."""
    if has_weights(folder) or exports_in(folder):
        return []
    return named_graphs(folder)


def write_facts(folder: Path, export: Export) -> None:
    """Write the facts of an export; readers take a graph only with them."""
    facts = asdict(export)
    del facts["file"]  # the place of the facts says it
    write_json(folder / export.facts_file, facts)


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
