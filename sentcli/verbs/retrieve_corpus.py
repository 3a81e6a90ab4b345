"""``retrieve --corpus``: hits from a file, or from a directory that was encoded and perhaps indexed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.printable import escaped, safe
from sentcli.verbs.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.sources import Source
    from sentcli.search.corpus import Corpus, Hit
    from sentcli.search.store import Store
    from sentcli.search.vector_file import VectorFile
    from sentcli.verbs.options import CorpusOptions, SearchOptions

QUERIES_AT_A_TIME = 4096
"""Queries that are encoded and searched together."""
SHOWN = 20
"""Queries whose hits are printed as tables."""


@dataclass
class Hits(Outcome):
    """The hits of all queries, or of the first ones if all are written to a file."""

    written: bool = False
    """Whether the hits are written to a file."""
    printed: list[tuple[str, list[Hit]]] = field(default_factory=list, repr=False)
    """The first queries with their hits, which `show` prints."""
    queries: int = 0
    """The number of queries."""

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each hit: query, rank, id, score, text."""
        import pandas as pd

        return pd.DataFrame([{"query": result["query"], **hit} for result in self.results for hit in result["hits"]])

    def show(self) -> None:
        """Print the hits of the first queries, unless all are written to a file."""
        if self.written:
            return
        for query, hits in self.printed:
            print_hits(query, hits)
        if self.queries > SHOWN:
            console.note(f"the hits of {SHOWN} of {self.queries} queries are shown; --hits FILE or --json FILE has all")

    def write_pages(self, files: Sequence[Path]) -> None:
        """Raise an InputError, because there are no scores."""
        raise InputError("--report goes with --beir or --in-domain: hits have no scores")

    def _repr_html_(self) -> str:
        return str(self.to_frame()._repr_html_())


SNIPPET = 300
"""Characters of a hit's text that a table shows."""
LEAST_LETTERS = 4
"""A word of the query is marked in the hits if it has so many letters."""


