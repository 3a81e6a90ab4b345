"""Intervals of scores, and tests of the difference of two models.

Correlations: the pairs of a task are sampled with replacement 1,000 times, and the middle 95 % of the correlations of
the samples are the interval (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993). Retrieval: the same, with
the queries of a set and the mean of their scores. Average precision: Efron's BCa interval (1987) of such samples.
Accuracies: Lancaster's mid-P interval (1961).

Two models, and systems that are groups of seeds by their means over the seeds, are compared with Student's t: of the
values of their items where the score is their mean, else by the variance over the same samples. Right and wrong answers
of two models are compared with McNemar's exact test (1947). The p values of many such comparisons are corrected (Holm,
1979). What each of these covers is held by simulations in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sentcli.arrays import BoolArray, Float64Array
from sentcli.evaluation.differences import LEVEL, Difference, Variation, student
from sentcli.search.neighbours import require_finite

RESAMPLES = 1000
SAMPLES_SEED = 1
SINGLE = {
    (True, True): "both groups have",
    (True, False): "the first group has",
    (False, True): "the second group has",
}
"""Which groups have a single run of many possible ones, in words, by whether each has."""


def spearman_replicates(
    predicted: Float64Array, gold: Float64Array, resamples: int = RESAMPLES, *, stream: int = 0
) -> Float64Array:
    """Return Spearman's correlation times 100 on random samples of the pairs ``[resamples]``.

    It is NaN on a sample in which all ranks of a side are equal, where no correlation is defined. The samples are the
    same for arguments of the same length, so that two models can be compared on each of them. A sample is represented
    by how often each pair was drawn, so that pairs which are sorted once can be ranked in every sample without sorting
    again.

    Args:
        predicted: similarities ``[n]``.
        gold: scores ``[n]``.
        resamples: number of samples.
        stream: arguments of the same length get independent samples under another stream.
    """
    require_finite(predicted + gold)
    ranks_of_predicted = _Ranks(predicted)
    ranks_of_gold = _Ranks(gold)
    correlations = []
    for counts in resampled_counts(len(gold), resamples, stream):
        correlations.append(_correlation(counts, ranks_of_predicted(counts), ranks_of_gold(counts)))
    return 100 * np.concatenate(correlations)


def mean_replicates(values: Float64Array, resamples: int = RESAMPLES, *, stream: int = 0) -> Float64Array:
    """Return the mean of values on random samples of them ``[resamples]``, drawn as for `spearman_replicates`.

    Args:
        values: of each example ``[n]``.
        resamples: number of samples.
        stream: arguments of the same length get independent samples under another stream.
    """
    means = []
    for counts in resampled_counts(len(values), resamples, stream):
        means.append(counts @ values / len(values))
    return np.concatenate(means)


def resampled_counts(n: int, resamples: int, stream: int) -> Iterator[Float64Array]:
    """Yield blocks of random samples, each as how often it has each of `n` items ``[block, n]``."""
    random = np.random.default_rng([SAMPLES_SEED, stream])
    for samples in _block_sizes(n, resamples):
        items = random.integers(0, n, (samples, n))
        first_bins = n * np.arange(samples)  # each sample has bins of its own: one pass counts the items of all
        counts = np.bincount((items + first_bins[:, None]).ravel(), minlength=samples * n)
        yield counts.reshape(samples, n).astype(np.float64)


def _block_sizes(n: int, samples: int) -> Iterator[int]:
    """Yield how many samples of `n` items are drawn at a time, so that a block has about two million numbers."""
    block = max(2**21 // n, 1)
    for start in range(0, samples, block):
        yield min(block, samples - start)


class _Ranks:
    """Computes the ranks of values in samples of them; equal values have their mean rank."""

    def __init__(self, values: Float64Array) -> None:
        _, self.group = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.group, kind="stable")
        self.starts = np.flatnonzero(np.diff(self.group[self.order], prepend=-1))

    def __call__(self, counts: Float64Array) -> Float64Array:
        sizes = np.add.reduceat(counts[:, self.order], self.starts, axis=1)
        return (np.cumsum(sizes, axis=1) - sizes / 2 + 0.5)[:, self.group]


def _correlation(counts: Float64Array, first: Float64Array, second: Float64Array) -> Float64Array:
    """Return Pearson's correlation of the ranks in each sample ``[block]``; NaN if the ranks of a side are equal."""
    first = _centred(counts, first)
    second = _centred(counts, second)
    covariance = (counts * first * second).sum(axis=1)
    first_squares = (counts * first**2).sum(axis=1)
    second_squares = (counts * second**2).sum(axis=1)
    deviations = np.sqrt(first_squares * second_squares)
    return np.divide(covariance, deviations, out=np.full(len(counts), np.nan), where=deviations > 0)


