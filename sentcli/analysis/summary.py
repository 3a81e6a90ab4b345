"""Everything about the geometry of some vectors that is one number, and their spectrum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.analysis import spectrum
from sentcli.evaluation.all_pairs import AllPairs, all_pairs, check_rows

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]


def geometry(vectors: Floats, neighbours: int = 10) -> dict[str, Any]:
    """Measure vectors; nothing that is held grows with the square of their number.

    Args:
        vectors: ``[n, d]``, n at least 2.
        neighbours: k of hubness.

    Returns:
        Numbers by name, as ``analyze geometry`` writes them: ``anisotropy`` is the mean cosine of all pairs,
        ``isotropy_whitened`` that after ZCA whitening of the same vectors, ``first_direction`` the share of the
        variance along one direction, ``singular_values`` are those of the centred vectors, largest first.

    Raises:
        ValueError: for fewer than two vectors.
    """
    check_rows(vectors, 2)
    values = spectrum.singular_values(vectors)
    pairs = all_pairs(vectors, neighbours)
    squares = float(np.square(values).sum())
    return {
        "rows": len(vectors),
        "dimension": vectors.shape[1],
        "uniformity": pairs.uniformity,
        "anisotropy": spectrum.anisotropy(vectors),
        "isotropy": spectrum.isotropy(vectors),
        "isotropy_whitened": spectrum.isotropy(spectrum.whitened(vectors)),
        "effective_rank": spectrum.effective_rank(values),
        "first_direction": float(values[0] ** 2 / squares) if squares else 0.0,
        "hubness": hubness(pairs),
        "singular_values": list(map(float, values)),
    }


def hubness(pairs: AllPairs) -> dict[str, Any]:
    """Return how unevenly rows are among the nearest of others (Radovanovic et al., JMLR 2010).

    Returns:
        ``skewness`` of the k-occurrences: 0 if they are symmetric around k, some units where there are hubs;
        ``antihubs``, the share of the rows that are no neighbour of any other; ``largest``, how many rows the
        greatest hub is a neighbour of.
    """
    from scipy.stats import skew

    counts = pairs.occurrences
    same = bool((counts == counts[0]).all())
    return {
        "k": pairs.k,
        "skewness": 0.0 if same else float(skew(counts)),
        "antihubs": float((counts == 0).mean()),
        "largest": int(counts.max()),
    }
