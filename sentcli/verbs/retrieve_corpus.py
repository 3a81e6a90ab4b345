"""``retrieve --corpus``: hits from a file, or from a directory that was encoded and perhaps indexed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.printable import safe
from sentcli.verbs.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.bm25 import BM25
    from sentcli.search.corpus import Corpus, Hit
    from sentcli.search.fusion import Way
    from sentcli.search.store import Store
    from sentcli.verbs.retrieve_options import CorpusOptions, SearchOptions

TOGETHER = 4096
"""Queries that are encoded and searched at a time."""
SHOWN = 20
"""Queries whose hits are printed as tables."""


@dataclass
class Hits(Outcome):
    """The hits of all queries; where they are written to a file, of the first ones."""

    written: bool = False
    first: list[tuple[str, list[Hit]]] = field(default_factory=list, repr=False)
    queries: int = 0

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each hit: query, rank, id, score, text."""
        import pandas as pd

        return pd.DataFrame([{"query": each["query"], **hit} for each in self.results for hit in each["hits"]])

    def show(self) -> None:
        """Print the hits of the first queries, unless all are written to a file."""
        if self.written:
            return
        for query, hits in self.first:
            print_hits(query, hits)
        if self.queries > SHOWN:
            console.note(f"the hits of {SHOWN} of {self.queries} queries are shown; --hits FILE or --json FILE has all")

    def write_pages(self, files: Sequence[Path]) -> None:
        """Refuse: there are no scores."""
        raise InputError("--report goes with --beir or --in-domain: hits have no scores")

    def _repr_html_(self) -> str:
        return str(self.to_frame()._repr_html_())


SNIPPET = 300
"""Characters of a hit's text that a table shows."""
MARKED = 4
"""Letters of a query's word, at least, for it to be marked in a hit."""


