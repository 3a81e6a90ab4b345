"""``retrieve --corpus``: hits from a file, or from a directory that was encoded and perhaps indexed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.console import escaped
from sentcli.errors import InputError
from sentcli.pages.page import Section
from sentcli.verbs.corpus_opening import load_query_encoder, open_corpus
from sentcli.verbs.hits import SHOWN, TOP_K, CorpusSearch, count_table, hits_grid
from sentcli.verbs.result import Result

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.sources import Source
    from sentcli.search.corpus import Corpus, Hit
    from sentcli.search.options import SearchOptions
    from sentcli.verbs.options import CorpusOptions

    Query = tuple[str | None, str]
    """The id of a query, if it has one, and its text."""
    Found = tuple[str | None, str, dict[str, list[Hit]]]
    """The id and the text of a query, and its hits by the way of searching."""

EMPTY = re.compile(r"\bis\s+null\b", re.IGNORECASE)
QUERIES_AT_A_TIME = 4096
"""Queries that are encoded and searched together."""


def search_corpus(asked: CorpusSearch, *, overwrite: bool, keep_all: bool) -> Result:
    """Search a corpus, and write the hits to the file of ``--hits``.

    Args:
        asked: of which corpus, with which queries and how.
        overwrite: replace a file of hits.
        keep_all: return all hits, even if they are written to a file.
    """
    from sentcli.io.sources import open_source

    options = asked.corpus
    _check_usage(asked, overwrite=overwrite)
    queries: list[Query] = [(None, text) for text in options.query or []]
    if options.queries is not None:
        queries += read_queries(open_source(options.queries, options.query_format))
    outcome = Result("retrieve", "bm25")
    outcome.ran_on("cpu", "fp32")
    results: list[dict[str, Any]] = []
    with open_corpus(options, asked.search, asked.load) as corpus:
        corpus = _selected(corpus, options, outcome)
        if not asked.counts_only:
            encoder = load_query_encoder(asked.models, corpus, asked.load) if asked.search.by_vectors else None
            corpus, facts = corpus.prepare(asked.search, encoder, options.rescore)
            _describe(outcome, asked.search, encoder, facts, len(corpus))
            if options.like:
                rows = corpus.documents(options.like)
                if missing := [key for key in options.like if key not in rows]:
                    raise InputError(f"--like {missing[0]}: {corpus.title} has no row with this id")
                queries = [(key, rows[key].text) for key in dict.fromkeys(options.like)]
            prompt = facts.get("document_prompt" if options.like else "query_prompt", "")
            starts = range(0, len(queries), QUERIES_AT_A_TIME)
            blocks = (queries[start : start + QUERIES_AT_A_TIME] for start in starts) if asked.has_queries else _typed()
            found = _found(corpus, blocks, asked, encoder, prompt)
            results = _results(found, asked, outcome, len(queries), keep_all=keep_all)
    if options.hits is None and len(queries) > SHOWN:
        outcome.note = f"the hits of {SHOWN} of {len(queries)} queries are shown; --hits FILE or --json FILE has all"
    facts_and_hits = [({k: v for k, v in result.items() if k != "hits"}, result["hits"]) for result in results]
    outcome.rows = [{**of_query, **hit} for of_query, hits in facts_and_hits for hit in hits]
    return outcome.finish(results, outcome.tables)


def _results(
    found: Iterator[Found], asked: CorpusSearch, outcome: Result, queries: int, *, keep_all: bool
) -> list[dict[str, Any]]:
    """Search for all queries, write or print their hits, and return those of all, or of the first ones."""
    several, target, asks = len(asked.search.ways) > 1, asked.corpus.hits, not asked.has_queries
    results: list[dict[str, Any]] = []
    counting = nullcontext(lambda count: None) if asks else console.counting("searching", queries)
    with counting as progress, _lines(target) as lines:
        for number, (key, text, hits_by_way) in enumerate(found):
            for way, hits in hits_by_way.items():
                facts = {**({} if key is None else {"id": key}), "query": text, **({"search": way} if several else {})}
                result = {**facts, "hits": [hit.to_dict() for hit in hits]}
                if keep_all or number < SHOWN:
                    results.append(result)
                if lines is not None:
                    lines(json.dumps(result, ensure_ascii=False, default=str) + "\n")
            if asks:
                console.output().print(hits_grid(text, hits_by_way))
            elif lines is None and number < SHOWN:
                outcome.listings.append(hits_grid(text, hits_by_way))
            progress(1)
    return results


def _found(
    corpus: Corpus, blocks: Iterable[Sequence[Query]], asked: CorpusSearch, encoder: SentenceEncoder | None, prompt: str
) -> Iterator[Found]:
    """Yield the id and the text of each query, and its hits by the way of searching."""
    from sentcli.search.corpus import search as search_rows

    search, likes = asked.search, bool(asked.corpus.like)
    top_k = search.top_k or TOP_K
    if encoder is not None and search.query_length is not None and not likes:
        encoder = encoder.with_max_length(search.query_length)
    for block in blocks:
        texts = [text for _, text in block]
        vectors = encoder.encode(texts, prompt=prompt) if encoder is not None else None
        lists = [search_rows(corpus, way, texts, vectors, top_k + likes, search.weight) for way in search.ways]
        for (key, text), *of_query in zip(block, *lists, strict=True):
            if likes:  # a row is not like itself
                others = ([hit for hit in hits if hit.row.id != key] for hits in of_query)
                of_query = [[replace(hit, rank=i) for i, hit in enumerate(hits[:top_k], 1)] for hits in others]
            yield key, text, dict(zip(search.ways, of_query, strict=True))


def _typed() -> Iterator[Sequence[Query]]:
    """Yield the queries that are typed at the terminal, up to an empty line or the end of the input."""
    console.note("type a query; an empty line ends")
    while text := console.ask("query: "):
        yield [(None, text)]


def _selected(corpus: Corpus, options: CorpusOptions, outcome: Result) -> Corpus:
    """Return the rows that meet ``--where``, if it is given, and count them by ``--count-by``."""
    from sentcli.search.conditions import check_column, parse_condition

    if options.count_by is not None:
        check_column(options.count_by, corpus.schema, corpus.title, "--count-by")
    if options.where is not None:
        selected = corpus.select(parse_condition(options.where, corpus.schema, corpus.title))
        left = len(selected)
        outcome.protocol |= {"where": options.where, "rows_searched": left}
        console.note(f"{left:,} of {len(corpus):,} rows meet the condition")
        if not left and EMPTY.search(options.where):
            console.note("an empty cell of a csv column of text is not NULL but an empty text: COLUMN = ''")
        corpus = selected
    if options.count_by is not None:
        counts = corpus.counts(options.count_by)
        table = count_table(options.count_by, counts)
        outcome.sections = [Section(table.title, table=table)]
        values = [{"value": value, "rows": count} for value, count in counts]
        outcome.more = {"counts": {"column": options.count_by, "values": json.loads(json.dumps(values, default=str))}}
    return corpus


def _describe(
    outcome: Result, search: SearchOptions, encoder: SentenceEncoder | None, facts: dict[str, Any], rows: int
) -> None:
    """Set the model and every choice that moves a score; `facts` are those of the corpus."""
    from sentcli.search.fusion import described

    top_k = search.top_k or TOP_K
    if top_k > rows:
        console.detail(f"--top-k {top_k}: there are {rows} rows")
    outcome.protocol |= {"search": ",".join(search.ways), "top_k": top_k}
    if encoder is not None:
        outcome.model = encoder.model
        outcome.ran_on(encoder.backend.device, encoder.backend.precision)
        outcome.protocol |= encoder.describe()
        outcome.protocol |= {"query_length": search.query_length} if search.query_length is not None else {}
    outcome.protocol |= facts
    for way in search.ways:
        outcome.protocol |= described(way, top_k, search.weight)


def _check_usage(asked: CorpusSearch, *, overwrite: bool) -> None:
    options, search = asked.corpus, asked.search
    if len(asked.models) > 1:
        raise InputError(f"{len(asked.models)} models (-m); searching takes one")
    if not asked.has_queries and options.count_by is None and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("--corpus needs a --query TEXT, --queries FILE, --like ID, or --count-by COLUMN")
    if options.rescore is not None and search.ways == ["bm25"]:
        raise InputError("--rescore compares vectors; --search bm25 has none")
    if options.corpus == "-" and options.queries == "-":
        raise InputError("--corpus - and --queries - would both read standard input")
    if options.hits not in (None, "-"):
        from sentcli.io.atomic import check_output

        check_output(Path(str(options.hits)), overwrite=overwrite)


def read_queries(source: Source) -> list[tuple[str, str]]:
    """Return the ids and texts of a file of queries."""
    from sentcli.io.readers import ReadOptions, blocks

    queries = [row for block in blocks([source], ReadOptions()) for row in zip(block.ids, block.texts, strict=True)]
    if not queries:
        raise InputError(f"{source.name}: the file is empty: there is no query")
    return queries


@contextmanager
def _lines(target: str | None) -> Iterator[Callable[[str], object] | None]:
    """Yield what writes to the file of ``--hits``, if there is one; it appears when it is complete."""
    if target is None:
        yield None
    elif target == "-":
        yield lambda line: sys.stdout.write(escaped(line))
        sys.stdout.flush()
    else:
        from sentcli.io.atomic import replacing

        with replacing(Path(target)) as temporary, temporary.open("w", encoding="utf-8") as handle:
            yield handle.write