def _centred(counts: Float64Array, ranks: Float64Array) -> Float64Array:
    """Return ranks ``[block, n]`` minus their mean in each sample."""
    sums = (counts * ranks).sum(axis=1, keepdims=True)
    return ranks - sums / counts.shape[1]  # a sample has as many pairs as there are


def interval(replicates: Float64Array) -> tuple[float, float]:
    """Return the ends of the middle 95 % of the values on samples ``[resamples]``."""
    low, high = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def mean_interval(values: Float64Array, usual: float = 0.0) -> tuple[float, float]:
    """Return the 95 % interval of the mean of independent values, by Student's t.

    Of paired differences, most of which may be 0, it is too narrow in a sample in which nothing changes. Where the size
    of a change is known from elsewhere, one of it in each direction is added, as Agresti and Coull ("Approximate is
    better than exact", 1998) add two successes and two failures to a proportion.

    Args:
        values: of each item ``[n]``, at least two with what is added.
        usual: the size of a difference that is not 0; nothing is added for 0.
    """
    if usual:
        values = np.append(values, [usual, -usual])
    half = student(len(values) - 1) * float(values.std(ddof=1)) / len(values) ** 0.5
    mean = float(values.mean())
    return mean - half, mean + half


def compare_groups(
    first: npt.ArrayLike, second: npt.ArrayLike, fixed: tuple[bool, bool] = (False, False)
) -> Difference:
    """Compare two groups of trained seeds by the mean of a metric over the same items.

    The seeds stand for all seeds of a training, the items for all items of their kind, in the model of Obuchowski and
    Rockette (1995) with seeds for readers.

    Args:
        first: values of each item by each run of the first group ``[runs, items]``.
        second: values of the same items by each run of the second group ``[runs, items]``.
        fixed: whether each group is a single model that is meant as it is, and not a run for others of its training; it
            has no spread over seeds.

    Returns:
        The difference of the means over runs and items, in the unit of the values. A group of one run gives no
        interval and no p value, and the reason: one run tells nothing of the spread between seeds.

    Raises:
        ValueError: if the groups do not have the same items, at least two of them, or a value is not finite.
    """
    first_values = np.asarray(first, np.float64)
    second_values = np.asarray(second, np.float64)
    for group in (first_values, second_values):
        if group.ndim != 2 or len(group) == 0 or group.shape[1] < 2:
            raise ValueError("expected two groups of values [runs, items] with at least two items")
        if not np.isfinite(group).all() or group.shape[1] != first_values.shape[1]:
            raise ValueError("expected finite values of the same items in both groups")
    items = first_values.shape[1]
    covariance = np.cov(np.concatenate([first_values, second_values])) / items
    return _compared(first_values.mean(axis=1), second_values.mean(axis=1), covariance, items - 1, fixed)


def compare_means(values: Float64Array, others: Float64Array) -> Difference:
    """Compare the mean values of two models as they are, by Student's t of the paired differences.

    A single item tells nothing of others: if its value has changed, the interval is all that there can be.

    Args:
        values: of the first model on each item ``[n]``, from 0 to 1.
        others: of the second model on the same items ``[n]``.
    """
    if len(values) > 1:
        return compare_groups(values[None], others[None], (True, True))
    difference = float(values[0] - others[0])
    reach = float(difference != 0)
    return Difference(difference, -reach, reach)


