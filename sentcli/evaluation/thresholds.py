"""The similarity from which on hits are right with a given precision, and the probability of each similarity.

The interval of the similarity holds those at which a score test (Wilson, 1927) does not tell the precision from the one
that is asked for, so that nothing is drawn at random. The variance is that of sums over groups, because the hits of one
query, or pairs that share a text, are alike; it is never taken to be less than that of independent hits. Resamples of
the groups hold the similarity as often where it is well determined, and in 89 to 91 of 100 cases where few hits are
above it; what this one covers is held by simulations in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sentcli.arrays import Float64Array, Int64Array
from sentcli.evaluation.differences import student
from sentcli.evaluation.observed_hits import FOLDS, Observed, folds, share_interval
from sentcli.search.calibration import Curve, Isotonic, Logistic

LEAST_ABOVE = 20
"""A precision of fewer hits is not taken for one."""
_BINS = 10
"""Parts of equal size that predicted probabilities are compared with what is right in."""


@dataclass(frozen=True)
class Bin:
    """Hits of similar predicted probability, and how many of them are right."""

    probability: float
    """The mean of the probabilities, which were predicted by the other folds."""
    share: float
    """The share of right hits."""
    interval: tuple[float, float]
    count: int


@dataclass(frozen=True)
class Highest:
    """The highest precision that a cut has, and its similarity."""

    precision: float
    similarity: float


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The similarity from which on hits have a precision, as it is written and read."""

    precision: float
    """The one that was asked for."""
    similarity: float | None
    """None where no cut with `LEAST_ABOVE` hits above it has the precision, or hits of other folds surely miss it: the
    highest of many cuts has some precision by chance."""
    interval: tuple[float | None, float | None]
    """Below the first the precision is surely missed, from the second on it is surely reached (each at 97.5 %); None
    where no similarity does."""
    held_out_precision: float | None
    """The precision of the hits of each fold above the threshold of the other folds; None if there are none."""
    held_out_interval: tuple[float, float] | None
    held_out_hits: int
    """The number of those hits."""
    recall: float
    """The share of the right hits of each fold that are above the threshold of the other folds."""
    form: str
    """The form of the curve of probabilities, a key of `FITS`."""
    brier: float
    """Its Brier score on held-out folds."""
    brier_of: dict[str, float] = field(default_factory=dict)
    """That of each form, and of the share of right hits in the place of probabilities."""
    positives: int
    negatives: int
    groups: int
    depth: int | None
    """The first documents of each query that are its hits; None for pairs."""
    reliability: list[Bin]
    highest: Highest | None = None
    """What there is, where there is no similarity."""
    f1_threshold: float | None = None
    """The similarity of the best F1, whose key in the JSON this one has."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON."""
        entry = asdict(self)
        for key in ("highest", "f1_threshold"):
            if entry[key] is None:
                del entry[key]
        return entry


def find_threshold(observed: Observed, precision: float) -> Threshold:
    """Find the similarity from which on hits have a precision, and the form of the probability of each similarity.

    Args:
        observed: the hits.
        precision: between 0 and 1.

    Raises:
        InputError: if there are too few right hits, wrong hits or groups.
    """
    observed.require_enough()
    cuts = Cuts.of(observed)
    fold_of = folds(observed.groups)
    above = np.zeros(len(observed), np.bool_)
    predicted = {name: np.empty(len(observed)) for name in (*FITS, "share")}
    for fold in range(FOLDS):
        test = fold_of == fold
        others = observed.part(~test)
        cut, _ = Cuts.of(others).reaching(precision)
        if cut is not None:
            above[test] = observed.similarities[test] >= cut
        for name, fit in FITS.items():
            predicted[name][test] = fit(others)(observed.similarities[test])
        predicted["share"][test] = others.right.mean()
    brier = {name: float(np.mean((values - observed.right) ** 2)) for name, values in predicted.items()}
    form = min(FITS, key=lambda name: brier[name])
    kept = observed.part(above)
    held_out_precision = None
    held_out_interval = None
    similarity: float | None = None
    interval: tuple[float | None, float | None] = (None, None)
    if len(kept):
        held_out_precision = float(kept.right.mean())
        held_out_interval = share_interval(kept)
        if held_out_interval[1] >= precision:
            similarity, interval = cuts.reaching(precision)
    return Threshold(
        precision=precision,
        similarity=similarity,
        interval=interval,
        held_out_precision=held_out_precision,
        held_out_interval=held_out_interval,
        held_out_hits=len(kept),
        recall=kept.positives / observed.positives,
        form=form,
        brier=brier[form],
        brier_of=brier,
        positives=observed.positives,
        negatives=observed.negatives,
        groups=observed.group_count,
        depth=observed.source.depth,
        reliability=list(_bins(observed, predicted[form])),
        highest=cuts.highest if similarity is None else None,
    )


