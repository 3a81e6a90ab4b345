"""Folders that hold exports of `sentcli export`, and the facts of each.

There are two layouts. The own one has one graph, ``model.onnx`` or ``openvino.xml``, and its facts in ``export.json``.
That of the hub has a graph for each precision in ``onnx/`` and one in ``openvino/``, under the names by which other
programs look for them, and the facts of each beside it: those of ``onnx/model.onnx`` in ``onnx/model.export.json``.

An export was verified where it was made. Another version of onnxruntime or OpenVINO may compute otherwise: onnxruntime
1.20 gives wrong vectors for the shorter texts of a padded batch that pools [CLS]. So an export holds the token ids of a
few texts of different lengths with the model's own vectors, and whoever opens it compares them once, before a version
of a runtime is believed.

This module imports neither torch nor transformers, because an exported encoder runs without them.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from annotated_types import Ge, Le, Lt, MaxLen, MinLen

from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import replacing
from sentcli.io.digests import cache_folder, json_digest, known_digest
from sentcli.io.forms import read_json_form, write_json
from sentcli.io.graph_files import (
    GRAPH_PRECISIONS,
    HUB_GRAPHS,
    ONNX,
    OPENVINO,
    RUNTIMES,
    NamedGraph,
    data_files,
    graph_rank,
    named_graphs,
)
from sentcli.io.typed import among
from sentcli.io.weights import has_weights
from sentcli.machine import processor
from sentcli.model.tokenizing import Tokens, pad, pair_text

if TYPE_CHECKING:
    from sentcli.arrays import Float32Array, Vectors
    from sentcli.model.encoding import Backend, LoadedModel

EXPORT = "export.json"
SENTENCES, TOKENS = "sentence_embedding", "last_hidden_state"
"""The outputs of a graph: vectors of texts, and the last layer's vectors of tokens before the pooling."""
TOKEN_OUTPUTS = (TOKENS, "token_embeddings")
"""The names of token vectors in graphs of any program, in the order in which they are looked for."""
EXPORT_FORMAT: Final = 1
"""The version of ``export.json`` and of the graphs. When it changes, the cache makes new exports."""
PROBE_LENGTHS = (3, 8, 24, 96)
"""The lengths of the texts in tokens, at most those of the model."""
PROBE_WORDS = (
    "The committee that was asked to look into the matter met again in March , and found that most of what had been "
    "said about the old bridge was true : it had been closed for repairs since the winter before last , when water "
    "froze in its joints , and nobody could say what it would cost to open it to heavy traffic again , because the "
    "drawings of 1931 were lost and the stones at the foot of the second pillar had never been measured by anybody "
    "who was still alive , so that the only thing to do was to send divers down and wait for their report ."
)
"""The text whose beginnings are run."""
RUNTIME_TOLERANCES = {"fp32": 1e-3, "fp16": 0.02, "bf16": 0.1, "int8": 0.45}
"""How far a vector may be from the model's own, relative to the longest of these, by the precision that computes it.
In int8 it is what the verification of an export lets pass."""
GPU_TOLERANCE = 0.02
"""The least tolerance on a GPU, which may round the factors of fp32 to ten bits."""
MODULE_OF_BACKEND = {"onnx": "onnxruntime", "openvino": "openvino"}
"""The module that each backend runs."""
Ids = Annotated[tuple[Annotated[int, Ge(0), Le(2**31)], ...], MinLen(1), MaxLen(1024)]


class WrongRuntimeError(SentcliError):
    """An installed runtime does not give the vectors of a model; torch does."""


@dataclass(frozen=True)
class Probes:
    """Texts as token ids, and the vectors that their model gives each of them alone."""

    ids: Annotated[tuple[Ids, ...], MinLen(1), MaxLen(16)]
    vectors: str
    """float32, little endian, ``[texts, dim]`` in base64."""

    def __post_init__(self) -> None:
        """Refuse vectors that are none, or not those of the texts."""
        try:
            size = len(base64.b64decode(self.vectors, validate=True))
        except binascii.Error as error:
            raise ValueError("vectors are no base64") from error
        if not size or size % (4 * len(self.ids)) or not np.isfinite(self.expected).all():
            raise ValueError("vectors are not those of the texts")

    @classmethod
    def of(cls, model: LoadedModel) -> Probes:
        """Run the texts, each alone, through the model that an export is made of."""
        text = pair_text(PROBE_WORDS, PROBE_WORDS) if model.spec.scores_pairs else PROBE_WORDS
        (ids,) = model.tokenizer([text]).ids
        rows = list(dict.fromkeys(tuple(ids[:length]) for length in PROBE_LENGTHS))
        tokens = _tokens(rows, has_type_ids=model.tokenizer.has_type_ids)
        vectors = _run(model.backend, tokens, model.tokenizer.pad_id, each_alone=True)
        encoded = base64.b64encode(vectors.astype("<f4").tobytes())
        return cls(tuple(rows), encoded.decode())

    @property
    def expected(self) -> Float32Array:
        """The model's vectors ``[texts, dim]``."""
        return np.frombuffer(base64.b64decode(self.vectors), "<f4").reshape(len(self.ids), -1)

    def distance(self, backend: Backend, pad_id: int) -> float:
        """Return how far a backend's vectors are from the model's, relative to the longest of these.

        The texts are one padded batch, unless the backend runs each text alone.
        """
        tokens = _tokens(self.ids, has_type_ids=True)
        vectors = _run(backend, tokens, pad_id, each_alone=backend.batches != "padded")
        expected = self.expected
        if vectors.shape != expected.shape or not np.isfinite(vectors).all():
            return float("inf")
        greatest_distance = np.linalg.norm(vectors - expected, axis=1).max()
        longest = np.linalg.norm(expected, axis=1).max()
        return float(greatest_distance / max(longest, 1e-12))


