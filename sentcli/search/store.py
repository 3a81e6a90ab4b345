"""A directory of `encode` as a store: its rows and vectors, the index of words, and faiss's indexes over the vectors.

vectors-*.npy, rows-*.parquet, manifest.json     written by encode
indexes/bm25/                                    an index of the words, by bm25s
indexes/NAME/                                    an index of the vectors: files of faiss and index.json
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, Field

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.atomic import check_output, refuse_link, replacing
from sentcli.io.dataset import Count, Manifest, read_manifest
from sentcli.io.digests import damage, file_digest
from sentcli.io.forms import read_json_form, write_json
from sentcli.io.places import Place
from sentcli.model.spec import Similarity
from sentcli.search import ann
from sentcli.search import searcher as searching
from sentcli.search.ann import FaissIndex, FaissRecipe, Parameter
from sentcli.search.bm25 import BM25
from sentcli.search.exact import Blocks
from sentcli.search.origin import Origin
from sentcli.search.rows import RowsOnDisk
from sentcli.search.searcher import Searcher

INDEXES, WORDS_INDEX = "indexes", "bm25"
WORDS_ROWS = "rows.json"
"""The file that says which rows the index of words was built from."""
INDEX = "index.json"
INDEX_FILE = re.compile(r"rows-\d{10,}-\d{10,}\.faiss")
TRAINED = "trained.faiss"
"""The trained index without rows, with which further files begin."""


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
    rows: Count
    bytes: Count
    sha256: str


class Chosen(BaseModel, extra="allow"):
    """The search parameter that was chosen, and what was measured with it."""

    recall: Annotated[float, Ge(0), Le(1)]


class Measured(BaseModel, extra="allow"):
    """What is read of the result of `recall.tune`."""

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
    format: Literal[1] = 1

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.bytes for file in self.files)

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file by name."""
        return {**{file.name: file.sha256 for file in self.files}, **({TRAINED: self.trained} if self.trained else {})}

    @classmethod
    def read(cls, place: Path) -> IndexManifest:
        """Read the manifest of the index in a folder.

        Raises:
            InputError: if there is none, or it is damaged or of another format.
        """
        missing = f"{place} is no index: it has no {INDEX}"
        refuse_link(place / INDEX)
        return read_json_form(cls, place / INDEX, missing=missing, remedy="build the index again with --overwrite")

    def write(self, place: Path) -> None:
        """Write the manifest into the folder of an index, whole or not at all."""
        write_json(place / INDEX, asdict(self))


