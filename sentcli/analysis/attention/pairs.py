"""Pairs of dropout views of the same text and of two texts: cosine and mutual information of their attention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from sentcli.analysis.attention.views import DropoutViews, EncodedTwice, by_head
from sentcli.objectives.mutual_information import (
    attention_mutual_information,
)

if TYPE_CHECKING:
    pass

Doubles = npt.NDArray[np.float64]
Pair = tuple[int, int]
MOST_TREE_PAIRS = 2000
"""The greatest number of pairs of texts with the same tree that are compared; of more pairs, a sample is drawn."""


def pair_information(first: Tensor, second: Tensor, layers: Sequence[int], slicing: str) -> float:
    """Return the attention mutual information of two texts or views in nats: the mean over slices (miCSE, eq. 5).

    It is taken over all positions where both have weight, without the sample of 150 positions and the factor of the
    authors' code. For texts of different lengths, it is taken over the positions within the shorter one.

    Args:
        first: ``[L, H, T, T]`` without padding.
        second: ``[L, H, T', T']``.
        layers: numbers of layers, from 0.
        slicing: as in `attention_mutual_information`.
    """
    width = min(first.shape[-1], second.shape[-1])
    one, two = (weights[list(layers), None, :, :width, :width].double() for weights in (first, second))
    information = attention_mutual_information(
        one, two, torch.tensor([width]), slicing, samples=None, scale_by_share=False, real_queries=True
    )
    return float(information)


@dataclass(frozen=True)
class AttentionPairs:
    """The similarity of dropout views of the same and of different texts, in one model."""

    correlation: Doubles
    """Rho of the two views of a text for each layer and head, averaged over texts ``[L, H]``."""
    information: Doubles
    """Their mutual information in nats, averaged over texts ``[L, H]``."""
    pairs: pd.DataFrame
    """A row for each pair: kind, cosine of the sentence vectors, and attention mutual information in nats.

    Positives are two views of a text, negatives are views of two texts. With trees, there are also pairs of texts whose
    trees are ``equal``, ``unequal``, and ``unequal_as_long``: unequal, but with the same number of tokens, because
    texts with equal trees have the same length, which alone raises the mutual information (fig. 6).
    """
    sharing: int | None = None
    """The number of texts that share their tree with another one; None without trees."""
    equal_trees: int = 0
    """The number of pairs with equal trees; `pairs` holds `MOST_TREE_PAIRS` of them at most."""

    def of(self, kind: str) -> pd.DataFrame:
        """Return the pairs of a kind."""
        return self.pairs[self.pairs["kind"] == kind]

    def centroid(self, kind: str) -> Doubles:
        """Return the mean cosine and the mean mutual information of the pairs of a kind ``[2]``."""
        pairs = self.of(kind)
        return np.array([pairs["cosine"].to_numpy().mean(), pairs["information"].to_numpy().mean()])

    def distance(self, kind: str, other: str) -> float:
        """Return the distance of the centroids of two kinds, in the plane of cosine and nats."""
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
        views: of at least `texts` texts; further ones are not compared.
        texts: number of texts, at least 2.
        layers: numbers of the layers whose attention makes the mutual information of a pair, from 0.
        slicing: as in `attention_mutual_information`.
        seed: of the partners texts.
        trees: of each text, by which pairs of different texts are split; at least two must be equal.
        tick: is called with 1 after each pair of different texts.
    """
    rng = np.random.default_rng(seed)
    partners = [(i, int(i + rng.integers(1, texts)) % texts) for i in range(texts)]
    rows: list[tuple[str, float, float]] = []

    def compare(kind: str, one: EncodedTwice, two: EncodedTwice) -> None:
        """Compare view 1 of one text with view 2 of another, or of the same."""
        cosine = float(cosine_similarity(one.vectors[0].double(), two.vectors[1].double(), dim=0))
        rows.append((kind, cosine, pair_information(one.weights[0], two.weights[1], layers, slicing)))

    def compare_some(kind: str, pairs: Sequence[Pair], most: int) -> None:
        for number in sorted(rng.choice(len(pairs), min(len(pairs), most), replace=False).tolist()):
            compare(kind, *map(views.of, pairs[number]))
            tick(1)

    heads = []
    for i, j in partners:
        one = views.of(i)
        heads.append(by_head(one.weights))
        compare("positives", one, one)
        compare("negatives", one, views.of(j))
        tick(1)
    equal: list[Pair] = []
    if trees is not None:
        equal, as_long = equal_pairs(trees), equally_long_pairs(trees, views.lengths[:texts])
        negatives = zip([row for row in rows if row[0] == "negatives"], partners, strict=True)
        unequal = [("unequal", row[1], row[2]) for row, (i, j) in negatives if trees[i] != trees[j]]
        rows += unequal
        if not unequal:
            compare_some("unequal", [(i, j) for i, j in combinations(range(texts), 2) if trees[i] != trees[j]], texts)
        if as_long:
            compare_some("unequal_as_long", as_long, texts)
        compare_some("equal", equal, MOST_TREE_PAIRS)
    frame = pd.DataFrame(rows, columns=["kind", "cosine", "information"])
    rho, information = (np.mean(part, axis=0) for part in zip(*heads, strict=True))
    sharing = None if trees is None else len({i for pair in equal for i in pair})
    return AttentionPairs(rho, information, frame, sharing, len(equal))


def equal_pairs(trees: Sequence[str]) -> list[Pair]:
    """Return the pairs of numbers of texts whose trees are equal, in order."""
    groups = defaultdict(list)
    for number, tree in enumerate(trees):
        groups[tree].append(number)
    return sorted(pair for group in groups.values() for pair in combinations(group, 2))


def equally_long_pairs(trees: Sequence[str], lengths: Sequence[int]) -> list[Pair]:
    """Return the pairs of numbers of texts that have the same number of tokens and unequal trees, in order."""
    return [(i, j) for i, j in equal_pairs([str(length) for length in lengths]) if trees[i] != trees[j]]


def tree_pairs(trees: Sequence[str], lengths: Sequence[int]) -> int:
    """Return the number of pairs of texts that `attention_pairs` compares because of their trees."""
    return min(len(equal_pairs(trees)), MOST_TREE_PAIRS) + min(len(equally_long_pairs(trees, lengths)), len(trees))
