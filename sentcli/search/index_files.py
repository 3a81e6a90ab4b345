"""The files of an index beside its vectors: what they say of themselves, and opening them.

indexes/bm25/                                    an index of the words, by bm25s
indexes/NAME/                                    an index of the vectors: files of faiss and index.json
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, Field

from sentcli.errors import DataError, InputError
from sentcli.io.atomic import refuse_link
from sentcli.io.blocks import Count
from sentcli.io.digests import damage
from sentcli.io.forms import read_json_form, write_json
from sentcli.model.spec import Similarity
from sentcli.search.ann import FaissRecipe
from sentcli.search.faiss_index import FaissIndex, Parameter
from sentcli.search.node_rows import NodeRows

INDEX = "index.json"
INDEX_FILE = re.compile(r"rows-\d{10,}-\d{10,}\.faiss")
NODES_SUFFIX = ".nodes.npy"
"""The ending of a file that says which rows the nodes of the graph beside it stand for; see `NodeRows`."""
NODES_FILE = re.compile(r"rows-\d{10,}-\d{10,}\.nodes\.npy")
TRAINED = "trained.faiss"
"""The trained index without rows, with which further files begin."""
REMEDY = "build the index again with --overwrite"


@dataclass(frozen=True)
class WordsFacts:
    """The content of ``rows.json`` in the index of words."""

    rows: list[str]
    """The SHA-256 of each shard's rows."""
    files: dict[Annotated[str, Field(pattern=r"^[\w.-]+$")], str]
    """The SHA-256 of each file of the index."""


@dataclass(frozen=True)
class IndexFile:
    """One file of faiss."""

    name: Annotated[str, Field(pattern=f"^{INDEX_FILE.pattern}$")]
    first: Count
    """The first row in it, or the number of its first node in the whole index where it has `nodes`."""
    rows: Count
    """The number of rows that are found by it."""
    bytes: Count
    sha256: str
    nodes: str = ""
    """The SHA-256 of the file that says which row each node of its graph stands for; empty if they are in order."""
    dead: Count = 0
    """The number of nodes whose row is gone."""

    @property
    def nodes_name(self) -> str:
        """The name of the file with the rows of the nodes."""
        return str(Path(self.name).with_suffix(NODES_SUFFIX))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, which has nothing about nodes where rows are in order, as before there were such."""
        form = asdict(self)
        if not self.nodes:
            del form["nodes"], form["dead"]
        return form


class Chosen(BaseModel, extra="allow"):
    """The search parameter that was chosen, and what was measured with it."""

    recall: Annotated[float, Ge(0), Le(1)]


class Measured(BaseModel, extra="allow"):
    """The part of the result of `recall.tune` that is read again."""

    chosen: Chosen
    k: Annotated[int, Ge(1)] = 10


def _measured(recall: dict[str, Any]) -> dict[str, Any]:
    """Refuse a measurement without the choice that was made by it."""
    Measured.model_validate(recall, strict=True)
    return recall


@dataclass(frozen=True, kw_only=True)
class IndexManifest(FaissRecipe):
    """The content of ``index.json``: how an index was built, its files, and the vectors that they hold."""

    similarity: Similarity
    dimension: Annotated[int, Ge(1), Le(2**24)]
    encoder: dict[str, Any]
    """The result of `VectorFacts.of_encoder`."""
    query_prompt: str | None
    """The prompt of the queries; None stands for the model's own."""
    shards: list[str]
    """The SHA-256 of the vectors of each shard."""
    settings: dict[Parameter, int] = field(default_factory=dict)
    """The parameters of faiss that the user set for building."""
    files: list[IndexFile] = field(default_factory=list)
    trained: str = ""
    """The SHA-256 of `TRAINED`."""
    built_for: Count = 0
    """The number of rows when the index was trained."""
    efforts: dict[Parameter, Annotated[int, Ge(1), Le(2**31 - 1)]] = field(default_factory=dict)
    """The search parameters."""
    recall: Annotated[dict[str, Any], AfterValidator(_measured)] | None = None
    """The result of `recall.tune`, with ``measured_rows``."""
    faiss: str = ""
    """The version of faiss that wrote the files."""
    format: Literal[1, 2] = 1
    """2 where files say which rows their nodes stand for (`IndexFile.nodes`), which version 1 does not know of."""

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(file.rows for file in self.files)

    @property
    def has_nodes(self) -> bool:
        """Whether it is a graph whose nodes are not the rows in order, because rows have changed."""
        return self.format == 2

    @property
    def dead(self) -> int:
        """The number of nodes whose row is gone."""
        return sum(file.dead for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.bytes for file in self.files)

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file by name."""
        digests = {file.name: file.sha256 for file in self.files}
        for file in self.files:
            if file.nodes:
                digests[file.nodes_name] = file.nodes
        if self.trained:
            digests[TRAINED] = self.trained
        return digests

    @classmethod
    def read(cls, place: Path) -> IndexManifest:
        """Read the manifest of the index in a folder.

        Raises:
            InputError: if there is none, or it is damaged or of another format.
        """
        path = place / INDEX
        missing = f"{place} is no index: it has no {INDEX}"
        refuse_link(path)
        return read_json_form(cls, path, missing=missing, remedy=REMEDY)

    def write(self, place: Path) -> None:
        """Write the manifest into the folder of an index, whole or not at all."""
        form = asdict(self)
        form["files"] = list(map(IndexFile.to_dict, self.files))
        write_json(place / INDEX, form)


def read_part(place: Path, file: IndexFile, manifest: IndexManifest, *, mapped: bool) -> FaissIndex:
    """Open one file of an index.

    It is compared with its checksum first, because faiss crashes on a file that is not what it wrote.

    Raises:
        DataError: if the file is missing or has another size, checksum or number of rows than the manifest says.
        InputError: if this version of faiss cannot read it.
    """
    path = place / file.name
    size = path.stat().st_size if path.exists() else None
    if size != file.bytes:
        problem = f"is torn: {size} bytes, not {file.bytes}"
        if size is None:
            problem = "is missing"
        raise DataError(path, f"{problem}; {REMEDY}")
    damaged = damage(path, file.sha256, known=True)
    if damaged:
        raise DataError(path, f"{damaged}; {REMEDY}")
    try:
        index = FaissIndex.read(path, manifest.similarity, mapped=mapped)
    except DataError as error:
        raise InputError(f"{error}; it was written by faiss {manifest.faiss}") from error
    expected = file.rows + file.dead
    if len(index) != expected or index.index.d != manifest.dimension:
        raise DataError(path, f"holds {len(index)} rows, not {expected}; {REMEDY}")
    if file.nodes:
        index.nodes = _read_nodes(place / file.nodes_name, file)
    return index


def _read_nodes(path: Path, file: IndexFile) -> NodeRows:
    """Read the rows of the nodes of a file.

    Raises:
        DataError: if they are not those that were written.
    """
    problem = damage(path, file.nodes, known=True)
    if problem is not None:
        raise DataError(path, f"{problem}; {REMEDY}")
    return NodeRows.read(path, file.rows, file.dead)
