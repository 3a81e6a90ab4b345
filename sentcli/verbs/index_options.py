"""The options of ``index``, and the table of what an index reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from sentcli.table import Table
from sentcli.verbs.declaration import Flag
from sentcli.verbs.options import IdField, TextField


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
