"""Vectors that take less room: fewer dimensions, fewer bits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.io.arrays import read_tensors
from sentcli.io.digests import file_digest

OutputType = Literal["float32", "float16", "int8", "binary"]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PCA:
    """A projection on principal components."""

    mean: Floats
    """``[dim]``."""
    components: Floats
    """``[k, dim]``, orthonormal, those of the largest variance first."""

    def apply(self, vectors: Floats) -> Floats:
        """Return ``[n, k]``."""
        return ((vectors - self.mean) @ self.components.T).astype(np.float32, copy=False)

    def save(self, path: Path) -> None:
        """Write a safetensors file with ``mean`` and ``components``."""
        from safetensors.numpy import save_file

        from sentcli.io.atomic import replacing

        with replacing(path) as temporary:
            save_file({"mean": self.mean, "components": self.components}, temporary)


def fit_pca(vectors: Floats, dimension: int) -> PCA:
    """Fit a projection.

    Args:
        vectors: a sample ``[n, dim]``.
        dimension: k, the number of components.

    Raises:
        InputError: if there are fewer rows or dimensions than `dimension`.
    """
    if not 0 < dimension <= min(vectors.shape):
        raise InputError(
            f"{dimension} principal components need as many rows and dimensions, there are {vectors.shape}"
        )
    mean = vectors.mean(axis=0, dtype=np.float64)
    centred = vectors - mean
    values, directions = np.linalg.eigh(centred.T @ centred)  # ascending
    components = directions[:, np.argsort(-values, kind="stable")[:dimension]].T
    signs = np.sign(components[np.arange(dimension), np.abs(components).argmax(axis=1)])
    return PCA(mean.astype(np.float32), (components * signs[:, None]).astype(np.float32))


def read_pca(path: Path) -> PCA:
    """Read a projection.

    Raises:
        InputError: if the file is missing, damaged, or holds something else.
    """
    if not path.exists():
        raise InputError(f"{path} is missing; --pca-dim K makes it from the input")
    try:
        tensors = read_tensors(path)
        pca = PCA(tensors["mean"].astype(np.float32), tensors["components"].astype(np.float32))
        fits = pca.components.ndim == 2 and pca.mean.shape == pca.components.shape[1:]
    except (KeyError, InputError) as error:
        raise InputError(f"{path} holds no principal components ({error}): tensors mean, components") from error
    if not fits:
        raise InputError(f"{path}: mean {pca.mean.shape} and components {pca.components.shape} do not fit")
    return pca


@dataclass(frozen=True)
class Smaller:
    """How each vector is made smaller before it is written; the defaults leave it as it is."""

    output_type: OutputType = "float32"
    truncate_dim: int | None = None
    """Keep the first dimensions (models trained for it: Matryoshka)."""
    pca: PCA | None = None
    pca_file: Path | None = None
    renormalize: bool = False
    """Make the shortened vectors unit length again, as the whole ones were."""

    @property
    def dtype(self) -> str:
        """The element type in files; ``binary`` packs eight signs into a byte."""
        return "uint8" if self.output_type == "binary" else self.output_type

    def dimension(self, dimension: int) -> int:
        """Return the number of elements that are written of a vector with `dimension` elements.

        Raises:
            InputError: if the principal components are of another dimension, or fewer than ``truncate_dim`` remain.
        """
        if self.pca is not None:
            if len(self.pca.mean) != dimension:
                raise InputError(f"{self.pca_file}: for {len(self.pca.mean)} dimensions, the model has {dimension}")
            dimension = len(self.pca.components)
        if self.truncate_dim is not None:
            if self.truncate_dim > dimension:
                raise InputError(
                    f"--truncate-dim {self.truncate_dim} is more than the {dimension} dimensions there are"
                )
            dimension = self.truncate_dim
        return -(-dimension // 8) if self.output_type == "binary" else dimension

    def apply(self, vectors: Floats) -> npt.NDArray[Any]:
        """Make vectors ``[n, dim]`` smaller."""
        if self.pca is not None:
            vectors = self.pca.apply(vectors)
        vectors = vectors[:, : self.truncate_dim]
        if self.renormalize and (self.pca is not None or self.truncate_dim is not None):
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        if self.output_type == "binary":
            return np.packbits(vectors > 0, axis=1)
        if self.output_type == "int8":
            return as_int8(vectors)
        return vectors.astype(self.output_type, copy=False)

    def described(self) -> dict[str, Any]:
        """Return the choices as manifests and protocols have them."""
        return {
            "output_dtype": self.output_type,
            "truncate_dim": self.truncate_dim,
            "pca_sha256": file_digest(self.pca_file) if self.pca_file is not None else None,
        }


def as_int8(vectors: Floats) -> npt.NDArray[np.int8]:
    """Scale each row to -127..127 by its largest component: cosines stay, lengths are lost."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors / np.where(largest > 0, largest, 1) * 127).astype(np.int8)
