"""Masked language modelling: on a copy of the text, and through [CLS] with InfoCSE's auxiliary network.

BERT (Devlin et al., NAACL 2019, sec. 3.1) for the masking; SimCSE (its MLM option) for the plain term; Condenser (Gao
and Callan, EMNLP 2021) and InfoCSE (Wu et al., EMNLP 2022 Findings) for the network that sees the sentence
through one vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from sentcli.encoder import checkpoint, surgery
from sentcli.errors import InputError
from sentcli.objectives import checks
from sentcli.objectives.base import Objective, StatefulObjective, Views, Vocabulary

if TYPE_CHECKING:
    from sentcli.objectives.base import Loss, Parts

IGNORED = -100
AUXILIARY = "auxiliary"


def mask_tokens(ids: Tensor, vocabulary: Vocabulary, rate: float) -> tuple[Tensor, Tensor]:
    """Choose tokens at random; of these 80 % become the mask token, 10 % a random one, 10 % stay.

    Args:
        ids: ``[B, T]``; special tokens and padding are never chosen.
        vocabulary: mask, special ids and size.
        rate: the share of tokens that are chosen.

    Returns:
        The changed ids, and the labels: the original id where a token was chosen, -100 elsewhere.
    """
    special = torch.isin(ids, torch.tensor(sorted({*vocabulary.special, vocabulary.pad}), device=ids.device))
    chosen = (torch.rand(ids.shape, device=ids.device) < rate) & ~special
    kind = torch.rand(ids.shape, device=ids.device)
    assert vocabulary.mask is not None
    masked = ids.where(~(chosen & (kind < 0.8)), vocabulary.mask)
    random = torch.randint(vocabulary.size, ids.shape, device=ids.device)
    masked = masked.where(~(chosen & (kind >= 0.9)), random)
    return masked, ids.where(chosen, IGNORED)


def need_mask_token(parts: Parts, name: str) -> None:
    """Refuse a tokenizer that has none."""
    if parts.vocabulary.mask is None:
        raise InputError(f"{name} masks words, and the tokenizer of this model has no mask token")


class LMHead(nn.Module):
    """Hidden states to a score for each word: dense, GELU, layer normalisation, decoder, as BERT's."""

    def __init__(self, backbone: Any, *, tied: bool) -> None:
        super().__init__()
        table = surgery.word_embeddings(backbone)
        hidden, (words, width) = int(backbone.config.hidden_size), table.weight.shape
        eps = getattr(backbone.config, "layer_norm_eps", None) or getattr(backbone.config, "norm_eps", None) or 1e-12
        self.dense = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.bias = nn.Parameter(torch.zeros(words))
        self.decoder = None if tied else nn.Linear(width, words, bias=False)
        surgery.reset(self, float(getattr(backbone.config, "initializer_range", 0.02)))
        if self.decoder is not None:
            self.decoder.weight.data.copy_(table.weight)

    def forward(self, hidden: Tensor, backbone: Any) -> Tensor:
        """Return ``[..., vocabulary]``; without a decoder of its own, the words of `backbone` decode."""
        table = surgery.word_embeddings(backbone).weight if self.decoder is None else self.decoder.weight
        return functional.linear(self.norm(functional.gelu(self.dense(hidden))), table, self.bias)

    def take(self, weights: Mapping[str, Tensor] | None) -> bool:
        """Start from the weights of a checkpoint's language-modelling head, if it has one that fits."""
        if weights is None:
            return False
        own = self.state_dict()
        fitting = {name: value for name, value in weights.items() if name in own and own[name].shape == value.shape}
        self.load_state_dict({**own, **fitting})
        return {"dense.weight", "norm.weight"} <= set(fitting)


def masked_loss(head: LMHead, hidden: Tensor, labels: Tensor, backbone: Any) -> Tensor:
    """Mean cross-entropy over the chosen positions of all rows; 0 if none was chosen.

    Args:
        head: scores words.
        hidden: ``[B, T, d]``.
        labels: ``[B, T]``, -100 where nothing is predicted.
        backbone: whose words decode, if `head` has no decoder.
    """
    chosen = labels != IGNORED
    logits = head(hidden[chosen], backbone)  # only where a word is predicted: most positions are not
    return functional.cross_entropy(logits, labels[chosen], reduction="sum") / chosen.sum().clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class MaskedLM(Objective):
    """Predict masked words of a separate copy of the text, with the encoder itself."""

    weight: float = 0.1
    rate: float = 0.15
    tie: bool = True
    """The decoder is the table of word embeddings, as in BERT; SimCSE's code copies it."""

    views: ClassVar[int] = 0

    def check(self) -> None:
        """Refuse a rate outside 0..1."""
        checks.positive(rate=self.rate)
        checks.share(rate=self.rate)

    def build(self, parts: Parts) -> Loss:
        """Return the loss with its head, that of the checkpoint if it has one."""
        need_mask_token(parts, "mlm")
        return MaskedLMLoss(self, parts)


