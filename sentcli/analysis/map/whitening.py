"""Whitened vectors, and several positives of a text, for maps of what WhitenedCSE trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sentcli.analysis.directions import anisotropy
from sentcli.arrays import Float64Array, FloatArray
from sentcli.bounds import whole_number
from sentcli.errors import InputError
from sentcli.evaluation.pair_geometry import alignment

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class Whitening:
    """Whitening of all columns together (ZCA), or of shuffled groups of columns (WhitenedCSE, sec. 3.2)."""

    groups: int | None = None
    """The number of groups; None is ZCA."""

    @classmethod
    def parse(cls, text: str) -> Whitening:
        """Read ``zca`` or ``groups:N``.

        Raises:
            InputError: for anything else.
        """
        if text == "zca":
            return cls()
        kind, _, number = text.partition(":")
        groups = whole_number(number)
        if kind == "groups" and groups:
            return cls(groups)
        raise InputError(f"--whiten {text}: expected zca, or groups:N with a number of groups such as groups:128")

    def __str__(self) -> str:
        return "zca" if self.groups is None else f"groups:{self.groups}"

    @property
    def title(self) -> str:
        """The whitening in words."""
        return "ZCA" if self.groups is None else f"{self.groups} shuffled groups"

    def check(self, rows: int, dimension: int) -> None:
        """Check that vectors can be whitened.

        Raises:
            InputError: if the groups do not divide the dimensions, or there are too few texts, which after whitening
                would all be equally far from each other.
        """
        groups = self.groups or 1
        if dimension % groups:
            raise InputError(f"--whiten {self}: {groups} groups do not divide {dimension} dimensions")
        width = dimension // groups
        if rows <= width:
            raise InputError(
                f"--whiten {self}: {rows} texts are too few for {width} dimensions; give more than {width}"
            )

    def apply(self, vectors: FloatArray, seed: int = 0) -> Float64Array:
        """Return vectors ``[n, d]`` whose covariance, in every group, is the identity except for constant columns.

        The statistics are those of all n vectors. ZCA leaves out directions without variance, see
        `directions.whitened`; groups add a small constant to the variances, since some models have nearly constant
        columns (MiniLM has three).

        Args:
            vectors: ``[n, d]``.
            seed: of the order of the columns.

        Raises:
            InputError: as `check`.
        """
        import torch

        from sentcli.analysis.directions import whitened
        from sentcli.objectives.whitening import shuffled_group_whitening

        self.check(*vectors.shape)
        if self.groups is None:
            return whitened(vectors)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(vectors.shape[1]))
        wide = torch.from_numpy(np.asarray(vectors, np.float64))
        # added to the variances within groups, in units of the mean variance of a column
        eps = 1e-4 * float(wide.var(dim=0).mean())
        return shuffled_group_whitening(wide, self.groups, order, eps).numpy()


def spread_of_positives(vectors: FloatArray) -> dict[str, float]:
    """Return how far the positives ``[n, m, d]`` of n texts lie apart, in squared distances of unit vectors, 0 to 4.

    Returns:
        ``positives_apart``, the mean over two positives of one text, their alignment (Wang and Isola, ICML 2020), and
        ``texts_apart``, that over the first positives of two different texts.
    """
    views = np.moveaxis(vectors, 1, 0)
    alignments = [alignment(one, other) for one, other in combinations(views, 2)]
    return {"positives_apart": float(np.mean(alignments)), "texts_apart": 2 - 2 * anisotropy(views[0])}


def dropout_positives(encoder: SentenceEncoder, texts: Sequence[str], count: int, seed: int) -> FloatArray:
    """Return vectors ``[n, count, d]`` of texts in training mode, as the positives of a batch are made.

    Raises:
        InputError: if the model has no dropout, so that they are all the same.
    """
    import torch

    on_torch = encoder.on_torch()
    module = on_torch.torch_module
    torch.manual_seed(seed)
    module.train()
    try:
        vectors = np.stack([on_torch.encode(list(texts)) for _ in range(count)], axis=1)
    finally:
        module.eval()
    if np.array_equal(vectors[:, 0], vectors[:, 1]):
        raise InputError("--positives: this model has no dropout, so that the positives of a text are the same")
    return vectors
