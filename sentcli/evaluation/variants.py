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
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import Ge
from pydantic import AfterValidator, BaseModel, ConfigDict, StrictBool

from sentcli import console
from sentcli.compression import Compression, OutputType
from sentcli.errors import InputError, SentcliError
from sentcli.evaluation import costs, significance
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_metrics import each_query, main_metric, ranked
from sentcli.evaluation.retrieval_tasks import SetSearch
from sentcli.evaluation.significance import Floats
from sentcli.io.forms import read_toml
from sentcli.model.options import MIN_LENGTH, Backend, Precision
from sentcli.model.spec import POOLINGS
from sentcli.search import ann, searcher
from sentcli.search.exact import Blocks, Vectors
from sentcli.search.faiss_border import require_faiss
from sentcli.search.options import SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.search.rows import BLOCK_DOCUMENTS
from sentcli.search.searcher import CompressedSearch, Searcher

HITS = 10
"""Hits of each query that a way of searching finds, as of ``retrieve``; more would let rescoring compare more rows."""
LEAST_TO_CHOOSE = 10
"""The least number of queries for which a way is chosen: half of fewer queries tell nothing."""
LEAST_DIMENSIONS, MOST_TRUNCATIONS = 32, 4
"""Without a file, the powers of two below the model's dimension down to this one are tried, and at most so many."""
OFTEN_CUT = 0.05
"""Without a file, half the maximum length is tried where a larger share of the documents is longer than that."""
SAME_SPEED = 0.25
"""Speeds that differ by a smaller share count as equal, because they vary as much from one run to the next."""
WORTH = {"hnsw": 10_000, "ivf": 10_000, "ivfpq": 100_000}
"""The kinds of index that are tried without a file, with the number of documents from which each may be worth it: exact
search compares fewer in a moment, and learning product codes takes a minute or two whatever their number."""
SAMPLED_FROM = 10_000
"""The speed is measured on some of so many first documents."""


def _known(pooling: str) -> str:
    """Refuse an unknown pooling."""
    if pooling not in POOLINGS:
        raise ValueError(f"no pooling {pooling!r}; one of {', '.join(POOLINGS)}")
    return pooling


class VariantGrid(BaseModel):
    """What is tried, as ``--variants FILE.toml`` says it."""

    model_config = ConfigDict(extra="forbid")

    dimensions: list[Annotated[int, Ge(1)]] | None = None
    """Numbers of leading dimensions; None takes powers of two."""
    types: list[Literal[OutputType, "binary rescored"]] = ["float32", "float16", "int8", "binary", "binary rescored"]
    """Types of the numbers in vectors, each with all dimensions; rescored bits have float16 vectors beside them."""
    indexes: list[str] | None = None
    """Kinds of index over whole vectors; None takes those of `WORTH` for which there are enough documents."""
    lengths: list[Annotated[int, Ge(MIN_LENGTH)]] | None = None
    """Maximum lengths in tokens; None takes half of the model's where many documents are longer."""
    poolings: list[Annotated[str, AfterValidator(_known)]] = []
    precisions: list[Precision] | None = None
    """Precisions of the computation; None takes int8 on a CPU."""
    backends: list[Backend] = []
    prompts: StrictBool = True
    """Encode without prompts as well, where the model has some."""

    @classmethod
    def read(cls, name: str) -> VariantGrid:
        """Read the file of a name; ``default`` stands for none."""
        if name == "default":
            return cls()
        if Path(name).suffix != ".toml":
            raise InputError(f"--variants {name}: expected a .toml file, or none; data stand in front of it")
        return read_toml(cls, Path(name))


@dataclass(frozen=True)
class Encoding:
    """How texts are encoded: what differs from the options of the command."""

    options: dict[str, Any] = field(default_factory=dict)
    """Fields of `LoadOptions`."""
    prompts: bool = True
    """Whether queries and documents have the prompts of the model."""

    @property
    def name(self) -> str:
        """The difference in words; empty for none."""
        words = {"max_length": "{} tokens", "precision": "{} weights", "pooling": "{} pooling", "backend": "{}"}
        parts = [words[key].format(value) for key, value in self.options.items()]
        if not self.prompts:
            parts.append("without prompts")
        return ", ".join(parts)


@dataclass(frozen=True)
class Storage:
    """How vectors are kept and searched."""

    compression: Compression = field(default_factory=Compression)
    rescored: bool = False
    """Whether the best hits are compared by whole vectors in float16."""
    index: str = ann.FLAT

    def name(self, dimension: int) -> str:
        """Return the way in words, of a model with so many dimensions."""
        kind = "bits" if self.compression.output_type == "binary" else self.compression.output_type
        parts = [f"{kind} x {self.compression.truncate_dim or dimension}"]
        if self.rescored:
            parts.append("rescored")
        if self.index != ann.FLAT:
            parts.append(self.index)
        return ", ".join(parts)


