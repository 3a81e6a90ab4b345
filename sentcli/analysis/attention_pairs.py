"""Do vectors and attention tell two views of a text from two texts? miCSE (Klein and Nabi, ACL 2023), figures 5, 6."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.nn.functional import cosine_similarity

from sentcli.analysis.attention_views import DropoutViews, Views, by_head, pair_information

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]
    Pair = tuple[int, int]

MOST = 2000
"""Pairs of texts with the same tree that are compared; of more, so many are drawn."""


@dataclass(frozen=True)
class PairGroup:
    """Pairs of one kind."""

    cosine: Doubles
    """Of the sentence vectors ``[n]``."""
    information: Doubles
    """Attention mutual information in nats ``[n]``."""

    @property
    def centroid(self) -> Doubles:
        """Mean cosine and mean mutual information ``[2]``."""
        return np.array([self.cosine.mean(), self.information.mean()])

    def to_dict(self) -> dict[str, Any]:
        """Return the means for JSON."""
        cosine, information = map(float, self.centroid)
        return {"pairs": len(self.cosine), "mean_cosine": cosine, "mean_mi": information}


@dataclass(frozen=True)
class Trees:
    """Pairs of different texts, by whether their dependency trees are equal (fig. 6)."""

    equal: PairGroup
    unequal: PairGroup
    as_long: PairGroup | None
    """Unequal trees, but as many tokens: equal trees come with equal lengths, which raise the mutual information, too.
    None if there is no such pair."""
    texts: int
    """That share their tree with another one."""
    pairs: int
    """With equal trees; `equal` holds `MOST` of them at most."""

    @property
    def offset(self) -> Doubles:
        """From the centroid of the unequal to that of the equal ``[2]``."""
        return self.equal.centroid - self.unequal.centroid

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "texts_sharing_a_tree": self.texts,
            "pairs_with_equal_trees": self.pairs,
            "equal": self.equal.to_dict(),
            "unequal": self.unequal.to_dict(),
            "unequal_as_long": None if self.as_long is None else self.as_long.to_dict(),
            "centroid_distance": float(np.linalg.norm(self.offset)),
        }


@dataclass(frozen=True)
class AttentionPairs:
    """Of one model."""

    correlation: Doubles
    """Rho of the two views for each layer and head, the mean over texts ``[L, H]``."""
    information: Doubles
    """Mutual information in nats, likewise."""
    positives: PairGroup
    """Two views of a text."""
    negatives: PairGroup
    """View 1 of a text, view 2 of another."""
    trees: Trees | None = None

    @property
    def distance(self) -> float:
        """Between the centroids of positives and negatives; a unit is 1 of the cosine, or 1 nat."""
        return float(np.linalg.norm(self.positives.centroid - self.negatives.centroid))

    def auc(self, of: str) -> float:
        """Return the chance that a positive pair has more ``cosine`` or ``information`` than a negative one."""
        from sklearn.metrics import roc_auc_score

        values = [getattr(group, of) for group in (self.positives, self.negatives)]
        kinds = np.repeat([1, 0], [len(group) for group in values])
        return float(roc_auc_score(kinds, np.concatenate(values)))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "positives": self.positives.to_dict(),
            "negatives": self.negatives.to_dict(),
            "centroid_distance": self.distance,
            "auc_cosine": self.auc("cosine"),
            "auc_mi": self.auc("information"),
            "mean_mi": float(self.information.mean()),
            "mean_rho": float(self.correlation.mean()),
            "mi": self.information.tolist(),
            "rho": self.correlation.tolist(),
            "trees": None if self.trees is None else self.trees.to_dict(),
        }


def attention_pairs(
    views: DropoutViews,
    texts: int,
    layers: Sequence[int],
    slicing: str,
    seed: int = 0,
    trees: Sequence[str] | None = None,
    tick: Callable[[int], object] = lambda count: None,
) -> AttentionPairs:
    """Compare the views of each text with each other and with those of one other text, drawn at random.

    Args:
        views: of texts; those from number `texts` on take no part.
        texts: how many, at least 2.
        layers: whose attention makes the mutual information of a pair, from 0.
        slicing: how it is cut, see `attention_mutual_information`.
        seed: of the draw.
        trees: of each text, to split pairs of different texts by; two of them have to be equal.
        tick: called after each pair of different texts with 1.
    """
    rng = np.random.default_rng(seed)
    drawn = [(i, int(i + rng.integers(1, texts)) % texts) for i in range(texts)]
    positives, negatives, heads = [], [], []
    for i, j in drawn:
        one = views.of(i)
        heads.append(by_head(one.weights))
        positives.append(_compared(one, one, layers, slicing))
        negatives.append(_compared(one, views.of(j), layers, slicing))
        tick(1)
    rho, information = (np.mean(part, axis=0) for part in zip(*heads, strict=True))
    split = None
    if trees is not None:
        equal, as_long = equal_pairs(trees), equally_long_pairs(trees, views.lengths[:texts])

        def some(pairs: Sequence[Pair], most: int) -> PairGroup:
            found = []
            for number in sorted(rng.choice(len(pairs), min(len(pairs), most), replace=False).tolist()):
                i, j = pairs[number]
                found.append(_compared(views.of(i), views.of(j), layers, slicing))
                tick(1)
            return _group(found)

        other = [pair for pair, (i, j) in zip(negatives, drawn, strict=True) if trees[i] != trees[j]]
        unequal = _group(other) if other else some(unequal_pairs(trees), texts)
        control = some(as_long, texts) if as_long else None
        sharing = len({i for pair in equal for i in pair})
        split = Trees(some(equal, MOST), unequal, control, sharing, len(equal))
    return AttentionPairs(rho, information, _group(positives), _group(negatives), split)


def equal_pairs(trees: Sequence[str]) -> list[Pair]:
    """Return the pairs of numbers of texts whose trees are equal, in order."""
    groups = defaultdict(list)
    for number, tree in enumerate(trees):
        groups[tree].append(number)
    return sorted(pair for group in groups.values() for pair in combinations(group, 2))


def unequal_pairs(trees: Sequence[str]) -> list[Pair]:
    """Return the pairs of numbers of texts whose trees are not equal, in order."""
    return [(i, j) for i, j in combinations(range(len(trees)), 2) if trees[i] != trees[j]]


def equally_long_pairs(trees: Sequence[str], lengths: Sequence[int]) -> list[Pair]:
    """Return the pairs of numbers of texts that have as many tokens and unequal trees, in order."""
    return [(i, j) for i, j in equal_pairs([str(length) for length in lengths]) if trees[i] != trees[j]]


def tree_pairs(trees: Sequence[str], lengths: Sequence[int]) -> int:
    """Return how many pairs `attention_pairs` compares beyond one a text."""
    return min(len(equal_pairs(trees)), MOST) + min(len(equally_long_pairs(trees, lengths)), len(trees))


def _compared(one: Views, two: Views, layers: Sequence[int], slicing: str) -> tuple[float, float]:
    """Return cosine and mutual information of view 1 of one text and view 2 of another, or the same."""
    cosine = float(cosine_similarity(one.vectors[0].double(), two.vectors[1].double(), dim=0))
    return cosine, pair_information(one.weights[0], two.weights[1], layers, slicing)


def _group(pairs: Sequence[tuple[float, float]]) -> PairGroup:
    cosine, information = np.array(pairs, np.float64).reshape(-1, 2).T
    return PairGroup(cosine, information)
