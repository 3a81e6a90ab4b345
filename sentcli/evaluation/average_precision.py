"""Samples and intervals of average precision.

Apart from `significance`, because copies of a pair in a sample tie with themselves and because the score is biased
where positive pairs are few: quantiles of plain samples hold it in 84 to 93 of 100 cases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sentcli.evaluation.significance import DRAWS, LEVEL, Floats, drawn_counts, require_finite

LEAST_OF_EITHER_LABEL = 10
"""With fewer positive or fewer negative pairs, an average precision has no interval."""


def average_precision_draws(
    predicted: Floats, positive: npt.NDArray[np.bool_], draws: int = DRAWS, *, stream: int = 0
) -> Floats:
    """Return the average precision on samples of pairs ``[draws]``, which are drawn as for `spearman_draws`.

    It is the mean, over the positive pairs that were drawn, of the precision at their similarity, as scikit-learn
    computes it, but a pair counts once at its own place however often it was drawn. Otherwise its copies would tie with
    it, which lifts every precision: the mean of the samples would lie above the average precision of the pairs. A
    sample without a positive pair has 0.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.
        draws: number of samples.
        stream: arguments of the same length get independent samples under another stream.
    """
    order, ends = _ranked(predicted)
    right = positive[order]
    values = []
    for counts in drawn_counts(len(predicted), draws, stream):
        drawn = counts[:, order]
        above = np.cumsum(drawn, axis=1)[:, ends][:, right]  # of each positive pair, with those of equal similarity
        found = np.cumsum(drawn * right, axis=1)[:, ends][:, right]
        copies = drawn[:, right]
        precision = np.divide(found - copies + 1, above - copies + 1, out=np.zeros_like(above), where=copies > 0)
        values.append((precision * copies).sum(axis=1) / np.maximum(copies.sum(axis=1), 1))
    return np.concatenate(values)


def average_precision_interval(
    predicted: Floats, positive: npt.NDArray[np.bool_], draws: Floats
) -> tuple[float, float] | None:
    """Return the 95 % interval of an average precision.

    It is Efron's BCa interval ("Better bootstrap confidence intervals", 1987): the quantiles of the samples, moved by
    the share of samples below the average precision, because it is biased where positive pairs are few, and by the
    skewness of the pairs' influence. The normal quantiles are replaced by Student's, with a degree of freedom less than
    there are pairs of the rarer class. If all positive pairs lie above all negative ones in every sample, the lower end
    is Clopper and Pearson's of as many right answers as there are positive pairs.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.
        draws: values of `average_precision_draws`.

    Returns:
        The ends, or None with fewer than `LEAST_OF_EITHER_LABEL` positive or negative pairs.
    """
    from scipy.stats import norm, t

    rarer = int(min(positive.sum(), (~positive).sum()))
    if rarer < LEAST_OF_EITHER_LABEL:
        return None
    if draws.min() == 1:
        return float(((1 - LEVEL) / 2) ** (1 / positive.sum())), 1.0
    value, without = _average_precisions(predicted, positive)
    influence = without.mean() - without
    bend = (influence**3).sum() / (6 * max((influence**2).sum(), 1e-300) ** 1.5)
    below = np.clip(((draws < value).mean() + (draws <= value).mean()) / 2, 1 / len(draws), 1 - 1 / len(draws))
    shift = norm.ppf(below)
    ends = shift + t.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], rarer - 1)
    low, high = np.quantile(draws, norm.cdf(shift + ends / np.maximum(1 - bend * ends, 0.1)))
    return float(low), float(high)


def _ranked(predicted: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the order of similarities from high to low, and for each place the last place of the same similarity."""
    require_finite(predicted)
    order = np.argsort(-predicted, kind="stable")
    last = np.flatnonzero(np.diff(predicted[order], append=np.nan) != 0)
    return order, np.repeat(last, np.diff(last, prepend=-1))


def _average_precisions(predicted: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, Floats]:
    """Return the average precision of pairs, and that without each of them ``[n]``, which must leave a positive one."""
    order, ends = _ranked(predicted)
    right = positive[order].astype(np.float64)
    above, found = ends + 1.0, np.cumsum(right)[ends]
    fewer = np.maximum(above - 1, 1)
    firsts = np.searchsorted(ends, ends)  # the first place of the same similarity
    before = np.append(0.0, np.cumsum(right * found / above))[firsts]
    # behind a pair, and at its similarity, both counts lose it; its own precision goes
    kept, lost = (np.append(np.cumsum((right * each)[::-1])[::-1], 0.0)[firsts] for each in (found / fewer, 1 / fewer))
    own = right * (found - right) / fewer
    without = np.empty(len(right))
    without[order] = (before + kept - right * lost - own) / np.maximum(right.sum() - right, 1)
    return float((right * found / above).sum() / right.sum()), without
