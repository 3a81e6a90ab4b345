"""Clusters of texts: k-means, the words that set them apart, and how they match other clusters or labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sentcli.arrays import Float64Array, FloatArray, Int64Array
from sentcli.evaluation.pair_geometry import unit_rows

SILHOUETTE_TEXTS = 10_000
"""The silhouette, which needs all pairs, is that of a sample if there are more texts than this."""
COUNTED_WORDS = 20_000
"""The greatest number of words that are counted, the most frequent ones."""
_WORDS = 3
"""The greatest number of words that describe a cluster."""
_SHARED_TEXTS = 0.2
"""The least part of the texts in either of two groups that both share, if they count as the same."""


def k_means(vectors: FloatArray, clusters: int, seed: int = 0) -> tuple[Int64Array, FloatArray]:
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
        result = KMeans(clusters, n_init=10, random_state=seed).fit(unit_rows(vectors))
    present, numbers, sizes = np.unique(result.labels_, return_inverse=True, return_counts=True)
    largest_first = np.argsort(-sizes, kind="stable")
    place = np.argsort(largest_first)
    return place[numbers], result.cluster_centers_[present[largest_first]]


def silhouette(vectors: FloatArray, groups: Int64Array, seed: int = 0) -> float | None:
    """Return the mean silhouette by cosine distance, -1 to 1 (Rousseeuw, 1987); None for a single group.

    Args:
        vectors: ``[n, d]``.
        groups: ``[n]``.
        seed: of the sample if there are more than `SILHOUETTE_TEXTS` vectors.
    """
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(groups)) < len(groups):
        return None
    size = None
    if len(groups) > SILHOUETTE_TEXTS:
        size = SILHOUETTE_TEXTS
    return float(silhouette_score(vectors, groups, metric="cosine", sample_size=size, random_state=seed))


def words_apart(texts: Sequence[str], groups: Int64Array) -> list[list[str]]:
    """Return the words that set each group apart: those with the highest class-based tf-idf, at most `_WORDS`.

    English function words and, of 200 texts and more, words in fewer than three texts are left out.

    Args:
        texts: ``[n]``.
        groups: 0, 1, ..., none of them empty ``[n]``.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    least_texts = 3 if len(texts) >= 200 else 1
    vectorizer = CountVectorizer(stop_words="english", min_df=least_texts, max_features=COUNTED_WORDS)
    total = int(groups.max()) + 1
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # no text has a word that is counted
        return [[] for _ in range(total)]
    terms = vectorizer.get_feature_names_out()
    counts = np.empty((total, len(terms)), matrix.dtype)
    for group in range(total):
        counts[group] = matrix[groups == group].sum(axis=0)
    words = []
    for weights in class_based_tf_idf(counts):
        best = np.argsort(-weights, kind="stable")[:_WORDS]
        words.append([str(terms[i]) for i in best if weights[i] > 0])
    return words


def class_based_tf_idf(counts: npt.NDArray[np.integer]) -> Float64Array:
    """Return the weight of each word in each group ``[groups, words]``: ``tf(t, c) log(1 + A / tf(t))``.

    tf(t, c) is the share of the word t among the words of the group c, tf(t) how often t occurs in all groups, and A
    the mean number of words of a group. Grootendorst, "BERTopic: Neural topic modeling with a class-based TF-IDF
    procedure", 2022, eq. 2; the share instead of the count is that of its code.

    Args:
        counts: how often each word occurs in each group ``[groups, words]``, each word at least once.
    """
    sizes = counts.sum(axis=1, keepdims=True)
    shares = counts / np.maximum(sizes, 1)
    rarity = np.log(1 + sizes.mean() / counts.sum(axis=0))
    return np.asarray(shares * rarity)


def match(reference: Int64Array, groups: Int64Array, free: int) -> Int64Array:
    """Renumber groups so that each has the number of the reference's group with which it shares most texts ``[n]``.

    The assignment is one to one and keeps the number of as many texts as possible (Hungarian method). A group that
    shares less than `_SHARED_TEXTS` of the texts with its partner gets a new number.

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
        both = table[own, other]
        either = table[own].sum() + table[:, other].sum() - both
        if both >= _SHARED_TEXTS * either:
            numbers[own] = other
    unmatched = numbers < 0
    numbers[unmatched] = free + np.arange(unmatched.sum())
    return np.asarray(numbers[groups])


def purity(groups: Int64Array, labels: Int64Array) -> float:
    """Return the share of the texts that have the most frequent label of their group, 0 to 1.

    Args:
        groups: 0, 1, ... ``[n]``.
        labels: 0, 1, ... ``[n]``.
    """
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(groups, labels)
    return float(table.max(axis=1).sum() / len(groups))


def adjusted_mutual_information(groups: Int64Array, labels: Int64Array) -> float:
    """Return scikit-learn's adjusted mutual information: 0 by chance, 1 if groups and labels are the same."""
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(labels, groups))
