"""Masked language modelling on a copy of the text.

The masking is BERT's (Devlin et al., NAACL 2019, sec. 3.1), and the term is SimCSE's MLM option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sentcli.bounds import MaskRate
from sentcli.errors import InputError
from sentcli.model import stored_heads, surgery
from sentcli.model.ahead import queued_to
from sentcli.objectives.base import Objective, StatefulObjective, Views, Vocabulary, by_length

if TYPE_CHECKING:
    from sentcli.objectives.base import Loss, ObjectiveContext

IGNORED = -100
WORD_SCORES = 2**24
"""How many scores of words are held at a time at most: 64 MiB, for 544 positions and 30,522 words
(``benchmarks/masked_words.py``)."""

ROWS_OF_WORDS = 32
"""The number of masked words is filled up to a multiple of it, with words that count nothing."""


def mask_tokens(
    ids: Tensor, vocabulary: Vocabulary, rate: float, *, whole_words: bool = False
) -> tuple[Tensor, Tensor]:
    """Choose tokens at random, of which 80 % become the mask token, 10 % become a random token, and 10 % stay.

    Args:
        ids: ``[B, T]``; special tokens and padding are never chosen.
        vocabulary: the ids of the mask and of special tokens, and the number of tokens.
        rate: the share of tokens that are chosen.
        whole_words: choose all tokens of a word or none, as in BERT's later checkpoints and in Condenser's code.

    Returns:
        The changed ids, and the labels: the original id where a token was chosen, and -100 elsewhere.
    """
    shape = ids.shape
    device = ids.device
    special = ids == vocabulary.pad
    for number in sorted(vocabulary.special):  # a tensor of them would be copied to a GPU, which is a wait
        special = special | (ids == number)
    drawn = torch.rand(shape, device=device)
    if whole_words:
        places = torch.arange(shape[1], device=device).expand_as(ids)
        assert vocabulary.continues is not None
        goes_on = queued_to(vocabulary.continues, device)[ids]
        first_of_word = places.where(~goes_on, 0).cummax(dim=1).values
        drawn = drawn.gather(1, first_of_word)
    chosen = (drawn < rate) & ~special
    kind = torch.rand(shape, device=device)
    assert vocabulary.mask is not None
    becomes_mask = chosen & (kind < 0.8)
    masked = ids.where(~becomes_mask, vocabulary.mask)
    random = torch.randint(vocabulary.size, shape, device=device)
    becomes_random = chosen & (kind >= 0.9)
    masked = masked.where(~becomes_random, random)
    return masked, ids.where(chosen, IGNORED)


def need_mask_token(context: ObjectiveContext, name: str, *, whole_words: bool = False) -> None:
    """Refuse a tokenizer without a mask token, or with `whole_words` one that does not tell where words begin.

    `name` is the objective that needs it.
    """
    if context.vocabulary.mask is None:
        raise InputError(f"{name} masks words, and the tokenizer of this model has no mask token")
    if whole_words and context.vocabulary.continues is None:
        raise InputError(
            f"{name}.whole_words: the tokenizer of this model does not tell which tokens go on with a word"
        )


class LMHead(nn.Module):
    """Turns hidden states into a score for each word: dense, GELU, layer normalisation and decoder, as in BERT."""

    def __init__(self, backbone: Any, *, tied: bool) -> None:
        super().__init__()
        config = backbone.config
        table = surgery.word_embeddings(backbone)
        words, width = table.weight.shape
        eps = getattr(config, "layer_norm_eps", None) or getattr(config, "norm_eps", None) or 1e-12
        self.dense = nn.Linear(int(config.hidden_size), width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.bias = nn.Parameter(torch.zeros(words))
        self.decoder = None if tied else nn.Linear(width, words, bias=False)
        surgery.reset(self, float(getattr(config, "initializer_range", 0.02)))
        if self.decoder is not None:
            self.decoder.weight.data.copy_(table.weight)

    def forward(self, hidden: Tensor, backbone: Any) -> Tensor:
        """Return scores ``[..., vocabulary]``; a tied head decodes with the word embeddings of `backbone`."""
        decoder = surgery.word_embeddings(backbone) if self.decoder is None else self.decoder
        normalised = self.norm(functional.gelu(self.dense(hidden)))
        return functional.linear(normalised, decoder.weight, self.bias)

    def take(self, weights: Mapping[str, Tensor] | None) -> bool:
        """Load the weights of a checkpoint's language-modelling head, and return whether it has one that fits."""
        if weights is None:
            return False
        state = self.state_dict()
        fitting = []
        for name, value in weights.items():
            if name in state and state[name].shape == value.shape:
                state[name] = value
                fitting.append(name)
        self.load_state_dict(state)
        return "dense.weight" in fitting and "norm.weight" in fitting


