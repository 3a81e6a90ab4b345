"""Maps of texts by t-SNE: clusters, measures of how far a map keeps neighbourhoods, and whitening."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sentcli.analysis.neighbourhoods import nearest_on_map, overlap, same_group
from sentcli.analysis.spectrum import anisotropy
from sentcli.bounds import whole_number
from sentcli.errors import InputError
from sentcli.evaluation.pair_geometry import Floats, alignment, all_pairs, check_rows, unit_rows

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

Groups = npt.NDArray[np.int64]

SILHOUETTE_TEXTS = 10_000
"""The silhouette, which needs all pairs, is that of a sample if there are more texts than this."""


@dataclass(frozen=True)
class MapLayout:
    """The positions of texts on a map."""

    positions: npt.NDArray[np.float64]
    """``[n, 2]``; distances have no unit."""
    perplexity: float
    """The perplexity that was used."""
    divergence: float
    """The Kullback-Leibler divergence of the map from the vectors, which t-SNE minimises."""
    seconds: float


def fitting_perplexity(rows: int, perplexity: float) -> float:
    """Return a perplexity, lowered to a third of the number of other rows if it is greater."""
    return min(perplexity, (rows - 1) / 3)


def tsne(vectors: Floats, perplexity: float = 30, seed: int = 0) -> MapLayout:
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

    check_rows(vectors, 4)
    unit = unit_rows(vectors)
    perplexity = fitting_perplexity(len(unit), perplexity)
    started = time.perf_counter()
    fitted = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit(unit)
    seconds = time.perf_counter() - started
    return MapLayout(np.asarray(fitted.embedding_, np.float64), perplexity, float(fitted.kl_divergence_), seconds)


@dataclass(frozen=True)
class Whitening:
    """Whitening of all columns together (ZCA), or of shuffled groups of columns (WhitenedCSE, sec. 3.2)."""

    groups: int | None = None
    """The number of groups; None is ZCA."""

    @classmethod
    def parse(cls, text: str) -> Whitening:
        """Read ``zca`` or ``groups:N``.

        Raises:
            InputError: for anything else.
        """
        kind, _, number = text.partition(":")
        if text == "zca":
            return cls()
        if kind == "groups" and (groups := whole_number(number)):
            return cls(groups)
        raise InputError(f"--whiten {text}: expected zca, or groups:N with a number of groups such as groups:128")

    def __str__(self) -> str:
        return "zca" if self.groups is None else f"groups:{self.groups}"

    @property
    def title(self) -> str:
        """The whitening in words."""
        return "ZCA" if self.groups is None else f"{self.groups} shuffled groups"

    def check(self, rows: int, dimension: int) -> None:
        """Check that vectors can be whitened.

        Raises:
            InputError: if the groups do not divide the dimensions, or there are too few texts, which after whitening
                would all be equally far from each other.
        """
        groups = self.groups or 1
        if dimension % groups:
            raise InputError(f"--whiten {self}: {groups} groups do not divide {dimension} dimensions")
        if rows <= dimension // groups:
            width = dimension // groups
            raise InputError(
                f"--whiten {self}: {rows} texts are too few for {width} dimensions; give more than {width}"
            )

    def apply_to_positives(self, vectors: Floats, seed: int = 0) -> npt.NDArray[np.float64]:
        """Return positives ``[n, m, d]`` of n texts, of which each of the m is whitened over the texts by itself.

        Shuffled groups have another order of the columns for each, as in the training of WhitenedCSE.
        """
        views = [self.apply(vectors[:, view], seed + view) for view in range(vectors.shape[1])]
        return np.stack(views, axis=1)

    def apply(self, vectors: Floats, seed: int = 0) -> npt.NDArray[np.float64]:
        """Return vectors ``[n, d]`` whose covariance, in every group, is the identity except for constant columns.

        The statistics are those of all n vectors. ZCA leaves out directions without variance, see `spectrum.whitened`;
        groups add `EPS` to the variances, since some models have nearly constant columns (MiniLM has three).

        Args:
            vectors: ``[n, d]``.
            seed: of the order of the columns.

        Raises:
            InputError: as `check`.
        """
        import torch

        from sentcli.analysis.spectrum import whitened
        from sentcli.objectives.whitening import shuffled_group_whitening

        self.check(*vectors.shape)
        if self.groups is None:
            return whitened(vectors)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(vectors.shape[1]))
        wide = torch.from_numpy(np.asarray(vectors, np.float64))
        # added to the variances within groups, in units of the mean variance of a column
        eps = 1e-4 * float(wide.var(dim=0).mean())
        return shuffled_group_whitening(wide, self.groups, order, eps).numpy()


@dataclass(frozen=True)
class Spread:
    """How far the positives of a text lie apart, in squared distances of unit vectors, 0 to 4."""

    positives: float
    """The mean over two positives of one text, their alignment (Wang and Isola, ICML 2020)."""
    texts: float
    """The mean over the first positives of two different texts."""

    @classmethod
    def of(cls, vectors: Floats) -> Spread:
        """Measure the positives ``[n, m, d]`` of n texts, n and m at least 2."""
        views = range(vectors.shape[1])
        pairs = [alignment(vectors[:, i], vectors[:, j]) for i in views for j in views if i < j]
        return cls(float(np.mean(pairs)), 2 - 2 * anisotropy(vectors[:, 0]))


def dropout_positives(encoder: SentenceEncoder, texts: Sequence[str], count: int, seed: int) -> Floats:
    """Return vectors ``[n, count, d]`` of texts in training mode, as the positives of a batch are made.

    Raises:
        InputError: if the model has no dropout, so that they are all the same.
    """
    import torch

    on_torch = encoder.on_torch()
    module = on_torch.torch_module
    torch.manual_seed(seed)
    module.train()
    try:
        vectors = np.stack([on_torch.encode(list(texts)) for _ in range(count)], axis=1)
    finally:
        module.eval()
    if np.array_equal(vectors[:, 0], vectors[:, 1]):
        raise InputError("--positives: this model has no dropout, so that the positives of a text are the same")
    return vectors


def k_means(vectors: Floats, clusters: int, seed: int = 0) -> tuple[Groups, Floats]:
    """Return the cluster of each unit vector ``[n]``, where 0 is the largest, and the centres ``[clusters, d]``.

    It is the best of ten runs of scikit-learn's k-means++. There are fewer clusters if fewer vectors are different.

    Args:
        vectors: ``[n, d]``; they are divided by their lengths, so that distances correspond to cosines.
        clusters: at most n.
        seed: of the runs.
    """
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct vectors than clusters
        fitted = KMeans(clusters, n_init=10, random_state=seed).fit(unit_rows(vectors))
    present, numbers, sizes = np.unique(fitted.labels_, return_inverse=True, return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    return np.argsort(order)[numbers], fitted.cluster_centers_[present[order]]


def silhouette(vectors: Floats, groups: Groups, seed: int = 0) -> float | None:
    """Return the mean silhouette by cosine distance, -1 to 1 (Rousseeuw, 1987); None for a single group.

    Args:
        vectors: ``[n, d]``.
        groups: ``[n]``.
        seed: of the sample if there are more than `SILHOUETTE_TEXTS` vectors.
    """
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(groups)) < len(groups):
        return None
    size = SILHOUETTE_TEXTS if len(groups) > SILHOUETTE_TEXTS else None
    return float(silhouette_score(vectors, groups, metric="cosine", sample_size=size, random_state=seed))


def words_apart(texts: Sequence[str], groups: Groups) -> list[list[str]]:
    """Return the words that set each group apart: those with the highest class-based tf-idf, at most `WORDS`.

    English function words and, of 200 texts and more, words in fewer than three texts are left out.

    Args:
        texts: ``[n]``.
        groups: 0, 1, ..., none of them empty ``[n]``.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    # the greatest number of words that are counted, the most frequent ones
    vectorizer = CountVectorizer(stop_words="english", min_df=3 if len(texts) >= 200 else 1, max_features=20_000)
    total = int(groups.max()) + 1
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # no text has a word that is counted
        return [[] for _ in range(total)]
    terms = vectorizer.get_feature_names_out()
    counts = np.stack([np.asarray(matrix[groups == group].sum(axis=0)).ravel() for group in range(total)])
    weights = class_based_tf_idf(counts)
    best = np.argsort(-weights, axis=1, kind="stable")[:, :3]  # the greatest number of words that describe a cluster
    return [[str(terms[i]) for i in row if weights[group, i] > 0] for group, row in enumerate(best)]


