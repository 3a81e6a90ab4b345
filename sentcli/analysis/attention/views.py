"""The attention of two dropout views of a text, head by head; miCSE (Klein and Nabi, ACL 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sentcli.arrays import Float64Array
from sentcli.errors import InputError
from sentcli.model import attention, surgery
from sentcli.model.tokenizing import pad
from sentcli.objectives.mutual_information import (
    SMALLEST,
    correlation,
    mutual_information,
)

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


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
        self.name = encoder.model
        self.seed = seed
        self.module = encoder.torch_module
        self.tokenizer = encoder.tokenizer
        self.device = next(self.module.parameters()).device
        prompt = encoder.prompt_text()
        self.prompt_length = 0
        if prompt:
            self.prompt_length = self.tokenizer.prompt_length(prompt)
        self.tokens = self.tokenizer(texts, prompt)
        self.depth = surgery.layer_count(self.module.backbone)
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

    def of_view(self, number: int) -> EncodedTwice:
        """Return the two views of a text, on the CPU in float32.

        Raises:
            InputError: if the model gives no attention weights.
        """
        rows = pad(self.tokens, [number, number], self.tokenizer.pad_id)
        batch = {name: torch.from_numpy(array).to(self.device) for name, array in rows.items()}
        seed = np.random.SeedSequence([self.seed, number]).generate_state(1)[0]
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices):
            torch.manual_seed(int(seed))
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
        views = self.of_view(0)
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
    first: Float64Array
    """Natural logarithms of the weights in view 1, at the positions where both views have weight ``[n]``."""
    second: Float64Array
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


def by_head(weights: Tensor) -> tuple[Float64Array, Float64Array]:
    """Return rho and mutual information (nats) of two views, for every layer and head (miCSE, eq. 4).

    Args:
        weights: ``[2, L, H, T, T]``; positions where a view has no weight, such as dropped ones, are left out.

    Returns:
        Two arrays ``[L, H]``.
    """
    one, two = weights.double().flatten(3).flatten(1, 2)
    mask = (one > SMALLEST) & (two > SMALLEST)
    log_one = one.where(mask, 1).log()
    log_two = two.where(mask, 1).log()
    rho = correlation(log_one, log_two, mask)
    information = mutual_information(one, two, mask)
    heads = tuple(weights.shape[1:3])
    return rho.view(heads).numpy(), information.view(heads).numpy()


def attention_slices(weights: Tensor, layers: Sequence[int], heads: Sequence[int]) -> list[Slice]:
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
        has_weight = (both > SMALLEST).all(dim=0)
        first, second = both[:, has_weight].log().numpy()
        slices.append(
            Slice(
                layer=layer,
                head=head,
                first=first,
                second=second,
                correlation=float(rho[layer, head]),
                information=float(information[layer, head]),
            )
        )
    return slices
