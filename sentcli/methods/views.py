"""Make the texts of the views of a sentence; where the texts are the same, dropout makes the views differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.bounds import AtLeastOne, Bounded
from sentcli.errors import InputError


class TrainingText(Protocol):
    """The data from which views are made."""

    @property
    def sentences(self) -> Sequence[str]:
        """The sentences, or the first sentence of each pair."""

    @property
    def partners(self) -> Sequence[str] | None:
        """The second sentence of each pair."""

    @property
    def scores(self) -> Sequence[float] | None:
        """The score of each pair, between 0 and 1."""


@dataclass(frozen=True)
class BatchTexts:
    """The texts of one batch of B rows."""

    views: list[list[str]]
    """B texts for each view; a single list stands for all views."""
    labels: npt.NDArray[np.float32] | None = None
    """The score of each row, between 0 and 1."""
    matched: npt.NDArray[np.bool_] | None = None
    """Whether the views of each row show the same sentence; None if all rows do."""


class ViewMaker(Bounded):
    """Makes the texts of a batch."""

    @property
    def count(self) -> int:
        """The number of views of a sentence."""
        raise NotImplementedError

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the texts of some rows of the corpus."""
        raise NotImplementedError

    def rows_with(self, matching: int) -> int:
        """Return how many rows a batch needs so that `matching` of them show one sentence in all views."""
        return matching


@dataclass(frozen=True, kw_only=True)
class Copies(ViewMaker):
    """Views that repeat the text of a sentence, so that only dropout makes them differ."""

    count: AtLeastOne = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences once."""
        return BatchTexts([[corpus.sentences[i] for i in rows]])


@dataclass(frozen=True, kw_only=True)
class SpanMask(ViewMaker):
    """View 1 is the text, view 2 the text with a random span of characters masked (Mirror-BERT's code)."""

    span: AtLeastOne = 5
    """The length of the span in characters."""
    least: AtLeastOne = 30
    """The length from which a text is masked, in characters."""
    mask: str = "[MASK]"
    """The text that replaces the span, also for tokenizers with another mask token."""

    count: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse to mask texts that are shorter than the span."""
        super().__post_init__()
        if self.least < self.span:
            raise InputError(f"least must be at least {self.span}, the span, not {self.least}")

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences, and the sentences with a new span masked."""
        plain = [corpus.sentences[i] for i in rows]
        return BatchTexts([plain, [self.masked(text, rng) for text in plain]])

    def masked(self, text: str, rng: np.random.Generator) -> str:
        """Replace a random span by the mask, where its characters first occur in the text, as in the authors' code."""
        if len(text) < self.least:
            return text
        start = int(rng.integers(len(text) - self.span + 1))
        return text.replace(text[start : start + self.span], f" {self.mask} ", 1)


@dataclass(frozen=True, kw_only=True)
class RandomPairs(ViewMaker):
    """Groups of one sentence paired with itself and some unrelated pairs (Contrastive Tension's code)."""

    negatives: AtLeastOne = 7
    """K, the number of unrelated pairs for each matching one."""

    count: ClassVar[int] = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences, and for each of them the same sentence or one drawn from the whole corpus."""
        matched = np.arange(len(rows)) % (self.negatives + 1) == 0
        others = rng.integers(len(corpus.sentences), size=len(rows)).tolist()
        second = [i if same else other for i, same, other in zip(rows, matched, others, strict=True)]
        return BatchTexts([[corpus.sentences[i] for i in chosen] for chosen in (rows, second)], matched=matched)

    def rows_with(self, matching: int) -> int:
        """Return how many rows a batch needs, given that the first row of each group matches."""
        return (matching - 1) * (self.negatives + 1) + 1


@dataclass(frozen=True, kw_only=True)
class ScoredPairs(ViewMaker):
    """The two sentences of a scored pair as views; the data has to be scored pairs."""

    count: ClassVar[int] = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return first sentences, second sentences and scores."""
        assert corpus.partners is not None and corpus.scores is not None
        views = [[column[i] for i in rows] for column in (corpus.sentences, corpus.partners)]
        return BatchTexts(views, labels=np.array([corpus.scores[i] for i in rows], np.float32))


VIEWS: dict[str, type[ViewMaker]] = {
    "copies": Copies,
    "span-mask": SpanMask,
    "random-pairs": RandomPairs,
    "scored-pairs": ScoredPairs,
}
"""The view makers by the names of ``--set views=...``."""
