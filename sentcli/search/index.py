"""Build indexes in ``indexes/NAME/`` of a directory that `encode` wrote, and extend them when rows were added.

An index is one or several files of faiss over consecutive rows, and ``index.json``, which is written anew after each
file; files that it does not name are ignored. A new index has another name until it is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentcli.arrays import Vectors
from sentcli.cluster.pool import Pool
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.atomic import check_output, locked, replacing, require_room
from sentcli.io.digests import file_digest
from sentcli.model.spec import Similarity
from sentcli.search import ann
from sentcli.search.ann import FaissRecipe
from sentcli.search.faiss_border import check_room, require_faiss
from sentcli.search.faiss_index import EFFORTS, FaissIndex
from sentcli.search.graph_update import with_kept_graph
from sentcli.search.index_files import TRAINED, IndexFile, IndexManifest
from sentcli.search.index_filling import FileSpan, clear, fill_file, fill_in_worker, spans
from sentcli.search.recall import TARGET, sample, tune
from sentcli.search.vector_directory import VectorDirectory

FILE_BYTES = 2**32
"""The approximate size of one file of an index."""
GROWN = 4
"""An index should be built again when it has this many times the rows that it was trained for."""


@dataclass(frozen=True)
class IndexRequest:
    """The index that the user asks for."""

    kind: str
    similarity: Similarity | None = None
    """The similarity of the index; None takes the one that the facts of the vectors name."""
    query_prompt: str | None = None
    settings: dict[str, int] = field(default_factory=dict)
    file_rows: int | None = None
    """The number of rows in a file; None takes as many as fill `FILE_BYTES`."""
    target: float = TARGET
    """The recall that the search parameter is chosen for."""
    queries: Vectors | None = None
    """The vectors of real queries to measure recall with; None takes rows of the corpus."""
    overwrite: bool = False
    device: str = "cpu"
    """Where the index is built, if faiss can do it there; searches are measured on the CPU."""
    earlier: Path | None = None
    """The folder of an index of the kind before rows have changed. Its clusters and codes are taken instead of being
    learned anew, and its graph stays."""

    def similarity_of(self, facts: VectorFacts) -> Similarity:
        """Return the similarity that the user chose, or the one by which vectors are compared."""
        return self.similarity or facts.compared_by


def build(
    store: VectorDirectory,
    request: IndexRequest,
    progress: Callable[[int], None],
    step: Callable[[str], None],
    pool: Pool | None = None,
) -> tuple[IndexManifest, int]:
    """Build an index, or add to an existing one the rows that it lacks, and measure its recall.

    Args:
        store: the store whose vectors are indexed.
        request: the index to build.
        progress: called with the number of rows that were added.
        step: called with the name of each step.
        pool: workers on a cluster that build the files, if not this process.

    Returns:
        The manifest of the index, and how many rows were added.

    Raises:
        InputError: for a kind that does not fit the store, or if the existing index was built otherwise.
    """
    if store.origin.bits and request.kind != ann.FLAT:
        raise InputError(f"{store.folder} holds bits, which are searched exactly: it needs no index")
    if request.kind == ann.SCANNED:
        raise InputError(f"{ann.SCANNED} is a way to search vectors as they are (retrieve --index): nothing is built")
    request = replace(request, similarity=request.similarity_of(store.origin))
    recipe = ann.recipe(request.kind, len(store.blocks), store.dimension)
    if request.earlier is not None:
        earlier = IndexManifest.read(request.earlier)
        recipe = FaissRecipe(earlier.kind, earlier.factory, earlier.rescore)
    place, work = _places(store, recipe)
    job = _IndexBuild(store, request, recipe, progress, step, pool)
    with locked(place.with_name(f".{place.name}.lock"), f"another process builds {place}: wait for it, or end it"):
        check_output(place, resume=True, folder=True)
        if place.exists() and not request.overwrite:
            return job.extend(place)
        manifest, added = job.begin(work)
        with replacing(place) as temporary:  # an old index stays until the new one is complete
            work.rename(temporary)
    return manifest, added


def _places(store: VectorDirectory, recipe: FaissRecipe) -> tuple[Path, Path]:
    """Return the folder of an index, and the one in which it is built."""
    place = store.place(recipe.name)
    return place, place.with_name(f".{recipe.name}.building")


def rebuild_due(manifest: IndexManifest, target: float) -> list[str]:
    """Return why an index should be built anew.

    Args:
        manifest: of the index.
        target: the recall that was aimed at.

    Returns:
        ``growth`` if it was made for far fewer rows, ``recall`` if a graph whose rows have changed misses the target.
    """
    reasons = []
    if manifest.rows > GROWN * manifest.built_for:
        reasons.append("growth")
    measured = manifest.recall
    if manifest.has_nodes and measured is not None and measured["chosen"]["recall"] < target:
        reasons.append("recall")
    return reasons


def indexed_so_far(store: VectorDirectory, request: IndexRequest) -> dict[str, int]:
    """Return how many rows the whole files of an unfinished index have and will have; nothing if there are none."""
    rows = len(store.blocks)
    place, work = _places(store, ann.recipe(request.kind, rows, store.dimension))
    folder = place if place.exists() and not request.overwrite else work
    with suppress(InputError):  # it was not begun
        done = IndexManifest.read(folder).rows
        if done:
            return {"rows_done": done, "rows_total": rows}
    return {}


def check_recipe(
    recipe: FaissRecipe, dimension: int, similarity: Similarity, settings: dict[str, int], rows: int = 0
) -> FaissIndex:
    """Return the empty index of a recipe, with its parameters set, for so many rows as far as they are known.

    Raises:
        InputError: for a factory string or a parameter that faiss does not accept.
    """
    index = FaissIndex.empty(recipe.factory, dimension, similarity, rows)
    for parameter, value in settings.items():
        index.set(parameter, value)
    return index


@dataclass(frozen=True)
class _IndexBuild:
    """The building of one index."""

    store: VectorDirectory
    request: IndexRequest
    recipe: FaissRecipe
    progress: Callable[[int], None]
    step: Callable[[str], None]
    pool: Pool | None

    def extend(self, place: Path) -> tuple[IndexManifest, int]:
        """Add the rows that an index lacks, and measure it; return its manifest and the number of added rows."""
        manifest = self.store.read_index(place.name)
        for key in ("kind", "similarity", "query_prompt"):
            old = getattr(manifest, key)
            new = getattr(self.request, key)
            if old != new:
                raise InputError(f"{place} was built with {key} {old!r}, not {new!r}: build it again with --overwrite")
        if not self._for_building().items() <= manifest.settings.items():
            raise InputError(
                f"{place} was built with {manifest.settings or 'no settings'}: build it again with --overwrite"
            )
        self._empty(manifest.factory)
        extended = self._fill(place, replace(manifest, shards=self.store.vector_digests))
        return self._measure(place, extended), extended.rows - manifest.rows

    def begin(self, work: Path) -> tuple[IndexManifest, int]:
        """Build an index in a folder, or continue one that an interrupted run has begun there.

        Returns:
            Its manifest, and the number of rows that are not in a graph that was kept.
        """
        index = self._empty(self.recipe.factory)
        manifest = self._begun_manifest(work)
        missing = len(self.store.blocks) - manifest.rows
        require_room(work, missing * index.row_bytes, f"an index of {self.store.folder}")
        if not manifest.files and self.recipe.kind != ann.FLAT:
            with replacing(work / TRAINED) as temporary:
                self._train(index, temporary)
            manifest = replace(manifest, trained=file_digest(work / TRAINED))
            if self.request.earlier is not None:
                manifest = with_kept_graph(manifest, work, self.request.earlier, self.store.blocks)
                manifest.write(work)
        kept = 0
        if self.request.earlier is not None:
            kept = manifest.rows
        manifest = self._measure(work, self._fill(work, manifest))
        return manifest, manifest.rows - kept

    def _train(self, index: FaissIndex, path: Path) -> None:
        """Write an index without rows to a file: one that has learned from the vectors, or an earlier one that has."""
        earlier = self.request.earlier
        if earlier is not None and not index.index.is_trained:
            shutil.copyfile(earlier / TRAINED, path)
            return
        self.step("training")
        try:
            index.train(self.store.blocks, self.request.device)
        except InputError:
            shutil.rmtree(path.parent)
            raise
        index.write(path)

    def _empty(self, factory: str) -> FaissIndex:
        """Return an index without rows; an index that cannot be built is refused here, before anything is written."""
        request = self.request
        store = self.store
        similarity = request.similarity_of(store.origin)
        store.origin.check_similarity(similarity)
        recipe = replace(self.recipe, factory=factory)
        rows = len(store.blocks)
        index = check_recipe(recipe, store.dimension, similarity, request.settings, rows)
        check_room(min(rows, request.file_rows or rows), index.row_bytes)
        return index

    def _for_building(self) -> dict[str, int]:
        """Return the parameters of building, without those of searching."""
        return {key: value for key, value in self.request.settings.items() if key not in EFFORTS}

    def _begun_manifest(self, work: Path) -> IndexManifest:
        """Return the manifest that an interrupted build of the same index has left, or a new one in an empty folder."""
        store = self.store
        request = self.request
        built_for = len(store.blocks)
        if request.earlier is not None:
            built_for = IndexManifest.read(request.earlier).built_for
        fresh = IndexManifest(
            **vars(self.recipe),
            similarity=request.similarity_of(store.origin),
            dimension=store.dimension,
            encoder=store.origin.of_encoder(),
            query_prompt=request.query_prompt,
            shards=store.vector_digests,
            settings=self._for_building(),
            built_for=built_for,
            faiss=str(require_faiss().__version__),
        )
        with suppress(InputError):
            begun = IndexManifest.read(work)
            is_same = replace(begun, files=[], efforts={}, recall=None, trained="", format=1) == fresh
            if is_same and (request.earlier is not None or not begun.has_nodes):
                return begun
        if work.is_symlink():
            work.unlink()
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        return fresh

    def _fill(self, place: Path, manifest: IndexManifest) -> IndexManifest:
        """Add the rows that are not in the files yet, and return the new manifest."""
        if manifest.kind == ann.FLAT:
            manifest.write(place)
            return manifest
        empty = FaissIndex.read(place / TRAINED, manifest.similarity, mapped=False)
        size = self.request.file_rows or max(FILE_BYTES // empty.row_bytes, 1)
        self.progress(manifest.rows)
        rows = len(self.store.blocks)
        lacking = spans(place, manifest, rows, size)
        replaced = [span.grown for span in lacking]
        files = [file for file in manifest.files if file not in replaced]
        for file in self._filled(place, manifest, lacking):
            files.append(file)
            version = str(require_faiss().__version__)
            manifest = replace(manifest, files=list(files), recall=None, faiss=version)
            manifest.write(place)
        clear(place, manifest)
        return manifest

    def _filled(self, place: Path, manifest: IndexManifest, lacking: Sequence[FileSpan]) -> Iterator[IndexFile]:
        """Yield the file of each span when it has been built, here or by the workers."""
        if self.pool is None:
            for span in lacking:
                yield fill_file(self.store, place, manifest, span, self.progress, self.request.device)
            return
        files = self.pool.map(lacking, fill_in_worker, self.store.folder.resolve(), place.resolve(), manifest)
        for file, span in zip(files, lacking, strict=True):
            self.progress(span.end - span.begin)
            yield file

    def _measure(self, place: Path, manifest: IndexManifest) -> IndexManifest:
        """Measure recall and speed, choose the search parameter, and write both into the manifest."""
        store = self.store
        request = self.request
        if manifest.kind == ann.FLAT or not len(store.blocks):
            return manifest
        self.step("measuring recall against exact search")
        searcher = store.open_searcher(place, manifest)
        reference = sample(store.blocks, manifest.similarity, request.queries)
        fixed = {key: value for key, value in request.settings.items() if key in EFFORTS}
        measured = tune(searcher, reference, request.target, fixed)
        measured["measured_rows"] = len(store.blocks)
        manifest = replace(manifest, recall=measured, efforts=searcher.efforts)
        manifest.write(place)
        return manifest
