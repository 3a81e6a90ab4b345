"""The training data: sentences of files, and subsets of what is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np
from annotated_types import Ge, Gt, Le

from sentcli.arrays import Int64Array
from sentcli.bounds import check_value
from sentcli.errors import InputError
from sentcli.evaluation.files import STSB_RANGE
from sentcli.io.digests import file_digest
from sentcli.io.disk_texts import texts_on_disk
from sentcli.io.readers import ReadOptions
from sentcli.io.text_inputs import text_sources
from sentcli.printable import as_text
from sentcli.search.words import plain

SUBSET_STREAM = 2**31 + 1
"""Sets the random numbers that draw a subset apart from those of order and views."""


@dataclass(frozen=True)
class Subset:
    """The choice of the rows of the data that are trained on."""

    limit: int | None = None
    """The largest number of rows; None takes all."""
    fraction: float | None = None
    """The share of all rows that is taken, at least one row."""
    seed: int | None = None
    """The seed that draws the rows, so that a smaller subset is part of a larger one; None takes the first rows."""

    def __post_init__(self) -> None:
        """Check the bounds under the names that users give: the seed is ``subset_seed`` to them."""
        if self.limit is not None:
            check_value("limit", self.limit, int, (Ge(1),))
        if self.seed is not None:
            check_value("subset_seed", self.seed, int, (Ge(0),))
        if self.fraction is not None:
            check_value("fraction", self.fraction, float, (Gt(0), Le(1)))

    @property
    def read_limit(self) -> int | None:
        """The number of rows after which reading may stop, or None if all have to be read."""
        if self.seed is None and self.fraction is None:
            return self.limit
        return None

    def rows(self, total: int) -> Int64Array:
        """Return the chosen row numbers, in the order of the data."""
        count = total
        if self.fraction is not None:
            count = max(1, round(self.fraction * total))
        if self.limit is not None:
            count = min(count, self.limit)
        if self.seed is None or count >= total:
            return np.arange(min(count, total))
        permutation = np.random.default_rng([self.seed, SUBSET_STREAM]).permutation(total)
        return np.sort(permutation[:count])


@dataclass(frozen=True)
class TrainingSentences:
    """Sentences to train on, pairs of them, or anchors with their positives and hard negatives."""

    texts: tuple[Sequence[str], ...]
    """A list for each text of a row: the sentences; or first sentences, or anchors, and then second sentences, or
    positives and each of the negatives."""
    files: tuple[dict[str, object], ...]
    """For each file: its name, its SHA-256, and how many of its sentences are trained on."""
    blank: int
    """The number of rows that were left out because they hold nothing but white space."""
    scores: list[float] | None = None
    """The score of each pair, between 0 and 1."""
    score_range: tuple[float, float] = STSB_RANGE
    """The scores in the files that became 0 and 1."""
    readings: tuple[str, ...] = ()
    """A sentence on how each table was read, as `LabelledTable.reading` has it."""
    blank_places: tuple[str, ...] = ()
    """Where the first rows stand that were left out of tables, such as ``pairs.csv line 7 (positive)``."""
    notes: tuple[str, ...] = ()
    """Notes for the user on what became of the rows."""

    @property
    def sentences(self) -> Sequence[str]:
        """The sentences, the first sentence of each pair, or the anchors."""
        return self.texts[0]

    @property
    def left_out(self) -> str:
        """How many rows were left out because they lack a text, and where the first of them stand."""
        if not self.blank_places:
            return f"{self.blank:,} blank rows were left out"
        places = ", ".join(self.blank_places)
        if self.blank > len(self.blank_places):
            places += ", ..."
        return f"{self.blank:,} rows were left out, which lack a text: {places}"

    @property
    def unit(self) -> str:
        """The name of the rows: ``sentences``, ``pairs``, or ``triplets`` if there are hard negatives."""
        if len(self.texts) == 1:
            return "sentences"
        if len(self.texts) == 2:
            return "pairs"
        return "triplets"


def read_corpus(files: Sequence[str], *, text_field: str = "text", subset: Subset | None = None) -> TrainingSentences:
    """Read sentences: one for each line of a text file, or one for each row of a table.

    Args:
        files: paths as `text_sources` takes them.
        text_field: the column of a table that holds the sentences.
        subset: which of the sentences are trained on.
    """
    subset = subset or Subset()
    sources = text_sources(files)
    texts, row_counts, blank = texts_on_disk(sources, ReadOptions(text_field=text_field), subset.read_limit)
    if not texts:
        raise InputError(f"no sentence to train on in {', '.join(files)}")
    chosen = subset.rows(len(texts))
    paths = []
    for number, source in enumerate(sources):
        name = source.name
        if len(files) == len(sources):
            name = files[number]  # standard input goes by the name that was given, by which earlier runs know it
        paths.append((Path(name).name, source.path))
    if len(chosen) < len(texts):
        texts = texts.select(chosen)
    return TrainingSentences((texts,), file_facts(paths, row_counts, chosen), blank)


def repetitions(texts: Sequence[str]) -> int:
    """Return how many texts repeat an earlier one; they are compared by 64-bit hashes."""
    hashes = np.fromiter(map(hash, texts), np.int64, len(texts))
    return len(texts) - len(np.unique(hashes))


def file_facts(
    files: list[tuple[str, Path]], row_counts: list[int], chosen: Int64Array
) -> tuple[dict[str, object], ...]:
    """Describe files: the name, the SHA-256, and how many of the rows that were chosen came from each.

    Args:
        files: the name and the path of each file.
        row_counts: how many rows came from each.
        chosen: the numbers of the chosen rows, counted over all files.
    """
    first_rows = np.cumsum([0, *row_counts])
    counts, _ = np.histogram(chosen, first_rows)
    facts: list[dict[str, object]] = []
    for (name, path), count in zip(files, counts.tolist(), strict=True):
        facts.append({"file": as_text(name), "sha256": file_digest(path), "sentences": count})
    return tuple(facts)


def leaked_rows(corpus: TrainingSentences, texts: Iterable[str]) -> list[int]:
    """Return the rows that hold one of some texts, whatever its case and its spaces."""
    tested = set(map(plain, texts))
    leaked: set[int] = set()
    for column in corpus.texts:
        for row, text in enumerate(column):
            if plain(text) in tested:
                leaked.add(row)
    return sorted(leaked)


def without_rows(corpus: TrainingSentences, rows: Iterable[int]) -> TrainingSentences:
    """Return the data without some rows."""
    stays = np.ones(len(corpus.sentences), np.bool_)
    stays[list(rows)] = False
    texts = tuple(list(compress(column, stays)) for column in corpus.texts)
    scores = None
    if corpus.scores is not None:
        scores = list(compress(corpus.scores, stays))
    return replace(corpus, texts=texts, scores=scores)
