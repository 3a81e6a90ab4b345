"""What an objective is, what it is built from, and what a training step hands to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from sentcli.bounds import Bounded
from sentcli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentcli.model.spec import EncoderSpec
    from sentcli.model.torch_model import TorchEncoder

    Loss = Callable[["Views"], Tensor]


@dataclass(frozen=True)
class Vocabulary:
    """The token ids that masking needs."""

    size: int
    mask: int | None
    special: frozenset[int]
    """Never masked, never predicted."""
    pad: int


@dataclass(frozen=True)
class Parts:
    """What a run has when its objectives are built."""

    encoder: TorchEncoder
    spec: EncoderSpec
    vocabulary: Vocabulary
    dimension: int
    """The dimension of the sentence vector."""
    max_length: int = 0
    """Tokens a sentence in training."""

    @property
    def token_width(self) -> int:
        """Return the length of a token vector, after the convolutions if there are some."""
        return next(width for part, width in zip(self.spec.modules, self.spec.widths, strict=True) if part.pools)

    @property
    def backbone(self) -> Any:
        """The transformers model."""
        return self.encoder.backbone


@dataclass(frozen=True)
class Views:
    """One batch of B sentences, each seen m times. Rows of `inputs` are view by view: all of view 1, then view 2."""

    inputs: dict[str, Tensor]
    """``input_ids``, ``attention_mask``, perhaps ``token_type_ids``: ``[m * B, T]``."""
    encoder: Any = None
    """The `TorchEncoder` that made the views."""
    second: Any = None
    """The one that made the second view, where two are trained."""
    head: Any = None
    """The head that exists in training only: ``[m, B, d]`` to ``[m, B, d']``."""
    projected: Tensor = field(default_factory=lambda: torch.empty(0))
    """After the head: ``[m, B, d']``."""
    pooled: Tensor = field(default_factory=lambda: torch.empty(0))
    """The sentence vectors themselves, as the encoder will be used: ``[m, B, d]``."""
    tokens: Tensor = field(default_factory=lambda: torch.empty(0))
    """Token vectors, of the last layer or of the CNN on it: ``[m, B, T, d]``."""
    attentions: dict[int, Tensor] = field(default_factory=dict)
    """Layer, from 0, to attention weights ``[m, B, heads, T, T]``, of the layers that an objective asked for."""
    labels: Tensor | None = None
    """A score between 0 and 1 for each pair of views ``[B]``, where the data has one."""
    matched: Tensor | None = None
    """Where not every row's views show one sentence: which do, ``[B]``."""

    @cached_property
    def mask(self) -> Tensor:
        """Real tokens of each view: ``[m, B, T]``."""
        mask = self.inputs["attention_mask"]
        return mask.view(max(1, len(self.pooled)), -1, mask.shape[1])

    @property
    def encoders(self) -> list[Any]:
        """All encoders that are trained."""
        return [self.encoder] if self.second is None else [self.encoder, self.second]

    @cached_property
    def same_sentence(self) -> Views:
        """The rows whose views show one sentence."""
        if self.matched is None or not len(self.pooled):
            return self
        rows = self.matched.nonzero().squeeze(1)
        views = len(self.pooled)
        return Views(
            {name: ids.view(views, -1, ids.shape[1])[:, rows].flatten(0, 1) for name, ids in self.inputs.items()},
            self.encoder,
            self.second,
            self.head,
            self.projected[:, rows],
            self.pooled[:, rows],
            self.tokens[:, rows] if self.tokens.ndim > 1 else self.tokens,
            {layer: weights[:, rows] for layer, weights in self.attentions.items()},
            None if self.labels is None else self.labels[rows],
        )


OBJECTIVES: dict[str, type[Objective]] = {}
"""Terms that can be added to any method, by name; a class registers itself: ``class Own(Objective, name="own")``."""


@dataclass(frozen=True, kw_only=True)
class Objective(Bounded):
    """One term of a loss, as data: its fields are its settings.

    An objective without state is its own loss: it defines `__call__`. One with parameters or memory builds an
    ``nn.Module`` that is called in its place.
    """

    weight: float = 1.0

    views: ClassVar[int] = 2
    """How many views of each sentence it needs; 0 if it runs the encoder itself, on masked text."""
    all_rows: ClassVar[bool] = False
    """Whether it is also computed on rows whose views show different sentences."""
    needs_scores: ClassVar[bool] = False
    """Whether the data has to be scored pairs."""
    requires: ClassVar[str] = "vectors"
    """What the loss is computed from: sentence ``vectors`` alone; ``text``, on which it runs networks of its own;
    ``tokens``, the token vectors; or the ``attention`` weights."""
    every_view: ClassVar[bool] = False
    """Whether it looks at all views there are, and not at the first `views` alone."""

    def __init_subclass__(cls, name: str = "") -> None:
        """Register an objective under the name that ``objectives+=NAME`` and the logs call it."""
        super().__init_subclass__()
        if name in OBJECTIVES:
            raise InputError(f"an objective is called {name} already: choose another name")
        if name:
            OBJECTIVES[name] = cls

    def __post_init__(self) -> None:
        """Refuse values that their annotations or `check` do not allow."""
        super().__post_init__()
        self.check()

    def check(self) -> None:
        """Raise InputError for values that only together have no meaning."""

    def attention_layers(self, depth: int) -> tuple[int, ...]:
        """Return the layers, counted from 0, whose attention weights it needs."""
        return ()

    def least_rows(self) -> int:
        """Return the smallest batch that it can be computed on, of rows that it looks at."""
        return 2

    def reads(self) -> list[str]:
        """Return the folders that `build` reads besides the start model."""
        return []

    def build(self, parts: Parts) -> Loss:
        """Return the function from `Views` to the unweighted term, a scalar to be minimised.

        Raises:
            InputError: if the encoder lacks what it needs.
        """
        return self

    def __call__(self, views: Views) -> Tensor:
        """Return the term, if it needs no state."""
        raise NotImplementedError


class StatefulObjective(nn.Module):
    """The base of what `Objective.build` makes where a term has parameters or memory."""

    note: str = ""
    """Something that the user should know before the training starts."""

    kept_as: ClassVar[str] = ""
    """File name under ``training_head/`` for its trained part; empty if nothing of it is kept."""

    def kept(self) -> nn.Module:
        """Return the part that is worth keeping beside the trained encoder."""
        return self
