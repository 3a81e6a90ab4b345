"""Check that an export gives the vectors of the model that it was made from.

Both encode texts of all lengths. Each precision has a tolerance, and an export outside it is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sentcli.arrays import Vectors
from sentcli.model.encoding import LoadedModel
from sentcli.model.tokenizing import NO_LIMIT, pair_text
from sentcli.zoo import models_folder

Scorer = Callable[[LoadedModel], dict[str, float]]
"""Scores a model on STS-B: Spearman's correlation times 100 by split, of which ``dev`` is one."""
MIXED_TOKENS = 8192
"""The token budget of batches in which short texts are padded to the length of long ones."""
SHORTEST = ("", " ", "a", "?", "\U0001f642", "你好", "Straße", "don't stop")


@dataclass(frozen=True)
class Tolerance:
    """How much the vectors of a precision, or the scores of a cross-encoder, may differ from those of torch in fp32."""

    min_cosine: float
    mean_cosine: float
    score_drop: float
    """The largest drop of Spearman's correlation times 100 on STS-B dev."""


TOLERANCES = {
    "fp32": Tolerance(min_cosine=0.99999, mean_cosine=0.999999, score_drop=0.01),
    "fp16": Tolerance(min_cosine=0.999, mean_cosine=0.9999, score_drop=0.1),
    "int8": Tolerance(min_cosine=0.9, mean_cosine=0.99, score_drop=0.3),
}


@dataclass(frozen=True)
class Verification:
    """The comparison of an export with its model."""

    texts: int
    longest: int
    """The number of tokens of the longest text, special ones included."""
    max_difference: float
    """The largest difference of a component."""
    min_cosine: float
    """The least cosine of two vectors; of a cross-encoder the correlation of its scores, as the mean is."""
    mean_cosine: float
    sts_b: dict[str, dict[str, float]] | None
    """For each split, Spearman's correlation times 100 of ``torch`` and of the ``export``, and the ``change``."""
    passed: bool
    complaint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def texts_of_all_lengths(max_tokens: int) -> list[str]:
    """Return real sentences, and parts of a running text from one word to more than `max_tokens` words."""
    lines = (models_folder() / "verification.txt").read_text("utf-8").splitlines()
    words = " ".join(lines).split()
    words *= max_tokens // len(words) + 1
    lengths = []
    length = 1.0
    while length < max_tokens:
        lengths.append(int(length))
        length = max(length + 1, length * 1.15)
    texts = [*SHORTEST, *lines]
    for number, count in enumerate(lengths):
        start = 7 * number % len(words)
        part = (words[start:] + words)[:count]
        texts.append(" ".join(part))
    texts.append(" ".join(words[: max_tokens + 10]))
    return list(dict.fromkeys(texts))


def longest_tried(model: LoadedModel) -> int:
    """Return the number of tokens of the longest text that is tried: the maximum length, if there is one.

    A model whose positions are relative may have none, and no machine has the memory for a text without end.
    """
    limit = model.tokenizer.max_length
    return limit if limit < NO_LIMIT else 512