@dataclass(frozen=True)
class Store:
    """A finished directory of shards."""

    folder: Path
    manifest: Manifest
    origin: Origin
    """What the manifest says about how the vectors were made."""

    @classmethod
    def open(cls, folder: Path, name: str | None = None, *, to_search: bool = True) -> Store:
        """Read the manifest of a directory.

        Args:
            folder: a directory of encode.
            name: of the directory in messages; None takes the path.
            to_search: whether its vectors have to be comparable with those of queries.

        Raises:
            InputError: if there is no manifest, the directory is unfinished, or as for `Origin.check_numbers`.
        """
        name = name or str(folder)
        manifest = read_manifest(Place(name, folder))
        done, total = manifest.rows_done, manifest.rows_total
        if done != total:
            raise InputError(f"{name} is unfinished ({done} of {total} rows): run the same encode with --resume")
        inputs = [file for group in manifest.groups for file in group.inputs]
        origin = Origin.named(name, {**manifest.settings, "inputs": inputs})
        origin.check_numbers(to_search=to_search)
        return cls(folder, manifest, origin)

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        return self.manifest.dimension

    @property
    def vector_digests(self) -> list[str]:
        """The SHA-256 of each shard's vectors, in order."""
        return [shard.sha256[shard.vectors] for shard in self.manifest.shards]

    @property
    def row_digests(self) -> list[str]:
        """The SHA-256 of each shard's rows, in order."""
        return [shard.sha256[shard.rows] for shard in self.manifest.shards]

    @cached_property
    def blocks(self) -> Blocks:
        """The vectors, mapped from their files; see `Blocks.mapped` for errors."""
        signs = self.origin.signs(self.dimension)
        return Blocks.mapped(self.folder, self.manifest.shards, self.dimension, self.manifest.dtype, signs=signs)

    @cached_property
    def rows(self) -> RowsOnDisk:
        """The documents; see `RowsOnDisk` for errors."""
        shards = self.manifest.shards
        return RowsOnDisk([self.folder / shard.rows for shard in shards], [shard.count for shard in shards])

    @property
    def indexes(self) -> list[str]:
        """The names of the existing indexes, of vectors and of words."""
        place = self.folder / INDEXES
        folders = place.iterdir() if place.is_dir() else ()
        return sorted(path.name for path in folders if path.name[0] != "." and path.is_dir())

    def place(self, index: str) -> Path:
        """Return the folder of an index.

        Raises:
            InputError: if it is a link.
        """
        place = self.folder / INDEXES / index
        refuse_link(place.parent)
        refuse_link(place)
        return place

    def read_index(self, index: str) -> IndexManifest:
        """Read the manifest of an index of vectors.

        Raises:
            InputError: if the index is missing or damaged, or the vectors have changed since, other than by added rows.
        """
        manifest = IndexManifest.read(self.place(index))
        same = self.vector_digests[: len(manifest.shards)] == manifest.shards
        if not same or manifest.encoder != self.origin.of_encoder():
            raise InputError(
                f"{self.folder}: the vectors have changed since the index {index} was built: build it again with "
                "--overwrite"
            )
        return manifest

    def open_index(
        self,
        name: str | None,
        similarity: Similarity | None = None,
        query_prompt: str | None = None,
        device: str = "cpu",
        own_prompt: str = "",
        own_similarity: Callable[[], Similarity] = lambda: "cosine",
    ) -> tuple[Searcher, str | None]:
        """Open one of the indexes of vectors, or search the vectors exactly.

        Args:
            name: the name of the index; None takes the only one, or exact search if there is none.
            similarity: the similarity of the search; None takes that of the index, or the model's.
            query_prompt: the prompt of the queries; None takes that of the index, or the model's own.
            device: the device of exact search.
            own_prompt: the model's own prompt of queries.
            own_similarity: returns the similarity that the model's folder names, or raises an error for one that is not
                supported; it is asked where no index says it.

        Returns:
            The search, whose recipe is the manifest of the index, and the query prompt that the index was built for;
            None stands for the model's own.

        Raises:
            InputError: if there is no such index, there are several to choose from, or it was built for another
                similarity or prompt.
            DataError: if the index is damaged.
        """
        built = [index for index in self.indexes if index not in (WORDS_INDEX, ann.FLAT)]
        if name is None and len(built) > 1:
            raise InputError(f"{self.folder} has the indexes {', '.join(built)}: choose one with --index, or flat")
        name = name or (built[0] if built else ann.FLAT)
        folder = name if name in built else FaissRecipe(name, name).name
        if name in (ann.FLAT, ann.SCANNED):
            return self._flat(similarity, device, own_similarity, scan=name == ann.SCANNED)
        if folder not in built:
            raise InputError(self._no_index(name, folder, built))
        place, manifest = self.place(folder), self.read_index(folder)
        if similarity not in (None, manifest.similarity):
            raise InputError(f"{place} was built for similarity {manifest.similarity!r}, not {similarity!r}")
        index_prompt = own_prompt if manifest.query_prompt is None else manifest.query_prompt
        if query_prompt not in (None, index_prompt):
            raise InputError(
                f"{place} was built for the query prompt {index_prompt!r}, not {query_prompt!r}: leave --query-prompt "
                "out, or build the index again with it"
            )
        return self.open_searcher(place, manifest, device), manifest.query_prompt

    def _flat(
        self, similarity: Similarity | None, device: str, own: Callable[[], Similarity], *, scan: bool
    ) -> tuple[Searcher, str | None]:
        """Return exact search, with the similarity and the query prompt of the indexes if they agree on them."""
        manifests = [IndexManifest.read(self.place(index)) for index in self.indexes if index != WORDS_INDEX]
        similarities = {manifest.similarity for manifest in manifests}
        prompts = {manifest.query_prompt for manifest in manifests}
        if similarity is None:
            similarity = similarities.pop() if len(similarities) == 1 else own()
        self.origin.check_similarity(similarity)
        searcher = searching.build(ann.SCANNED if scan else ann.FLAT, self.blocks, similarity, device)
        return searcher, prompts.pop() if len(prompts) == 1 else None

    def _no_index(self, name: str, folder: str, built: list[str]) -> str:
        """Return the error message for an index that does not exist."""
        if name == WORDS_INDEX:
            return f"--index {name}: words are searched with --search {name}"
        has = f"it has {', '.join(built)}" if built else "it has none"
        return (
            f"{self.folder} has no index {name!r}{nearest(folder, built)}; {has}: "
            f"sentcli index {self.folder} --type {name} builds it"
        )

    def open_searcher(self, place: Path, manifest: IndexManifest, device: str = "cpu") -> Searcher:
        """Open the files of an index, mapped, with the search parameters that were chosen.

        Args:
            place: the folder of the index, which may still be under construction.
            manifest: the manifest of the index.
            device: the device on which rows that the index lacks are searched.

        Raises:
            DataError: if a file is missing or damaged.
            InputError: if this version of faiss cannot read a file.
        """
        parts = [read_part(place, file, manifest, mapped=True) for file in manifest.files]
        searcher = Searcher(parts, manifest, self.blocks, manifest.similarity, device)
        try:
            searcher.set(manifest.efforts)
        except InputError as error:
            remedy = "build the index again with --overwrite"
            raise DataError(place / INDEX, f"damaged (efforts: {error}); {remedy}") from error
        searcher.parts = [part.on(device) for part in parts]
        return searcher

    def build_words(self, language: str) -> BM25:
        """Build the index of words, and write it into the store."""
        words = BM25.build(self.rows.texts(), language=language)
        place = self.place(WORDS_INDEX)
        check_output(place, resume=True, folder=True)
        with replacing(place) as temporary:
            words.save(temporary)
            files = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
            (temporary / WORDS_ROWS).write_text(json.dumps({"rows": self.row_digests, "files": files}), "utf-8")
        return words

    def words(self, language: str | None = None) -> BM25 | None:
        """Return the index of words, or None if there is none, or only one of other rows or in another language.

        Args:
            language: the language of the queries; None accepts that of the index.

        Raises:
            InputError: if the index is damaged.
        """
        place = self.place(WORDS_INDEX)
        facts = self._words_facts() if place.is_dir() else None
        if facts is None or facts.rows != self.row_digests:
            return None
        for name, digest in facts.files.items():
            if problem := damage(place / name, digest, known=True):
                raise InputError(f"{place / name} {problem}; build the index of words again")
        words = BM25.open(place)
        return words if language in (None, words.language) else None

    def _words_facts(self) -> WordsFacts:
        path, remedy = self.place(WORDS_INDEX) / WORDS_ROWS, "build the index again"
        return read_json_form(WordsFacts, path, missing=f"{path} is damaged (it is missing); {remedy}", remedy=remedy)

    def check_index(self, name: str) -> list[str]:
        """Compare every file of an index with its checksum, and its rows with those of the store.

        Returns:
            A description of each problem.

        Raises:
            InputError: if there is no such index, or its list of files is damaged.
        """
        place, stale = self.place(name), False
        if name == WORDS_INDEX:
            facts = self._words_facts()
            files, stale = facts.files, facts.rows != self.row_digests
        else:
            files = self.read_index(name).digests
        checked = {place / file: damage(place / file, digest) for file, digest in files.items()}
        problems = [f"{path} {problem}" for path, problem in checked.items() if problem]
        return [*problems, *([f"{place} is of other rows than those that are there"] if stale else [])]


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
        problem = "is missing" if size is None else f"is torn: {size} bytes, not {file.bytes}"
        raise DataError(path, f"{problem}; build the index again with --overwrite")
    if damaged := damage(path, file.sha256, known=True):
        raise DataError(path, f"{damaged}; build the index again with --overwrite")
    try:
        index = FaissIndex.read(path, manifest.similarity, mapped=mapped)
    except DataError as error:
        raise InputError(f"{error}; it was written by faiss {manifest.faiss}") from error
    if len(index) != file.rows or index.index.d != manifest.dimension:
        raise DataError(path, f"holds {len(index)} rows, not {file.rows}; build the index again with --overwrite")
    return index
