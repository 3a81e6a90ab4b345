"""Whitening of a batch of vectors: WhitenedCSE (Zhuo et al., ACL 2023), and the forms that its table 3 compares."""

from __future__ import annotations

import torch
from torch import Tensor


def shuffled_group_whitening(
    features: Tensor, num_groups: int, permutation: Tensor, eps: float = 0.0, *, detach: bool = True
) -> Tensor:
    """Shuffle the columns, whiten each group of neighbours over the batch (ZCA), put the columns back.

    Args:
        features: ``[N, d]``.
        num_groups: number of groups, each of d / num_groups columns (what the paper calls group size is this count).
        permutation: the order of the columns ``[d]``.
        eps: is added to the diagonal of each covariance; the authors' code adds nothing.
        detach: let no gradient through the whitening matrix, as in the authors' code; close eigenvalues would make it
            explode (PyTorch issues 76531 and 47599).

    Returns:
        The whitened features ``[N, d]``; the covariance of every group is the identity.

    Raises:
        ValueError: if the groups do not divide d, or N rows cannot fill a group's covariance.
    """
    rows, width = features.shape
    if num_groups < 1 or width % num_groups:
        raise ValueError(f"{num_groups} groups do not divide {width} dimensions")
    columns = width // num_groups
    if rows <= columns:
        raise ValueError(f"{rows} rows cannot be whitened in groups of {columns} columns: too few")
    grouped = features[:, permutation].view(rows, num_groups, -1).transpose(0, 1)
    centred = grouped - grouped.mean(dim=1, keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / rows
    matrix = zca(covariance, eps, detach=detach)
    whitened = (centred @ matrix).transpose(0, 1).reshape(rows, width)
    return whitened[:, permutation.argsort()]


def zca(covariance: Tensor, eps: float, *, detach: bool) -> Tensor:
    """Return ``U diag(1 / sqrt(S)) U^T`` of each covariance ``[..., c, c]``: the whitening nearest to the identity."""
    values, vectors = _eigen(covariance, eps, detach)
    return (vectors * values.rsqrt().unsqueeze(-2)) @ vectors.mT


def pca(covariance: Tensor, eps: float, *, detach: bool) -> Tensor:
    """Return ``U diag(1 / sqrt(S))`` of each covariance: the columns are the principal axes, the smallest first."""
    values, vectors = _eigen(covariance, eps, detach)
    return vectors * values.rsqrt().unsqueeze(-2)


def _eigen(covariance: Tensor, eps: float, detach: bool) -> tuple[Tensor, Tensor]:
    if detach:
        covariance = covariance.detach()
    kind = covariance.dtype
    # torch has no eigendecomposition in half precision, and rounding can make a zero eigenvalue negative
    wide = covariance if kind == torch.float64 else covariance.float()
    identity = torch.eye(wide.shape[-1], device=wide.device, dtype=wide.dtype)
    values, vectors = torch.linalg.eigh(wide + eps * identity)
    values = values.clamp(min=eps)
    return values.to(kind), vectors.to(kind)