def texts_for(model: LoadedModel) -> list[str]:
    """Return texts of all lengths; for a cross-encoder each with itself, with its first half or with another."""
    limit = longest_tried(model)
    if not model.spec.scores_pairs:
        return texts_of_all_lengths(limit)
    texts = texts_of_all_lengths(limit // 2)
    pairs = []
    for number, text in enumerate(texts):
        partners = text, text[: len(text) // 2], texts[number - 1], texts[number - 7]
        pairs.append(pair_text(text, partners[number % 4]))
    return list(dict.fromkeys(pairs))


def encode_distinct_texts(model: LoadedModel, texts: Sequence[str], batch_tokens: int | None = None) -> Vectors:
    """Return the vectors ``[n, dim]`` of distinct texts, with the model's default prompt."""
    return model.encode(texts, model.spec.usual_prompt, batch_tokens=batch_tokens).vectors


def agreement(expected: Vectors, vectors: Vectors) -> tuple[float, float, float]:
    """Return the largest difference, the least cosine and the mean cosine of two arrays ``[n, dim]``."""
    first = np.linalg.norm(expected, axis=1)
    second = np.linalg.norm(vectors, axis=1)
    products = np.einsum("nd,nd->n", expected.astype(np.float64), vectors)
    norms = np.maximum(first * second, 1e-12)
    cosines = products / norms
    cosines[(first == 0) & (second == 0)] = 1.0
    difference = np.abs(expected - vectors).max()
    return float(difference), float(cosines.min()), float(cosines.mean())


def comparable(model: LoadedModel, vectors: Vectors, precision: str) -> Vectors:
    """Return vectors ``[n, dim]`` whose cosines tell whether an export agrees.

    The scores of a cross-encoder become one vector ``[1, n]``: its cosine with another one is their correlation, that
    of their ranks in int8, since the order is what they are for.
    """
    if not model.spec.scores_pairs:
        return vectors
    from scipy.stats import rankdata

    scores = vectors[:, 0].astype(np.float64)
    if precision == "int8":
        scores = rankdata(scores)
    return np.asarray(scores - scores.mean(), np.float32)[None]


def agreement_by_kind(
    model: LoadedModel, expected: Vectors, vectors: Vectors, precision: str
) -> tuple[float, float, float]:
    """Return the `agreement` of what a model and its export make of the same texts, as `comparable` has it."""
    first = comparable(model, expected, precision)
    second = comparable(model, vectors, precision)
    return agreement(first, second)


def compare_vectors(
    export: LoadedModel,
    precision: str,
    texts: Sequence[str],
    expected: Vectors,
    sts_b: dict[str, dict[str, float]] | None = None,
) -> Verification:
    """Compare the vectors of an export with those of its model, packed as `encode` packs them and padded to one length.

    Args:
        export: the exported folder, loaded.
        precision: the precision of the export.
        texts: the texts to encode.
        expected: the model's own vectors of the texts ``[n, dim]``.
        sts_b: the scores on STS-B, as in `Verification`.
    """
    results = [encode_distinct_texts(export, texts)]
    # the activations of int8 are quantised for each batch, so that padding changes the vectors a little
    if precision != "int8":
        results.append(encode_distinct_texts(export, texts, MIXED_TOKENS))
    difference = 0.0
    lowest = np.inf
    mean = np.inf
    for vectors in results:
        _, least_cosine, mean_cosine = agreement_by_kind(export, expected, vectors, precision)
        difference = np.maximum(difference, np.abs(expected - vectors).max())
        lowest = np.minimum(lowest, least_cosine)
        mean = np.minimum(mean, mean_cosine)
    limit = TOLERANCES[precision]
    measure = "correlation" if export.spec.scores_pairs else "cosine"
    complaints = []  # the conditions are written so that NaN is one
    if not lowest >= limit.min_cosine:
        complaints.append(f"the least {measure} is {lowest:.6f}, wanted {limit.min_cosine}")
    if not mean >= limit.mean_cosine:
        complaints.append(f"the mean {measure} is {mean:.6f}, wanted {limit.mean_cosine}")
    if sts_b is not None:
        change = sts_b["dev"]["change"]
        if not -change <= limit.score_drop:
            complaints.append(f"STS-B dev changes by {change:+.2f}, wanted no less than -{limit.score_drop}")
    longest = int(export.tokenizer(texts).lengths.max())
    problem = "; ".join(complaints)
    return Verification(
        len(texts), longest, float(difference), float(lowest), float(mean), sts_b, not complaints, problem
    )


def compare_export_scores(before: dict[str, float], after: dict[str, float]) -> dict[str, dict[str, float]]:
    """Return the scores of a model and of its export with their differences, by split."""
    return {
        split: {"torch": score, "export": after[split], "change": after[split] - score}
        for split, score in before.items()
    }
