"""Alignment and uniformity of sentence vectors (Wang and Isola, ICML 2020), as in SimCSE's fig. 2, and neighbours.

Uniformity and nearest neighbours need the cosine of every pair of rows. Both are computed in one pass over blocks of
pairs, so that the cosines are never in memory all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np

from sentcli.arrays import Float64Array, FloatArray, Int64Array
from sentcli.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from sentcli.evaluation.sts_pairs import Pairs
    from sentcli.stores.text_vectors import TextVectors

POSITIVE_ABOVE = 4.0
"""Gold score that a pair of STS-B must exceed to be a positive (SimCSE, sec. 2 and fig. 2)."""


def alignment(first: FloatArray, second: FloatArray) -> float:
    """Mean squared distance between the unit vectors of positive pairs; lower is closer.

    Args:
        first: ``[n, d]``.
        second: ``[n, d]``; row i is the positive of row i of `first`.

    Raises:
        ValueError: if the shapes differ.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"{first.shape} and {second.shape} must both be [n, d]")
    return float(np.square(unit_rows(first) - unit_rows(second)).sum(axis=1).mean())


def uniformity(vectors: FloatArray) -> float:
    """Logarithm of the mean of ``exp(-2 |x - y|^2)`` over all pairs of unit vectors; lower is more spread out.

    Args:
        vectors: ``[n, d]``, n at least 2.

    Raises:
        ValueError: for fewer than two vectors.
    """
    return all_pairs(vectors, 0).uniformity


@dataclass(frozen=True)
class PairGeometry:
    """Alignment of the positives and uniformity of all sentences."""

    alignment: float
    uniformity: float
    positives: int
    """Number of pairs of alignment."""
    texts: int
    """Number of distinct sentences of uniformity."""


def pair_geometry(vectors: TextVectors, subsets: Sequence[Pairs], above: float | None = POSITIVE_ABOVE) -> PairGeometry:
    """Measure the vectors of scored pairs.

    Args:
        vectors: of the sentences of the pairs.
        subsets: the pairs.
        above: the pairs with a higher gold score are positives; None takes all pairs (SimCSE's issue 52).

    Raises:
        InputError: if there is no positive pair, or only one distinct sentence.
    """
    first: list[str] = []
    second: list[str] = []
    texts: dict[str, None] = {}
    for pairs in subsets:
        texts.update(dict.fromkeys(pairs.texts))
        positives = pairs
        if above is not None:
            positives = pairs.of_rows(np.flatnonzero(pairs.gold > above).tolist())
        first += positives.first
        second += positives.second
    names = ", ".join(pairs.name for pairs in subsets)
    if not first:
        raise InputError(f"{names}: no pair has a gold score above {above:g}, so there is no positive to align")
    if len(texts) < 2:
        raise InputError(f"{names}: all sentences are the same")
    return PairGeometry(
        alignment=alignment(vectors.vectors_of(first), vectors.vectors_of(second)),
        uniformity=uniformity(vectors.vectors_of(list(texts))),
        positives=len(first),
        texts=len(texts),
    )


PRODUCT_ROWS = 2048
"""Rows and columns of a block of products, which takes 16 MiB."""
COMPARED_PRODUCTS = 64
"""Adjacent products whose maximum is compared first: mostly none of them can be among the best."""


@dataclass(frozen=True)
class AllPairs:
    """Uniformity and nearest neighbours of n rows."""

    uniformity: float
    """The value of the function `uniformity`."""
    occurrences: Int64Array
    """The number of other rows that have each row among their k nearest ``[n]``."""
    k: int
    """The number of neighbours of each row."""
    neighbours: Int64Array
    """The k nearest other rows of each row, nearest first ``[n, k]``."""
    cosines: FloatArray
    """The cosines of these neighbours ``[n, k]``."""


