"""A map of texts by t-SNE: their places, clusters, and how far the map keeps neighbourhoods."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sentcli.analysis.map.clusters import adjusted_mutual_information, k_means, match, purity, silhouette, words_apart
from sentcli.analysis.neighbours import overlap
from sentcli.arrays import Float64Array, FloatArray, Int64Array
from sentcli.errors import InputError
from sentcli.evaluation.pair_geometry import all_pairs, check_matrix, unit_rows


@dataclass(frozen=True)
class MapLayout:
    """The positions of texts on a map."""

    positions: Float64Array
    """``[n, 2]``; distances have no unit."""
    perplexity: float
    """The perplexity that was used."""
    divergence: float
    """The Kullback-Leibler divergence of the map from the vectors, which t-SNE minimises."""
    seconds: float


def fitting_perplexity(rows: int, perplexity: float) -> float:
    """Return a perplexity, lowered to a third of the number of other rows if it is greater."""
    return min(perplexity, (rows - 1) / 3)


def tsne(vectors: FloatArray, perplexity: float = 30, seed: int = 0) -> MapLayout:
    """Place vectors on a plane so that neighbours by cosine stay neighbours; the same seed gives the same map.

    t-SNE compares squared distances, which are ``2 - 2 cos`` for unit vectors. It starts from the first two principal
    components, so that the large-scale order of the map has a meaning.

    Args:
        vectors: ``[n, d]``, n at least 4, not all the same.
        perplexity: effective number of neighbours of each point; see `fitting_perplexity`.
        seed: of the random numbers.

    Raises:
        ValueError: for too few vectors.
    """
    from sklearn.manifold import TSNE

    check_matrix(vectors, 4)
    unit = unit_rows(vectors)
    perplexity = fitting_perplexity(len(unit), perplexity)
    started = time.perf_counter()
    result = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit(unit)
    return MapLayout(
        positions=np.asarray(result.embedding_, np.float64),
        perplexity=perplexity,
        divergence=float(result.kl_divergence_),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True)
class MapSettings:
    """The settings of clusters and map."""

    clusters: int = 10
    """The default is the number of clusters in InforMin-CL's fig. 2."""
    perplexity: float = 30
    seed: int = 42
    neighbours: int = 10


@dataclass(frozen=True)
class Map:
    """A map of n texts with its clusters and measures."""

    layout: MapLayout
    groups: Int64Array
    """The cluster of each text ``[n]``."""
    neighbours: Int64Array
    """The k nearest texts by cosine ``[n, k]``."""
    clusters: pd.DataFrame
    """A row for each cluster: number (from 1; matched between models), size, name and words (those that set its texts
    apart, as a text and as a list), and example, the text nearest to its centre."""
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
    vectors: FloatArray,
    texts: Sequence[str],
    settings: MapSettings,
    labels: Int64Array | None = None,
    reference: Int64Array | None = None,
    free: int = 0,
) -> Map:
    """Cluster vectors, place them on a map, and measure both.

    Args:
        vectors: ``[n, d]``, not all the same.
        texts: ``[n]``.
        settings: of clusters and map.
        labels: known labels of the texts, as numbers ``[n]``.
        reference: clusters of another model, whose numbers are given to similar clusters ``[n]``.
        free: the first number for clusters that are not in the reference.

    Raises:
        InputError: if all vectors are the same, or there are fewer vectors than clusters.
    """
    from sklearn.neighbors import NearestNeighbors

    if len(vectors) < settings.clusters:
        raise InputError(f"--clusters {settings.clusters}: there are only {len(vectors)} texts")
    spread = np.ptp(unit_rows(vectors), axis=0)
    if spread.max() < 1e-6:  # in single precision such unit vectors are equal
        raise InputError("all vectors are the same: there is nothing to map")
    own, centres = k_means(vectors, settings.clusters, settings.seed)
    near = all_pairs(vectors, settings.neighbours)
    layout = tsne(vectors, settings.perplexity, settings.seed)
    search = NearestNeighbors(n_neighbors=near.k).fit(layout.positions)
    on_map = np.asarray(search.kneighbors(return_distance=False))
    groups = own
    if reference is not None:
        groups = match(reference, own, free)
    measures: dict[str, Any] = {
        "dimension": vectors.shape[1],
        "map_purity": same_group(on_map, own),
        "neighbour_overlap": overlap(near.neighbours, on_map),
        "silhouette": silhouette(vectors, own, settings.seed),
    }
    if labels is not None:
        measures["label_purity"] = purity(own, labels)
        measures["adjusted_mutual_information"] = adjusted_mutual_information(own, labels)
    words = words_apart(texts, own)
    rows = []
    for cluster, centre in enumerate(centres):
        inside = np.flatnonzero(own == cluster)
        nearest = inside[np.argmax(unit_rows(vectors[inside]) @ centre)]
        rows.append(
            {
                "number": int(groups[nearest]) + 1,
                "size": len(inside),
                "name": ", ".join(words[cluster]),
                "words": words[cluster],
                "example": texts[int(nearest)],
            }
        )
    clusters = pd.DataFrame(rows).sort_values("number", kind="stable", ignore_index=True)
    return Map(layout, groups, near.neighbours, clusters, measures)


def same_group(neighbours: Int64Array, groups: Int64Array) -> float:
    """Return the mean share of the neighbours ``[n, k]`` that are in the same group ``[n]`` as their text, 0 to 1."""
    same = groups[neighbours] == groups[:, None]
    return float(same.mean())
