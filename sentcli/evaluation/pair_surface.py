"""What pairs of sentences have in common on their surface, and which scores follow it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
WORD = re.compile(r"\w+")


def surface(first: Sequence[str], second: Sequence[str]) -> dict[str, Values]:
    """Return features of the surface of pairs, not of their meaning, each ``[n]`` and greater for more similar pairs.

    ``length`` is the negated difference in words; ``first_word`` is 1 if it is the same; ``function_words`` and
    ``other_words`` are the Jaccard similarity of the sets of lower-cased words in and outside of scikit-learn's list of
    English stop words, and 1 for two empty sets.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    values: dict[str, list[float]] = {"length": [], "first_word": [], "function_words": [], "other_words": []}
    for one, other in zip(map(_words, first), map(_words, second), strict=True):
        one_set = set(one)
        other_set = set(other)
        values["length"].append(-abs(len(one) - len(other)))
        values["first_word"].append(one[:1] == other[:1])
        values["function_words"].append(_jaccard(ENGLISH_STOP_WORDS & one_set, ENGLISH_STOP_WORDS & other_set))
        values["other_words"].append(_jaccard(one_set - ENGLISH_STOP_WORDS, other_set - ENGLISH_STOP_WORDS))
    return {name: np.array(of_pairs, np.float64) for name, of_pairs in values.items()}


def followed(values: Values, features: Mapping[str, Values]) -> dict[str, float | None]:
    """Return Spearman's correlation, times 100, of values ``[n]`` with each feature; None if either is constant."""
    from scipy.stats import spearmanr

    correlations: dict[str, float | None] = {}
    for name, feature in features.items():
        correlations[name] = None
        if np.ptp(values) and np.ptp(feature):
            correlations[name] = 100 * float(spearmanr(values, feature).statistic)
    return correlations


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _jaccard(one: set[str] | frozenset[str], other: set[str] | frozenset[str]) -> float:
    either = one | other
    return len(one & other) / len(either) if either else 1.0
