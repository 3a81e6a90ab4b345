"""Everything about the geometry of some vectors that is one number, and their spectrum."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.analysis import spectrum
from sentcli.analysis.all_pairs import all_pairs
from sentcli.analysis.geometry import check_rows
from sentcli.analysis.hubness import Hubness, of_occurrences

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Geometry:
    """Of the vectors of distinct texts."""

    rows: int
    dimension: int
    uniformity: float
    anisotropy: float
    """Mean cosine of all pairs."""
    isotropy: float
    isotropy_whitened: float
    """After ZCA whitening of the same vectors."""
    effective_rank: float
    first_direction: float
    """Share of the largest singular value's square in the sum of all: variance along one direction."""
    hubness: Hubness
    singular_values: tuple[float, ...]
    """Of the centred vectors, largest first."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def geometry(vectors: Floats, neighbours: int = 10) -> Geometry:
    """Measure vectors; nothing that is held grows with the square of their number.

    Args:
        vectors: ``[n, d]``, n at least 2.
        neighbours: k of hubness.

    Raises:
        ValueError: for fewer than two vectors.
    """
    check_rows(vectors, 2)
    values = spectrum.singular_values(vectors)
    pairs = all_pairs(vectors, neighbours)
    squares = float(np.square(values).sum())
    return Geometry(
        rows=len(vectors),
        dimension=vectors.shape[1],
        uniformity=pairs.uniformity,
        anisotropy=spectrum.anisotropy(vectors),
        isotropy=spectrum.isotropy(vectors),
        isotropy_whitened=spectrum.isotropy(spectrum.whitened(vectors)),
        effective_rank=spectrum.effective_rank(values),
        first_direction=float(values[0] ** 2 / squares) if squares else 0.0,
        hubness=of_occurrences(pairs),
        singular_values=tuple(map(float, values)),
    )
