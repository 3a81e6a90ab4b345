"""Pairs of dropout views of the same text and of two texts: cosine and mutual information of their attention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from sentcli.analysis.attention.views import DropoutViews, EncodedTwice, by_head
from sentcli.arrays import Float64Array
from sentcli.objectives.mutual_information import attention_mutual_information

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
    common = (list(layers), None, slice(None), slice(width), slice(width))
    information = attention_mutual_information(
        first[common].double(),
        second[common].double(),
        torch.tensor([width]),
        slicing,
        samples=None,
        scale_by_share=False,
        real_queries=True,
    )
    return float(information)


@dataclass(frozen=True)
class AttentionPairs:
    """The similarity of dropout views of the same and of different texts, in one model."""

    correlation: Float64Array
    """Rho of the two views of a text for each layer and head, averaged over texts ``[L, H]``."""
    information: Float64Array
    """The mutual information of the two views in nats, averaged over texts ``[L, H]``."""
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

    def of_kind(self, kind: str) -> pd.DataFrame:
        """Return the pairs of a kind."""
        return self.pairs[self.pairs["kind"] == kind]

    def centroid(self, kind: str) -> Float64Array:
        """Return the mean cosine and the mean mutual information of the pairs of a kind ``[2]``."""
        pairs = self.of_kind(kind)
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
        trees = None
        if self.sharing is not None:
            trees = {
                "texts_sharing_a_tree": self.sharing,
                "pairs_with_equal_trees": self.equal_trees,
                "equal": self._means("equal"),
                "unequal": self._means("unequal"),
                "unequal_as_long": self._means("unequal_as_long"),
                "centroid_distance": self.distance("equal", "unequal"),
            }
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
            "trees": trees,
        }

    def _means(self, kind: str) -> dict[str, Any] | None:
        """Return the number of pairs of a kind and their centroid; None if there are none."""
        count = len(self.of_kind(kind))
        if not count:
            return None
        cosine, information = self.centroid(kind).tolist()
        return {"pairs": count, "mean_cosine": cosine, "mean_mi": information}


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
        seed: of the partners of texts.
        trees: of each text, by which pairs of different texts are split; at least two must be equal.
        tick: is called with 1 after each pair of different texts.
    """
    rng = np.random.default_rng(seed)
    partners = [int(i + rng.integers(1, texts)) % texts for i in range(texts)]
    compared = []

    def compare(kind: str, one: EncodedTwice, two: EncodedTwice) -> dict[str, Any]:
        """Compare view 1 of one text with view 2 of another, or of the same."""
        cosine = float(cosine_similarity(one.vectors[0].double(), two.vectors[1].double(), dim=0))
        information = pair_information(one.weights[0], two.weights[1], layers, slicing)
        compared.append({"kind": kind, "cosine": cosine, "information": information})
        return compared[-1]

    def compare_some(kind: str, pairs: Sequence[Pair], most: int) -> None:
        """Compare pairs of texts, or a sample of so many."""
        numbers = rng.choice(len(pairs), min(len(pairs), most), replace=False)
        for number in sorted(numbers.tolist()):
            first, second = pairs[number]
            compare(kind, views.of_view(first), views.of_view(second))
            tick(1)

    of_texts = []
    unequal = []
    for i, j in enumerate(partners):
        one = views.of_view(i)
        of_texts.append(by_head(one.weights))
        compare("positives", one, one)
        negative = compare("negatives", one, views.of_view(j))
        if trees is not None and trees[i] != trees[j]:
            unequal.append(negative | {"kind": "unequal"})
        tick(1)
    equal = []
    sharing = None
    if trees is not None:
        equal = equal_pairs(trees)
        sharing = len(set(chain.from_iterable(equal)))
        compared += unequal
        if not unequal:
            all_pairs = combinations(range(texts), 2)
            compare_some("unequal", [(i, j) for i, j in all_pairs if trees[i] != trees[j]], texts)
        as_long = equally_long_pairs(trees, views.lengths[:texts])
        if as_long:
            compare_some("unequal_as_long", as_long, texts)
        compare_some("equal", equal, MOST_TREE_PAIRS)
    correlation, information = np.mean(of_texts, axis=0)
    return AttentionPairs(
        correlation=correlation,
        information=information,
        pairs=pd.DataFrame(compared),
        sharing=sharing,
        equal_trees=len(equal),
    )


def equal_pairs(trees: Sequence[str]) -> list[Pair]:
    """Return the pairs of numbers of texts whose trees are equal, in order."""
    groups = defaultdict(list)
    for number, tree in enumerate(trees):
        groups[tree].append(number)
    pairs: list[Pair] = []
    for group in groups.values():
        pairs += combinations(group, 2)
    return sorted(pairs)


def equally_long_pairs(trees: Sequence[str], lengths: Sequence[int]) -> list[Pair]:
    """Return the pairs of numbers of texts that have the same number of tokens and unequal trees, in order."""
    as_long = equal_pairs(list(map(str, lengths)))
    return [(i, j) for i, j in as_long if trees[i] != trees[j]]


def tree_pairs(trees: Sequence[str], lengths: Sequence[int]) -> int:
    """Return the number of pairs of texts that `attention_pairs` compares because of their trees."""
    equal = len(equal_pairs(trees))
    as_long = len(equally_long_pairs(trees, lengths))
    return min(equal, MOST_TREE_PAIRS) + min(as_long, len(trees))
