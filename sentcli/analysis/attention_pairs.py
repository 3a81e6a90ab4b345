"""Do vectors and attention tell two views of a text from two texts? miCSE (Klein and Nabi, ACL 2023), figures 5, 6."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.nn.functional import cosine_similarity

from sentcli.analysis.attention_views import DropoutViews, EncodedTwice, by_head, pair_information

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    Doubles = npt.NDArray[np.float64]
    Pair = tuple[int, int]

MOST = 2000
"""Pairs of texts with the same tree that are compared; of more, so many are drawn."""


@dataclass(frozen=True)
class AttentionPairs:
    """How alike the views of texts are in one model."""

    correlation: Doubles
    """Rho of the two views for each layer and head, the mean over texts ``[L, H]``."""
    information: Doubles
    """Mutual information in nats, likewise."""
    pairs: pd.DataFrame
    """A row for each pair: kind, cosine of the sentence vectors, and attention mutual information in nats.

    Positives are two views of a text, negatives are views of two texts. With trees, there are pairs of texts whose
    trees are equal, unequal, and unequal_as_long: with as many tokens, since equal trees come with equal lengths, which
    raise the mutual information, too (fig. 6).
    """
    sharing: int | None = None
    """Texts that share their tree with another one; None without trees."""
    equal_trees: int = 0
    """Pairs with equal trees; `pairs` holds `MOST` of them at most."""

    def of(self, kind: str) -> pd.DataFrame:
        """Return the pairs of a kind."""
        return self.pairs[self.pairs["kind"] == kind]

    def centroid(self, kind: str) -> Doubles:
        """Return the mean cosine and the mean mutual information of a kind ``[2]``."""
        pairs = self.of(kind)
        return np.array([pairs["cosine"].to_numpy().mean(), pairs["information"].to_numpy().mean()])

    def distance(self, kind: str, other: str) -> float:
        """Return the distance of two centroids; a unit is 1 of the cosine, or 1 nat."""
        return float(np.linalg.norm(self.centroid(kind) - self.centroid(other)))

    def auc(self, column: str) -> float:
        """Return the chance that a positive pair has more ``cosine`` or ``information`` than a negative one."""
        from sklearn.metrics import roc_auc_score

        compared = self.pairs[self.pairs["kind"].isin(["positives", "negatives"])]
        return float(roc_auc_score(compared["kind"] == "positives", compared[column]))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "positives": self._means("positives"),
            "negatives": self._means("negatives"),
            "centroid_distance": self.distance("positives", "negatives"),
            "auc_cosine": self.auc("cosine"),
            "auc_mi": self.auc("information"),
            "mean_mi": float(self.information.mean()),
            "mean_rho": float(self.correlation.mean()),
            "mi": self.information.tolist(),
            "rho": self.correlation.tolist(),
            "trees": None if self.sharing is None else self._trees(),
        }

    def _trees(self) -> dict[str, Any]:
        return {
            "texts_sharing_a_tree": self.sharing,
            "pairs_with_equal_trees": self.equal_trees,
            **{kind: self._means(kind) for kind in ("equal", "unequal", "unequal_as_long")},
            "centroid_distance": self.distance("equal", "unequal"),
        }

    def _means(self, kind: str) -> dict[str, Any] | None:
        if not len(self.of(kind)):
            return None
        cosine, information = map(float, self.centroid(kind))
        return {"pairs": len(self.of(kind)), "mean_cosine": cosine, "mean_mi": information}


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
    compared: dict[str, list[tuple[float, float]]] = {"positives": [], "negatives": []}
    heads = []
    for i, j in drawn:
        one = views.of(i)
        heads.append(by_head(one.weights))
        compared["positives"].append(_compared(one, one, layers, slicing))
        compared["negatives"].append(_compared(one, views.of(j), layers, slicing))
        tick(1)
    rho, information = (np.mean(part, axis=0) for part in zip(*heads, strict=True))
    if trees is None:
        return AttentionPairs(rho, information, _frame(compared))
    equal, as_long = equal_pairs(trees), equally_long_pairs(trees, views.lengths[:texts])

    def some(pairs: Sequence[Pair], most: int) -> list[tuple[float, float]]:
        values = []
        for number in sorted(rng.choice(len(pairs), min(len(pairs), most), replace=False).tolist()):
            i, j = pairs[number]
            values.append(_compared(views.of(i), views.of(j), layers, slicing))
            tick(1)
        return values

    negatives = zip(compared["negatives"], drawn, strict=True)
    unequal = [pair for pair, (i, j) in negatives if trees[i] != trees[j]]
    compared["unequal"] = unequal or some(unequal_pairs(trees), texts)
    compared["unequal_as_long"] = some(as_long, texts) if as_long else []
    compared["equal"] = some(equal, MOST)
    return AttentionPairs(rho, information, _frame(compared), len({i for pair in equal for i in pair}), len(equal))


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


def _compared(one: EncodedTwice, two: EncodedTwice, layers: Sequence[int], slicing: str) -> tuple[float, float]:
    """Return cosine and mutual information of view 1 of one text and view 2 of another, or the same."""
    cosine = float(cosine_similarity(one.vectors[0].double(), two.vectors[1].double(), dim=0))
    return cosine, pair_information(one.weights[0], two.weights[1], layers, slicing)


def _frame(compared: dict[str, list[tuple[float, float]]]) -> pd.DataFrame:
    import pandas as pd

    rows = [(kind, *pair) for kind, pairs in compared.items() for pair in pairs]
    return pd.DataFrame(rows, columns=["kind", "cosine", "information"])
