"""Mutual information of the attention of dropout views and of texts; miCSE (Klein and Nabi, ACL 2023)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from sentcli.errors import InputError
from sentcli.model import attention, surgery
from sentcli.model.tokenizing import pad
from sentcli.objectives.mutual_information import (
    SMALLEST,
    attention_mutual_information,
    correlation,
    mutual_information,
)

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

Doubles = npt.NDArray[np.float64]
Pair = tuple[int, int]

MOST_TREE_PAIRS = 2000
"""The greatest number of pairs of texts with the same tree that are compared; of more pairs, a sample is drawn."""


@dataclass(frozen=True)
class EncodedTwice:
    """Two encodings of one text, which differ by dropout."""

    weights: Tensor
    """``[2, L, H, T, T]`` after softmax and dropout: views, all layers, heads, queries, keys; no padding."""
    vectors: Tensor
    """``[2, d]``."""


class DropoutViews:
    """Encodes texts twice with dropout, one text at a time, so that nothing is padded.

    The random numbers of each text are made from the seed and the text's number. Its views are therefore the same at
    every call, whatever the other texts are, and need not be kept.

    Args:
        encoder: is put into training mode until `close` is called.
        texts: to encode.
        seed: of dropout.
        dropout: rate everywhere, instead of the model's own.
    """

    def __init__(
        self, encoder: SentenceEncoder, texts: Sequence[str], seed: int = 0, dropout: float | None = None
    ) -> None:
        self.name, self.seed = encoder.model, seed
        self.module = encoder.torch_module
        self.tokenizer = encoder.tokenizer
        self.device = next(self.module.parameters()).device
        prompt = encoder.prompt_text()
        self.prompt_length = self.tokenizer.prompt_length(prompt) if prompt else 0
        self.tokens = self.tokenizer(texts, prompt)
        self.depth = surgery.depth(self.module.backbone)
        attention.install(self.module.backbone)
        if dropout is not None:
            surgery.set_dropout(self.module, dropout)
        self.module.train()

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text, special ones included."""
        return [len(ids) for ids in self.tokens.ids]

    def close(self) -> None:
        """Put the encoder back into evaluation mode."""
        self.module.eval()

    def of(self, number: int) -> EncodedTwice:
        """Return the two views of a text, on the CPU in float32.

        Raises:
            InputError: if the model gives no attention weights.
        """
        rows = pad(self.tokens, [number, number], self.tokenizer.pad_id)
        batch = {name: torch.from_numpy(array).to(self.device) for name, array in rows.items()}
        with torch.no_grad(), torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]))
            try:
                features = self.module.features(batch, self.prompt_length, attention_layers=range(self.depth))
            except InputError as error:
                raise InputError(f"{self.name}: {error}") from error
        assert features.sentence is not None
        weights = torch.stack([features.attentions[layer] for layer in range(self.depth)], dim=1)
        return EncodedTwice(weights.float().cpu(), features.sentence.float().cpu())

    def check(self) -> int:
        """Encode the first text and return the number of heads.

        Raises:
            InputError: if the model gives no attention weights, or its dropout does not make the views differ.
        """
        views = self.of(0)
        if bool((views.weights[0] == views.weights[1]).all()):
            raise InputError(
                f"{self.name}: the two views of a text are the same, since this model has no dropout; try --dropout 0.1"
            )
        return int(views.weights.shape[2])


@dataclass(frozen=True)
class Slice:
    """One head of one layer in two views of one text."""

    layer: int
    """Layers and heads are numbered from 0."""
    head: int
    first: Doubles
    """Natural logarithms of the weights in view 1, at the positions where both views have weight ``[n]``."""
    second: Doubles
    """Natural logarithms of the weights in view 2, at the same positions ``[n]``."""
    correlation: float
    """Rho of the logarithms."""
    information: float
    """Mutual information in nats."""

    @property
    def place(self) -> str:
        """Layer and head in words, counted from 1."""
        return f"layer {self.layer + 1}, head {self.head + 1}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; layer and head count from 1."""
        return {
            "layer": self.layer + 1,
            "head": self.head + 1,
            "positions": len(self.first),
            "rho": self.correlation,
            "mi": self.information,
        }


def by_head(weights: Tensor) -> tuple[Doubles, Doubles]:
    """Return rho and mutual information (nats) of two views, for every layer and head (miCSE, eq. 4).

    Args:
        weights: ``[2, L, H, T, T]``; positions where a view has no weight, such as dropped ones, are left out.

    Returns:
        Two arrays ``[L, H]``.
    """
    one, two = weights.double().flatten(3).flatten(1, 2)
    mask = (one > SMALLEST) & (two > SMALLEST)
    rho = correlation(one.where(mask, 1).log(), two.where(mask, 1).log(), mask)
    shape = tuple(weights.shape[1:3])
    return rho.view(shape).numpy(), mutual_information(one, two, mask).view(shape).numpy()


def slices_of(weights: Tensor, layers: Sequence[int], heads: Sequence[int]) -> list[Slice]:
    """Return the logarithms of the weights of two views for some layers and heads, from 0 (miCSE, fig. 8).

    Args:
        weights: ``[2, L, H, T, T]``.
        layers: numbers of layers.
        heads: numbers of heads.
    """
    rho, information = by_head(weights)
    slices = []
    for layer, head in product(layers, heads):
        both = weights[:, layer, head].double().flatten(1)
        first, second = both[:, (both > SMALLEST).all(dim=0)].log().numpy()
        slices.append(Slice(layer, head, first, second, float(rho[layer, head]), float(information[layer, head])))
    return slices


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
