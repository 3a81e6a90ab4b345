"""Replaced-token detection: DiffCSE (Chuang et al., NAACL 2022), as InfoCSE's table 12 adds it.

A fixed generator rewrites masked text. A discriminator, which sees the original sentence only as a vector, tells for
each token whether it was changed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from sentcli import zoo
from sentcli.bounds import MaskRate
from sentcli.errors import InputError
from sentcli.io.weights import load_state_dict
from sentcli.model import stored_heads, surgery
from sentcli.model.spec_files import read_spec
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.objectives.masked_lm import IGNORED, LMHead, mask_tokens, need_mask_token

if TYPE_CHECKING:
    from pathlib import Path

    from sentcli.objectives.base import Loss, ObjectiveContext

WORD_ROWS = 32
"""How many rows have their words scored at once: 32 x 32 tokens x 30,522 words take 125 MB."""


@dataclass(frozen=True, kw_only=True)
class ReplacedTokenDetection(Objective, name="rtd"):
    """Cross-entropy of "replaced or not" at every position; the encoder learns through the sentence vector only."""

    weight: float = 0.005
    generator: str = "distilbert/distilbert-base-uncased"
    """A masked language model with the encoder's vocabulary; ``self`` takes a frozen copy of the start model."""
    rate: MaskRate = 0.3
    sample: bool = False
    """Whether the generator's words are drawn at random; the code takes the likeliest."""
    only_masked: bool = False
    """Whether only masked positions are replaced; the code takes the generator's word everywhere."""
    count_padding: bool = True
    """Whether padding counts as "not replaced", as in the code, where the weight depends on the mix of lengths."""
    generator_dropout: bool = True
    """Whether the generator has dropout, as in the code, which never puts it into evaluation mode."""
    before_head: bool = False
    """Whether the discriminator sees the sentence vector instead of the head's output."""

    every_view: ClassVar[bool] = True
    requires: ClassVar[str] = "text"

    def reads(self) -> list[str]:
        """Return the generator, unless it is the start model."""
        return [] if self.generator == "self" else [self.generator]

    def build(self, context: ObjectiveContext) -> Loss:
        """Return the loss module with its generator and discriminator."""
        need_mask_token(context, "rtd")
        return ReplacedTokenLoss(self, context)


class ReplacedTokenLoss(StatefulObjective):
    """The loss of `ReplacedTokenDetection`, with its generator and discriminator, which are not kept after training."""

    def __init__(self, settings: ReplacedTokenDetection, context: ObjectiveContext) -> None:
        super().__init__()
        self.settings = settings
        self.vocabulary = context.vocabulary
        backbone = context.backbone
        width = surgery.word_embeddings(backbone).embedding_dim
        if width != context.dimension or not hasattr(backbone, "embeddings"):
            raise InputError(
                f"rtd puts the vector ({context.dimension}) in a token embedding's place ({width}): no fit"
            )
        self.generator, self.lm_head = self._generator(context)
        surgery.freeze(self.generator)
        surgery.freeze(self.lm_head)
        discriminator: Any = copy.deepcopy(backbone)
        if getattr(discriminator, "pooler", None) is not None:
            discriminator.pooler = None
        self.discriminator = discriminator
        self.classifier = nn.Linear(int(backbone.config.hidden_size), 2)
        # `detect` sets the sentence vectors, and the hook puts them at position 0
        self._sentences: Tensor | None = None
        self.discriminator.embeddings.register_forward_hook(self._put_sentence)

    def _generator(self, context: ObjectiveContext) -> tuple[Any, LMHead]:
        """Return the generator and its head.

        Raises:
            InputError: if it does not go with the encoder, or has no head.
        """
        name = self.settings.generator
        if name == "self":
            folder = context.spec.folder
            backbone = copy.deepcopy(context.backbone)
        else:
            folder, backbone = _other_model(name, context)
        head = LMHead(backbone, tied=True)
        if not head.take(stored_heads.lm_head_weights(folder)):
            raise InputError(f"rtd: the generator {name} holds no language-modelling head, so it cannot propose words")
        return backbone, head

    def _put_sentence(self, module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        assert self._sentences is not None
        return torch.cat([self._sentences[:, None], output[:, 1:]], dim=1)

    def train(self, mode: bool = True) -> ReplacedTokenLoss:
        """Set the mode; the generator has dropout only if the settings say so."""
        super().train(mode)
        self.generator.train(mode and self.settings.generator_dropout)
        return self

    def forward(self, views: Views) -> Tensor:
        """Return the loss of freshly masked copies of all views."""
        masked, labels = mask_tokens(views.inputs["input_ids"], self.vocabulary, self.settings.rate)
        return self.detect(views, self.replace(views.inputs, masked, labels))

    @torch.no_grad()
    def replace(self, inputs: dict[str, Tensor], masked: Tensor, labels: Tensor) -> Tensor:
        """Return the ids ``[rows, T]`` with the generator's words, except at position 0 and at padding."""
        original = inputs["input_ids"]
        output = self.generator(**{**inputs, "input_ids": masked})
        parts = output.last_hidden_state.split(WORD_ROWS)
        words = torch.cat([self._words(part) for part in parts])
        stays = inputs["attention_mask"] == 0
        stays[:, 0] = True
        if self.settings.only_masked:
            stays |= labels == IGNORED
        return words.where(~stays, original)

    def _words(self, hidden: Tensor) -> Tensor:
        logits = self.lm_head(hidden, self.generator)
        if not self.settings.sample:
            return logits.argmax(dim=-1)
        drawn: Tensor = torch.distributions.Categorical(logits=logits).sample()  # type: ignore[no-untyped-call]
        return drawn

    def detect(self, views: Views, generated: Tensor) -> Tensor:
        """Return the discriminator's loss on generated ids ``[rows, T]``."""
        inputs = views.inputs
        is_token = inputs["attention_mask"] == 1
        is_replaced = (generated != inputs["input_ids"]) & is_token
        sentences = views.pooled if self.settings.before_head else views.projected
        self._sentences = sentences.flatten(0, 1)
        output = self.discriminator(**{**inputs, "input_ids": generated})
        self._sentences = None
        logits = self.classifier(output.last_hidden_state)
        counts = torch.ones_like(is_token) if self.settings.count_padding else is_token
        return functional.cross_entropy(logits[counts], is_replaced.long()[counts])


def _other_model(name: str, context: ObjectiveContext) -> tuple[Path, Any]:
    """Load a generator that is not the start model, and return its folder and its backbone.

    Raises:
        InputError: if it has too few positions or another vocabulary than the encoder.
    """
    from sentcli.model.building import load_backbone
    from sentcli.model.tokenizing import position_limit
    from sentcli.model.torch_backend import load_tokenizer

    folder = zoo.resolve(name)[0]
    spec = read_spec(folder)
    positions = position_limit(spec, context.vocabulary.pad)
    if positions is not None and positions < context.max_length:
        raise InputError(f"rtd: the generator {name} has {positions} positions, fewer than max_length")
    if load_tokenizer(spec.folder).get_vocab() != load_tokenizer(context.spec.folder).get_vocab():
        raise InputError(f"rtd: the generator {name} has another vocabulary than the encoder")
    return spec.folder, load_backbone(spec.folder, load_state_dict(spec.folder))
