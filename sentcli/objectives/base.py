"""The base classes of objectives, and the data that they are built from and computed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sentcli.bounds import Bounded
from sentcli.errors import InputError
from sentcli.model.ahead import runs_ahead

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentcli.model.spec import EncoderSpec
    from sentcli.model.torch_model import TorchEncoder

    Loss = Callable[["Views"], Tensor]

CPU_ROWS = 32
"""How many rows a CPU encodes at a time, so that activations stay in its cache and there is little padding."""


def by_length(batch: Mapping[str, Tensor], size: int | None = None) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Yield the numbers ``[P]`` and the tensors of rows of similar length, the longest first.

    Args:
        batch: tensors ``[B, T]``, padded at the end, with an ``attention_mask`` that is 1 for real tokens.
        size: the number of rows in a part; None takes all. On a CPU it is at most `CPU_ROWS`.
    """
    mask = batch["attention_mask"]
    size = size or len(mask)
    if mask.device.type == "cpu":
        size = min(size, CPU_ROWS)
    lengths, order = mask.sum(dim=1).sort(descending=True, stable=True)
    parts = torch.split(order, size)
    longest = [mask.shape[1]]  # all rows together are as wide as the batch: a GPU is not waited for
    if len(parts) > 1 or not runs_ahead(mask.device):
        longest = lengths[::size].tolist()
    for rows, width in zip(parts, longest, strict=True):
        yield rows, {name: values[rows, :width] for name, values in batch.items()}


@dataclass(frozen=True)
class Vocabulary:
    """The size of the vocabulary and the token ids that masking needs."""

    size: int
    mask: int | None
    special: frozenset[int]
    """The ids of special tokens, which are never masked or predicted."""
    pad: int
    continues: Tensor | None = None
    """Whether each token goes on with a word, by its id; None where the tokenizer does not tell."""

    @classmethod
    def of(cls, tokenizer: Any, size: int, pad: int) -> Vocabulary:
        """Return the vocabulary of a tokenizer of transformers.

        WordPiece marks the tokens that go on with a word by ``##``; SentencePiece and byte-level BPE mark those that
        begin one.
        """
        special = frozenset(tokenizer.all_special_ids)
        continuing = []
        beginning = set()
        tokens = tokenizer.get_vocab()
        for token, number in tokens.items():
            if token.startswith("##"):
                continuing.append(number)
            elif token.startswith(("\u2581", "\u0120")):
                beginning.add(number)
        if beginning and not continuing:
            continuing = sorted(set(tokens.values()) - beginning - special)
        continues = None
        if continuing:
            continues = torch.zeros(max(tokens.values()) + 1, dtype=torch.bool)
            continues[continuing] = True
        return cls(size, tokenizer.mask_token_id, special, pad, continues)


@dataclass(frozen=True)
class ObjectiveContext:
    """What of a run its objectives are built from."""

    encoder: TorchEncoder
    spec: EncoderSpec
    vocabulary: Vocabulary
    dimension: int
    """The dimension of the sentence vector."""
    max_length: int = 0
    """The maximum length of a sentence in training, in tokens."""
    template_tokens: tuple[tuple[int, int], ...] = ()
    """How many tokens each view has in front of the sentence and behind it, where its template is subtracted."""
    teacher_widths: tuple[int, ...] = ()
    """The dimension of the vectors of each teacher."""

    @property
    def token_width(self) -> int:
        """The dimension of the token vectors that are pooled, after convolutions if there are any."""
        modules = zip(self.spec.modules, self.spec.widths, strict=True)
        return next(width for module, width in modules if module.pools)

    @property
    def backbone(self) -> Any:
        """The transformers model."""
        return self.encoder.backbone


