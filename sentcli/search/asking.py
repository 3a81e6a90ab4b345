"""Queries to a corpus: encoded, searched in every way that is asked for, reranked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from sentcli.errors import InputError
from sentcli.search import fusion
from sentcli.search.calibration import Calibration, Least
from sentcli.search.corpus import Corpus, Hit, has_passages, search_documents
from sentcli.search.options import SearchMode, SearchOptions

if TYPE_CHECKING:
    from sentcli.arrays import Float32Array
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.sources import Source

Query = tuple[str | None, str]
"""The id of a query, if it has one, and its text."""
DEFAULT_TOP_K = 10
"""Hits of each query unless another number is given."""


class HitReranker(Protocol):
    """What orders the first hits anew: a cross-encoder."""

    @property
    def depth(self) -> int:
        """Hits of each query that are ordered."""

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves a score."""

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Float32Array:
        """Return the scores of queries with texts ``[n]``."""


@dataclass(frozen=True)
class CorpusSearch:
    """A corpus, and how queries are put to it."""

    corpus: Corpus
    """The corpus, with the search that `Corpus.prepare` has opened."""
    options: SearchOptions
    encoder: SentenceEncoder | None
    """The model; None where only words are compared."""
    asking: SentenceEncoder | None
    """Encodes the queries: the model, perhaps with another maximum length."""
    facts: Mapping[str, Any]
    """What `Corpus.prepare` said of the corpus."""
    prompt: str = ""
    """The text in front of each query."""
    reranker: HitReranker | None = None
    """Orders the first hits anew."""
    alike: bool = False
    """Whether the queries are rows of the corpus, which are no hits of their own."""
    per_document: int | None = None
    """The most hits of a document, of a corpus of passages; None where each row is a document."""
    calibration: Calibration | None = None
    """Gives hits by vectors the probability that they are right."""
    least: Least | None = None
    """What hits have to have; the others are left out."""

    @property
    def top_k(self) -> int:
        """Hits of each query."""
        return self.options.top_k or DEFAULT_TOP_K

    def protocol(self) -> dict[str, Any]:
        """Return every choice that moves a score."""
        options = self.options
        protocol: dict[str, Any] = {"search": ",".join(options.modes), "top_k": self.top_k}
        if self.encoder is not None:
            protocol |= self.encoder.describe() | self.encoder.provenance()
            if options.query_length is not None:
                protocol["query_length"] = options.query_length
        protocol |= self.facts
        if self.per_document is not None:
            protocol["per_document"] = self.per_document
        for mode in options.modes:
            protocol |= fusion.fusion_protocol(mode, self.top_k, options.weight)
        if self.reranker is not None:
            protocol |= self.reranker.protocol
        if self.calibration is not None:
            protocol["probabilities"] = asdict(self.calibration.learned_from)
        if self.least is not None:
            protocol["least"] = asdict(self.least)
        return protocol

    def hits(self, queries: Sequence[Query]) -> Iterator[tuple[Query, dict[str, list[Hit]]]]:
        """Yield each query with its hits by the way of searching, best first."""
        texts = [text for _, text in queries]
        vectors = None if self.asking is None else self.asking.encode(texts, prompt=self.prompt)
        count = self.top_k
        if self.reranker is not None:
            count = max(count, self.reranker.depth)
        if self.alike:
            count += 1
        lists = []
        for mode in self.options.modes:
            of_mode = search_documents(
                self.corpus, mode, texts, vectors, count, self.options.weight, per_document=self.per_document
            )
            if self.alike:
                of_mode = _without_themselves(queries, of_mode)
            if self.reranker is not None:
                of_mode = _reranked(self.reranker, texts, of_mode)
            lists.append(of_mode)
        for query, *of_query in zip(queries, *lists, strict=True):
            shown: dict[str, list[Hit]] = {}
            for mode, hits in zip(self.options.modes, of_query, strict=True):
                shown[mode] = self._shown(mode, hits[: self.top_k])
            yield query, shown

    def _shown(self, mode: SearchMode, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits of a query that are shown, with their probabilities, ranked."""
        kept = list(hits)
        if self.calibration is not None and mode == "dense":
            probabilities = self.calibration.probabilities([hit.score for hit in hits]).tolist()
            kept = [replace(hit, probability=value) for hit, value in zip(hits, probabilities, strict=True)]
        if self.least is not None:
            kept = list(filter(self.least.keeps, kept))
        return [replace(hit, rank=rank) for rank, hit in enumerate(kept, 1)]


def rows_as_queries(corpus: Corpus, keys: Sequence[str]) -> list[Query]:
    """Return the texts of the rows of ``--like`` with their ids.

    Raises:
        InputError: for an id that no row has.
    """
    rows = corpus.documents(keys)
    missing = [key for key in keys if key not in rows]
    if missing:
        raise InputError(f"--like {missing[0]}: {corpus.title} has no row with this id")
    return [(key, rows[key].text) for key in dict.fromkeys(keys)]


def most_per_document(corpus: Corpus, chosen: int | None) -> int | None:
    """Return how many hits of a document are shown: one of a corpus of passages unless the user says otherwise.

    Raises:
        InputError: if the user does, and the rows of the corpus are no passages.
    """
    if has_passages(corpus.schema):
        return chosen or 1
    if chosen is not None:
        raise InputError(f"--per-document {chosen}: the rows of {corpus.title} are no passages of documents")
    return None


def read_queries(source: Source) -> list[tuple[str, str]]:
    """Return the ids and texts of a file of queries."""
    from sentcli.io.blocks import blocks
    from sentcli.io.readers import ReadOptions

    queries: list[tuple[str, str]] = []
    for block in blocks([source], ReadOptions()):
        queries += zip(block.ids, block.texts, strict=True)
    if not queries:
        raise InputError(f"{source.name}: the file is empty: there is no query")
    return queries


def _without_themselves(queries: Sequence[Query], lists: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    """Return the hits of rows that are queries, each without the row itself."""
    others = []
    for (key, _), hits in zip(queries, lists, strict=True):
        others.append([hit for hit in hits if hit.row.id != key])
    return others


def _reranked(reranker: HitReranker, queries: Sequence[str], lists: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
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
