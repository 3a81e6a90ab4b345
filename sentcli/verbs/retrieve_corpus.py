"""``retrieve --corpus``: hits from a file, a directory that was encoded and perhaps indexed, or a collection."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sentcli import console
from sentcli.command.result import Clock, Record, Result
from sentcli.console import escaped, safe
from sentcli.errors import InputError
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.redaction import without_secrets
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.table import Table

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation.reranking import EvaluatedReranker
    from sentcli.io.sources import Source
    from sentcli.search.corpus import Corpus, Hit
    from sentcli.search.exact import Vectors

    Query = tuple[str | None, str]
    """The id of a query, if it has one, and its text."""

DEFAULT_TOP_K = 10
"""Hits of each query unless another number is given."""
PRINTED_QUERIES = 20
"""Queries whose hits are printed as tables."""
QUERIES_AT_A_TIME = 4096
"""Queries that are encoded and searched together."""


def search_corpus(
    models: Sequence[str],
    options: CorpusOptions,
    search: SearchOptions,
    load: LoadOptions,
    reranker: EvaluatedReranker | None,
    *,
    overwrite: bool,
    keep_all: bool,
) -> Result:
    """Search a corpus, and write the hits to the file of ``--hits``.

    Args:
        models: the model to search with; none for BM25, or for the model that made stored vectors.
        options: the corpus and the queries.
        search: how queries and documents are compared.
        load: how the model is loaded.
        reranker: orders the first hits anew.
        overwrite: replace a file of hits.
        keep_all: return all hits, even if they are written to a file.
    """
    from sentcli.io.sources import open_source

    _check_usage(models, options, overwrite=overwrite)
    clock = Clock()
    queries: list[Query] = [(None, text) for text in options.query or []]
    if options.queries is not None:
        queries += read_queries(open_source(options.queries, options.query_format))
    record = Record("retrieve", "bm25", environment=environment("cpu", "fp32"))
    found = Found([], [])
    with open_corpus(options, search, load) as opened:
        corpus = _selected(opened, options)
        protocol: dict[str, Any] = {}
        if options.where is not None:
            protocol = {"where": options.where, "rows_searched": len(corpus)}
        counts = None if options.count_by is None else corpus.counts(options.count_by)
        if options.has_queries or counts is None:
            encoder = load_query_encoder(models, corpus, load) if search.by_vectors else None
            corpus, facts = corpus.prepare(search, encoder, options.rescore)
            protocol |= _protocol(search, encoder, facts, len(corpus))
            if reranker is not None:
                protocol |= reranker.protocol
            if encoder is not None:
                record = replace(record, model=encoder.model, environment=_environment(encoder))
            if options.like:
                queries = _rows_as_queries(corpus, options.like)
            asked = _Asked(corpus, search, _asking(encoder, search, options), facts, reranker, options)
            found = _searched(asked, queries, keep_all=keep_all)
            if encoder is not None and encoder.sent is not None:
                console.note(f"{encoder.model} was sent {encoder.sent}")
    note = ""
    if options.hits is None and len(queries) > PRINTED_QUERIES:
        shown = f"the hits of {PRINTED_QUERIES} of {len(queries)} queries are shown"
        note = f"{shown}; --hits FILE or --json FILE has all"
    record = replace(record, protocol=protocol, results=found.lines, seconds=clock.seconds)
    tables = []
    if counts is not None:
        tables.append(_counts_table(str(options.count_by), counts))
        values = [{"value": value, "rows": count} for value, count in counts]
        as_json = json.loads(json.dumps(values, default=str))
        record = replace(record, more={"counts": {"column": options.count_by, "values": as_json}})
    return Result.of(record, tables, rows=_frame_rows(found.lines), listings=found.listings, note=note)


def _check_usage(models: Sequence[str], options: CorpusOptions, *, overwrite: bool) -> None:
    if len(models) > 1:
        raise InputError(f"{len(models)} models (-m); searching takes one")
    if not options.has_queries and options.count_by is None and not console.at_terminal():
        raise InputError("--corpus needs a --query TEXT, --queries FILE, --like ID, or --count-by COLUMN")
    if options.corpus == "-" and options.queries == "-":
        raise InputError("--corpus - and --queries - would both read standard input")
    if options.hits not in (None, "-"):
        from sentcli.io.atomic import check_output

        check_output(Path(str(options.hits)), overwrite=overwrite)


@contextmanager
def open_corpus(options: CorpusOptions, search: SearchOptions, load: LoadOptions) -> Iterator[Corpus]:
    """Open a corpus; nothing is encoded yet.

    Raises:
        InputError: if there is none, or an option does not go with its kind.
    """
    from sentcli.io.readers import ReadOptions
    from sentcli.search.local_corpus import LocalCorpus
    from sentcli.search.rows import read_rows
    from sentcli.search.vector_file import open_stored

    name = str(options.corpus)
    if name.startswith("milvus:"):
        from sentcli.search.milvus import MilvusCollection
        from sentcli.search.milvus_client import connect
        from sentcli.search.milvus_corpus import MilvusCorpus

        if options.collection is None:
            raise InputError("--corpus milvus:URI needs --collection NAME")
        if (search.top_k or 0) > MilvusCorpus.deepest:
            raise InputError(f"--top-k {search.top_k}: Milvus finds at most {MilvusCorpus.deepest:,}")
        with connect(name) as client:
            yield MilvusCorpus(MilvusCollection.open(client, name, options.collection))
        return
    read_options = ReadOptions(options.text_field, options.id_field)
    stored = open_stored(name, options.texts, read_options, field=options.vector_field)
    if stored is not None:
        yield LocalCorpus(name, stored.rows, stored)
        return
    if options.rescore is not None:
        raise InputError(f"--rescore goes with a --corpus of smaller vectors; {name} holds texts")

    def encode(encoder: SentenceEncoder, prompt: str, texts: Sequence[str]) -> Vectors:
        """Take vectors from the cache, and make the others."""
        from sentcli.encoder.announce import warn_truncated
        from sentcli.evaluation.evaluated import EvaluatedModel

        with console.encoding("encoding", len(set(texts))) as bar:
            encoded = EvaluatedModel.of(encoder, load).encode(texts, bar, prompt=prompt)
        beyond = encoded.beyond[[encoded.rows[text] for text in texts]]
        warn_truncated(encoder.spec.max_length, int((beyond > 0).sum()), int(beyond.sum()))
        return encoded.of(texts)

    yield LocalCorpus(name, read_rows([name], read_options), encode=encode)


def load_query_encoder(models: Sequence[str], corpus: Corpus, options: LoadOptions) -> SentenceEncoder:
    """Load the model that was given, or the one that made the vectors of the corpus."""
    from sentcli.encoder.announce import load_encoder

    origin = corpus.origin
    if models:
        if origin is not None and not origin.known:
            console.note(f"{corpus.title} does not say which model made its vectors; it has to be {models[0]}")
        if origin is not None:
            options = origin.in_their_precision(models[0], options)
        return load_encoder(models[0], options)
    if origin is None:
        raise InputError(f"{corpus.title} holds texts, which are encoded first: give the model with -m")
    model = origin.named_model()
    console.detail(f"{corpus.title} was encoded with {model}, which is taken")
    return load_encoder(model, origin.in_their_precision(model, origin.load_options(options)))


def _selected(corpus: Corpus, options: CorpusOptions) -> Corpus:
    """Return the rows that meet ``--where``, if it is given.

    Raises:
        InputError: for a condition that is none, or a column of it or of ``--count-by`` that is not there.
    """
    from sentcli.search.conditions import check_column, parse_condition

    if options.count_by is not None:
        check_column(options.count_by, corpus.schema, corpus.title, "--count-by")
    if options.where is None:
        return corpus
    selected = corpus.select(parse_condition(options.where, corpus.schema, corpus.title))
    left = len(selected)
    console.note(f"{left:,} of {len(corpus):,} rows meet the condition")
    if not left and re.search(r"\bis\s+null\b", options.where, re.IGNORECASE):
        console.note("an empty cell of a csv column of text is not NULL but an empty text: COLUMN = ''")
    return selected


def _counts_table(column: str, counts: Sequence[tuple[Any, int]]) -> Table:
    """Return the most frequent values of a column with their rows."""
    rows = [["(none)" if value is None else str(value), count] for value, count in counts]
    notes = []
    if len(rows) > 20:
        notes.append(f"{len(rows) - 20:,} more values are in the JSON (--json).")
    return Table(f"rows by {column}", [column, "rows"], rows[:20], formats={"rows": ",d"}, notes=notes)


def _protocol(
    search: SearchOptions, encoder: SentenceEncoder | None, facts: dict[str, Any], rows: int
) -> dict[str, Any]:
    """Return every choice that moves a score; `facts` are those of the corpus."""
    from sentcli.search import fusion

    top_k = search.top_k or DEFAULT_TOP_K
    if top_k > rows:
        console.detail(f"--top-k {top_k}: there are {rows} rows")
    protocol: dict[str, Any] = {"search": ",".join(search.ways), "top_k": top_k}
    if encoder is not None:
        protocol |= encoder.describe() | encoder.provenance()
        if search.query_length is not None:
            protocol["query_length"] = search.query_length
    protocol |= facts
    for way in search.ways:
        protocol |= fusion.protocol(way, top_k, search.weight)
    return protocol


def _environment(encoder: SentenceEncoder) -> dict[str, Any]:
    revision = encoder.provenance().get("revision")
    return environment(encoder.backend.device, encoder.backend.precision, revision=revision)


def _asking(encoder: SentenceEncoder | None, search: SearchOptions, options: CorpusOptions) -> SentenceEncoder | None:
    """Return the encoder of the queries, which may have a maximum length of their own."""
    if encoder is None or search.query_length is None or options.like:
        return encoder
    return encoder.with_max_length(search.query_length)


def _rows_as_queries(corpus: Corpus, keys: Sequence[str]) -> list[Query]:
    """Return the texts of the rows of ``--like`` with their ids.

    Raises:
        InputError: for an id that no row has.
    """
    rows = corpus.documents(keys)
    missing = [key for key in keys if key not in rows]
    if missing:
        raise InputError(f"--like {missing[0]}: {corpus.title} has no row with this id")
    return [(key, rows[key].text) for key in dict.fromkeys(keys)]


def read_queries(source: Source) -> list[tuple[str, str]]:
    """Return the ids and texts of a file of queries."""
    from sentcli.io.readers import ReadOptions, blocks

    queries = [row for block in blocks([source], ReadOptions()) for row in zip(block.ids, block.texts, strict=True)]
    if not queries:
        raise InputError(f"{source.name}: the file is empty: there is no query")
    return queries


def _typed_queries() -> Iterator[Sequence[Query]]:
    """Yield the queries that are typed at the terminal, up to an empty line or the end of the input."""
    console.note("type a query; an empty line ends")
    while text := console.ask("query: "):
        yield [(None, text)]


@dataclass(frozen=True)
class _Asked:
    """What queries are asked of, and how."""

    corpus: Corpus
    search: SearchOptions
    encoder: SentenceEncoder | None
    """Encodes the queries; None where only words are compared."""
    facts: Mapping[str, Any]
    """What `Corpus.prepare` said of the corpus, its prompts among it."""
    reranker: EvaluatedReranker | None
    options: CorpusOptions

    @property
    def prompt(self) -> str:
        """The text in front of each query; a row that is a query has that of the documents."""
        return self.facts.get("document_prompt" if self.options.like else "query_prompt", "")

    def hits(self, queries: Sequence[Query]) -> Iterator[tuple[Query, dict[str, list[Hit]]]]:
        """Yield each query with its hits by the way of searching; a row that is a query is no hit of its own."""
        from sentcli.search.corpus import search as search_rows

        top_k = self.search.top_k or DEFAULT_TOP_K
        texts = [text for _, text in queries]
        vectors = None if self.encoder is None else self.encoder.encode(texts, prompt=self.prompt)
        count = top_k if self.reranker is None else max(top_k, self.reranker.depth)
        if self.options.like:
            count += 1
        lists = [search_rows(self.corpus, way, texts, vectors, count, self.search.weight) for way in self.search.ways]
        if self.options.like:
            lists = [_without_themselves(queries, hits) for hits in lists]
        if self.reranker is not None:
            lists = [_reranked(self.reranker, texts, hits) for hits in lists]
        for query, *of_query in zip(queries, *lists, strict=True):
            ranked = [_ranked(hits[:top_k]) for hits in of_query]
            yield query, dict(zip(self.search.ways, ranked, strict=True))


def _without_themselves(queries: Sequence[Query], lists: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    """Return the hits of rows that are queries, each without the row itself."""
    others = []
    for (key, _), hits in zip(queries, lists, strict=True):
        others.append([hit for hit in hits if hit.row.id != key])
    return others


def _ranked(hits: Sequence[Hit]) -> list[Hit]:
    return [replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]


def _reranked(reranker: EvaluatedReranker, queries: Sequence[str], lists: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    """Return the hits of each query, the first of them by the scores of the cross-encoder."""
    depth = reranker.depth
    pairs: list[tuple[str, str]] = []
    for query, hits in zip(queries, lists, strict=True):
        pairs += [(query, hit.row.text) for hit in hits[:depth]]
    remaining = iter(reranker.scores(pairs).tolist())
    reranked = []
    for hits in lists:
        first = [replace(hit, rerank_score=next(remaining)) for hit in hits[:depth]]
        reranked.append([*sorted(first, key=lambda hit: -(hit.rerank_score or 0)), *hits[depth:]])
    return reranked


@dataclass(frozen=True)
class Found:
    """The hits of queries, for the JSON and for the console."""

    lines: list[dict[str, Any]]
    """The entries of the JSON: of all queries, or of the first ones."""
    listings: list[Grid]
    """The hits of the first queries, where no file gets them."""


def _searched(asked: _Asked, queries: Sequence[Query], *, keep_all: bool) -> Found:
    """Search, and write or print the hits as they come.

    Args:
        asked: the corpus, and how it is searched.
        queries: none if they are typed at the terminal.
        keep_all: return the hits of all queries.
    """
    options, several = asked.options, len(asked.search.ways) > 1
    found = Found([], [])
    blocks: Iterable[Sequence[Query]] = _typed_queries()
    counting: Any = nullcontext(lambda count: None)
    if options.has_queries:
        starts = range(0, len(queries), QUERIES_AT_A_TIME)
        blocks = [queries[start : start + QUERIES_AT_A_TIME] for start in starts]
        counting = console.counting("searching", len(queries))
    with counting as progress, _hits_file(options.hits) as file:
        for number, (query, hits_by_way) in enumerate(chain.from_iterable(map(asked.hits, blocks))):
            lines = [_line(query, way if several else None, hits) for way, hits in hits_by_way.items()]
            if keep_all or number < PRINTED_QUERIES:
                found.lines.extend(lines)
            if file is not None:
                _write_lines(file, lines, escape=options.hits == "-")
            if not options.has_queries:
                console.output().print(hits_grid(query[1], hits_by_way))
            elif file is None and number < PRINTED_QUERIES:
                found.listings.append(hits_grid(query[1], hits_by_way))
            progress(1)
    return found


def _line(query: Query, way: str | None, hits: Sequence[Hit]) -> dict[str, Any]:
    """Return the entry of the JSON of a query, with the way of searching where there are several."""
    key, text = query
    line: dict[str, Any] = {}
    if key is not None:
        line["id"] = key
    line["query"] = text
    if way is not None:
        line["search"] = way
    line["hits"] = [hit.to_dict() for hit in hits]
    return line


def _write_lines(file: TextIO, lines: Iterable[dict[str, Any]], *, escape: bool) -> None:
    for line in lines:
        text = json.dumps(line, ensure_ascii=False, default=str) + "\n"
        file.write(escaped(text) if escape else text)


def _frame_rows(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each hit, with what its query has."""
    rows = []
    for line in lines:
        of_query = {key: value for key, value in line.items() if key != "hits"}
        rows += [{**of_query, **hit} for hit in line["hits"]]
    return rows


