"""Whitening of the vectors of a set of texts, to look at: ZCA, and WhitenedCSE's shuffled groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]

EPS = 1e-4
"""Added to the variances within groups, in mean variances of a column."""


@dataclass(frozen=True)
class Whitening:
    """A way to whiten."""

    groups: int | None = None
    """Of columns, shuffled (WhitenedCSE, sec. 3.2); None: all columns together, ZCA."""

    @classmethod
    def parse(cls, text: str) -> Whitening:
        """Read ``zca`` or ``groups:N``.

        Raises:
            InputError: for anything else.
        """
        kind, _, number = text.partition(":")
        if text == "zca":
            return cls()
        if kind == "groups" and number.isdecimal() and int(number) > 0:
            return cls(int(number))
        raise InputError(f"--whiten {text}: expected zca, or groups:N with a number of groups such as groups:128")

    def __str__(self) -> str:
        return "zca" if self.groups is None else f"groups:{self.groups}"

    @property
    def title(self) -> str:
        """In words."""
        return "ZCA" if self.groups is None else f"{self.groups} shuffled groups"

    def check(self, rows: int, dimension: int) -> None:
        """Refuse what cannot be whitened.

        Raises:
            InputError: if the groups do not divide the dimensions, or there are too few texts: so few can be whitened
                perfectly, and then all of them are equally far from each other.
        """
        groups = self.groups or 1
        if dimension % groups:
            raise InputError(f"--whiten {self}: {groups} groups do not divide {dimension} dimensions")
        if rows <= dimension // groups:
            width = dimension // groups
            raise InputError(
                f"--whiten {self}: {rows} texts are too few for {width} dimensions; give more than {width}"
            )

    def apply(self, vectors: Floats, seed: int = 0) -> npt.NDArray[np.float64]:
        """Return vectors ``[n, d]`` whose covariance (in every group) is the identity, but for dead columns.

        Statistics are those of all n vectors. ZCA leaves out directions without variance, see `spectrum.whitened`;
        groups add `EPS` to the variances, since some models have columns that hardly change (MiniLM has three).

        Args:
            vectors: ``[n, d]``.
            seed: of the order of the columns that makes the groups.

        Raises:
            InputError: as `check`.
        """
        import torch

        from sentcli.analysis.spectrum import whitened
        from sentcli.objectives.whitening import shuffled_group_whitening

        self.check(*vectors.shape)
        if self.groups is None:
            return whitened(vectors)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(vectors.shape[1]))
        wide = torch.from_numpy(np.asarray(vectors, np.float64))
        eps = EPS * float(wide.var(dim=0).mean())
        white: npt.NDArray[np.float64] = shuffled_group_whitening(wide, self.groups, order, eps).numpy()
        return white