def compare_seeds(
    scores: Sequence[float],
    others: Sequence[float],
    replicates: Float64Array,
    other_replicates: Float64Array,
    items: int,
    fixed: tuple[bool, bool] = (False, False),
) -> Difference:
    """Compare the means over seeds of two systems, for metrics that need not be means over items.

    The variance over samples with replacement is that of a mean that is known, (n - 1) / n of what n items tell of
    others, and it has no more degrees of freedom than the items and the samples.

    Args:
        scores: of each seed of the first system.
        others: of each seed of the second system.
        replicates: scores of the first system's seeds on samples of the items ``[seeds, resamples]``.
        other_replicates: scores of the second system's seeds on the same samples ``[seeds, resamples]``.
        items: number of items that were sampled, at least two; of a mean over several sets, those of the smallest one.
        fixed: as for `compare_groups`.
    """
    all_replicates = np.concatenate([replicates, other_replicates])
    resamples = all_replicates.shape[1]
    covariance = np.cov(all_replicates) * items / (items - 1)
    item_freedom = 1 / (1 / (items - 1) + 1 / (resamples - 1))
    return _compared(np.array(scores), np.array(others), covariance, item_freedom, fixed)


def compare_two(
    score: float, other: float, replicates: Float64Array, other_replicates: Float64Array, items: int
) -> Difference:
    """Compare two models as they are, by `compare_seeds`.

    Args:
        score: of the first model.
        other: of the second model.
        replicates: scores of the first model on samples of the items ``[resamples]``.
        other_replicates: scores of the second model on the same samples ``[resamples]``.
        items: as for `compare_seeds`.
    """
    return compare_seeds([score], [other], replicates[None], other_replicates[None], items, (True, True))


def _compared(
    first: Float64Array, second: Float64Array, covariance: Float64Array, item_freedom: float, fixed: tuple[bool, bool]
) -> Difference:
    """Compare two groups of scores on the same items.

    The model is that of Obuchowski and Rockette ("Hypothesis testing of diagnostic accuracy for multiple readers and
    multiple tests", 1995) with seeds for readers: the variance of the difference is that of the items, less what they
    make the runs of one group differ by, and that of the means over seeds.

    Args:
        first: score of each run of the first group ``[runs1]``.
        second: score of each run of the second group ``[runs2]``.
        covariance: of all these scores over samples of the items ``[runs1 + runs2, runs1 + runs2]``.
        item_freedom: degrees of freedom of `covariance`.
        fixed: whether each group is a single model that has no spread over seeds.
    """
    difference = float(first.mean() - second.mean())
    runs = len(first)
    other_runs = len(second)
    are_single = (runs == 1 and not fixed[0], other_runs == 1 and not fixed[1])
    if any(are_single):
        reason = f"{SINGLE[are_single]} one run, which tells nothing of the spread between seeds"
        return Difference(difference, reason=reason)
    groups = []
    if runs > 1:
        groups.append((first, covariance[:runs, :runs]))
    if other_runs > 1:
        groups.append((second, covariance[runs:, runs:]))
    seeds, seed_freedom, shared = _variance_of_seeds(groups)
    weights = np.repeat([1 / runs, -1 / other_runs], [runs, other_runs])
    of_items = max(float(weights @ covariance @ weights) - shared, 0.0)
    rounding = 1e-12 * max(np.abs(first).max(), np.abs(second).max())
    # the variances of equal scores cancel to the last digits of those that are added up
    if of_items + seeds <= max(rounding**2, 1e-14 * covariance.max()):
        return Difference(difference, difference, difference, float(abs(difference) <= rounding))
    fewest = min((len(scores) for scores, _ in groups), default=1)
    return Difference.tested(difference, Variation(of_items, seeds, item_freedom, seed_freedom, fewest))