def print_hits(query: str, hits: Sequence[Hit]) -> None:
    """Print the hits of a query: rank, id, score, and the beginning of the text with the words of the query marked."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(safe(query)), title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("id", overflow="fold")
    table.add_column("score", justify="right")
    table.add_column("text", overflow="fold", ratio=1)
    words = _word_pattern(query)
    for hit in hits:
        text = Text(safe(_short(hit.row.text)))
        for name, value in hit.row.columns.items():
            if value is not None and value != "":
                text.append(f"\n{safe(name)}: {safe(_short(str(value)))}", "dim")
        if words is not None:
            text.highlight_regex(words, "bold yellow")
        table.add_row(str(hit.rank), Text(safe(hit.row.id)), f"{hit.score:.4f}", text)
    console.output().print(table)


def _short(text: str) -> str:
    return text if len(text) <= SNIPPET else f"{text[:SNIPPET].rstrip()} [...]"


def _word_pattern(query: str) -> re.Pattern[str] | None:
    """Return a pattern of the longer words of a query, also with other endings; None if there are no such words."""
    words = {word for word in re.findall(r"\w+", query.casefold()) if len(word) >= LEAST_LETTERS}
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\w*", re.IGNORECASE) if words else None


def search_corpus(
    models: Sequence[str],
    options: CorpusOptions,
    search: SearchOptions,
    load_options: LoadOptions,
    *,
    overwrite: bool,
    keep_all: bool,
) -> Hits:
    """Search a corpus, and write the hits to the file of ``--hits``.

    Args:
        models: the one to search with; none for BM25, or for the model that made stored vectors.
        options: the corpus and the queries.
        search: how queries and documents are compared.
        load_options: how the model is loaded.
        overwrite: replace a file of hits.
        keep_all: return all hits, even if they are written to a file.
    """
    from sentcli.io.readers import ReadOptions
    from sentcli.search.exact import require_faiss
    from sentcli.search.vector_file import open_stored
    from sentcli.verbs.corpus_opening import opened, opened_file

    _check_usage(models, options, search, overwrite=overwrite)
    way, top_k = search.ways[0], search.top_k or 10
    queries = _queries(options)
    outcome, encoder = Hits("retrieve", "bm25"), None
    outcome.ran_on("cpu", "fp32")
    read_options = ReadOptions(options.text_field, options.id_field)
    stored = open_stored(str(options.corpus), options.texts, read_options)
    if way != "bm25":
        require_faiss()
        encoder = _encoder(models, options, stored, load_options)
        outcome.model = encoder.model
        outcome.ran_on(encoder.backend.device, encoder.backend.precision)
    if stored is None:
        corpus, choices = opened_file(options, search, encoder, way)
    else:
        corpus, choices = opened(stored, search, encoder, way, options.rescore)
    if top_k > len(corpus.rows):
        console.detail(f"--top-k {top_k}: there are {len(corpus.rows)} rows")
    outcome.protocol = _protocol(corpus, choices, search, encoder, top_k)
    if encoder is not None and search.query_length is not None:
        encoder = encoder.with_max_length(search.query_length)
    outcome.written, outcome.queries = options.hits is not None, len(queries)
    results = []
    with console.counting("searching", len(queries)) as progress, _lines(options.hits) as lines:
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            block = queries[start : start + QUERIES_AT_A_TIME]
            texts = [text for _, text in block]
            vectors = encoder.encode(texts, prompt=choices["query_prompt"]) if encoder is not None else None
            hits_by_query = corpus.search(way, texts, vectors, top_k, search.weight)
            for number, ((key, text), hits) in enumerate(zip(block, hits_by_query, strict=True), start):
                result = {"query": text, "hits": [hit.to_dict() for hit in hits]}
                result = result if key is None else {"id": key, **result}
                if keep_all or number < SHOWN:
                    results.append(result)
                if lines is not None:
                    lines(json.dumps(result, ensure_ascii=False, default=str) + "\n")
                elif number < SHOWN:
                    outcome.printed.append((text, hits))
            progress(len(texts))
    outcome.finish(results)
    return outcome


def _encoder(
    models: Sequence[str], options: CorpusOptions, stored: Store | VectorFile | None, load_options: LoadOptions
) -> SentenceEncoder:
    """Load the model that was given, or the one that made the stored vectors."""
    from sentcli.encoder.announce import load_encoder
    from sentcli.io.sources import open_source

    if models:
        if stored is not None and not stored.origin.known:
            console.note(f"{options.corpus} does not say which model made its vectors; it has to be {models[0]}")
        return load_encoder(models[0], load_options)
    if stored is None:
        if options.corpus != "-":
            open_source(str(options.corpus))  # a file that is missing is said first
        raise InputError(f"{options.corpus} holds texts, which are encoded first: give the model with -m")
    model = stored.origin.named_model()
    console.detail(f"{options.corpus} was encoded with {model}, which is taken")
    return load_encoder(model, stored.origin.load_options(load_options))


def _protocol(
    corpus: Corpus, choices: dict[str, Any], search: SearchOptions, encoder: SentenceEncoder | None, top_k: int
) -> dict[str, Any]:
    """Return every choice that moves a score; `choices` are the index and the prompts."""
    from sentcli.search.fusion import described

    protocol: dict[str, Any] = {"search": search.ways[0], "top_k": top_k}
    if encoder is not None and corpus.searcher is not None:
        protocol |= {"similarity": corpus.searcher.similarity, **encoder.describe(), **choices}
        protocol |= {"query_length": search.query_length} if search.query_length is not None else {}
    if corpus.bm25 is not None:
        protocol["bm25"] = corpus.bm25.described()
    return protocol | described(search.ways[0], top_k, search.weight)


def _check_usage(models: Sequence[str], options: CorpusOptions, search: SearchOptions, *, overwrite: bool) -> None:
    if len(search.ways) != 1:
        raise InputError(f"--search {search.search}: a corpus is searched one way at a time")
    if len(models) > 1:
        raise InputError(f"{len(models)} models (-m); searching takes one")
    if not options.query and options.queries is None:
        raise InputError("--corpus needs at least one --query TEXT, or --queries FILE")
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
