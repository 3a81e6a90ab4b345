"""Indexes on disk: ``indexes/NAME/`` in a directory that `encode` wrote, built once, extended when rows are added.

An index is one or several files of faiss over consecutive rows, and ``index.json``, which is renewed after each file:
what it does not name is not there. A new index grows under another name until it is whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.digests import file_digest
from sentcli.search import ann, recall
from sentcli.search.ann import FaissIndex, FaissRecipe
from sentcli.search.exact import require_faiss
from sentcli.search.index_manifest import MANIFEST, TRAINED, IndexFile, IndexManifest
from sentcli.search.neighbours import Similarity, Vectors
from sentcli.search.store import Store, read_part

FILE_BYTES = 2**32
"""That one file of an index takes, about."""
STEP = 16_384
"""Rows that are added at a time."""
GROWN = 4
"""A trained index that has so many times the rows it was built for had better be built again."""


@dataclass(frozen=True)
class IndexRequest:
    """What to build."""

    kind: str
    similarity: Similarity = "cosine"
    query_prompt: str | None = None
    settings: dict[str, int] = field(default_factory=dict)
    file_rows: int | None = None
    """Rows in a file; None fills `FILE_BYTES`."""
    target: float = recall.TARGET
    queries: Vectors | None = None
    """Real ones to measure with; None takes rows of the corpus."""
    overwrite: bool = False


def build(
    store: Store, request: IndexRequest, progress: Callable[[int], None], step: Callable[[str], None]
) -> tuple[IndexManifest, int]:
    """Build an index, or add to it the rows that came since, and measure its recall.

    Args:
        store: whose vectors are indexed.
        request: how.
        progress: called with the number of rows that were added.
        step: called with what is being done.

    Returns:
        What is there now, and how many rows were added to it.

    Raises:
        InputError: for a kind that does not fit, or an index of that name that is of something else.
    """
    recipe = ann.recipe(request.kind, len(store.blocks), store.dimension)
    place = store.place(recipe.name)
    with _alone(place):
        if place.exists() and not request.overwrite:
            found = _extendable(place, store, request)
            check_request(replace(request, kind=found.kind), found.recipe, store)
            before = found.rows
            found = _fill(place, found, store, request, progress)
            return _measure(place, found, store, request, step), found.rows - before
        check_request(request, recipe, store)
        work = place.with_name(f".{recipe.name}.building")
        manifest = _begun(work, recipe, store, request)
        if not manifest.files and recipe.kind != ann.FLAT:
            step("training")
            try:
                manifest = replace(manifest, trained=_train(work, recipe, store, request))
            except InputError:
                shutil.rmtree(work)
                raise
        manifest = _fill(work, manifest, store, request, progress)
        manifest = _measure(work, manifest, store, request, step)
        with replacing(place) as temporary:  # the old one is there until the new one is whole
            work.rename(temporary)
    return manifest, manifest.rows


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep other processes from building the same index meanwhile.

    Raises:
        InputError: if one does.
    """
    from filelock import FileLock, Timeout

    place.parent.mkdir(exist_ok=True)
    lock = place.with_name(f".{place.name}.lock")
    try:
        with FileLock(lock, timeout=0):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
    except Timeout as error:
        raise InputError(f"another process builds {place}: wait for it, or end it") from error


def check_request(request: IndexRequest, recipe: FaissRecipe, store: Store) -> None:
    """Refuse what cannot be built, before anything is made.

    Raises:
        InputError: for a factory string or a parameter that faiss does not take, or vectors without lengths (int8) that
            are to be compared by their inner products.
    """
    check_recipe(recipe, store.dimension, request.similarity, request.settings)
    store.check_similarity(request.similarity)


def check_recipe(recipe: FaissRecipe, dimension: int, similarity: Similarity, settings: dict[str, int]) -> None:
    """Refuse a factory string or a parameter that faiss does not take.

    Raises:
        InputError: if so.
    """
    index = FaissIndex.empty(recipe.factory, dimension, similarity)
    for parameter, value in settings.items():
        index.set(parameter, value)


def _extendable(place: Path, store: Store, request: IndexRequest) -> IndexManifest:
    """Return what is there, if it may be added to."""
    found = IndexManifest.read(place)
    store.check_manifest(found, place.name)
    for key in ("kind", "similarity", "query_prompt"):
        here, now = getattr(found, key), getattr(request, key)
        if here != now:
            raise InputError(f"{place} was built with {key} {here!r}, not {now!r}: build it again with --overwrite")
    building = _for_building(request)
    if any(found.settings.get(key) != value for key, value in building.items()):
        raise InputError(f"{place} was built with {found.settings or 'no settings'}: build it again with --overwrite")
    return replace(found, shards=store.vector_digests)


