"""Arguments that several verbs have, with their help, and the groups of options of ``retrieve``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_doc import Doc
from annotated_types import Ge, Le

from sentcli import console
from sentcli.model.options import LoadOptions
from sentcli.table import Table
from sentcli.verbs.declaration import Flag

if TYPE_CHECKING:
    from sentcli.cluster_nodes import Node, Workers
    from sentcli.cluster_pool import Pool
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation.reranking import EvaluatedReranker

MODEL_HELP = "A model folder, a short name (sentcli doctor lists them), or a hub id"
SERVED_HELP = "A model folder, a hub id, a short name (sentcli doctor), or URL#NAME"
"""The help where a model may be served, too, as ``http://HOST/v1#NAME``: the texts are sent to an OpenAI-compatible
address."""
Models = Annotated[list[str], Flag("-m"), Doc(f"{SERVED_HELP}; several are compared.")]
Model = Annotated[str, Flag("-m"), Doc(f"{MODEL_HELP}.")]
OptionalModel = Annotated[str | None, Flag("-m"), Doc(f"{MODEL_HELP}.")]
TextField = Annotated[str, Doc("Column that holds the text.")]
IdField = Annotated[str | None, Doc("Column that holds the id: id, else _id, else the row number.")]
QueryPrompt = Annotated[str | None, Flag(panel="Model"), Doc("Text in front of each query; default: the model's own.")]
DocPrompt = Annotated[str | None, Flag(panel="Model"), Doc("Text in front of each document; default: the model's own.")]
PairFields = Annotated[
    str | None,
    Flag(metavar="A,B[,C]"),
    Doc("Columns of a table: both texts and score or label, or anchor, positive and negatives, or text and label."),
]
Overwrite = Annotated[bool, Flag(panel="Output"), Doc("Replace an output that exists.")]
Format = Literal["txt", "csv", "tsv", "jsonl", "parquet", "arrow"]


@dataclass(frozen=True)
class ClusterOptions:
    """Work on a Ray cluster.

    Attributes:
        ray: Work on Ray (docs/scaling.md): local starts one on this machine, auto is the cluster that this machine
            belongs to; or its address.
        workers: Processes that work at the same time; default: one a GPU, else one a node.
        cpus_per_worker: CPUs that each reserves, and threads that it computes with; default: its share of a node.
        gpus_per_worker: GPUs that each reserves; default: 1 if there are any.
    """

    ray: Annotated[str | None, Flag(metavar="local|auto|HOST:PORT")] = None
    workers: Annotated[int | None, Ge(1), Flag(needs="ray")] = None
    cpus_per_worker: Annotated[int | None, Ge(1), Flag(needs="ray")] = None
    gpus_per_worker: Annotated[float | None, Ge(0), Flag(needs="ray")] = None


@dataclass(frozen=True)
class RerankOptions:
    """Whether the first hits of each query are ordered anew.

    Attributes:
        rerank: A cross-encoder that orders the first hits anew.
        rerank_depth: Hits of each query that --rerank reads, 10 to 100; the others stay behind them.
    """

    rerank: Annotated[
        str | None, Flag(metavar="MODEL", excludes="from_run in_domain variants group baseline save_baseline")
    ] = None
    rerank_depth: Annotated[int, Ge(10), Le(100), Flag(needs="rerank")] = 50

    def load(self, options: LoadOptions, *, rerun: bool) -> EvaluatedReranker | None:
        """Return the cross-encoder, which is loaded when pairs have to be scored, or None if none is named."""
        from sentcli.evaluation.reranking import EvaluatedReranker

        return None if self.rerank is None else EvaluatedReranker(self.rerank, options, self.rerank_depth, rerun)


@dataclass(frozen=True)
class SetOptions:
    """Retrieval sets that are scored, and runs that are read and written.

    Attributes:
        beir: Score a retrieval set: a folder in BEIR layout, or a name of sentcli data list. May be given several
            times.
        split: Split of the qrels; default: test, but dev of msmarco.
        run: Write the hits as a TREC run; several runs become a folder.
        from_run: Score TREC runs of other tools or days, without a model; several are compared.
        per_query: Write the scores of each query as JSON Lines.
    """

    beir: Annotated[list[Path] | None, Flag(metavar="DIR|NAME", excludes="corpus in_domain")] = None
    split: Annotated[str | None, Flag(needs="beir")] = None
    run: Annotated[Path | None, Flag(metavar="FILE", needs="beir", excludes="from_run")] = None
    from_run: Annotated[
        list[Path] | None,
        Flag(
            metavar="FILE",
            needs="beir",
            excludes="model search index similarity query_prompt doc_prompt query_length max_length pooling",
        ),
    ] = None
    per_query: Annotated[Path | None, Flag(metavar="FILE", needs="beir")] = None


@dataclass(frozen=True)
class PairOptions:
    """Pairs whose second sentence is to be found by the first.

    Attributes:
        in_domain: Find the second sentence of a pair by the first: STS-B's sts-test.csv, or a table of your own.
        exclude: Which sentences do not count as answers; docs/retrieval-scores.md explains the rules.
        pair_fields: Columns of a table of your own; default: sentence1,sentence2 and, if it is there, score.
    """

    in_domain: Annotated[
        str | None, Flag(metavar="FILE", excludes="search index query_prompt doc_prompt query_length")
    ] = None
    exclude: Annotated[Literal["equal-text-except-gold", "own", "equal-text", "s2-only"], Flag(needs="in_domain")] = (
        "equal-text-except-gold"
    )
    pair_fields: Annotated[str | None, Flag(metavar="A,B[,SCORE]", needs="in_domain")] = None


@dataclass(frozen=True)
class CorpusOptions:
    """A corpus, and the queries that it is searched with.

    Attributes:
        corpus: Search a file of texts, which is encoded first, or vectors: a directory of encode, a table, safetensors,
            npy; or a collection of Milvus.
        collection: The collection of --corpus milvus:URI.
        query: Text to search for; may be given several times. At a terminal, without any, one after the other is asked
            for.
        like: The id of a row whose nearest other rows are wanted; may be given several times.
        queries: Queries from a file (txt, jsonl, csv, ...), or - for stdin.
        query_format: Read --queries as this, whatever its suffix; standard input is txt.
        texts: The texts of a corpus of vectors alone; default: the file beside it that was encoded.
        rescore: Full vectors of the same rows: the best hits of a corpus of smaller vectors are compared by these.
        text_field: Column of the corpus that holds the text.
        id_field: Column of the corpus that holds the id.
        vector_field: Column of a table that holds vectors; default: embedding, else the first of a fixed size.
        where: Search the rows that meet a condition on their columns alone, such as "rating >= 4 and lang = 'en'"
            (docs/retrieve.md). In csv an empty cell of a
            column of text is an empty text, '', which IS NULL does not find.
        count_by: Count the rows with each value of this column, of those that meet --where; needs no query.
        hits: Write the hits as JSON Lines, one query a line; - is standard output.
    """

    corpus: Annotated[str | None, Flag(metavar="FILE|DIR|milvus:URI", excludes="in_domain against")] = None
    collection: Annotated[
        str | None, Flag(metavar="NAME", needs="corpus", excludes="texts rescore index language id_field")
    ] = None
    query: Annotated[list[str] | None, Flag(metavar="TEXT", needs="corpus")] = None
    like: Annotated[list[str] | None, Flag(metavar="ID", needs="corpus", excludes="query queries")] = None
    queries: Annotated[str | None, Flag(metavar="FILE", needs="corpus")] = None
    query_format: Annotated[Format | None, Flag(needs="queries")] = None
    texts: Annotated[str | None, Flag(metavar="FILE", needs="corpus")] = None
    rescore: Annotated[str | None, Flag(metavar="FILE|DIR", needs="corpus")] = None
    text_field: Annotated[str, Flag(needs="corpus")] = "text"
    id_field: Annotated[str | None, Flag(needs="corpus")] = None
    vector_field: Annotated[str | None, Flag(metavar="NAME", needs="corpus", excludes="collection")] = None
    where: Annotated[str | None, Flag(metavar="CONDITION", needs="corpus")] = None
    count_by: Annotated[str | None, Flag(metavar="COLUMN", needs="corpus")] = None
    hits: Annotated[str | None, Flag(metavar="FILE", needs="corpus")] = None

    @property
    def has_queries(self) -> bool:
        """Whether the options name what to search for."""
        return bool(self.query or self.like) or self.queries is not None


@dataclass(frozen=True)
class IndexOptions:
    """The kind of the index and its settings.

    Attributes:
        type: flat (exact), hnsw, ivf, ivfpq, sq8, bm25, or a faiss factory string such as IVF4096,Flat.
        recall: Recall@10 against exact search to aim at: the search parameter is the smallest that reaches it.
        set: A parameter of faiss: efConstruction, efSearch or nprobe; the last two instead of --recall.
        queries: Measure with these queries, instead of rows of the corpus.
        similarity: Similarity of query and document: cosine or dot; default: what the model's folder says, else cosine.
        file_rows: Rows in one file of the index; default: about 4 GiB.
        language: Language of bm25: english, or another that Snowball stems, or none.
    """

    type: Annotated[str, Flag(metavar="KIND", excludes="bm25:set bm25:queries bm25:file_rows bm25:query_prompt")] = (
        "flat"
    )
    recall: Annotated[float, Ge(0.01), Le(1)] = 0.95
    set: Annotated[list[str] | None, Flag(metavar="KEY=N")] = None
    queries: Annotated[str | None, Flag(metavar="FILE", needs="model")] = None
    similarity: Literal["cosine", "dot"] | None = None
    file_rows: Annotated[int | None, Ge(1)] = None
    language: Annotated[str | None, Flag(needs="type=bm25 to")] = None


@dataclass(frozen=True)
class TextOptions:
    """How files of text are read, which are encoded before they are indexed.

    Attributes:
        vector_field: Column of a table INPUT that holds vectors, which are taken as they are; default: embedding, else
            the first of a fixed size.
        append: Add the rows of INPUT to the directory and its index.
    """

    text_field: Annotated[TextField, Flag(needs="output to")] = "text"
    id_field: Annotated[IdField, Flag(needs="output to")] = None
    vector_field: Annotated[str | None, Flag(metavar="NAME", needs="output to")] = None
    append: Annotated[bool, Flag(needs="output")] = False


@dataclass(frozen=True)
class DatabaseOptions:
    """A collection of Milvus that the corpus is written into.

    Attributes:
        to: Write into Milvus instead: milvus: and a file, as milvus:reviews.db, or a server, as
            milvus:http://localhost:19530 (docs/milvus.md). Rows that are there and have not changed are left alone.
        collection: The name of the collection.
        prune: Delete rows of the collection that are not in INPUT.
    """

    to: Annotated[
        str | None,
        Flag(
            metavar="milvus:URI",
            needs="collection",
            excludes="set queries file_rows output query_prompt append check ray",
        ),
    ] = None
    collection: Annotated[str | None, Flag(metavar="NAME", needs="to")] = None
    prune: Annotated[bool, Flag(needs="to")] = False


def recall_table(kind: str, measured: dict[str, Any]) -> Table:
    """Return recall and speed at each search parameter that was tried."""
    parameter, recall = measured["parameter"] or "search", f"recall@{measured['k']}"
    rows: list[list[Any]] = []
    for point in measured["points"]:
        effort = f"{point['effort'] or ''}{' (used)' if point == measured['chosen'] else ''}"
        rows.append([effort, point["recall"], point["queries_per_second"]])
    rows.append(["exact", 1.0, measured["exact_queries_per_second"]])
    notes = [f"Recall against exact search of {measured['queries']} {measured['of']}."]
    if measured["of"] != "queries":
        notes.append(
            "Real queries are found less well than rows, which lie near others: --queries FILE measures yours."
        )
    if measured["chosen"]["queries_per_second"] < measured["exact_queries_per_second"]:
        notes.append(
            "Exact search is faster at this number of rows, and misses none: no index is needed (--index flat)."
        )
    formats = {recall: ".4f", "queries/s": ",.0f"}
    return Table(kind, [parameter, *formats], rows, formats=formats, notes=notes)


@contextmanager
def open_encoder(
    model: str, options: LoadOptions, cluster: ClusterOptions, *, most: int
) -> Iterator[tuple[SentenceEncoder, Pool | None]]:
    """Load a model in this process, or in workers on Ray.

    Args:
        model: its name.
        options: how it is loaded.
        cluster: whether there is a cluster, and what its workers reserve.
        most: no more workers than this, because there is no work for them.

    Yields:
        The encoder, and the workers that make shards with it if that is not this process.
    """
    from sentcli.encoder.announce import announce, load_encoder

    if cluster.ray is None:
        yield load_encoder(model, options), None
        return
    from sentcli.bulk.shards import encoder_of, encoder_pool

    with open_cluster(cluster, most=most, on_cpu=options.device == "cpu") as (nodes, workers):
        if not workers.gpus and any(node.gpus for node in nodes):
            options = replace(options, device="cpu")  # a GPU that is not reserved belongs to others
        with encoder_pool(nodes, workers, model, vars(options)) as pool:
            encoder = encoder_of(pool)
            announce(encoder)
            yield encoder, pool


def search_device(options: LoadOptions) -> str:
    """Return the device of exact search where no model was loaded that has one; torch only looks for one in sight.

    Raises:
        InputError: if the device is not there.
    """
    if options.on_cpu:
        return "cpu"
    from sentcli.model.torch_backend import TorchBackend

    return TorchBackend.choose(options, console.note).device


@contextmanager
def open_cluster(cluster: ClusterOptions, *, most: int, on_cpu: bool) -> Iterator[tuple[list[Node], Workers]]:
    """Join a cluster, compare the versions of sentcli on its nodes, and plan the workers.

    Args:
        cluster: its address and what workers reserve.
        most: no more workers than this.
        on_cpu: whether the work needs no GPU where there is one.

    Yields:
        The nodes and the plan.
    """
    from sentcli import cluster_nodes
    from sentcli.cluster import connected
    from sentcli.machine import usable_cores

    assert cluster.ray is not None
    most = max(most, 1)  # for no rows, too, a worker says what the model is
    count = None if cluster.workers is None else min(cluster.workers, most)
    cpus = max(usable_cores(), (count or 1) * (cluster.cpus_per_worker or 1))  # as --devices cpu,cpu
    with connected(cluster.ray, cpus):
        nodes = cluster_nodes.nodes()
        cluster_nodes.check_versions(nodes)
        gpus = 0.0 if on_cpu and cluster.gpus_per_worker is None else cluster.gpus_per_worker
        workers = cluster_nodes.plan_workers(nodes, count, cluster.cpus_per_worker, gpus)
        workers = replace(workers, count=min(workers.count, most))
        gpus_each = f", GPUs of each {workers.gpus:g}" if workers.gpus else ""
        console.note(
            f"Ray ({cluster.ray}): nodes {len(nodes)}, workers {workers.count}, CPUs of each {workers.cpus}{gpus_each}"
        )
        yield nodes, workers
