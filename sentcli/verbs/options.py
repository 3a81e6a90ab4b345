"""Arguments that several verbs have, with their help, and the groups of options of ``retrieve``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_doc import Doc
from annotated_types import Ge, Le

from sentcli.table import Table
from sentcli.verbs.declaration import Flag

MODEL_HELP = "A model folder, a short name (sentcli doctor lists them), or a hub id"
Models = Annotated[list[str], Flag("-m"), Doc(f"{MODEL_HELP}; several are compared.")]
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
Format = Literal["txt", "csv", "tsv", "jsonl", "parquet"]


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


FOUND_BEFORE = "model search index similarity query_prompt doc_prompt query_length max_length pooling"
"""What ``--from-run`` leaves no choice of."""


@dataclass(frozen=True)
class SetOptions:
    """Retrieval sets that are scored, and runs that are read and written.

    Attributes:
        beir: Score a retrieval set: a folder in BEIR layout, or a name of sentcli data list. May be given several
            times.
        split: Split of the qrels; default: test, but dev of msmarco.
        run: Write the hits as a TREC run; a folder of runs for several sets or ways.
        from_run: Score TREC runs of other tools or days, without a model; several are compared.
        per_query: Write the scores of each query as JSON Lines.
    """

    beir: Annotated[list[Path] | None, Flag(metavar="DIR|NAME")] = None
    split: Annotated[str | None, Flag(needs="beir")] = None
    run: Annotated[Path | None, Flag(metavar="FILE", needs="beir", excludes="from_run")] = None
    from_run: Annotated[list[Path] | None, Flag(metavar="FILE", needs="beir", excludes=FOUND_BEFORE)] = None
    per_query: Annotated[Path | None, Flag(metavar="FILE", needs="beir")] = None


@dataclass(frozen=True)
class PairOptions:
    """Pairs whose second sentence is to be found by the first.

    Attributes:
        in_domain: Find the second sentence of a pair by the first: STS-B's sts-test.csv, or a table of your own.
        exclude: Which sentences do not count as answers; docs/retrieval-scores.md explains the rules.
        pair_fields: Columns of a table of your own; default: sentence1,sentence2 and, if it is there, score.
    """

    in_domain: Annotated[str | None, Flag(metavar="FILE")] = None
    exclude: Annotated[Literal["equal-text-except-gold", "own", "equal-text", "s2-only"], Flag(needs="in_domain")] = (
        "equal-text-except-gold"
    )
    pair_fields: Annotated[str | None, Flag(metavar="A,B[,SCORE]", needs="in_domain")] = None


@dataclass(frozen=True)
class CorpusOptions:
    """A corpus, and the queries that it is searched with.

    Attributes:
        corpus: Search a file of texts, which is encoded first, or what encode wrote: a directory, Parquet, safetensors,
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
        where: Search the rows that meet a condition on their columns alone, such as "rating >= 4 and lang = 'en'"
            (docs/retrieve.md). In csv an empty cell of a
            column of text is an empty text, '', which IS NULL does not find.
        count_by: Count the rows with each value of this column, of those that meet --where; needs no query.
        hits: Write the hits as JSON Lines, one query a line; - is standard output.
    """

    corpus: Annotated[str | None, Flag(metavar="FILE|DIR|milvus:URI")] = None
    collection: Annotated[str | None, Flag(metavar="NAME", needs="corpus")] = None
    query: Annotated[list[str] | None, Flag(metavar="TEXT", needs="corpus")] = None
    like: Annotated[list[str] | None, Flag(metavar="ID", needs="corpus", excludes="query queries")] = None
    queries: Annotated[str | None, Flag(metavar="FILE", needs="corpus")] = None
    query_format: Annotated[Format | None, Flag(needs="queries")] = None
    texts: Annotated[str | None, Flag(metavar="FILE", needs="corpus")] = None
    rescore: Annotated[str | None, Flag(metavar="FILE|DIR", needs="corpus")] = None
    text_field: Annotated[str, Flag(needs="corpus")] = "text"
    id_field: Annotated[str | None, Flag(needs="corpus")] = None
    where: Annotated[str | None, Flag(metavar="CONDITION", needs="corpus")] = None
    count_by: Annotated[str | None, Flag(metavar="COLUMN", needs="corpus")] = None
    hits: Annotated[str | None, Flag(metavar="FILE", needs="corpus")] = None


@dataclass(frozen=True)
class IndexOptions:
    """The kind of the index and its settings.

    Attributes:
        type: flat (exact), hnsw, ivf, ivfpq, sq8, bm25, or a faiss factory string such as IVF4096,Flat.
        recall: Recall@10 against exact search to aim at: the search parameter is the smallest that reaches it.
        set: A parameter of faiss: efConstruction, efSearch or nprobe; the last two instead of --recall.
        queries: Measure with these queries, instead of rows of the corpus.
        similarity: Similarity of query and document.
        file_rows: Rows in one file of the index; default: about 4 GiB.
        language: Language of bm25: english, or another that Snowball stems, or none.
    """

    type: Annotated[str, Flag(metavar="KIND")] = "flat"
    recall: Annotated[float, Ge(0.01), Le(1)] = 0.95
    set: Annotated[list[str] | None, Flag(metavar="KEY=N")] = None
    queries: Annotated[str | None, Flag(metavar="FILE")] = None
    similarity: Literal["cosine", "dot"] = "cosine"
    file_rows: Annotated[int | None, Ge(1)] = None
    language: str | None = None


@dataclass(frozen=True)
class TextOptions:
    """How files of text are read, which are encoded before they are indexed.

    Attributes:
        append: Add the rows of INPUT to the directory and its index.
    """

    text_field: TextField = "text"
    id_field: IdField = None
    append: bool = False


BESIDE_VECTORS = "set queries file_rows output query_prompt append check ray"
"""The options of an index that stands beside the vectors, and not in a database with the rows."""


@dataclass(frozen=True)
class DatabaseOptions:
    """A collection of Milvus that the corpus is written into.

    Attributes:
        to: Write into Milvus instead: milvus: and a file, as milvus:reviews.db, or a server, as
            milvus:http://localhost:19530 (docs/milvus.md). Rows that are there and have not changed are left alone.
        collection: The name of the collection.
        prune: Delete rows of the collection that are not in INPUT.
    """

    to: Annotated[str | None, Flag(metavar="milvus:URI", excludes=BESIDE_VECTORS)] = None
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
    if measured["chosen"]["queries_per_second"] < measured["exact_queries_per_second"]:
        notes.append(
            "Exact search is faster at this number of rows, and misses none: no index is needed (--index flat)."
        )
    formats = {recall: ".4f", "queries/s": ",.0f"}
    return Table(kind, [parameter, *formats], rows, formats=formats, notes=notes)
