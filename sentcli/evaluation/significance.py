"""Intervals of scores, and tests of the difference of two models.

Correlations: the pairs of a task are sampled with replacement 1,000 times, and the middle 95 % of the correlations of
the samples are the interval (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993). Two models are compared
on the same samples. Retrieval: the same, with the queries of a set and the mean of their scores. Accuracies: Wilson's
interval (1927), and McNemar's exact test (1947) of two models. Systems that are groups of seeds are compared by their
means over the seeds, and the p values of many such comparisons are corrected (Holm, 1979).
"""

from __future__ import annotations

import base64
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
DRAWS = 1000
LEVEL = 0.95
SEED = 1
CHUNK = 2**21
"""Random numbers that are drawn at a time."""


@dataclass(frozen=True)
class Difference:
    """The score of a model minus that of another one, on the same examples."""

    difference: float
    low: float
    high: float
    p: float
    """Twice the share of the samples in which the order of the two models is reversed."""


@dataclass(frozen=True)
class Discordance:
    """The comparison of the right and wrong answers of two models."""

    difference: float
    """The difference of the accuracies over all examples, times 100."""
    only_first: int
    """The number of examples that only the first model has right."""
    only_second: int
    p: float
    """The two-sided p-value."""


def spearman_draws(predicted: Floats, gold: Floats, draws: int = DRAWS, *, stream: int = 0) -> Floats:
    """Return Spearman's correlation times 100 on `draws` samples of the pairs ``[draws]``.

    The samples are the same for arguments of the same length, so that two models can be compared on each of them. A
    sample is represented by how often each pair was drawn, so that pairs which are sorted once can be ranked in every
    sample without sorting again.

    Args:
        predicted: similarities ``[n]``.
        gold: scores ``[n]``.
        draws: number of samples.
        stream: arguments of the same length get independent samples under another stream.
    """
    first, second = _Ranks(predicted), _Ranks(gold)
    correlations = [_correlation(counts, first(counts), second(counts)) for counts in _counts(len(gold), draws, stream)]
    return 100 * np.concatenate(correlations)


def mean_draws(values: Floats, draws: int = DRAWS, *, stream: int = 0) -> Floats:
    """Return the mean of each of `draws` samples of values ``[draws]``, which are drawn as for `spearman_draws`.

    Args:
        values: of each example ``[n]``.
        draws: number of samples.
        stream: arguments of the same length get independent samples under another stream.
    """
    return np.concatenate([counts @ values / len(values) for counts in _counts(len(values), draws, stream)])


def average_precision_draws(
    predicted: Floats, positive: npt.NDArray[np.bool_], draws: int = DRAWS, *, stream: int = 0
) -> Floats:
    """Return the average precision on samples of pairs ``[draws]``, which are drawn as for `spearman_draws`.

    It is the sum of the precision at each similarity times what the recall gains there, as scikit-learn computes it.
    A sample without a positive pair has 0.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.
        draws: number of samples.
        stream: arguments of the same length get independent samples under another stream.
    """
    order = np.argsort(-predicted, kind="stable")
    ends = np.flatnonzero(np.diff(predicted[order], append=np.nan) != 0)  # the last of equal similarities
    values = []
    for counts in _counts(len(predicted), draws, stream):
        kept = np.cumsum(counts[:, order], axis=1)[:, ends]
        right = np.cumsum(counts[:, order] * positive[order], axis=1)[:, ends]
        gained = np.diff(right, axis=1, prepend=0)
        precision = np.divide(right, kept, out=np.zeros_like(right), where=kept > 0)
        values.append((precision * gained).sum(axis=1) / np.maximum(right[:, -1], 1))
    return np.concatenate(values)


def _counts(n: int, draws: int, stream: int) -> Iterator[Floats]:
    """Yield blocks of samples, each as how often it has each of `n` items ``[block, n]``."""
    random = np.random.default_rng([SEED, stream])
    block = max(CHUNK // n, 1)
    for start in range(0, draws, block):
        count = min(block, draws - start)
        drawn = random.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n).astype(np.float64)


class _Ranks:
    """Computes the ranks of values in samples of them; equal values have their mean rank."""

    def __init__(self, values: Floats) -> None:
        _, self.group = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.group, kind="stable")
        self.starts = np.flatnonzero(np.diff(self.group[self.order], prepend=-1))

    def __call__(self, counts: Floats) -> Floats:
        sizes = np.add.reduceat(counts[:, self.order], self.starts, axis=1)
        return (np.cumsum(sizes, axis=1) - sizes / 2 + 0.5)[:, self.group]


