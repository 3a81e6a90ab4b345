"""Make the texts of the views of a row: of a sentence, where dropout may make them differ, or of labelled text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from sentcli.arrays import BoolArray, Float32Array
from sentcli.bounds import AtLeastOne, Bounded, Fraction, WholeNumber
from sentcli.errors import InputError
from sentcli.model.tokenizing import pair_text

if TYPE_CHECKING:
    from sentcli.model.tokenizing import Tokens


T = TypeVar("T")


def _chosen(values: Sequence[T], places: Sequence[int]) -> list[T]:
    """Return the values at some places."""
    return [values[place] for place in places]


class TrainingText(Protocol):
    """The data from which views are made."""

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The texts of each row, by column: sentences; both of pairs; anchors, positives and hard negatives."""

    @property
    def sentences(self) -> Sequence[str]:
        """The sentences, or the first sentence of each pair."""

    @property
    def scores(self) -> Sequence[float] | None:
        """The score of each pair, between 0 and 1, or the number of the class of each sentence."""


@dataclass(frozen=True)
class BatchTexts:
    """The texts of one batch of B rows."""

    views: list[list[str]]
    """B texts for each view; a single list stands for all views."""
    labels: Float32Array | None = None
    """The score of each row, between 0 and 1, or the number of its class."""
    matched: BoolArray | None = None
    """Whether the views of each row show the same sentence; None if all rows do."""


Reads = Literal["sentences", "adjacent", "pairs", "scores", "labels", "classed-pairs"]


class ViewMaker(Bounded):
    """Makes the texts of a batch."""

    reads: ClassVar[Reads] = "sentences"
    """The rows of the data: ``sentences``, ``adjacent`` sentences, ``pairs`` of anchor and positive with hard
    negatives, pairs with ``scores``, texts with ``labels``, which are classes, or ``classed-pairs``."""
    one_sentence: ClassVar[bool] = True
    """Whether all views show one sentence, perhaps with changes."""
    joint: ClassVar[bool] = False
    """Whether a view is a pair as one text, for a cross-encoder."""
    longer: ClassVar[int] = 0
    """By how many tokens a view may be longer than the maximum length, through `tokens`."""

    @classmethod
    def different_texts(cls) -> bool:
        """Return whether the views are different texts that belong together, without a score."""
        return not cls.one_sentence and cls.reads != "scores"

    @property
    def count(self) -> int:
        """The number of views of a sentence."""
        raise NotImplementedError

    @property
    def roles(self) -> tuple[str, ...]:
        """What each view is to a model with prompts: ``query``, ``document``, or empty for its default prompt."""
        return ("",) * self.count

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the texts of some rows of the corpus."""
        raise NotImplementedError

    def tokens(self, views: list[Tokens], rng: np.random.Generator) -> list[Tokens]:
        """Return the tokens of the views after changes to tokens, of which most view makers make none."""
        return views

    def rows_with(self, matching: int) -> int:
        """Return how many rows a batch needs so that `matching` of them show one sentence in all views."""
        return matching


@dataclass(frozen=True, kw_only=True)
class Copies(ViewMaker):
    """Views that repeat the text of a sentence, so that only dropout makes them differ."""

    count: AtLeastOne = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences once."""
        return BatchTexts([_chosen(corpus.sentences, rows)])


@dataclass(frozen=True, kw_only=True)
class ClassedCopies(Copies):
    """Two views of a sentence, which only dropout makes differ, and its class; the data has to have classes."""

    reads: ClassVar[Reads] = "labels"
    count: ClassVar[int] = 2  # type: ignore[misc]

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences once, and the numbers of their classes."""
        return replace(super().texts(rows, corpus, rng), labels=_labels(rows, corpus))


def _labels(rows: list[int], corpus: TrainingText) -> Float32Array:
    """Return the scores or the numbers of the classes of some rows."""
    assert corpus.scores is not None
    return np.array(_chosen(corpus.scores, rows), np.float32)


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
        plain = _chosen(corpus.sentences, rows)
        masked = [self.masked(text, rng) for text in plain]
        return BatchTexts([plain, masked])

    def masked(self, text: str, rng: np.random.Generator) -> str:
        """Replace a random span by the mask, where its characters first occur in the text, as in the authors' code."""
        if len(text) < self.least:
            return text
        start = int(rng.integers(len(text) - self.span + 1))
        return text.replace(text[start : start + self.span], f" {self.mask} ", 1)