@dataclass(frozen=True)
class Export:
    """The content of ``export.json``."""

    precision: Annotated[str, among(*GRAPH_PRECISIONS)]
    dimension: Annotated[int, Ge(1), Lt(2**24)]
    pad_id: Annotated[int, Ge(0), Lt(2**31)]
    model: str
    """The name of the model that was given to `sentcli export`."""
    model_digest: str
    """The hash of weights and modules that `identity.model_digest` returns."""
    source_sha256: list[str]
    """The SHA-256 of each weight file that the export was made from; see `identity.ModelSource`."""
    pooling: str
    normalize: bool
    max_length: Annotated[int, Ge(1), Lt(2**31)]
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
    """Texts with the model's own vectors, for `check_runtime`; earlier versions did not keep them."""
    runtime: Annotated[str, among(*RUNTIMES)] = "onnx"
    """``onnx`` for a file that onnxruntime and OpenVINO read, or ``openvino`` for one that only OpenVINO reads."""
    file: str = ""
    """The file of the graph inside the folder; empty for that of the own layout."""
    format: Literal[1] = EXPORT_FORMAT

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
    return sorted(exports, key=lambda export: graph_rank(export.precision, export.runtime))


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


def _tokens(rows: Sequence[Ids], *, has_type_ids: bool) -> Tokens:
    """Return texts as the tokenizer would, each of the one type 0."""
    ids = [list(row) for row in rows]
    type_ids = [[0] * len(row) for row in rows] if has_type_ids else None
    return Tokens(ids, type_ids, excess_tokens=np.zeros(len(rows), np.int64))


def _run(backend: Backend, tokens: Tokens, pad_id: int, *, each_alone: bool) -> Vectors:
    """Return the vectors of texts, which are one padded batch unless each is run alone."""
    numbers = list(range(len(tokens.ids)))
    if not each_alone:
        return backend.run(pad(tokens, numbers, pad_id), 0)
    return np.concatenate([backend.run(pad(tokens, [number], pad_id), 0) for number in numbers])


def check_runtime(folder: Path, files: dict[str, str], probes: Probes | None, pad_id: int, backend: Backend) -> None:
    """Compare a runtime with the model, unless this version of it has been compared on this export before.

    The cache keeps what was found. An export of an earlier version, which holds no probes, passes.

    Args:
        folder: of the export.
        files: the SHA-256 of its files by name.
        probes: what it holds.
        pad_id: the token that its batches are padded with.
        backend: has opened it.

    Raises:
        WrongRuntimeError: if the vectors are others than the model's.
    """
    if probes is None:
        return
    name = MODULE_OF_BACKEND[backend.name]
    version = sys.modules[name].__version__
    facts = [files, probes.ids, probes.vectors, name, version, backend.device, backend.precision, processor()]
    key = json_digest(facts)[:32]
    cached = cache_folder("runtimes") / key
    apart = _compared(cached)
    if apart is None:
        apart = probes.distance(backend, pad_id)
        _keep(cached, apart)
    tolerance = RUNTIME_TOLERANCES[backend.precision]
    if backend.device != "cpu":
        tolerance = max(tolerance, GPU_TOLERANCE)
    if not apart <= tolerance:
        raise WrongRuntimeError(
            f"{name} {version} gives other vectors for {folder} than its model ({apart:.2g} of their length apart; "
            f"{tolerance:g} is rounding): install another version, in the range of 'sentcli doctor', or run the model "
            "with --backend torch"
        )


def _compared(path: Path) -> float | None:
    with suppress(OSError, ValueError):
        return float(path.read_text("ascii"))
    return None


def _keep(path: Path, apart: float) -> None:
    with suppress(OSError):  # without a cache it is compared each time
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(repr(apart), "ascii")
