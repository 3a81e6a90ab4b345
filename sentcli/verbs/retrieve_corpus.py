"""``retrieve --corpus``: hits from a file, a directory that was encoded and perhaps indexed, or a collection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.pages.hits import HitsGrid, hits_file, hits_json, write_lines
from sentcli.search.asking import CorpusSearch, Query, most_per_document, read_queries, rows_as_queries
from sentcli.search.calibration import Least
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.search.probabilities import SearchFacts, probabilities_of
from sentcli.stores.opening import load_query_encoder, open_corpus
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation.reranking import EvaluatedReranker
    from sentcli.search.corpus import Corpus, Hit

PRINTED_QUERIES = 20
"""Queries whose hits are printed as tables."""
PRINTED_VALUES = 20
"""Values of the column of ``--count-by`` that are printed."""
_QUERIES_AT_A_TIME = 4096
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
    hits = FoundHits([], [], [])
    with open_corpus(options, search, load) as opened:
        corpus = _selected(opened, options)
        if options.where is not None:
            record = replace(record, protocol={"where": options.where, "rows_searched": len(corpus)})
        tables, more = [], {}
        if options.count_by is not None:
            counts = corpus.counts(options.count_by)
            tables.append(_counts_table(options.count_by, counts))
            more["counts"] = _counts_json(options.count_by, counts)
        if options.has_queries or options.count_by is None:
            encoder = None
            if search.by_vectors:
                encoder = load_query_encoder(models, corpus, load)
            searching = _prepared(corpus, encoder, search, options, reranker)
            protocol = {**record.protocol, **searching.protocol()}
            record = replace(record, protocol=protocol)
            if encoder is not None:
                record = replace(record, model=encoder.model, environment=encoder.environment())
            if options.like:
                queries = rows_as_queries(searching.corpus, options.like)
            hits = _search(searching, queries, options, keep_all=keep_all)
            if encoder is not None and encoder.sent is not None:
                console.note(f"{encoder.model} was sent {encoder.sent}")
    note = ""
    if options.hits is None and len(queries) > PRINTED_QUERIES:
        shown = f"the hits of {PRINTED_QUERIES} of {len(queries)} queries are shown"
        note = f"{shown}; --hits FILE or --json FILE has all"
    record = replace(record, results=hits.lines, more=more, seconds=clock.seconds)
    make_frame = partial(_frame, hits, _labels(options))
    return Result.of(record, tables, make_frame=make_frame, listings=hits.listings, note=note)


def _prepared(
    corpus: Corpus,
    encoder: SentenceEncoder | None,
    search: SearchOptions,
    options: CorpusOptions,
    reranker: EvaluatedReranker | None,
) -> CorpusSearch:
    """Return a corpus that is ready for queries: its vectors are made, its index is open."""
    least = Least.parse(options.least, search.modes)
    asking = encoder
    if encoder is not None and search.query_length is not None and not options.like:
        asking = encoder.with_max_length(search.query_length)  # refused before anything is encoded
    corpus, facts = corpus.prepare(search, encoder, options.rescore)
    role = "document" if options.like else "query"
    prompt = facts.get(f"{role}_prompt", "")
    calibration = None
    if encoder is not None and "dense" in search.modes:
        rescored = options.rescore is not None
        facts_of_search = SearchFacts(encoder, facts, prompt, alike=bool(options.like), rescored=rescored)
        calibration = probabilities_of(corpus, facts_of_search, least)
        if least is not None:
            least.check(facts["similarity"], calibration)
    searching = CorpusSearch(
        corpus,
        search,
        encoder,
        asking,
        facts,
        prompt,
        reranker,
        alike=bool(options.like),
        per_document=most_per_document(corpus, options.per_document),
        calibration=calibration,
        least=least,
    )
    if searching.top_k > len(corpus):
        console.detail(f"--top-k {searching.top_k}: there are {len(corpus)} rows")
    return searching


def _check_usage(models: Sequence[str], options: CorpusOptions, *, overwrite: bool) -> None:
    if len(models) > 1:
        raise InputError(f"{len(models)} models (-m); searching takes one")
    asks_something = options.has_queries or options.count_by is not None
    if not asks_something and not console.at_terminal():
        raise InputError("--corpus needs a --query TEXT, --queries FILE, --like ID, or --count-by COLUMN")
    if options.corpus == "-" and options.queries == "-":
        raise InputError("--corpus - and --queries - would both read standard input")
    if options.hits not in (None, "-"):
        from sentcli.io.atomic import check_output

        check_output(Path(str(options.hits)), overwrite=overwrite)


def _selected(corpus: Corpus, options: CorpusOptions) -> Corpus:
    """Return the rows that meet ``--where``, if it is given.

    Raises:
        InputError: for a condition that is none, or a column of it or of ``--count-by`` that is not there.
    """
    from sentcli.search.condition_reader import check_column, parse_condition

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
    rows = []
    for value, count in counts[:PRINTED_VALUES]:
        name = "(none)" if value is None else str(value)
        rows.append([name, count])
    notes = []
    more = len(counts) - PRINTED_VALUES
    if more > 0:
        notes.append(f"{more:,} more values are in the JSON (--json).")
    return Table(f"rows by {column}", [column, "rows"], rows, formats={"rows": ",d"}, notes=notes)


def _typed_queries() -> Iterator[Sequence[Query]]:
    """Yield the queries that are typed at the terminal, up to an empty line or the end of the input."""
    console.note("type a query; an empty line ends")
    while text := console.ask("query: "):
        yield [(None, text)]


@dataclass(frozen=True)
class FoundHits:
    """The hits of queries, for the JSON and for the console."""

    lines: list[dict[str, Any]]
    """The entries of the JSON: of all queries, or of the first ones."""
    rows: list[dict[str, Any]]
    """A row for each of these hits, with the values of its columns as they are."""
    listings: list[HitsGrid]
    """The hits of the first queries, where no file gets them."""


def _counts_json(column: str, counts: Sequence[tuple[Any, int]]) -> dict[str, Any]:
    values = [{"value": value, "rows": count} for value, count in counts]
    return {"column": column, "values": json.loads(json.dumps(values, default=str))}


def _search(searching: CorpusSearch, queries: Sequence[Query], options: CorpusOptions, *, keep_all: bool) -> FoundHits:
    """Search, and write or print the hits as they come.

    Args:
        searching: the corpus, and how it is searched.
        queries: none if they are typed at the terminal.
        options: the queries and the file of the hits.
        keep_all: return the hits of all queries.
    """
    names_mode = len(searching.options.modes) > 1
    found = FoundHits([], [], [])
    blocks: Iterable[Sequence[Query]] = _typed_queries()
    counting: Any = nullcontext(lambda count: None)
    if options.has_queries:
        starts = range(0, len(queries), _QUERIES_AT_A_TIME)
        blocks = [queries[start : start + _QUERIES_AT_A_TIME] for start in starts]
        counting = console.counting("searching", len(queries))
    with counting as progress, hits_file(options.hits) as file:
        for number, (query, hits_by_mode) in enumerate(chain.from_iterable(map(searching.hits, blocks))):
            lines = []
            for mode, hits in hits_by_mode.items():
                lines.append(hits_json(query, mode if names_mode else None, hits))
            if keep_all or number < PRINTED_QUERIES:
                found.lines.extend(lines)
                for line, hits in zip(lines, hits_by_mode.values(), strict=True):
                    found.rows.extend(_rows_of(line, hits))
            if file is not None:
                write_lines(file, lines, escape=options.hits == "-")
            if not options.has_queries:
                console.output().print(HitsGrid(query[1], hits_by_mode))
            elif file is None and number < PRINTED_QUERIES:
                found.listings.append(HitsGrid(query[1], hits_by_mode))
            progress(1)
    return found


def _rows_of(line: Mapping[str, Any], hits: Sequence[Hit]) -> Iterator[dict[str, Any]]:
    """Yield the entry of each hit in the JSON of a query, with what the query has, and with the values of columns."""
    of_query = {key: value for key, value in line.items() if key != "hits"}
    for entry, hit in zip(line["hits"], hits, strict=True):
        row = {**of_query, **entry}
        if "columns" in entry:
            row["columns"] = {name: hit.row.columns[name] for name in entry["columns"]}
        yield row


def _frame(found: FoundHits, labels: pd.Index | None) -> pd.DataFrame:
    """Return a data frame with a row for each hit, with what its query has; without any it has the columns of all.

    Args:
        found: the hits.
        labels: those of the rows of a frame that was searched, which have no ids but their numbers.
    """
    import pandas as pd

    if not found.rows:
        of_queries = dict.fromkeys(chain.from_iterable(found.lines))
        of_queries.pop("hits", None)
        return pd.DataFrame(columns=[*(of_queries or ["query"]), "rank", "id", "score", "text"])
    frame = pd.DataFrame(found.rows)
    if labels is not None:
        frame["id"] = [labels[int(number)] for number in frame["id"]]
    return frame


def _labels(options: CorpusOptions) -> pd.Index | None:
    """Return the index of a frame of pandas that is searched, if its rows have no ids of their own."""
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.sources import is_in_memory, open_source

    if not is_in_memory(Path(str(options.corpus))):
        return None
    from sentcli.io.in_memory import frame_index

    index = frame_index(str(options.corpus))
    if index is None:
        return None
    read = rows(open_source(str(options.corpus)), ReadOptions(options.text_field, options.id_field))
    first = next(read, None)
    return index if first is not None and first.id is None else None
