"""Cheaper ways to search a retrieval set with a model, and what each of them loses.

One encoding feeds every way of keeping vectors: fewer dimensions, fewer bits, an index. Another way of encoding (a
length, a prompt, a pooling, a precision, a backend) is a pass of its own. A way is chosen on one half of the queries
and its loss is measured on the other half, because the best of many is better by chance where it was chosen.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np

from sentcli import console
from sentcli.arrays import Float64Array, Vectors
from sentcli.compression import Compression
from sentcli.errors import InputError, SentcliError
from sentcli.evaluation import costs
from sentcli.evaluation.differences import Difference
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.readings import ReadDocuments, encode_documents, pieces_of
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_metrics import each_query, main_metric, ranked
from sentcli.evaluation.set_search import SetSearch
from sentcli.evaluation.significance import mean_interval
from sentcli.evaluation.variant_grid import Encoding, Storage, VariantGrid, encodings, storages
from sentcli.search import searcher
from sentcli.search.exact import Blocks
from sentcli.search.faiss_border import require_faiss
from sentcli.search.options import SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.search.searcher import CompressedSearch, Searcher

HITS = 10
"""Hits of each query that a way of searching finds, as of ``retrieve``; more would let rescoring compare more rows."""
LEAST_TO_CHOOSE = 10
"""The least number of queries for which a way is chosen: half of fewer queries tell nothing."""
SAME_SPEED = 0.25
"""Speeds that differ by a smaller share count as equal, because they vary as much from one run to the next."""
SAMPLED_FROM = 10_000
"""The speed is measured on some of so many first documents."""


@dataclass(frozen=True)
class EncodedSet:
    """A set that was encoded in one way."""

    encoding: Encoding
    queries: Vectors
    """``[queries, dim]``."""
    documents: ReadDocuments
    normalized: bool
    cut: float
    """The share of the documents that are longer than the maximum length."""
    texts_per_second: float
    """The speed of encoding documents, on a sample without the cache."""

    def searched(self, storage: Storage) -> tuple[Searcher | CompressedSearch, int, float]:
        """Return the search by vectors that are kept in some way, the bytes of a row, and the seconds of an index."""
        compression = replace(storage.compression, renormalize=self.normalized)
        vectors = compression.apply(self.documents.vectors)
        origin = Provenance(output_dtype=compression.output_type, truncate_dim=compression.truncate_dim)
        blocks = Blocks([vectors], signs=origin.signs(vectors.shape[1]))
        started = time.perf_counter()
        search = searcher.searcher_over(storage.index, blocks)
        seconds = 0.0
        if search.parts:
            seconds = time.perf_counter() - started
        row_bytes = vectors.itemsize * vectors.shape[1]
        for part in search.parts:
            row_bytes += part.row_bytes
        if storage.compression == Compression():
            return search, row_bytes, seconds
        fit_queries = partial(origin.compress, normalized=self.normalized)
        if not storage.rescored:
            return CompressedSearch(search, fit_queries, None), row_bytes, seconds
        whole = self.documents.vectors.astype(np.float16)
        row_bytes += whole.itemsize * whole.shape[1]
        return CompressedSearch(search, fit_queries, Blocks([whole])), row_bytes, seconds


@dataclass(frozen=True)
class Variant:
    """A way of encoding a set and keeping its vectors, and its score."""

    encoding: Encoding
    storage: Storage
    name: str
    values: Float64Array = field(repr=False)
    """The metric of each query ``[queries]``."""
    bytes_per_vector: int
    """The bytes of the vectors of a document: of one, or in the mean of those of its passages."""
    texts_per_second: float
    queries_per_second: float
    seconds: float
    """The time of encoding all documents and of making the index."""

    def dominates(self, other: Variant, value: float, other_value: float) -> bool:
        """Tell whether this way is no worse than another one in anything, and better in something."""
        encoding_ratio = self.texts_per_second / max(other.texts_per_second, 1e-9)
        search_ratio = self.queries_per_second / max(other.queries_per_second, 1e-9)
        is_slower = min(encoding_ratio, search_ratio) < 1 - SAME_SPEED
        is_larger = self.bytes_per_vector > other.bytes_per_vector
        if is_slower or is_larger or value < other_value:
            return False
        is_faster = max(encoding_ratio, search_ratio) > 1 / (1 - SAME_SPEED)
        is_smaller = self.bytes_per_vector < other.bytes_per_vector
        return is_faster or is_smaller or value > other_value


@dataclass(frozen=True)
class VariantComparison:
    """Ways of searching a set, compared with the one that the command asked for, which is the first."""

    task: str
    metric: str
    variants: Sequence[Variant]
    allow: float
    """The loss that is allowed, in units of the metric."""

    @cached_property
    def halves(self) -> tuple[Any, Any]:
        """The positions of the queries by which a way is chosen, and of those by which its loss is measured."""
        count = len(self.variants[0].values)
        stream = zlib.crc32(self.task.encode())
        order = np.random.default_rng(stream).permutation(count)
        return np.sort(order[: count // 2]), np.sort(order[count // 2 :])

    def value(self, variant: Variant) -> float:
        """Return the score of a way on the half by which the loss is measured."""
        return float(variant.values[self.halves[1]].mean())

    def difference(self, variant: Variant, half: int = 1) -> Difference:
        """Return the score of a way minus that of the first one, on one of the `halves`."""
        if variant is self.variants[0]:
            return Difference(0.0, 0.0, 0.0)
        differences = variant.values - self.variants[0].values
        sizes = differences[differences != 0]
        if not len(sizes):  # what it is of all ways
            of_all = np.concatenate([other.values - self.variants[0].values for other in self.variants])
            sizes = of_all[of_all != 0]
        usual = 0.0
        if len(sizes):
            usual = float(np.sqrt(np.mean(sizes**2)))
        of_half = differences[self.halves[half]]
        low, high = mean_interval(of_half, usual)
        return Difference(float(of_half.mean()), low, high)

    @cached_property
    def chosen(self) -> Variant:
        """The way of the fewest bytes among those whose first half excludes a loss, and of these the fastest."""
        allowed = [variant for variant in self.variants if self.difference(variant, 0).excludes_loss(self.allow)]
        return min(allowed, key=lambda variant: (variant.bytes_per_vector, variant.seconds))

    @cached_property
    def front(self) -> list[bool]:
        """Whether each way is on the Pareto front of score, bytes and speeds."""
        scored = [(variant, self.value(variant)) for variant in self.variants]
        front = []
        for variant, score in scored:
            is_dominated = any(other.dominates(variant, other_score, score) for other, other_score in scored)
            front.append(not is_dominated)
        return front


def encode_set(
    model: EvaluatedModel, data: RetrievalSet, encoding: Encoding, sample: Sequence[str], label: str
) -> EncodedSet:
    """Encode a set in one way; texts that were encoded before come from the cache.

    Args:
        model: with the options of the command.
        data: the set.
        encoding: what differs from these options.
        sample: documents by which the speed is measured.
        label: of the progress bar.
    """
    rerun = model.rerun and encoding != Encoding()  # the command has encoded its own way anew
    other = EvaluatedModel(model.name, replace(model.options, **encoding.options), rerun=rerun)
    query_prompt = document_prompt = ""
    if encoding.prompts:
        query_prompt, document_prompt = SearchOptions().prompts(other.spec)
    queries = list(data.queries.values())
    encoder = other.load()
    with console.encoding(label, len(queries) + len(data.ids)) as progress:
        encoded = other.encode(queries, progress, prompt=query_prompt, length=data.facts.query_length)
        query_vectors = encoded.vectors_of(queries)
        documents = encode_documents(other, data, encoding.reading, document_prompt, progress)
    measured = sample
    if encoding.reading != "cut":
        measured = pieces_of(other, sample, document_prompt, data)
    speed = costs.measure_costs(other, measured)["texts_per_second"] * len(sample) / max(len(measured), 1)
    normalized = bool(encoder.spec.normalizes)
    if encoder.sent is not None:
        console.note(f"{model.name} was sent {encoder.sent}")
    other.release()
    return EncodedSet(
        encoding=encoding,
        queries=query_vectors,
        documents=documents,
        normalized=normalized,
        cut=documents.truncated / len(data.ids),
        texts_per_second=speed,
    )


def score_variant(search: SetSearch, encoded: EncodedSet, storage: Storage) -> Variant:
    """Search a set by vectors that are kept in one way, and score the hits."""
    searcher_of_way, row_bytes, index_seconds = encoded.searched(storage)
    started = time.perf_counter()
    hits = search.found(encoded.documents.nearest(searcher_of_way, encoded.queries, search.count))
    search_seconds = time.perf_counter() - started
    qrels = search.data.qrels
    values = each_query(ranked(search.run(hits), qrels), qrels, HITS)
    count = len(search.data.ids)
    name = storage.name(encoded.documents.vectors.shape[1])
    if encoded.encoding.name:
        name = f"{encoded.encoding.name}, {name}"
    return Variant(
        encoding=encoded.encoding,
        storage=storage,
        name=name,
        values=values[main_metric(HITS)],
        bytes_per_vector=round(row_bytes * encoded.documents.per_document(count)),
        texts_per_second=encoded.texts_per_second,
        queries_per_second=len(encoded.queries) / max(search_seconds, 1e-9),
        seconds=count / encoded.texts_per_second + index_seconds,
    )


def score_variants(
    model: EvaluatedModel, data: RetrievalSet, name: str, grid: VariantGrid, allow: float
) -> VariantComparison:
    """Score a set in every way of a grid.

    Args:
        model: with the options of the command, whose way is the first.
        data: the set.
        name: of the set, for messages.
        grid: what is tried.
        allow: the loss that is allowed, in units of the metric.

    Raises:
        InputError: if the grid does not fit the model.
    """
    require_faiss()
    if model.spec.similarity != "cosine":
        raise InputError(f"--variants compares vectors by the cosine; {model.name} says {model.spec.similarity}")
    search = SetSearch(data, SearchOptions(top_k=HITS))
    sample = costs.sample_texts([list(islice(data.texts(), SAMPLED_FROM))])
    first = encode_set(model, data, Encoding(), sample, f"{name}: encoding")
    variants: list[Variant] = []
    rows, columns = first.documents.vectors.shape
    ways = storages(grid, rows, columns)
    with console.counting(f"{name}: ways of keeping vectors", len(ways)) as progress:
        for way in ways:
            try:
                variants.append(score_variant(search, first, way))
            except InputError as error:
                console.note(f"{way.name(columns)}: left out ({error})")
            progress(1)
    smallest = VariantComparison(name, main_metric(HITS), variants, allow).chosen.storage
    for encoding in encodings(grid, model, first.cut, titled=data.titled):
        try:
            encoded = encode_set(model, data, encoding, sample, f"{name}: {encoding.name}")
        except SentcliError as error:
            console.warn(f"{encoding.name}: left out ({error})")
            continue
        for way in dict.fromkeys([Storage(), smallest]):
            variants.append(score_variant(search, encoded, way))
    comparison = VariantComparison(name, main_metric(HITS), variants, allow)
    _say_of_readings(comparison)
    return comparison


def _say_of_readings(comparison: VariantComparison) -> None:
    """Say of each way of reading long documents whether it is shown to find more than cutting them."""
    queries = len(comparison.halves[1])
    for variant in comparison.variants:
        if variant.encoding.reading == "cut" or variant.storage != Storage():
            continue
        difference = comparison.difference(variant)
        verdict = "is not shown to help"
        if difference.is_gain:
            verdict = "finds more than cutting long documents"
        elif difference.is_loss:
            verdict = "finds less than cutting long documents"
        words = f"{difference.words()} {comparison.metric}, {queries} queries"
        console.note(f"{comparison.task}: {variant.encoding.reading} {verdict}: {words}")
