"""SimCSE, unsupervised (Gao, Yao and Chen, EMNLP 2021): dropout is the only augmentation.

Each sentence is encoded twice; the two vectors differ by dropout alone. Loss: InfoNCE between them with the other
sentences of the batch as negatives (eq. 4), on z = tanh(W [CLS] + b). W is new, not the pretrained pooler, and the
head is dropped after training: the raw [CLS] vector is the embedding (sec. 6.3, "MLP in training only").

Where paper and reference code leave a choice:
    head      mlp (paper and code) or none (what InforMin-CL's script does): --set head=none
    pooling   cls; another --pooling moves the loss to that vector
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sentcli.errors import InputError
from sentcli.methods.settings import Settings
from sentcli.objectives import Contrastive, Objective


class TanhHead(nn.Module):
    """z = tanh(W x + b), on ``[..., d]``."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dimension, dimension)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Project."""
        return torch.tanh(self.dense(vectors))


@dataclass(frozen=True)
class SimCSE:
    """Hyper-parameters of the paper's appendix A for BERT-base."""

    temperature: float = 0.05  # tau, sec. 3
    head: str = "mlp"

    views = 2

    def __post_init__(self) -> None:
        """Refuse values that the formula has no meaning for."""
        if not 0 < self.temperature < math.inf:
            raise InputError(f"temperature must be above 0, not {self.temperature}")
        if self.head not in ("mlp", "none"):
            raise InputError(f"head {self.head!r} is unknown; mlp or none")

    def settings(self) -> Settings:
        """Return batch 64, learning rate 3e-5, one epoch, length 32 (BERT-base; appendix A)."""
        return Settings(batch_size=64, learning_rate=3e-5, epochs=1, max_length=32)

    def head_module(self, dimension: int) -> nn.Module:
        """Return tanh(W x + b), initialised like BERT's layers: normal(0, 0.02), zero bias."""
        return TanhHead(dimension) if self.head == "mlp" else nn.Identity()

    def objectives(self) -> list[Objective]:
        """Return InfoNCE."""
        return [Contrastive(self.temperature)]
