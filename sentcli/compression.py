"""Vectors that take less room: fewer dimensions, fewer bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray, Float32Array

OutputType = Literal["float32", "float16", "int8", "binary"]


@dataclass(frozen=True)
class Compression:
    """How each vector is made smaller before it is written; the defaults leave it as it is."""

    output_type: OutputType = "float32"
    truncate_dim: int | None = None
    """Keep the first dimensions (models trained for it: Matryoshka)."""
    renormalize: bool = False
    """Make the shortened vectors unit length again, as the whole ones were."""

    @property
    def dtype(self) -> str:
        """The element type in files; ``binary`` packs eight signs into a byte."""
        if self.output_type == "binary":
            return "uint8"
        return self.output_type

    def dimension(self, dimension: int) -> int:
        """Return the number of elements that are written of a vector with `dimension` elements.

        Raises:
            InputError: if there are fewer than ``truncate_dim``.
        """
        if self.truncate_dim is not None:
            if self.truncate_dim > dimension:
                raise InputError(
                    f"--truncate-dim {self.truncate_dim} is more than the {dimension} dimensions there are"
                )
            dimension = self.truncate_dim
        if self.output_type == "binary":
            return -(-dimension // 8)
        return dimension

    def apply(self, vectors: Float32Array) -> AnyArray:
        """Make vectors ``[n, dim]`` smaller."""
        vectors = vectors[:, : self.truncate_dim]
        if self.renormalize and self.truncate_dim is not None:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        if self.output_type == "binary":
            return np.packbits(vectors > 0, axis=1)
        if self.output_type == "int8":
            return as_int8(vectors)
        return vectors.astype(self.output_type, copy=False)

    def protocol(self) -> dict[str, Any]:
        """Return the choices as manifests and protocols have them."""
        return {"output_dtype": self.output_type, "truncate_dim": self.truncate_dim}


def as_int8(vectors: Float32Array) -> npt.NDArray[np.int8]:
    """Scale each row to -127..127 by its largest component: cosines stay, lengths are lost."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors / np.where(largest > 0, largest, 1) * 127).astype(np.int8)