class MaskedLMLoss(StatefulObjective):
    """`MaskedLM` with its language-modelling head."""

    kept_as: ClassVar[str] = "lm_head"

    def __init__(self, settings: MaskedLM, parts: Parts) -> None:
        super().__init__()
        self.settings, self.vocabulary = settings, parts.vocabulary
        self.lm_head = LMHead(parts.backbone, tied=settings.tie)
        if not self.lm_head.take(checkpoint.lm_head_weights(parts.spec.folder)):
            self.note = "the start model holds no language-modelling head: a new one is trained"

    def forward(self, views: Views) -> Tensor:
        """Return the loss of a freshly masked copy of all rows."""
        masked, labels = mask_tokens(views.inputs["input_ids"], self.vocabulary, self.settings.rate)
        backbone = views.encoder.backbone
        hidden = backbone(**{**views.inputs, "input_ids": masked}).last_hidden_state
        return masked_loss(self.lm_head, hidden, labels, backbone)

    def kept(self) -> nn.Module:
        """Return the head."""
        return self.lm_head


class AuxiliaryNetwork(nn.Module):
    """Some layers over ``[one sentence vector; token states of a lower layer]``, and a head that predicts words."""

    def __init__(self, parts: Parts, layers: int, init: str) -> None:
        super().__init__()
        backbone = parts.backbone
        if not 1 <= layers <= surgery.depth(backbone):
            raise InputError(f"layers {layers}: the auxiliary network can have 1 to {surgery.depth(backbone)}")
        self.layers = surgery.upper_layers(backbone, layers)
        self.lm_head = LMHead(backbone, tied=False)
        for parameter in self.layers.parameters():
            parameter.requires_grad_(True)
        if init == "copy-top":
            self.lm_head.take(checkpoint.lm_head_weights(parts.spec.folder))
        elif init == "random":
            std = float(getattr(backbone.config, "initializer_range", 0.02))
            surgery.reset(self.layers, std)
            if self.lm_head.decoder is not None:
                nn.init.normal_(self.lm_head.decoder.weight, std=std)
        else:
            self._load(Path(init))

    def _load(self, folder: Path) -> None:
        own, other = folder / checkpoint.HEAD_FOLDER / f"{AUXILIARY}.safetensors", folder / "model.pt"
        if own.exists():
            state = checkpoint.load_weights(own)
        elif other.exists():  # as Condenser's and InfoCSE's code writes it, beside the transformers files
            state = self.renamed(checkpoint.load_weights(other))
            state.update(
                {f"lm_head.{name}": value for name, value in (checkpoint.lm_head_weights(folder) or {}).items()}
            )
        else:
            raise InputError(
                f"--aux-init {folder}: neither copy-top nor random, nor a folder that 'train --method infocse "
                f"--stage pretrain' wrote ({own.relative_to(folder)} is missing)"
            )
        wanted = self.state_dict()
        missing = [key for key in wanted if key not in state]
        wrong = [key for key in wanted if key in state and state[key].shape != wanted[key].shape]
        if missing or wrong:
            raise InputError(f"--aux-init {folder}: it does not fit this model, see {(missing + wrong)[0]}")
        self.load_state_dict({key: state[key] for key in wanted})

    def renamed(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the layers that Condenser's code calls ``c_head`` under their names here."""
        path = surgery.layer_list(self.layers)[0]
        return {
            f"layers.{path}.{key.removeprefix('c_head.')}": value
            for key, value in state.items()
            if key.startswith("c_head.")
        }

    def forward(self, sentence: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Return hidden states ``[B, T, d]``.

        Args:
            sentence: ``[B, d]``, which takes position 0.
            states: ``[B, T, d]`` of the lower layer, whose position 0 is left out.
            mask: real tokens ``[B, T]``.
        """
        inputs = torch.cat([sentence[:, None], states[:, 1:]], dim=1)
        hidden: Tensor = self.layers(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
        return hidden


@dataclass(frozen=True, kw_only=True)
class _AuxiliarySettings(Objective):
    rate: float = 0.4
    """The share of masked words; 0.3 in the BERT-large script."""
    skip_from: int = 0
    """Layers of the lower part; 0 takes half of the encoder, at most 6."""
    layers: int = 2
    """Extra layers."""
    init: str = "copy-top"
    """Start of the extra layers: ``copy-top`` the encoder's last ones, ``random``, or the folder of a pretraining."""

    def check(self) -> None:
        """Refuse a rate outside 0..1."""
        checks.positive(rate=self.rate)
        checks.share(rate=self.rate)

    def lower(self, parts: Parts) -> int:
        """Return the number of layers of the lower part."""
        depth = surgery.depth(parts.backbone)
        lower = self.skip_from or min(6, depth // 2)
        if not 1 <= lower < depth:
            raise InputError(f"skip_from {lower} leaves no layer of this model's {depth} above it")
        return lower


@dataclass(frozen=True, kw_only=True)
class AuxiliaryMLM(_AuxiliarySettings):
    """Predict masked words from the frozen lower layers' states and the sentence vector (InfoCSE, stage 2).

    The only way from this loss to the encoder is the sentence vector at position 0.
    """

    weight: float = 1e-5
    detach: bool = True
    """False lets gradients through the lower layers of the encoder itself, instead of a frozen copy."""
    frozen_dropout: bool = False
    """Dropout in the frozen copy: off in the BERT-base script, on in the large one."""
    copies: str = "both"
    """Mask a copy of ``both`` views (code) or of ``one`` (paper)."""

    views: ClassVar[int] = 1

    def check(self) -> None:
        """Refuse unknown words."""
        super().check()
        checks.one_of("copies", self.copies, ("both", "one"))

    def build(self, parts: Parts) -> Loss:
        """Return the loss with its network."""
        need_mask_token(parts, "auxiliary-mlm")
        return AuxiliaryMLMLoss(self, parts)


class AuxiliaryMLMLoss(StatefulObjective):
    """`AuxiliaryMLM` with its frozen lower layers, its extra layers and their head."""

    kept_as: ClassVar[str] = AUXILIARY

    def __init__(self, settings: AuxiliaryMLM, parts: Parts) -> None:
        super().__init__()
        self.settings, self.vocabulary = settings, parts.vocabulary
        self.count = settings.lower(parts)
        if int(parts.backbone.config.hidden_size) != parts.dimension:
            raise InputError("auxiliary-mlm puts the sentence vector among the token vectors: their widths differ")
        self.lower = surgery.lower_layers(parts.backbone, self.count) if settings.detach else None
        if self.lower is not None:
            surgery.freeze(self.lower)
        self.network = AuxiliaryNetwork(parts, settings.layers, settings.init)

    def train(self, mode: bool = True) -> AuxiliaryMLMLoss:
        """Set the mode; the frozen copy stays in evaluation unless it is to have dropout."""
        super().train(mode)
        if self.lower is not None and not self.settings.frozen_dropout:
            self.lower.eval()
        return self

    def forward(self, views: Views) -> Tensor:
        """Return the loss of freshly masked copies."""
        rows = len(views.inputs["input_ids"]) if self.settings.copies == "both" else views.pooled.shape[1]
        masked, labels = mask_tokens(views.inputs["input_ids"][:rows], self.vocabulary, self.settings.rate)
        return self.predict(views, masked, labels)

    def predict(self, views: Views, masked: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of given masked ids and labels ``[rows, T]``; rows are those of the first views."""
        inputs = {name: ids[: len(masked)] for name, ids in views.inputs.items()} | {"input_ids": masked}
        sentence = views.pooled.flatten(0, 1)[: len(masked)]
        hidden = self.network(sentence, self.lower_states(views, inputs), inputs["attention_mask"])
        return masked_loss(self.network.lm_head, hidden, labels, views.encoder.backbone)

    def lower_states(self, views: Views, inputs: dict[str, Tensor]) -> Tensor:
        """Return the states ``[rows, T, d]`` of the lower layers on masked text."""
        if self.lower is None:
            states: Tensor = views.encoder.backbone(**inputs, output_hidden_states=True).hidden_states[self.count]
            return states
        with torch.no_grad():
            frozen: Tensor = self.lower(**inputs).last_hidden_state
        return frozen

    def kept(self) -> nn.Module:
        """Return the network."""
        return self.network


@dataclass(frozen=True, kw_only=True)
class CondenserMLM(_AuxiliarySettings):
    """Predict masked words twice: from the encoder's last layer, and from its middle layer with the last [CLS].

    InfoCSE's stage 1 and Condenser: nothing is frozen or detached, one head scores the words of both.
    """

    rate: float = 0.15

    views: ClassVar[int] = 0

    def build(self, parts: Parts) -> Loss:
        """Return the loss with its network."""
        need_mask_token(parts, "condenser-mlm")
        return CondenserMLMLoss(self, parts)


class CondenserMLMLoss(StatefulObjective):
    """`CondenserMLM` with its network."""

    kept_as: ClassVar[str] = AUXILIARY

    def __init__(self, settings: CondenserMLM, parts: Parts) -> None:
        super().__init__()
        self.settings, self.vocabulary = settings, parts.vocabulary
        self.count = settings.lower(parts)
        self.network = AuxiliaryNetwork(parts, settings.layers, settings.init)

    def forward(self, views: Views) -> Tensor:
        """Return the sum of both losses on a freshly masked copy."""
        masked, labels = mask_tokens(views.inputs["input_ids"], self.vocabulary, self.settings.rate)
        backbone, head = views.encoder.backbone, self.network.lm_head
        output = backbone(**{**views.inputs, "input_ids": masked}, output_hidden_states=True)
        early, late = output.hidden_states[self.count], output.last_hidden_state
        hidden = self.network(late[:, 0], early, views.inputs["attention_mask"])
        return masked_loss(head, hidden, labels, backbone) + masked_loss(head, late, labels, backbone)

    def kept(self) -> nn.Module:
        """Return the network."""
        return self.network