MOST_REPEATED = 9
"""The largest number of tokens that `WordRepetition` repeats, in the authors' code."""


@dataclass(frozen=True, kw_only=True)
class WordRepetition(ViewMaker):
    """View 1 is the text, view 2 the text with some of its tokens repeated (ESimCSE's code)."""

    rate: Fraction = 0.32
    """The share of the tokens, special ones included, that the number of repeated tokens stays below."""

    count: ClassVar[int] = 2
    longer: ClassVar[int] = MOST_REPEATED

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences once."""
        return BatchTexts([_chosen(corpus.sentences, rows)])

    def tokens(self, views: list[Tokens], rng: np.random.Generator) -> list[Tokens]:
        """Return the tokens of the sentences, and these with new tokens repeated."""
        plain = views[0]
        places = [self.places(len(ids), rng) for ids in plain.ids]
        ids = list(map(_chosen, plain.ids, places))
        type_ids = None
        if plain.type_ids is not None:
            type_ids = list(map(_chosen, plain.type_ids, places))
        cut_once = np.zeros_like(plain.excess_tokens)
        return [plain, replace(plain, ids=ids, type_ids=type_ids, excess_tokens=cut_once)]

    def places(self, length: int, rng: np.random.Generator) -> list[int]:
        """Return the places of `length` tokens in order, some of them twice, but never the first and the last."""
        places = list(range(length))
        bound = min(MOST_REPEATED + 1, int(self.rate * length), length - 1)
        number = int(rng.integers(bound)) if bound > 0 else 0
        if number:
            repeated = 1 + rng.choice(length - 2, number, replace=False)
            places += repeated.tolist()
        return sorted(places)


@dataclass(frozen=True, kw_only=True)
class RandomPairs(ViewMaker):
    """Groups of one sentence paired with itself and some unrelated pairs (Contrastive Tension's code)."""

    negatives: AtLeastOne = 7
    """K, the number of unrelated pairs for each matching one."""

    count: ClassVar[int] = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return the sentences, and for each of them the same sentence or one drawn from the whole corpus."""
        matched = np.arange(len(rows)) % (self.negatives + 1) == 0
        others = rng.integers(len(corpus.sentences), size=len(rows))
        second = np.where(matched, rows, others).tolist()
        return BatchTexts([_chosen(corpus.sentences, rows), _chosen(corpus.sentences, second)], matched=matched)

    def rows_with(self, matching: int) -> int:
        """Return how many rows a batch needs, given that the first row of each group matches."""
        return (matching - 1) * (self.negatives + 1) + 1


@dataclass(frozen=True, kw_only=True)
class ScoredPairs(ViewMaker):
    """The two sentences of a scored pair as views; the data has to be scored pairs."""

    reads: ClassVar[Reads] = "scores"
    one_sentence: ClassVar[bool] = False
    count: ClassVar[int] = 2

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return first sentences, second sentences, and scores or numbers of classes."""
        return replace(_columns(rows, corpus), labels=_labels(rows, corpus))


@dataclass(frozen=True, kw_only=True)
class ClassedPairs(ScoredPairs):
    """The two sentences of a pair with a class as views, such as those of natural language inference."""

    reads: ClassVar[Reads] = "classed-pairs"


@dataclass(frozen=True, kw_only=True)
class JointPairs(ScoredPairs):
    """Both texts of a scored pair as one view, which a cross-encoder scores; the data has to be scored pairs."""

    joint: ClassVar[bool] = True
    one_sentence: ClassVar[bool] = True
    count: ClassVar[int] = 1

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return each pair as one text, and the scores."""
        pairs = super().texts(rows, corpus, rng)
        return replace(pairs, views=[list(map(pair_text, *pairs.views))])


def _columns(rows: list[int], corpus: TrainingText) -> BatchTexts:
    """Return the texts of some rows, a view for each column of the data."""
    return BatchTexts([_chosen(column, rows) for column in corpus.texts])


@dataclass(frozen=True, kw_only=True)
class LabelledPairs(ViewMaker):
    """An anchor, its positive and perhaps hard negatives as views; the data has to be a table of these."""

    negatives: WholeNumber = 0
    """The number of hard negatives of each anchor; it follows from the columns of the data."""

    reads: ClassVar[Reads] = "pairs"
    one_sentence: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """Anchor, positive and hard negatives."""
        return 2 + self.negatives

    @property
    def roles(self) -> tuple[str, ...]:
        """Anchors are queries, all else are documents."""
        return ("query", *("document",) * (self.count - 1))

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return anchors, positives and hard negatives."""
        return _columns(rows, corpus)


@dataclass(frozen=True, kw_only=True)
class Adjacent(ViewMaker):
    """A text of a document and the next one as views; the data has to be in the order of the documents."""

    reads: ClassVar[Reads] = "adjacent"
    one_sentence: ClassVar[bool] = False
    count: ClassVar[int] = 2
    roles: ClassVar[tuple[str, ...]] = ("document", "document")

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return texts and the texts after them."""
        return _columns(rows, corpus)


@dataclass(frozen=True, kw_only=True)
class Crops(ViewMaker):
    """Two random spans of words of a document (Contriever: Izacard et al., TMLR 2022, sec. 3.1)."""

    shortest: Fraction = 0.1
    """The length of the shortest span, as a share of the words of the document."""
    longest: Fraction = 0.5
    """The length of the longest span."""
    words: AtLeastOne = 256
    """How many words of a document spans are taken from; those after them are not used."""

    one_sentence: ClassVar[bool] = False
    count: ClassVar[int] = 2
    roles: ClassVar[tuple[str, ...]] = ("document", "document")

    def __post_init__(self) -> None:
        """Refuse a longest span that is shorter than the shortest."""
        super().__post_init__()
        if self.longest < self.shortest:
            raise InputError(f"longest must be at least {self.shortest}, the shortest span, not {self.longest}")

    def texts(self, rows: list[int], corpus: TrainingText, rng: np.random.Generator) -> BatchTexts:
        """Return two spans of each document, which may overlap."""
        documents = [text.split(maxsplit=self.words)[: self.words] for text in _chosen(corpus.sentences, rows)]
        first = [self.span(words, rng) for words in documents]
        second = [self.span(words, rng) for words in documents]
        return BatchTexts([first, second])

    def span(self, words: list[str], rng: np.random.Generator) -> str:
        """Return a random span of some words, at least one."""
        least = max(1, round(self.shortest * len(words)))
        most = max(1, round(self.longest * len(words)))
        size = int(rng.integers(least, most + 1))
        start = int(rng.integers(len(words) - size + 1))
        return " ".join(words[start : start + size])


VIEWS: dict[str, type[ViewMaker]] = {
    "copies": Copies,
    "classes": ClassedCopies,
    "span-mask": SpanMask,
    "word-repetition": WordRepetition,
    "random-pairs": RandomPairs,
    "scored-pairs": ScoredPairs,
    "joint-pairs": JointPairs,
    "classed-pairs": ClassedPairs,
    "pairs": LabelledPairs,
    "adjacent": Adjacent,
    "crops": Crops,
}
"""The view makers by the names of ``--set views=...``."""
