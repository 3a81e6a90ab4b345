"""Search by vectors over one corpus: exact, with an index, or with both where an index lacks the newest rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray, BoolArray, Vectors
from sentcli.errors import InputError
from sentcli.model.spec import Similarity
from sentcli.search import ann, exact
from sentcli.search.ann import FaissRecipe
from sentcli.search.exact import BLOCK, Blocks, prepared, search_blocks
from sentcli.search.faiss_index import FaissIndex
from sentcli.search.neighbours import Neighbours, merge
from sentcli.search.recall import sample, tune
from sentcli.search.rows import BLOCK_DOCUMENTS, Rows

if TYPE_CHECKING:
    from sentcli.search.on_device import DeviceRows

EXACT = FaissRecipe(ann.FLAT, "Flat")
"""The recipe of a search without indexes."""
HITS_AT_A_TIME = 2**22
"""How many hits are in memory at a time: about 4,000 queries with a thousand each."""
FULL_RESCORED = 10
"""How many rows are compared by their full vectors for each requested hit of a search by smaller ones."""
LEAST_RESCORED = 100
"""The least number of rows that are compared exactly where an index holds codes."""
EXACT_SHARE = 0.1
EXACT_ROWS = 10_000
"""Where a condition leaves a smaller share or a smaller number of the rows of an index, they are searched exactly."""
WHOLE_SHARE = 0.5
"""From this share of the rows on, exact search compares all of them and drops those that a condition leaves out, which
takes less time than copying the others."""


def _among_all(k: int) -> int:
    """Return how many rows are taken where `WHOLE_SHARE` of them may be found, so that `k` are likely left."""
    return int(1.5 * k / WHOLE_SHARE) + LEAST_RESCORED


@dataclass
class Searcher:
    """Finds the nearest rows of a corpus."""

    parts: Sequence[FaissIndex]
    """Indexes over the first rows of the corpus; without any, the search is exact. Each has the rows behind those of
    the one before it, or says which ones it has (`FaissIndex.nodes`)."""
    recipe: FaissRecipe
    """How the indexes were built."""
    blocks: Blocks
    """The vectors of the corpus."""
    similarity: Similarity = "cosine"
    device: str = "cpu"
    """The device of exact search; rows are copied to it once, at the first exact search."""
    scan: bool = False
    """Whether exact search on a device looks at rows in bf16 first; hits are those of float32 either way."""
    _opened: dict[tuple[str, int], DeviceRows] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The rows on a device, by its name and the position of the first of them."""

    def search(self, queries: AnyArray, k: int, mask: BoolArray | None = None) -> Neighbours:
        """Return the `k` nearest rows of each query ``[queries, dim]``; position -1 where an index found fewer.

        Args:
            queries: their vectors.
            k: the number of rows.
            mask: the rows that may be found ``[n]``; None stands for all. An index that finds too few of them is not
                relied on: their number decides whether it is asked at all, and what it lacks is searched exactly.

        Raises:
            InputError: if the queries have another dimension.
        """
        rows = len(self.blocks)
        if mask is not None:
            rows = int(np.count_nonzero(mask))
        k = min(k, rows)
        width = max(self._candidates(k), 1)
        if mask is not None:
            width = max(width, _among_all(k))
        size = max(HITS_AT_A_TIME // width, 1)
        parts = []
        for start in range(0, max(len(queries), 1), size):
            batch = queries[start : start + size]
            parts.append(self._search(batch, k, mask))
        return Neighbours.concatenated(parts)

    def _candidates(self, k: int) -> int:
        """Return how many rows the indexes have to find for `k` hits."""
        rescore = self.recipe.rescore
        if not rescore:
            return k
        return max(k * rescore, LEAST_RESCORED)

    def _search(self, queries: AnyArray, k: int, mask: BoolArray | None) -> Neighbours:
        """Search for queries whose hits fit into memory; see `search`."""
        if not len(self.blocks):
            return Neighbours.none(len(queries))
        indexed = sum(part.rows for part in self.parts)
        if not self._relies_on_index(indexed, k, mask):
            return self._exact(queries, k, 0, mask)
        hits = self._approximate(queries, k, mask)
        if mask is not None or self._has_dead_nodes:
            lacking = np.any(hits.positions < 0, axis=1)
            if lacking.any():
                hits.overwrite(lacking, self._exact(queries[lacking], k, 0, mask))
        lists = [hits]
        if indexed < len(self.blocks):
            lists.append(self._exact(queries, k, indexed, mask))
        return merge(lists, k)

    def _relies_on_index(self, indexed: int, k: int, mask: BoolArray | None) -> bool:
        """Tell whether `k` hits are looked for with the index, among the rows that it has and that may be found."""
        left = indexed
        if mask is not None:
            left = int(np.count_nonzero(mask[:indexed]))
            if left < max(EXACT_SHARE * indexed, EXACT_ROWS):
                return False
        return k < left  # an index is no help for finding all its rows, and a graph may not reach every one

    def _exact(self, queries: AnyArray, k: int, first: int, mask: BoolArray | None) -> Neighbours:
        """Compare queries with all rows from position `first` on that may be found."""
        if not exact.on_host(self.device):
            return self._on_device(first).search(queries, k, mask)
        if mask is None:
            return self._exact_of_chosen(queries, k, first, mask)
        rows = int(np.count_nonzero(mask[first:]))
        if rows < WHOLE_SHARE * (len(mask) - first):
            return self._exact_of_chosen(queries, k, first, mask)
        k = min(k, rows)
        best = self._exact_of_chosen(queries, _among_all(k), first, None)
        allowed = mask[best.positions]
        positions = np.where(allowed, best.positions, -1)
        hits = merge([Neighbours(positions, best.scores)], k)
        lacking = allowed.sum(axis=1) < k
        if lacking.any():  # the rows that are left out are the nearest ones
            hits.overwrite(lacking, self._exact_of_chosen(queries[lacking], k, first, mask))
        return hits

    def _on_device(self, first: int) -> DeviceRows:
        """Return the rows from position `first` on that are on the device, after copying them there once."""
        from sentcli.search.on_device import DeviceRows

        device = self.device
        key = device, first
        rows = self._opened.get(key)
        if rows is None:
            rows = DeviceRows.open(self.blocks, self.similarity, device, first=first, scan=self.scan)
            self._opened[key] = rows
        return rows

    def _exact_of_chosen(self, queries: AnyArray, k: int, first: int, mask: BoolArray | None) -> Neighbours:
        """Compare queries with the rows from position `first` on, reading only those that may be found."""
        similarity = self.similarity
        if similarity == "cosine" and self.blocks.are_unit(look=mask is None):  # looked at once for all searches
            queries = prepared(queries, similarity)
            similarity = "dot"
        return search_blocks(queries, self.blocks, k, first=first, mask=mask, similarity=similarity)

    def _approximate(self, queries: AnyArray, k: int, mask: BoolArray | None) -> Neighbours:
        """Search with the indexes, and compare exactly what an index of codes has found."""
        candidates = self._candidates(k)
        best = Neighbours.none(len(queries))
        first = 0
        for part in self.parts:
            if part.nodes is not None:
                in_corpus = part.search(queries, candidates, mask)
            else:
                in_corpus = _search_rows(part, first, queries, candidates, mask)
            best = merge([best, in_corpus], candidates)
            first += part.rows
        if self.recipe.rescore:
            whole = prepared(queries, self.similarity)
            best = self.blocks.rescored(whole, best, self.similarity)
        return merge([best], k)

    @property
    def _has_dead_nodes(self) -> bool:
        """Whether a part has nodes of rows that are gone, among which a graph may find too few others."""
        return any(part.nodes is not None and part.nodes.dead for part in self.parts)

    @property
    def efforts_to_try(self) -> list[dict[str, int]]:
        """The search parameters with which the index is measured, the least effort first."""
        return self.parts[0].efforts_to_try

    def set(self, efforts: dict[str, int]) -> None:
        """Set parameters of every index; see `FaissIndex.set`."""
        for part in self.parts:
            for parameter, value in efforts.items():
                part.set(parameter, value)

    @property
    def efforts(self) -> dict[str, int]:
        """The search parameters that were set."""
        if not self.parts:
            return {}
        return self.parts[0].efforts

    def protocol(self) -> dict[str, Any]:
        """Return the choices that change results, for protocols."""
        if not self.parts:
            return {"kind": ann.FLAT, **self._scans()}
        recipe = self.recipe
        protocol = {"kind": recipe.kind, "factory": recipe.factory, **self.efforts}
        if recipe.rescore:
            protocol["rescore"] = recipe.rescore
        return protocol

    def _scans(self) -> dict[str, Any]:
        """Return what scans on a device did, if there were any."""
        protocols: dict[str, Any] = {}
        for rows in self._opened.values():
            protocols |= rows.protocol()
        return protocols

    def exactly(self) -> Searcher:
        """Return exact search over the same rows: this search itself if it is exact."""
        if not self.parts:
            return self
        return Searcher([], EXACT, self.blocks, self.similarity, self.device, self.scan)


def _search_rows(part: FaissIndex, first: int, queries: AnyArray, k: int, mask: BoolArray | None) -> Neighbours:
    """Search an index of the rows of a corpus from position `first` on."""
    if mask is not None:
        mask = mask[first : first + len(part)]
    hits = part.search(queries, k, mask)
    positions = np.where(hits.positions < 0, -1, hits.positions + first)
    return Neighbours(positions, hits.scores)


@dataclass(frozen=True)
class CompressedSearch:
    """Finds the nearest rows by vectors that were made smaller, and rescores them by full ones where there are some.

    Rescoring is the adaptive retrieval of Kusupati et al., "Matryoshka Representation Learning", NeurIPS 2022.
    """

    searcher: Searcher
    """The search over the smaller vectors."""
    fit: Callable[[Vectors], Vectors]
    """Gives the vectors of queries the dimensions of the smaller ones."""
    full: Blocks | None = None
    """The full vectors of the same rows."""

    @property
    def similarity(self) -> Similarity:
        """The similarity of query and row."""
        return self.searcher.similarity

    def search(self, queries: AnyArray, k: int, mask: BoolArray | None = None) -> Neighbours:
        """Return the `k` nearest rows of each query ``[queries, dim]``, as `Searcher.search` does."""
        compressed = self.fit(queries.astype(np.float32, copy=False))
        if self.full is None:
            return self.searcher.search(compressed, k, mask)
        if not len(queries):
            return Neighbours.none(0)
        parts = []
        candidates = max(k * FULL_RESCORED, LEAST_RESCORED)
        size = max(HITS_AT_A_TIME // candidates, 1)
        for start in range(0, len(queries), size):
            batch = slice(start, start + size)
            hits = self.searcher.search(compressed[batch], candidates, mask)
            whole = prepared(queries[batch], self.similarity)
            rescored = self.full.rescored(whole, hits, self.similarity)
            parts.append(merge([rescored], k))
        return Neighbours.concatenated(parts)


@dataclass(frozen=True)
class StreamedSearch:
    """Exact search over rows that are encoded block by block as they are compared, all of them in each search."""

    rows: Rows
    encode: Callable[[Sequence[str]], Vectors]
    """Returns the vectors ``[n, dim]`` of texts."""
    similarity: Similarity
    device: str

    def blocks(self, mask: BoolArray | None = None) -> Iterator[Vectors]:
        """Yield the vectors of the rows that may be found."""
        texts = self.rows.texts()
        if mask is not None:
            texts = compress(texts, mask)
        while block := list(islice(texts, BLOCK_DOCUMENTS)):
            yield self.encode(block)

    def search(self, queries: AnyArray, k: int, mask: BoolArray | None = None) -> Neighbours:
        """Return the `k` nearest rows of each query ``[queries, dim]``, as `Searcher.search` does."""
        hits = exact.search(queries, self.blocks(mask), k, similarity=self.similarity, device=self.device)
        if mask is None:
            return hits
        positions = np.flatnonzero(mask)[hits.positions]
        return Neighbours(positions, hits.scores)


def scan_refused(device: str) -> InputError:
    """Return the error of a scan that is asked for on a processor."""
    return InputError(f"--index {ann.SCANNED} is for a GPU (--device cuda), and this is {device}: take flat")


def scanned(blocks: Blocks, similarity: Similarity, device: str) -> Searcher:
    """Return exact search over rows that a device scans in bf16 first.

    Raises:
        InputError: for a processor, which compares float32.
    """
    if exact.on_host(device):
        raise scan_refused(device)
    return Searcher([], EXACT, blocks, similarity, device, scan=True)


def searcher_over(
    kind: str, vectors: AnyArray | Blocks, similarity: Similarity = "cosine", device: str = "cpu"
) -> Searcher:
    """Return a search over vectors ``[n, dim]`` with an index in memory, tuned on a sample of them.

    Args:
        kind: as for `ann.recipe`.
        vectors: the vectors of the corpus.
        similarity: ``cosine`` or ``dot``.
        device: the device of exact search, and where an index is built if faiss can do it there.

    Raises:
        InputError: as for `ann.recipe`, or if there are too few rows for training.
    """
    blocks = vectors if isinstance(vectors, Blocks) else Blocks([vectors])
    rows = len(blocks)
    dimension = blocks.dimension
    recipe = ann.recipe(kind, rows, dimension)
    if recipe.kind == ann.SCANNED:
        return scanned(blocks, similarity, device)
    if recipe.kind == ann.FLAT or not rows:
        return Searcher([], recipe, blocks, similarity, device)
    index = FaissIndex.empty(recipe.factory, dimension, similarity, rows)
    index.train(blocks, device)
    with index.built_on(device) as built:
        for block in blocks.since(0, BLOCK):
            built.add(block)
    searcher = Searcher([index], recipe, blocks, similarity, device)
    reference = sample(blocks, similarity, device=device)
    tune(searcher, reference)
    searcher.parts = [index.on(device)]
    return searcher