@dataclass(frozen=True)
class Cuts:
    """Every similarity that separates hits from less similar ones, and what lies above it."""

    similarities: Float64Array
    """Midway between the last hit above and the next one, in falling order ``[cuts]``."""
    above: Float64Array
    """Hits above each cut ``[cuts]``."""
    right: Float64Array
    """The right ones among them ``[cuts]``."""
    squares: Float64Array
    """Sums over groups of squares and products of these two: right right, right above, above above ``[3, cuts]``."""
    quantile: float
    """Student's, of the number of groups."""

    @classmethod
    def of(cls, observed: Observed) -> Cuts:
        """Return the cuts of hits."""
        order = np.argsort(-observed.similarities, kind="stable")
        ranked = observed.part(order)
        similarities = ranked.similarities
        right = ranked.right.astype(np.float64)
        above_in_group, right_in_group = _earlier_in_group(ranked.groups, right)
        # a hit adds one to its group's count, and perhaps one to its right ones: what the squares grow by
        growth: Float64Array = np.stack(
            [
                right * (2 * right_in_group + 1),
                right_in_group + right * (above_in_group + 1),
                2 * above_in_group + 1,
            ]
        )
        following = np.append(similarities[1:], similarities[-1])
        is_last = np.append(following[:-1] < similarities[:-1], True)  # of those of one similarity
        midway = (similarities + following) / 2
        between = np.where(midway > following, midway, similarities)
        return cls(
            between[is_last],
            np.flatnonzero(is_last).astype(np.float64) + 1,
            np.cumsum(right)[is_last],
            np.cumsum(growth, axis=1)[:, is_last],
            student(max(observed.group_count - 1, 1)),
        )

    def reaching(self, precision: float) -> tuple[float | None, tuple[float | None, float | None]]:
        """Return the lowest cut above which hits have a precision, and the ends of its interval.

        Args:
            precision: between 0 and 1.

        Returns:
            None in the place of the cut if there is none with `LEAST_ABOVE` hits above it; None in the place of an end
            where no cut is surely below, or above.
        """
        excess = self.right - precision * self.above
        enough = self.above >= LEAST_ABOVE
        rounding = 1e-9 * self.above
        reached = np.flatnonzero(enough & (excess >= -rounding))
        if not len(reached):
            return None, (None, None)
        lowest = int(reached[-1])
        of_groups = np.array([1, -2 * precision, precision**2]) @ self.squares
        of_independent = precision * (1 - precision) * self.above
        deviations = excess / np.sqrt(np.maximum(of_groups, of_independent))
        surely_reached = np.flatnonzero(deviations[: lowest + 1] >= self.quantile)
        surely_missed = np.flatnonzero(deviations[lowest:] <= -self.quantile)
        low = self.similarities[-1]
        if len(surely_missed):
            low = self.similarities[lowest + surely_missed[0] - 1]
        high = None
        if len(surely_reached):
            high = float(self.similarities[surely_reached[-1]])
        return float(self.similarities[lowest]), (float(low), high)

    @property
    def highest(self) -> Highest:
        """The highest precision of `LEAST_ABOVE` hits or more above a cut, and the lowest such cut."""
        enough = np.flatnonzero(self.above >= LEAST_ABOVE)
        precisions = self.right[enough] / self.above[enough]
        best = np.flatnonzero(precisions == precisions.max())[-1]
        return Highest(float(precisions[best]), float(self.similarities[enough[best]]))


def _earlier_in_group(groups: Int64Array, right: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return of each hit how many of its group come before it, and how many right ones ``[n]``."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(groups)))
    first = np.repeat(starts, sizes)
    right_before = np.cumsum(right[order]) - right[order]
    earlier = np.empty(len(groups))
    earlier_right = np.empty(len(groups))
    earlier[order] = np.arange(len(groups)) - first
    earlier_right[order] = right_before - right_before[first]
    return earlier, earlier_right


def fit_isotonic(observed: Observed) -> Isotonic:
    """Return scikit-learn's isotonic regression of right on similarity (pool adjacent violators)."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    fitted.fit(observed.similarities, observed.right.astype(np.float64))
    places = fitted.X_thresholds_.tolist()
    values = np.clip(fitted.y_thresholds_, 0, 1)
    never_falling = np.maximum.accumulate(values)  # but for rounding it does not
    return Isotonic(list(zip(places, never_falling.tolist(), strict=True)))


def fit_logistic(observed: Observed) -> Logistic:
    """Return Platt's sigmoid, whose targets are not 0 and 1 but (n + 1) / (n + 2) of n right or wrong hits.

    Where right hits are the less similar ones, the probability is the same for all.
    """
    from sklearn.linear_model import LogisticRegression

    similarities = observed.similarities
    centre = float(similarities.mean())
    scale = float(similarities.std()) or 1.0
    positives, negatives = observed.positives, observed.negatives
    targets = np.where(observed.right, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    scaled = np.tile((similarities - centre) / scale, 2)[:, None]
    labels = np.repeat([True, False], len(observed))
    weights = np.concatenate([targets, 1 - targets])
    fitted = LogisticRegression(C=1e10, max_iter=1000).fit(scaled, labels, weights)
    slope = float(fitted.coef_[0, 0]) / scale
    if slope > 0:
        return Logistic(slope, float(fitted.intercept_[0]) - slope * centre)
    odds = (positives + 1) / (negatives + 1)
    return Logistic(0.0, float(np.log(odds)))


FITS: dict[str, Callable[[Observed], Curve]] = {"isotonic": fit_isotonic, "logistic": fit_logistic}


def _bins(observed: Observed, predicted: Float64Array) -> Iterator[Bin]:
    """Yield `_BINS` parts of equal size, the least probable hits first."""
    order = np.argsort(predicted, kind="stable")
    for rows in np.array_split(order, _BINS):
        part = observed.part(rows)
        yield Bin(float(predicted[rows].mean()), float(part.right.mean()), share_interval(part), len(part))
