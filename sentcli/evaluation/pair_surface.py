"""What pairs of sentences have in common on their surface, and which scores follow it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

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

    def function_words(one: list[str], other: list[str]) -> float:
        return _jaccard(ENGLISH_STOP_WORDS & set(one), ENGLISH_STOP_WORDS & set(other))

    def other_words(one: list[str], other: list[str]) -> float:
        return _jaccard(set(one) - ENGLISH_STOP_WORDS, set(other) - ENGLISH_STOP_WORDS)

    features: dict[str, Callable[[list[str], list[str]], float]] = {
        "length": lambda one, other: -abs(len(one) - len(other)),
        "first_word": lambda one, other: one[:1] == other[:1],
        "function_words": function_words,
        "other_words": other_words,
    }
    pairs = [(_words(one), _words(other)) for one, other in zip(first, second, strict=True)]
    values = {}
    for name, feature in features.items():
        values[name] = np.array([feature(one, other) for one, other in pairs], dtype=np.float64)
    return values


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