@contextmanager
def _hits_file(target: str | None) -> Iterator[TextIO | None]:
    """Open the file of ``--hits``, if there is one; it appears when it is complete."""
    if target is None:
        yield None
    elif target == "-":
        yield sys.stdout
        sys.stdout.flush()
    else:
        from sentcli.io.atomic import replacing

        with replacing(Path(target)) as temporary, temporary.open("w", encoding="utf-8") as handle:
            yield handle


def hits_grid(query: str, hits_by_way: Mapping[str, Sequence[Hit]]) -> Grid:
    """Return the hits of a query for the console, several ways side by side.

    A hit has its rank, id, score, and the beginning of its title and text with the words of the query marked, also
    with other endings. A text that several hits share is shown with the first of them.
    """
    from rich.table import Table as Grid
    from rich.text import Text

    table = Grid(title=Text(_beginning(query)), title_justify="left")
    table.add_column("rank", justify="right")
    for way in hits_by_way:
        table.add_column("id" if len(hits_by_way) == 1 else f"{way}: id", overflow="fold")
        table.add_column("score", justify="right")
        table.add_column("text", overflow="fold", ratio=1)
    words = {word for word in re.findall(r"\w+", query.casefold()) if len(word) >= 4}
    longest_first = "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))
    shown: dict[str, dict[tuple[Any, str], int]] = {way: {} for way in hits_by_way}
    for hits in zip_longest(*hits_by_way.values()):
        cells: list[str | Text] = []
        for hit, ranks in zip(hits, shown.values(), strict=True):
            if hit is None:
                cells += ["", "", ""]
                continue
            title = hit.row.columns.get("title")
            first = ranks.setdefault((title, hit.row.text), hit.rank)
            if first < hit.rank:
                text = Text(f"the same text as rank {first}", "dim not bold")
            else:
                text = Text(f"{_beginning(str(title))}\n" if title else "", "bold")
                text.append(_beginning(hit.row.text), "not bold")
            for name, value in hit.row.columns.items() if len(hits_by_way) == 1 else ():
                if value is not None and value != "" and name != "title":
                    text.append(f"\n{safe(name)}: {_beginning(str(value))}", "dim not bold")
            if words:
                text.highlight_regex(re.compile(rf"\b(?:{longest_first})\w*", re.IGNORECASE), "bold yellow")
            score = hit.score if hit.rerank_score is None else hit.rerank_score
            cells += [Text(safe(hit.row.id)), f"{score:.4f}", text]
        table.add_row(str(next(hit.rank for hit in hits if hit is not None)), *cells)
    return table


def _beginning(text: str) -> str:
    text = without_secrets(text)
    return safe(text if len(text) <= 300 else f"{text[:300].rstrip()} [...]")
