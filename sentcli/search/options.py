"""The options of a search, declared once for flags, keywords and the functions that search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

from annotated_types import Ge, Le

from sentcli import console
from sentcli.bounds import Flag, Format, Holds
from sentcli.errors import InputError, nearest
from sentcli.model.options import LoadOptions
from sentcli.model.spec import ModelSpec, Similarity

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

SearchMode = Literal["dense", "bm25", "rrf", "weighted"]
SEARCH_MODES: tuple[SearchMode, ...] = get_args(SearchMode)


@dataclass(frozen=True)
class SearchOptions:
    """How queries and documents are compared.

    Attributes:
        search: dense, bm25, or both fused: rrf (by rank) or weighted (by score). Several ways are set side by side.
        dense_weight: Share of the dense score in --search weighted: 0.5.
        language: Language of bm25: english, or another that Snowball stems, or none.
        index: flat or on a GPU flat-bf16 (exact), hnsw, ivf, ivfpq, sq8, a faiss factory; or one that a directory has.
        top_k: Hits for each query; default: 10 for --corpus, 1,000 for --beir.
        similarity: Similarity of query and document: that of the index, or what the model's folder says, else cosine.
        query_prompt: Text in front of each query; default: the model's own.
        doc_prompt: Text in front of each document; default: the model's own.
        query_length: Maximum length of a query in tokens; default: --max-length.
    """

    search: Annotated[
        str,
        Flag(
            metavar="WAY,...",
            excludes="bm25:model bm25:index bm25:similarity bm25:query_prompt bm25:doc_prompt bm25:query_length "
            "bm25:max_length bm25:pooling bm25:rescore",
        ),
    ] = "dense"
    dense_weight: Annotated[float | None, Ge(0), Le(1), Flag(needs="search=weighted")] = None
    language: Annotated[str | None, Flag(needs="search=bm25 search=rrf search=weighted")] = None
    index: Annotated[str | None, Flag(metavar="KIND")] = None
    top_k: Annotated[int | None, Ge(1)] = None
    similarity: Similarity | None = None
    query_prompt: Annotated[str | None, Holds.WORDS, Flag(panel="Model")] = None
    doc_prompt: Annotated[str | None, Holds.WORDS, Flag(panel="Model")] = None
    query_length: Annotated[int | None, Ge(3)] = None

    @property
    def modes(self) -> list[SearchMode]:
        """The ways of searching that ``--search`` names."""
        return parse_modes(self.search)

    @property
    def by_vectors(self) -> bool:
        """Whether one of the ways compares vectors."""
        return self.modes != ["bm25"]

    @property
    def by_words(self) -> bool:
        """Whether one of the ways compares words."""
        return self.modes != ["dense"]

    @property
    def weight(self) -> float:
        """The share of the dense score in ``--search weighted``."""
        if self.dense_weight is None:
            return 0.5
        return self.dense_weight

    def prompts(self, model: SentenceEncoder | ModelSpec) -> tuple[str, str]:
        """Return the texts in front of queries and documents, by default the model's own."""
        query = self.query_prompt
        if query is None:
            query = model.role_prompt("query")
        document = self.doc_prompt
        if document is None:
            document = model.role_prompt("document")
        return query, document

    def similarity_of(self, model: ModelSpec) -> Similarity:
        """Return the similarity that was chosen, else the one that the model's folder names.

        Raises:
            InputError: if that is not supported.
        """
        if self.similarity is None:
            return model.similarity
        return self.similarity

    @property
    def exact(self) -> bool:
        """Whether vectors are compared without an index."""
        return self.index in (None, "flat")

    @property
    def needs_faiss(self) -> bool:
        """Whether an index of faiss is searched."""
        from sentcli.search import ann

        return self.by_vectors and not self.exact and self.index != ann.SCANNED


