"""An index beside the vectors of a directory, of words or of vectors; files of text are encoded into it first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.verbs.cluster_work import open_cluster
from sentcli.verbs.options import ClusterOptions, TextOptions, recall_table
from sentcli.verbs.result import Result
from sentcli.verbs.retrieve_corpus import read_queries

if TYPE_CHECKING:
    from sentcli.bulk.files import Inputs
    from sentcli.bulk.shards import EncodeSettings
    from sentcli.cluster_pool import Pool
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.sources import Source
    from sentcli.model.options import LoadOptions
    from sentcli.search.index import IndexRequest
    from sentcli.search.store import IndexManifest, Store

WORDS = "bm25"


def index_words(store: Store, language: str) -> Result:
    """Build the BM25 index of a directory of vectors."""
    from sentcli.search.bm25 import described

    outcome = Result("index", WORDS, {"kind": WORDS, **described(language=language)})
    outcome.ran_on(None, None)
    with console.working("indexing (bm25)") as step:
        step(f"{len(store.rows)} rows")
        built = store.build_words(language)
    console.note(f"{store.origin.name}: {len(built)} rows in the index bm25")
    return outcome.finish({"kind": WORDS, "index": store.origin.name, "rows": len(built)})


def index_vectors(store: Store, request: IndexRequest, cluster: ClusterOptions) -> Result:
    """Build an index of faiss."""
    from sentcli.cluster_pool import Pool
    from sentcli.search import ann

    outcome = Result("index", store.origin.model)
    outcome.ran_on("cpu", "fp32")
    if cluster.ray is None or request.kind == ann.FLAT:
        manifest = _build(store, request)
    else:  # there is a file for each shard, if nothing else is asked for
        file_rows = request.file_rows or store.manifest.shard_rows
        most = -(-len(store.blocks) // file_rows)
        with open_cluster(cluster, most=most, on_cpu=True) as (_, workers), Pool(workers) as pool:
            manifest = _build(store, replace(request, file_rows=file_rows), pool)
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
    tables = [recall_table(manifest.kind, manifest.recall)] if manifest.recall is not None else []
    return outcome.finish(results, tables)


@dataclass(frozen=True)
class TextInput:
    """Files of text that are encoded into a directory before it is indexed."""

    inputs: Inputs
    settings: EncodeSettings

    @property
    def shards(self) -> int:
        """The number of shards of these files."""
        return -(-self.inputs.survey.rows // self.settings.shard_rows)


def read_texts(files: list[str], folder: Path, text: TextOptions, *, overwrite: bool) -> TextInput:
    """Read and check files of text as `encode` does; an interrupted directory is resumed.

    Args:
        files: of text.
        folder: the directory of vectors that is written.
        text: how the files are read.
        overwrite: make the vectors in the directory's successor, if it exists.
    """
    from sentcli import bulk
    from sentcli.io.readers import ReadOptions

    output, resume = str(folder), not text.append
    bulk.check_target(output, overwrite=overwrite, resume=resume, append=text.append)
    there = None if overwrite else bulk.manifest_of(output)
    types, shard_rows = (there.types, there.shard_rows) if there else ({}, bulk.EncodeSettings.shard_rows)
    inputs = bulk.read_inputs(files, ReadOptions(text.text_field, text.id_field, types=types), output=output)
    settings = bulk.EncodeSettings(
        shard_rows=shard_rows, overwrite=overwrite, stays_beside=True, resume=resume, append=text.append
    )
    return TextInput(inputs, settings)


def check_buildable(request: IndexRequest, texts: TextInput, dimension: int) -> None:
    """Refuse an index that cannot be built over the vectors of texts, before they are encoded."""
    from sentcli.search import ann
    from sentcli.search.index import check_recipe

    rows = texts.inputs.survey.rows
    if texts.settings.append:  # the directory has rows already
        rows = max(rows, ann.LEAST * 256)
    check_recipe(ann.recipe(request.kind, rows, dimension), dimension, request.similarity, request.settings)


def encode_into(
    folder: Path,
    texts: TextInput,
    encoder: SentenceEncoder,
    pool: Pool | None,
    options: LoadOptions,
    doc_prompt: str | None,
) -> None:
    """Encode texts into a directory, except those whose vectors are in the cache, as after ``retrieve`` on the file.

    Args:
        folder: the directory.
        texts: what `read_texts` returned.
        encoder: the model.
        pool: workers on a cluster that make the shards, if not this process.
        options: how the model was loaded.
        doc_prompt: text in front of each document; None is the model's own.
    """
    from sentcli import bulk
    from sentcli.encoder.announce import warn_truncated
    from sentcli.evaluation.evaluated import EvaluatedModel

    settings = replace(
        texts.settings,
        prompt=encoder.role_prompt("document") if doc_prompt is None else doc_prompt,
        pool=pool,
        encode=EvaluatedModel.of(encoder, options).encode_distinct if pool is None else None,
    )
    with console.resumable(str(folder)), console.encoding("encoding", texts.inputs.survey.rows) as bar:
        summary = bulk.encode_files(encoder, texts.inputs, str(folder), settings, progress=bar)
    console.note(f"{summary.counts.rows} rows encoded -> {folder}, which has {summary.rows}")
    warn_truncated(encoder.spec.max_length, summary.counts.truncated, summary.counts.tokens_lost, what="rows")


def with_queries(
    request: IndexRequest, store: Store, encoder: SentenceEncoder, doc_prompt: str | None, queries: Source | None
) -> IndexRequest:
    """Return a request with the vectors of the queries of ``--queries``, after comparing the model with the vectors."""
    origin = store.origin
    origin.check_encoder(encoder, (origin.prompt or "") if doc_prompt is None else doc_prompt, store.dimension)
    if queries is None:
        return request
    prompt = encoder.role_prompt("query") if request.query_prompt is None else request.query_prompt
    vectors = encoder.encode([text for _, text in read_queries(queries)], prompt=prompt)
    return replace(request, queries=origin.fitted(vectors, normalized=encoder.spec.normalizes))


def _build(store: Store, request: IndexRequest, pool: Pool | None = None) -> IndexManifest:
    from sentcli.search import ann
    from sentcli.search.index import GROWN, build

    if request.similarity == "dot" and request.kind == "hnsw":
        console.warn("a graph over vectors of different lengths misses many neighbours (dot): look at the recall below")
    if repeated := store.rows.repeated_ids():
        console.warn(f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart")
    rows = len(store.blocks)
    with console.counting(f"indexing ({request.kind})", rows) as progress:
        manifest, added = build(store, request, progress, lambda step: console.detail(f"{request.kind}: {step}"), pool)
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


def check_indexes(folder: Path) -> Result:
    """Compare the files of all indexes of a directory with their checksums."""
    from sentcli.search.store import Store

    outcome, store = Result("index"), Store.open(folder)
    outcome.ran_on(None, None)
    outcome.model = store.origin.model
    problems = [problem for name in store.indexes for problem in store.check_index(name)]
    outcome.finish({"indexes": store.indexes, "problems": problems})
    if problems:
        raise outcome.failed("; ".join(problems) + ": build the index again with --overwrite")
    console.note(f"{store.origin.name}: {', '.join(store.indexes) or 'no indexes'}; all files are whole")
    return outcome