def class_based_tf_idf(counts: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Return the weight of each word in each group ``[groups, words]``: ``tf(t, c) log(1 + A / tf(t))``.

    tf(t, c) is the share of the word t among the words of the group c, tf(t) how often t occurs in all groups, and A
    the mean number of words of a group. Grootendorst, "BERTopic: Neural topic modeling with a class-based TF-IDF
    procedure", 2022, eq. 2; the share instead of the count is that of its code.

    Args:
        counts: how often each word occurs in each group ``[groups, words]``, each word at least once.
    """
    sizes = counts.sum(axis=1, keepdims=True)
    weights: npt.NDArray[np.float64] = counts / np.maximum(sizes, 1) * np.log(1 + sizes.mean() / counts.sum(axis=0))
    return weights


def match(reference: Groups, groups: Groups, free: int) -> Groups:
    """Renumber groups so that each has the number of the reference's group with which it shares most texts ``[n]``.

    The assignment is one to one and keeps the number of as many texts as possible (Hungarian method). A group that
    shares less than `SAME` of the texts with its partner gets a new number.

    Args:
        reference: 0, 1, ... ``[n]``.
        groups: 0, 1, ... ``[n]``.
        free: the first number that no group has yet.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(groups, reference)
    numbers = np.full(len(table), -1)
    for own, other in zip(*linear_sum_assignment(table, maximize=True), strict=True):
        union = table[own].sum() + table[:, other].sum() - table[own, other]
        # the least part of the texts in either of two groups that both share, if they count as the same
        if table[own, other] >= 0.2 * union:
            numbers[own] = other
    unmatched = numbers < 0
    numbers[unmatched] = free + np.arange(unmatched.sum())
    return np.asarray(numbers[groups])


def purity(groups: Groups, labels: Groups) -> float:
    """Return the share of the texts that have the most frequent label of their group, 0 to 1.

    Args:
        groups: 0, 1, ... ``[n]``.
        labels: 0, 1, ... ``[n]``.
    """
    from sklearn.metrics.cluster import contingency_matrix

    return float(contingency_matrix(groups, labels).max(axis=1).sum() / len(groups))


def adjusted_mutual_information(groups: Groups, labels: Groups) -> float:
    """Return scikit-learn's adjusted mutual information: 0 by chance, 1 if groups and labels are the same."""
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(labels, groups))


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
    groups: npt.NDArray[np.int64]
    """The cluster of each text ``[n]``."""
    neighbours: npt.NDArray[np.int64]
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
        settings: of clusters and map.
        labels: known labels of the texts, as numbers ``[n]``.
        reference: clusters of another model, whose numbers are given to similar clusters ``[n]``.
        free: the first number for clusters that are not in the reference.

    Raises:
        InputError: if all vectors are the same, or there are fewer vectors than clusters.
    """
    if len(vectors) < settings.clusters:
        raise InputError(f"--clusters {settings.clusters}: there are only {len(vectors)} texts")
    # vectors count as equal if their unit vectors differ less in every dimension, as single precision requires
    if np.ptp(unit_rows(vectors), axis=0).max() < 1e-6:
        raise InputError("all vectors are the same: there is nothing to map")
    own, centres = k_means(vectors, settings.clusters, settings.seed)
    near = all_pairs(vectors, settings.neighbours)
    layout = tsne(vectors, settings.perplexity, settings.seed)
    on_map = nearest_on_map(layout.positions, near.k)
    groups = own if reference is None else match(reference, own, free)
    measures: dict[str, Any] = {
        "dimension": vectors.shape[1],
        "map_purity": same_group(on_map, own),
        "neighbour_overlap": overlap(near.neighbours, on_map),
        "silhouette": silhouette(vectors, own, settings.seed),
    }
    if labels is not None:
        measures["label_purity"] = purity(own, labels)
        measures["adjusted_mutual_information"] = adjusted_mutual_information(own, labels)
    words, rows = words_apart(texts, own), []
    for cluster, centre in enumerate(centres):
        inside = np.flatnonzero(own == cluster)
        example = texts[int(inside[np.argmax(unit_rows(vectors[inside]) @ centre)])]
        named = {"name": ", ".join(words[cluster]), "words": words[cluster]}
        rows.append({"number": int(groups[inside[0]]) + 1, "size": len(inside), **named, "example": example})
    clusters = pd.DataFrame(rows).sort_values("number", kind="stable", ignore_index=True)
    return Map(layout, groups, near.neighbours, clusters, measures)
