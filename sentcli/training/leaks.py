"""Texts of dev and test sets that stand in the training data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sentcli.training.data import TrainingSentences


def leaked_rows(corpus: TrainingSentences, texts: Iterable[str]) -> list[int]:
    """Return the rows that hold one of some texts, whatever its case and its spaces."""
    tested = {_plain(text) for text in texts}
    return [
        row
        for row, cells in enumerate(zip(*corpus.texts, strict=True))
        if any(_plain(cell) in tested for cell in cells)
    ]


def without_rows(corpus: TrainingSentences, rows: Iterable[int]) -> TrainingSentences:
    """Return the data without some rows."""
    left_out = set(rows)
    kept = [row for row in range(len(corpus.sentences)) if row not in left_out]
    return replace(
        corpus,
        texts=tuple([column[row] for row in kept] for column in corpus.texts),
        scores=None if corpus.scores is None else [corpus.scores[row] for row in kept],
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