def _correlation(counts: Floats, first: Floats, second: Floats) -> Floats:
    """Return Pearson's correlation of the ranks in each sample ``[block]``; 0 if the ranks of a side are constant."""
    total = counts.sum(axis=1, keepdims=True)
    first, second = (ranks - (counts * ranks).sum(axis=1, keepdims=True) / total for ranks in (first, second))
    covariance = (counts * first * second).sum(axis=1)
    deviations = np.sqrt((counts * first**2).sum(axis=1) * (counts * second**2).sum(axis=1))
    return np.divide(covariance, deviations, out=np.zeros(len(counts)), where=deviations > 0)


def interval(draws: Floats) -> tuple[float, float]:
    """Return the ends of the middle 95 % of the values of samples."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def compare_draws(score: float, other: float, draws: Floats, others: Floats) -> Difference:
    """Compare two models on the same samples (paired bootstrap).

    Args:
        score: of the first model.
        other: of the second model.
        draws: scores of the first model on samples ``[draws]``.
        others: scores of the second model on the same samples ``[draws]``.
    """
    differences = draws - others
    tails = [(np.count_nonzero(side) + 1) / (len(differences) + 1) for side in (differences <= 0, differences >= 0)]
    return Difference(score - other, *interval(differences), p=min(1.0, 2 * min(tails)))


def compare_seeds(scores: Sequence[float], others: Sequence[float], draws: Floats, other_draws: Floats) -> Difference:
    """Compare the means over seeds of two systems, on the same samples of the items.

    With as many seeds on both sides, the seeds are pairs in their order, and each sample draws such pairs with
    replacement as it draws items: the interval is that of other items and other seeds. Otherwise the means over the
    seeds are compared on each sample of the items, and the seeds stay as they are.

    p is of a normal distribution with the standard deviation of the samples. Counted, as `compare_draws` does, it could
    not be below 0.002 with 1,000 samples, which a correction for 25 comparisons would lift above 0.05.

    Args:
        scores: of each seed of the first system.
        others: of each seed of the second system.
        draws: scores of the first system's seeds on samples ``[seeds, draws]``.
        other_draws: scores of the second system's seeds on the same samples ``[seeds, draws]``.
    """
    if len(draws) == len(other_draws):
        differences = draws - other_draws
        pairs = np.random.default_rng([SEED, len(draws)]).integers(0, len(draws), differences.shape)
        samples = np.take_along_axis(differences, pairs, axis=0).mean(axis=0)
    else:
        samples = draws.mean(axis=0) - other_draws.mean(axis=0)
    difference, deviation = statistics.fmean(scores) - statistics.fmean(others), statistics.stdev(samples.tolist())
    p = 2 * statistics.NormalDist().cdf(-abs(difference) / deviation) if deviation else float(difference == 0)
    return Difference(difference, *interval(samples), p=p)


def holm(p: Sequence[float]) -> list[float]:
    """Correct the p values of several comparisons, so that the chance of any false one among them is bounded (Holm)."""
    corrected, greatest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        greatest = max(greatest, (len(p) - rank) * p[i])
        corrected[i] = min(1.0, greatest)
    return corrected


def packed(draws: Floats) -> str:
    """Return samples as one line of JSON: their 32-bit floats in base64."""
    return base64.b64encode(draws.astype("<f4").tobytes()).decode("ascii")


def unpacked(text: str) -> Floats:
    """Return the samples that `packed` was called on.

    Raises:
        ValueError: if `text` is not base64 of finite 32-bit floats.
    """
    draws = np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float64)
    if len(draws) < 2 or not np.isfinite(draws).all():
        raise ValueError("expected at least two finite numbers")
    return draws


def accuracy_interval(correct: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return Wilson's interval of an accuracy, times 100."""
    from scipy.stats import binomtest

    ends = binomtest(int(correct.sum()), len(correct)).proportion_ci(LEVEL, method="wilson")
    return 100 * float(ends.low), 100 * float(ends.high)


def mcnemar(correct: npt.NDArray[np.bool_], others: npt.NDArray[np.bool_]) -> Discordance:
    """Compare two models by the examples that only one of them has right (McNemar, exact)."""
    from scipy.stats import binomtest

    first, second = int((correct & ~others).sum()), int((others & ~correct).sum())
    p = float(binomtest(first, first + second).pvalue) if first + second else 1.0
    return Discordance(100 * (first - second) / len(correct), first, second, p)