def _for_building(request: IndexRequest) -> dict[str, int]:
    """Return the parameters that an index is built with, not those of searches."""
    return {key: value for key, value in request.settings.items() if key not in ann.EFFORTS}


def _begun(work: Path, recipe: FaissRecipe, store: Store, request: IndexRequest) -> IndexManifest:
    """Return what an interrupted build of the same index has left, or an empty one."""
    fresh = IndexManifest(
        kind=recipe.kind,
        factory=recipe.factory,
        rescore=recipe.rescore,
        similarity=request.similarity,
        dimension=store.dimension,
        encoder=store.encoder,
        query_prompt=request.query_prompt,
        shards=store.vector_digests,
        settings=_for_building(request),
        built_for=len(store.blocks),
        faiss=str(require_faiss().__version__),
    )
    try:
        left = IndexManifest.read(work)
    except InputError:
        left = None
    if left is not None and replace(left, files=[], efforts={}, recall=None, trained="") == fresh:
        return left
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return fresh


def _train(work: Path, recipe: FaissRecipe, store: Store, request: IndexRequest) -> str:
    """Write an index without rows; return its checksum."""
    index = FaissIndex.empty(recipe.factory, store.dimension, request.similarity)
    for parameter, value in request.settings.items():
        index.set(parameter, value)
    if index.wants:
        index.train(store.blocks.sample(index.wants)[1])
    with replacing(work / TRAINED) as temporary:
        index.write(temporary)
    return file_digest(work / TRAINED)


def _fill(
    place: Path, manifest: IndexManifest, store: Store, request: IndexRequest, progress: Callable[[int], None]
) -> IndexManifest:
    """Add the rows that are not in the files yet."""
    if manifest.kind == ann.FLAT:
        manifest.write(place)
        return manifest
    _clear(place, manifest)
    empty = FaissIndex.read(place / TRAINED, manifest.similarity, mapped=False)
    size = request.file_rows or max(FILE_BYTES // empty.row_bytes, 1)
    progress(manifest.rows)
    while manifest.rows < len(store.blocks):
        last = manifest.files[-1] if manifest.files and manifest.files[-1].rows < size else None
        first = manifest.rows
        if last is None:
            index = FaissIndex.read(place / TRAINED, manifest.similarity, mapped=False)
        else:
            index = read_part(place, last, manifest, mapped=False)
        begin = last.first if last is not None else first
        for block in store.blocks.since(first, STEP):
            block = block[: size - len(index)]
            index.add(block)
            progress(len(block))
            if len(index) >= size:
                break
        file = _write(place, index, begin)
        kept = manifest.files[:-1] if last is not None else manifest.files
        manifest = replace(manifest, files=[*kept, file], recall=None, faiss=str(require_faiss().__version__))
        manifest.write(place)
        _clear(place, manifest)
    return manifest


def _clear(place: Path, manifest: IndexManifest) -> None:
    """Delete files that the manifest does not name: those of an interrupted run, and that a longer one replaced."""
    named = {MANIFEST, TRAINED, *(file.name for file in manifest.files)}
    for path in place.iterdir():
        if path.name not in named and path.is_file():
            path.unlink()


def _write(place: Path, index: FaissIndex, first: int) -> IndexFile:
    path = place / f"rows-{first:010d}-{first + len(index):010d}.faiss"
    with replacing(path) as temporary:
        index.write(temporary)
    return IndexFile(path.name, first, len(index), path.stat().st_size, file_digest(path))


def _measure(
    place: Path, manifest: IndexManifest, store: Store, request: IndexRequest, step: Callable[[str], None]
) -> IndexManifest:
    """Measure recall and speed, choose the search parameter, and keep both."""
    if manifest.kind == ann.FLAT or not len(store.blocks):
        return manifest
    step("measuring recall against exact search")
    searcher = store.open_searcher(place, manifest)
    fixed = None
    for key in ann.EFFORTS.keys() & request.settings.keys():
        fixed = request.settings[key]
    if request.queries is None:
        sample, of = recall.of_rows(store.blocks, manifest.similarity), "rows of the corpus"
    else:
        sample, of = recall.of_queries(request.queries, store.blocks, manifest.similarity), "queries"
    curve = recall.tune(searcher, sample, request.target, of, fixed)
    measured = {**curve.to_dict(), "measured_rows": len(store.blocks)}
    manifest = replace(manifest, recall=measured, efforts=searcher.efforts)
    manifest.write(place)
    return manifest