@dataclass(frozen=True)
class CorpusOptions:
    """A corpus, and the queries that it is searched with.

    Attributes:
        corpus: Search a file of texts, which is encoded first, or vectors: a directory of encode, a table, safetensors,
            npy; or a collection of LanceDB, Milvus or PostgreSQL.
        collection: The collection, or [SCHEMA.]TABLE, of a database.
        at: Search the rows that a collection of lance: had in this version, which index --to tells.
        query: Text to search for; may be given several times. At a terminal, without any, one after the other is asked
            for.
        like: The id of a row whose nearest other rows are wanted; may be given several times.
        queries: Queries from a file (txt, jsonl, csv, ...), or - for stdin.
        query_format: Read --queries as this, whatever its suffix; standard input is txt.
        texts: The texts of a corpus of vectors alone; default: the file beside it that was encoded.
        rescore: Full vectors of the same rows: the best hits of a corpus of smaller vectors are compared by these.
        text_field: Column of the corpus that holds the text.
        id_field: Column of the corpus that holds the id.
        vector_field: Column of a table that holds vectors; default: embedding, else the first of a fixed size. Of
            postgresql: with --text-field and --id-field, a table that sentcli has not made.
        where: Search the rows that meet a condition on their columns alone, such as "rating >= 4 and lang = 'en'"
            (docs/retrieve.md). In csv an empty cell of a
            column of text is an empty text, '', which IS NULL does not find.
        count_by: Count the rows with each value of this column, of those that meet --where; needs no query.
        per_document: Most hits of a document, of a corpus of passages: 1.
        least: Least similarity of a hit; as 0.9p, least probability.
        hits: Write the hits as JSON Lines, one query a line; - is standard output.
    """

    corpus: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE|DIR|lance:DIR", excludes="in_domain against")] = (
        None
    )
    collection: Annotated[
        str | None, Holds.WORDS, Flag(metavar="NAME", needs="corpus", excludes="texts rescore index language")
    ] = None
    at: Annotated[int | None, Ge(1), Flag(metavar="VERSION", needs="corpus", excludes="texts rescore vector_field")] = (
        None
    )
    query: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="TEXT", needs="corpus")] = None
    like: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="ID", needs="corpus", excludes="query queries")] = None
    queries: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE", needs="corpus")] = None
    query_format: Annotated[Format | None, Flag(needs="queries")] = None
    texts: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE", needs="corpus")] = None
    rescore: Annotated[str | None, Flag(metavar="FILE|DIR", needs="corpus")] = None
    text_field: Annotated[str, Holds.WORDS, Flag(needs="corpus")] = "text"
    id_field: Annotated[str | None, Holds.WORDS, Flag(needs="corpus")] = None
    vector_field: Annotated[str | None, Flag(metavar="NAME", needs="corpus")] = None
    where: Annotated[str | None, Holds.WORDS, Flag(metavar="CONDITION", needs="corpus")] = None
    count_by: Annotated[str | None, Holds.WORDS, Flag(metavar="COLUMN", needs="corpus")] = None
    per_document: Annotated[int | None, Ge(1), Flag(needs="corpus")] = None
    least: Annotated[str | None, Holds.WORDS, Flag(metavar="X|Xp", needs="corpus")] = None
    hits: Annotated[str | None, Holds.OUTPUT, Flag(metavar="FILE", needs="corpus")] = None

    @property
    def has_queries(self) -> bool:
        """Whether the options name what to search for."""
        return bool(self.query or self.like) or self.queries is not None


def refuse_version(corpus: str, options: CorpusOptions) -> None:
    """Refuse ``--at`` for a kind of corpus that keeps no versions.

    Raises:
        InputError: if it is given.
    """
    if options.at is not None:
        raise InputError(f"--at {options.at}: {corpus} keeps no versions; a corpus of lance: does")


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
    set: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="KEY=N")] = None
    queries: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE", needs="model")] = None
    similarity: Literal["cosine", "dot"] | None = None
    file_rows: Annotated[int | None, Ge(1)] = None
    language: Annotated[str | None, Flag(needs="type=bm25 to")] = None


@dataclass(frozen=True)
class DatabaseOptions:
    """A collection of a database that the corpus is written into.

    Attributes:
        to: Write into a database instead: lance:FOLDER or lance:s3://BUCKET/FOLDER, milvus:FILE or milvus:URL,
            postgresql://USER@HOST/DB (docs/places.md). Rows that are there and have not changed are left alone.
        collection: The name of the collection, of lance: and postgresql: by default corpus; also with --check.
        prune: Delete rows of the collection that are not in INPUT.
        compact: Of lance: bring the rows that came since into few files and into the index, and remove versions older
            than --keep-days, which --at then finds no more.
        keep_days: With --compact: the days that versions are kept; 0 removes all but the newest.
    """

    to: Annotated[
        str | None,
        Flag(
            metavar="ADDRESS",
            excludes="set queries file_rows output query_prompt append check ray",
        ),
    ] = None
    collection: Annotated[str | None, Holds.WORDS, Flag(metavar="NAME", needs="to check")] = None
    prune: Annotated[bool, Flag(needs="to")] = False
    compact: Annotated[bool, Flag(needs="to")] = False
    keep_days: Annotated[float, Ge(0), Flag(metavar="DAYS", needs="compact")] = 7.0


def parse_modes(text: str) -> list[SearchMode]:
    """Read a list of ways such as ``dense,bm25``.

    Raises:
        InputError: for an unknown way, a repeated one, or an empty list.
    """
    parts = map(str.strip, text.split(","))
    names = list(filter(None, parts))
    for name in names:
        if name not in SEARCH_MODES:
            hint = nearest(name, list(SEARCH_MODES))
            raise InputError(f"--search: no way {name!r}{hint}; one of: {', '.join(SEARCH_MODES)}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"--search {text!r}: name some of {', '.join(SEARCH_MODES)}, each once")
    return cast(list[SearchMode], names)


def search_device(options: LoadOptions) -> str:
    """Return the device of exact search where no model was loaded that has one; torch only looks for one in sight.

    Raises:
        InputError: if the device is not there.
    """
    if options.on_cpu:
        return "cpu"
    from sentcli.model.torch_backend import TorchBackend

    return TorchBackend.choose(options, console.note).device