def _variance_of_seeds(groups: Sequence[tuple[Float64Array, Float64Array]]) -> tuple[float, float, float]:
    """Return the variance of a difference of means over seeds, its degrees of freedom, and the part due to the items.

    The variance of each group is drawn towards the pooled one, as Smyth (2004) moderates variances of few replicates.

    Args:
        groups: scores ``[runs]`` and their covariance over items ``[runs, runs]`` of the groups with several seeds.
    """
    if not groups:
        return 0.0, 1.0, 0.0
    sizes = np.empty(len(groups), np.int64)
    variances = np.empty(len(groups))
    of_items = np.empty(len(groups))
    for i, (scores, covariance) in enumerate(groups):
        runs = len(scores)
        sizes[i] = runs
        variances[i] = scores.var(ddof=1)
        # what the items alone make the runs differ by
        of_items[i] = (np.trace(covariance) - covariance.sum() / runs) / (runs - 1)
    freedom = sizes - 1
    own = freedom / (freedom + 2)  # how much of a group's own variance counts, the rest being the pooled one
    pooled = ((1 - own) / sizes).sum()
    factors = own / sizes + pooled * freedom / freedom.sum()
    shared = float((of_items / sizes).sum())
    # a variance over seeds below this share of what the items alone make runs differ by is not believed
    variance = max(float(factors @ variances), 0.05 * shared)
    squares = (factors**2 / freedom).sum()
    return variance, float(factors.sum() ** 2 / squares), shared


def corrected(differences: Sequence[Difference]) -> list[Difference]:
    """Correct the p values of differences, so that the chance of any false one among them is bounded (Holm)."""
    tested = [difference.p for difference in differences if difference.p is not None]
    p_values = iter(holm(tested))
    found = []
    for difference in differences:
        if difference.p is not None:
            difference = replace(difference, p_holm=next(p_values))
        found.append(difference)
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Correct the p values of several comparisons, so that the chance of any false one among them is bounded (Holm)."""
    corrected = [0.0] * len(p)
    greatest = 0.0
    ascending = sorted(range(len(p)), key=lambda i: p[i])
    for rank, i in enumerate(ascending):
        greatest = max(greatest, (len(p) - rank) * p[i])
        corrected[i] = min(1.0, greatest)
    return corrected


def accuracy_interval(correct: BoolArray) -> tuple[float, float]:
    """Return the interval of an accuracy, times 100 (Lancaster, "Significance tests in discrete distributions", 1961).

    It is Clopper and Pearson's exact interval with half of the chance of the count itself (mid-P). From 200 items on it
    holds an accuracy of 0.98 in 94 to 97 of 100 cases, and of 50 in 98; Wilson's holds that in 92, and nothing between
    can be had with 50.
    """
    right = int(correct.sum())
    wrong = len(correct) - right
    low = _lowest_accuracy(right, len(correct))
    high = 1 - _lowest_accuracy(wrong, len(correct))
    return 100 * low, 100 * high


def _lowest_accuracy(right: int, items: int) -> float:
    """Return the lowest accuracy that does not make so many right answers too unlikely."""
    from scipy.optimize import brentq
    from scipy.special import bdtr

    def excess(accuracy: float) -> float:
        """Return the chance of more right answers, and half of that of as many, minus the one that is allowed."""
        mid_p = float(bdtr(right, items, accuracy) + bdtr(right - 1, items, accuracy)) / 2
        return 1 - mid_p - (1 - LEVEL) / 2

    if right == 0:
        return 0.0
    return float(brentq(excess, 0, 1))


def mcnemar(correct: BoolArray, others: BoolArray, highest: float = 100) -> Difference:
    """Compare two models by the examples that only one of them has right (McNemar, exact).

    Args:
        correct: whether the first model is right on each example ``[n]``.
        others: the same of the second model.
        highest: the score of a model that has everything right.
    """
    from scipy.stats import binomtest

    first = int((correct & ~others).sum())
    second = int((others & ~correct).sum())
    p = 1.0
    if first + second:
        p = float(binomtest(first, first + second).pvalue)
    difference = highest * (first - second) / len(correct)
    return Difference(difference, p=p, only_first=first, only_second=second)
