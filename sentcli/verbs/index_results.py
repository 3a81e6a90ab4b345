"""What ``index`` builds, and what it says of it: indexes of vectors and of words, and collections."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.cluster import ClusterOptions
from sentcli.cluster.pool import open_cluster
from sentcli.command.result import Clock, Record, Result, failed, kept_if_interrupted
from sentcli.corpora.indexing import build_index
from sentcli.corpora.opening import open_corpus
from sentcli.corpora.updating import IndexesToBuild
from sentcli.machine import environment
from sentcli.search.options import SearchOptions
from sentcli.search.recall import recall_table

if TYPE_CHECKING:
    from sentcli.corpora.collections import CollectionUpdating
    from sentcli.model.options import LoadOptions
    from sentcli.search.index import IndexRequest
    from sentcli.search.options import CorpusOptions
    from sentcli.search.vector_directory import VectorDirectory


def write_collection(updating: CollectionUpdating) -> Result:
    """Write rows into a collection, and say how many."""
    from sentcli.io.dataset import CANARIES

    clock = Clock()
    begun = Record("index", environment=environment("cpu", "fp32"))
    with kept_if_interrupted(begun, clock, updating.so_far):
        update = updating.run()
    counts, record = update.counts, update.record
    facts = "".join(f", {name} {value}" for name, value in update.facts.items())
    console.note(
        f"{update.title}: {counts['written']:,} rows written, {counts['encoded']:,} of them encoded, "
        f"{counts['unchanged']:,} were there, "
        f"{counts['deleted']:,} deleted; it has {counts['rows']:,}{facts}"
    )
    protocol = {key: getattr(record, key) for key in ("kind", "similarity", "efforts", "language", "dimension")}
    protocol |= record.settings
    protocol.pop(CANARIES, None)
    precision = "int8" if update.in_int8 else "fp32"
    database = updating.database
    of_collection = {"to": updating.options.to, "collection": database.name, "kind": record.kind}
    tables = []
    if record.recall is not None:
        tables.append(recall_table(record.kind, record.recall))
    written = replace(
        begun,
        model=update.model,
        protocol=protocol,
        results={**of_collection, "recall": record.recall, **update.facts, **counts},
        environment=environment("cpu", precision, revision=record.settings.get("revision")),
        seconds=clock.seconds,
    )
    return Result.of(written, tables)


def compare_collection(updating: CollectionUpdating) -> Result:
    """Say what writing into a collection would change."""
    clock = Clock()
    results = {"to": updating.options.to, "collection": updating.database.name, **updating.dry_run()}
    facts = environment("cpu", "fp32")
    return Result.of(Record("index", "", {"dry_run": True}, results, facts, clock.seconds))


def check_collection(
    options: CorpusOptions, model: str | None, load: LoadOptions, doc_prompt: str | None, target: float
) -> Result:
    """Measure the index of a collection as it is, and compare its vectors with those of a model.

    Args:
        options: the collection, and the fields of one that another program has made.
        model: the name of the model; None takes the one that the collection names, if it does.
        load: how the model is loaded.
        doc_prompt: the text in front of each document; None takes the model's own.
        target: the recall that is aimed at.
    """
    from sentcli.corpora.checking import check_index, check_model

    clock = Clock()
    with open_corpus(options, SearchOptions(), load) as corpus:
        recall = check_index(corpus, target)
        results = {"index": corpus.title, "rows": len(corpus), "recall": recall, "vectors_of": None}
        tables = []
        if recall is not None:
            as_it_is = {**recall, "chosen": recall["present"]}
            tables.append(recall_table(recall["kind"], as_it_is))
        facts = environment("cpu", "fp32")
        begun = Record("index", model or "", {"check": True, "target": target}, results, facts)
        made_by, problem = check_model(corpus, model, load, doc_prompt)
        record = replace(
            begun, model=made_by, results={**results, "vectors_of": made_by or None}, seconds=clock.seconds
        )
        if problem is not None:
            unlike = replace(begun, seconds=clock.seconds)
            raise failed(Result.of(unlike, tables), problem)
    return Result.of(record, tables)


def build_all(store: VectorDirectory, indexes: IndexesToBuild, cluster: ClusterOptions) -> Result:
    """Build the indexes of a directory, and return the result of the one that was asked for, which is the last."""
    results = []
    if indexes.language is not None:
        results.append(index_words(store, indexes.language, indexes.before))
    for request in indexes.of_vectors:
        results.append(index_vectors(store, request, cluster))
    return results[-1]


def index_words(store: VectorDirectory, language: str, before: VectorDirectory | None) -> Result:
    """Build the BM25 index of a directory of vectors, with the words that a directory of earlier rows knows."""
    from sentcli.search import bm25

    clock = Clock()
    with console.working("indexing (bm25)") as step:
        step(f"{len(store.rows)} rows")
        built, number = store.build_words(language, before)
    console.note(
        f"{store.origin.name}: {len(built)} rows in the index bm25, {number} of them cut into words, in "
        f"{clock.seconds:.1f} s"
    )
    protocol = {"kind": "bm25", **bm25.protocol(language=language)}
    results = {"kind": "bm25", "index": store.origin.name, "rows": len(built), "rows_cut": number}
    return Result.of(Record("index", "bm25", protocol, results, environment(None, None), clock.seconds))


def index_vectors(store: VectorDirectory, request: IndexRequest, cluster: ClusterOptions) -> Result:
    """Build an index of faiss."""
    from sentcli.cluster.pool import Pool
    from sentcli.search import ann
    from sentcli.search.index import rebuild_due, rows_so_far

    clock = Clock()
    facts = environment("cpu", "fp32", revision=store.origin.revision)
    begun = Record("index", store.origin.model, environment=facts)
    with kept_if_interrupted(begun, clock, lambda: rows_so_far(store, request)), ExitStack() as stack:
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
    from sentcli.search.vector_directory import VectorDirectory

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
