"""An index beside the vectors of a directory, of words or of vectors; files of text are encoded into it first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.errors import InputError
from sentcli.verbs.cluster_work import open_cluster
from sentcli.verbs.index_options import TextOptions, recall_table
from sentcli.verbs.options import ClusterOptions
from sentcli.verbs.outcome import Outcome
from sentcli.verbs.retrieve_corpus import read_queries

if TYPE_CHECKING:
    from sentcli.bulk.encode import ShardMaker
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.index import IndexRequest
    from sentcli.search.store import IndexManifest, Store

    Prepare = Callable[[Callable[[int, int], None]], AbstractContextManager[SentenceEncoder | None]]
    """Encodes files of text, if there are any, after a check of rows and dimension, and returns the model or None."""

WORDS = "bm25"


def index_words(folder: Path, language: str, prepare: Prepare | None) -> Outcome:
    """Build the BM25 index of a directory of vectors, after encoding files of text into it if there are any."""
    from sentcli.search.bm25 import check_language, described, require_bm25s
    from sentcli.search.store import Store

    outcome = Outcome("index", WORDS, {"kind": WORDS, **described(language=language)})
    outcome.ran_on(None, None)
    require_bm25s()
    check_language(language)
    if prepare is not None:
        with prepare(lambda rows, dimension: None):
            pass
    store = Store.open(folder)
    with console.working("indexing (bm25)") as step:
        step(f"{len(store.rows)} rows")
        built = store.build_words(language)
    console.note(f"{store.origin.name}: {len(built)} rows in the index bm25")
    return outcome.finish({"kind": WORDS, "index": store.origin.name, "rows": len(built)})


def index_vectors(
    folder: Path,
    request: IndexRequest,
    queries: str | None,
    prepare: Prepare,
    doc_prompt: str | None,
    cluster: ClusterOptions,
    *,
    append: bool,
) -> Outcome:
    """Build an index of faiss; an index that cannot be built is refused before text is encoded."""
    from sentcli.io.sources import open_source
    from sentcli.search import ann
    from sentcli.search import index as indexing
    from sentcli.search.exact import require_faiss
    from sentcli.search.store import Store

    outcome = Outcome("index")
    outcome.ran_on("cpu", "fp32")
    require_faiss()
    source = open_source(queries) if queries is not None else None

    def check(rows: int, dimension: int) -> None:
        least_rows = max(rows, ann.LEAST * 256) if append else rows  # the directory has rows already
        recipe = ann.recipe(request.kind, least_rows, dimension)
        indexing.check_recipe(recipe, dimension, request.similarity, request.settings)

    with prepare(check) as encoder:
        store = Store.open(folder)
        if encoder is not None:
            origin = store.origin
            origin.check_encoder(encoder, (origin.prompt or "") if doc_prompt is None else doc_prompt, store.dimension)
        if source is not None:
            if encoder is None:
                raise InputError("--queries are encoded: give the model with -m")
            texts = [text for _, text in read_queries(source)]
            prompt = encoder.role_prompt("query") if request.query_prompt is None else request.query_prompt
            vectors = encoder.encode(texts, prompt=prompt)
            request = replace(request, queries=store.origin.fitted(vectors, normalized=encoder.spec.normalizes))
    if cluster.ray is None or request.kind == ann.FLAT:
        manifest = _build(store, request)
    else:
        manifest = _build_on_ray(store, request, cluster)
    outcome.model = store.origin.model
    outcome.protocol = {
        **{key: getattr(manifest, key) for key in ("kind", "factory", "similarity", "query_prompt", "settings")},
        "target": request.target,
        **manifest.encoder,
    }
    results = {
        **{key: getattr(manifest, key) for key in ("kind", "factory", "rescore", "efforts", "recall", "built_for")},
        "index": store.origin.name,
        "rows": len(store.rows),
        "size_bytes": manifest.bytes,
    }
    return outcome.finish(
        results, [recall_table(manifest.kind, manifest.recall)] if manifest.recall is not None else []
    )


def encode_into(
    files: list[str],
    folder: Path,
    text: TextOptions,
    doc_prompt: str | None,
    load: Callable[[int], tuple[SentenceEncoder, ShardMaker | None]],
    check: Callable[[int, int], None],
    *,
    overwrite: bool,
) -> SentenceEncoder:
    """Encode files of text as `encode` does; an interrupted directory is resumed.

    Args:
        files: of text.
        folder: the directory of vectors that is written.
        text: how the files are read.
        doc_prompt: text in front of each document; None is the model's own.
        load: loads the model, after the files have been read; given the number of shards, it returns the encoder and
            what makes shards with it, if that is not this process.
        check: is called with the numbers of rows and dimensions before anything is encoded.
        overwrite: make the vectors in the directory's successor, if it exists.
    """
    from sentcli import bulk
    from sentcli.encoder.announce import warn_truncated
    from sentcli.io.readers import ReadOptions

    output, resume = str(folder), not text.append
    bulk.check_target(output, overwrite=overwrite, resume=resume, append=text.append)
    there = None if overwrite else bulk.manifest_of(output)
    types, shard_rows = (there.types, there.shard_rows) if there else ({}, bulk.EncodeSettings.shard_rows)
    inputs = bulk.read_inputs(files, ReadOptions(text.text_field, text.id_field, types=types), output=output)
    encoder, elsewhere = load(-(-inputs.survey.rows // shard_rows))
    check(inputs.survey.rows, encoder.dimension)
    prompt = encoder.role_prompt("document") if doc_prompt is None else doc_prompt
    settings = bulk.EncodeSettings(
        shard_rows=shard_rows,
        overwrite=overwrite,
        stays_beside=True,
        resume=resume,
        append=text.append,
        prompt=prompt,
        elsewhere=elsewhere,
    )
    with console.resumable(output), console.encoding("encoding", inputs.survey.rows) as bar:
        summary = bulk.encode_files(encoder, inputs, output, settings, progress=bar)
    console.note(f"{summary.counts.rows} rows encoded -> {output}, which has {summary.rows}")
    warn_truncated(encoder.spec.max_length, summary.counts.truncated, summary.counts.tokens_lost, what="rows")
    return encoder


def _build(store: Store, request: IndexRequest) -> IndexManifest:
    from sentcli.search import ann
    from sentcli.search.index import GROWN, build

    if request.similarity == "dot" and request.kind == "hnsw":
        console.warn("a graph over vectors of different lengths misses many neighbours (dot): look at the recall below")
    if repeated := store.rows.repeated_ids():
        console.warn(f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart")
    rows = len(store.blocks)
    with console.counting(f"indexing ({request.kind})", rows) as progress:
        manifest, added = build(store, request, progress, lambda step: console.detail(f"{request.kind}: {step}"))
    if manifest.kind == ann.FLAT:
        console.note(f"{store.origin.name}: {rows} rows are searched exactly; nothing had to be built")
        return manifest
    before = f" of {manifest.rows}" if added != manifest.rows else ""
    console.note(
        f"{store.origin.name}: {added}{before} rows added to the index {manifest.kind} ({manifest.factory}), "
        f"{manifest.bytes / 1e6:,.1f} MB"
    )
    recall = manifest.recall
    if recall is not None and recall["chosen"]["recall"] < request.target:
        console.warn(
            f"recall@{recall['k']} is {recall['chosen']['recall']:.3f}, not the {request.target:g} aimed at; "
            "another kind, or a factory string with more clusters or longer codes, may reach it"
        )
    if manifest.rows > GROWN * manifest.built_for:
        console.warn(f"the index was made for {manifest.built_for} rows: build it again with --overwrite")
    return manifest


def _build_on_ray(store: Store, request: IndexRequest, cluster: ClusterOptions) -> IndexManifest:
    """Build the files of an index on a cluster; there is one for each shard, if nothing else is asked for."""
    from sentcli.search.on_ray import filling_on_ray

    request = replace(request, file_rows=request.file_rows or store.manifest.shard_rows)
    files = -(-len(store.blocks) // (request.file_rows or 1))
    with open_cluster(cluster, most=files, on_cpu=True) as (_, workers):
        return _build(store, replace(request, fill=filling_on_ray(workers)))


def check_indexes(folder: Path) -> Outcome:
    """Compare the files of all indexes of a directory with their checksums."""
    from sentcli.search.store import Store

    outcome, store = Outcome("index"), Store.open(folder)
    outcome.ran_on(None, None)
    outcome.model = store.origin.model
    problems = [problem for name in store.indexes for problem in store.check_index(name)]
    outcome.finish({"indexes": store.indexes, "problems": problems})
    if problems:
        raise outcome.failed("; ".join(problems) + ": build the index again with --overwrite")
    console.note(f"{store.origin.name}: {', '.join(store.indexes) or 'no indexes'}; all files are whole")
    return outcome
