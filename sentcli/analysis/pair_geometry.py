"""Alignment and uniformity on scored pairs, with the choices that papers make differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sentcli.analysis.geometry import alignment, uniformity
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import TextVectors
    from sentcli.evaluation.sts import Pairs

POSITIVE_ABOVE = 4.0
"""Gold score that a pair of STS-B must exceed to be a positive (SimCSE, sec. 2 and fig. 2)."""


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
