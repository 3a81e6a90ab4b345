"""What the cosine of sentence pairs follows besides meaning: length, first word, words in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

WORD = re.compile(r"\w+")


def surface(first: Sequence[str], second: Sequence[str]) -> dict[str, Values]:
    """Return features of pairs that need no meaning, each ``[n]`` and larger for more alike.

    ``length`` is the difference in words, below 0; ``first_word`` is 1 where it is the same; ``function_words`` and
    ``other_words`` are the Jaccard similarity of the sets of lower-cased words in and outside of scikit-learn's list of
    English stop words, 1 for two empty sets.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    words = [[WORD.findall(text.lower()) for text in side] for side in (first, second)]
    pairs = list(zip(*words, strict=True))
    sets = [(set(a), set(b)) for a, b in pairs]
    return {
        "length": np.array([-abs(len(a) - len(b)) for a, b in pairs], dtype=np.float64),
        "first_word": np.array([a[:1] == b[:1] for a, b in pairs], dtype=np.float64),
        "function_words": np.array([_jaccard(a & ENGLISH_STOP_WORDS, b & ENGLISH_STOP_WORDS) for a, b in sets]),
        "other_words": np.array([_jaccard(a - ENGLISH_STOP_WORDS, b - ENGLISH_STOP_WORDS) for a, b in sets]),
    }


def followed(values: Values, features: dict[str, Values]) -> dict[str, float | None]:
    """Return Spearman's correlation, times 100, of values ``[n]`` with each feature; None where either is constant."""
    from scipy.stats import spearmanr

    return {
        name: 100 * float(spearmanr(values, feature).statistic) if np.ptp(values) and np.ptp(feature) else None
        for name, feature in features.items()
    }


def _jaccard(one: set[str] | frozenset[str], other: set[str] | frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0
