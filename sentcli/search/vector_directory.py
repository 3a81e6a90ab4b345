"""A directory of `encode`: its rows and vectors, the index of words, and faiss's indexes over the vectors.

vectors-*.npy, rows-*.parquet, manifest.json     written by encode
indexes/                                         see `index_files`
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sentcli import console
from sentcli.errors import DataError, InputError, nearest
from sentcli.io.atomic import check_output, refuse_link, replacing
from sentcli.io.dataset import Manifest, read_manifest
from sentcli.io.digests import damage, file_digest
from sentcli.io.forms import read_json_form
from sentcli.io.places import Place
from sentcli.search import ann
from sentcli.search import searcher as searching
from sentcli.search.ann import FaissRecipe
from sentcli.search.bm25 import BM25, LANGUAGE
from sentcli.search.exact import Blocks
from sentcli.search.index_files import INDEX, REMEDY, IndexManifest, WordsFacts, read_part
from sentcli.search.provenance import Provenance
from sentcli.search.rows import RowsOnDisk
from sentcli.search.searcher import Searcher
from sentcli.search.stored_vectors import SearchRequest, StoredVectors

INDEXES = "indexes"
WORDS_INDEX = "bm25"
WORDS_ROWS = "rows.json"
"""The file that says which rows the index of words was built from."""


@dataclass(frozen=True)
class VectorDirectory(StoredVectors):
    """A finished directory of shards."""

    folder: Path
    manifest: Manifest
    origin: Provenance
    """What the manifest says about how the vectors were made."""

    @classmethod
    def open(cls, folder: Path, name: str | None = None, *, to_search: bool = True) -> VectorDirectory:
        """Read the manifest of a directory.

        Args:
            folder: a directory of encode.
            name: of the directory in messages; None takes the path.
            to_search: whether its vectors have to be comparable with those of queries.

        Raises:
            InputError: if there is no manifest, the directory is unfinished, or as for `Provenance.check_numbers`.
        """
        name = name or str(folder)
        manifest = read_manifest(Place(name, folder))
        done = manifest.rows_done
        total = manifest.rows_total
        if done != total:
            raise InputError(f"{name} is unfinished ({done} of {total} rows): run the same encode with --resume")
        origin = Provenance.named(name, {**manifest.settings, "inputs": manifest.inputs})
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
        paths = [self.folder / shard.rows for shard in shards]
        return RowsOnDisk(paths, [shard.count for shard in shards])

    @property
    def indexes(self) -> list[str]:
        """The names of the existing indexes, of vectors and of words."""
        place = self.folder / INDEXES
        if not place.is_dir():
            return []
        return sorted(path.name for path in place.iterdir() if path.name[0] != "." and path.is_dir())

    def place(self, index: str) -> Path:
        """Return the folder of an index.

        Raises:
            InputError: if it is a link.
        """
        place = self.folder / INDEXES / index
        refuse_link(place.parent)
        refuse_link(place)
        return place

    def read_index(self, index: str, *, earlier: bool = False) -> IndexManifest:
        """Read the manifest of an index of vectors.

        Args:
            index: its name.
            earlier: accept an index of the rows before an update of the directory.

        Raises:
            InputError: if the index is missing or damaged, or the vectors have changed since, other than by added rows.
        """
        manifest = IndexManifest.read(self.place(index))
        same_vectors = earlier or self.vector_digests[: len(manifest.shards)] == manifest.shards
        if not same_vectors or manifest.encoder != self.origin.of_encoder():
            raise InputError(
                f"{self.folder}: the vectors have changed since the index {index} was built: build it again with "
                "--overwrite"
            )
        return manifest

    def open_index(self, request: SearchRequest) -> tuple[Searcher, str | None]:
        """Open one of the indexes of vectors, or search the vectors exactly; see `StoredVectors.open_index`.

        Without a name the only index is taken, or exact search if there is none.

        Raises:
            InputError: if there is no such index, there are several to choose from, or it was built for another
                similarity or prompt.
            DataError: if the index is damaged.
        """
        built = [index for index in self.indexes if index not in (WORDS_INDEX, ann.FLAT)]
        name = request.index
        if name is None and len(built) > 1:
            raise InputError(f"{self.folder} has the indexes {', '.join(built)}: choose one with --index, or flat")
        if not name:
            name = built[0] if built else ann.FLAT
        if name in (ann.FLAT, ann.SCANNED):
            return self._flat(name, request)
        folder = name if name in built else FaissRecipe(name, name).name
        if folder not in built:
            raise InputError(self._no_index(name, folder, built))
        place = self.place(folder)
        manifest = self.read_index(folder)
        if request.similarity not in (None, manifest.similarity):
            raise InputError(f"{place} was built for similarity {manifest.similarity!r}, not {request.similarity!r}")
        index_prompt = manifest.query_prompt
        if index_prompt is None:
            index_prompt = request.own_prompt
        if request.query_prompt not in (None, index_prompt):
            raise InputError(
                f"{place} was built for the query prompt {index_prompt!r}, not {request.query_prompt!r}: leave "
                "--query-prompt out, or build the index again with it"
            )
        return self.open_searcher(place, manifest, request.device), manifest.query_prompt

    def _flat(self, kind: str, request: SearchRequest) -> tuple[Searcher, str | None]:
        """Return exact search of a kind, with the similarity and query prompt of the indexes if they agree on them."""
        similarities = set()
        prompts = set()
        for index in self.indexes:
            if index != WORDS_INDEX:
                manifest = IndexManifest.read(self.place(index))
                similarities.add(manifest.similarity)
                prompts.add(manifest.query_prompt)
        similarity = request.similarity
        if similarity is None and len(similarities) == 1:
            similarity = similarities.pop()
        elif similarity is None:
            similarity = request.own_similarity
        self.origin.check_similarity(similarity)
        searcher = searching.searcher_over(kind, self.blocks, similarity, request.device)
        if len(prompts) != 1:
            return searcher, None
        return searcher, prompts.pop()

    def _no_index(self, name: str, folder: str, built: list[str]) -> str:
        """Return the error message for an index that does not exist."""
        if name == WORDS_INDEX:
            return f"--index {name}: words are searched with --search {name}"
        has = "it has none"
        if built:
            has = f"it has {', '.join(built)}"
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
            raise DataError(place / INDEX, f"damaged (efforts: {error}); {REMEDY}") from error
        searcher.parts = [part.on(device) for part in parts]
        return searcher

    def build_words(self, language: str) -> BM25:
        """Build the index of words of texts in a language, write it into the store, and return it."""
        words = BM25.build(self.encoded_texts(), language=language)
        place = self.place(WORDS_INDEX)
        check_output(place, resume=True, folder=True)
        with replacing(place) as temporary:
            words.save(temporary)
            files = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
            facts = json.dumps({"rows": self.row_digests, "files": files})
            (temporary / WORDS_ROWS).write_text(facts, "utf-8")
        return words

    def bm25(self, language: str | None) -> BM25:
        """Return the index of words that is kept, or build one now, with a note that `index` would keep it."""
        words = self.words(language)
        if words is not None:
            return words
        command = f"sentcli index {self.origin.name} --type bm25"
        if language not in (None, LANGUAGE):
            command += f" --language {language}"
        console.note(f"BM25 of {len(self.rows)} rows is made now; {command} keeps it")
        return super().bm25(language)

    def notes_on(self, searcher: Searcher) -> list[str]:
        """Return how well the index that is searched finds rows, and how many it lacks."""
        manifest = searcher.recipe
        if not isinstance(manifest, IndexManifest):
            return []
        notes = []
        measured = manifest.recall
        if measured:
            k = measured.get("k", 10)
            recall = f"recall@{k} {measured['chosen']['recall']:.3f}"
            notes.append(f"index {manifest.kind}: {recall} against exact search when it was built")
        unindexed = len(self.rows) - manifest.rows
        if unindexed:
            notes.append(f"{unindexed} rows were added since the index was built; they are searched exactly")
        return notes

    def words(self, language: str | None = None, *, earlier: bool = False) -> BM25 | None:
        """Return the index of words, or None if there is none, or only one of other rows or in another language.

        Args:
            language: the language of the queries; None accepts that of the index.
            earlier: accept an index of the rows before an update of the directory.

        Raises:
            InputError: if the index is damaged.
        """
        place = self.place(WORDS_INDEX)
        if not place.is_dir():
            return None
        facts = self._words_facts()
        if facts.rows != self.row_digests and not earlier:
            return None
        for name, digest in facts.files.items():
            path = place / name
            problem = damage(path, digest, known=True)
            if problem:
                raise InputError(f"{path} {problem}; build the index of words again")
        words = BM25.open(place)
        if language not in (None, words.language):
            return None
        return words

    def _words_facts(self) -> WordsFacts:
        path = self.place(WORDS_INDEX) / WORDS_ROWS
        remedy = "build the index again"
        missing = f"{path} is damaged (it is missing); {remedy}"
        return read_json_form(WordsFacts, path, missing=missing, remedy=remedy)

    def check_index(self, name: str) -> list[str]:
        """Compare every file of an index with its checksum, and its rows with those of the store.

        Returns:
            A description of each problem.

        Raises:
            InputError: if there is no such index, or its list of files is damaged.
        """
        if name != WORDS_INDEX:
            self.read_index(name)
        problems = self.damaged_files(name)
        if name == WORDS_INDEX and self._words_facts().rows != self.row_digests:
            problems.append(f"{self.place(name)} is of other rows than those that are there")
        return problems

    def damaged_files(self, name: str) -> list[str]:
        """Compare every file of an index, also one of the rows before an update, with its checksum.

        Returns:
            A description of each problem.

        Raises:
            InputError: if there is no such index, or its list of files is damaged.
        """
        is_of_words = name == WORDS_INDEX
        digests = self._words_facts().files if is_of_words else self.read_index(name, earlier=True).digests
        problems = []
        for file, digest in digests.items():
            path = self.place(name) / file
            problem = damage(path, digest)
            if problem:
                problems.append(f"{path} {problem}")
        return problems