@dataclass(frozen=True)
class Views:
    """A batch of B sentences with m views each; the rows of `inputs` are all rows of view 1, then those of view 2."""

    inputs: dict[str, Tensor]
    """``input_ids``, ``attention_mask`` and perhaps ``token_type_ids``, each ``[m * B, T]``."""
    encoder: Any = None
    """The `TorchEncoder` that made the views."""
    second: Any = None
    """The encoder that made the second view, where a method trains two."""
    head: Any = None
    """The training head, from ``[m, B, d]`` to ``[m, B, d']``."""
    projected: Tensor = field(default_factory=lambda: torch.empty(0))
    """The output of the head ``[m, B, d']``."""
    pooled: Tensor = field(default_factory=lambda: torch.empty(0))
    """The sentence vectors that the encoder gives without the head ``[m, B, d]``."""
    tokens: Tensor = field(default_factory=lambda: torch.empty(0))
    """The token vectors of the last layer, or of the CNN on it ``[m, B, T, d]``."""
    attentions: dict[int, Tensor] = field(default_factory=dict)
    """The attention weights ``[m, B, heads, T, T]`` of the layers that objectives need, by number from 0."""
    labels: Tensor | None = None
    """The score of each pair of views, between 0 and 1, or the number of its class ``[B]``, if the data has any."""
    matched: Tensor | None = None
    """Whether the views of each row show the same sentence ``[B]``; None if all rows do."""
    masked_words: Tensor | None = None
    """The words that were masked in `inputs` ``[m * B, T]``, -100 elsewhere; None if nothing was."""
    teachers: tuple[Tensor, ...] = ()
    """The vectors of each teacher ``[m, B, d_t]``, or ``[1, B, d_t]`` where all views show one sentence."""
    teacher_scores: Tensor | None = None
    """The teacher's similarity of each anchor with its positive and its hard negatives ``[B, 1 + k]``."""
    paired: bool = False
    """Whether the views are an anchor, its positive and hard negatives, and not views of one sentence."""

    @property
    def hard_negatives(self) -> Tensor | None:
        """The outputs of the head for the hard negatives ``[k, B, d']``, if the data has any."""
        if not self.paired or len(self.projected) <= 2:
            return None
        return self.projected[2:]

    @property
    def required_labels(self) -> Tensor:
        """The labels ``[B]``, for objectives that only take data that has them."""
        assert self.labels is not None
        return self.labels

    def truncated(self, dimensions: int) -> Views:
        """Return these views with the first dimensions of their vectors alone."""
        projected = self.projected[..., :dimensions]
        pooled = self.pooled[..., :dimensions]
        return replace(self, projected=projected, pooled=pooled)

    @cached_property
    def mask(self) -> Tensor:
        """1 for the real tokens of each view ``[m, B, T]``."""
        mask = self.inputs["attention_mask"]
        return mask.view(max(1, len(self.pooled)), -1, mask.shape[1])

    @property
    def encoders(self) -> list[Any]:
        """All encoders that are trained."""
        return [self.encoder] if self.second is None else [self.encoder, self.second]

    @property
    def same_sentence(self) -> Views:
        """These views without the rows whose views show different sentences."""
        # they are not kept in themselves: such a circle holds the tensors of a step until the garbage is collected
        if self.matched is None or not len(self.pooled):
            return self
        return self._matching_rows

    @cached_property
    def _matching_rows(self) -> Views:
        assert self.matched is not None
        rows = self.matched.nonzero().squeeze(1)
        inputs = {}
        for name, values in self.inputs.items():
            by_view = values.view(len(self.pooled), -1, values.shape[1])
            inputs[name] = by_view[:, rows].flatten(0, 1)
        teachers = []
        for vectors in self.teachers:
            teachers.append(vectors[:, rows])
        return replace(
            self,
            inputs=inputs,
            projected=self.projected[:, rows],
            pooled=self.pooled[:, rows],
            tokens=self.tokens[:, rows] if self.tokens.ndim > 1 else self.tokens,
            attentions={layer: weights[:, rows] for layer, weights in self.attentions.items()},
            labels=None if self.labels is None else self.labels[rows],
            matched=None,
            teachers=tuple(teachers),
            teacher_scores=None if self.teacher_scores is None else self.teacher_scores[rows],
        )


