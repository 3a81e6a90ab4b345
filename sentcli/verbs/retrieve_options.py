"""The options of ``retrieve``, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_doc import Doc
from annotated_types import Ge, Le

from sentcli.verbs.declaration import Flag
from sentcli.verbs.options import DocPrompt, QueryPrompt

if TYPE_CHECKING:
    from sentcli.search.fusion import Way

Format = Literal["txt", "csv", "tsv", "jsonl", "parquet"]


@dataclass(frozen=True)
class SetOptions:
    """Sets that are scored, and what is read and written of them."""

    beir: Annotated[
        list[Path] | None,
        Flag(metavar="DIR|NAME"),
        Doc(
            "Score a retrieval set: a folder in BEIR layout, or a name of sentcli data list. May be given several "
            "times."
        ),
    ] = None
    split: Annotated[str | None, Doc("Which qrels of the sets: test, but dev of msmarco.")] = None
    run: Annotated[
        Path | None,
        Flag(metavar="FILE"),
        Doc("Write the hits as a TREC run; a folder of runs for several sets or ways."),
    ] = None
    from_run: Annotated[
        list[Path] | None,
        Flag(metavar="FILE"),
        Doc("Score TREC runs of other tools or days, without a model; several are compared."),
    ] = None
    per_query: Annotated[Path | None, Flag(metavar="FILE"), Doc("Write the scores of each query as JSON Lines.")] = None


@dataclass(frozen=True)
class PairOptions:
    """Pairs whose second sentence is to be found by the first."""

    in_domain: Annotated[
        str | None,
        Flag(metavar="FILE"),
        Doc("Find the second sentence of a pair by the first: STS-B's sts-test.csv, or a table of your own."),
    ] = None
    exclude: Annotated[
        Literal["equal-text-except-gold", "own", "equal-text", "s2-only"],
        Doc("What is no answer; docs/retrieval-scores.md explains them."),
    ] = "equal-text-except-gold"
    pair_fields: Annotated[
        str | None,
        Flag(metavar="A,B[,SCORE]"),
        Doc("Columns of a table of your own; default: sentence1,sentence2 and, if it is there, score."),
    ] = None


@dataclass(frozen=True)
class CorpusOptions:
    """A corpus that is searched, and what is looked for."""

    corpus: Annotated[
        str | None,
        Flag(metavar="FILE|DIR"),
        Doc("Search a text file, or a directory that encode or index wrote."),
    ] = None
    query: Annotated[list[str] | None, Flag(metavar="TEXT"), Doc("What to look for; may be given several times.")] = (
        None
    )
    queries: Annotated[
        str | None, Flag(metavar="FILE"), Doc("Queries from a file (txt, jsonl, csv, ...), or - for stdin.")
    ] = None
    query_format: Annotated[
        Format | None, Doc("Read --queries as this, whatever its suffix; standard input is txt.")
    ] = None
    text_field: Annotated[str, Doc("Column of the corpus that holds the text.")] = "text"
    id_field: Annotated[str | None, Doc("Column of the corpus that holds the id.")] = None
    hits: Annotated[
        str | None,
        Flag(metavar="FILE"),
        Doc("Write the hits as JSON Lines, one query a line; - is standard output."),
    ] = None


@dataclass(frozen=True)
class SearchOptions:
    """How queries and documents are compared."""

    search: Annotated[
        str,
        Flag(metavar="WAY,..."),
        Doc("dense, bm25, or both fused: rrf (by rank) or weighted (by score). Several ways are set side by side."),
    ] = "dense"
    dense_weight: Annotated[float | None, Ge(0), Le(1), Doc("Share of the dense score in --search weighted: 0.5.")] = (
        None
    )
    language: Annotated[str | None, Doc("Of bm25: english, or another that Snowball stems, or none.")] = None
    index: Annotated[
        str | None,
        Flag(metavar="KIND"),
        Doc("flat (exact), hnsw, ivf, ivfpq, sq8 or a faiss factory string; of a directory, one of its indexes."),
    ] = None
    top_k: Annotated[int | None, Ge(1), Doc("Hits a query: 10 for --corpus, 1,000 for --beir.")] = None
    similarity: Annotated[
        Literal["cosine", "dot"] | None, Doc("Of query and document: cosine, or that of the index.")
    ] = None
    query_prompt: QueryPrompt = None
    doc_prompt: DocPrompt = None
    query_length: Annotated[int | None, Ge(3), Doc("Tokens a query, where it is not to be --max-length.")] = None

    @property
    def ways(self) -> list[Way]:
        """The ways of searching."""
        from sentcli.search.fusion import parse_ways

        return parse_ways(self.search)

    @property
    def weight(self) -> float:
        """The share of the dense score."""
        return 0.5 if self.dense_weight is None else self.dense_weight