@dataclass(frozen=True)
class EncodedSet:
    """A set that was encoded in one way."""

    encoding: Encoding
    queries: Vectors
    """``[queries, dim]``."""
    documents: Vectors
    """``[documents, dim]``."""
    normalized: bool
    cut: float
    """The share of the documents that are longer than the maximum length."""
    texts_per_second: float
    """The speed of encoding documents, on a sample without the cache."""

    def searched(self, storage: Storage) -> tuple[Searcher | CompressedSearch, int, float]:
        """Return the search by vectors that are kept in some way, the bytes of a row, and the seconds of an index."""
        compression = replace(storage.compression, renormalize=self.normalized)
        vectors = compression.apply(self.documents)
        origin = Provenance(output_dtype=compression.output_type, truncate_dim=compression.truncate_dim)
        started = time.perf_counter()
        search = searcher.build(storage.index, Blocks([vectors], signs=origin.signs(vectors.shape[1])))
        seconds = time.perf_counter() - started if search.parts else 0.0
        row_bytes = vectors.itemsize * vectors.shape[1] + sum(part.row_bytes for part in search.parts)
        if storage.compression == Compression():
            return search, row_bytes, seconds
        fit_queries = partial(origin.compress, normalized=self.normalized)
        if not storage.rescored:
            return CompressedSearch(search, fit_queries, None), row_bytes, seconds
        whole = self.documents.astype(np.float16)
        row_bytes += whole.itemsize * whole.shape[1]
        return CompressedSearch(search, fit_queries, Blocks([whole])), row_bytes, seconds


@dataclass(frozen=True)
class Variant:
    """A way of encoding a set and keeping its vectors, and its score."""

    encoding: Encoding
    storage: Storage
    name: str
    values: Floats = field(repr=False)
    """The metric of each query ``[queries]``."""
    bytes_per_vector: int
    texts_per_second: float
    queries_per_second: float
    seconds: float
    """The time of encoding all documents and of making the index."""

    def dominates(self, other: Variant, value: float, other_value: float) -> bool:
        """Tell whether this way is no worse than another one in anything, and better in something."""
        speed_ratios = (
            self.texts_per_second / max(other.texts_per_second, 1e-9),
            self.queries_per_second / max(other.queries_per_second, 1e-9),
        )
        if value < other_value or self.bytes_per_vector > other.bytes_per_vector:
            return False
        if min(speed_ratios) < 1 - SAME_SPEED:
            return False
        if value > other_value or self.bytes_per_vector < other.bytes_per_vector:
            return True
        return max(speed_ratios) > 1 / (1 - SAME_SPEED)


class ScoreDifference(NamedTuple):
    """The difference of two scores, with the ends of its 95 % interval."""

    difference: float
    low: float
    high: float


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

    def difference(self, variant: Variant, half: int = 1) -> ScoreDifference:
        """Return the score of a way minus that of the first one, on one of the `halves`."""
        if variant is self.variants[0]:
            return ScoreDifference(0.0, 0.0, 0.0)
        differences = variant.values - self.variants[0].values
        sizes = differences[differences != 0] if differences.any() else self._all_differences
        usual = float(np.sqrt(np.mean(sizes**2))) if len(sizes) else 0.0
        of_half = differences[self.halves[half]]
        low, high = significance.sparse_interval(of_half, usual)
        return ScoreDifference(float(of_half.mean()), low, high)

    @cached_property
    def _all_differences(self) -> Floats:
        """The differences of all ways from the first one, for each query, that are not 0."""
        differences = np.concatenate([variant.values - self.variants[0].values for variant in self.variants])
        return differences[differences != 0]

    def is_allowed(self, variant: Variant) -> bool:
        """Tell whether the half by which a way is chosen excludes a loss beyond what is allowed."""
        return self.difference(variant, 0).low >= -self.allow

    @cached_property
    def chosen(self) -> Variant:
        """The way of the fewest bytes among those that are allowed, and of these the fastest."""
        allowed = filter(self.is_allowed, self.variants)
        return min(allowed, key=lambda variant: (variant.bytes_per_vector, variant.seconds))

    @cached_property
    def front(self) -> list[bool]:
        """Whether each way is on the Pareto front of score, bytes and speeds."""
        scores = [self.value(variant) for variant in self.variants]
        scored = list(zip(self.variants, scores, strict=True))

        def is_dominated(variant: Variant, score: float) -> bool:
            return any(other.dominates(variant, other_score, score) for other, other_score in scored)

        return [not is_dominated(variant, score) for variant, score in scored]


