"""Clusters of sentence vectors: k-means, what their texts are about, and how far labels agree with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.evaluation.all_pairs import unit_rows

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]
    Groups = npt.NDArray[np.int64]

SAMPLE = 10_000
"""Texts beyond which the silhouette is that of a sample: it needs all pairs."""
SAME = 0.2
"""Texts that two groups share, of those that are in either, for them to count as the same group in two models."""
TERMS = 20_000
"""Words that are counted at most, the most frequent."""


def k_means(vectors: Floats, clusters: int, seed: int = 0) -> tuple[Groups, Floats]:
    """Return the cluster of each unit vector ``[n]``, the largest is 0, and the clusters' centres ``[clusters, d]``.

    The best of ten starts (k-means++) of scikit-learn. Fewer clusters come out where fewer vectors differ.

    Args:
        vectors: ``[n, d]``; divided by their lengths, so that distance means cosine.
        clusters: at most n.
        seed: of the starts.
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
        seed: of the sample, beyond `SAMPLE` vectors.
    """
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(groups)) < len(groups):
        return None
    size = SAMPLE if len(groups) > SAMPLE else None
    return float(silhouette_score(vectors, groups, metric="cosine", sample_size=size, random_state=seed))


def words_apart(texts: Sequence[str], groups: Groups, count: int = 3) -> list[list[str]]:
    """Return the words that set each group apart: highest mean tf-idf within it, less that of the other texts.

    Args:
        texts: ``[n]``.
        groups: 0, 1, ..., none of them empty ``[n]``.
        count: words of each; fewer where there are fewer. English function words are left out.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    many = len(texts) >= 200
    vectorizer = TfidfVectorizer(stop_words="english", min_df=3 if many else 1, max_features=TERMS, sublinear_tf=True)
    total = int(groups.max()) + 1
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # no text has a word that is counted
        return [[] for _ in range(total)]
    terms, whole, words = vectorizer.get_feature_names_out(), np.asarray(matrix.sum(axis=0)).ravel(), []
    for group in range(total):
        inside = groups == group
        here = np.asarray(matrix[inside].sum(axis=0)).ravel()
        apart = here / inside.sum() - (whole - here) / max((~inside).sum(), 1)
        best = np.argsort(-apart, kind="stable")[:count]
        words.append([str(terms[i]) for i in best if apart[i] > 0])
    return words


def match(reference: Groups, groups: Groups, free: int) -> Groups:
    """Renumber groups so that each has the number of the reference's group that it shares most texts with ``[n]``.

    One to one, so that the texts that keep their number are as many as can be (Hungarian method). Groups that have
    less than `SAME` of their texts in common with their partner are other groups, and get numbers of their own.

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
        either = table[own].sum() + table[:, other].sum() - table[own, other]
        if table[own, other] >= SAME * either:
            numbers[own] = other
    alone = numbers < 0
    numbers[alone] = free + np.arange(alone.sum())
    matched: Groups = numbers[groups]
    return matched


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