def all_pairs(vectors: FloatArray, k: int = 10) -> AllPairs:
    """Compute the cosine of every pair of rows, and return uniformity and nearest neighbours.

    Args:
        vectors: ``[n, d]``, n at least 2.
        k: neighbours of each row; a k above n - 1 is lowered to it, and 0 computes uniformity alone.

    Raises:
        ValueError: for fewer than two vectors.
    """
    import torch

    check_matrix(vectors, 2)
    k = min(k, len(vectors) - 1)
    # products of vectors of length 2 are 4 cos, as the formula wants
    twice = torch.from_numpy((2 * unit_rows(vectors)).astype(np.float32))
    blocks = []
    for start in range(0, len(twice), PRODUCT_ROWS):
        blocks.append(_Nearest(twice[start : start + PRODUCT_ROWS], start, k))
    total = 0.0
    with torch.no_grad():
        for rows, columns in combinations_with_replacement(blocks, 2):
            products = rows.vectors @ columns.vectors.T
            if columns is rows:
                products.fill_diagonal_(-torch.inf)
            elif k:
                columns.take(products, rows.first, across=True)
            if k:
                rows.take(products, columns.first)
            of_block = float(products.exp_().sum(1).sum(dtype=torch.float64))
            if columns is rows:
                of_block /= 2  # a block with itself has each pair twice
            total += of_block
    pairs = len(vectors) * (len(vectors) - 1) / 2
    neighbours = torch.cat([block.positions for block in blocks]).numpy()
    cosines = torch.cat([block.scores for block in blocks]).numpy() / 4
    occurrences = np.bincount(neighbours.ravel(), minlength=len(vectors))
    return AllPairs(float(np.log(total / pairs)) - 4, occurrences, k, neighbours, cosines)


class _Nearest:
    """The nearest k rows so far of each row of a block."""

    def __init__(self, vectors: Tensor, first: int, k: int) -> None:
        import torch

        self.vectors = vectors
        self.first = first
        self.k = k
        self.scores = torch.full((len(vectors), k), -torch.inf)
        self.positions = torch.zeros((len(vectors), k), dtype=torch.int64)

    def take(self, products: Tensor, first: int, *, across: bool = False) -> None:
        """Update the best by the products with another block of rows.

        Args:
            products: ``[rows, others]``.
            first: number of the first row of the other block.
            across: the products are ``[others, rows]``, which would be slow to transpose.
        """
        import torch
        from torch.nn.functional import pad

        axis = 0 if across else 1
        others = products.shape[axis]
        least = self.scores[:, -1]
        if bool(least.isneginf().all()) and self.k < others:
            scores, positions = products.topk(self.k, axis)
            if across:
                scores = scores.T
                positions = positions.T
            self.scores = scores
            self.positions = positions + first
            return
        missing = -others % COMPARED_PRODUCTS
        if across:
            padded = pad(products, (0, 0, 0, missing), value=-torch.inf) if missing else products
            wide = padded.view(-1, COMPARED_PRODUCTS, len(self.vectors))
            rows, parts = (least[:, None] < wide.amax(1).T).nonzero().unbind(1)
            near = wide[parts, :, rows]
        else:
            padded = pad(products, (0, missing), value=-torch.inf) if missing else products
            wide = padded.view(len(self.vectors), -1, COMPARED_PRODUCTS)
            rows, parts = (wide.amax(2) > least[:, None]).nonzero().unbind(1)
            near = wide[rows, parts]
        entries, within = (near > least[rows, None]).nonzero().unbind(1)
        if len(entries):
            positions = parts[entries] * COMPARED_PRODUCTS + within + first
            self._merge(rows[entries], near[entries, within], positions)

    def _merge(self, rows: Tensor, scores: Tensor, positions: Tensor) -> None:
        """Insert new entries, which are ordered by their rows, into the best k of these rows."""
        import torch

        changed, places, counts = torch.unique_consecutive(rows, return_inverse=True, return_counts=True)
        first_entries = counts.cumsum(0) - counts
        # each changed row has its best k so far, and behind them its new entries
        columns = self.k + torch.arange(len(places)) - first_entries[places]
        width = self.k + int(counts.max())
        all_scores = torch.full((len(changed), width), -torch.inf)
        all_scores[:, : self.k] = self.scores[changed]
        all_scores[places, columns] = scores
        all_positions = torch.zeros(all_scores.shape, dtype=torch.int64)
        all_positions[:, : self.k] = self.positions[changed]
        all_positions[places, columns] = positions
        best = all_scores.topk(self.k)
        self.scores[changed] = best.values
        self.positions[changed] = all_positions.gather(1, best.indices)


def check_matrix(vectors: FloatArray, least: int) -> None:
    """Check that vectors are a matrix with at least `least` rows.

    Raises:
        ValueError: if they are not.
    """
    if vectors.ndim != 2 or len(vectors) < least:
        raise ValueError(f"{vectors.shape} must be [n, d] with n >= {least}")


def unit_rows(vectors: FloatArray) -> Float64Array:
    """Return the rows ``[n, d]`` divided by their lengths; zero rows stay zero."""
    wide = np.asarray(vectors, np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