def encode(
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
    documents: list[Vectors] = []
    truncated = 0
    encoder = other.load()
    texts = data.texts()
    with console.encoding(label, len(queries) + len(data.ids)) as progress:
        encoded = other.encode(queries, progress, prompt=query_prompt, length=data.facts.query_length)
        query_vectors = encoded.of(queries)
        while block := list(islice(texts, BLOCK_DOCUMENTS)):
            encoded = other.encode(block, progress, prompt=document_prompt, length=data.facts.document_length)
            documents.append(encoded.of(block))
            truncated += encoded.truncated(block)
    speed = costs.measure(other, sample)["texts_per_second"]
    normalized = bool(encoder.spec.normalizes)
    if encoder.sent is not None:
        console.note(f"{model.name} was sent {encoder.sent}")
    other.release()
    return EncodedSet(
        encoding=encoding,
        queries=query_vectors,
        documents=np.concatenate(documents),
        normalized=normalized,
        cut=truncated / len(data.ids),
        texts_per_second=speed,
    )


def score(search: SetSearch, encoded: EncodedSet, storage: Storage) -> Variant:
    """Search a set by vectors that are kept in one way, and score the hits."""
    searcher_of_way, row_bytes, index_seconds = encoded.searched(storage)
    started = time.perf_counter()
    hits = search.found(searcher_of_way.search(encoded.queries, search.count))
    search_seconds = time.perf_counter() - started
    qrels = search.data.qrels
    values = each_query(ranked(search.run(hits), qrels), qrels, HITS)
    name = storage.name(encoded.documents.shape[1])
    if encoded.encoding.name:
        name = f"{encoded.encoding.name}, {name}"
    return Variant(
        encoding=encoded.encoding,
        storage=storage,
        name=name,
        values=values[main_metric(HITS)],
        bytes_per_vector=row_bytes,
        texts_per_second=encoded.texts_per_second,
        queries_per_second=len(encoded.queries) / max(search_seconds, 1e-9),
        seconds=len(encoded.documents) / encoded.texts_per_second + index_seconds,
    )


def storages(grid: VariantGrid, documents: int, dimension: int) -> list[Storage]:
    """Return the ways of keeping so many vectors of a dimension, first the whole ones."""
    dimensions = grid.dimensions
    if dimensions is None:
        powers = [2**power for power in range(20, 0, -1) if LEAST_DIMENSIONS <= 2**power < dimension]
        dimensions = powers[:MOST_TRUNCATIONS]
    indexes = grid.indexes
    if indexes is None:
        indexes = [kind for kind, least in WORTH.items() if documents >= least]
    for kind in indexes:
        ann.recipe(kind, max(documents, 100_000), dimension)  # refuses an unknown one, whatever the number of rows
    for size in dimensions:
        if size > dimension:
            raise InputError(f"--variants: {size} dimensions are more than the {dimension} of the model")
    ways = [Storage()]
    for truncated in (None, *dimensions):
        if truncated == dimension:
            continue
        for each in grid.types:
            output_type: Any = each.removesuffix(" rescored")
            ways.append(Storage(Compression(output_type, truncated), rescored=each.endswith(" rescored")))
    ways += [Storage(index=kind) for kind in indexes]
    return list(dict.fromkeys(ways))


def encodings(grid: VariantGrid, model: EvaluatedModel, cut: float) -> list[Encoding]:
    """Return the ways of encoding besides that of the command; `cut` is the share of documents that it cuts."""
    spec = model.spec
    options = model.options
    lengths = grid.lengths
    if lengths is None:
        lengths = [spec.max_length // 2] if spec.max_length and cut > OFTEN_CUT else []
    precisions = grid.precisions
    if precisions is None:
        precisions = ["int8"] if _int8_is_a_choice(model) else []
    ways = [Encoding({"max_length": length}) for length in lengths if length != spec.max_length]
    ways += [Encoding({"pooling": pooling}) for pooling in grid.poolings if pooling != spec.pooling]
    ways += [Encoding({"precision": precision}) for precision in precisions if precision != options.precision]
    ways += [Encoding({"backend": backend}) for backend in grid.backends if backend != options.backend]
    if grid.prompts and any(SearchOptions().prompts(spec)):
        ways.append(Encoding(prompts=False))
    return ways


def _int8_is_a_choice(model: EvaluatedModel) -> bool:
    """Tell whether a model runs on the CPU of this machine, by a backend that may take int8."""
    options = model.options
    if model.is_served or not options.on_cpu:
        return False
    return options.backend != "torch" and options.precision == "auto"


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
    sample = costs.sample([list(islice(data.texts(), SAMPLED_FROM))])
    first = encode(model, data, Encoding(), sample, f"{name}: encoding")
    variants: list[Variant] = []
    ways = storages(grid, *first.documents.shape)
    with console.counting(f"{name}: ways of keeping vectors", len(ways)) as progress:
        for way in ways:
            try:
                variants.append(score(search, first, way))
            except InputError as error:
                console.note(f"{way.name(first.documents.shape[1])}: left out ({error})")
            progress(1)
    smallest = VariantComparison(name, main_metric(HITS), variants, allow).chosen.storage
    for encoding in encodings(grid, model, first.cut):
        try:
            encoded = encode(model, data, encoding, sample, f"{name}: {encoding.name}")
        except SentcliError as error:
            console.warn(f"{encoding.name}: left out ({error})")
            continue
        variants += [score(search, encoded, way) for way in dict.fromkeys([Storage(), smallest])]
    return VariantComparison(name, main_metric(HITS), variants, allow)
