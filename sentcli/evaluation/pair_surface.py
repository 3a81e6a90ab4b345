"""Features of the surface of sentence pairs, such as common words, and how far scores follow them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from sentcli.arrays import Float64Array

_WORD = re.compile(r"\w+")


def surface(first: Sequence[str], second: Sequence[str]) -> dict[str, Float64Array]:
    """Return features of the surface of pairs, not of their meaning, each ``[n]`` and greater for more similar pairs.

    ``length`` is the negated difference in words; ``first_word`` is 1 if it is the same; ``function_words`` and
    ``other_words`` are the Jaccard similarity of the sets of lower-cased words in and outside of scikit-learn's list of
    English stop words, and 1 for two empty sets.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    names = ("length", "first_word", "function_words", "other_words")
    features = {name: np.empty(len(first)) for name in names}
    for row, texts in enumerate(zip(first, second, strict=True)):
        words, other_words = [_WORD.findall(text.lower()) for text in texts]
        distinct = set(words)
        other_distinct = set(other_words)
        features["length"][row] = -abs(len(words) - len(other_words))
        features["first_word"][row] = words[:1] == other_words[:1]
        features["function_words"][row] = _jaccard(distinct & ENGLISH_STOP_WORDS, other_distinct & ENGLISH_STOP_WORDS)
        features["other_words"][row] = _jaccard(distinct - ENGLISH_STOP_WORDS, other_distinct - ENGLISH_STOP_WORDS)
    return features


def followed(values: Float64Array, features: Mapping[str, Float64Array]) -> dict[str, float | None]:
    """Return Spearman's correlation, times 100, of values ``[n]`` with each feature; None if either is constant."""
    from scipy.stats import spearmanr

    correlations: dict[str, float | None] = {}
    for name, feature in features.items():
        correlations[name] = None
        if np.ptp(values) and np.ptp(feature):
            correlations[name] = 100 * float(spearmanr(values, feature).statistic)
    return correlations


def _jaccard(words: set[str], other_words: set[str]) -> float:
    """Return the share of the words of two sets that are in both; 1 for two empty sets."""
    either = words | other_words
    if not either:
        return 1.0
    return len(words & other_words) / len(either)