def print_hits(query: str, hits: Sequence[Hit]) -> None:
    """Print the hits of a query: rank, id, score, and the beginning of the text with the words of the query marked."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(safe(query)), title_justify="left")
    drawn.add_column("rank", justify="right")
    drawn.add_column("id", overflow="fold")
    drawn.add_column("score", justify="right")
    drawn.add_column("text", overflow="fold", ratio=1)
    words = _word_pattern(query)
    for hit in hits:
        text = Text(safe(_short(hit.row.text)))
        for name, value in hit.row.columns.items():
            if value is not None and value != "":
                text.append(f"\n{safe(name)}: {safe(_short(str(value)))}", "dim")
        if words is not None:
            text.highlight_regex(words, "bold yellow")
        drawn.add_row(str(hit.rank), Text(safe(hit.row.id)), f"{hit.score:.4f}", text)
    console.output().print(drawn)


def _short(text: str) -> str:
    return text if len(text) <= SNIPPET else f"{text[:SNIPPET].rstrip()} [...]"


def _word_pattern(query: str) -> re.Pattern[str] | None:
    """Match the words of a query that are long enough to mean something, also with an ending."""
    words = {word for word in re.findall(r"\w+", query.casefold()) if len(word) >= MARKED}
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\w*", re.IGNORECASE) if words else None


@dataclass(frozen=True)
class Query:
    """What is looked for."""

    text: str
    id: str | None = None
    """None for one that was typed."""


@dataclass(frozen=True)
class Opened:
    """A corpus that can be searched, the prompts that apply, and what the protocol says of the index."""

    corpus: Corpus
    query_prompt: str = ""
    document_prompt: str = ""
    index: Any = None


def search_corpus(
    models: Sequence[str],
    options: CorpusOptions,
    search: SearchOptions,
    load_options: LoadOptions,
    *,
    overwrite: bool,
    keep: bool,
) -> Hits:
    """Search, and write the hits if that is asked for.

    Args:
        models: the one to search with; none for BM25.
        options: the corpus and the queries.
        search: how they are compared.
        load_options: how the model is loaded.
        overwrite: replace a file of hits.
        keep: return all hits, also where they are written to a file.
    """
    from sentcli.machine import environment
    from sentcli.search.exact import require_faiss

    _check_usage(options, overwrite=overwrite)
    if len(search.ways) != 1:
        raise InputError(f"--search {search.search}: a corpus is searched one way at a time")
    way, top_k = search.ways[0], search.top_k or 10
    queries = _queries(options)
    outcome = Hits("retrieve", "bm25" if way == "bm25" else _single(models))
    encoder = None
    if way != "bm25":
        from sentcli.encoder.announce import load_encoder

        require_faiss()
        encoder = load_encoder(outcome.model, load_options)
    opened = _open(options, search, encoder, way)
    if top_k > len(opened.corpus.rows):
        console.detail(f"--top-k {top_k}: there are {len(opened.corpus.rows)} rows")
    answers = _answers(opened, search, way, queries, encoder, top_k)
    results = _collect(queries, answers, outcome, options.hits, keep=keep)
    outcome.protocol = _protocol(opened, search, encoder, way, top_k)
    backend = encoder.backend if encoder is not None else None
    outcome.environment = environment(backend.device if backend else "cpu", backend.precision if backend else "fp32")
    outcome.finish(results)
    return outcome


def _single(models: Sequence[str]) -> str:
    if len(models) != 1:
        raise InputError(f"{len(models) or 'no'} models (-m); searching takes one")
    return models[0]


def _check_usage(options: CorpusOptions, *, overwrite: bool) -> None:
    if not options.query and options.queries is None:
        raise InputError("--corpus needs at least one --query TEXT, or --queries FILE")
    if options.corpus == "-" and options.queries == "-":
        raise InputError("--corpus - and --queries - would both read standard input")
    if options.hits not in (None, "-"):
        from sentcli.io.atomic import check_output

        check_output(Path(str(options.hits)), overwrite=overwrite)


def _queries(options: CorpusOptions) -> list[Query]:
    from sentcli.io.readers import ReadOptions, blocks
    from sentcli.io.sources import open_source

    queries = [Query(text) for text in options.query or []]
    if options.queries is not None:
        source = open_source(options.queries, options.query_format)
        read = blocks([source], ReadOptions())
        of_file = [Query(text, key) for block in read for key, text in zip(block.ids, block.texts, strict=True)]
        if not of_file:
            raise InputError(f"{source.name}: the file is empty: there is no query")
        queries += of_file
    return queries


def _open(options: CorpusOptions, search: SearchOptions, encoder: SentenceEncoder | None, way: Way) -> Opened:
    """Open the corpus with what finds rows in it."""
    query = document = ""
    if encoder is not None:
        query = encoder.role_prompt("query") if search.query_prompt is None else search.query_prompt
        document = encoder.role_prompt("document") if search.doc_prompt is None else search.doc_prompt
    if Path(str(options.corpus)).is_dir():
        return _open_directory(str(options.corpus), search, encoder, way, query, document)
    return _read_file(options, search, encoder, way, query, document)


def _open_directory(
    folder: str, search: SearchOptions, encoder: SentenceEncoder | None, way: Way, query: str, document: str
) -> Opened:
    from sentcli.search.corpus import Corpus
    from sentcli.search.store import Store

    store = Store.open(Path(folder))
    bm25 = None if way == "dense" else _words(store, search.language)
    if encoder is None:
        return Opened(Corpus(store.rows, None, bm25))
    store.check_encoder(encoder, document)
    device, own = encoder.backend.device, encoder.role_prompt("query")
    opened = store.open_index(search.index, search.similarity, search.query_prompt, device, own)
    if opened.recall is not None:
        name = opened.searcher.recipe.kind
        console.note(f"index {name}: recall@{opened.k} {opened.recall:.3f} against exact search when it was built")
    if opened.unindexed:
        console.note(f"{opened.unindexed} rows were added since the index was built; they are searched exactly")
    if search.query_prompt is None and opened.query_prompt is not None:
        query = opened.query_prompt
    index = opened.searcher.described() if opened.searcher.parts else "exact"
    return Opened(Corpus(store.rows, opened.searcher, bm25), query, document, index)


def _words(store: Store, language: str | None) -> BM25:
    from sentcli.search.bm25 import BM25, LANGUAGE

    kept = store.words(language)
    if kept is not None:
        return kept
    option = f" --language {language}" if language not in (None, LANGUAGE) else ""
    keep = f"sentcli index {store.folder} --type bm25{option}"
    console.note(f"BM25 of {len(store.rows)} rows is made now; {keep} keeps it")
    return BM25.build(store.rows.texts(), language=language or LANGUAGE)


def _read_file(
    options: CorpusOptions,
    search: SearchOptions,
    encoder: SentenceEncoder | None,
    way: Way,
    query: str,
    document: str,
) -> Opened:
    from sentcli.encoder.announce import warn_truncated
    from sentcli.io.readers import ReadOptions
    from sentcli.search import searcher
    from sentcli.search.bm25 import BM25, LANGUAGE
    from sentcli.search.corpus import Corpus, read_rows

    rows = read_rows(str(options.corpus), ReadOptions(options.text_field, options.id_field))
    if repeated := len(rows) - len({row.id for row in rows.rows}):
        console.warn(f"{repeated} rows have an id that another row has, too: hits do not say which")
    bm25 = None if way == "dense" else BM25.build(rows.texts(), language=search.language or LANGUAGE)
    if encoder is None:
        return Opened(Corpus(rows, None, bm25))
    texts = list(rows.texts())
    with console.encoding("encoding", len(set(texts))) as bar:
        vectors, stats = encoder.encode_counted(texts, prompt=document, progress=bar)
    warn_truncated(encoder.spec.max_length, stats.truncated, stats.tokens_lost)
    built = searcher.build(search.index or "flat", vectors, search.similarity or "cosine")
    built.device = encoder.backend.device
    return Opened(Corpus(rows, built, bm25), query, document, built.described() if built.parts else "exact")


def _protocol(
    opened: Opened, search: SearchOptions, encoder: SentenceEncoder | None, way: Way, top_k: int
) -> dict[str, Any]:
    """Return every choice that moves a score."""
    from sentcli.search.fusion import described

    protocol: dict[str, Any] = {"search": way, "top_k": top_k}
    if encoder is not None and opened.corpus.searcher is not None:
        protocol |= {"similarity": opened.corpus.searcher.similarity, "index": opened.index, **encoder.describe()}
        protocol |= {"query_prompt": opened.query_prompt, "document_prompt": opened.document_prompt}
        protocol |= {"query_length": search.query_length} if search.query_length is not None else {}
    if opened.corpus.bm25 is not None:
        protocol["bm25"] = opened.corpus.bm25.described()
    return protocol | described(way, top_k, search.weight)


def _answers(
    opened: Opened,
    search: SearchOptions,
    way: Way,
    queries: Sequence[Query],
    encoder: SentenceEncoder | None,
    top_k: int,
) -> Iterator[list[Hit]]:
    """Yield the hits of each query."""
    if encoder is not None and search.query_length is not None:
        encoder = encoder.with_max_length(search.query_length)
    with console.counting("searching", len(queries)) as progress:
        for start in range(0, len(queries), TOGETHER):
            texts = [query.text for query in queries[start : start + TOGETHER]]
            vectors = encoder.encode(texts, prompt=opened.query_prompt) if encoder is not None else None
            yield from opened.corpus.search(way, texts, vectors, top_k, search.weight)
            progress(len(texts))


def _collect(
    queries: Sequence[Query], answers: Iterator[list[Hit]], outcome: Hits, target: str | None, *, keep: bool
) -> list[dict[str, Any]]:
    """Return the hits of all queries for JSON; those of the first ones, for people, go into `outcome`."""
    results = []
    outcome.written, outcome.queries = target is not None, len(queries)
    with _lines(target) as lines:
        for number, (query, hits) in enumerate(zip(queries, answers, strict=True)):
            result = {"query": query.text, "hits": [hit.to_dict() for hit in hits]}
            result = result if query.id is None else {"id": query.id, **result}
            if keep or number < SHOWN:
                results.append(result)
            if lines is not None:
                lines.write(json.dumps(result, ensure_ascii=False, default=str) + "\n")
            elif number < SHOWN:
                outcome.first.append((query.text, hits))
    return results


@contextmanager
def _lines(target: str | None) -> Iterator[IO[str] | None]:
    """Open where hits are written, if anywhere; a file appears when it is whole."""
    if target is None:
        yield None
    elif target == "-":
        yield sys.stdout
        sys.stdout.flush()
    else:
        from sentcli.io.atomic import replacing

        with replacing(Path(target)) as temporary, temporary.open("w", encoding="utf-8") as handle:
            yield handle
