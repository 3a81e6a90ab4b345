"""A model's map of texts with its clusters, and how far the map tells the truth about the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.analysis import clusters
from sentcli.analysis.neighbourhoods import nearest_on_map, overlap, same_group
from sentcli.analysis.tsne import Layout, tsne
from sentcli.errors import InputError
from sentcli.evaluation.all_pairs import all_pairs, unit_rows

if TYPE_CHECKING:
    import pandas as pd

    Floats = npt.NDArray[np.floating[Any]]
    Groups = npt.NDArray[np.int64]

ALIKE = 1e-6
"""Difference between unit vectors in any direction that single precision does not resolve."""


@dataclass(frozen=True)
class MapSettings:
    """The choices of a map."""

    clusters: int = 10
    """As InforMin-CL's fig. 2 has."""
    perplexity: float = 30
    seed: int = 42
    neighbours: int = 10


@dataclass(frozen=True)
class Map:
    """A map of n texts, and what was measured."""

    layout: Layout
    groups: npt.NDArray[np.int64]
    """The cluster of each text ``[n]``."""
    neighbours: npt.NDArray[np.int64]
    """The k nearest texts by cosine ``[n, k]``."""
    clusters: pd.DataFrame
    """A row for each cluster: number (from 1; matched between models), size, words that set its texts apart, and
    example, the text nearest to its centre."""
    measures: dict[str, Any]
    """By name: dimension; map_purity, the mean share of the k nearest points on the map that are in a point's own
    cluster; neighbour_overlap, the mean share of the k nearest texts by cosine that are among the k nearest points;
    silhouette of the clusters by cosine distance, -1 to 1, None for a single cluster; and with labels label_purity,
    the share of the texts that have the most frequent label of their cluster, and adjusted_mutual_information."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **self.measures,
            "kl_divergence": self.layout.divergence,
            "tsne_seconds": round(self.layout.seconds, 3),
            "clusters": self.clusters.to_dict("records"),
        }


def mapped(
    vectors: Floats,
    texts: Sequence[str],
    settings: MapSettings,
    labels: Groups | None = None,
    reference: Groups | None = None,
    free: int = 0,
) -> Map:
    """Cluster vectors, place them on a map, and measure both.

    Args:
        vectors: ``[n, d]``, not all the same.
        texts: ``[n]``.
        settings: the choices.
        labels: numbers of what is known about the texts ``[n]``.
        reference: clusters of another model ``[n]``, whose numbers are taken where texts are shared.
        free: the first number for clusters that the reference does not have.

    Raises:
        InputError: if all vectors are the same, or there are fewer than clusters.
    """
    if len(vectors) < settings.clusters:
        raise InputError(f"--clusters {settings.clusters}: there are only {len(vectors)} texts")
    if np.ptp(unit_rows(vectors), axis=0).max() < ALIKE:
        raise InputError("all vectors are the same: there is nothing to map")
    own, centres = clusters.k_means(vectors, settings.clusters, settings.seed)
    near = all_pairs(vectors, settings.neighbours)
    layout = tsne(vectors, settings.perplexity, settings.seed)
    on_map = nearest_on_map(layout.positions, near.k)
    groups = own if reference is None else clusters.match(reference, own, free)
    measures: dict[str, Any] = {
        "dimension": vectors.shape[1],
        "map_purity": same_group(on_map, own),
        "neighbour_overlap": overlap(near.neighbours, on_map),
        "silhouette": clusters.silhouette(vectors, own, settings.seed),
    }
    if labels is not None:
        measures["label_purity"] = clusters.purity(own, labels)
        measures["adjusted_mutual_information"] = clusters.adjusted_mutual_information(own, labels)
    return Map(layout, groups, near.neighbours, _described(vectors, texts, own, groups, centres), measures)


def _described(vectors: Floats, texts: Sequence[str], own: Groups, groups: Groups, centres: Floats) -> pd.DataFrame:
    """Return the clusters; `own` are those of k-means, `groups` the numbers that they are shown with."""
    import pandas as pd

    words, rows = clusters.words_apart(texts, own), []
    for cluster, centre in enumerate(centres):
        inside = np.flatnonzero(own == cluster)
        example = texts[int(inside[np.argmax(unit_rows(vectors[inside]) @ centre)])]
        number = int(groups[inside[0]]) + 1
        rows.append({"number": number, "size": len(inside), "words": words[cluster], "example": example})
    return pd.DataFrame(rows).sort_values("number", kind="stable", ignore_index=True)
