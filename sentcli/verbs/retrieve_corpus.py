"""``retrieve --corpus``: hits from a file, or from a directory that was encoded and perhaps indexed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.printable import escaped
from sentcli.verbs.hits import SHOWN, TOP_K, CorpusSearch, Hits, print_hits

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.sources import Source
    from sentcli.search.corpus import Corpus, Hit, RowsInMemory, RowsOnDisk
    from sentcli.search.exact import Mask
    from sentcli.search.milvus_corpus import MilvusCorpus
    from sentcli.search.store import Store
    from sentcli.search.vector_file import VectorFile
    from sentcli.verbs.options import CorpusOptions, SearchOptions

    Opened = tuple[Corpus | MilvusCorpus | None, SentenceEncoder | None, str]
    """A corpus, None if only rows are counted; the encoder of the queries, if the way needs one; and their prompt."""
    Query = tuple[str | None, str]
    """The id of a query, if it has one, and its text."""

EMPTY = re.compile(r"\bis\s+null\b", re.IGNORECASE)
QUERIES_AT_A_TIME = 4096
"""Queries that are encoded and searched together."""


def search_corpus(asked: CorpusSearch, *, overwrite: bool, keep_all: bool) -> Hits:
    """Search a corpus, and write the hits to the file of ``--hits``.

    Args:
        asked: of which corpus, with which queries and how.
        overwrite: replace a file of hits.
        keep_all: return all hits, even if they are written to a file.
    """
    options, ways = asked.corpus, asked.search.ways
    _check_usage(asked, overwrite=overwrite)
    queries = _queries(options)
    outcome = Hits("retrieve", "bm25")
    outcome.ran_on("cpu", "fp32")
    open_corpus: Callable[..., AbstractContextManager[Opened]] = _open
    if str(options.corpus).startswith("milvus:"):
        from sentcli.verbs.retrieve_collection import open_collection as open_corpus
    results: list[dict[str, Any]] = []
    with open_corpus(asked, outcome) as (corpus, encoder, prompt):
        if corpus is not None:
            if options.like:
                queries = _rows_with(corpus, options.like, str(options.corpus))
            outcome.written, outcome.queries = options.hits is not None, len(queries)
            asks = not asked.has_queries
            blocks = _typed() if asks else _blocks(queries)
            counting = nullcontext(lambda count: None) if asks else console.counting("searching", len(queries))
            with counting as progress, _lines(options.hits) as lines:
                for number, (key, text, hits_by_way) in enumerate(_found(corpus, blocks, asked, encoder, prompt)):
                    for way, hits in hits_by_way.items():
                        result = {
                            **({} if key is None else {"id": key}),
                            "query": text,
                            **({"search": way} if len(ways) > 1 else {}),
                            "hits": [hit.to_dict() for hit in hits],
                        }
                        if keep_all or number < SHOWN:
                            results.append(result)
                        if lines is not None:
                            lines(json.dumps(result, ensure_ascii=False, default=str) + "\n")
                    if asks:
                        print_hits(text, hits_by_way)
                    elif lines is None and number < SHOWN:
                        outcome.printed.append((text, hits_by_way))
                    progress(1)
    outcome.finish(results, outcome.tables)
    return outcome


def _found(
    corpus: Corpus | MilvusCorpus,
    blocks: Iterable[Sequence[Query]],
    asked: CorpusSearch,
    encoder: SentenceEncoder | None,
    prompt: str,
) -> Iterator[tuple[str | None, str, dict[str, list[Hit]]]]:
    """Yield the id and the text of each query, and its hits by the way of searching."""
    search, likes = asked.search, bool(asked.corpus.like)
    top_k = search.top_k or TOP_K
    if encoder is not None and search.query_length is not None and not likes:
        encoder = encoder.with_max_length(search.query_length)
    for block in blocks:
        texts = [text for _, text in block]
        vectors = encoder.encode(texts, prompt=prompt) if encoder is not None else None
        lists = [corpus.search(way, texts, vectors, top_k + likes, search.weight) for way in search.ways]
        for (key, text), *of_query in zip(block, *lists, strict=True):
            if likes:  # a row is not like itself
                others = ([hit for hit in hits if hit.row.id != key] for hits in of_query)
                of_query = [[replace(hit, rank=i) for i, hit in enumerate(hits[:top_k], 1)] for hits in others]
            yield key, text, dict(zip(search.ways, of_query, strict=True))


def _blocks(queries: Sequence[Query]) -> Iterator[Sequence[Query]]:
    """Yield queries that are encoded and searched together."""
    return (queries[start : start + QUERIES_AT_A_TIME] for start in range(0, len(queries), QUERIES_AT_A_TIME))


def _typed() -> Iterator[Sequence[Query]]:
    """Yield the queries that are typed at the terminal, up to an empty line or the end of the input."""
    console.note("type a query; an empty line ends")
    while text := console.ask("query: "):
        yield [(None, text)]


def _rows_with(corpus: Corpus | MilvusCorpus, ids: Sequence[str], name: str) -> list[Query]:
    """Return the ids and texts of rows as queries.

    Raises:
        InputError: for an id that is not there.
    """
    rows = corpus.documents(ids)
    if missing := [key for key in ids if key not in rows]:
        raise InputError(f"--like {missing[0]}: {name} has no row with this id")
    return [(key, rows[key].text) for key in dict.fromkeys(ids)]


@contextmanager
def _open(asked: CorpusSearch, outcome: Hits) -> Iterator[tuple[Corpus | None, SentenceEncoder | None, str]]:
    """Open a file or a directory, and set the facts of the outcome.

    Yields:
        The corpus, or None if no query is to be searched; the encoder of the queries, if the way needs one; and their
        prompt.
    """
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.io.readers import ReadOptions
    from sentcli.search.corpus import read_rows
    from sentcli.search.exact import require_faiss
    from sentcli.search.vector_file import open_stored
    from sentcli.verbs.corpus_opening import opened, opened_file

    options, search, encoder, model = asked.corpus, asked.search, None, None
    read_options = ReadOptions(options.text_field, options.id_field)
    stored = open_stored(str(options.corpus), options.texts, read_options)
    rows: RowsInMemory | RowsOnDisk
    opening: Callable[..., tuple[Corpus, dict[str, Any]]]
    if stored is None:
        if options.rescore is not None:
            raise InputError(f"--rescore goes with a --corpus of smaller vectors; {options.corpus} holds texts")
        rows = read_rows([str(options.corpus)], read_options)
        mask = _chosen(rows, options, outcome)
        model = EvaluatedModel(asked.models[0], asked.load) if asked.models and search.by_vectors else None
        opening = partial(opened_file, rows, options, mask, model)
    else:
        rows, opening = stored.rows, partial(opened, stored, rescore=options.rescore)
        mask = _chosen(rows, options, outcome)
    if asked.counts_only:
        yield None, None, ""
        return
    if search.by_vectors:
        require_faiss()
        encoder = _encoder(asked, stored) if model is None else model.encoder
        outcome.model = encoder.model
        outcome.ran_on(encoder.backend.device, encoder.backend.precision)
    corpus, choices = opening(search=search, encoder=encoder)
    top_k = search.top_k or TOP_K
    if top_k > len(corpus.rows):
        console.detail(f"--top-k {top_k}: there are {len(corpus.rows)} rows")
    outcome.protocol |= _protocol(corpus, choices, search, encoder, top_k)
    prompt = choices.get("document_prompt" if options.like else "query_prompt", "")
    yield replace(corpus, mask=mask), encoder, prompt


def _chosen(rows: RowsInMemory | RowsOnDisk, options: CorpusOptions, outcome: Hits) -> Mask | None:
    """Return the rows that meet ``--where``, if it is given, and count them by ``--count-by``."""
    from sentcli.search.conditions import check_column, parse_condition
    from sentcli.search.corpus import counted, matching

    mask = None
    if options.count_by is not None:
        check_column(options.count_by, rows.schema, str(options.corpus), "--count-by")
    if options.where is not None:
        mask = matching(rows, parse_condition(options.where, rows.schema, str(options.corpus)))
        left = int(mask.sum())
        outcome.protocol |= {"where": options.where, "rows_searched": left}
        console.note(f"{left:,} of {len(rows):,} rows meet the condition")
        if not left and EMPTY.search(options.where):
            console.note("an empty cell of a csv column of text is not NULL but an empty text: COLUMN = ''")
    if options.count_by is not None:
        outcome.count(options.count_by, counted(rows, options.count_by, mask))
    return mask


def _encoder(asked: CorpusSearch, stored: Store | VectorFile | None) -> SentenceEncoder:
    """Load the model that was given, or the one that made the stored vectors."""
    from sentcli.encoder.announce import load_encoder

    name = asked.corpus.corpus
    if asked.models:
        if stored is not None and not stored.origin.known:
            console.note(f"{name} does not say which model made its vectors; it has to be {asked.models[0]}")
        return load_encoder(asked.models[0], asked.load)
    if stored is None:
        raise InputError(f"{name} holds texts, which are encoded first: give the model with -m")
    model = stored.origin.named_model()
    console.detail(f"{name} was encoded with {model}, which is taken")
    return load_encoder(model, stored.origin.load_options(asked.load))


def _protocol(
    corpus: Corpus, choices: dict[str, Any], search: SearchOptions, encoder: SentenceEncoder | None, top_k: int
) -> dict[str, Any]:
    """Return every choice that moves a score; `choices` are the index and the prompts."""
    from sentcli.search.fusion import described

    protocol: dict[str, Any] = {"search": ",".join(search.ways), "top_k": top_k}
    if encoder is not None and corpus.searcher is not None:
        protocol |= {"similarity": corpus.searcher.similarity, **encoder.describe(), **choices}
        protocol |= {"query_length": search.query_length} if search.query_length is not None else {}
    if corpus.bm25 is not None:
        protocol["bm25"] = corpus.bm25.described()
    for way in search.ways:
        protocol |= described(way, top_k, search.weight)
    return protocol


def _check_usage(asked: CorpusSearch, *, overwrite: bool) -> None:
    options, search = asked.corpus, asked.search
    if len(asked.models) > 1:
        raise InputError(f"{len(asked.models)} models (-m); searching takes one")
    if not asked.has_queries and options.count_by is None and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("--corpus needs a --query TEXT, --queries FILE, --like ID, or --count-by COLUMN")
    if options.like and (options.query or options.queries is not None):
        raise InputError("--like and --query: give one of them")
    if options.rescore is not None and search.ways == ["bm25"]:
        raise InputError("--rescore compares vectors; --search bm25 has none")
    if options.corpus == "-" and options.queries == "-":
        raise InputError("--corpus - and --queries - would both read standard input")
    if options.hits not in (None, "-"):
        from sentcli.io.atomic import check_output

        check_output(Path(str(options.hits)), overwrite=overwrite)


def _queries(options: CorpusOptions) -> list[tuple[str | None, str]]:
    """Return the ids and texts of the queries; those of ``--query`` have no id."""
    from sentcli.io.sources import open_source

    queries: list[tuple[str | None, str]] = [(None, text) for text in options.query or []]
    if options.queries is not None:
        queries += read_queries(open_source(options.queries, options.query_format))
    return queries


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
