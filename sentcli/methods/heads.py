"""The projection heads between sentence vector and loss, which exist in training only and are not used to encode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sentcli.bounds import Bounded, Fraction, NotNegative, WholeNumber
from sentcli.errors import InputError
from sentcli.model.ahead import queued_to
from sentcli.model.surgery import reset
from sentcli.objectives.whitening import pca, shuffled_group_whitening, zca
from sentcli.processes import over_all_rows, same

INITIAL_STD = 0.02
"""The standard deviation that new linear layers start with, as in BERT."""


class Head(Bounded):
    """The settings of a head."""

    def build(self, dimension: int, batch_size: int) -> nn.Module:
        """Return the module from ``[m, B, d]`` to ``[m, B, d']``."""
        raise NotImplementedError

    def least_rows(self, dimension: int) -> int:
        """Return the smallest batch that the head works on."""
        return 2


@dataclass(frozen=True, kw_only=True)
class NoHead(Head):
    """No head: the loss sees the sentence vector itself."""

    def build(self, dimension: int, batch_size: int) -> nn.Module:
        """Return the identity."""
        return nn.Identity()


@dataclass(frozen=True, kw_only=True)
class MLPHead(Head):
    """z = tanh(W x + b), W new and not the pretrained pooler (SimCSE)."""

    def build(self, dimension: int, batch_size: int) -> nn.Module:
        """Return the layer, with weights from normal(0, 0.02) and zero bias."""
        return TanhLayer(dimension)


class TanhLayer(nn.Module):
    """z = tanh(W x + b), on ``[..., d]``."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dimension, dimension)
        reset(self.dense, INITIAL_STD)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the projected vectors ``[..., d]``."""
        return torch.tanh(self.dense(vectors))


@dataclass(frozen=True, kw_only=True)
class BatchNormHead(Head):
    """Two linear layers with batch normalisation (InfoCSE's and DiffCSE's scripts, ``--batchnorm``)."""

    def build(self, dimension: int, batch_size: int) -> nn.Module:
        """Return the layers."""
        return BatchNormLayers(dimension)


class BatchNormLayers(nn.Module):
    """Linear d to 2d, batch norm, ReLU, linear 2d to d, batch norm without gain.

    The statistics are taken over the rows of all views in all processes.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dimension, 2 * dimension, bias=False),
            nn.BatchNorm1d(2 * dimension),
            nn.ReLU(),
            nn.Linear(2 * dimension, dimension, bias=False),
            nn.BatchNorm1d(dimension, affine=False),
        )
        reset(self.net, INITIAL_STD)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the projected views ``[m, B, d]``."""
        return over_all_rows(lambda rows: self.net(rows.flatten(0, -2)).view(rows.shape), vectors)


@dataclass(frozen=True, kw_only=True)
class WhiteningHead(Head):
    """Whitening of the batch, then z = tanh(W x + b) (WhitenedCSE)."""

    num_groups: WholeNumber = 0
    """The number of groups; 0 makes groups of two columns, as the paper does for BERT-base."""
    eps: NotNegative = 1e-5
    kind: Literal["shuffled-group", "group", "zca", "pca"] = "shuffled-group"
    """``group`` does not shuffle; ``zca`` and ``pca`` whiten all columns at once (table 3)."""
    chunks: Literal["views", "thirds"] = "views"
    """``views`` whitens each view by itself (paper). ``thirds`` whitens parts of the rows in the order of the
    sentences (authors' code): with m views, m parts of B / m sentences each."""
    detach: bool = True
    """Whether no gradient flows through the whitening matrix (code)."""
    views_from: Literal["dropout", "shuffle"] = "dropout"
    """``dropout`` encodes a sentence for each view (code). ``shuffle`` encodes it once and whitens the vector with
    different groups for each view (paper)."""
    statistics_momentum: Fraction = 0.9
    """The share of the running mean and covariance that zca and pca keep at each step (eq. 13)."""

    def __post_init__(self) -> None:
        """Refuse views by shuffling for a kind that does not shuffle."""
        super().__post_init__()
        if self.views_from == "shuffle" and self.kind != "shuffled-group":
            raise InputError(f"views_from=shuffle: {self.kind} does not shuffle, so its views would be the same")

    def groups(self, dimension: int) -> int:
        """Return the number of groups for vectors of this dimension."""
        return self.num_groups or max(1, dimension // 2)

    def build(self, dimension: int, batch_size: int) -> nn.Module:
        """Check the groups and return the layers.

        Raises:
            InputError: if whitening is impossible with this dimension or this batch.
        """
        if self.kind in ("shuffled-group", "group"):
            self._check_groups(dimension, batch_size)
        elif self.eps == 0:
            raise InputError(f"kind={self.kind} needs eps above 0: {dimension} columns of a batch are singular")
        return WhiteningLayers(self, dimension)

    def _check_groups(self, dimension: int, batch_size: int) -> None:
        """Refuse groups of different sizes, and groups whose covariance is singular."""
        groups = self.groups(dimension)
        if dimension % groups:
            message = f"num_groups={groups} does not divide the {dimension} dimensions of this model"
            for divisor in (512, 384, 256, 192, 128, 96, 64, 48, 32):
                if dimension % divisor == 0 and divisor < dimension:
                    reason = "384 groups on 1,024, as the paper states for BERT-large, is impossible"
                    raise InputError(f"{message} ({reason}); for example {divisor}")
            raise InputError(message)
        least = self.least_rows(dimension)
        if batch_size < least:
            raise InputError(
                f"num_groups={groups} makes groups of {dimension // groups} columns, whose covariance over "
                f"{batch_size} rows is singular: more groups, or a batch of at least {least}"
            )

    def least_rows(self, dimension: int) -> int:
        """Return one row more than a group has columns."""
        if self.kind in ("zca", "pca"):
            return 2
        return max(2, dimension // self.groups(dimension) + 1)


class WhiteningLayers(nn.Module):
    """The layers of `WhiteningHead`; the statistics are taken over the rows of all processes."""

    running_mean: Tensor
    running_covariance: Tensor

    def __init__(self, settings: WhiteningHead, dimension: int) -> None:
        super().__init__()
        self.settings = settings
        self.single_pass = settings.views_from == "shuffle"
        self.dense = nn.Linear(dimension, dimension)
        reset(self.dense, INITIAL_STD)
        if settings.kind in ("zca", "pca"):
            self.register_buffer("running_mean", torch.zeros(dimension))
            self.register_buffer("running_covariance", torch.eye(dimension))

    def forward(self, vectors: Tensor) -> Tensor:
        """Whiten and project ``[m, B, d]``."""
        return torch.tanh(self.dense(over_all_rows(self.whitened, vectors)))

    def whitened(self, vectors: Tensor) -> Tensor:
        """Whiten each chunk of ``[m, B, d]`` by itself."""
        if self.settings.chunks == "views":
            return torch.stack([self.whiten(view) for view in vectors])
        by_sentence = vectors.transpose(0, 1)
        chunks = by_sentence.reshape(-1, vectors.shape[-1]).chunk(len(vectors))
        rows = torch.cat([self.whiten(chunk) for chunk in chunks])
        return rows.view(by_sentence.shape).transpose(0, 1)

    def whiten(self, rows: Tensor) -> Tensor:
        """Whiten ``[N, d]``."""
        settings, width = self.settings, rows.shape[-1]
        if settings.kind in ("zca", "pca"):
            return self._whiten_by_statistics(rows)
        order = queued_to(self.permutation(width), rows.device)
        return shuffled_group_whitening(rows, settings.groups(width), order, settings.eps, detach=settings.detach)

    def _whiten_by_statistics(self, rows: Tensor) -> Tensor:
        """Whiten ``[N, d]`` with the running mean and covariance, to which these rows are added first (eq. 13)."""
        settings = self.settings
        keep = settings.statistics_momentum
        mean = rows.mean(dim=0)
        centred = rows - mean
        mean = keep * self.running_mean + (1 - keep) * mean
        covariance = keep * self.running_covariance + (1 - keep) * (centred.T @ centred / len(rows))
        self.running_mean = mean.detach()
        self.running_covariance = covariance.detach()
        whitening = zca if settings.kind == "zca" else pca
        return (rows - mean) @ whitening(covariance, settings.eps, detach=settings.detach)

    def permutation(self, width: int) -> Tensor:
        """Return the order of the columns for one chunk, the same in all processes."""
        if self.settings.kind == "shuffled-group":
            return same(torch.randperm(width))
        return torch.arange(width)


HEADS: dict[str, type[Head]] = {
    "mlp": MLPHead,
    "batchnorm": BatchNormHead,
    "whitening": WhiteningHead,
    "none": NoHead,
}
"""The heads by the names of ``--set head=...``."""
