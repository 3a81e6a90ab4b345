"""``retrieve --corpus``: hits from a file, a directory that was encoded and perhaps indexed, or a collection."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sentcli import console
from sentcli.console import escaped, safe
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages.page import Section
from sentcli.redaction import without_secrets
from sentcli.search.options import SearchOptions
from sentcli.table import Table
from sentcli.verbs.options import CorpusOptions
from sentcli.verbs.result import Result

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
    queries: list[Query] = [(None, text) for text in options.query or []]
    if options.queries is not None:
        queries += read_queries(open_source(options.queries, options.query_format))
    result = Result("retrieve", "bm25")
    result.ran_on("cpu", "fp32")
    results: list[dict[str, Any]] = []
    with open_corpus(options, search, load) as corpus:
        corpus = _selected(corpus, options, result)
        if options.has_queries or options.count_by is None:
            encoder = asking = load_query_encoder(models, corpus, load) if search.by_vectors else None
            if encoder is not None and search.query_length is not None and not options.like:
                asking = encoder.with_max_length(search.query_length)
            corpus, facts = corpus.prepare(search, encoder, options.rescore)
            _describe(result, search, encoder, facts, len(corpus))
            result.protocol |= {} if reranker is None else reranker.protocol
            if options.like:
                rows = corpus.documents(options.like)
                if missing := [key for key in options.like if key not in rows]:
                    raise InputError(f"--like {missing[0]}: {corpus.title} has no row with this id")
                queries = [(key, rows[key].text) for key in dict.fromkeys(options.like)]
            prompt = facts.get("document_prompt" if options.like else "query_prompt", "")
            starts = range(0, len(queries), QUERIES_AT_A_TIME)
            blocks = [queries[start : start + QUERIES_AT_A_TIME] for start in starts]
            lists = (
                (query, hits)
                for block in (blocks if options.has_queries else _typed_queries())
                for query, hits in _hits(corpus, block, search, asking, prompt, reranker, alike=bool(options.like))
            )
            results = _results(lists, options, search, result, len(queries), keep_all=keep_all)
            if encoder is not None and encoder.sent is not None:
                console.note(f"{encoder.model} was sent {encoder.sent}")
    if options.hits is None and len(queries) > PRINTED_QUERIES:
        shown = f"the hits of {PRINTED_QUERIES} of {len(queries)} queries are shown"
        result.note = f"{shown}; --hits FILE or --json FILE has all"
    facts_and_hits = [({k: v for k, v in line.items() if k != "hits"}, line["hits"]) for line in results]
    result.rows = [{**of_query, **hit} for of_query, hits in facts_and_hits for hit in hits]
    return result.finish(results, result.tables)


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


def _selected(corpus: Corpus, options: CorpusOptions, result: Result) -> Corpus:
    """Return the rows that meet ``--where``, if it is given, and count them by ``--count-by``."""
    from sentcli.search.conditions import check_column, parse_condition

    if options.count_by is not None:
        check_column(options.count_by, corpus.schema, corpus.title, "--count-by")
    if options.where is not None:
        selected = corpus.select(parse_condition(options.where, corpus.schema, corpus.title))
        left = len(selected)
        result.protocol |= {"where": options.where, "rows_searched": left}
        console.note(f"{left:,} of {len(corpus):,} rows meet the condition")
        if not left and re.search(r"\bis\s+null\b", options.where, re.IGNORECASE):
            console.note("an empty cell of a csv column of text is not NULL but an empty text: COLUMN = ''")
        corpus = selected
    if options.count_by is not None:
        counts = corpus.counts(options.count_by)
        rows = [["(none)" if value is None else str(value), count] for value, count in counts]
        notes = [f"{len(rows) - 20:,} more values are in the JSON (--json)."] if len(rows) > 20 else []
        columns = [options.count_by, "rows"]
        table = Table(f"rows by {options.count_by}", columns, rows[:20], formats={"rows": ",d"}, notes=notes)
        result.sections = [Section(table.title, table=table)]
        values = [{"value": value, "rows": count} for value, count in counts]
        result.more = {"counts": {"column": options.count_by, "values": json.loads(json.dumps(values, default=str))}}
    return corpus


def _describe(
    result: Result, search: SearchOptions, encoder: SentenceEncoder | None, facts: dict[str, Any], rows: int
) -> None:
    """Set the model and every choice that moves a score; `facts` are those of the corpus."""
    from sentcli.search import fusion

    top_k = search.top_k or DEFAULT_TOP_K
    if top_k > rows:
        console.detail(f"--top-k {top_k}: there are {rows} rows")
    result.protocol |= {"search": ",".join(search.ways), "top_k": top_k}
    if encoder is not None:
        result.model = encoder.model
        result.ran_on(encoder.backend.device, encoder.backend.precision, revision=encoder.provenance().get("revision"))
        result.protocol |= encoder.describe() | encoder.provenance()
        result.protocol |= {"query_length": search.query_length} if search.query_length is not None else {}
    result.protocol |= facts
    for way in search.ways:
        result.protocol |= fusion.protocol(way, top_k, search.weight)


def read_queries(source: Source) -> list[tuple[str, str]]:
    """Return the ids and texts of a file of queries."""
    from sentcli.io.blocks import blocks
    from sentcli.io.readers import ReadOptions

    queries = [row for block in blocks([source], ReadOptions()) for row in zip(block.ids, block.texts, strict=True)]
    if not queries:
        raise InputError(f"{source.name}: the file is empty: there is no query")
    return queries


def _typed_queries() -> Iterator[Sequence[Query]]:
    """Yield the queries that are typed at the terminal, up to an empty line or the end of the input."""
    console.note("type a query; an empty line ends")
    while text := console.ask("query: "):
        yield [(None, text)]


def _hits(
    corpus: Corpus,
    queries: Sequence[Query],
    search: SearchOptions,
    encoder: SentenceEncoder | None,
    prompt: str,
    reranker: EvaluatedReranker | None,
    *,
    alike: bool,
) -> Iterator[tuple[Query, dict[str, list[Hit]]]]:
    """Yield each query with its hits by the way of searching; `alike` ones are rows, and no hits themselves."""
    from sentcli.search.corpus import search as search_rows

    top_k, texts = search.top_k or DEFAULT_TOP_K, [text for _, text in queries]
    vectors = encoder.encode(texts, prompt=prompt) if encoder is not None else None
    count = (top_k if reranker is None else max(top_k, reranker.depth)) + alike
    lists = [search_rows(corpus, way, texts, vectors, count, search.weight) for way in search.ways]
    if alike:
        keys = [key for key, _ in queries]
        others = [zip(keys, hits, strict=True) for hits in lists]
        lists = [[[hit for hit in hits if hit.row.id != key] for key, hits in of_way] for of_way in others]
    if reranker is not None:
        lists = [_reranked(reranker, texts, hits) for hits in lists]
    for query, *of_query in zip(queries, *lists, strict=True):
        ranked = ([replace(hit, rank=i) for i, hit in enumerate(hits[:top_k], 1)] for hits in of_query)
        yield query, dict(zip(search.ways, ranked, strict=True))


def _reranked(reranker: EvaluatedReranker, queries: Sequence[str], lists: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    """Return the hits of each query, the first of them by the scores of the cross-encoder."""
    depth = reranker.depth
    scores = reranker.scores(
        [(query, hit.row.text) for query, hits in zip(queries, lists, strict=True) for hit in hits[:depth]]
    )
    remaining, reranked = iter(scores.tolist()), []
    for hits in lists:
        first = [replace(hit, rerank_score=next(remaining)) for hit in hits[:depth]]
        reranked.append([*sorted(first, key=lambda hit: -(hit.rerank_score or 0)), *hits[depth:]])
    return reranked


def _results(
    hits_by_query: Iterable[tuple[Query, dict[str, list[Hit]]]],
    options: CorpusOptions,
    search: SearchOptions,
    result: Result,
    count: int,
    *,
    keep_all: bool,
) -> list[dict[str, Any]]:
    """Write or print the hits of all queries, and return those of all, or of the first ones."""
    results: list[dict[str, Any]] = []
    counting = console.counting("searching", count) if options.has_queries else nullcontext(lambda count: None)
    with counting as progress, _hits_file(options.hits) as file:
        for number, ((key, text), hits_by_way) in enumerate(hits_by_query):
            for way, hits in hits_by_way.items():
                line: dict[str, Any] = {} if key is None else {"id": key}
                line |= {"query": text, **({"search": way} if len(search.ways) > 1 else {})}
                line["hits"] = [hit.to_dict() for hit in hits]
                if keep_all or number < PRINTED_QUERIES:
                    results.append(line)
                if file is not None:
                    written = json.dumps(line, ensure_ascii=False, default=str) + "\n"
                    file.write(escaped(written) if options.hits == "-" else written)
            if not options.has_queries:
                console.output().print(hits_grid(text, hits_by_way))
            elif file is None and number < PRINTED_QUERIES:
                result.listings.append(hits_grid(text, hits_by_way))
            progress(1)
    return results


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
