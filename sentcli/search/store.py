"""A directory of `encode` as one store: rows and vectors, the words index, and the indexes of faiss over the vectors.

vectors-*.npy, rows-*.parquet, manifest.json     written by encode
indexes/bm25/                                    words: an index of bm25s
indexes/NAME/                                    vectors: files of faiss and index.json
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError, nearest
from sentcli.io.atomic import replacing
from sentcli.io.dataset import Manifest, read_manifest
from sentcli.io.digests import damage, file_digest
from sentcli.io.forms import read_json_form
from sentcli.io.json_files import write_json
from sentcli.search import ann
from sentcli.search.ann import FaissIndex, FaissRecipe
from sentcli.search.bm25 import BM25
from sentcli.search.corpus import RowsOnDisk
from sentcli.search.exact import Blocks, Similarity
from sentcli.search.searcher import Searcher

INDEXES, WORDS = "indexes", "bm25"
WORDS_ROWS = "rows.json"
"""Says which rows the words index was built from."""
INDEX = "index.json"
TRAINED = "trained.faiss"
"""The file without rows, from which further files begin."""
ENCODER = ("model_fingerprint", "pooling", "normalize", "max_length", "prompt")
"""Settings that say what made the vectors."""


@dataclass(frozen=True)
class WordsFacts:
    """What ``rows.json`` of the words index says."""

    rows: list[str]
    """SHA-256 of each shard's rows."""
    files: dict[str, str]
    """SHA-256 of each file of the index."""


@dataclass(frozen=True)
class IndexFile:
    """One file of faiss."""

    name: str
    first: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class IndexManifest(FaissRecipe):
    """What ``index.json`` says: how an index was built, its files, and which vectors they are of."""

    similarity: Similarity
    dimension: int
    encoder: dict[str, Any]
    """Which vectors these are."""
    query_prompt: str | None
    """Of the queries; None is the model's own."""
    shards: list[str]
    """SHA-256 of the vectors that it was built from."""
    settings: dict[str, int] = field(default_factory=dict)
    """Parameters of faiss that the user set for building."""
    files: list[IndexFile] = field(default_factory=list)
    trained: str = ""
    """SHA-256 of the file without rows."""
    built_for: int = 0
    """Rows when it was trained."""
    efforts: dict[str, int] = field(default_factory=dict)
    """Search parameters."""
    recall: dict[str, Any] | None = None
    """What `searcher.tune` returned, and ``measured_rows``."""
    faiss: str = ""
    """Version that wrote the files."""
    format: Literal[1] = 1

    @property
    def rows(self) -> int:
        """That are in the files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Of the files."""
        return sum(file.bytes for file in self.files)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every file by name."""
        return {**{file.name: file.sha256 for file in self.files}, **({TRAINED: self.trained} if self.trained else {})}

    @classmethod
    def read(cls, place: Path) -> IndexManifest:
        """Read it.

        Raises:
            InputError: if there is none, or it is torn or of another format.
        """
        missing = f"{place} is no index: it has no {INDEX}"
        return read_json_form(cls, place / INDEX, missing=missing, remedy="build the index again with --overwrite")

    def write(self, place: Path) -> None:
        """Write it, whole or not at all."""
        write_json(place / INDEX, asdict(self))


@dataclass(frozen=True)
class OpenedIndex:
    """What searches the vectors of a store, and what the user should know about it."""

    searcher: Searcher
    recall: float | None = None
    """Recall that was measured when the index was built; None for exact search."""
    k: int = 10
    """The rank down to which `recall` was measured."""
    unindexed: int = 0
    """Rows that the index lacks: they are searched exactly."""
    query_prompt: str | None = None
    """The prompt that the index was built for; None is the model's own."""


