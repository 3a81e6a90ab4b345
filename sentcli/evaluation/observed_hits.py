"""Hits of a model that are right or wrong: their groups, folds that keep groups together, and shares with intervals."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from sentcli.arrays import BoolArray, Float64Array, Int64Array, components
from sentcli.errors import InputError
from sentcli.evaluation.differences import student
from sentcli.search.calibration import LearnedFrom
from sentcli.search.neighbours import require_finite

LEAST_OF_EITHER = 50
"""With fewer right or fewer wrong hits, no threshold and no probability is learned."""
FOLDS = 5
_FOLD_SEED = 1


@dataclass(frozen=True)
class Observed:
    """Hits of a model, with whether each is right."""

    source: LearnedFrom
    similarities: Float64Array
    """``[n]``"""
    right: BoolArray
    """``[n]``"""
    groups: Int64Array
    """The number of each hit's group ``[n]``: hits of one query, and pairs that share a text, stay together."""

    def __len__(self) -> int:
        return len(self.right)

    def part(self, rows: Int64Array | BoolArray) -> Observed:
        """Return some of the hits."""
        return Observed(self.source, self.similarities[rows], self.right[rows], self.groups[rows])

    @property
    def positives(self) -> int:
        """The number of right hits."""
        return int(self.right.sum())

    @property
    def negatives(self) -> int:
        """The number of wrong hits."""
        return len(self) - self.positives

    @cached_property
    def group_count(self) -> int:
        """The number of groups."""
        return len(np.unique(self.groups))

    def require_enough(self) -> None:
        """Refuse data that cannot carry a threshold.

        Raises:
            InputError: if there are too few right hits, wrong hits or groups.
        """
        require_finite(self.similarities)
        name = self.source.name
        require_either(name, self.positives, self.negatives)
        if self.group_count < 2 * FOLDS:
            kept = "queries" if self.source.kind == "retrieval" else "groups of pairs that share no text"
            raise InputError(f"--threshold needs {2 * FOLDS} {kept} at least, and {name} has {self.group_count}")


def require_either(name: str, positives: int, negatives: int) -> None:
    """Refuse data with fewer than `LEAST_OF_EITHER` right or wrong hits.

    Raises:
        InputError: which names the data and the counts.
    """
    if min(positives, negatives) < LEAST_OF_EITHER:
        raise InputError(
            f"--threshold needs {LEAST_OF_EITHER} right and {LEAST_OF_EITHER} wrong ones at least, and {name} has "
            f"{positives:,} right and {negatives:,} wrong"
        )


def share_interval(observed: Observed) -> tuple[float, float]:
    """Return the 95 % interval of the share of right hits: Wilson's, of as many hits as the groups are worth."""
    share = float(observed.right.mean())
    count = float(len(observed))
    _, numbers = np.unique(observed.groups, return_inverse=True)
    groups = int(numbers.max()) + 1
    of_independent = count * share * (1 - share)
    if groups > 1 and of_independent:
        sums = np.bincount(numbers, weights=observed.right - share)
        variance = float((sums**2).sum()) * groups / (groups - 1)
        count /= max(variance / of_independent, 1.0)
    squared = student(max(groups - 1, 1)) ** 2
    middle = (share + squared / (2 * count)) / (1 + squared / count)
    half = squared**0.5 * (share * (1 - share) / count + squared / (4 * count**2)) ** 0.5 / (1 + squared / count)
    return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)  # but for rounding


def folds(groups: Int64Array) -> Int64Array:
    """Return the fold of each hit ``[n]``: a group is in one fold, and folds are as equal in size as groups allow."""
    _, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    shuffled = np.random.default_rng(_FOLD_SEED).permutation(len(sizes))
    largest_first = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    fold_of_group = np.empty(len(sizes), np.int64)
    lightest = [(0, fold) for fold in range(FOLDS)]
    for group in largest_first.tolist():
        weight, fold = heapq.heappop(lightest)
        fold_of_group[group] = fold
        heapq.heappush(lightest, (weight + int(sizes[group]), fold))
    return fold_of_group[numbers]


def groups_of_pairs(first: Sequence[Hashable], second: Sequence[Hashable]) -> Int64Array:
    """Return the number of the group of each pair ``[n]``; pairs that share a text, also by others, are in one."""
    numbers: dict[Hashable, int] = {}
    for text in chain(first, second):
        numbers.setdefault(text, len(numbers))
    firsts = list(map(numbers.__getitem__, first))
    seconds = list(map(numbers.__getitem__, second))
    group_of_text = components(firsts, seconds, len(numbers))
    return group_of_text[firsts]