def masked_loss(head: LMHead, hidden: Tensor, labels: Tensor, backbone: Any) -> Tensor:
    """Return the mean cross-entropy over the chosen positions of all rows, or 0 if none was chosen.

    Args:
        head: scores the words.
        hidden: hidden states ``[..., d]``.
        labels: ``[...]``, -100 where no word is predicted.
        backbone: the model whose word embeddings decode, if `head` has no decoder.
    """
    chosen = labels != IGNORED
    places = chosen.nonzero(as_tuple=True)  # once: on a GPU each selection by a mask waits for their number
    hidden = hidden[places]  # only the chosen positions, which are few
    words = labels[places]
    size = max(1, WORD_SCORES // len(head.bias))
    # parts of few different lengths: oneDNN keeps code for each, and a heap of blocks that recur stays in one piece
    unit = min(size, ROWS_OF_WORDS)
    size -= size % unit
    short = -len(words) % unit
    hidden = functional.pad(hidden, (0, 0, 0, short))
    words = functional.pad(words, (0, short), value=IGNORED)
    parts = zip(torch.split(hidden, size), torch.split(words, size), strict=True)

    def loss(hidden: Tensor, words: Tensor) -> Tensor:
        return functional.cross_entropy(head(hidden, backbone), words, reduction="sum")

    if torch.is_grad_enabled():  # the backward pass computes the scores of the words anew
        losses = [checkpoint(loss, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    else:
        losses = [loss(*part) for part in parts]
    return torch.stack(losses).sum() / chosen.sum().clamp(min=1)


def chosen_states(
    inputs: Mapping[str, Tensor], labels: Tensor, states: Callable[[Tensor, dict[str, Tensor]], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the states ``[N, ...]`` at the chosen positions, and their words ``[N]``, in the order of `by_length`.

    Args:
        inputs: the masked model inputs ``[B, T]``.
        labels: ``[B, T]``, -100 where no word is predicted.
        states: takes the numbers of some rows and their inputs ``[P, T']``, and returns their states ``[P, T', ...]``.
    """
    hidden = []
    words = []
    for rows, part in by_length({**inputs, "labels": labels}):
        row_labels = part.pop("labels")
        places = (row_labels != IGNORED).nonzero(as_tuple=True)
        row_states = states(rows, part)
        hidden.append(row_states[places])
        words.append(row_labels[places])
    return torch.cat(hidden), torch.cat(words)


class WordPrediction(StatefulObjective):
    """A loss that predicts masked words from the last layer of the encoder itself.

    Attributes:
        vocabulary: the token ids that masking needs.
        rate: the share of masked words.
        whole_words: whether all tokens of a word are masked together.
        in_place: whether all objectives see the masked text.
    """

    vocabulary: Vocabulary
    rate: float
    whole_words: bool = False
    in_place: bool = False

    def masked(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Mask ids ``[B, T]`` anew, and return them and the labels, as `mask_tokens` does."""
        return mask_tokens(ids, self.vocabulary, self.rate, whole_words=self.whole_words)

    @property
    def head(self) -> LMHead:
        """The head that scores words, given the states of the last layer."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MaskedLM(Objective, name="mlm"):
    """Predict masked words with the encoder itself."""

    weight: float = 0.1
    rate: MaskRate = 0.15
    tie: bool = True
    """Whether the decoder is the table of word embeddings, as in BERT, or a copy of it, as in SimCSE's code."""
    whole_words: bool = False
    """Whether all tokens of a word are masked together."""
    in_place: bool = False
    """Whether the words are masked in the text that all other objectives see, as in InforMin-CL's code, and not in a
    copy of it."""

    views: ClassVar[int] = 0
    requires: ClassVar[str] = "text"
    all_rows: ClassVar[bool] = True
    every_view: ClassVar[bool] = True

    def build(self, context: ObjectiveContext) -> Loss:
        """Return the loss module with its head, which starts from that of the checkpoint if there is one."""
        need_mask_token(context, "mlm", whole_words=self.whole_words)
        return MaskedLMLoss(self, context)


class MaskedLMLoss(WordPrediction):
    """The loss of `MaskedLM`, with its language-modelling head."""

    kept_as: ClassVar[str] = "lm_head"

    def __init__(self, settings: MaskedLM, context: ObjectiveContext) -> None:
        super().__init__()
        self.vocabulary = context.vocabulary
        self.rate = settings.rate
        self.whole_words = settings.whole_words
        self.in_place = settings.in_place
        self.lm_head = LMHead(context.backbone, tied=settings.tie)
        if not self.lm_head.take(stored_heads.lm_head_weights(context.spec.folder)):
            self.note = "the start model holds no language-modelling head: a new one is trained"

    @property
    def head(self) -> LMHead:
        """The language-modelling head."""
        return self.lm_head

    def forward(self, views: Views) -> Tensor:
        """Return the loss of a freshly masked copy of all rows, or of rows that are masked already.

        With two encoders, it is the mean of both.
        """
        inputs = views.inputs
        labels = views.masked_words
        if labels is None:
            masked, labels = self.masked(inputs["input_ids"])
            inputs = {**inputs, "input_ids": masked}
        losses = []
        for encoder in views.encoders:
            backbone = encoder.backbone
            hidden, words = chosen_states(inputs, labels, partial(_last_states, backbone))
            loss = masked_loss(self.lm_head, hidden, words, backbone)
            losses.append(loss)
        return torch.stack(losses).mean()

    def trained_part(self) -> nn.Module:
        """Return the language-modelling head."""
        return self.lm_head


def _last_states(backbone: Any, _: Tensor, part: dict[str, Tensor]) -> Tensor:
    return backbone(**part).last_hidden_state
