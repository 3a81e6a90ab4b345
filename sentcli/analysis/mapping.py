"""A model's map of texts with its clusters, and how far the map tells the truth about the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.analysis import clusters
from sentcli.analysis.all_pairs import all_pairs
from sentcli.analysis.geometry import unit_rows
from sentcli.analysis.neighbourhoods import nearest_on_map, overlap, same_group
from sentcli.analysis.tsne import Layout, tsne
from sentcli.errors import InputError

if TYPE_CHECKING:
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
class Cluster:
    """Texts that k-means puts together."""

    number: int
    """From 0; matched between models."""
    size: int
    words: tuple[str, ...]
    """That set its texts apart."""
    example: str
    """The text nearest to its centre."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; numbers from 1, as in figures."""
        return {"number": self.number + 1, "size": self.size, "words": list(self.words), "example": self.example}


@dataclass(frozen=True)
class Mapped:
    """A map of n texts, and what was measured."""

    dimension: int
    layout: Layout
    groups: npt.NDArray[np.int64]
    """The cluster of each text ``[n]``."""
    clusters: tuple[Cluster, ...]
    neighbours: npt.NDArray[np.int64]
    """The k nearest texts by cosine ``[n, k]``."""
    map_purity: float
    """Mean share of the k nearest points on the map that are in a point's own cluster, 0 to 1."""
    neighbour_overlap: float
    """Mean share of the k nearest texts by cosine that are among the k nearest on the map, 0 to 1."""
    silhouette: float | None
    """Of the clusters by cosine distance, -1 to 1."""
    label_purity: float | None = None
    """Share of the texts that have the most frequent label of their cluster."""
    label_information: float | None = None
    """Adjusted mutual information of clusters and labels."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "dimension": self.dimension,
            "map_purity": self.map_purity,
            "neighbour_overlap": self.neighbour_overlap,
            "silhouette": self.silhouette,
            **(
                {}
                if self.label_purity is None
                else {"label_purity": self.label_purity, "adjusted_mutual_information": self.label_information}
            ),
            "kl_divergence": self.layout.divergence,
            "tsne_seconds": round(self.layout.seconds, 3),
            "clusters": [cluster.to_dict() for cluster in self.clusters],
        }


def mapped(
    vectors: Floats,
    texts: Sequence[str],
    settings: MapSettings,
    labels: Groups | None = None,
    reference: Groups | None = None,
    free: int = 0,
) -> Mapped:
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
    found, centres = clusters.k_means(vectors, settings.clusters, settings.seed)
    near = all_pairs(vectors, settings.neighbours)
    layout = tsne(vectors, settings.perplexity, settings.seed)
    on_map = nearest_on_map(layout.positions, near.k)
    numbers = found if reference is None else clusters.match(reference, found, free)
    return Mapped(
        dimension=vectors.shape[1],
        layout=layout,
        groups=numbers,
        clusters=_described(vectors, texts, found, numbers, centres),
        neighbours=near.neighbours,
        map_purity=same_group(on_map, found),
        neighbour_overlap=overlap(near.neighbours, on_map),
        silhouette=clusters.silhouette(vectors, found, settings.seed),
        label_purity=None if labels is None else clusters.purity(found, labels),
        label_information=None if labels is None else clusters.adjusted_mutual_information(found, labels),
    )


def _described(
    vectors: Floats, texts: Sequence[str], found: Groups, numbers: Groups, centres: Floats
) -> tuple[Cluster, ...]:
    """Return the clusters by number; `found` are those of k-means, `numbers` those that they are shown with."""
    words, made = clusters.words_apart(texts, found), []
    for own, centre in enumerate(centres):
        inside = np.flatnonzero(found == own)
        nearest_to_centre = inside[np.argmax(unit_rows(vectors[inside]) @ centre)]
        made.append(Cluster(int(numbers[inside[0]]), len(inside), tuple(words[own]), texts[int(nearest_to_centre)]))
    return tuple(sorted(made, key=lambda one: one.number))