@dataclass(frozen=True)
class Store:
    """A finished directory of shards."""

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path, *, to_search: bool = True) -> Store:
        """Read the manifest.

        Args:
            folder: a directory of encode.
            to_search: whether vectors of queries have to compare with its own.

        Raises:
            InputError: if there is none, the directory is unfinished, or its vectors are bits; to search also if they
                have fewer dimensions than the encoder.
        """
        manifest = read_manifest(folder)
        done, total, settings = manifest.rows_done, manifest.rows_total, manifest.settings
        if done != total:
            raise InputError(f"{folder} is unfinished ({done} of {total} rows): run the same encode with --resume")
        bits = settings.get("output_dtype") == "binary"
        if bits and not to_search:
            raise InputError(f"{folder} holds bits, not numbers: encode without --output-dtype binary")
        if to_search and (bits or settings.get("pca_sha256") or settings.get("truncate_dim")):
            raise InputError(
                f"{folder} holds vectors of {manifest.dimension} dimensions in {settings.get('output_dtype')}, made "
                "smaller by --truncate-dim, --pca or binary; those of a query do not compare with them: encode "
                "without these to search"
            )
        return cls(folder, manifest)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the vectors."""
        return self.manifest.settings

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.manifest.dimension

    @property
    def prompt(self) -> str:
        """What was put in front of each document."""
        return self.settings.get("prompt") or ""

    @property
    def encoder(self) -> dict[str, Any]:
        """What made the vectors."""
        return {key: self.settings.get(key) for key in ENCODER}

    @property
    def vector_digests(self) -> list[str]:
        """SHA-256 of each shard's vectors, in order."""
        return [shard.sha256[shard.vectors] for shard in self.manifest.shards]

    @property
    def row_digests(self) -> list[str]:
        """SHA-256 of each shard's rows, in order."""
        return [shard.sha256[shard.rows] for shard in self.manifest.shards]

    @cached_property
    def blocks(self) -> Blocks:
        """The vectors, mapped; `Blocks.mapped` says what can be wrong with them."""
        return Blocks.mapped(self.folder, self.manifest.shards, self.dimension)

    @cached_property
    def rows(self) -> RowsOnDisk:
        """The documents; `RowsOnDisk` says what can be wrong with them."""
        return RowsOnDisk(self.folder, self.manifest.shards)

    @property
    def indexes(self) -> list[str]:
        """Names of the indexes that were built, of vectors and of words."""
        place = self.folder / INDEXES
        folders = place.iterdir() if place.is_dir() else ()
        return sorted(path.name for path in folders if path.name[0] != "." and path.is_dir())

    def place(self, index: str) -> Path:
        """Return the folder of an index."""
        return self.folder / INDEXES / index

    def check_encoder(self, encoder: SentenceEncoder, document_prompt: str) -> None:
        """Refuse queries whose vectors would not compare with those that are there.

        Raises:
            InputError: if another model, pooling, normalisation, length or document prompt made them.
        """
        there = self.settings
        if there.get("model_fingerprint") != encoder.fingerprint():
            raise InputError(
                f"{self.folder} was encoded with {there.get('model')} (pooling {there.get('pooling')}, maximum length "
                f"{there.get('max_length')}), which is not this {encoder.model}: the vectors do not compare"
            )
        if self.prompt != document_prompt:
            raise InputError(
                f"{self.folder} was encoded with the prompt {self.prompt!r}, documents of this model have "
                f"{document_prompt!r}: encode again with --prompt, or say --doc-prompt {self.prompt!r} to search it "
                "as it is"
            )

    def check_similarity(self, similarity: Similarity) -> None:
        """Refuse inner products of vectors that have lost their lengths."""
        if similarity == "dot" and self.settings.get("output_dtype") == "int8":
            raise InputError(f"{self.folder} holds vectors in int8, each scaled by itself: only their cosine is known")

    def read_index(self, index: str) -> IndexManifest:
        """Read what an index of vectors is; it has to be of those that are there, to which rows may have been added."""
        manifest = IndexManifest.read(self.place(index))
        same = self.vector_digests[: len(manifest.shards)] == manifest.shards
        if not same or manifest.encoder != self.encoder:
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
    ) -> OpenedIndex:
        """Open one of the indexes of vectors, or search the vectors exactly.

        Args:
            name: of the index; None takes the only one there is, or none.
            similarity: of the search; None is that of the index, or cosine.
            query_prompt: of the queries; None is that of the index, or the model's own.
            device: where exact search runs.
            own_prompt: the model's own prompt of queries.

        Raises:
            InputError: if there is no such index, several to choose from, or one for other similarities or prompts.
            DataError: if it is torn.
        """
        built = [each for each in self.indexes if each not in (WORDS, ann.FLAT)]
        if name is None and len(built) > 1:
            raise InputError(f"{self.folder} has the indexes {', '.join(built)}: choose one with --index, or flat")
        name = name or (built[0] if built else ann.FLAT)
        folder = name if name in built else FaissRecipe(name, name).name
        if folder == ann.FLAT:
            return self._flat(similarity, device)
        if folder not in built:
            raise InputError(self._no_index(name, folder, built))
        place, manifest = self.place(folder), self.read_index(folder)
        if similarity not in (None, manifest.similarity):
            raise InputError(f"{place} was built for similarity {manifest.similarity!r}, not {similarity!r}")
        pinned = own_prompt if manifest.query_prompt is None else manifest.query_prompt
        if query_prompt not in (None, pinned):
            raise InputError(
                f"{place} was built for the query prompt {pinned!r}, not {query_prompt!r}: leave --query-prompt out, "
                "or build the index again with it"
            )
        measured = manifest.recall or {}
        return OpenedIndex(
            self.open_searcher(place, manifest, device),
            recall=measured["chosen"]["recall"] if measured else None,
            k=measured.get("k", 10),
            unindexed=len(self.rows) - manifest.rows,
            query_prompt=manifest.query_prompt,
        )

    def _flat(self, similarity: Similarity | None, device: str) -> OpenedIndex:
        """Search exactly, with similarity and query prompt as the indexes have them, if they agree."""
        manifests = [IndexManifest.read(self.place(each)) for each in self.indexes if each != WORDS]
        similarities, prompts = {each.similarity for each in manifests}, {each.query_prompt for each in manifests}
        chosen = similarity or (similarities.pop() if len(similarities) == 1 else "cosine")
        self.check_similarity(chosen)
        searcher = Searcher([], FaissRecipe(ann.FLAT, "Flat"), self.blocks, chosen, device)
        return OpenedIndex(searcher, query_prompt=prompts.pop() if len(prompts) == 1 else None)

    def _no_index(self, name: str, folder: str, built: list[str]) -> str:
        if name == WORDS:
            return f"--index {name}: words are searched with --search {name}"
        has = f"it has {', '.join(built)}" if built else "it has none"
        return (
            f"{self.folder} has no index {name!r}{nearest(folder, built)}; {has}: "
            f"sentcli index {self.folder} --type {name} builds it"
        )

    def open_searcher(self, place: Path, manifest: IndexManifest, device: str = "cpu") -> Searcher:
        """Open the files of an index, mapped, with the search parameters that were chosen.

        Args:
            place: folder of the index, which may still be under construction.
            manifest: of it.
            device: where rows that it lacks are searched.

        Raises:
            DataError: if a file is missing, torn, or cannot be read by this faiss.
        """
        parts = [read_part(place, file, manifest, mapped=True) for file in manifest.files]
        searcher = Searcher(parts, manifest, self.blocks, manifest.similarity, device)
        searcher.set(manifest.efforts)
        searcher.parts = [part.on(device) for part in parts]
        return searcher

    def build_words(self, language: str = "english") -> BM25:
        """Index the texts, and keep the index."""
        words = BM25.build(self.rows.texts(), language=language)
        place = self.place(WORDS)
        place.parent.mkdir(exist_ok=True)
        with replacing(place) as temporary:
            words.save(temporary)
            files = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
            (temporary / WORDS_ROWS).write_text(json.dumps({"rows": self.row_digests, "files": files}), "utf-8")
        return words

    def words(self, language: str | None = None) -> BM25 | None:
        """Return the words index, or None if there is none of just these rows in this language.

        Args:
            language: None is that of the index.

        Raises:
            InputError: if it is damaged.
        """
        place = self.place(WORDS)
        if not place.is_dir() or self._words_facts().rows != self.row_digests:
            return None
        words = BM25.open(place)
        return words if language in (None, words.language) else None

    def _words_facts(self) -> WordsFacts:
        path, remedy = self.place(WORDS) / WORDS_ROWS, "build the index again"
        return read_json_form(WordsFacts, path, missing=f"{path} is damaged (it is missing); {remedy}", remedy=remedy)

    def check_index(self, name: str) -> list[str]:
        """Compare every file of an index with its checksum, and the rows with those that are there.

        Returns:
            What is wrong.

        Raises:
            InputError: if there is no such index, or its list of files is damaged.
        """
        place, stale = self.place(name), False
        if name == WORDS:
            facts = self._words_facts()
            files, stale = facts.files, facts.rows != self.row_digests
        else:
            files = self.read_index(name).digests
        checked = {place / file: damage(place / file, digest) for file, digest in files.items()}
        problems = [f"{path} {problem}" for path, problem in checked.items() if problem]
        return [*problems, *([f"{place} is of other rows than those that are there"] if stale else [])]


def read_part(place: Path, file: IndexFile, manifest: IndexManifest, *, mapped: bool) -> FaissIndex:
    """Open one file of an index.

    Its size is compared first: faiss crashes on a mapped file that ends too early.
    """
    path = place / file.name
    size = path.stat().st_size if path.exists() else None
    if size != file.bytes:
        problem = "is missing" if size is None else f"is torn: {size} bytes, not {file.bytes}"
        raise DataError(path, f"{problem}; build the index again with --overwrite")
    try:
        index = FaissIndex.read(path, manifest.similarity, mapped=mapped)
    except DataError as error:
        raise InputError(f"{error}; it was written by faiss {manifest.faiss}") from error
    if len(index) != file.rows or index.index.d != manifest.dimension:
        raise DataError(path, f"holds {len(index)} rows, not {file.rows}; build the index again with --overwrite")
    return index