OBJECTIVES: dict[str, type[Objective]] = {}
"""The objectives by name; a class registers itself with ``class Own(Objective, name="own")``."""


@dataclass(frozen=True, kw_only=True)
class Objective(Bounded):
    """One term of a loss as data; its fields are its settings.

    An objective without state defines `__call__` and is its own loss. An objective with parameters or memory builds an
    ``nn.Module`` that is called instead.
    """

    weight: float = 1.0

    views: ClassVar[int] = 2
    """The number of views of each sentence that it needs; 0 if it runs the encoder itself, on masked text."""
    all_rows: ClassVar[bool] = False
    """Whether it is also computed on rows whose views show different sentences."""
    needs: ClassVar[str] = ""
    """What the rows of the data have to be, as `ViewMaker.reads` says it; empty for what most methods read."""
    needs_labels: ClassVar[bool] = False
    """Whether the scores have to be the labels 0 and 1."""
    one_sentence: ClassVar[bool] = False
    """Whether its views have to show the same words, so that it cannot learn from pairs of different texts."""
    joint: ClassVar[bool] = False
    """Whether its views have to be pairs as one text, which a cross-encoder reads."""
    takes_hard_negatives: ClassVar[bool] = False
    """Whether it uses the hard negatives of labelled pairs."""
    negatives_in_batch: ClassVar[bool] = False
    """Whether the other sentences of a batch are negatives, also one that repeats a sentence."""
    requires: ClassVar[str] = "vectors"
    """The input of the loss: sentence ``vectors`` alone; ``text``, on which it runs networks of its own; the token
    vectors, ``tokens``; or the ``attention`` weights."""
    every_view: ClassVar[bool] = False
    """Whether it uses all views of the method, and not only the first `views`."""
    teacher: ClassVar[Literal["", "vectors", "scores"]] = ""
    """What it learns from a teacher: the ``vectors`` of texts, or the ``scores`` of pairs; empty without one."""
    most_teachers: ClassVar[int] = 1
    """How many teachers it can learn from together."""
    truncates: ClassVar[bool] = False
    """Whether it can be computed on the first dimensions of the vectors alone, as `can_truncate` tells."""

    def __init_subclass__(cls, name: str = "") -> None:
        """Register an objective under its name in ``objectives+=NAME`` and in the logs."""
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
        """Raise InputError for values that exclude each other."""

    def check_views(self, positives: int, hard_negatives: int) -> None:
        """Raise InputError for settings that do not fit the numbers of positives and hard negatives of each anchor."""

    @property
    def note(self) -> str:
        """A warning about these settings for the user, before the training starts."""
        return ""

    def attention_layers(self, depth: int) -> tuple[int, ...]:
        """Return the layers, counted from 0, whose attention weights it needs."""
        return ()

    def can_truncate(self) -> bool:
        """Tell whether it can be computed on the first dimensions of the vectors alone."""
        return self.truncates

    def least_rows(self) -> int:
        """Return the smallest number of rows on which it can be computed."""
        return 2

    def reads(self) -> list[str]:
        """Return the folders or models that `build` reads besides the start model."""
        return []

    def build(self, context: ObjectiveContext) -> Loss:
        """Return the function from `Views` to the unweighted term, a scalar to be minimised.

        Raises:
            InputError: if the objective cannot be computed with this encoder.
        """
        return self

    def __call__(self, views: Views) -> Tensor:
        """Return the unweighted term, for objectives without state."""
        raise NotImplementedError


class StatefulObjective(nn.Module):
    """The base class of losses with parameters or memory, which `Objective.build` makes."""

    note: str = ""
    """A note for the user before the training starts."""

    kept_as: ClassVar[str] = ""
    """The file name under ``training_head/`` for the trained part; empty if nothing is kept."""

    def trained_part(self) -> nn.Module:
        """Return the part that is kept beside the trained encoder."""
        return self
