"""``sentcli retrieve --corpus``: hits from a file, or from a directory that was encoded and perhaps indexed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sentcli import console
from sentcli.cli import options
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.cli.retrieve_asked import Encoding, Output, Search
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.bm25 import BM25
    from sentcli.search.corpus import Corpus, Hit
    from sentcli.search.stored import Stored
    from sentcli.search.ways import Way

TOGETHER = 4096
"""Queries that are encoded and searched at a time."""
SHOWN = 20
"""Queries whose hits are printed as tables."""


@dataclass(frozen=True)
class _Query:
    text: str
    id: str | None = None
    """None for one that was typed."""


@dataclass(frozen=True)
class _Prompts:
    """What stands in front of each text."""

    query: str
    document: str


def search(asked: Search, encoding: Encoding, output: Output) -> None:
    """Search, and show or write the hits."""
    from sentcli.cli.json_report import Report
    from sentcli.io.json_files import finite, write_json
    from sentcli.machine import environment
    from sentcli.search.exact import require_faiss
    from sentcli.search.ways import parse_ways

    _check_usage(asked, output)
    ways = parse_ways(asked.way)
    if len(ways) != 1:
        raise InputError(f"--search {asked.way}: a corpus is searched one way at a time")
    way = ways[0]
    queries = _queries(asked)
    report = Report("retrieve", "bm25" if way == "bm25" else encoding.model)
    if way != "bm25":
        require_faiss()
    encoder = None if way == "bm25" else _load(encoding)
    corpus, prompts, protocol = _open(asked, encoding, encoder, way)
    if asked.top_k > len(corpus.rows):
        console.detail(f"--top-k {asked.top_k}: there are {len(corpus.rows)} rows")
    answers = _answers(corpus, asked, way, queries, encoding, encoder, prompts)
    results = _show(queries, answers, asked, keep=output.json is not None)
    if output.json is not None:
        report.protocol = protocol
        report.results = results
        backend = encoder.backend if encoder is not None else None
        report.environment = environment(backend.device if backend else "cpu", backend.precision if backend else "fp32")
        write_json(output.json, finite(report.to_dict()))


def _check_usage(asked: Search, output: Output) -> None:
    if not asked.queries and asked.query_file is None:
        raise InputError("--corpus needs at least one --query TEXT, or --queries FILE")
    if asked.hits == "-" and output.json == "-":
        raise InputError("--hits - and --json - would both write to standard output")
    if asked.corpus == "-" and asked.query_file == "-":
        raise InputError("--corpus - and --queries - would both read standard input")
    if output.pages or output.against:
        raise InputError(
            f"{'--report' if output.pages else '--against'} goes with --beir or --in-domain: hits have no scores"
        )
    if asked.hits is not None and asked.hits != "-":
        from sentcli.io.atomic import check_output

        check_output(Path(asked.hits), overwrite=output.overwrite)


def _queries(asked: Search) -> list[_Query]:
    from sentcli.io.readers import ReadOptions, blocks
    from sentcli.io.sources import open_source

    found = [_Query(text) for text in asked.queries]
    if asked.query_file is not None:
        source = open_source(asked.query_file, asked.query_format)
        read = blocks([source], ReadOptions())
        found += [_Query(text, key) for block in read for key, text in zip(block.ids, block.texts, strict=True)]
        if len(found) == len(asked.queries):
            raise InputError(f"{source.name}: the file is empty: there is no query")
    return found


def _load(encoding: Encoding) -> SentenceEncoder:
    return options.load(
        encoding.model,
        encoding.backend,
        encoding.precision,
        encoding.device,
        encoding.pooling,
        None,
        encoding.max_length,
    )


def _open(
    asked: Search, encoding: Encoding, encoder: SentenceEncoder | None, way: Way
) -> tuple[Corpus, _Prompts, dict[str, Any]]:
    """Open the corpus; return it with the prompts that apply and every choice that moves a score."""
    from sentcli.search.ways import described

    own = _Prompts("", "")
    if encoder is not None:
        query = encoder.role_prompt("query") if encoding.query_prompt is None else encoding.query_prompt
        document = encoder.role_prompt("document") if encoding.doc_prompt is None else encoding.doc_prompt
        own = _Prompts(query, document)
    if Path(asked.corpus).is_dir():
        corpus, prompts, index = _open_directory(asked, encoding, encoder, way, own)
    else:
        corpus, index = _read_file(asked, encoder, way, own)
        prompts = own
    protocol: dict[str, Any] = {"search": way, "top_k": asked.top_k}
    if encoder is not None and corpus.searcher is not None:
        protocol |= {"similarity": corpus.searcher.similarity, "index": index, **encoder.describe()}
        protocol |= {"query_prompt": prompts.query, "document_prompt": prompts.document}
        if encoding.query_length is not None:
            protocol["query_length"] = encoding.query_length
    if corpus.bm25 is not None:
        protocol["bm25"] = corpus.bm25.described()
    protocol |= described(way, asked.top_k, asked.dense_weight)
    return corpus, prompts, protocol


def _open_directory(
    asked: Search, encoding: Encoding, encoder: SentenceEncoder | None, way: Way, own: _Prompts
) -> tuple[Corpus, _Prompts, Any]:
    from sentcli.search.corpus import Corpus, open_index
    from sentcli.search.stored import Stored

    stored = Stored.open(Path(asked.corpus))
    bm25 = None if way == "dense" else _words(stored, asked.language)
    if encoder is None:
        return Corpus(stored.rows, None, bm25), own, None
    stored.check_encoder(encoder, own.document)
    opened = open_index(
        stored,
        asked.index,
        asked.similarity,
        encoding.query_prompt,
        encoder.backend.device,
        encoder.role_prompt("query"),
    )
    if opened.recall is not None:
        name = opened.searcher.recipe.kind
        console.note(f"index {name}: recall@{opened.k} {opened.recall:.3f} against exact search when it was built")
    if opened.unindexed:
        console.note(f"{opened.unindexed} rows were added since the index was built; they are searched exactly")
    query = own.query if encoding.query_prompt is not None or opened.query_prompt is None else opened.query_prompt
    index = opened.searcher.described() if opened.searcher.parts else "exact"
    return Corpus(stored.rows, opened.searcher, bm25), _Prompts(query, own.document), index


def _words(stored: Stored, language: str | None) -> BM25:
    from sentcli.search import words
    from sentcli.search.bm25 import BM25, LANGUAGE

    found = words.kept(stored, language)
    if found is None:
        option = f" --language {language}" if language not in (None, LANGUAGE) else ""
        keep = f"sentcli index {stored.folder} --type bm25{option}"
        console.note(f"BM25 of {len(stored.rows)} rows is made now; {keep} keeps it")
        found = BM25.build(stored.rows.texts(), language=language or LANGUAGE)
    return found


def _read_file(asked: Search, encoder: SentenceEncoder | None, way: Way, own: _Prompts) -> tuple[Corpus, Any]:
    from sentcli.io.readers import ReadOptions
    from sentcli.search import searcher
    from sentcli.search.bm25 import BM25, LANGUAGE
    from sentcli.search.corpus import Corpus, read_rows

    rows = read_rows(asked.corpus, ReadOptions(asked.text_field, asked.id_field))
    if repeated := len(rows) - len({row.id for row in rows.rows}):
        console.warn(f"{repeated} rows have an id that another row has, too: hits do not say which")
    bm25 = None if way == "dense" else BM25.build(rows.texts(), language=asked.language or LANGUAGE)
    if encoder is None:
        return Corpus(rows, None, bm25), None
    texts = list(rows.texts())
    with console.encoding("encoding", len(set(texts))) as bar:
        vectors, stats = encoder.encode_counted(texts, prompt=own.document, progress=bar)
    options.warn_truncated(encoder.spec.max_length, stats.truncated, stats.tokens_lost)
    built = searcher.build(asked.index or "flat", vectors, asked.similarity or "cosine")
    built.device = encoder.backend.device
    return Corpus(rows, built, bm25), built.described() if built.parts else "exact"


def _answers(
    corpus: Corpus,
    asked: Search,
    way: Way,
    queries: list[_Query],
    encoding: Encoding,
    encoder: SentenceEncoder | None,
    prompts: _Prompts,
) -> Iterator[list[Hit]]:
    """Yield the hits of each query."""
    if encoder is not None and encoding.query_length is not None:
        encoder = encoder.with_max_length(encoding.query_length)
    with console.counting("searching", len(queries)) as progress:
        for start in range(0, len(queries), TOGETHER):
            texts = [query.text for query in queries[start : start + TOGETHER]]
            vectors = encoder.encode(texts, prompt=prompts.query) if encoder is not None else None
            yield from corpus.search(way, texts, vectors, asked.top_k, asked.dense_weight)
            progress(len(texts))


def _show(queries: list[_Query], answers: Iterator[list[Hit]], asked: Search, *, keep: bool) -> list[dict[str, Any]]:
    """Print tables of the first queries unless the hits are written; return all for JSON if they are to be kept."""
    results = []
    with _lines(asked.hits) as lines:
        for number, (query, hits) in enumerate(zip(queries, answers, strict=True)):
            found = {"query": query.text, "hits": [hit.to_dict() for hit in hits]}
            if query.id is not None:
                found = {"id": query.id, **found}
            if keep:
                results.append(found)
            if lines is not None:
                lines.write(json.dumps(found, ensure_ascii=False, default=str) + "\n")
            elif number < SHOWN:
                console.hits(query.text, hits)
    if lines is None and len(queries) > SHOWN:
        console.note(f"the hits of {SHOWN} of {len(queries)} queries are shown; --hits FILE or --json FILE has all")
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
