"""Prediction of masked words through the sentence vector: InfoCSE's auxiliary network, and its pretraining.

InfoCSE (Wu et al., EMNLP 2022 Findings); Condenser (Gao and Callan, EMNLP 2021) for the pretraining.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sentcli.bounds import MaskRate
from sentcli.errors import InputError
from sentcli.io.weights import load_weights
from sentcli.model import stored_heads, surgery
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.objectives.masked_lm import (
    LMHead,
    WordPrediction,
    chosen_states,
    mask_tokens,
    masked_loss,
    need_mask_token,
)

if TYPE_CHECKING:
    from sentcli.objectives.base import Loss, ObjectiveContext

AUXILIARY = "auxiliary"
"""The name of the file that keeps the network."""
DECODER = "lm_head.decoder.weight"


class AuxiliaryNetwork(nn.Module):
    """A few layers over the sentence vector and the token states of a lower layer, and a head that predicts words."""

    def __init__(self, context: ObjectiveContext, layers: int, init: str, *, tied: bool = False) -> None:
        super().__init__()
        backbone = context.backbone
        depth = surgery.layer_count(backbone)
        if not 1 <= layers <= depth:
            raise InputError(f"layers {layers}: the auxiliary network can have 1 to {depth}")
        self.layers = surgery.upper_layers(backbone, layers)
        self.lm_head = LMHead(backbone, tied=tied)
        if init not in ("copy-top", "random"):
            self._load(Path(init))
        elif tied or init == "copy-top":  # a tied head is that of the encoder, wherever the layers come from
            weights = stored_heads.lm_head_weights(context.spec.folder)
            self.lm_head.take(weights)
        if init == "random":
            std = float(getattr(backbone.config, "initializer_range", 0.02))
            surgery.reset(self.layers, std)
            decoder = self.lm_head.decoder
            if decoder is not None:
                nn.init.normal_(decoder.weight, std=std)

    def _load(self, folder: Path) -> None:
        """Load the network of a pretraining.

        Raises:
            InputError: if the folder holds none, or one that does not fit this model.
        """
        state = self._read(folder)
        own_state = self.state_dict()
        if DECODER in own_state:  # a head that was tied is kept without one: the start model's word embeddings stay
            state.setdefault(DECODER, own_state[DECODER])
        problems = [key for key in own_state if key not in state]
        problems += [key for key in own_state if key in state and state[key].shape != own_state[key].shape]
        if problems:
            raise InputError(f"--aux-init {folder}: it does not fit this model, see {problems[0]}")
        self.load_state_dict({key: state[key] for key in own_state})

    def _read(self, folder: Path) -> dict[str, Tensor]:
        """Return the weights of the network in a folder, which sentcli or Condenser's or InfoCSE's code wrote."""
        kept = folder / stored_heads.HEAD_FOLDER / f"{AUXILIARY}.safetensors"
        published = folder / "model.pt"  # these authors' code writes it beside the transformers files
        if kept.exists():
            return load_weights(kept)
        if not published.exists():
            raise InputError(
                f"--aux-init {folder}: neither copy-top nor random, nor a folder that 'train --method infocse "
                f"--stage pretrain' wrote ({kept.relative_to(folder)} is missing)"
            )
        state = self.renamed(load_weights(published))
        head = stored_heads.lm_head_weights(folder) or {}
        state.update({f"lm_head.{name}": value for name, value in head.items()})
        return state

    def renamed(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the layers that Condenser's code calls ``c_head`` under their names here."""
        path = surgery.layer_list(self.layers)[0]
        layers = {}
        for key, value in state.items():
            if key.startswith("c_head."):
                name = key.removeprefix("c_head.")
                layers[f"layers.{path}.{name}"] = value
        return layers

    def forward(self, sentence: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Return hidden states ``[B, T, d]``.

        Args:
            sentence: the sentence vectors ``[B, d]``, which take position 0.
            states: the token states ``[B, T, d]`` of the lower layer, whose position 0 is not used.
            mask: 1 for real tokens ``[B, T]``.
        """
        inputs = torch.cat([sentence[:, None], states[:, 1:]], dim=1)
        return self.layers(inputs_embeds=inputs, attention_mask=mask).last_hidden_state


@dataclass(frozen=True, kw_only=True)
class _AuxiliarySettings(Objective):
    rate: MaskRate = 0.4
    """The share of masked words; 0.3 in the BERT-large script."""
    skip_from: int = 0
    """The number of layers in the lower part; 0 takes half of the encoder, at most 6."""
    layers: int = 2
    """The number of extra layers."""
    init: str = "copy-top"
    """How the extra layers start: ``copy-top`` copies the encoder's last ones, ``random`` draws random weights, and any
    other value is the folder of a pretraining."""

    requires: ClassVar[str] = "text"

    def reads(self) -> list[str]:
        """Return the folder of the pretraining, if one is given."""
        return [] if self.init in ("copy-top", "random") else [self.init]

    def lower(self, context: ObjectiveContext) -> int:
        """Return the number of layers of the lower part."""
        depth = surgery.layer_count(context.backbone)
        lower = self.skip_from or min(6, depth // 2)
        if not 1 <= lower < depth:
            raise InputError(f"skip_from {lower} leaves no layer of this model's {depth} above it")
        return lower


class _NetworkLoss(StatefulObjective):
    """A loss with an auxiliary network over the states of layer `count`."""

    kept_as: ClassVar[str] = AUXILIARY

    def __init__(self, settings: _AuxiliarySettings, context: ObjectiveContext, *, tied: bool = False) -> None:
        super().__init__()
        self.settings = settings
        self.vocabulary = context.vocabulary
        self.rate = settings.rate
        self.count = settings.lower(context)
        self.network = AuxiliaryNetwork(context, settings.layers, settings.init, tied=tied)

    def trained_part(self) -> nn.Module:
        """Return the network."""
        return self.network


@dataclass(frozen=True, kw_only=True)
class AuxiliaryMLM(_AuxiliarySettings, name="auxiliary-mlm"):
    """Predict masked words from the states of frozen lower layers and the sentence vector (InfoCSE, stage 2).

    The gradient of this loss reaches the encoder only through the sentence vector at position 0.
    """

    weight: float = 1e-5
    detach: bool = True
    """Whether the lower layers are a frozen copy; if not, gradients reach the encoder's own lower layers."""
    frozen_dropout: bool = False
    """Whether the frozen copy has dropout, as in the BERT-large script but not in the base one."""
    copies: Literal["both", "one"] = "both"
    """Whether masked copies of ``both`` views (code) or of ``one`` (paper) are predicted."""

    views: ClassVar[int] = 1
    every_view: ClassVar[bool] = True

    def build(self, context: ObjectiveContext) -> Loss:
        """Return the loss module with its network."""
        need_mask_token(context, "auxiliary-mlm")
        return AuxiliaryMLMLoss(self, context)


class AuxiliaryMLMLoss(_NetworkLoss):
    """The loss of `AuxiliaryMLM`, with its frozen lower layers, its extra layers and their head."""

    settings: AuxiliaryMLM

    def __init__(self, settings: AuxiliaryMLM, context: ObjectiveContext) -> None:
        super().__init__(settings, context)
        if int(context.backbone.config.hidden_size) != context.dimension:
            raise InputError("auxiliary-mlm puts the sentence vector among the token vectors: their widths differ")
        self.lower: nn.Module | None = None
        if settings.detach:
            self.lower = surgery.lower_layers(context.backbone, self.count)
            surgery.freeze(self.lower)

    def train(self, mode: bool = True) -> AuxiliaryMLMLoss:
        """Set the mode; the frozen copy stays in evaluation mode, unless it has dropout."""
        super().train(mode)
        if self.lower is not None and not self.settings.frozen_dropout:
            self.lower.eval()
        return self

    def forward(self, views: Views) -> Tensor:
        """Return the loss of freshly masked copies."""
        ids = views.inputs["input_ids"]
        if self.settings.copies == "one":
            ids = ids[: views.pooled.shape[1]]
        masked, labels = mask_tokens(ids, self.vocabulary, self.settings.rate)
        return self.predict(views, masked, labels)

    def predict(self, views: Views, masked: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of masked ids and labels ``[rows, T]``, which belong to the first rows of the views."""
        count = len(masked)
        inputs = {name: ids[:count] for name, ids in views.inputs.items()}
        inputs["input_ids"] = masked
        sentences = views.pooled.flatten(0, 1)[:count]

        def states(rows: Tensor, part: dict[str, Tensor]) -> Tensor:
            lower = self.lower_states(views, part)
            return self.network(sentences[rows], lower, part["attention_mask"])

        hidden, words = chosen_states(inputs, labels, states)
        return masked_loss(self.network.lm_head, hidden, words, views.encoder.backbone)

    def lower_states(self, views: Views, inputs: dict[str, Tensor]) -> Tensor:
        """Return the states ``[rows, T, d]`` of the lower layers on masked text."""
        if self.lower is None:
            output = views.encoder.backbone(**inputs, output_hidden_states=True)
            return output.hidden_states[self.count]
        with torch.no_grad():
            frozen: Tensor = self.lower(**inputs).last_hidden_state
        return frozen


@dataclass(frozen=True, kw_only=True)
class CondenserMLM(_AuxiliarySettings, name="condenser-mlm"):
    """Predict masked words from the encoder's last layer, and again from its middle layer with the last layer's [CLS].

    This is InfoCSE's stage 1 and Condenser: nothing is frozen or detached, and one head makes both predictions. The
    defaults are those of Condenser's code.
    """

    rate: MaskRate = 0.15
    init: str = "random"
    tie: bool = True
    """Whether the word head decodes with the table of word embeddings, or with a copy of it."""
    whole_words: bool = False
    """Whether all tokens of a word are masked together, as in Condenser's code."""

    views: ClassVar[int] = 0
    all_rows: ClassVar[bool] = True
    every_view: ClassVar[bool] = True

    def build(self, context: ObjectiveContext) -> Loss:
        """Return the loss module with its network."""
        need_mask_token(context, "condenser-mlm", whole_words=self.whole_words)
        return CondenserMLMLoss(self, context)


class CondenserMLMLoss(_NetworkLoss, WordPrediction):
    """The loss of `CondenserMLM`, with its network."""

    def __init__(self, settings: CondenserMLM, context: ObjectiveContext) -> None:
        super().__init__(settings, context, tied=settings.tie)
        self.whole_words = settings.whole_words

    @property
    def head(self) -> LMHead:
        """The head that scores words for the network and for the encoder."""
        return self.network.lm_head

    def forward(self, views: Views) -> Tensor:
        """Return the sum of both losses on a freshly masked copy."""
        masked, labels = self.masked(views.inputs["input_ids"])
        inputs = {**views.inputs, "input_ids": masked}
        losses = [self._both(encoder.backbone, inputs, labels) for encoder in views.encoders]
        return torch.stack(losses).mean()

    def _both(self, backbone: Any, inputs: dict[str, Tensor], labels: Tensor) -> Tensor:
        """Return the loss of the network and that of the last layer together."""

        def states(_: Tensor, part: dict[str, Tensor]) -> Tensor:
            output = backbone(**part, output_hidden_states=True)
            early = output.hidden_states[self.count]
            late = output.last_hidden_state
            predicted = self.network(late[:, 0], early, part["attention_mask"])
            return torch.stack([predicted, late], dim=2)

        both, words = chosen_states(inputs, labels, states)
        losses = [masked_loss(self.head, hidden, words, backbone) for hidden in both.unbind(1)]
        return torch.stack(losses).sum()
