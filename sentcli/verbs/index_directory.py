"""``index`` of a directory: files of text or a table of vectors become one, and its indexes are built and measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.cluster import ClusterOptions
from sentcli.cluster.pool import Pool, open_cluster
from sentcli.command.result import Clock, Record, Result, failed, kept_if_interrupted
from sentcli.encoder import load_encoder
from sentcli.errors import InputError
from sentcli.io.copies import FolderCopy
from sentcli.io.places import Place
from sentcli.io.sources import Source, open_source
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.search import ann
from sentcli.search.bm25 import LANGUAGE
from sentcli.search.index import IndexRequest, indexed_so_far, rebuild_due
from sentcli.search.index_files import INDEX
from sentcli.search.options import IndexOptions
from sentcli.search.recall import recall_table
from sentcli.search.vector_directory import INDEXES, WORDS_ROWS, VectorDirectory
from sentcli.stores.directory.indexes import IndexesToBuild, indexes_to_build
from sentcli.stores.directory.indexing import (
    build_index,
    check_ray,
    check_request,
    folder_of_vectors,
    index_request,
    with_queries,
)
from sentcli.stores.filling import Filling, open_given
from sentcli.stores.options import TextOptions, WriteOptions
from sentcli.stores.passages import Cutting
from sentcli.stores.row_vectors import EncodedVectors, RowVectors

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class IndexJob:
    """What ``index`` is asked for: the groups of its options, as `verbs.index` declares them."""

    inputs: Sequence[str]
    index: IndexOptions
    text: TextOptions
    cutting: Cutting
    update: bool
    overwrite: bool
    query_prompt: str | None
    doc_prompt: str | None
    cluster: ClusterOptions

    @property
    def model(self) -> str | None:
        """The name of the model, if one is given."""
        return self.cutting.model

    @property
    def load(self) -> LoadOptions:
        """How it is loaded."""
        return self.cutting.load

    def request(self) -> IndexRequest | None:
        """Return the index of vectors that is asked for; None for one of words.

        Raises:
            InputError: for a setting that is none, or an unknown language.
        """
        return index_request(self.index, self.query_prompt, self.load, overwrite=self.overwrite)

    def indexes(self, request: IndexRequest | None, updated: Path | None) -> IndexesToBuild:
        """Return the indexes that the directory will have, with those of the directory that is updated."""
        return indexes_to_build(updated, request, self.index.language or LANGUAGE)

    def queries(self) -> Source | None:
        """Return the file of ``--queries``, by which the index is measured; None if rows of the corpus do.

        Raises:
            InputError: if it is not there.
        """
        if self.index.queries is None:
            return None
        return open_source(self.index.queries)

    def measured(
        self,
        indexes: IndexesToBuild,
        request: IndexRequest | None,
        store: VectorDirectory,
        encoder: SentenceEncoder | None,
        queries: Source | None,
    ) -> IndexesToBuild:
        """Return the indexes, of which the one that is asked for is measured with the queries, if a model is given."""
        if request is None or encoder is None:
            return indexes
        return indexes.measured_with(with_queries(request, store, encoder, self.doc_prompt, queries))


def index_directory(job: IndexJob, place: Place) -> Result:
    """Build an index over the vectors of a directory that is there.

    Args:
        job: what is asked for.
        place: of the directory, which may be a copy of one in an object store.
    """
    name = job.inputs[0]
    request = job.request()
    check_ray(job.cluster.ray, job.index.type, name)
    queries = job.queries()
    copy = place if isinstance(place, FolderCopy) else None
    with copy.making(INDEXES) if copy is not None else nullcontext():
        indexes = job.indexes(request, None)
        encoder = None
        if job.model is not None and request is not None:
            encoder = load_encoder(job.model, job.load)
        store = VectorDirectory.open(place.path, str(place))
        result = build_all(store, job.measured(indexes, request, store, encoder, queries), job.cluster)
        if copy is not None:
            copy.upload(INDEXES, last=(WORDS_ROWS, INDEX))
            console.note(f"the index is in {name}")
    return result


def index_files(job: IndexJob, output: Path) -> Result:
    """Write files of text, or a table of vectors, into a directory, and build its indexes.

    The directory that is replaced or updated stays until vectors and indexes are whole.

    Args:
        job: what is asked for.
        output: the directory.
    """
    request = job.request()
    check_ray(job.cluster.ray, job.index.type, None)
    queries = job.queries()
    with folder_of_vectors(output, replaced=job.overwrite or job.update) as folder:
        filling = _read(job, output)
        # which reads the indexes that are there: one that is damaged is named before anything is encoded
        indexes = job.indexes(request, output if job.update else None)
        with _loaded(job, filling) as (encoder, pool):
            vectors = _vectors(job, filling, encoder, pool, request)
            with kept_if_interrupted(Record("index", str(job.model)), Clock(), filling.so_far):
                summary = filling.write(vectors)
            store = VectorDirectory.open(folder, str(output))
            indexes = job.measured(indexes, request, store, encoder, queries)
        result = build_all(store, indexes, job.cluster)
    if summary.changes is None:
        return result
    return result.with_results(summary.changes.to_dict())


def compare_files(job: IndexJob, output: Path) -> Result:
    """Say what an update of a directory would change, and how long encoding would take; nothing is written."""
    clock = Clock()
    filling = _read(job, output)
    encoder = load_encoder(str(job.model), job.load)
    vectors = EncodedVectors.of_documents(encoder, job.load, job.doc_prompt, filling.passages)
    results = filling.compare(vectors)
    record = Record("index", str(job.model), {"dry_run": True}, results, encoder.environment(), clock.seconds)
    return Result.of(record)


def _read(job: IndexJob, output: Path) -> Filling:
    """Read and check the files.

    Raises:
        InputError: if a row or the directory is refused, or texts come without a model.
    """
    given = None
    if not job.cutting.options.passages:
        given = open_given(job.inputs, job.text, job.text.vector_field)
    filling = Filling.read(
        job.inputs,
        str(output),
        job.text,
        WriteOptions(resume=not job.text.append, append=job.text.append, overwrite=job.overwrite),
        job.cutting,
        update=job.update,
        stays_beside=True,
        given=given,
    )
    if given is None and job.model is None:
        raise InputError("--output encodes files of text: give the model with -m")
    return filling


def _loaded(job: IndexJob, filling: Filling) -> AbstractContextManager[tuple[SentenceEncoder | None, Pool | None]]:
    """Load the model where one is given, and workers on a cluster where texts are encoded."""
    if job.model is None:
        return nullcontext((None, None))
    if filling.given is not None:
        return nullcontext((load_encoder(job.model, job.load), None))
    return filling.opened(job.model, job.load, job.cluster)


def _vectors(
    job: IndexJob, filling: Filling, encoder: SentenceEncoder | None, pool: Pool | None, request: IndexRequest | None
) -> RowVectors:
    """Return what gives the rows their vectors.

    Raises:
        InputError: if the index cannot be built over them, or the model has not made those that are given.
    """
    if filling.given is not None:
        return filling.given_vectors(encoder, job.doc_prompt)
    assert encoder is not None
    if request is not None:
        check_request(request, filling.inputs.survey.rows, encoder, appended=filling.writing.append)
    return EncodedVectors.of_documents(encoder, job.load, job.doc_prompt, filling.passages, pool)


def build_all(store: VectorDirectory, indexes: IndexesToBuild, cluster: ClusterOptions) -> Result:
    """Build the indexes of a directory, and return the result of the one that was asked for, which is the last."""
    results = []
    if indexes.language is not None:
        results.append(index_words(store, indexes.language))
    for request in indexes.of_vectors:
        results.append(index_vectors(store, request, cluster))
    return results[-1]


def index_words(store: VectorDirectory, language: str) -> Result:
    """Build the BM25 index of a directory of vectors."""
    from sentcli.search import bm25

    clock = Clock()
    with console.working("indexing (bm25)") as step:
        step(f"{len(store.rows)} rows")
        rows = len(store.build_words(language))
    console.note(f"{store.origin.name}: {rows} rows in the index bm25, in {clock.seconds:.1f} s")
    protocol = {"kind": "bm25", **bm25.words_protocol(language=language)}
    results = {"kind": "bm25", "index": store.origin.name, "rows": rows, "rows_cut": rows}
    return Result.of(Record("index", "bm25", protocol, results, environment(None, None), clock.seconds))


def index_vectors(store: VectorDirectory, request: IndexRequest, cluster: ClusterOptions) -> Result:
    """Build an index of faiss."""
    clock = Clock()
    facts = environment("cpu", "fp32", revision=store.origin.revision)
    begun = Record("index", store.origin.model, environment=facts)
    with kept_if_interrupted(begun, clock, lambda: indexed_so_far(store, request)), ExitStack() as stack:
        pool = None
        if cluster.ray is not None and request.kind != ann.FLAT:
            # there is a file for each shard, if nothing else is asked for
            file_rows = request.file_rows or store.manifest.shard_rows
            request = replace(request, file_rows=file_rows)
            most = -(-len(store.blocks) // (file_rows or 1))
            _, workers = stack.enter_context(open_cluster(cluster, most=most, on_cpu=True))
            pool = stack.enter_context(Pool(workers))
        manifest, added = build_index(store, request, pool)
    origin = store.origin
    protocol = {key: getattr(manifest, key) for key in ("kind", "factory", "similarity", "query_prompt", "settings")}
    protocol |= {"target": request.target, **manifest.encoder, "revision": origin.revision, "weights": origin.weights}
    results = {key: getattr(manifest, key) for key in ("kind", "factory", "rescore", "efforts", "recall", "built_for")}
    results |= {"index": origin.name, "rows": len(store.rows), "size_bytes": manifest.bytes}
    results |= {"rows_added": added, "dead_nodes": manifest.dead, "rebuild_due": rebuild_due(manifest, request.target)}
    overview = {
        "index": origin.name,
        "kind": manifest.kind,
        "factory": manifest.factory,
        "rows": len(store.rows),
        "similarity": manifest.similarity,
        "size": f"{manifest.bytes / 1e6:,.1f} MB",
    }
    tables = []
    if manifest.recall is not None:
        tables.append(recall_table(manifest.kind, manifest.recall))
    record = replace(begun, protocol=protocol, results=results, seconds=clock.seconds)
    return Result.of(record, tables, overview=overview)


def check_indexes(folder: Path) -> Result:
    """Compare the files of all indexes of a directory with their checksums."""
    clock = Clock()
    store = VectorDirectory.open(folder)
    problems: list[str] = []
    for name in store.indexes:
        problems += store.check_index(name)
    results = {"indexes": store.indexes, "problems": problems}
    facts = environment(None, None)
    record = Record("index", store.origin.model, results=results, environment=facts, seconds=clock.seconds)
    result = Result.of(record)
    if problems:
        raise failed(result, "; ".join(problems) + ": build the index again with --overwrite")
    console.note(f"{store.origin.name}: {', '.join(store.indexes) or 'no indexes'}; all files are whole")
    return result
