"""``retrieve --corpus milvus:URI``: hits from a collection of Milvus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.verbs.hits import TOP_K, CorpusSearch, Hits

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.milvus import MilvusCollection
    from sentcli.search.milvus_corpus import MilvusCorpus
    from sentcli.verbs.options import CorpusOptions, SearchOptions


@contextmanager
def open_collection(
    asked: CorpusSearch, outcome: Hits
) -> Iterator[tuple[MilvusCorpus | None, SentenceEncoder | None, str]]:
    """Open a collection, set the facts of the outcome, and yield what `retrieve_corpus` yields for files.

    Raises:
        InputError: if there is no such collection, or its vectors do not compare with those of the encoder.
    """
    from sentcli.search.fusion import described
    from sentcli.search.milvus import MilvusCollection
    from sentcli.search.milvus_client import connect
    from sentcli.search.milvus_corpus import MOST, MilvusCorpus

    options, search = asked.corpus, asked.search
    top_k = search.top_k or TOP_K
    _check_usage(options, search, top_k, MOST)
    with connect(str(options.corpus)) as client:
        collection = MilvusCollection.open(client, str(options.corpus), str(options.collection))
        condition = _condition(collection, options, outcome)
        if asked.counts_only:
            yield None, None, ""
            return
        record, encoder, prompt = collection.record, None, ""
        outcome.protocol |= {"search": search.search, "top_k": top_k}
        for way in search.ways:
            outcome.protocol |= described(way, top_k, search.weight)
        if search.by_vectors:
            encoder, prompt = _encoder(collection, asked)
            outcome.model = encoder.model
            outcome.ran_on(encoder.backend.device, encoder.backend.precision)
            index = {"kind": record.kind, **record.efforts}
            if search.query_length is not None:
                outcome.protocol["query_length"] = search.query_length
            outcome.protocol |= {"similarity": record.similarity, **encoder.describe(), "index": index}
            outcome.protocol |= {"query_prompt": prompt, "document_prompt": record.settings.get("prompt") or ""}
            if record.recall is not None:
                recall = f"recall@{record.recall['k']} {record.recall['chosen']['recall']:.3f}"
                console.note(f"index {record.kind}: {recall} against exact search when it was measured")
        if search.by_words:
            outcome.protocol["bm25"] = {"method": "milvus", "language": record.language}
        prompt = record.settings.get("prompt") or "" if options.like else prompt
        yield MilvusCorpus(collection, condition), encoder, prompt


def _check_usage(options: CorpusOptions, search: SearchOptions, top_k: int, most: int) -> None:
    if options.collection is None:
        raise InputError("--corpus milvus:URI needs --collection NAME")
    others: dict[str, Any] = {"--texts": options.texts, "--rescore": options.rescore, "--index": search.index}
    others |= {"--language": search.language, "--id-field": options.id_field}
    if wrong := [name for name, value in others.items() if value is not None]:
        raise InputError(f"{wrong[0]} does not go with a collection, which was made with such choices")
    if top_k > most:
        raise InputError(f"--top-k {top_k}: Milvus finds at most {most:,}")


def _condition(collection: MilvusCollection, options: CorpusOptions, outcome: Hits) -> str:
    """Return ``--where`` as a filter of Milvus, and count the rows that meet it by ``--count-by``."""
    from sentcli.search.conditions import check_column, parse_condition
    from sentcli.search.milvus_rows import filter_of

    schema, condition = collection.record.schema(), ""
    if options.count_by is not None:
        check_column(options.count_by, schema, collection.title, "--count-by")
    if options.where is not None:
        parsed = parse_condition(options.where, schema, collection.title)
        condition = filter_of(parsed.tree, collection.record.columns)
        left = collection.count(condition)
        outcome.protocol |= {"where": options.where, "rows_searched": left}
        console.note(f"{left:,} of {collection.count():,} rows meet the condition")
    if options.count_by is not None:
        outcome.count(options.count_by, collection.counted(options.count_by, condition))
    return condition


def _encoder(collection: MilvusCollection, asked: CorpusSearch) -> tuple[SentenceEncoder, str]:
    """Load the model that was given, or the one that made the vectors; return it with the prompt of queries."""
    from sentcli.encoder.announce import load_encoder

    search, origin, similarity = asked.search, collection.origin, collection.record.similarity
    if search.similarity not in (None, similarity):
        raise InputError(f"{collection.title} was made for similarity {similarity!r}, not {search.similarity!r}")
    if asked.models:
        encoder = load_encoder(asked.models[0], asked.load)
    else:
        encoder = load_encoder(origin.named_model(), origin.load_options(asked.load))
    document = encoder.role_prompt("document") if search.doc_prompt is None else search.doc_prompt
    origin.check_encoder(encoder, document, collection.record.dimension)
    return encoder, encoder.role_prompt("query") if search.query_prompt is None else search.query_prompt
