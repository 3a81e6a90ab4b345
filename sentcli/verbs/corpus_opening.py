"""What ``retrieve --corpus`` searches: a directory or file of vectors, or a file of texts that is encoded now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.search.bm25 import BM25
    from sentcli.search.corpus import Corpus, RowsInMemory
    from sentcli.search.exact import Mask
    from sentcli.search.searcher import Searcher, SmallerSearch
    from sentcli.search.store import Store
    from sentcli.search.vector_file import VectorFile
    from sentcli.verbs.options import CorpusOptions, SearchOptions


def _prompts(search: SearchOptions, encoder: SentenceEncoder) -> tuple[str, str]:
    """Return the texts in front of queries and documents."""
    query = encoder.role_prompt("query") if search.query_prompt is None else search.query_prompt
    return query, encoder.role_prompt("document") if search.doc_prompt is None else search.doc_prompt


def opened(
    stored: Store | VectorFile,
    search: SearchOptions,
    encoder: SentenceEncoder | None,
    rescore: str | None = None,
) -> tuple[Corpus, dict[str, Any]]:
    """Return stored vectors as a corpus to search, and the index and the prompts for the protocol.

    Args:
        stored: the vectors.
        search: how queries and documents are compared.
        encoder: of the queries; not needed for ``bm25``.
        rescore: a directory or file with vectors of the same rows that were not made smaller.

    Raises:
        InputError: if the vectors do not compare with those of the encoder, or there is no such index.
    """
    from sentcli.search import searcher as searching
    from sentcli.search.corpus import Corpus
    from sentcli.search.store import Store

    bm25 = _words(stored, search.language) if search.by_words else None
    if encoder is None:
        return Corpus(stored.rows, None, bm25), {}
    query, document = _prompts(search, encoder)
    if not stored.origin.known:
        document = stored.origin.prompt or ""
    stored.origin.check_encoder(encoder, document, stored.blocks.dimension)
    if isinstance(stored, Store):
        searcher, query = _index(stored, search, encoder, query)
    else:
        stored.origin.check_similarity(search.similarity or "cosine")
        searcher = searching.build(search.index or "flat", stored.blocks, search.similarity or "cosine")
        searcher.device = encoder.backend.device
    choices = _choices(searcher, query, document) | stored.origin.described()
    if rescore is not None:
        choices["rescored"] = searching.FULL_RESCORED
    return Corpus(stored.rows, _smaller(stored, searcher, encoder, document, rescore), bm25), choices


def _smaller(
    stored: Store | VectorFile, searcher: Searcher, encoder: SentenceEncoder, document: str, rescore: str | None
) -> Searcher | SmallerSearch:
    """Return the search itself, or over vectors that were made smaller one that fits the queries to them."""
    from functools import partial

    from sentcli.search.searcher import SmallerSearch
    from sentcli.search.vector_file import open_vectors

    origin = stored.origin
    if not origin.described():
        if rescore is not None:
            raise InputError(f"--rescore goes with vectors that were made smaller; {origin.name} is full")
        return searcher
    fit = partial(origin.fitted, normalized=encoder.spec.normalizes)
    if rescore is None:
        return SmallerSearch(searcher, fit)
    full = open_vectors(rescore)
    origin.check_same_rows(full.origin)
    full.origin.check_encoder(encoder, document if full.origin.known else "", full.blocks.dimension)
    if len(full.blocks) != len(stored.blocks):
        rows = f"{len(full.blocks):,} rows, {origin.name} has {len(stored.blocks):,}"
        raise InputError(f"--rescore {rescore} has {rows}")
    return SmallerSearch(searcher, fit, full.blocks)


def _index(store: Store, search: SearchOptions, encoder: SentenceEncoder, query: str) -> tuple[Searcher, str]:
    """Open the index of a directory; return the search and the prompt of the queries."""
    device, default_prompt = encoder.backend.device, encoder.role_prompt("query")
    opened = store.open_index(search.index, search.similarity, search.query_prompt, device, default_prompt)
    if opened.recall is not None:
        name = opened.searcher.recipe.kind
        console.note(f"index {name}: recall@{opened.k} {opened.recall:.3f} against exact search when it was built")
    if opened.unindexed:
        console.note(f"{opened.unindexed} rows were added since the index was built; they are searched exactly")
    if search.query_prompt is None and opened.query_prompt is not None:
        query = opened.query_prompt
    return opened.searcher, query


def _choices(searcher: Searcher, query: str, document: str) -> dict[str, Any]:
    index = searcher.described() if searcher.parts else "exact"
    return {"index": index, "query_prompt": query, "document_prompt": document}


def _words(stored: Store | VectorFile, language: str | None) -> BM25:
    """Return the BM25 index of a directory or file, built now if it has none."""
    from sentcli.search.bm25 import BM25, LANGUAGE
    from sentcli.search.store import Store

    if not isinstance(stored, Store):
        return BM25.build(stored.rows.texts(), language=language or LANGUAGE)
    index = stored.words(language)
    if index is not None:
        return index
    option = f" --language {language}" if language not in (None, LANGUAGE) else ""
    command = f"sentcli index {stored.origin.name} --type bm25{option}"
    console.note(f"BM25 of {len(stored.rows)} rows is made now; {command} keeps it")
    return BM25.build(stored.rows.texts(), language=language or LANGUAGE)


def opened_file(
    rows: RowsInMemory,
    options: CorpusOptions,
    mask: Mask | None,
    model: EvaluatedModel | None,
    search: SearchOptions,
    encoder: SentenceEncoder | None,
) -> tuple[Corpus, dict[str, Any]]:
    """Return what `opened` returns for vectors, after encoding the rows of a file of texts that `mask` leaves.

    Vectors that the cache has are not made again. An index is built over all rows, whatever the mask.
    """
    import numpy as np

    from sentcli.encoder.announce import warn_truncated
    from sentcli.search import searcher as searching
    from sentcli.search.bm25 import BM25, LANGUAGE
    from sentcli.search.corpus import Corpus

    if repeated := len(rows) - len({row.id for row in rows.rows}):
        console.warn(f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart")
    bm25 = BM25.build(rows.texts(), language=search.language or LANGUAGE) if search.by_words else None
    if encoder is None or model is None:
        return Corpus(rows, None, bm25), {}
    if rows.had_vectors:
        console.note(
            f"the vectors in {options.corpus} are not read and its texts encoded again: a directory, .parquet or "
            ".safetensors of encode is searched as it is"
        )
    query, document = _prompts(search, encoder)
    left = np.ones(len(rows), np.bool_) if mask is None or search.index not in (None, "flat") else mask
    texts = [text for text, is_left in zip(rows.texts(), left, strict=True) if is_left]
    vectors = np.zeros((len(rows), encoder.dimension), np.float32)
    with console.encoding("encoding", len(set(texts))) as bar:
        encoded = model.encode(texts, bar, prompt=document)
    vectors[left] = encoded.of(texts)
    beyond = encoded.beyond[[encoded.rows[text] for text in texts]]
    warn_truncated(encoder.spec.max_length, int((beyond > 0).sum()), int(beyond.sum()))
    searcher = searching.build(search.index or "flat", vectors, search.similarity or "cosine")
    searcher.device = encoder.backend.device
    return Corpus(rows, searcher, bm25), _choices(searcher, query, document)
