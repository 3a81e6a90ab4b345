"""How the views of a sentence are made from text; dropout makes them differ where the texts are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.objectives import checks


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


class ViewMaker(Protocol):
    """Makes the texts of a batch."""

    @property
    def count(self) -> int:
        """Views a sentence."""

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the texts of some rows of the corpus."""

    def rows_with(self, matching: int) -> int:
        """Return how many rows a batch needs so that this many show one sentence in all views."""


class _Matching:
    def rows_with(self, matching: int) -> int:
        """Return the same number: every row shows one sentence."""
        return matching


@dataclass(frozen=True, kw_only=True)
class Copies(_Matching):
    """The same text in each view."""

    count: int = 2

    def __post_init__(self) -> None:
        """Refuse no views at all."""
        checks.at_least(1, count=self.count)

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences once."""
        return BatchTexts([[corpus.sentences[i] for i in rows]])


@dataclass(frozen=True, kw_only=True)
class SpanMask(_Matching):
    """View 1 is the text, view 2 the text with a random span of characters masked (Mirror-BERT's code)."""

    span: int = 5
    """Characters."""
    least: int = 30
    """Shorter texts are not masked."""
    mask: str = "[MASK]"
    """What the span is replaced by, also for tokenizers whose mask token is another."""

    count: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse an empty span."""
        checks.at_least(1, span=self.span)
        checks.at_least(self.span, least=self.least)

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
class RandomPairs:
    """Groups of one sentence paired with itself and some unrelated pairs (Contrastive Tension's code)."""

    negatives: int = 7
    """K: unrelated pairs for each matching one."""

    count: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse a negative number."""
        checks.at_least(1, negatives=self.negatives)

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
class ScoredPairs(_Matching):
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
