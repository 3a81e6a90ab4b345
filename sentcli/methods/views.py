"""How the views of a sentence are made from text; dropout makes them differ where the texts are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.bounds import AtLeastOne, Bounded
from sentcli.errors import InputError


class TrainingText(Protocol):
    """What views are made of."""

    @property
    def sentences(self) -> Sequence[str]:
        """The sentences; of pairs, the first ones."""

    @property
    def partners(self) -> Sequence[str] | None:
        """The second sentences of pairs."""

    @property
    def scores(self) -> Sequence[float] | None:
        """The scores of pairs, between 0 and 1."""


@dataclass(frozen=True)
class BatchTexts:
    """The texts of one batch of B rows."""

    views: list[list[str]]
    """B texts a view; a single list stands for all views."""
    labels: npt.NDArray[np.float32] | None = None
    """A score between 0 and 1 a row."""
    matched: npt.NDArray[np.bool_] | None = None
    """Whether the views of a row show the same sentence, where not all do."""


class ViewMaker(Bounded):
    """Makes the texts of a batch."""

    @property
    def count(self) -> int:
        """Views of a sentence."""
        raise NotImplementedError

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the texts of some rows of the corpus."""
        raise NotImplementedError

    def rows_with(self, matching: int) -> int:
        """Return how many rows a batch needs so that this many show one sentence in all views."""
        return matching


@dataclass(frozen=True, kw_only=True)
class Copies(ViewMaker):
    """The same text in each view."""

    count: AtLeastOne = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences once."""
        return BatchTexts([[corpus.sentences[i] for i in rows]])


@dataclass(frozen=True, kw_only=True)
class SpanMask(ViewMaker):
    """View 1 is the text, view 2 the text with a random span of characters masked (Mirror-BERT's code)."""

    span: AtLeastOne = 5
    """Characters."""
    least: AtLeastOne = 30
    """Shorter texts are not masked."""
    mask: str = "[MASK]"
    """What the span is replaced by, also for tokenizers whose mask token is another."""

    count: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse texts that are shorter than the span."""
        super().__post_init__()
        if self.least < self.span:
            raise InputError(f"least must be at least {self.span}, the span, not {self.least}")

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences, and the sentences with a new span masked."""
        plain = [corpus.sentences[i] for i in rows]
        return BatchTexts([plain, [self.masked(text, rng) for text in plain]])

    def masked(self, text: str, rng: np.random.Generator) -> str:
        """Replace one span; like the authors' code, at the first place where its characters occur."""
        if len(text) < self.least:
            return text
        start = int(rng.integers(len(text) - self.span + 1))
        return text.replace(text[start : start + self.span], f" {self.mask} ", 1)


@dataclass(frozen=True, kw_only=True)
class RandomPairs(ViewMaker):
    """Groups of one sentence paired with itself and some unrelated pairs (Contrastive Tension's code)."""

    negatives: AtLeastOne = 7
    """K: unrelated pairs for each matching one."""

    count: ClassVar[int] = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences, and for each itself or one drawn from the whole corpus."""
        matched = np.arange(len(rows)) % (self.negatives + 1) == 0
        others = rng.integers(len(corpus.sentences), size=len(rows)).tolist()
        second = [i if same else other for i, same, other in zip(rows, matched, others, strict=True)]
        return BatchTexts([[corpus.sentences[i] for i in chosen] for chosen in (rows, second)], matched=matched)

    def rows_with(self, matching: int) -> int:
        """Return the rows up to that matching one: the first of each group matches."""
        return (matching - 1) * (self.negatives + 1) + 1


@dataclass(frozen=True, kw_only=True)
class ScoredPairs(ViewMaker):
    """The two sentences of a pair with a score; the data has to be pairs."""

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
"""Names for ``--set views=...``."""
