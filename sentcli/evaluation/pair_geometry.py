"""Alignment and uniformity of sentence vectors (Wang and Isola, ICML 2020), as SimCSE's fig. 2 measures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation.all_pairs import Floats, all_pairs, unit_rows

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import TextVectors
    from sentcli.evaluation.sts import Pairs

POSITIVE_ABOVE = 4.0
"""Gold score that a pair of STS-B must exceed to be a positive (SimCSE, sec. 2 and fig. 2)."""


def alignment(first: Floats, second: Floats) -> float:
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


def uniformity(vectors: Floats) -> float:
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
    """Pairs that alignment is the mean of."""
    texts: int
    """Distinct sentences whose pairs uniformity is taken of."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def pair_geometry(vectors: TextVectors, subsets: Sequence[Pairs], above: float | None = POSITIVE_ABOVE) -> PairGeometry:
    """Measure the vectors of scored pairs.

    Args:
        vectors: the vectors of their sentences.
        subsets: the pairs.
        above: positives are the pairs with a higher gold score; None takes all pairs (SimCSE's issue 52).

    Raises:
        InputError: if there is no positive pair, or only one distinct sentence.
    """
    chosen = [
        (one, two)
        for pairs in subsets
        for one, two, gold in zip(pairs.first, pairs.second, pairs.gold, strict=True)
        if above is None or gold > above
    ]
    names = ", ".join(pairs.name for pairs in subsets)
    if not chosen:
        raise InputError(f"{names}: no pair has a gold score above {above:g}, so there is no positive to align")
    texts = list(dict.fromkeys(text for pairs in subsets for text in (*pairs.first, *pairs.second)))
    if len(texts) < 2:
        raise InputError(f"{names}: all sentences are the same")
    return PairGeometry(
        alignment(vectors.of([one for one, _ in chosen]), vectors.of([two for _, two in chosen])),
        uniformity(vectors.of(texts)),
        len(chosen),
        len(texts),
    )
